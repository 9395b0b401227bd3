"""What a reader of memories may leave behind."""

from __future__ import annotations

from enum import StrEnum


class Access(StrEnum):
    """How far a view of a store goes."""

    #: Memories may be changed; retrievals are counted.
    READ_WRITE = "read-write"
    #: Nothing may be changed, and reading leaves no trace: no counts, no trail, no record of what was given.
    READ_ONLY = "read-only"
    #: The owner wants nothing of this conversation kept: as ``READ_ONLY``, by wish instead of by right.
    PRIVATE = "private"

    @property
    def leaves_traces(self) -> bool:
        """Whether retrievals are counted and remembered."""
        return self is Access.READ_WRITE
