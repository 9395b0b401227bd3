"""How a file looked when it was read, and whether it is still the same; reads a file, knows no URI and no store."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from memory_core.model.changes import text_sha256


@dataclass(frozen=True, slots=True)
class FileStat:
    """What a cheap look tells of a file; equal stats mean an unchanged file."""

    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as it was when its text was read.

    Attributes:
        sha256: Of its text; None for no file.
        looks: Inode, size and time, where a later look that finds them the same proves that the text is.
        stat: From right before it was read: a file that looks otherwise later may hold another text.
    """

    sha256: str | None
    looks: tuple[int, int, int] | None = None
    stat: FileStat | None = None


def opened(path: str) -> BinaryIO:
    """The file, opened for reading without ever waiting: a pipe has no writer, and a device may have no end.

    The path holds no link any more; one that takes the place of its last part in the moment between is refused.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    try:
        return os.fdopen(descriptor, "rb")
    except OSError:  # a directory; whoever is given a descriptor does not close it then
        os.close(descriptor)
        raise


def stat_of(found: os.stat_result) -> FileStat:
    """What of a stat is kept."""
    return FileStat(found.st_size, found.st_mtime_ns)


def looks_of(found: os.stat_result) -> tuple[int, int, int]:
    """See ``Seen.looks``."""
    return found.st_ino, found.st_size, found.st_mtime_ns


def is_still(path: Path, seen: Seen) -> bool:
    """Whether the file at ``path`` holds what was seen; raises OSError where the system refuses to tell."""
    try:
        if seen.looks is not None and looks_of(path.stat()) == seen.looks:
            return True
        with opened(os.path.realpath(path)) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return False
            return text_sha256(stream.read().decode("utf-8", "replace")) == seen.sha256
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return seen.sha256 is None
