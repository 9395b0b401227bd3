"""Snapshots of a sealed index on disk: one immutable Chroma folder at a time, named by a manifest.

Owns the folders of one collection. A folder is built beside the current one, synced, and published by one
rename of the manifest; nothing writes its vectors afterwards, so a reader never meets a half-written index and
a killed writer leaves only waste. Checksums tell a damaged folder before Chroma opens it, which it would not
survive. Says nothing about what the rows mean. Everything that changes folders is called under the index lock.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import sqlite3
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from memory_core.core.index.chroma import SegmentBroken
from memory_core.core.store import atomic

DATABASE = "chroma.sqlite3"
_MANIFEST = "current.json"
_MARKER = "opening"
_BUILD_PREFIX = "build-"
_SNAPSHOT_PREFIX = "sealed-"
_ASIDE_KEPT = 2
#: Readers of other processes may still search the one before the current.
_SNAPSHOTS_KEPT = 2
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the current folder holds.

    Attributes:
        log_id: The vector log it was built from.
        generation: Counts publications.
        folder: Its name.
        sealed_seq: Every row of the log up to this number is in it.
        sealed_crc32: Of that row's vector: proves that the number still means the same row.
        rows: How many rows it holds, pruned ones included.
        files: Size in bytes and CRC-32 of each file of vectors, by relative path.
    """

    log_id: str
    generation: int
    folder: str
    sealed_seq: int
    sealed_crc32: int
    rows: int
    files: dict[str, tuple[int, int]]


class Snapshots:
    """The folders of one collection.

    Args:
        root: Where all collections live.
        collection: Its name.
    """

    def __init__(self, root: Path, collection: str) -> None:
        self.collection = collection
        self._aside = root / "aside"
        self._home = root / collection
        self._marker = self._home / _MARKER

    def stamp(self) -> tuple[int, int, int] | None:
        """Changes whenever another snapshot is published; None when there is none."""
        try:
            stat = (self._home / _MANIFEST).stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_ino, stat.st_size

    def manifest(self) -> Manifest | None:
        """The current manifest; None when there is none or it cannot be read."""
        try:
            values = json.loads((self._home / _MANIFEST).read_text(encoding="utf-8"))
            files = {str(name): (int(size), int(crc)) for name, (size, crc) in values.pop("files").items()}
            found = Manifest(**values, files=files)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        return found if (self._home / found.folder).is_dir() else None

    def path(self, manifest: Manifest) -> Path:
        """The folder a manifest names."""
        return self._home / manifest.folder

    def verify(self, manifest: Manifest) -> None:
        """Compare the folder with its checksums.

        Raises:
            SegmentBroken: If a file is missing or differs.
        """
        path = self.path(manifest)
        try:
            if _vector_files(path) != manifest.files:
                raise SegmentBroken(f"files of the Chroma folder {manifest.folder} are damaged or missing.")
            with contextlib.closing(_existing(path / DATABASE)) as connection:
                answer = connection.execute("PRAGMA quick_check").fetchone()
        except (OSError, sqlite3.Error) as error:
            raise SegmentBroken(f"the Chroma folder {manifest.folder} cannot be read: {error}.") from error
        if answer != ("ok",):
            raise SegmentBroken(f"the database of the Chroma folder {manifest.folder} is damaged.")

    def begin(self, base: Manifest | None) -> Path:
        """A new folder to fill: empty, or a copy of ``base``.

        Raises:
            SegmentBroken: If ``base`` cannot be read.
            StorageFailed: If the system refuses the folder.
        """
        atomic.make_folder(self._home)
        for waste in self._home.glob(f"{_BUILD_PREFIX}*"):
            shutil.rmtree(waste, ignore_errors=True)
        build = self._home / f"{_BUILD_PREFIX}{secrets.token_hex(4)}"
        atomic.make_folder(build)
        if base is None:
            return build
        source = self.path(base)
        try:
            for name in base.files:
                atomic.make_folder((build / name).parent)
                shutil.copyfile(source / name, build / name)
                (build / name).chmod(0o600)
            (build / DATABASE).touch(mode=0o600)
            # Others may have the database open, with a journal: only SQLite copies that consistently.
            with (
                contextlib.closing(_existing(source / DATABASE)) as old,
                contextlib.closing(sqlite3.connect(build / DATABASE)) as new,
            ):
                old.backup(new)
        except (OSError, sqlite3.Error) as error:
            raise SegmentBroken(f"the Chroma folder {base.folder} cannot be copied: {error}.") from error
        return build

    def publish(self, build: Path, *, log_id: str, sealed_seq: int, sealed_crc32: int, rows: int) -> Manifest:
        """Make a filled folder the current one.

        Raises:
            StorageFailed: If the system refuses; the current one is then untouched.
        """
        files = _vector_files(build)
        atomic.make_private(build)
        for name in (*files, DATABASE):
            atomic.sync(build / name)
        older = sorted(self._home.glob(f"{_SNAPSHOT_PREFIX}*"))
        generation = 1 + max((int(path.name.split("-")[1]) for path in older), default=0)
        folder = f"{_SNAPSHOT_PREFIX}{generation:08d}-{secrets.token_hex(4)}"
        build.rename(self._home / folder)
        manifest = Manifest(log_id, generation, folder, sealed_seq, sealed_crc32, rows, files)
        atomic.replace(self._home / _MANIFEST, json.dumps(asdict(manifest), indent=1) + "\n")
        atomic.sync(self._home / _MANIFEST)
        for old in older[: 1 - _SNAPSHOTS_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        return manifest

    def discard(self, build: Path) -> None:
        """Delete a folder that was begun, unless it was published."""
        shutil.rmtree(build, ignore_errors=True)

    def move_aside(self, manifest: Manifest) -> None:
        """Take a folder out of use, unless another has become the current one; the last few are kept."""
        current = self.manifest()
        if current is None or current.folder != manifest.folder:
            return
        (self._home / _MANIFEST).unlink(missing_ok=True)
        atomic.make_folder(self._aside)
        # Where another process holds files open and the system minds, it stays; without a manifest it is waste.
        with contextlib.suppress(OSError):
            self.path(manifest).rename(self._aside / f"{self.collection[:9]}-{manifest.folder}")
        kept = sorted(self._aside.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for old in kept[:-_ASIDE_KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def crashed(self) -> str | None:
        """The folder whose opening never ended, as the holder of the opening lock sees it."""
        try:
            return self._marker.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    @contextlib.contextmanager
    def opening(self, manifest: Manifest) -> Iterator[None]:
        """Leave a mark while a folder is being opened; a process that dies of it cannot remove it."""
        self._marker.write_text(manifest.folder, encoding="utf-8", newline="\n")
        try:
            yield
        finally:
            self._marker.unlink(missing_ok=True)


def _existing(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)


def _vector_files(path: Path) -> dict[str, tuple[int, int]]:
    """Size and CRC-32 of every file below ``path`` but the database, which each opening writes to."""
    return {
        file.relative_to(path).as_posix(): (file.stat().st_size, _crc32(file))
        for file in sorted(path.rglob("*"))
        if file.is_file() and not file.name.startswith(DATABASE)
    }


def _crc32(path: Path) -> int:
    checksum = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            checksum = zlib.crc32(chunk, checksum)
    return checksum
