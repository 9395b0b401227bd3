"""A short-lived process that fills or tries a Chroma folder, so that Chroma can only end that process.

Owns both ends of the pipe: ``SealingProcess`` in the server, ``main`` in the child. The child touches nothing
but the folder it is told; publishing what it built is the parent's. It ends when its input does, so a killed
server leaves none behind.

The wire, on the child's stdin: one JSON line, then frames of ``(rows, dim)`` as two int64, int64 (rows,)
numbers and float32 (rows, dim) vectors, little-endian; a frame of no rows ends it. On its stdout: one JSON line.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from memory_core.core.index.chroma import ChromaSegment, Segment, SegmentBroken, SegmentUnavailable

_FRAME = struct.Struct("<qq")
_STEP_SECONDS = 600.0
_EXIT_UNAVAILABLE = 3
#: A stored vector must find itself; less than this is no rounding.
SELF_COSINE = 0.999


class SealingProcess:
    """The child, seen from the server. Use as a context manager: leaving it ends the child.

    Args:
        path: The Chroma folder.
        collection: The collection's name.
        rows: How many rows the folder holds; 0 makes the collection.
        known: A vector float32 (dim,) the folder holds, to ask for at the end where no rows are sent.

    Raises:
        SegmentUnavailable: If no process can be started here.
    """

    def __init__(self, path: Path, collection: str, rows: int, known: NDArray[np.float32] | None = None) -> None:
        if not sys.executable or getattr(sys, "frozen", False):
            raise SegmentUnavailable("this program is no Python interpreter that could seal vectors.")
        asked = None if known is None else known.tolist()
        request = {"path": str(path), "collection": collection, "rows": rows, "known": asked}
        self._request = json.dumps(request).encode() + b"\n"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed on leaving
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "memory_core.core.index.sealing_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                cwd=path.parent,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        except OSError as error:
            self._errors.close()
            raise SegmentUnavailable(f"no process can be started to seal vectors: {error}.") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def send(self, seqs: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        """Hand over one batch; waits while the child is busy with the last one.

        Raises:
            SegmentBroken: If the child died or hung.
        """
        self._write(_FRAME.pack(*vectors.shape) + seqs.astype("<i8").tobytes() + vectors.astype("<f4").tobytes())

    def finish(self) -> int:
        """End the input; wait until the folder was closed, reopened and asked.

        Returns:
            How many rows the folder holds.

        Raises:
            SegmentBroken: If the child died, hung, or did not find what it stored.
            SegmentUnavailable: If the child cannot import chromadb.
        """
        self._write(_FRAME.pack(0, 0))
        assert self._process.stdout is not None
        with self._limited():
            answer = self._process.stdout.read()
            if self._process.wait() != 0:
                raise self._failure()
        return int(json.loads(answer)["rows"])

    def kill(self) -> None:
        """End the child at once; what it was building is waste."""
        if self._process.poll() is None:
            self._process.kill()

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        request, self._request = self._request, b""
        try:
            with self._limited():
                self._process.stdin.write(request + data)
                self._process.stdin.flush()
        except OSError as error:
            self._process.wait()
            raise self._failure() from error

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        watchdog = threading.Timer(_STEP_SECONDS, self.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            yield
        finally:
            watchdog.cancel()

    def _failure(self) -> SegmentBroken | SegmentUnavailable:
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        text = f"the sealing process ended with {self._process.returncode}: {lines[-1] if lines else 'no message'}"
        return SegmentUnavailable(text) if self._process.returncode == _EXIT_UNAVAILABLE else SegmentBroken(text)


def survives(path: Path, collection: str, rows: int, known: NDArray[np.float32]) -> bool:
    """Whether a process of its own can open the folder and find ``known``, float32 (dim,), in it."""
    try:
        with SealingProcess(path, collection, rows, known) as process:
            return process.finish() == rows
    except SegmentBroken:
        return False


def check(segment: Segment, rows: int, known: NDArray[np.float32]) -> None:
    """Ask an opened segment for what it must hold.

    Raises:
        SegmentBroken: If rows are missing or a stored vector does not find itself.
    """
    held = segment.count()
    if held != rows:
        raise SegmentBroken(f"the Chroma folder holds {held} rows where {rows} were sealed.")
    found = segment.search(known, 10)
    if not found or found[0][1] < SELF_COSINE:
        raise SegmentBroken("the Chroma folder does not find a vector it holds.")


def main(requests: BinaryIO) -> int:
    """The child: fill the folder from ``requests`` and prove that it can be read.

    Returns:
        How many rows the folder holds.
    """
    request = json.loads(requests.readline())
    path, name, rows = Path(request["path"]), str(request["collection"]), int(request["rows"])
    last = np.asarray(request["known"], np.float32)
    frames = _frames(requests)
    first = next(frames, None)
    if first is not None:
        with ChromaSegment(path, name, create=rows == 0) as segment:
            while first is not None:
                segment.add(*first)
                rows += len(first[0])
                last = first[1][-1].copy()
                first = next(frames, None)
        # Chroma leaves every vector's log row behind as free pages; each later copy would carry them.
        with contextlib.closing(sqlite3.connect(path / "chroma.sqlite3", isolation_level=None)) as connection:
            connection.execute("VACUUM")
    with ChromaSegment(path, name) as segment:
        check(segment, rows, last)
    return rows


def _frames(requests: BinaryIO) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    while True:
        rows, dim = _FRAME.unpack(_exactly(requests, _FRAME.size))
        if rows == 0:
            return
        seqs = np.frombuffer(_exactly(requests, 8 * rows), dtype="<i8")
        vectors = np.frombuffer(_exactly(requests, 4 * rows * dim), dtype="<f4")
        yield seqs.astype(np.int64), vectors.astype(np.float32).reshape(rows, dim)


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise SystemExit("the server went away")
    return data


if __name__ == "__main__":
    os.umask(0o077)  # what Chroma writes is nobody else's from its first byte on
    if hasattr(os, "nice"):
        os.nice(5)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # nothing a library prints may be taken for the answer
    try:
        answers.write(json.dumps({"rows": main(sys.stdin.buffer)}) + "\n")
        answers.flush()
    except SegmentUnavailable as problem:
        sys.stderr.write(f"{problem.message}\n")
        sys.exit(_EXIT_UNAVAILABLE)
    except SegmentBroken as problem:
        sys.stderr.write(f"{problem.message}\n")
        sys.exit(1)
