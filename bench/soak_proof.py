"""What a soak proves at its end, from the journal and the store alone.

Files and history are read without the program under test: the files as bytes, the ledger through SQLite. Only being
found is asked of the program, in a process that took no part.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.soak_actors import COUNTER, SHARED
from bench.soak_clients import program
from bench.soak_journal import Added, Committed, Edited, Said, Wrong, entries
from bench.soak_person import path_of
from bench.soak_texts import THEMES
from bench.stdio_client import environment
from memory_core.core.config import load
from memory_core.core.errors import StoreBusy
from memory_core.core.memory.requests import FindRequest
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.trailer import split
from memory_core.core.store.locks import StoreLock
from memory_core.runebook import Runebook, open_memory

#: See the options in ``soak``.
_SERVER_ROWS = 100
_EMBEDDING_SECONDS = 600.0
_NEAREST = 10


@dataclass(slots=True)
class Expected:
    """What the journal says must be there."""

    commits: list[Committed] = field(default_factory=list)
    bodies: dict[str, str | None] = field(default_factory=dict)
    texts: dict[str, str | None] = field(default_factory=dict)
    shared_by_hand: list[str] = field(default_factory=list)
    added: list[Added] = field(default_factory=list)
    said: dict[str, Said] = field(default_factory=dict)
    acknowledged: list[tuple[str, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, journal: Path) -> Expected:
        """Read a journal."""
        expected = cls()
        for entry in entries(journal):
            match entry:
                case Committed():
                    expected.commits.append(entry)
                    expected.acknowledged.append((entry.commit_id, entry.request_id))
                    if not entry.shared:
                        expected.bodies[entry.uri] = entry.body
                case Added():
                    expected.added.append(entry)
                    expected.acknowledged.append((entry.commit_id, entry.request_id))
                case Said():
                    expected.said[entry.uri] = entry
                case Edited(uri=uri, text=text) if entry.how == "shared":
                    expected.shared_by_hand.append(text or "")
                case Edited(uri=uri, text=text):
                    expected.bodies.pop(uri, None)
                    expected.texts[uri] = text
                case Wrong():
                    expected.wrong.append(entry.what)
        return expected


def prove(home: Path, journal: Path, options: Sequence[str]) -> tuple[list[str], Counter[str]]:
    """Everything that is not as it must be, and how much was looked at.

    Args:
        home: The store; no process of the soak may be left.
        journal: What was acknowledged.
        options: ``--set`` options of the soak's servers.
    """
    expected = Expected.of(journal)
    looked: Counter[str] = Counter()
    bad = list(expected.wrong)
    bad += _left_processes(home)
    settings = {**dict(option.split("=", 1) for option in options if option != "--set"), "home": str(home)}
    exactly = {**settings, "index.mode": "exact"}  # a graph of thousands that are alike may miss one that is not
    with open_memory(load(flags=exactly)) as memory:
        memory.warm()
        memory.store.adopt()
        bad += _files(home, expected, looked)
        bad += _counter(home, expected)
        bad += _conversations(home, expected, looked)
        bad += _history(home, expected, looked)
        if memory.indexer.embedder is not None:
            memory.indexer.embed_all()
        bad += _found(memory, expected, looked)
    with open_memory(load(flags=settings)) as memory:
        memory.warm()
        memory.indexer.wake()
        bad += _on_server(memory, looked)
    bad += _locks(home)
    bad += _left_processes(home)
    bad += _doctor(home, options, looked)
    looked["temporary files left"] = sum(1 for _ in home.rglob(".tmp-*"))
    return bad, looked


def _text(home: Path, uri: str) -> str | None:
    try:
        return path_of(home, uri).read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None


def _files(home: Path, expected: Expected, looked: Counter[str]) -> Iterator[str]:
    for uri, body in expected.bodies.items():
        looked["files"] += 1
        text = _text(home, uri)
        found = None if text is None else split(text).body
        if found != body:
            yield f"{uri} holds {found!r} instead of {body!r}"
    for uri, wanted in expected.texts.items():
        looked["files by hand"] += 1
        if (text := _text(home, uri)) != wanted:
            yield f"{uri}, edited by hand, holds {text!r} instead of {wanted!r}"


def _counter(home: Path, expected: Expected) -> Iterator[str]:
    wanted = sum(added.calls for added in expected.added)
    trailer = split(_text(home, COUNTER) or "").trailer or {}
    for name in ("total_calls", "success_count"):
        if trailer.get(name, 0) != wanted:
            yield f"{name} of the shared counter is {trailer.get(name)} instead of {wanted}"


def _conversations(home: Path, expected: Expected, looked: Counter[str]) -> Iterator[str]:
    for uri, said in expected.said.items():
        text = _text(home, uri) or ""
        found = [json.loads(line)["content"] for line in text.splitlines()]
        looked["messages"] += len(found)
        if found != said.messages:
            yield f"{uri} holds {len(found)} messages instead of these {len(said.messages)}: {said.messages[:2]} …"


def _history(home: Path, expected: Expected, looked: Counter[str]) -> Iterator[str]:
    path = home / ".state" / "ledger.sqlite3"
    with closing(sqlite3.connect(path)) as ledger:
        yield from (
            f"the ledger is damaged: {row[0]}" for row in ledger.execute("PRAGMA integrity_check") if row[0] != "ok"
        )
        times = Counter(row[0] for row in ledger.execute("SELECT commit_id FROM commits"))
        requests = dict(ledger.execute("SELECT commit_id, request_id FROM commits"))
        looked["commits in the ledger"] = sum(times.values())
        for commit_id, request_id in expected.acknowledged:
            if times[commit_id] != 1 or not f"/{requests[commit_id]}".endswith(f"/{request_id}"):
                yield f"commit {commit_id} of {request_id} is {times[commit_id]} times in the ledger"
        for said in expected.said.values():
            if times[said.commit_id] != 1:
                yield f"commit {said.commit_id} of {said.uri} is {times[said.commit_id]} times in the ledger"
        yield from _texts(ledger, expected)
        yield from _hand_edits(ledger, expected, looked)
        unsettled = ledger.execute("SELECT count(*) FROM commits WHERE settled = 0").fetchone()[0]
        if unsettled:
            looked["commits not settled yet"] = unsettled


def _texts(ledger: sqlite3.Connection, expected: Expected) -> Iterator[str]:
    query = "SELECT after FROM changes JOIN commits USING (seq) WHERE commit_id = ? AND uri = ?"
    for commit in expected.commits:
        row = ledger.execute(query, (commit.commit_id, commit.uri)).fetchone()
        after = None if row is None else row[0]
        if commit.shared:
            if commit.body not in (after or ""):
                yield f"history of {commit.uri}: commit {commit.commit_id} does not hold {commit.body!r}"
        elif row is None or (None if after is None else split(after).body) != commit.body:
            yield f"history of {commit.uri}: commit {commit.commit_id} left {after!r} instead of {commit.body!r}"


def _hand_edits(ledger: sqlite3.Connection, expected: Expected, looked: Counter[str]) -> Iterator[str]:
    for uri, text in expected.texts.items():
        row = ledger.execute("SELECT sha256 FROM files WHERE uri = ?", (uri,)).fetchone()
        known, wanted = row and row[0], None if text is None else text_sha256(text)
        if known != wanted:
            yield f"the hand edit of {uri} is not in the ledger"
    rows = ledger.execute("SELECT after FROM changes WHERE uri = ?", (SHARED,))
    texts = "\n".join(after or "" for (after,) in rows)
    looked["shared edits by hand"] = len(expected.shared_by_hand)
    for sentence in expected.shared_by_hand:
        if sentence not in texts:
            yield f"a hand edit of the shared list was overwritten unseen: {sentence!r}"


def _found(memory: Runebook, expected: Expected, looked: Counter[str]) -> Iterator[str]:
    themes = {commit.uri: THEMES[commit.theme] for commit in expected.commits if commit.theme is not None}
    by_hand = {uri: text for uri, text in expected.texts.items() if text is not None}
    for uri, body in {**expected.bodies, **by_hand}.items():
        if body is None or uri in themes:
            continue
        word = _word(body)
        looked["found by words"] += 1
        if uri not in [hit.uri for hit in memory.find(FindRequest(word)).hits]:
            yield f"{uri} is not found by {word!r}"
    for uri, theme in themes.items():
        looked["found by meaning"] += 1
        (near,) = memory.retriever.near([theme.asked], _NEAREST)  # a search holds a weak likeness to its floor
        if uri not in [each.uri for each in near]:
            yield f"{uri} is not among the {_NEAREST} nearest to {theme.asked!r}"
    for said in expected.said.values():
        looked["found by words"] += 1
        hits = memory.find(FindRequest(_word(said.messages[-1]))).hits
        if said.uri not in [hit.uri.partition("#")[0] for hit in hits]:
            yield f"the last message of {said.uri} is not found"


def _word(body: str) -> str:
    """The last marker of a text; see ``soak_texts``."""
    last = body.rstrip().partition("\n\n<!-- MEMORY_FIELDS")[0].splitlines()[-1]
    return last.partition("放着")[2].partition("牌")[0] or last.split(" holds ")[1].split()[0]


def _on_server(memory: Runebook, looked: Counter[str]) -> Iterator[str]:
    """Wait until Chroma holds what it should, so that what was found broken is proved to come back."""
    until = time.monotonic() + _EMBEDDING_SECONDS
    embedder = memory.indexer.embedder
    if embedder is None:
        return
    connection = memory.indexer.catalog.connection()
    space = memory.spaces[0]
    while True:
        status = memory.indexer.vectors.status(connection, space, embedder.fingerprint)
        serves = status.backend == "chroma" or status.scanned_rows < _SERVER_ROWS
        if (serves and status.reason is None) or time.monotonic() > until:  # what a killed server lost is sent again
            break
        memory.indexer.wake()
        time.sleep(0.5)
    looked["vectors on the server"] = status.sent_rows
    if status.reason is not None:
        yield f"vectors of {space}: {status.reason}"


def _locks(home: Path) -> Iterator[str]:
    for path in sorted((home / ".state" / "locks").glob("*.lock")):
        try:
            with StoreLock(path, timeout_seconds=2.0).held():
                pass
        except StoreBusy:
            yield f"{path.name} is still held"


def _left_processes(home: Path) -> Iterator[str]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            place = (folder / "cwd").readlink()
        except OSError:
            continue
        if ("chroma_child" in command and place.is_relative_to(home)) or f"--home {home} " in command:
            yield f"a process is left: {command.strip()}"


def _doctor(home: Path, options: Sequence[str], looked: Counter[str]) -> Iterator[str]:
    answer = subprocess.run(
        program("doctor", home, [*options, "--json"]),
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment(),
        check=False,
    )
    looked["doctor asked"] = 1
    try:
        findings = json.loads(answer.stdout)["findings"]
    except (json.JSONDecodeError, KeyError):
        yield f"doctor ended with {answer.returncode}: {answer.stdout[:1000]}{answer.stderr[:1000]}"
        return
    for finding in findings:
        if finding["severity"] not in ("ok", "notice"):
            yield f"doctor: {finding['severity']}: {finding['check']}: {finding['subject']}: {finding['detail']}"


def figures(journal: Path) -> dict[str, Any]:
    """Milliseconds of the acknowledged commits of writers with servers, from the first attempt: p50, p99, max."""
    from bench.recall import percentile

    times = [
        entry.milliseconds
        for entry in entries(journal)
        if isinstance(entry, Committed | Added) and entry.milliseconds is not None
        if not (isinstance(entry, Committed) and entry.transport == "command line")
    ]
    return {"p50": percentile(times, 0.5), "p99": percentile(times, 0.99), "max": max(times)} if times else {}
