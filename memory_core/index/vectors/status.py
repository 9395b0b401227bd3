"""How a space of vectors is searched at the moment, as figures and the doctor tell it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """How one space and model are searched by this process.

    Attributes:
        backend: chroma means a sealed snapshot and a scan of the newer rows, http the same with a server.
        sealed_rows: Rows in the snapshot.
        scanned_rows: Rows scanned exactly, as of the last search.
        generation: Of the snapshot; 0 without one.
        reason: Why Chroma is not used, or what last went wrong with it; None when all is well.
    """

    backend: Literal["chroma", "exact", "http"]
    sealed_rows: int
    scanned_rows: int
    generation: int
    reason: str | None
