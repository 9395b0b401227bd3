"""Who asks: set at the edge of the program, read where a commit is recorded.

A commit passes through planner, recorder and update loop, none of which cares whom it is for; so the name travels
beside the call, in a context variable, which threads started by ``anyio`` or ``asyncio`` inherit. History shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum

#: In the environment of a program that is asked for memories: hooks and servers of ours that it starts do nothing.
ASIDE = "RUNEBOOK_ASIDE"


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


#: Author of what people and other programs did to the files themselves.
BY_HAND = "by hand"
_NAME_CHARS = 80
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")

_author: ContextVar[str] = ContextVar("author", default="")
_owner_looking: ContextVar[bool] = ContextVar("owner looking", default=False)


@contextmanager
def authored(name: str) -> Iterator[None]:
    """Commits made in the body are by ``name``.

    Args:
        name: A client's own name and version, the label of a token, or "command line". It may come from outside:
            control and direction characters become spaces, and what is longer than 80 characters is cut.
    """
    token = _author.set(_UNPRINTABLE.sub(" ", name).strip()[:_NAME_CHARS])
    try:
        yield
    finally:
        _author.reset(token)


def current_author() -> str:
    """The name that commits are recorded under now; empty where nobody said."""
    return _author.get()


@contextmanager
def owner_looking(*, when: bool) -> Iterator[None]:
    """What is found and read in the body is looked at by its owner, which is no use of it: nothing is counted or noted.

    Args:
        when: False leaves it as it is outside.
    """
    token = _owner_looking.set(when or _owner_looking.get())
    try:
        yield
    finally:
        _owner_looking.reset(token)


def owner_is_looking() -> bool:
    """Whether the owner looks; what an agent finds and reads is used."""
    return _owner_looking.get()
