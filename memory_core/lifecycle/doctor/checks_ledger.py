"""Checks of the ledger, and of the files against it."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from memory_core.errors import InvalidInput, InvalidUri, NotFound, StorageFailed
from memory_core.lifecycle.doctor.examination import Subject, damage_of
from memory_core.lifecycle.doctor.findings import Finding, Severity, gathered
from memory_core.lifecycle.links import linked_uris
from memory_core.model.changes import text_sha256
from memory_core.model.filename import fold
from memory_core.model.memory_file import parse
from memory_core.model.uri import MemoryUri, file_of
from memory_core.storage.file_store import LEDGER_NAME
from memory_core.storage.hand_edits.line_ends import differ_alone
from memory_core.update.handwritten import examine

#: A commit whose files are not known to be on disk after so long was made by a process that died.
_SETTLING_SECONDS = 60.0
_RECORDED = "it is recorded in the history as done by hand"
_NAMES = "the name table is built anew from history and files"
_SALVAGE = "it is moved aside and kept; what can be read is carried into a new one"


@dataclass(frozen=True, slots=True)
class Name:
    """What the ledger says of a file."""

    sha256: str
    memory_type: str
    key: str
    seq: int


def check_ledger(subject: Subject) -> Iterator[Finding]:
    """Findings on the ledger alone."""
    path = subject.state / LEDGER_NAME
    if subject.ledger is None:
        if path.exists():
            yield Finding("ledger", Severity.ERROR, LEDGER_NAME, "it cannot be read", _SALVAGE)
        else:
            detail = "there is none: history, usage and what waited are gone; the files are all there is"
            yield Finding("ledger", Severity.ERROR, LEDGER_NAME, detail, "a new one takes in all files")
        return
    try:
        damage = damage_of(subject.ledger)
        yield from gathered("ledger", Severity.ERROR, damage, "SQLite finds it damaged", _SALVAGE)
        if not damage:
            yield from _journal(subject.ledger)
            yield from _names(subject.ledger)
            yield from gathered(
                "history",
                Severity.WARNING,
                _broken_texts(subject.ledger),
                "its stored text is not what was committed; the file is not touched",
            )
    except sqlite3.Error as error:
        yield Finding("ledger", Severity.ERROR, LEDGER_NAME, f"it cannot be read: {error}", _SALVAGE)


def names_of(ledger: sqlite3.Connection) -> dict[str, Name]:
    """What the ledger says of each file, by URI."""
    rows = ledger.execute("SELECT uri, sha256, memory_type, key, seq FROM files")
    return {uri: Name(*rest) for uri, *rest in rows}


def check_files(subject: Subject) -> Iterator[Finding]:
    """Findings on the files, against the ledger where it can be read."""
    names = None if subject.ledger is None else names_of(subject.ledger)
    undelivered = _undelivered(subject.ledger)
    known = set(names or ())
    seen: set[str] = set()
    links: dict[str, frozenset[str]] = {}
    for entry in subject.files.walk():
        uri = entry.uri
        seen.add(str(uri))
        try:
            text = subject.files.text(uri)
        except (StorageFailed, InvalidInput) as error:
            yield Finding("files", Severity.WARNING, str(uri), f"it cannot be read: {error.message}")
            continue
        if text is None:
            continue  # deleted this moment
        if names is not None and str(uri) not in undelivered:
            yield from _compared(subject, uri, text, names.get(str(uri)))
        if "\ufffd" in text:
            yield from _encoding(subject, uri)
        for problem in examine(subject.registry, uri, text):
            yield Finding("contents", Severity.WARNING, problem.uri, f"{problem.what}: {problem.hint}")
        if uri.name.endswith(".md"):
            links[str(uri)] = linked_uris(parse(text).trailer or {})
    yield from _missing(subject, known - seen - undelivered)
    dangling = (
        f"{uri} → {target}"
        for uri, targets in links.items()
        for target in sorted(targets)
        if file_of(target) not in seen and not _is_directory(subject, target)
    )
    yield from gathered("links", Severity.NOTICE, dangling, "it links to a memory that is gone")


def _encoding(subject: Subject, uri: MemoryUri) -> Iterator[Finding]:
    """Whether replacement characters stand in the file itself, or for bytes that are no UTF-8."""
    try:
        subject.files.text(uri, strict=True)
    except InvalidInput:
        detail = "it is not UTF-8 text: save it as UTF-8; until then it is found by what can be read"
        yield Finding("contents", Severity.WARNING, str(uri), detail)


def _compared(subject: Subject, uri: MemoryUri, text: str, name: Name | None) -> Iterator[Finding]:
    sha256 = text_sha256(text)
    if name is not None and (sha256 == name.sha256 or differ_alone(text, name.sha256)):
        return
    assert subject.ledger is not None
    row = subject.ledger.execute("SELECT sha256 FROM files WHERE uri = ?", (str(uri),)).fetchone()
    now = subject.files.text(uri)  # a commit may have come in between
    if (None if row is None else row[0]) == (None if now is None else text_sha256(now)):
        return
    if row is None:
        yield Finding("files", Severity.NOTICE, str(uri), "it is not in the ledger yet", _RECORDED)
    else:
        yield Finding(
            "files", Severity.NOTICE, str(uri), "it was changed by hand, which is not recorded yet", _RECORDED
        )


def _missing(subject: Subject, uris: set[str]) -> Iterator[Finding]:
    assert subject.ledger is not None or not uris
    for uri in sorted(uris):
        assert subject.ledger is not None
        held = subject.ledger.execute("SELECT 1 FROM files WHERE uri = ?", (uri,)).fetchone()
        try:
            gone = held is not None and subject.files.stat(MemoryUri.parse(uri)) is None
        except InvalidUri as error:
            yield Finding("files", Severity.WARNING, uri, error.message)
            continue
        if gone:
            repair = "it is recorded as deleted by hand; where all vanished at once, they are written anew"
            yield Finding("files", Severity.WARNING, uri, "it is in the ledger but not on the disk", repair)


def _undelivered(ledger: sqlite3.Connection | None) -> frozenset[str]:
    if ledger is None:
        return frozenset()
    rows = ledger.execute("SELECT uri FROM changes WHERE seq IN (SELECT seq FROM commits WHERE settled = 0)")
    return frozenset(uri for (uri,) in rows)


def _journal(ledger: sqlite3.Connection) -> Iterator[Finding]:
    pending = ledger.execute("SELECT seq, at FROM commits WHERE settled = 0 ORDER BY seq").fetchall()
    before = (datetime.now(UTC) - timedelta(seconds=_SETTLING_SECONDS)).isoformat(timespec="milliseconds")
    delivered = "its files are brought to the disk"
    late = (f"commit {seq}" for seq, at in pending if at < before)
    yield from gathered("commits", Severity.WARNING, late, "its files may not be on the disk", delivered)
    young = (f"commit {seq}" for seq, at in pending if at >= before)
    yield from gathered("commits", Severity.NOTICE, young, "its files are on their way to the disk", delivered)
    foreign = ledger.execute("PRAGMA foreign_key_check").fetchall()
    rows = sorted({f"{table} of {parent}" for table, _, parent, _ in foreign})
    yield from gathered("ledger", Severity.WARNING, rows, "rows refer to rows that are not there")


def _names(ledger: sqlite3.Connection) -> Iterator[Finding]:
    counts = (
        "SELECT d.directory FROM directories d WHERE d.memories <> (SELECT count(*) FROM files f WHERE "
        "f.directory = d.directory AND f.name_fold LIKE '%.md' AND f.name_fold NOT LIKE '.%') ORDER BY 1"
    )
    wrong = (directory for (directory,) in ledger.execute(counts))
    yield from gathered("names", Severity.WARNING, wrong, "its count of memories is wrong", _NAMES)
    folds = (
        uri
        for uri, name_fold in ledger.execute("SELECT uri, name_fold FROM files")
        if fold(MemoryUri.parse(uri).name) != name_fold
    )
    yield from gathered("names", Severity.WARNING, folds, "its folded name is wrong", _NAMES)
    twins = "SELECT directory || '/' || name_fold FROM files GROUP BY directory, name_fold HAVING count(*) > 1"
    yield from gathered(
        "names",
        Severity.NOTICE,
        (name for (name,) in ledger.execute(twins)),
        "several files have this name but for case, width or form; some file systems keep only one of them",
    )
    keys = (
        "SELECT min(uri) || ' and ' || (count(*) - 1) || ' more' FROM files WHERE key <> '' "
        "GROUP BY directory, memory_type, key HAVING count(*) > 1"
    )
    yield from gathered(
        "keys", Severity.NOTICE, (name for (name,) in ledger.execute(keys)), "several files hold the same key"
    )
    stray = "SELECT uri FROM files f WHERE NOT EXISTS (SELECT 1 FROM changes c WHERE c.uri = f.uri)"
    yield from gathered(
        "names", Severity.WARNING, (uri for (uri,) in ledger.execute(stray)), "it has no history at all", _NAMES
    )


def _broken_texts(ledger: sqlite3.Connection) -> Iterator[str]:
    """Changes whose stored text does not have its hash, and files whose last change is not what they should be."""
    current, whole = "", hashlib.sha256()
    last: dict[str, str | None] = {}
    rows = ledger.execute(
        "SELECT uri, seq, appended, after, after_sha256, purged FROM changes ORDER BY uri, seq, ordinal"
    )
    known = True
    for uri, seq, appended, after, after_sha256, purged in rows:
        if uri != current:
            current, whole, known = uri, hashlib.sha256(), True
        if not appended:
            whole, known = hashlib.sha256(), True
        last[uri] = after_sha256
        if purged:
            known = False
            continue
        whole.update((after or "").encode("utf-8"))
        if after is not None and known and whole.hexdigest() != after_sha256:
            yield f"{uri} at commit {seq}"
            known = False
    for uri, sha256 in ledger.execute("SELECT uri, sha256 FROM files"):
        if last.get(uri, sha256) != sha256:
            yield uri


def _is_directory(subject: Subject, target: str) -> bool:
    try:
        return subject.files.is_dir(MemoryUri.parse(file_of(target)))
    except (InvalidUri, NotFound):
        return False
