"""Chroma: the only file that imports chromadb, and only inside functions.

Owns how a collection is named, configured, opened, filled and asked. Does not decide when: a folder is filled
by ``sealing_worker`` in a process of its own and opened by ``sealing`` after its files were verified, because
Chroma ends the whole process on files it cannot digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, cast

import numpy as np
from numpy.typing import NDArray

from memory_core.core.errors import StorageFailed

if TYPE_CHECKING:
    from chromadb.api.client import Client
    from chromadb.api.models.Collection import Collection


#: Chroma refuses larger batches than 5,461.
BATCH_ROWS = 5_000

_NEIGHBOURS = 32
_EF_CONSTRUCTION = 200
_EF_SEARCH = 400
#: Every batch of two rows or more is persisted at once: what is pending would be replayed at each open.
_SYNC_ROWS = 2


class SegmentBroken(StorageFailed):
    """Chroma could not open, fill or search a folder; the folder is to be rebuilt."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="Nothing to do: vectors are scanned exactly until the index is rebuilt.")


class SegmentUnavailable(StorageFailed):
    """chromadb itself cannot be used here; no folder is at fault."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="Install chromadb, or set index.mode to exact.")


class Segment(Protocol):
    """A sealed set of vectors that can be searched."""

    def search(self, query: NDArray[np.float32], k: int) -> list[tuple[int, float]]:
        """The ``k`` nearest rows as ``(seq, cosine)``, best first."""

    def count(self) -> int:
        """How many rows it holds."""

    def close(self) -> None:
        """Release files and memory."""


def unavailable() -> str | None:
    """Why Chroma cannot be used here; None when it is installed."""
    return None if importlib.util.find_spec("chromadb") is not None else "chromadb is not installed"


def collection_name(space: str, fingerprint: str) -> str:
    """Chroma's name for the vectors of one space and model: ASCII, of fixed length."""
    return "v" + hashlib.sha256(f"{space}\0{fingerprint}".encode()).hexdigest()[:40]


class ChromaSegment:
    """One collection in one Chroma folder.

    A reference is enough to keep it open: the client is closed when the last one goes, so a search that is
    under way when the index moves on still ends well.

    Args:
        path: The folder; made if missing.
        name: The collection's name.
        create: Whether a missing collection is made rather than refused.

    Raises:
        SegmentBroken: If Chroma cannot open it.
        SegmentUnavailable: If chromadb cannot be imported.
    """

    def __init__(self, path: Path, name: str, *, create: bool = False) -> None:
        client = _client(path)
        self._close = weakref.finalize(self, client.close)
        self._close.atexit = False
        try:
            self._collection = _collection(client, name, create=create)
        except SegmentBroken:
            self._close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, seqs: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        """Add up to ``BATCH_ROWS`` rows; they are on disk when this returns (unsynced).

        Args:
            seqs: int64 (n,), none of them held yet: Chroma ignores an id it has.
            vectors: float32 (n, dim), L2-normalised.
        """
        with _guarded("add rows"):
            self._collection.add(ids=[str(seq) for seq in seqs.tolist()], embeddings=vectors)

    def search(self, query: NDArray[np.float32], k: int) -> list[tuple[int, float]]:
        """The ``k`` nearest rows as ``(seq, cosine)``, best first.

        Raises:
            SegmentBroken: If Chroma fails.
        """
        with _guarded("search"):
            found = self._collection.query(query_embeddings=query[np.newaxis], n_results=k, include=["distances"])
            distances = found["distances"] or [[]]
            return [
                (int(seq), 1.0 - float(distance)) for seq, distance in zip(found["ids"][0], distances[0], strict=True)
            ]

    def count(self) -> int:
        """How many rows it holds.

        Raises:
            SegmentBroken: If Chroma fails.
        """
        with _guarded("count rows"):
            return int(self._collection.count())

    def close(self) -> None:
        """Release files and memory; safe to call twice."""
        self._close()


def _client(path: Path) -> Client:
    try:
        import chromadb
        from chromadb.config import Settings
    except ImportError as error:
        raise SegmentUnavailable(f"chromadb cannot be imported: {error}.") from error
    with _guarded("open"):
        # Without _env_file Chroma reads ".env" of whatever folder the host was started in.
        settings = Settings(_env_file=None, anonymized_telemetry=False)
        return cast("Client", chromadb.PersistentClient(str(path), settings=settings))


def _collection(client: Client, name: str, *, create: bool) -> Collection:
    with _guarded("open the collection"):
        if not create:
            return client.get_collection(name, embedding_function=None)
        return client.create_collection(
            name,
            embedding_function=None,
            configuration={
                "hnsw": {
                    "space": "cosine",
                    "max_neighbors": _NEIGHBOURS,
                    "ef_construction": _EF_CONSTRUCTION,
                    "ef_search": _EF_SEARCH,
                    "sync_threshold": _SYNC_ROWS,
                    "batch_size": _SYNC_ROWS,
                }
            },
        )


@contextlib.contextmanager
def _guarded(action: str) -> Iterator[None]:
    """Turn whatever Chroma raises into one error."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # errors of sqlite, pickle and Rust come through; a panic is no Exception
        raise SegmentBroken(f"Chroma could not {action}: {type(error).__name__}: {error}"[:500]) from error
