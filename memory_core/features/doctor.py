"""The doctor: is everything that should be there, and does everything say the same? And, asked to, mends it.

``examine`` looks at files, ledger, catalog, vectors and snapshots, each against its neighbours, in whatever state they
are; it changes nothing and may run beside servers. ``repair`` mends what can be mended without losing anything; no
memory file is written but to deliver what was acknowledged. Neither needs a store that opens.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import sqlite3
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from memory_core.core.command import Arg, Command
from memory_core.core.commit.links import linked_uris
from memory_core.core.config import Config
from memory_core.core.errors import ConfigInvalid, InvalidInput, InvalidUri, NotFound, RunebookError, StorageFailed
from memory_core.core.feature import Feature, Features
from memory_core.core.index.catalog import Catalog
from memory_core.core.index.documents import (
    Document,
    documents_of,
    is_searchable,
    is_session_log,
    session_growth,
)
from memory_core.core.index.embedding_queue import await_missing, passages_without_vector
from memory_core.core.index.encoder import PASSAGE_LIMIT_COUNT, open_embedder
from memory_core.core.index.indexer import numbered
from memory_core.core.index.vectors import prune
from memory_core.core.memory.directory_page import recorded
from memory_core.core.memory.memory import file_problems, identify
from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.memory.names import fold
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.trailer import split
from memory_core.core.memory.uri import MemoryUri, file_of
from memory_core.core.store.atomic import TEMPORARY_PREFIX
from memory_core.core.store.files import INDEX_NAME, LEDGER_NAME, STATE_NAME, FileStore
from memory_core.core.store.hand_edits import differ_alone
from memory_core.core.store.local import Store
from memory_core.core.store.sqlite import DatabaseDamaged
from memory_core.features import FEATURES
from memory_core.features.rebuild import rebuild_names, refill, rescue_ledger

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

#: Of many alike, so many are named one by one.
_NAMED = 20


class Severity(StrEnum):
    """How bad a finding is: from warning on, something is to be done."""

    OK = "ok"
    NOTICE = "notice"
    WARNING = "warning"
    ERROR = "error"


_TO_DO = (Severity.WARNING, Severity.ERROR)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that an examination has to say.

    Attributes:
        check: What was looked at, one word.
        severity: How bad it is.
        subject: A URI, a file below the memory folder, or what else it is about.
        detail: What was found, without any memory's text.
        repair: What ``doctor --repair`` does about it; None where nothing can or need be done by a program.
    """

    JSON: ClassVar = "*"

    check: str
    severity: Severity
    subject: str
    detail: str
    repair: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """An examination.

    Attributes:
        findings: In the order of the checks.
        repaired: What was repaired before, one sentence each.
    """

    JSON: ClassVar = "clean repaired findings"

    findings: tuple[Finding, ...]
    repaired: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether nothing is to be done."""
        return not any(finding.severity in _TO_DO for finding in self.findings)

    def of(self, check: str) -> tuple[Finding, ...]:
        """The findings of one check."""
        return tuple(finding for finding in self.findings if finding.check == check)

    def lines(self) -> Iterator[str]:
        """For a person: what was repaired, what was found, the worst last, and the next step."""
        for sentence in self.repaired:
            yield f"repaired  {sentence}"
        for severity in Severity:
            for finding in self.findings:
                if finding.severity is severity:
                    yield f"{severity:<8}  {finding.check}: {finding.subject}: {finding.detail}"
        counts = Counter(finding.severity for finding in self.findings)
        if self.clean:
            yield "The store is sound."
        else:
            yield f"Errors: {counts[Severity.ERROR]}, warnings: {counts[Severity.WARNING]}."
            if any(finding.repair for finding in self.findings if finding.severity in _TO_DO):
                yield "Next: runebook doctor --repair"
            else:
                yield "Nothing of it can be mended by a program; each line says what to do."


def gathered(
    check: str, severity: Severity, subjects: Iterable[str], detail: str, repair: str | None = None
) -> Iterator[Finding]:
    """One finding for each subject; of very many the first few and how many more."""
    more = 0
    for number, subject in enumerate(subjects):
        if number < _NAMED:
            yield Finding(check, severity, subject, detail, repair)
        else:
            more += 1
    if more:
        yield Finding(check, severity, f"{more:,} more", detail, repair)


_BUSY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Subject:
    """One store to be examined.

    Attributes:
        config: Its settings.
        registry: The memory types.
        files: Its files.
        ledger: For reading; None where it cannot be opened.
        catalog: For reading; None where it cannot be opened.
        fingerprint: Of the embedding model in use, where that is known without loading it.
        features: Of the store.
    """

    config: Config
    registry: MemoryTypeRegistry
    files: FileStore
    ledger: sqlite3.Connection | None
    catalog: sqlite3.Connection | None
    fingerprint: str | None = None
    features: Features = FEATURES

    @property
    def state(self) -> Path:
        """The folder of the machine's files."""
        return self.config.root / STATE_NAME


@contextlib.contextmanager
def looking_at(path: Path) -> Iterator[sqlite3.Connection | None]:
    """A connection that changes nothing; None where there is no database, or none that can be read.

    Opened for writing, or a log that a killed process left could not be read.
    """
    usable: sqlite3.Connection | None = None
    with contextlib.ExitStack() as opened:
        with suppress(sqlite3.Error):
            if path.is_file():
                connection = opened.enter_context(
                    closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=_BUSY_SECONDS))
                )
                connection.isolation_level = None
                connection.execute("PRAGMA query_only=ON")
                tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
                usable = connection if tables else None
        yield usable


def damage_of(connection: sqlite3.Connection, limit: int = 5) -> list[str]:
    """What SQLite's own check finds; empty for a sound database."""
    try:
        rows = connection.execute(f"PRAGMA integrity_check({int(limit)})").fetchall()
    except sqlite3.Error as error:
        return [str(error)]
    return [line for (line,) in rows if line != "ok"]


_LEAST_FREE_BYTES = 100 * 1024**2
#: A temporary file this old is nobody's any more.
STALE_SECONDS = 3_600.0
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WATCHES = Path("/proc/sys/fs/inotify/max_user_watches")


def check_folder(subject: Subject) -> Iterator[Finding]:
    """Findings on the folder itself; ``versions`` is always there."""
    root = subject.config.root
    yield Finding(
        "versions",
        Severity.OK,
        f"Python {platform.python_version()}",
        f"SQLite {sqlite3.sqlite_version} on {platform.system() or 'an unknown system'}",
    )
    free = shutil.disk_usage(root).free
    if free < _LEAST_FREE_BYTES:
        yield Finding("space", Severity.WARNING, str(root), f"only {free // 1024**2} MiB are free on its disk")
    for ours, severity, detail in (
        (True, Severity.WARNING, "other users may read or write it"),
        (False, Severity.NOTICE, "its own permissions let others read it, the folder above does not"),
    ):
        paths = (_shown(root, path) for path in open_to_others(root) if _is_ours(root, path) is ours)
        yield from gathered("permissions", severity, paths, detail, "it is made private to its owner")
    yield from gathered(
        "temporary",
        Severity.NOTICE,
        (_shown(root, path) for path in stale_files(root)),
        "a write that was cut off left it behind; it holds nothing that is needed",
        "it is deleted",
    )
    yield from gathered(
        "leftovers",
        Severity.NOTICE,
        (_shown(root, path) for path in subject.state.glob("*.damaged*") if not path.name.endswith(("-wal", "-shm"))),
        "a damaged file that was replaced; delete it when you do not want to look into it",
    )
    yield from _watches(root)


def open_to_others(root: Path) -> Iterator[Path]:
    """Folders and files that other users of the machine may use; the folder itself first."""
    if os.name != "posix":
        return
    for path in (root, *_everything(root)):
        found = path.lstat()
        if not stat.S_ISLNK(found.st_mode) and found.st_mode & _OTHERS:
            yield path


def stale_files(root: Path) -> Iterator[Path]:
    """What writes that were cut off left behind."""
    until = time.time() - STALE_SECONDS
    for path in _everything(root):
        if path.name.startswith(TEMPORARY_PREFIX) and path.lstat().st_mtime < until and not path.is_dir():
            yield path


def _everything(root: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        if Path(folder) == root:  # a repository's own folder, say, is none of ours
            names[:] = [name for name in names if name == STATE_NAME or not name.startswith(".")]
        for name in (*names, *files):
            path = Path(folder, name)
            if os.path.lexists(path):
                yield path


def _is_ours(root: Path, path: Path) -> bool:
    return path == root or path.relative_to(root).parts[0] == STATE_NAME


def _shown(root: Path, path: Path) -> str:
    return str(root) if path == root else path.relative_to(root).as_posix()


def _watches(root: Path) -> Iterator[Finding]:
    try:
        limit = int(_WATCHES.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return
    folders = sum(1 for _ in os.walk(root))
    if folders > limit:
        detail = f"{folders:,} folders, but the system watches {limit:,} at most; hand edits are noticed later"
        yield Finding("watching", Severity.NOTICE, str(root), detail)


_LOG_NAME = "hooks.log"
_TAIL_BYTES = 4_096
#: Failures that are older say nothing of today.
_FRESH_SECONDS = 7 * 86_400.0
#: A note is followed by the next hook, or the next start of a server.
_PATIENCE_SECONDS = 3_600.0


def check_hooks(subject: Subject) -> Iterator[Finding]:
    """Findings on hooks; none where none ran."""
    log = subject.state / _LOG_NAME
    with suppress(OSError, IndexError):
        if log.stat().st_mtime > time.time() - _FRESH_SECONDS:
            last = log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace").splitlines()[-1]
            yield Finding("hooks", Severity.NOTICE, str(log), f"the last failure of a hook: {last}")
    until = time.time() - _PATIENCE_SECONDS
    with suppress(OSError):
        notes = [path for path in (subject.state / "hooks" / "pending").glob("*.json") if path.stat().st_mtime < until]
        if notes:
            waits = f"{len(notes)} conversations wait to be stored; runebook hook pending does it now"
            yield Finding("hooks", Severity.NOTICE, str(notes[0].parent), waits)


_REPLACED = "it is moved aside and built anew"
_AGAIN = "the index is built anew; vectors of unchanged texts are kept"
_COMPUTED = "they are computed anew"


_WORDLESS = "SELECT count(*) FROM documents WHERE id NOT IN (SELECT id FROM words_docsize)"
_STRAY = "SELECT count(*) FROM words_docsize WHERE id > 0 AND id NOT IN (SELECT id FROM documents)"
_DEAD = (
    "SELECT count(*) FROM vectors v WHERE NOT EXISTS (SELECT 1 FROM passages p WHERE p.uri = v.uri "
    "AND p.part = v.part AND p.content_sha256 = v.content_sha256)"
)
_WAITING = "SELECT count(*) FROM waiting"
#: What is counted in the catalog: the check, how bad any are, how they are counted, what they are, what mends them.
_INDEX_ROWS: tuple[tuple[str, Severity, str, str, str | None], ...] = (
    ("words", Severity.WARNING, _WORDLESS, "{count} documents have no words", _AGAIN),
    ("words", Severity.WARNING, _STRAY, "{count} rows of words are of no document", _AGAIN),
    ("vectors", Severity.OK, _DEAD, "{count} vectors are of texts that are gone; rebuild drops them", None),
    ("vectors", Severity.NOTICE, _WAITING, "{count} vectors are still to be computed", None),
)


def check_index(subject: Subject) -> Iterator[Finding]:
    """Findings on the catalog and what hangs on it."""
    path, catalog = subject.state / INDEX_NAME, subject.catalog
    if catalog is None:
        detail = "it cannot be read" if path.exists() else "there is none yet; the first search builds it"
        yield Finding("index", Severity.WARNING if path.exists() else Severity.NOTICE, INDEX_NAME, detail, _REPLACED)
        return
    try:
        damage = damage_of(catalog)
        yield from gathered("index", Severity.ERROR, damage, "SQLite finds it damaged", _REPLACED)
        if damage:
            return
        behind = _behind(subject)
        if behind is not None:
            yield Finding("index", Severity.NOTICE, INDEX_NAME, behind, "it is brought up to date")
        else:
            wrong = "its search entry does not say what it says"
            yield from gathered("documents", Severity.WARNING, _wrong_documents(subject), wrong, _AGAIN)
        for check, severity, query, detail, repair in _INDEX_ROWS:
            if rows := catalog.execute(query).fetchone()[0]:
                yield Finding(check, severity, INDEX_NAME, detail.format(count=f"{rows:,}"), repair)
        if problem := _inverted(catalog):
            yield Finding("words", Severity.WARNING, INDEX_NAME, f"the full-text index is damaged: {problem}", _AGAIN)
        yield from _vectors(subject, catalog)
    except sqlite3.Error as error:
        yield Finding("index", Severity.ERROR, INDEX_NAME, f"it cannot be read: {error}", _REPLACED)


def _behind(subject: Subject) -> str | None:
    """Why documents cannot be compared now; None when the catalog has come as far as the ledger."""
    assert subject.catalog is not None
    meta = dict(subject.catalog.execute("SELECT name, value FROM meta"))
    if subject.ledger is None:
        return "there is no ledger to compare it with"
    ledger_id = subject.ledger.execute("SELECT value FROM meta WHERE name = 'ledger_id'").fetchone()
    newest = subject.ledger.execute("SELECT coalesce(max(seq), 0) FROM commits").fetchone()[0]
    if not meta.get("ledger_id"):
        return "it is empty yet; the first search fills it"
    if ledger_id is None or meta["ledger_id"] != ledger_id[0]:
        return "it follows another ledger; the next search builds it anew"
    if "filling" in meta:
        return "it is being built"
    if int(meta.get("seq", 0)) != newest:
        return f"it has followed up to commit {meta.get('seq', 0)} of {newest}; the next search goes on"
    return None


def _wrong_documents(subject: Subject) -> Iterator[str]:
    """Files whose documents are not what their text makes, and documents of no file."""
    assert subject.catalog is not None
    assert subject.ledger is not None
    rows = subject.ledger.execute("SELECT uri, sha256 FROM files")
    names = {uri: sha256 for uri, sha256 in rows if is_searchable(MemoryUri.parse(uri), subject.features)}
    for uri, sha256 in names.items():
        place = MemoryUri.parse(uri)
        with suppress(StorageFailed):
            text = subject.files.text(place)
            if text is not None and text_sha256(text) == sha256 and _differs(subject, place, text):
                yield uri
    for (uri,) in subject.catalog.execute("SELECT DISTINCT uri FROM documents UNION SELECT DISTINCT uri FROM passages"):
        if uri not in names and _is_gone(subject, uri):
            yield uri


def _differs(subject: Subject, uri: MemoryUri, text: str) -> bool:
    assert subject.catalog is not None
    documents = _documents(subject, uri, text)
    held = subject.catalog.execute("SELECT part, own FROM documents WHERE uri = ? ORDER BY part", (str(uri),))
    if held.fetchall() != [(document.part, document.own) for document in documents]:
        return not _is_moving(subject, uri)
    hashes = subject.catalog.execute(
        "SELECT part, content_sha256, text FROM passages WHERE uri = ? ORDER BY part", (str(uri),)
    )
    wanted = [
        (number, text_sha256(passage), passage)
        for document in documents
        for number, passage in enumerate(document.passages, document.part * PASSAGE_LIMIT_COUNT)
    ]
    return hashes.fetchall() != wanted and not _is_moving(subject, uri)


def _documents(subject: Subject, uri: MemoryUri, text: str) -> list[Document]:
    if is_session_log(uri):
        return list(session_growth(uri, [], list(numbered(text))).documents)
    return list(documents_of(uri, text, subject.registry, subject.features))


def _is_moving(subject: Subject, uri: MemoryUri) -> bool:
    """Whether a commit came while the documents were compared."""
    assert subject.ledger is not None
    text = subject.files.text(uri)
    row = subject.ledger.execute("SELECT sha256 FROM files WHERE uri = ?", (str(uri),)).fetchone()
    return row is None or text is None or text_sha256(text) != row[0] or _behind(subject) is not None


def _is_gone(subject: Subject, uri: str) -> bool:
    assert subject.ledger is not None
    row = subject.ledger.execute("SELECT 1 FROM files WHERE uri = ?", (uri,)).fetchone()
    return row is None and _behind(subject) is None


def _inverted(catalog: sqlite3.Connection) -> str | None:
    """What FTS5's own check says; it changes nothing, but is only to be had inside a transaction that writes."""
    catalog.execute("PRAGMA query_only=OFF")
    try:
        catalog.execute("BEGIN IMMEDIATE")
        catalog.execute("INSERT INTO words (words) VALUES ('integrity-check')")
    except sqlite3.DatabaseError as error:
        return None if "locked" in str(error) else str(error)
    finally:
        if catalog.in_transaction:
            catalog.execute("ROLLBACK")
        catalog.execute("PRAGMA query_only=ON")
    return None


def _vectors(subject: Subject, catalog: sqlite3.Connection) -> Iterator[Finding]:
    from memory_core.core.index.vector_scan import unsound

    damaged = unsound(catalog)
    if damaged:
        detail = f"{len(damaged):,} rows hold no vector: a wrong size, no number, or not of length 1"
        yield Finding("vectors", Severity.WARNING, INDEX_NAME, detail, _COMPUTED)
    for fingerprint, lacking in passages_without_vector(catalog).items():
        detail = f"{lacking:,} passages have no vector and do not wait for one"
        yield Finding("vectors", Severity.WARNING, fingerprint, detail, _COMPUTED)
    models = [fingerprint for (fingerprint,) in catalog.execute("SELECT fingerprint FROM models ORDER BY last_used")]
    if subject.fingerprint is not None and models and subject.fingerprint not in models:
        detail = f"the model in use, {subject.fingerprint}, has no vectors yet; runebook embed computes them"
        yield Finding("model", Severity.NOTICE, models[-1], detail)


#: A commit whose files are not known to be on disk after so long was made by a process that died.
_SETTLING_SECONDS = 60.0
_RECORDED = "it is recorded in the history as done by hand"
_DELIVERED = "its files are brought to the disk"
_NAMES = "the name table is built anew from history and files"
_SALVAGE = "it is moved aside and kept; what can be read is carried into a new one"
_UNSETTLED = "SELECT 'commit ' || seq FROM commits WHERE settled = 0 AND at {} :before ORDER BY seq"
_ORPHANS = """SELECT DISTINCT "table" || ' of ' || parent FROM pragma_foreign_key_check ORDER BY 1"""
_MISCOUNTED = (
    "SELECT d.directory FROM directories d WHERE d.memories <> (SELECT count(*) FROM files f WHERE "
    "f.directory = d.directory AND f.name_fold LIKE '%.md' AND f.name_fold NOT LIKE '.%') ORDER BY 1"
)
_MISNAMED = "SELECT uri FROM files WHERE folded(uri) <> name_fold"
_TWINS = "SELECT directory || '/' || name_fold FROM files GROUP BY directory, name_fold HAVING count(*) > 1"
_CONFUSED = "several files have this name but for case, width or form; some file systems keep only one of them"
_ONE_KEY = (
    "SELECT min(uri) || ' and ' || (count(*) - 1) || ' more' FROM files WHERE key <> '' "
    "GROUP BY directory, memory_type, key HAVING count(*) > 1"
)
_PASTLESS = "SELECT uri FROM files f WHERE NOT EXISTS (SELECT 1 FROM changes c WHERE c.uri = f.uri)"
#: What a sound ledger has no rows of: the check, how bad they are, how they are found, what they mean, what mends them.
_LEDGER_ROWS: tuple[tuple[str, Severity, str, str, str | None], ...] = (
    ("commits", Severity.WARNING, _UNSETTLED.format("<"), "its files may not be on the disk", _DELIVERED),
    ("commits", Severity.NOTICE, _UNSETTLED.format(">="), "its files are on their way to the disk", _DELIVERED),
    ("ledger", Severity.WARNING, _ORPHANS, "rows refer to rows that are not there", None),
    ("names", Severity.WARNING, _MISCOUNTED, "its count of memories is wrong", _NAMES),
    ("names", Severity.WARNING, _MISNAMED, "its folded name is wrong", _NAMES),
    ("names", Severity.NOTICE, _TWINS, _CONFUSED, None),
    ("keys", Severity.NOTICE, _ONE_KEY, "several files hold the same key", None),
    ("names", Severity.WARNING, _PASTLESS, "it has no history at all", _NAMES),
)


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
            yield from _rows(subject.ledger)
            spoilt = "its stored text is not what was committed; the file is not touched"
            yield from gathered("history", Severity.WARNING, _broken_texts(subject.ledger), spoilt)
    except sqlite3.Error as error:
        yield Finding("ledger", Severity.ERROR, LEDGER_NAME, f"it cannot be read: {error}", _SALVAGE)


def _rows(ledger: sqlite3.Connection) -> Iterator[Finding]:
    """What ``_LEDGER_ROWS`` finds."""
    before = (datetime.now(UTC) - timedelta(seconds=_SETTLING_SECONDS)).isoformat(timespec="milliseconds")
    ledger.create_function("folded", 1, lambda uri: fold(MemoryUri.parse(uri).name))
    for check, severity, query, detail, repair in _LEDGER_ROWS:
        found = (str(row) for (row,) in ledger.execute(query, {"before": before}))
        yield from gathered(check, severity, found, detail, repair)


def check_files(subject: Subject) -> Iterator[Finding]:
    """Findings on the files, against the ledger where it can be read."""
    ledger = subject.ledger
    known: dict[str, str] = {}
    undelivered: frozenset[str] = frozenset()
    if ledger is not None:
        known = dict(ledger.execute("SELECT uri, sha256 FROM files"))
        unsettled = "SELECT uri FROM changes WHERE seq IN (SELECT seq FROM commits WHERE settled = 0)"
        undelivered = frozenset(uri for (uri,) in ledger.execute(unsettled))
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
        if ledger is not None and str(uri) not in undelivered:
            yield from _compared(subject, ledger, uri, text, known.get(str(uri)))
        if "\ufffd" in text:
            yield from _encoding(subject, uri)
        for problem in file_problems(subject.registry, uri, text):
            yield Finding("contents", Severity.WARNING, problem.uri, f"{problem.what}: {problem.hint}")
        if uri.name.endswith(".md"):
            links[str(uri)] = linked_uris(split(text).trailer or {})
    if ledger is not None:
        yield from _missing(subject, ledger, known.keys() - seen - undelivered)
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


def _compared(
    subject: Subject, ledger: sqlite3.Connection, uri: MemoryUri, text: str, known: str | None
) -> Iterator[Finding]:
    kept = recorded(uri, text)
    if kept is None and known is None:  # a page with nothing but its list
        return
    if known is not None and kept is not None and (text_sha256(kept) == known or differ_alone(kept, known)):
        return
    row = ledger.execute("SELECT sha256 FROM files WHERE uri = ?", (str(uri),)).fetchone()
    now = recorded(uri, subject.files.text(uri))  # a commit may have come in between
    if (None if row is None else row[0]) != (None if now is None else text_sha256(now)):
        detail = "it is not in the ledger yet" if row is None else "it was changed by hand, which is not recorded yet"
        yield Finding("files", Severity.NOTICE, str(uri), detail, _RECORDED)


def _missing(subject: Subject, ledger: sqlite3.Connection, uris: set[str]) -> Iterator[Finding]:
    repair = "it is recorded as deleted by hand; where all vanished at once, they are written anew"
    for uri in sorted(uris):
        held = ledger.execute("SELECT 1 FROM files WHERE uri = ?", (uri,)).fetchone()
        try:
            if held is not None and subject.files.stat(MemoryUri.parse(uri)) is None:
                yield Finding("files", Severity.WARNING, uri, "it is in the ledger but not on the disk", repair)
        except InvalidUri as error:
            yield Finding("files", Severity.WARNING, uri, error.message)


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


_CHECK = "vector server"


def check_server(subject: Subject) -> Iterator[Finding]:
    """Findings on the server; none where vectors are kept in the store alone."""
    if subject.config.index.mode != "http":
        return
    from memory_core.core.index.chroma_server import ChromaServer, place_of
    from memory_core.core.index.chroma_upkeep import look

    try:
        place = place_of(subject.config.index, os.environ)
    except ConfigInvalid as error:
        yield Finding(_CHECK, Severity.ERROR, "index.url", str(error))
        return
    if subject.catalog is None:
        return
    with closing(ChromaServer(place)) as server:
        try:
            state = look(server, subject.catalog)
        except sqlite3.Error:  # a catalog of an older version, or a damaged one: its own check says so
            return
    if state.trouble is not None:
        yield Finding(_CHECK, Severity.WARNING, state.place, f"{state.line()}. {state.hint}")
    elif state.held != state.sent:
        detail = f"it holds {state.held:,} rows where {state.sent:,} were sent; a running server mends that by itself"
        yield Finding(_CHECK, Severity.NOTICE, state.place, detail)
    else:
        detail = f"Chroma {state.version} holds {state.held:,} rows as it was sent; {state.waiting:,} are to be sent"
        yield Finding(_CHECK, Severity.OK, state.place, detail)


def examine(config: Config, registry: MemoryTypeRegistry, features: Features = FEATURES) -> Report:
    """Look at a store from all sides.

    Args:
        config: Its settings.
        registry: The memory types.
        features: Of the store.

    Raises:
        StorageFailed: If there is no folder to look at.
    """
    root = config.root
    if not root.is_dir():
        raise StorageFailed(f"there is no memory folder {root}.", hint="Name it with --home, or begin with a commit.")
    with looking_at(root / STATE_NAME / LEDGER_NAME) as ledger, looking_at(root / STATE_NAME / INDEX_NAME) as catalog:
        subject = Subject(config, registry, FileStore(root), ledger, catalog, _fingerprint(config), features)
        return Report(tuple(_findings(subject)))


@dataclass(frozen=True, slots=True)
class DoctorRequest:
    """Examine files, history and index from all sides; exit status 1 when something is wrong."""

    repair: Annotated[bool, Arg(help="Mend what can be mended, then look again.")] = False


def doctor(memory: Runebook, request: DoctorRequest) -> Report:
    """Examine the store of an open memory, and mend it if asked to.

    Raises:
        AccessDenied: If it is to be mended and this view only reads.
    """
    if not request.repair:
        return examine(memory.config, memory.registry, memory.features)
    memory.expect_writable()
    return repair(memory.config, memory.registry, memory.features)


DOCTOR = Command("doctor", DoctorRequest, doctor)
FEATURE = Feature(commands=(DOCTOR,))


def repair(config: Config, registry: MemoryTypeRegistry, features: Features = FEATURES) -> Report:
    """Mend what can be mended, and look again.

    Raises:
        StoreBusy: If another writer held the store too long.
        StorageFailed: If the system refuses.
    """
    found = examine(config, registry, features)
    done = [*_repaired(config, registry, found)]
    again = examine(config, registry, features)
    return Report(again.findings, tuple(done))


def _findings(subject: Subject) -> Iterator[Finding]:
    yield from check_folder(subject)
    yield from check_hooks(subject)
    ledger = list(check_ledger(subject))
    yield from ledger
    broken = any(finding.check == "ledger" and finding.severity is Severity.ERROR for finding in ledger)
    if broken:
        subject = replace(subject, ledger=None)
    try:
        yield from check_files(subject)
    except (sqlite3.Error, RunebookError) as error:
        yield Finding("files", Severity.ERROR, str(subject.config.root), f"the examination ended early: {error}")
    yield from check_index(subject)
    yield from check_server(subject)


def _fingerprint(config: Config) -> str | None:
    """Of the model in use, where that costs no loading."""
    if config.embedding.provider != "bundled":
        return None
    embedder = open_embedder(config.embedding)
    return None if embedder is None else embedder.fingerprint


def _repaired(config: Config, registry: MemoryTypeRegistry, found: Report) -> Iterator[str]:
    """What was done, as it is done: each step may rest on the one before."""
    root = config.root
    if any(finding.severity is Severity.ERROR for finding in found.of("ledger")):
        yield from rescue_ledger(root, registry).lines()
    if found.of("names"):
        yield f"the name table was built anew: {rebuild_names(root, registry):,} files"
    yield from _tidied(root)
    with closing(Store(root, partial(identify, registry), examine=partial(file_problems, registry))) as store:
        waiting = len(store.ledger.unsettled())
        taken_in = store.adopt()
        back = store.bring_back_vanished()
        if waiting or found.of("commits"):
            yield "commits that were acknowledged are on the disk"
        if taken_in:
            yield f"{taken_in:,} files changed by hand were recorded in the history"
        if back:
            yield f"{len(back):,} files that had vanished all at once were written anew from the ledger"
        yield from _index_repaired(store, registry, found)


def _tidied(root: Path) -> Iterator[str]:
    private = 0
    for path in list(open_to_others(root)):
        with suppress(OSError):
            path.chmod(0o700 if path.is_dir() else 0o600)
            private += 1
    if private:
        yield f"{private:,} files and folders were made private to their owner"
    stale = list(stale_files(root))
    for path in stale:
        path.unlink(missing_ok=True)
    if stale:
        yield f"{len(stale):,} files that cut-off writes left behind were deleted"


def _index_repaired(store: Store, registry: MemoryTypeRegistry, found: Report) -> Iterator[str]:
    # Opening moves aside what cannot even be opened.
    with closing(Catalog(store.files.state / INDEX_NAME)) as catalog:
        if any(finding.severity is Severity.ERROR for finding in found.of("index")):
            catalog.file.renew(catalog.file.generation)
            yield f"the damaged index was moved aside, to {STATE_NAME}/{INDEX_NAME}.damaged-…"
        wrong = bool(found.of("documents") or found.of("words"))
        try:
            refill(store, registry, catalog, emptied=wrong)
        except DatabaseDamaged:
            catalog.file.renew(catalog.file.generation)
            refill(store, registry, catalog)
        yield f"the index holds {catalog.count():,} documents" + (", built anew" if wrong else "")
        from memory_core.core.index.vector_scan import unsound

        rows = unsound(catalog.connection())
        with catalog.writing() as connection:
            prune(connection, rows)
            missing = await_missing(connection)
        if rows or missing:
            yield f"{len(rows):,} damaged vectors were dropped; {missing:,} are computed anew by the next search"
