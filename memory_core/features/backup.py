"""Backup: a complete copy of a memory folder as it was at one commit, while servers run; and the way back.

A backup is a folder, or one zip file, that holds ``backup.json`` (what is in it, with hashes) and ``home/`` (the
memory folder: files, settings, ledger). It gets its name only after every hash was read back; until then its name
ends in ``.partial``, and nothing takes it for a backup. The index is left out unless asked for: it is made anew from
the ledger. Chroma's folder never is in it, because the index holds what it is made from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

import contextlib
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Protocol

from memory_core.core.errors import InvalidInput, InvalidUri, RunebookError, StorageFailed
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.progress import tell
from memory_core.core.store import atomic
from memory_core.core.store.files import FILE_LIMIT_BYTES, INDEX_NAME, LEDGER_NAME, STATE_NAME
from memory_core.core.store.ledger_snapshot import LedgerSnapshot
from memory_core.core.store.local import Store
from memory_core.core.store.sqlite import copy_database, damage
from memory_core.features.export_file import content_at, counted, path_uri
from memory_core.version import program_version

FORMAT = "runebook-backup"
FORMAT_VERSION = 1
MANIFEST_NAME = "backup.json"
HOME = "home"
_MANIFEST_LIMIT_BYTES = 512 * 1024**2
_CHUNK_BYTES = 1024**2
_HINT = "Take another backup; this one was changed or cut short."
_NO_BACKUP = "Name what runebook backup wrote; for an export, use runebook import."


@dataclass(frozen=True, slots=True)
class BackupEntry:
    """One file of a backup; ``path`` is relative, with ``/``."""

    path: str
    sha256: str
    size_bytes: int


class BackupWriter(Protocol):
    """Where a backup is written to."""

    def put(self, path: str, content: bytes) -> BackupEntry:
        """Write one file."""
        ...

    def copy(self, path: str, source: Path) -> BackupEntry:
        """Write a file of any size."""
        ...

    def finish(self) -> None:
        """Make everything durable."""
        ...


class FolderWriter:
    """A backup as a folder that can be opened as it is: ``runebook --home FOLDER/home``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        atomic.make_folder(root)
        self._folders = {root}

    def put(self, path: str, content: bytes) -> BackupEntry:
        """See ``BackupWriter``."""
        with self.opened(path) as stream:
            stream.write(content)
        return BackupEntry(path, hashlib.sha256(content).hexdigest(), len(content))

    def copy(self, path: str, source: Path) -> BackupEntry:
        """See ``BackupWriter``."""
        with self.opened(path) as target, source.open("rb") as stream:
            return _poured(path, stream, target)

    def finish(self) -> None:
        """See ``BackupWriter``."""
        for folder in sorted(self._folders, reverse=True):
            sync_folder(folder)

    @contextlib.contextmanager
    def opened(self, path: str) -> Iterator[IO[bytes]]:
        """A new file, private to the user and durable when the body ends."""
        target = self._root.joinpath(*path.split("/"))
        atomic.make_folder(target.parent)
        self._folders |= {folder for folder in target.parents if folder.is_relative_to(self._root)}
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(target, flags, 0o600), "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())


class ZipWriter:
    """A backup as one file."""

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self._stream = os.fdopen(os.open(path, flags, 0o600), "w+b")
        self._archive = zipfile.ZipFile(self._stream, "w", zipfile.ZIP_DEFLATED)

    def put(self, path: str, content: bytes) -> BackupEntry:
        """See ``BackupWriter``."""
        self._archive.writestr(_info(path), content)
        return BackupEntry(path, hashlib.sha256(content).hexdigest(), len(content))

    def copy(self, path: str, source: Path) -> BackupEntry:
        """See ``BackupWriter``."""
        with self._archive.open(_info(path), "w", force_zip64=True) as target, source.open("rb") as stream:
            return _poured(path, stream, target)

    def finish(self) -> None:
        """See ``BackupWriter``."""
        self._archive.close()
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()


class BackupReader:
    """A backup as its manifest describes it.

    Args:
        manifest: The manifest's JSON object.
        opener: Opens the file at a path of the backup.
    """

    def __init__(self, manifest: dict[str, Any], opener: Callable[[str], IO[bytes]]) -> None:
        if manifest.get("format") != FORMAT:
            raise InvalidInput("this is no backup of Runebook.", hint=_NO_BACKUP)
        version = manifest.get("format_version")
        if not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
            raise InvalidInput(f"the backup has format version {version!r}.", hint="Upgrade Runebook.")
        self.manifest = manifest
        self._opener = opener
        try:
            self.entries = [
                BackupEntry(str(facts["path"]), str(facts["sha256"]), int(facts["size"])) for facts in manifest["files"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput("the backup's manifest is damaged.", hint=_HINT) from error

    def pour(self, entry: BackupEntry, target: IO[bytes] | None) -> None:
        """Read a file to its end, into ``target`` if there is one.

        Raises:
            InvalidInput: If it is not what the manifest says.
        """
        try:
            with self._opener(entry.path) as stream:
                found = _poured(entry.path, stream, target, entry.size_bytes)
        except (KeyError, FileNotFoundError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise InvalidInput(f"the backup's {entry.path!r} is missing or damaged.", hint=_HINT) from error
        if found != entry:
            raise InvalidInput(f"the backup's {entry.path!r} is not what was backed up.", hint=_HINT)


@contextlib.contextmanager
def reader_of(path: Path) -> Iterator[BackupReader]:
    """Open a backup of either form; its name does not matter.

    Raises:
        InvalidInput: If it is none.
        StorageFailed: If it cannot be read.
    """
    try:
        if path.is_dir():
            with (path / MANIFEST_NAME).open("rb") as stream:
                manifest = _manifest(stream.read(_MANIFEST_LIMIT_BYTES))
            yield BackupReader(manifest, lambda name: _open_inside(path, name))
            return
        with zipfile.ZipFile(path) as archive:
            links = [info for info in archive.infolist() if stat.S_ISLNK(info.external_attr >> 16)]
            if links or MANIFEST_NAME not in archive.namelist():
                raise InvalidInput("this is no backup of Runebook.", hint=_NO_BACKUP)
            if archive.getinfo(MANIFEST_NAME).file_size > _MANIFEST_LIMIT_BYTES:
                raise InvalidInput("the backup's manifest is too large.", hint=_HINT)
            yield BackupReader(_manifest(archive.read(MANIFEST_NAME)), archive.open)
    except FileNotFoundError as error:
        raise InvalidInput(f"there is no backup at {path.name!r}.", hint="Name what runebook backup wrote.") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise InvalidInput(f"the backup {path.name!r} is damaged or incomplete.", hint=_HINT) from error
    except OSError as error:
        raise StorageFailed(
            f"the backup {path.name!r} cannot be used: {error.strerror or error}.",
            hint="Check free space and permissions.",
        ) from error


def _open_inside(root: Path, name: str) -> IO[bytes]:
    path = root.joinpath(*name.split("/"))
    if not path.resolve().is_relative_to(root.resolve()):
        raise FileNotFoundError(name)
    return path.open("rb")


def _manifest(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("the backup's manifest is damaged.", hint=_HINT) from error
    return found if isinstance(found, dict) else {}


def _poured(path: str, source: IO[bytes], target: IO[bytes] | None, limit_bytes: int | None = None) -> BackupEntry:
    digest, size = hashlib.sha256(), 0
    while chunk := source.read(_CHUNK_BYTES):
        digest.update(chunk)
        size += len(chunk)
        if limit_bytes is not None and size > limit_bytes:
            break
        if target is not None:
            target.write(chunk)
    return BackupEntry(path, digest.hexdigest(), size)


def _info(path: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(path, datetime.now(UTC).timetuple()[:6])
    info.external_attr = 0o600 << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def sync_folder(folder: Path) -> None:
    """Make a folder's entries survive a power loss."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_whole(path: Path) -> None:
    """Delete a backup of either form."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


PARTIAL = ".partial"
_LEDGER = f"{STATE_NAME}/{LEDGER_NAME}"
_INDEX = f"{STATE_NAME}/{INDEX_NAME}"
_NAME = re.compile(r"runebook-\d{8}T\d{6}(?:\.\d+)?Z")
_PARTIAL = re.compile(r".+\.[0-9a-f]{8}\.partial")
_STALE_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was made and verified.

    Attributes:
        path: Where it is.
        seq: The last commit in it.
        counts: Its memory files by kind.
        removed: Older backups that ``keep`` let go.
        notes: Files that are in it as they are on disk, because the ledger knows no such text.
    """

    path: Path
    seq: int
    counts: dict[str, int]
    removed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "path": str(self.path),
            "seq": self.seq,
            "counts": self.counts,
            "removed": self.removed,
            "notes": self.notes,
        }


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
    is_zip = destination.suffix.lower() == ".zip"
    target = destination if is_zip else destination / f"runebook-{now or datetime.now(UTC):%Y%m%dT%H%M%S.%f}Z"
    _check_destination(store, destination, target, keep=keep, is_zip=is_zip)
    partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        _sweep(target.absolute().parent)
        writer: BackupWriter = ZipWriter(partial) if is_zip else FolderWriter(partial)
        backup = _Writing(store, writer, target).run(settings_file, with_index=with_index)
        verify(partial)
        partial.replace(target)
        atomic.sync(target if is_zip else target / MANIFEST_NAME)
        sync_folder(target.absolute().parent)
    except (OSError, zipfile.LargeZipFile) as error:
        raise StorageFailed(
            f"the backup could not be written: {getattr(error, 'strerror', None) or error}.",
            hint="Check free space and permissions of the destination.",
        ) from error
    finally:
        remove_whole(partial)
    if keep is not None:
        backup.removed.extend(_let_go(target, keep))
    return backup


def _check_destination(store: Store, destination: Path, target: Path, *, keep: int | None, is_zip: bool) -> None:
    if keep is not None and (is_zip or keep < 1):
        why = "counts backups in a folder, not in a .zip" if is_zip else f"{keep} would leave no backup"
        raise InvalidInput(f"--keep {why}.", hint="Give a folder, and keep 1 or more.")
    if target.exists() or (not is_zip and destination.exists() and not destination.is_dir()):
        raise InvalidInput(f"{target.name!r} is there already.", hint="Name a folder, or a .zip that is not there yet.")
    if destination.absolute().is_relative_to(store.files.root.absolute()):
        raise InvalidInput(
            "a backup inside the memory folder would be lost with it.",
            hint="Name a folder outside, best on another disk.",
        )
    atomic.make_folder(target.absolute().parent)


class _Writing:
    """One backup being written."""

    def __init__(self, store: Store, writer: BackupWriter, target: Path) -> None:
        self._store = store
        self._writer = writer
        self._target = target
        self._entries: list[dict[str, Any]] = []
        self._notes: list[str] = []

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
            with LedgerSnapshot(ledger, frozen=True) as snapshot:
                uris = self._put_files(snapshot)
                seq, ledger_id = snapshot.seq, snapshot.ledger_id
            self._copy(_LEDGER, ledger)
        self._put_others({str(uri) for uri in uris}, settings_file)
        counts = counted(uris)
        manifest = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "program_version": program_version(),
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "ledger_id": ledger_id,
            "seq": seq,
            "counts": counts,
            "not_as_committed": self._notes,
            "files": self._entries,
        }
        self._writer.put(MANIFEST_NAME, json.dumps(manifest, ensure_ascii=False, indent=1).encode())
        self._writer.finish()
        return Backup(self._target, seq, counts, notes=self._notes)

    def _put_files(self, snapshot: LedgerSnapshot) -> list[MemoryUri]:
        uris: list[MemoryUri] = []
        for number, row in enumerate(snapshot.files(), 1):
            tell("copying", number, unit="files")
            uri = MemoryUri.parse(row.uri)
            content = content_at(self._store.files, snapshot, row)
            if content is None:
                self._notes.append(row.uri)
                try:
                    content = self._store.files.path_for(uri).read_bytes()
                except (OSError, InvalidUri):
                    continue
            self._note(self._writer.put("/".join((HOME, *uri.parts)), content))
            uris.append(uri)
        return uris

    def _put_others(self, known: set[str], settings_file: Path | None) -> None:
        """What the ledger does not know: settings, a user's own types and prompts, files too large to be memories."""
        root = self._store.files.root
        for entry in self._store.files.walk():
            if str(entry.uri) not in known and entry.stat.size_bytes > FILE_LIMIT_BYTES:
                self._copy("/".join(entry.uri.parts), self._store.files.path_for(entry.uri))
        for path in _own_files(root):
            self._copy(path.relative_to(root).as_posix(), path)
        if settings_file is not None and settings_file.is_file() and not (root / "config.json").exists():
            self._copy("config.json", settings_file)

    def _copy(self, path: str, source: Path) -> None:
        self._note(self._writer.copy(f"{HOME}/{path}", source))

    def _note(self, entry: BackupEntry) -> None:
        self._entries.append({"path": entry.path, "sha256": entry.sha256, "size": entry.size_bytes})


def _own_files(root: Path) -> Iterator[Path]:
    """Plain files in the memory folder that are neither memories nor ours, hidden ones excepted."""
    scopes = {scope.value for scope in Scope}
    for top in sorted(root.iterdir()):
        if top.name in scopes or top.name.startswith(".") or top.is_symlink():
            continue
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
            if path.is_file() and not path.is_symlink() and not hidden:
                yield path


def _let_go(newest: Path, keep: int) -> list[str]:
    """Delete the oldest backups of the same store; what is half deleted is no backup any more."""
    own = _ledger_of(newest)
    same = [path for path in backups_in(newest.parent) if _ledger_of(path) == own]
    removed: list[str] = []
    for path in same[:-keep]:
        going = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PARTIAL}")
        path.replace(going)
        remove_whole(going)
        removed.append(path.name)
    return removed


def _ledger_of(path: Path) -> str:
    """The store that a backup is of; empty for what cannot be told."""
    try:
        with reader_of(path) as reader:
            return str(reader.manifest.get("ledger_id", ""))
    except RunebookError:
        return ""


def _sweep(folder: Path) -> None:
    """Delete what backups left behind that were cut short a day ago or more."""
    for path in folder.iterdir():
        if _PARTIAL.fullmatch(path.name):
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
    with reader_of(path) as reader, tempfile.TemporaryDirectory(prefix="runebook-verify-") as scratch:
        ledger = Path(scratch) / LEDGER_NAME
        found: dict[str, BackupEntry] = {}
        for number, entry in enumerate(reader.entries):
            tell("verifying", number, len(reader.entries), unit="files")
            if entry.path != f"{HOME}/{_LEDGER}":
                reader.pour(entry, None)
                found[entry.path] = entry
                continue
            with ledger.open("wb") as stream:
                reader.pour(entry, stream)
        problem = damage(ledger) if ledger.exists() else "it is missing"
        if problem is not None:
            raise InvalidInput(f"the backup's ledger is damaged: {problem}.", hint="Use another backup.")
        excused = set(reader.manifest.get("not_as_committed", ()))
        with LedgerSnapshot(ledger, frozen=True) as snapshot:
            for row in snapshot.files():
                inside = "/".join((HOME, *MemoryUri.parse(row.uri).parts))
                if row.uri not in excused and not _is_as_committed(reader, found.get(inside), row.sha256):
                    raise InvalidInput(
                        f"the backup's {row.uri!r} is missing or not what was committed.", hint="Use another backup."
                    )
        return len(reader.entries)


def _is_as_committed(reader: BackupReader, entry: BackupEntry | None, committed: str) -> bool:
    if entry is None or entry.sha256 == committed:
        return entry is not None
    # A hand-made file that is not UTF-8: the ledger has the hash of what could be read of it.
    content = io.BytesIO()
    reader.pour(entry, content)
    return text_sha256(content.getvalue().decode("utf-8", "replace")) == committed


def backups_in(folder: Path) -> list[Path]:
    """The complete backups in a folder, oldest first; those under way or cut short are none."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name) and (path / MANIFEST_NAME).is_file())


def restore(source: Path, home: Path, *, force: bool = False) -> tuple[int, Path | None]:
    """Bring a backup back as a memory folder.

    Args:
        source: A backup, folder or zip.
        home: The memory folder to be; must be empty or not there.
        force: Move a folder that is there aside first.

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
    with reader_of(source):
        pass  # what is no backup is told before anything is to be moved aside for it
    if occupied and not force:
        raise InvalidInput(
            f"{str(home)!r} is not empty.", hint="Name another folder with --home, or move this one aside with --force."
        )
    count = verify(source)
    staging = home.with_name(f"{atomic.TEMPORARY_PREFIX}restore-{secrets.token_hex(4)}")
    try:
        atomic.make_folder(staging)
        _unpack(source, staging)
        aside = home.with_name(f"{home.name}.before-restore-{datetime.now(UTC):%Y%m%dT%H%M%SZ}") if occupied else None
        if aside is not None:
            home.replace(aside)
        elif home.exists():
            home.rmdir()
        staging.replace(home)
        sync_folder(home.parent)
    except OSError as error:
        raise StorageFailed(
            f"the backup could not be restored: {error.strerror or error}.", hint="Check free space and permissions."
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return count, aside


def _unpack(source: Path, target: Path) -> None:
    with reader_of(source) as reader:
        writer = FolderWriter(target)
        for number, entry in enumerate(reader.entries):
            tell("restoring", number, len(reader.entries), unit="files")
            name = _restored_name(entry.path)
            with writer.opened(name) as stream:
                reader.pour(entry, stream)
        writer.finish()
    for folder in (".state/locks", ".state"):
        atomic.make_folder(target / folder)


def _restored_name(path: str) -> str:
    """Where a file of a backup goes, below the memory folder.

    Raises:
        InvalidInput: If no backup of ours holds such a file.
    """
    top, _, name = path.partition("/")
    parts = name.split("/")
    plain = all(part and part not in (".", "..") and not re.search(r'[\x00-\x1f\\:*?"<>|]', part) for part in parts)
    if top != HOME or not plain:
        raise InvalidInput(f"no backup holds a file {path[:200]!r}.", hint="Use another backup.")
    if parts[0] == STATE_NAME:
        if name not in (_LEDGER, _INDEX):
            raise InvalidInput(f"no backup holds a file {path[:200]!r}.", hint="Use another backup.")
    elif parts[0] in {scope.value for scope in Scope}:
        path_uri(name)
    elif any(part.startswith(".") for part in parts):
        raise InvalidInput(f"no backup holds a file {path[:200]!r}.", hint="Use another backup.")
    return name
