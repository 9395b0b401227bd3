"""What a newcomer does, from the wheel alone: install, set up every host, remember, find, leave without a trace.

The wheel is built and installed with all that it needs into an empty environment, away from the sources. Each host's
configuration is then read as the host reads it, and what it says is started.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.waiting import PATIENCE_SECONDS, soon

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the hosts' folders are prepared as on Linux"),
]

ROOT = Path(__file__).parents[2]
JSON = '{\n  // 我的设置\n  "theme": "dark",\n  "mcpServers": {\n    "other": {"command": "x"},\n  },\n}\n'
TOML = '# 我的\nmodel = "m"\n\n[mcp_servers.other]\ncommand = "x"\n'
RULES = "# Mine\r\n\r\nAlways answer in 中文.\r\n"

Found = Callable[[Any], Any]
#: Where each host of this machine lists servers, and how it finds one there.
LISTINGS: dict[str, tuple[str, str]] = {
    "claude-desktop": (".config/Claude/claude_desktop_config.json", "mcpServers"),
    "claude-code": (".claude.json", "mcpServers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "vscode": (".config/Code/User/mcp.json", "servers"),
    "windsurf": (".codeium/windsurf/mcp_config.json", "mcpServers"),
    "zed": (".config/zed/settings.json", "context_servers"),
    "cline": (".cline/data/settings/cline_mcp_settings.json", "mcpServers"),
    "gemini-cli": (".gemini/settings.json", "mcpServers"),
    "codex": (".codex/config.toml", "mcp_servers"),
    "continue": (".continue/mcpServers/runebook.json", "mcpServers"),
}
#: Files that are there before Runebook comes.
THEIRS = {
    ".config/Code/User/mcp.json": JSON.replace("mcpServers", "servers"),
    ".config/zed/settings.json": JSON.replace("mcpServers", "context_servers"),
    ".cursor/mcp.json": JSON,
    ".claude.json": '{"numStartups":3,"projects":{"/家":{}},"mcpServers":{}}',
    ".claude/settings.json": '{"model": "opus", "hooks": {"Stop": []}}\n',
    ".claude/CLAUDE.md": RULES,
    ".gemini/settings.json": JSON,
    ".codex/config.toml": TOML,
    ".codex/AGENTS.md": RULES,
}


class Newcomer:
    """A person with the installed program, a home folder, and nothing of this repository."""

    def __init__(self, program: Path, home: Path) -> None:
        self.program = program
        self.home = home
        kept = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")
        self.environment = {name: os.environ[name] for name in kept if name in os.environ}
        self.environment |= {"HOME": str(home), "PYTHONWARNINGS": "error::SyntaxWarning"}

    def run(self, *words: str | Path, given: str = "", status: int = 0) -> str:
        done = subprocess.run(
            [str(self.program), *map(str, words)],
            input=given,
            capture_output=True,
            text=True,
            encoding="utf-8",
            env=self.environment,
            cwd=self.home,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def files(self) -> dict[str, bytes]:
        """What is in the home folder but memories and caches."""
        below = (path for path in sorted(self.home.rglob("*")) if path.is_file())
        named = ((str(path.relative_to(self.home)), path) for path in below)
        return {name: path.read_bytes() for name, path in named if not name.startswith(("memories/", ".cache/"))}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing in it but the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("environment")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RUNEBOOK_", "PYTHON"))}
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, ROOT], check=True, cwd=folder, env=clean)
    (wheel,) = folder.glob("runebook-*.whl")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([*pip, "--python", python, "install", "--no-compile", wheel], check=True, cwd=folder, env=clean)
    return folder / "venv" / "bin"


@pytest.fixture(scope="module")
def newcomer(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    """The newcomer after ``runebook install`` of every host; ``uninstall`` has to give everything back."""
    person = Newcomer(environment / "runebook", tmp_path_factory.mktemp("家"))
    for name, text in THEIRS.items():
        path = person.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    before = person.files()
    # A prompt's hook gives up soon, which on a busy machine would be the outcome.
    settings = ("embedding.provider=none", "maintenance.automatic=off", "hooks.deadline_ms=60000")
    options = (option for setting in settings for option in ("--set", setting))
    switches: tuple[str | Path, ...] = ("--rules", "--hooks", "--home", person.home / "memories", *options)
    told = json.loads(person.run("install", *LISTINGS, *switches, "--json"))
    assert [host["host"] for host in told["hosts"]] == list(LISTINGS)
    assert not any(change["action"] == "refused" for host in told["hosts"] for change in host["changes"])
    again = json.loads(person.run("install", *LISTINGS, *switches, "--json"))
    assert {change["action"] for host in again["hosts"] for change in host["changes"]} == {"unchanged"}
    yield person
    person.run("uninstall", *LISTINGS)
    assert person.files() == before


def test_the_program_alone_remembers_and_finds_by_meaning(environment: Path, tmp_path: Path) -> None:
    person = Newcomer(environment / "runebook", tmp_path)
    assert "preferences" in person.run("types")
    person.run("commit", "用户的妹妹住在成都。")
    assert "成都" in person.run("find", "Where does the sister live?")
    shown = person.run("demo")
    assert "Close to a station: Mei's father walks badly." in shown
    assert "mcpServers" in shown


def entry_of(person: Newcomer, host: str) -> dict[str, Any]:
    """The server as the host reads it."""
    name, below = LISTINGS[host]
    text = (person.home / name).read_text(encoding="utf-8")
    if name.endswith(".toml"):
        listed = tomllib.loads(text)
        assert listed["mcp_servers"]["other"] == {"command": "x"}
    else:
        listed = json.loads(re.sub(r",(\s*[}\]])", r"\1", re.sub(r"(?m)^\s*//.*$", "", text)))
    entry: dict[str, Any] = listed[below]["runebook"]
    return entry


async def remember_and_find(person: Newcomer, entry: dict[str, Any], said: str, *asked: str) -> list[str]:
    """Start the server as a host does, store one memory, search."""
    started = StdioServerParameters(
        command=entry["command"], args=entry["args"], env=person.environment, cwd=person.home
    )
    with anyio.fail_after(PATIENCE_SECONDS):
        async with Client(stdio_client(started), mode="legacy") as client:
            stored: Any = await client.call_tool("commit_memory", {"memory_content": said})
            assert not stored.is_error, stored
            found: list[Any] = [await client.call_tool("find", {"query": query}) for query in asked]
    return [json.dumps(each.structured_content, ensure_ascii=False) for each in found]


def test_every_host_names_the_same_server_and_it_shares_the_memories_of_all(newcomer: Newcomer) -> None:
    entries = {host: entry_of(newcomer, host) for host in LISTINGS}
    assert {Path(entry["command"]) for entry in entries.values()} == {newcomer.program}
    assert len({tuple(entry["args"]) for entry in entries.values()}) == 1, "what is started here is what all start"
    assert [host for host, entry in entries.items() if entry.get("type") == "stdio"] == ["claude-code", "vscode"]
    last = ""
    for host in ("claude-desktop", "vscode", "codex"):  # one of plain JSON, one with comments, one in TOML
        said = f"The ferry of {host} leaves from quay {len(host)}. 渡轮在{len(host)}号码头。"
        own, others = anyio.run(remember_and_find, newcomer, entries[host], said, f"ferry of {host}", f"ferry {last}")
        assert f"quay {len(host)}" in own
        assert not last or f"ferry of {last}" in others, "what another host stored is found"
        last = host


def commands_of(person: Newcomer) -> dict[str, str]:
    """Claude Code's hooks, by their event."""
    settings = json.loads((person.home / ".claude" / "settings.json").read_text(encoding="utf-8"))
    assert settings["hooks"]["Stop"] == []
    return {event: group["hooks"][0]["command"] for event, groups in settings["hooks"].items() for group in groups}


def fire(person: Newcomer, command: str, event: dict[str, Any]) -> str:
    """Run a hook as the host does: by a shell, the event on standard input."""
    done = subprocess.run(
        command,
        shell=True,
        input=json.dumps(event).encode(),
        capture_output=True,
        env=person.environment,
        cwd=person.home,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    return done.stdout.decode()


def test_hooks_of_a_session_bring_what_is_known_and_keep_what_was_said(newcomer: Newcomer) -> None:
    newcomer.run(
        *(
            "commit",
            "The deploy password rotates every Monday. 部署密码每周一更换。",
            "--home",
            newcomer.home / "memories",
        ),
        *("--set", "embedding.provider=none"),
    )
    transcript = newcomer.home / "memories" / "transcript.jsonl"
    lines = [
        {"type": "user", "message": {"role": "user", "content": "The lighthouse keeper is called 阿强."}},
        {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "Noted."}]}},
    ]
    about = {
        "sessionId": "s-1",
        "cwd": str(newcomer.home),
        "timestamp": "2026-03-01T10:00:00.000Z",
        "isSidechain": False,
    }
    text = "".join(
        json.dumps({**about, "uuid": f"u{number}", **line}, ensure_ascii=False) + "\n"
        for number, line in enumerate(lines)
    )
    transcript.write_text(text, encoding="utf-8")
    commands = commands_of(newcomer)
    event = {"session_id": "s-1", "transcript_path": str(transcript), "cwd": str(newcomer.home)}
    fire(newcomer, commands["SessionStart"], {**event, "hook_event_name": "SessionStart", "source": "startup"})
    asked = {**event, "hook_event_name": "UserPromptSubmit", "prompt": "When does the deploy password rotate?"}
    told = json.loads(fire(newcomer, commands["UserPromptSubmit"], asked))
    assert "every Monday" in told["hookSpecificOutput"]["additionalContext"]
    ended = {**event, "hook_event_name": "SessionEnd", "reason": "logout"}
    assert fire(newcomer, commands["SessionEnd"], ended) == ""
    options = ("--home", newcomer.home / "memories", "--set", "embedding.provider=none")
    assert soon(lambda: "阿强" in newcomer.run("find", "lighthouse keeper", *options))


def test_rules_reach_every_host_that_has_a_file_for_them(newcomer: Newcomer) -> None:
    holding = [name for name, content in newcomer.files().items() if b"<!-- runebook:begin -->" in content]
    assert sorted(Path(name).name for name in holding) == [
        *("AGENTS.md", "AGENTS.md", "CLAUDE.md", "GEMINI.md", "global_rules.md"),
        *("runebook.instructions.md", "runebook.md", "runebook.md"),
    ]


def test_container_steps_serve_over_http_to_those_with_a_token(newcomer: Newcomer, tmp_path: Path) -> None:
    text = (ROOT / "packaging" / "Containerfile").read_text(encoding="utf-8")
    words = json.loads(re.findall(r"(?m)^CMD (\[.*\])$", text)[0])
    check = json.loads(re.findall(r"^ +CMD (\[.*\])$", text, re.MULTILINE)[0])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    person = Newcomer(newcomer.program, newcomer.home)
    person.environment |= {"RUNEBOOK_HOME": str(tmp_path / "data"), "PYTHONUNBUFFERED": "1"}
    assert (
        "token"
        in subprocess.run(
            [person.program, *words, "--port", port],
            env=person.environment,
            capture_output=True,
            text=True,
            check=False,
        ).stderr
    ), "without a token it does not serve others"
    token = re.findall(r"rb_\S+", person.run("token", "add", "laptop"))[0]
    server = subprocess.Popen(
        [person.program, *words, "--port", port], env=person.environment, stderr=subprocess.DEVNULL
    )
    try:
        python = shutil.which("python3") or sys.executable
        ask = [python, *(word.replace("8848", port) for word in check[1:])]
        assert soon(lambda: subprocess.run(ask, check=False, stderr=subprocess.DEVNULL).returncode == 0)
        assert [status_of(port, ""), status_of(port, token)] == [401, 200]
    finally:
        server.terminate()
        server.wait(PATIENCE_SECONDS)


def status_of(port: str, token: str) -> int:
    """What the server answers to ``initialize``."""
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/mcp",
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}).encode(),
        {
            "Host": "localhost:8848",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **({"Authorization": f"Bearer {token}"} if token else {}),
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
