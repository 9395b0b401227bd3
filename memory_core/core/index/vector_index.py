"""What searches vectors: one interface, and the choice between a store's own files and a server."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from memory_core.core.config import IndexConfig
from memory_core.core.index.sealing import SealedIndex
from memory_core.core.index.vectors import IndexStatus

if TYPE_CHECKING:
    from memory_core.core.index.chroma_server import ChromaServer


Vector = NDArray[np.float32]


class VectorIndex(Protocol):
    """Nearest-neighbour search over a store's vector log; see ``SealedIndex`` for what each promises."""

    def search(
        self, connection: sqlite3.Connection, space: str, fingerprint: str, query: Vector, k: int
    ) -> list[tuple[int, float]]:
        """The ``k`` nearest rows of the log as ``(seq, cosine)``, best first."""

    def load(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> None:
        """Read ahead what a search would."""

    def cosines(
        self, connection: sqlite3.Connection, space: str, fingerprint: str, query: Vector, seqs: Sequence[int]
    ) -> dict[int, float]:
        """The cosine of each of these rows, by number."""

    def seal_due(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> bool:
        """Whether ``seal`` has something to do."""

    def seal(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> bool:
        """Background work; whether it got on."""

    def compact(self, connection: sqlite3.Connection, space: str, fingerprint: str, live_rows: int) -> bool:
        """Let go of rows that were pruned from the log."""

    def status(self, connection: sqlite3.Connection, space: str, fingerprint: str) -> IndexStatus:
        """How this process searches."""

    @property
    def trouble(self) -> str | None:
        """Why a server is not used that should be; None where all is well."""

    @property
    def server(self) -> ChromaServer | None:
        """Where rows are sent; None where they stay in the store."""

    def close(self) -> None:
        """Let go of everything; safe to call twice."""


def open_vectors(settings: IndexConfig, state: Path, environment: Mapping[str, str] = os.environ) -> VectorIndex:
    """The index that the settings name.

    Args:
        settings: The section ``index``.
        state: The store's ``.state`` folder.
        environment: Holds the key of a server.

    Raises:
        ConfigInvalid: If the server's address or key cannot be used.
    """
    if settings.mode != "http":
        return SealedIndex(state, mode=settings.mode, exact_below=settings.exact_below)
    from memory_core.core.index.chroma_index import RemoteIndex
    from memory_core.core.index.chroma_place import place_of
    from memory_core.core.index.chroma_server import ChromaServer

    return RemoteIndex(state, ChromaServer(place_of(settings, environment)))
