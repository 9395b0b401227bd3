"""The process's stdin and stdout, taken away from everything but the protocol.

Owns: moving the two protocol pipes onto private descriptors and pointing fd 0 at the null device
and fd 1 at stderr, so that a ``print``, a C library's banner or a child process cannot put a byte
on the wire or eat one from it. Imports only the standard library: a program can divert before it
imports anything that might print.

Does not: read, write or close the private descriptors.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple

from memory_core.errors import ConfigInvalid


class StandardStreams(NamedTuple):
    """The protocol's two pipes while fd 0 and fd 1 are diverted.

    A context manager that restores on exit. Make it with ``divert``.

    Attributes:
        stdin_fd: Descriptor to read the protocol from, > 2, not inherited by children.
        stdout_fd: Descriptor to write the protocol to, > 2, not inherited by children.
    """

    stdin_fd: int
    stdout_fd: int

    @classmethod
    def divert(cls) -> StandardStreams:
        """Take both pipes; what was printed but not yet flushed goes to stderr.

        Raises:
            ConfigInvalid: Stdin or stdout is closed.
        """
        try:
            streams = cls(_duplicate(0), _duplicate(1))
        except OSError as error:
            raise ConfigInvalid(
                f"Standard input or output is closed ({error.strerror}).",
                hint="Start the server from an MCP client, or with both connected to pipes.",
            ) from error
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # no stderr: a service, or a windowed program
            os.dup2(null, 1)
        if null > 2:
            os.close(null)
        _publish_handles()
        return streams

    def restore(self) -> None:
        """Give fd 0 and fd 1 back; buffered prints are flushed to stderr first. Idempotent."""
        with suppress(OSError, ValueError, AttributeError):  # closed, or None without a console
            sys.stdout.flush()
        # The private descriptors stay open: a thread may still be blocked on one, and a closed
        # number would be reused under it.
        os.dup2(self.stdin_fd, 0)
        os.dup2(self.stdout_fd, 1)
        _publish_handles()

    def __enter__(self) -> StandardStreams:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.restore()


def _duplicate(fd: int) -> int:
    """A blocking, binary copy of ``fd`` outside 0-2, where a closed stderr would leave a gap."""
    low: list[int] = []
    try:
        while (copy := os.dup(fd)) <= 2:
            low.append(copy)
    finally:
        for gap in low:
            os.close(gap)
    if sys.platform == "win32":
        import msvcrt

        msvcrt.setmode(copy, os.O_BINARY)
    else:
        os.set_blocking(copy, True)  # a parent may have handed over a non-blocking pipe
    return copy


def _publish_handles() -> None:
    """On Windows, tell child processes too: they inherit Win32 handles, not descriptors."""
    if sys.platform == "win32":
        import ctypes
        import msvcrt

        set_handle = ctypes.windll.kernel32.SetStdHandle
        set_handle.argtypes = [ctypes.c_uint32, ctypes.c_void_p]
        for fd, slot in ((0, -10), (1, -11)):
            set_handle(slot & 0xFFFFFFFF, msvcrt.get_osfhandle(fd))
