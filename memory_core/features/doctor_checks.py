"""What the doctor looks for: files, ledger, catalog and vectors, each against its neighbours, in any state.

The table beside this module says of each check how bad what it finds is, what that means and what mends it; of the
checks that are one question to a database also the question. Changes nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from memory_core.core.commit.links import linked_uris
from memory_core.core.config import Config
from memory_core.core.errors import (
    ConfigInvalid,
    InvalidInput,
    InvalidUri,
    ModelFailed,
    NotFound,
    RunebookError,
    StorageFailed,
)
from memory_core.core.feature import Features
from memory_core.core.index.documents import documents_of, is_searchable, is_session_log, session_growth
from memory_core.core.index.embedding_queue import passages_without_vector
from memory_core.core.index.encoder import PASSAGE_LIMIT_COUNT
from memory_core.core.memory.directory_page import recorded
from memory_core.core.memory.memory import file_problems
from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.memory.message import numbered
from memory_core.core.memory.names import fold, short_hash
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.trailer import split
from memory_core.core.memory.uri import MemoryUri, file_of
from memory_core.core.store.atomic import RESTORING_PREFIX, TEMPORARY_PREFIX
from memory_core.core.store.files import ASIDE_NAME, INDEX_NAME, LEDGER_NAME, STATE_NAME, FileStore
from memory_core.core.store.hand_edits import differs_in_line_feeds_alone
from memory_core.core.text.word_table import word_table

if TYPE_CHECKING:
    from memory_core.core.postgres.examination import ExaminedDatabase


class Severity(StrEnum):
    """How bad a finding is: from warning on, something is to be done."""

    OK = "ok"
    NOTICE = "notice"
    WARNING = "warning"
    ERROR = "error"


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
class ExaminedStore:
    """One store to be examined.

    Attributes:
        config: Its settings.
        registry: The memory types.
        files: Its files.
        ledger: For reading; None where it cannot be opened.
        catalog: For reading; None where it cannot be opened.
        fingerprint: Of the embedding model in use, where that is known without loading it.
        features: Of the store.
        database: Where the store is kept instead of a folder; ledger and catalog are connections of it.
    """

    config: Config
    registry: MemoryTypeRegistry
    files: FileStore
    ledger: sqlite3.Connection | None
    catalog: sqlite3.Connection | None
    fingerprint: str | None
    features: Features
    database: ExaminedDatabase | None = None

    @property
    def state(self) -> Path:
        """The folder of the machine's files."""
        return self.config.root / STATE_NAME


#: Of many alike, so many are named one by one.
_NAMED = 20
_BUSY_SECONDS = 10.0


@contextlib.contextmanager
def opened_for_reading(path: Path) -> Iterator[sqlite3.Connection | None]:
    """A connection that changes nothing; None where there is no database, or none that can be read.

    Opened for writing: otherwise SQLite cannot read the write-ahead log that a killed process left.
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


def examined(subject: ExaminedStore) -> Iterator[Finding]:
    """All findings, in the order of the checks."""
    if subject.database is None:
        yield from _folder(subject)
    else:
        yield from _database(subject, subject.database)
        if subject.database.parts is None:
            return
    yield from _hooks(subject)
    ledger = list(_ledger(subject))
    yield from ledger
    if any(finding.check == "ledger" and finding.severity is Severity.ERROR for finding in ledger):
        subject = replace(subject, ledger=None)
    try:
        yield from _files(subject)
    except (sqlite3.Error, RunebookError) as error:
        yield from _found("ended", str(subject.config.root), error=error)
    yield from _index(subject)
    yield from _server(subject)


def _found(check: str | Sequence[str], *subjects: str, each: Iterable[str] = (), **facts: Any) -> Iterator[Finding]:
    """A finding for each subject; of very many the first few and how many more.

    Args:
        check: Its name in the table, or its row: name, severity, detail and repair.
        subjects: What it is about.
        each: More of them, where there may be many.
        facts: For the detail.
    """
    name, severity, detail, *more = word_table(__file__)["checks"][check] if isinstance(check, str) else check
    repair = word_table(__file__)["repairs"][more[0]] if more and more[0] else None
    rest = chain(subjects, each)
    shown = [*islice(rest, _NAMED)]
    left = sum(1 for _ in rest)
    for subject in [*shown, *([f"{left:,} more"] if left else [])]:
        yield Finding(name, Severity(severity), subject, detail.format_map(facts) if facts else detail, repair)


# The folder ----------------------------------------------------------------------------------------------------------

_LEAST_FREE_BYTES = 100 * 1024**2
#: A temporary file this old is nobody's any more.
_STALE_SECONDS = 3_600.0
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def _folder(subject: ExaminedStore) -> Iterator[Finding]:
    root = subject.config.root
    system = platform.system() or "an unknown system"
    yield from _found("versions", f"Python {platform.python_version()}", sqlite=sqlite3.sqlite_version, system=system)
    free = shutil.disk_usage(root).free
    if free < _LEAST_FREE_BYTES:
        yield from _found("space", str(root), mib=free // 1024**2)
    exposed = list(open_to_others(root))
    yield from _found("open", each=(_shown(root, path) for path in exposed if _is_ours(root, path)))
    inside = [_shown(root, path) for path in exposed if not _is_ours(root, path)]
    if inside:  # in a copied store every file is open: one finding
        yield from _found("open file", inside[0] + (f" and {len(inside) - 1:,} more" if inside[1:] else ""))
    yield from _found("temporary", each=(_shown(root, path) for path in stale_files(root)))
    yield from _found("cut-off restore", each=map(str, cut_off_restores(root)))
    replaced = (path for path in subject.state.glob("*.damaged*") if not path.name.endswith(("-wal", "-shm")))
    yield from _found("leftovers", each=(_shown(root, path) for path in replaced))


def open_to_others(root: Path) -> Iterator[Path]:
    """Folders and files that other users of the machine may use; the folder itself first."""
    if os.name != "posix":
        return
    for path, found in ((root, root.lstat()), *_everything(root)):
        if not stat.S_ISLNK(found.st_mode) and found.st_mode & _OTHERS:
            yield path


def cut_off_restores(root: Path) -> list[Path]:
    """Copies of backups that were being restored in the place of the folder; one may still be at work."""
    return sorted(root.absolute().parent.glob(f"{RESTORING_PREFIX}*"))


def stale_files(root: Path) -> Iterator[Path]:
    """What writes that were cut off left behind."""
    until = time.time() - _STALE_SECONDS
    for path, found in _everything(root):
        if path.name.startswith(TEMPORARY_PREFIX) and found.st_mtime < until and not path.is_dir():
            yield path


def _everything(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """What the folder holds; what others take away meanwhile, or nobody may look at, is left out."""
    for folder, names, files in os.walk(root):
        if Path(folder) == root:  # a repository's own folder, say, is none of ours
            names[:] = [name for name in names if name == STATE_NAME or not name.startswith(".")]
        for name in (*names, *files):
            path = Path(folder, name)
            with suppress(OSError):
                yield path, path.lstat()


def _is_ours(root: Path, path: Path) -> bool:
    return path == root or path.relative_to(root).parts[0] == STATE_NAME


def _shown(root: Path, path: Path) -> str:
    return str(root) if path == root else path.relative_to(root).as_posix()


_LOG_TAIL_BYTES = 4_096
#: Failures that are older say nothing of today.
_FRESH_SECONDS = 7 * 86_400.0
#: A note is followed by the next hook, or the next start of a server.
_PATIENCE_SECONDS = 3_600.0


def _hooks(subject: ExaminedStore) -> Iterator[Finding]:
    """Findings on hooks; none where none ran."""
    log = subject.state / "hooks.log"
    with suppress(OSError, IndexError):
        if log.stat().st_mtime > time.time() - _FRESH_SECONDS:
            last = log.read_bytes()[-_LOG_TAIL_BYTES:].decode("utf-8", "replace").splitlines()[-1]
            yield from _found("hook", str(log), last=last)
    until = time.time() - _PATIENCE_SECONDS
    with suppress(OSError):
        notes = [path for path in (subject.state / "hooks" / "pending").glob("*.json") if path.stat().st_mtime < until]
        if notes:
            yield from _found("notes", str(notes[0].parent), count=len(notes))


def asked_command(config: Config) -> Iterator[Finding]:
    """What one call of the program of ``llm.command`` came to; nothing where none is set."""
    from memory_core.core.llm.client import COMMAND, LLMRequest, Turn
    from memory_core.core.llm.command_model import CommandModel
    from memory_core.core.llm.json_text import find_answer

    if config.llm.provider != COMMAND:
        return
    model = CommandModel(config.llm, config.root / STATE_NAME / ASIDE_NAME, lambda _limit: True)
    schema = {"type": "object", "properties": {"ready": {"type": "boolean"}}, "required": ["ready"]}
    question = LLMRequest("This is a test.", (Turn("user", 'Answer {"ready": true}.'),), schema, "Ready", 256)
    command, started = shlex.join(config.llm.command), time.monotonic()
    try:
        find_answer(model.complete(question, config.llm.deadline_seconds).text, ("ready",))
    except ModelFailed as error:
        yield from _found("command failed", command, error=error.message, hint=error.hint)
    else:
        yield from _found("command", command, seconds=time.monotonic() - started)


# The database --------------------------------------------------------------------------------------------------------

#: No work on one conversation, or on the index, leaves its lock untouched for so long.
_HELD_SECONDS = 3_600.0
_INDEX_LOCK = "index/index-follow"


def _database(subject: ExaminedStore, database: ExaminedDatabase) -> Iterator[Finding]:
    """Findings on what all users of the database share, and on locks of this one."""
    state = database.state
    facts: dict[str, Any] = {
        "server": state.server,
        "vectors": state.vectors or "not installed",
        "version": state.version,
    }
    yield from _found("database", f"Python {platform.python_version()}", **facts)
    for problem in state.problems:
        yield from _found("database problem", "store.url", problem=problem)
    if subject.ledger is None:
        return
    logs = [log for (log,) in subject.ledger.execute("SELECT log FROM extractions WHERE stored > extracted")]
    names = {f"extract-{short_hash(log)}": log for log in logs} | {_INDEX_LOCK: "the index"}
    for held in database.held_longer([*names], _HELD_SECONDS):
        yield from _found("turn", names[held.name], minutes=int(held.seconds // 60), process=held.process)


# The ledger ----------------------------------------------------------------------------------------------------------

#: A commit whose files are not known to be on disk after so long was made by a process that died.
_SETTLING_SECONDS = 60.0
_READ_CHANGES = 1_000


def _ledger(subject: ExaminedStore) -> Iterator[Finding]:
    """Findings on the ledger alone."""
    ledger = subject.ledger
    if ledger is None:
        is_there, was_used = (subject.state / LEDGER_NAME).exists(), subject.state.exists()
        yield from _found("closed ledger" if is_there else "no ledger" if was_used else "ledger to come", LEDGER_NAME)
        return
    in_database = subject.database is not None
    try:
        damage = [] if in_database else _damage(ledger)
        if damage:
            yield from _found("damaged ledger", LEDGER_NAME, error=damage[0])
            return
        before = (datetime.now(UTC) - timedelta(seconds=_SETTLING_SECONDS)).isoformat(timespec="milliseconds")
        table = word_table(__file__)
        for *row, query in (*table["ledger"], *table["ledger database" if in_database else "ledger folder"]):
            given = (before,) if "?" in query else ()
            yield from _found(row, each=(str(found) for (found,) in ledger.execute(query, given)))
        names = ledger.execute("SELECT uri, name_fold FROM files ORDER BY uri")
        yield from _found("folded", each=(uri for uri, folded in names if fold(uri.rpartition("/")[2]) != folded))
        yield from _found("history", each=_broken_texts(ledger))
    except sqlite3.Error as error:
        yield from _found("unreadable ledger", LEDGER_NAME, error=error)


def _damage(connection: sqlite3.Connection) -> list[str]:
    """What SQLite's own check finds, a line each; empty for a sound database."""
    try:
        rows = connection.execute("PRAGMA integrity_check(5)").fetchall()
    except sqlite3.Error as error:
        return [str(error)]
    lines = (line for (row,) in rows for line in row.splitlines())
    return [line for line in lines if line != "ok" and not line.startswith("***")]  # which database, that is known


def _broken_texts(ledger: sqlite3.Connection) -> Iterator[str]:
    """Changes whose stored text does not have its hash, and files whose last change is not what they should be."""
    current, whole = "", hashlib.sha256()
    last: dict[str, str | None] = {}
    known = True
    for uri, seq, appended, after, after_sha256, purged in _changes(ledger):
        if uri != current or not appended:
            current, whole, known = uri, hashlib.sha256(), True
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


def _changes(ledger: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """All changes, those of a file in their order; few are read at a time."""
    reached: tuple[Any, ...] = ("", 0, 0)
    while rows := ledger.execute(
        "SELECT uri, seq, appended, after, after_sha256, purged, ordinal FROM changes "
        "WHERE (uri, seq, ordinal) > (?, ?, ?) ORDER BY uri, seq, ordinal LIMIT ?",
        (*reached, _READ_CHANGES),
    ).fetchall():
        for *row, ordinal in rows:
            yield tuple(row)
            reached = (row[0], row[1], ordinal)


# The files -----------------------------------------------------------------------------------------------------------


def _files(subject: ExaminedStore) -> Iterator[Finding]:
    """Findings on the files, against the ledger where it can be read."""
    ledger = subject.ledger
    known: dict[str, str] = {}
    undelivered: set[str] = set()
    if ledger is not None:
        known = dict(ledger.execute("SELECT uri, sha256 FROM files"))
        unsettled = "SELECT uri FROM changes WHERE seq IN (SELECT seq FROM commits WHERE settled = 0)"
        undelivered = {uri for (uri,) in ledger.execute(unsettled)}
    seen: set[str] = set()
    links: dict[str, frozenset[str]] = {}
    for entry in subject.files.walk():
        uri = entry.uri
        seen.add(str(uri))
        try:
            text = subject.files.text(uri)
        except (StorageFailed, InvalidInput) as error:
            yield from _found("unreadable file", str(uri), error=error.message)
            continue
        if text is None:
            continue  # deleted this moment
        # In a database the text is what the ledger says; that is looked at there.
        if ledger is not None and subject.database is None and str(uri) not in undelivered:
            yield from _compared(subject, ledger, uri, text, known.get(str(uri)))
        if "\ufffd" in text and not subject.files.is_utf8(uri):
            yield from _found("encoding", str(uri))
        for problem in file_problems(subject.registry, uri, text):
            yield from _found("contents", problem.uri, what=problem.what, hint=problem.hint)
        if uri.name.endswith(".md"):
            links[str(uri)] = linked_uris(split(text).trailer or {})
    for path, (reason, hint) in subject.files.unusable.items():
        yield from _found("unusable file", path, reason=reason.rstrip("."), hint=hint)
    if ledger is not None:
        yield from _missing(subject, ledger, known.keys() - seen - undelivered)
    dangling = (
        f"{uri} → {target}"
        for uri, targets in links.items()
        for target in sorted(targets)
        if file_of(target) not in seen and not _is_directory(subject, target)
    )
    yield from _found("links", each=dangling)


def _compared(
    subject: ExaminedStore, ledger: sqlite3.Connection, uri: MemoryUri, text: str, known: str | None
) -> Iterator[Finding]:
    kept = recorded(uri, text)
    if kept is None and known is None:  # a page with nothing but its list
        return
    if (
        known is not None
        and kept is not None
        and (text_sha256(kept) == known or differs_in_line_feeds_alone(kept, known))
    ):
        return
    row = ledger.execute("SELECT sha256 FROM files WHERE uri = ?", (str(uri),)).fetchone()
    now = recorded(uri, subject.files.text(uri))  # a commit may have come in between
    if (None if row is None else row[0]) != (None if now is None else text_sha256(now)):
        yield from _found("new file" if row is None else "edited file", str(uri))


def _missing(subject: ExaminedStore, ledger: sqlite3.Connection, uris: set[str]) -> Iterator[Finding]:
    for uri in sorted(uris):
        is_known = ledger.execute("SELECT 1 FROM files WHERE uri = ?", (uri,)).fetchone()
        try:
            if is_known and subject.files.stat(MemoryUri.parse(uri)) is None:
                yield from _found("missing file", uri)
        except InvalidUri as error:
            yield from _found("misnamed file", uri, error=error.message)


def _is_directory(subject: ExaminedStore, target: str) -> bool:
    try:
        return subject.files.is_dir(MemoryUri.parse(file_of(target)))
    except (InvalidUri, NotFound):
        return False


# The index -----------------------------------------------------------------------------------------------------------


def _index(subject: ExaminedStore) -> Iterator[Finding]:
    """Findings on the catalog and what hangs on it."""
    catalog, database = subject.catalog, subject.database
    if catalog is None:
        yield from _found("closed index" if (subject.state / INDEX_NAME).exists() else "no index", INDEX_NAME)
        return
    try:
        damage = [] if database is not None else _damage(catalog)
        if damage:
            yield from _found("damaged index", INDEX_NAME, error=damage[0])
            return
        yield from _documents(subject, catalog)
        table = word_table(__file__)
        for *row, query in (*table["catalog folder" if database is None else "catalog database"], *table["catalog"]):
            if count := catalog.execute(query).fetchone()[0]:
                yield from _found(row, INDEX_NAME, count=f"{count:,}")
        if database is None and (problem := _torn_words(catalog)):
            yield from _found("torn words", INDEX_NAME, error=problem)
        yield from _vectors(subject, catalog)
    except sqlite3.Error as error:
        yield from _found("unreadable index", INDEX_NAME, error=error)


def _documents(subject: ExaminedStore, catalog: sqlite3.Connection) -> Iterator[Finding]:
    """Files whose documents are not what their text makes, and documents of no file."""
    if (why := _behind(subject, catalog)) is not None or subject.ledger is None:
        yield from _found("behind", INDEX_NAME, why=why)
        return
    ledger = subject.ledger
    newest = _newest(ledger)
    known: dict[str, str] = {}
    for uri, sha256 in ledger.execute("SELECT uri, sha256 FROM files"):
        with suppress(InvalidUri):  # the check of the files names it
            if is_searchable(MemoryUri.parse(uri), subject.features):
                known[uri] = sha256
    held = catalog.execute("SELECT DISTINCT uri FROM documents UNION SELECT DISTINCT uri FROM passages")
    wrong = [uri for (uri,) in held if uri not in known]
    for uri, sha256 in known.items():
        with suppress(StorageFailed, InvalidInput):  # likewise
            text = subject.files.text(MemoryUri.parse(uri))
            if text is not None and text_sha256(text) == sha256 and _differs(subject, catalog, uri, text):
                wrong.append(uri)
    if newest == _newest(ledger):  # else a commit came while they were compared
        yield from _found("documents", each=wrong)


def _newest(ledger: sqlite3.Connection) -> int:
    return int(ledger.execute("SELECT coalesce(max(seq), 0) FROM commits").fetchone()[0])


def _behind(subject: ExaminedStore, catalog: sqlite3.Connection) -> str | None:
    """Why documents cannot be compared now; None when the catalog has come as far as the ledger."""
    ledger = subject.ledger
    meta = dict(catalog.execute("SELECT name, value FROM meta"))
    if ledger is None:
        return "there is no ledger to compare it with"
    if subject.database is not None and subject.database.parts is not None:
        ledger_id = subject.database.parts.ledger.ledger_id
    else:
        (ledger_id,) = ledger.execute("SELECT value FROM meta WHERE name = 'ledger_id'").fetchone() or ("",)
    if not meta.get("ledger_id"):
        return "it is empty yet; the first search fills it"
    if meta["ledger_id"] != ledger_id:
        return "it follows another ledger; the next search builds it anew"
    if "filling" in meta:
        return "it is being built"
    newest = _newest(ledger)
    if int(meta.get("seq", 0)) != newest:
        return f"it has followed up to commit {meta.get('seq', 0)} of {newest}; the next search goes on"
    return None


def _differs(subject: ExaminedStore, catalog: sqlite3.Connection, uri: str, text: str) -> bool:
    place = MemoryUri.parse(uri)
    documents = (
        session_growth(place, [], list(numbered(text))).documents
        if is_session_log(place)
        else documents_of(place, text, subject.registry, subject.features)
    )
    held = catalog.execute("SELECT part, own FROM documents WHERE uri = ? ORDER BY part", (uri,))
    if held.fetchall() != [(document.part, document.own) for document in documents]:
        return True
    passages = [
        (number, text_sha256(passage), passage)
        for document in documents
        for number, passage in enumerate(document.passages, document.part * PASSAGE_LIMIT_COUNT)
    ]
    held = catalog.execute("SELECT part, content_sha256, text FROM passages WHERE uri = ? ORDER BY part", (uri,))
    if held.fetchall() != passages:
        return True
    return subject.database is not None and not subject.database.has_words(catalog, uri, documents)


def _torn_words(catalog: sqlite3.Connection) -> str | None:
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


def _vectors(subject: ExaminedStore, catalog: sqlite3.Connection) -> Iterator[Finding]:
    from memory_core.core.index.vector_scan import unsound

    if damaged := unsound(catalog) if subject.database is None else subject.database.unsound(catalog):
        yield from _found("no vectors", INDEX_NAME, count=f"{len(damaged):,}")
    for fingerprint, lacking in passages_without_vector(catalog).items():
        yield from _found("lacking vectors", fingerprint, count=f"{lacking:,}")
    models = [fingerprint for (fingerprint,) in catalog.execute("SELECT fingerprint FROM models ORDER BY last_used")]
    if subject.fingerprint is not None and models and subject.fingerprint not in models:
        yield from _found("model", models[-1], model=subject.fingerprint)


def _server(subject: ExaminedStore) -> Iterator[Finding]:
    """Findings on a server of vectors; none where they are kept in the store alone."""
    if subject.config.index.mode != "http" or subject.database is not None:
        return
    from memory_core.core.index.chroma_server import ChromaServer, place_of
    from memory_core.core.index.chroma_upkeep import look

    try:
        place = place_of(subject.config.index, os.environ)
    except ConfigInvalid as error:
        yield from _found("server settings", "index.url", error=error)
        return
    if subject.catalog is None:
        return
    with closing(ChromaServer(place)) as server:
        try:
            state = look(server, subject.catalog)
        except sqlite3.Error:  # a catalog of an older version, or a damaged one: its own check says so
            return
    if state.trouble is not None:
        yield from _found("server trouble", state.place, line=state.line(), hint=state.hint)
        return
    held, sent, waiting = (f"{count:,}" for count in (state.held, state.sent, state.waiting))
    if held != sent:
        yield from _found("server rows", state.place, held=held, sent=sent)
    else:
        yield from _found("server", state.place, version=state.version, held=held, waiting=waiting)
