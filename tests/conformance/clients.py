"""Drives the product with other people's clients: each tool with its optional arguments at default, null and empty.

    python -m tests.conformance.clients [--libraries DIR]

DIR holds a virtual environment with ``fastmcp``, ``openai-agents`` and ``pydantic-ai-slim[mcp]``, and in
``node_modules`` the TypeScript SDK; see ``.ci/run``. What is missing is skipped and named; exit status 3 where nothing
could run, 1 where a call failed, differed from the same call without what was filled in, or broke its token budget.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memory_core.core.memory.requests import CONTEXT_FORMATS
from memory_core.core.text.tokens import count_tokens
from tests.conformance.client_calls import LIBRARIES
from tests.conformance.run import CannotRun, node
from tests.server.protocol.test_tool_schemas import FILLINGS, NEEDED

ROOT = Path(__file__).parent.parent.parent
HERE = Path(__file__).parent
SDK = Path("node_modules/@modelcontextprotocol/sdk")
BUDGETS = (200, 1_000)
_SECONDS = 180


def calls() -> list[dict[str, Any]]:
    """Something to recall, then each tool plain and filled, then contexts in each form."""
    found: list[dict[str, Any]] = [
        {
            "tool": "commit_memory",
            "arguments": {"memory_content": f"The ferry {n} 渡轮 calls at pier {n}, " + "often " * n},
        }
        for n in range(12)
    ]
    for tool, needed in NEEDED.items():
        found += [{"tool": tool, "arguments": needed}] * 2  # the second commit changes nothing, as do all that follow
        found += [{"tool": tool, "arguments": {**filling(tool), **needed}} for filling in FILLINGS.values()]
    for form in CONTEXT_FORMATS:
        sent = [{"query": "ferry 渡轮", "format": form, "token_budget": budget} for budget in BUDGETS]
        found += [{"tool": "retrieve", "arguments": each} for each in sent]
    return found


def faults(made: list[dict[str, Any]], answers: list[dict[str, Any]]) -> Iterator[str]:
    """What is wrong with the answers of one client."""
    plain: dict[str, str] = {}
    for call, answer in zip(made, answers, strict=True):
        tool, sent, given = call["tool"], call["arguments"], answer["given"]
        told = f"{tool} {json.dumps(sent, ensure_ascii=False)[:200]}"
        if answer["error"] or not given:
            yield f"{told}: failed: {given}"
        elif sent.get("token_budget") in BUDGETS:
            cost = count_tokens(given if isinstance(given, str) else json.dumps(given, ensure_ascii=False))
            if cost > sent["token_budget"]:
                yield f"{told}: costs {cost} tokens"
        elif sent == NEEDED[tool]:
            plain[tool] = _known(given)
        elif tool in plain and _known(given) != plain[tool]:
            yield f"{told}: {given}, not {plain[tool]}"


def _known(given: Any) -> str:
    """An answer without what differs from call to call: the commit's name, and scores with the order that follows.

    What is used counts more.
    """
    if isinstance(given, dict):
        given = {name: value for name, value in given.items() if name != "commit_id"}
    return json.dumps(_plain(given), ensure_ascii=False)


def _plain(given: Any) -> Any:
    if isinstance(given, dict):
        return {name: _plain(value) for name, value in given.items()}
    if isinstance(given, list):
        return sorted(map(_plain, given), key=json.dumps)
    if isinstance(given, str):
        return sorted(re.sub(r"\(\w{8,}\)|\d+(\.\d+)?", "#", given).splitlines())
    return "#" if isinstance(given, int | float) and not isinstance(given, bool) else given


def commands(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Each client that is there: its name and how it is started."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    for library in LIBRARIES:
        if python.exists():
            yield library, [str(python), str(HERE / "client_calls.py"), library]
    if (folder / SDK).exists():
        try:
            program = node()
        except CannotRun:
            program = shutil.which("node") or "node"  # the SDK needs less than the suite
        yield "typescript", [program, str(HERE / "client_calls.mjs"), str((folder / SDK).resolve())]


def main() -> int:
    """Run each client against a fresh store."""
    parser = argparse.ArgumentParser(description="Drive Runebook with other people's clients.")
    parser.add_argument("--libraries", type=Path, default=Path.home() / ".cache/runebook-tests/clients")
    options = parser.parse_args()
    found: list[str] = []
    ran: list[str] = []
    made = calls()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RUNEBOOK_")}
    environment |= {"PYTHONPATH": str(ROOT)}
    for library, command in commands(options.libraries):
        ran.append(library)
        with tempfile.TemporaryDirectory() as temporary:
            sent, answered = Path(temporary) / "calls.json", Path(temporary) / "answers.json"
            sent.write_text(json.dumps(made), encoding="utf-8")
            serve = [sys.executable, "-m", "server.cli", "serve", "--home", str(Path(temporary) / "home")]
            serve += ["--set", "embedding.provider=none"]
            run = [*command, str(sent), str(answered), *serve]
            done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False)
            if done.returncode:
                found.append(f"{library}: {done.stderr[-2_000:]}")
                continue
            answers = json.loads(answered.read_text(encoding="utf-8"))
        for start in range(0, len(answers), len(made)):
            found += [f"{library}: {fault}" for fault in faults(made, answers[start : start + len(made)])]
    if not ran:
        print(f"clients: SKIPPED. Nothing is installed in {options.libraries}; see .ci/run.", file=sys.stderr)
        return 3
    print(f"clients: {', '.join(ran)}: {len(made)} calls each, {len(found)} faults", *found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
