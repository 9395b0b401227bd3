"""Backup: a complete copy of a memory folder as it was at one commit, while servers run; and the way back.

A backup is a folder, or one zip file, that holds ``backup.json`` (what is in it, with hashes) and ``home/`` (the
memory folder: files, settings, ledger). It gets its name only after every hash was read back; until then its name
ends in ``.partial``, and nothing takes it for a backup. The index is left out unless asked for: it is made anew from
the ledger. Chroma's folder never is in it, because the index holds what it is made from.
"""

from __future__ import annotations

import contextlib
import io
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from memory_core.core.config import CONFIG_NAME
from memory_core.core.conversation_notes import copy_notes
from memory_core.core.errors import InvalidInput, InvalidUri, RunebookError, StorageFailed
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.progress import tell
from memory_core.core.store import atomic
from memory_core.core.store.files import FILE_LIMIT_BYTES, INDEX_NAME, LEDGER_NAME, STATE_NAME
from memory_core.core.store.ledger import Ledger
from memory_core.core.store.ledger_snapshot import LedgerSnapshot
from memory_core.core.store.local import Store
from memory_core.core.store.logins import TABLES as LOGINS
from memory_core.core.store.sqlite import Database, copy_database
from memory_core.features.export import content_at, counted
from memory_core.features.export_file import (
    BACKUP,
    FolderWriter,
    Pack,
    PackedFile,
    Writer,
    ZipWriter,
    appearing,
    chunks_of,
    open_pack,
    pack,
    pack_manifest,
    path_uri,
    remove_whole,
    sync_folder,
)
from memory_core.features.foreign_ledger import bring_into_own_tables, expect_sound
from memory_core.version import program_version

HOME = "home"
PARTIAL = ".partial"
#: Settings of a backup that are not to hold.
SETTINGS_BESIDE = "config.from-backup.json"
_LEDGER = f"{STATE_NAME}/{LEDGER_NAME}"
_INDEX = f"{STATE_NAME}/{INDEX_NAME}"
_NAME = re.compile(r"runebook-\d{8}T\d{6}(?:\.\d+)?Z")
_PARTIAL = re.compile(r".+\.[0-9a-f]{8}\.partial")
_STALE_SECONDS = 24 * 3600
_NOT_PLAIN = re.compile(r'[\x00-\x1f\\:*?"<>|\ud800-\udfff]')
_SCOPES = frozenset(scope.value for scope in Scope)


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was made and verified.

    Attributes:
        path: Where it is.
        seq: The last commit in it.
        counts: Its memory files by kind.
        removed: Older backups that ``keep`` let go.
        notes: Files that are in it as they are on disk, because the ledger knows no such text.
        left_out: Files that are not in it: without a portable name, or lost on disk and in the ledger.
    """

    JSON: ClassVar = "path seq counts removed notes left_out"

    path: Path
    seq: int
    counts: dict[str, int]
    removed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def note_lines(self) -> list[str]:
        """The notes as a person reads them."""
        return [f"not as committed: {uri} (it is in the backup as it is on disk)" for uri in self.notes]


def back_up(
    store: Store,
    destination: Path,
    *,
    settings_file: Path | None = None,
    keep: int | None = None,
    with_index: bool = False,
    now: datetime | None = None,
) -> Backup:
    """Copy everything, verified, while others use the store.

    Args:
        store: The store.
        destination: A folder, in which a backup named by the time is made; or a file that ends in ``.zip``.
        settings_file: The settings in use, where they are not in the memory folder.
        keep: How many backups of this store may stay in the folder, this one included.
        with_index: Whether the index comes along: larger, and nothing need be computed after a restore.
        now: The time that names it; default the clock's.

    Raises:
        InvalidInput: If the destination cannot be one. Nothing was written.
        StorageFailed: If the disk refuses or what was written reads back differently. No backup was made.
    """
    store.expect_folder("a backup")
    is_zip = destination.suffix.lower() == ".zip"
    target = destination if is_zip else destination / f"runebook-{now or datetime.now(UTC):%Y%m%dT%H%M%S.%f}Z"
    _check_destination(store, destination, target, keep=keep, is_zip=is_zip)
    partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}{PARTIAL}")
    with appearing(target, partial, "the backup"):
        _sweep(path for path in target.absolute().parent.iterdir() if _PARTIAL.fullmatch(path.name))
        with contextlib.closing(ZipWriter(partial) if is_zip else FolderWriter(partial)) as writer:
            backup = _Writing(store, writer, target).run(settings_file, with_index=with_index)
        verify(partial)
    if keep is not None:
        backup.removed.extend(_let_go(target, keep))
    return backup


def _check_destination(store: Store, destination: Path, target: Path, *, keep: int | None, is_zip: bool) -> None:
    if keep is not None and (is_zip or keep < 1):
        why = "counts backups in a folder, not in a .zip" if is_zip else f"{keep} would leave no backup"
        raise InvalidInput(f"--keep {why}.", hint="Give a folder, and keep 1 or more.")
    taken = destination if is_zip or not destination.is_dir() else target
    if taken.exists():
        raise InvalidInput(f"{taken.name!r} is there already.", hint="Name a folder, or a .zip that is not there yet.")
    if destination.absolute().is_relative_to(store.files.root.absolute()):
        raise InvalidInput(
            "a backup inside the memory folder would be lost with it.",
            hint="Name a folder outside, best on another disk.",
        )


class _Writing:
    """One backup being written."""

    def __init__(self, store: Store, writer: Writer, target: Path) -> None:
        self._store = store
        self._writer = writer
        self._target = target
        self._files: list[PackedFile] = []
        self._notes: list[str] = []
        self._lost: list[str] = []
        self._left_out: list[str] = []

    def run(self, settings_file: Path | None, *, with_index: bool) -> Backup:
        """Write everything but the name."""
        self._store.adopt()
        with tempfile.TemporaryDirectory(dir=self._target.parent, prefix=atomic.TEMPORARY_PREFIX) as scratch:
            state = self._store.files.state
            if with_index and (state / INDEX_NAME).exists():
                # Before the ledger: an index may be behind its ledger, and never ahead of it.
                copy_database(state / INDEX_NAME, Path(scratch) / INDEX_NAME)
                self._copy(_INDEX, Path(scratch) / INDEX_NAME)
            ledger = Path(scratch) / LEDGER_NAME
            copy_database(state / LEDGER_NAME, ledger)
            with LedgerSnapshot.of_file(ledger, frozen=True) as snapshot:
                uris = self._put_files(snapshot)
                seq, ledger_id = snapshot.seq, snapshot.ledger_id
            self._copy(_LEDGER, ledger)
        self._put_others({str(uri) for uri in uris}, settings_file)
        counts = counted(uris)
        manifest = {
            "program_version": program_version(),
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "ledger_id": ledger_id,
            "seq": seq,
            "counts": counts,
            "not_as_committed": [*self._notes, *self._lost],
            "files": [packed.facts for packed in self._files],
        }
        pack_manifest(self._writer, BACKUP, manifest)
        return Backup(self._target, seq, counts, notes=self._notes, left_out=[*self._lost, *self._left_out])

    def _put_files(self, snapshot: LedgerSnapshot) -> list[MemoryUri]:
        uris: list[MemoryUri] = []
        for number, row in enumerate(snapshot.files(), 1):
            tell("copying", number, unit="files")
            uri = MemoryUri.parse(row.uri)
            content = content_at(self._store.files, snapshot, row)
            if content is None:
                try:
                    content = self._store.files.path_for(uri).read_bytes()
                except (OSError, InvalidUri):
                    self._lost.append(row.uri)
                    continue
                self._notes.append(row.uri)
            self._files.append(pack(self._writer, "/".join((HOME, *uri.parts)), [content]))
            uris.append(uri)
        return uris

    def _put_others(self, known: set[str], settings_file: Path | None) -> None:
        """What the ledger does not know: settings, a user's own types and prompts, files too large to be memories."""
        root = self._store.files.root
        for entry in self._store.files.walk():
            if str(entry.uri) not in known and entry.stat.size_bytes > FILE_LIMIT_BYTES:
                self._copy("/".join(entry.uri.parts), self._store.files.path_for(entry.uri))
        for path in _own_files(root):
            name = path.relative_to(root).as_posix()
            if _is_plain(name):
                self._copy(name, path)
            else:
                self._left_out.append(name.encode("utf-8", "backslashreplace").decode("utf-8"))
        if settings_file is not None and settings_file.is_file() and not (root / "config.json").exists():
            self._copy("config.json", settings_file)

    def _copy(self, path: str, source: Path) -> None:
        try:
            stream = source.open("rb")
        except OSError as error:
            raise StorageFailed(
                f"{path!r} cannot be read: {error.strerror or error}.",
                hint="Make it readable, or move it out of the memory folder.",
            ) from error
        with stream:
            self._files.append(pack(self._writer, f"{HOME}/{path}", chunks_of(stream)))


def _own_files(root: Path) -> Iterator[Path]:
    """Plain files in the memory folder that are neither memories nor ours, hidden ones excepted."""
    for top in sorted(root.iterdir()):
        if top.name in _SCOPES or top.name.startswith(".") or top.is_symlink():
            continue
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
            if path.is_file() and not path.is_symlink() and not hidden:
                yield path


def _let_go(made: Path, keep: int) -> list[str]:
    """Delete the oldest backups of the same store beside the one just made; what is half deleted is none any more."""
    own = _ledger_of(made)
    others = [path for path in backups_in(made.parent) if path.name != made.name and _ledger_of(path) == own]
    removed: list[str] = []
    for path in others[: max(0, len(others) + 1 - keep)]:
        going = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PARTIAL}")
        path.replace(going)
        remove_whole(going)
        removed.append(path.name)
    return removed


def _ledger_of(path: Path) -> str:
    """The store that a backup is of; empty for what cannot be told."""
    try:
        with open_pack(path, BACKUP) as found:
            return str(found.manifest.get("ledger_id", ""))
    except RunebookError:
        return ""


def _sweep(left_behind: Iterable[Path]) -> None:
    """Delete what backups and restores left behind that were cut short a day ago or more."""
    for path in left_behind:
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                remove_whole(path)


def verify(path: Path) -> int:
    """Read a backup to its end: every hash, the ledger's own check, and every file against the ledger.

    Returns:
        How many files it holds.

    Raises:
        InvalidInput: If it is not what was backed up.
        StorageFailed: If it cannot be read.
    """
    with open_pack(path, BACKUP) as found, tempfile.TemporaryDirectory(prefix="runebook-verify-") as scratch:
        ledger = Path(scratch) / LEDGER_NAME
        files = {packed.path: packed for packed in found.files()}
        own = files.pop(f"{HOME}/{_LEDGER}", None)
        if own is not None:
            with ledger.open("wb") as stream:
                found.pour(own, stream)
        for number, packed in enumerate(files.values()):
            tell("verifying", number, len(files), unit="files")
            found.pour(packed, None)
        if own is None:
            raise InvalidInput("the backup's ledger is missing.", hint="Use another backup.")
        expect_sound(ledger)
        excused = set(found.manifest.get("not_as_committed", ()))
        with LedgerSnapshot.of_file(ledger, frozen=True) as snapshot:
            for row in snapshot.files():
                inside = files.get("/".join((HOME, *MemoryUri.parse(row.uri).parts)))
                if row.uri not in excused and not _is_as_committed(found, inside, row.sha256):
                    raise InvalidInput(
                        f"the backup's {row.uri!r} is missing or not what was committed.", hint="Use another backup."
                    )
        return len(found.files())


def _is_as_committed(found: Pack, packed: PackedFile | None, committed: str) -> bool:
    if packed is None or packed.sha256 == committed:
        return packed is not None
    # A hand-made file that is not UTF-8: the ledger has the hash of what could be read of it.
    content = io.BytesIO()
    found.pour(packed, content)
    return text_sha256(content.getvalue().decode("utf-8", "replace")) == committed


def backups_in(folder: Path) -> list[Path]:
    """The complete backups in a folder, oldest first; those under way or cut short are none."""
    if not folder.is_dir():
        return []
    return sorted(
        path for path in folder.iterdir() if _NAME.fullmatch(path.name) and (path / BACKUP.manifest).is_file()
    )


def restore(
    source: Path,
    home: Path,
    *,
    force: bool = False,
    keep_rights: bool = False,
    closed: Callable[[Callable[[], Path | None]], Path | None] = lambda move: move(),
) -> tuple[int, Path | None]:
    """Bring a backup back as a memory folder.

    Tokens that were revoked here since stay revoked, who was logged in logs in again, and what was said here in private
    mode stays out: a backup is older than such decisions.

    Args:
        source: A backup, folder or zip.
        home: The memory folder to be; must be empty or not there.
        force: Move a folder that is there aside first.
        keep_rights: Who may come in, and what runs, stays as it is here: the tokens, the logins and the settings file;
            the settings of the backup lie beside it, as ``SETTINGS_BESIDE``. Its index is left out and made anew.
        closed: Calls what moves the folders while nobody has the store open.

    Returns:
        How many files were restored, and where the former folder is now.

    Raises:
        InvalidInput: If the backup is damaged, or ``home`` is not empty. Nothing was changed.
        StorageFailed: If the disk refuses; ``home`` is as it was.
    """
    home = home.absolute()
    occupied = home.exists() and (not home.is_dir() or any(home.iterdir()))
    if source.name.endswith(PARTIAL):
        raise InvalidInput("this backup was never finished.", hint="Take another one.")
    if source.is_dir() and (several := backups_in(source)):
        raise InvalidInput(f"{source.name!r} holds backups.", hint=f"Name one of them: {several[-1]} is the newest.")
    with open_pack(source, BACKUP) as found:  # what is no backup is told before anything is to be moved aside for it
        names = {packed.path: _restored_name(packed.path) for packed in found.files()}
    if keep_rights and f"{HOME}/{CONFIG_NAME}" in names:
        names[f"{HOME}/{CONFIG_NAME}"] = SETTINGS_BESIDE
    if occupied and not force:
        raise InvalidInput(
            f"{str(home)!r} is not empty.", hint="Name another folder with --home, or move this one aside with --force."
        )
    count = verify(source)
    staging = home.with_name(f"{atomic.RESTORING_PREFIX}{secrets.token_hex(4)}")
    aside = home.with_name(f"{home.name}.before-restore-{datetime.now(UTC):%Y%m%dT%H%M%SZ}") if occupied else None

    def move() -> Path | None:
        _settle_rights(home, staging, keep=keep_rights)
        copy_notes(home / STATE_NAME, staging / STATE_NAME, with_read=False)
        _put_in_place(home, staging, aside)
        return aside

    try:
        _sweep(home.parent.glob(f"{atomic.RESTORING_PREFIX}*"))
        _unpack(source, staging, names)
        return count, closed(move)
    except OSError as error:
        raise StorageFailed(
            f"the backup could not be restored: {error.strerror or error}.", hint="Check free space and permissions."
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _settle_rights(home: Path, staging: Path, *, keep: bool) -> None:
    """Let tokens and logins of a ledger to be follow those of the one that is here, as far as it can be read."""
    own = home / _LEDGER
    if keep:
        (staging / _INDEX).unlink(missing_ok=True)  # it would say who finds what
    Ledger(staging / _LEDGER).close()  # brought to this version
    bring_into_own_tables(staging / _LEDGER)
    with contextlib.closing(Ledger(staging / _LEDGER)) as restored:
        try:
            with contextlib.closing(Ledger(own)) if own.is_file() else contextlib.nullcontext() as ledger:
                tokens = [] if ledger is None else ledger.tokens.dump()
                logins = {} if ledger is None or not keep else _rows_of(ledger.database, LOGINS)
        except RunebookError:
            if keep:
                raise
            tokens, logins = [], {}
        with restored.database.writing() as connection:
            for table in LOGINS:
                connection.execute(f"DELETE FROM {table}")
                for row in logins.get(table, ()):
                    connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", tuple(row))
        restored.tokens.follow(tokens, alone=keep)
    if keep and (home / CONFIG_NAME).is_file():
        shutil.copyfile(home / CONFIG_NAME, staging / CONFIG_NAME)
        (staging / CONFIG_NAME).chmod(0o600)


def _rows_of(database: Database, tables: Iterable[str]) -> dict[str, list[Any]]:
    return {table: database.connection().execute(f"SELECT * FROM {table}").fetchall() for table in tables}


def _put_in_place(home: Path, staging: Path, aside: Path | None) -> None:
    """Move the new folder in and the former one aside: in one step, where the system has it; all or nothing."""
    if aside is None:
        if home.exists():
            home.rmdir()
        staging.rename(home)
    elif not _exchanged(home, staging, aside):
        home.rename(aside)
        try:
            staging.rename(home)
        except OSError:
            aside.rename(home)
            raise
    sync_folder(home.parent)


def _exchanged(home: Path, staging: Path, aside: Path) -> bool:
    """Whether both folders changed places, the new one under the name that the former one gets."""
    staging.rename(aside)
    done = False
    try:
        done = atomic.change_places(aside, home)
    finally:
        if not done:
            aside.rename(staging)
    return done


def _unpack(source: Path, target: Path, names: dict[str, str]) -> None:
    with open_pack(source, BACKUP) as found:
        writer = FolderWriter(target)
        for number, packed in enumerate(found.files()):
            tell("restoring", number, len(names), unit="files")
            with writer.opened(names[packed.path]) as stream:
                found.pour(packed, stream)
        writer.close()
    atomic.make_folder(target / ".state/locks")


def _restored_name(path: str) -> str:
    """Where a file of a backup goes, below the memory folder.

    Raises:
        InvalidInput: If no backup of ours holds such a file.
    """
    top, _, name = path.partition("/")
    parts = name.split("/")
    if parts[0] in _SCOPES:
        path_uri(name)
        allowed = True
    elif parts[0] == STATE_NAME:
        allowed = name in (_LEDGER, _INDEX)
    else:
        allowed = not any(part.startswith(".") for part in parts)
    if top != HOME or not _is_plain(name) or not allowed:
        raise InvalidInput(f"no backup holds a file {path[:200]!r}.", hint="Use another backup.")
    return name


def _is_plain(name: str) -> bool:
    """Whether every system takes a name, with ``/`` between its parts."""
    return all(part not in ("", ".", "..") and not _NOT_PLAIN.search(part) for part in name.split("/"))
