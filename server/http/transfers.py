"""Files on their way in and out of the store, and the work on them, which goes on while nobody waits for an answer.

An upload comes in parts, so that no request is larger than any other; what is made for download lies there until it is
discarded, or is too old when the next transfer begins. All of it is in one folder that only this user can read,
outside the store, and leaves with the server; what a killed server left leaves when the next one begins a transfer. One
work runs at a time: each takes the whole store in hand.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import re
import secrets
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from filelock import FileLock, Timeout

from memory_core.core.errors import InvalidInput, NotFound, RunebookError, StorageFailed
from memory_core.core.progress import Stage, listening

if TYPE_CHECKING:
    from memory_core.core.store.issued_tokens import IssuedTokens

_logger = logging.getLogger(__name__)
UPLOAD_MOST_BYTES = 512 * 1024**2
#: Transfers that are kept at once; of more the oldest leave when the next begins, and those as old as this.
_KEPT = 4
_KEPT_SECONDS = 3_600.0
_PREFIX, _LOCK_NAME = "runebook-transfers-", "lock"
_UNSAFE = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')
_NAME_BYTES = 200


@dataclass(slots=True)
class Transfer:
    """A file and the work on it.

    Attributes:
        id: Names it.
        name: Of the file.
        path: Where it is.
        size_bytes: Of the file, once it is whole.
        state: waiting for its parts or for work, at work, done, or failed.
        stage: What the work is at.
        done: Items that are through.
        total: Of so many.
        report: What the work did, or as a dry run would do.
        error: Why it failed.
        hint: What to do next.
        touched: When it was last asked for, monotonic seconds.
    """

    JSON: ClassVar = "id name size_bytes state stage? done? total? report? error? hint?"

    id: str
    name: str
    path: Path
    size_bytes: int = 0
    state: Literal["waiting", "working", "done", "failed"] = "waiting"
    stage: str | None = None
    done: int | None = None
    total: int | None = None
    report: dict[str, Any] | None = None
    error: str | None = None
    hint: str | None = None
    touched: float = 0.0

    def listen(self, stage: Stage) -> None:
        """Take down how far the work is."""
        self.stage, self.done, self.total = stage.what, stage.done, stage.total


Work = Callable[[Transfer], dict[str, Any]]


class Transfers:
    """The transfers of one server; safe to use from many threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._found: dict[str, Transfer] = {}
        self._folder: Path | None = None
        self._in_use: FileLock | None = None

    def begin(self, name: str) -> Transfer:
        """A file to be, which is empty."""
        plain = _UNSAFE.sub("-", name).strip(" .").encode("utf-8", "replace")[-_NAME_BYTES:].decode("utf-8", "ignore")
        plain = plain or "file"
        with self._guard:
            self._let_go()
            if self._folder is None:
                _sweep()
                self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))  # for this user alone
                self._in_use = FileLock(self._folder / _LOCK_NAME, mode=0o600, thread_local=False)
                self._in_use.acquire()
            transfer_id = secrets.token_hex(8)
            place = self._folder / transfer_id
            place.mkdir()
            made = Transfer(transfer_id, plain, place / plain, touched=time.monotonic())
            self._found[transfer_id] = made
        return made

    def get(self, transfer_id: str) -> Transfer:
        """A transfer.

        Raises:
            NotFound: If there is none, or none any more.
        """
        found = self._found.get(transfer_id)
        if found is None:
            raise NotFound("there is no such transfer, or none any more.", hint="Begin it anew.")
        found.touched = time.monotonic()
        return found

    def add(self, transfer_id: str, offset: int, part: bytes) -> Transfer:
        """Append a part of an upload.

        Raises:
            InvalidInput: If it does not follow the one before, or the file would be too large.
            NotFound: If there is no such transfer.
            StorageFailed: If the disk refuses.
        """
        with self._guard:
            found = self.get(transfer_id)
            if found.state != "waiting" or offset != found.size_bytes:
                raise InvalidInput(
                    f"this part does not follow: {found.size_bytes} bytes are there.", hint="Begin the upload anew."
                )
            if found.size_bytes + len(part) > UPLOAD_MOST_BYTES:
                raise InvalidInput(
                    f"an upload has at most {UPLOAD_MOST_BYTES:,} bytes.",
                    hint="Take larger ones on the server itself: runebook import, runebook restore.",
                )
            try:
                with found.path.open("ab") as stream:
                    stream.truncate(found.size_bytes)  # what a write that the disk refused left
                    stream.write(part)
            except OSError as error:
                raise StorageFailed(
                    f"the upload cannot be kept: {error.strerror or error}.", hint="Free space on the server."
                ) from error
            found.size_bytes += len(part)
        return found

    def make(self, name: str, work: Work) -> Transfer:
        """Begin the work that makes a file; see ``start``."""
        with self._guard:
            self._expect_idle()  # before a new transfer pushes an old one out
        return self.start(self.begin(name), work)

    def start(self, transfer: Transfer, work: Work) -> Transfer:
        """Begin the work on a file, beside the request that asks for it.

        Raises:
            InvalidInput: If other work runs.
        """
        with self._guard:
            self._expect_idle()
            transfer.state, transfer.report, transfer.error, transfer.hint = "working", None, None, None
            transfer.stage = transfer.done = transfer.total = None
        # The caller's name is in the context: history shows who imported.
        run = contextvars.copy_context().run
        threading.Thread(target=run, args=(_work, transfer, work), name="runebook-transfer", daemon=True).start()
        return transfer

    def discard(self, transfer_id: str) -> None:
        """Let go of a file.

        Raises:
            InvalidInput: If work on it runs.
            NotFound: If there is no such transfer.
        """
        with self._guard:
            found = self.get(transfer_id)
            if found.state == "working":
                raise InvalidInput("the work on it runs.", hint="Wait until it is done.")
            self._remove(found)

    def close(self) -> None:
        """Let go of everything."""
        with self._guard:
            self._found.clear()
            if self._folder is not None:
                if self._in_use is not None:
                    self._in_use.release()
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    def _expect_idle(self) -> None:
        if any(each.state == "working" for each in self._found.values()):
            raise InvalidInput("another import, export or backup runs.", hint="Wait until it is done.")

    def _let_go(self) -> None:
        now = time.monotonic()
        idle = sorted((each for each in self._found.values() if each.state != "working"), key=lambda each: each.touched)
        for number, each in enumerate(reversed(idle), 1):
            if number >= _KEPT or now - each.touched > _KEPT_SECONDS:
                self._remove(each)

    def _remove(self, transfer: Transfer) -> None:
        del self._found[transfer.id]
        shutil.rmtree(transfer.path.parent, ignore_errors=True)


def _sweep() -> None:
    """Delete what killed servers of this user left; nobody else's folder is touched, nor one that is new or in use."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, Timeout):
            found = folder.lstat()
            own = found.st_uid == os.geteuid() if os.name == "posix" else True
            if stat.S_ISDIR(found.st_mode) and own and time.time() - found.st_mtime > _KEPT_SECONDS:
                with FileLock(folder / _LOCK_NAME, timeout=0):
                    shutil.rmtree(folder, ignore_errors=True)


class ForOwner(NamedTuple):
    """What only the owner of the store reaches.

    Attributes:
        tokens: The token table; None where there is none.
        transfers: Files on their way in and out.
        may_restore: Whether the store's folder may be replaced while the server runs.
    """

    tokens: IssuedTokens | None
    transfers: Transfers
    may_restore: bool


def _work(transfer: Transfer, work: Work) -> None:
    try:
        with listening(transfer.listen):
            transfer.report = work(transfer)
        if transfer.path.is_file():
            transfer.size_bytes = transfer.path.stat().st_size
        transfer.state = "done"
    except RunebookError as error:
        transfer.error, transfer.hint, transfer.state = error.message, error.hint, "failed"
    except Exception as error:  # the edge of a thread: whoever waits must be told
        _logger.error("a transfer failed: %s", type(error).__name__)
        _logger.debug("a transfer failed", exc_info=error)
        transfer.error = "it failed unexpectedly."
        transfer.hint, transfer.state = "Look into the server's log (stderr), then try again.", "failed"
