"""What a store knows about its own use: the trail of retrievals, hot memories, and what is nearly said twice.

Never merges what is similar: "server A has 16 GB" and "server B has 16 GB" are nearer than most paraphrases, and a
person or a model must tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from memory_core.core.command import Arg, Command
from memory_core.core.errors import InvalidInput, NotFound
from memory_core.core.feature import Feature
from memory_core.core.index.indexer import healed
from memory_core.core.memory.requests import Here
from memory_core.core.memory.results import Similar
from memory_core.core.memory.uri import SCHEME, MemoryUri
from memory_core.core.search.recalls import MostUsedMemory
from memory_core.core.store.usage import TRAIL_ROWS, Recall

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

_THRESHOLD = 0.9
_SIMILAR_LIMIT = 5
_SIMILAR_MOST = 50


@dataclass(frozen=True, slots=True)
class SimilarMemories:
    """Stored memories that say nearly the same.

    Attributes:
        similar: Nearest first, none below the threshold.
        by: ``meaning`` where scores are cosines (or the share of common words, where that is more), ``words`` where
            there is no model and they are that share alone.
        threshold: That they reach.
        notes: What the caller should know.
    """

    similar: tuple[Similar, ...]
    by: Literal["meaning", "words"]
    threshold: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SimilarRequest:
    """Find memories that say nearly the same; nothing is merged."""

    text_or_uri: Annotated[str, Arg(help="A text, or the URI of a memory.", positional=True, metavar="TEXT|URI")]
    threshold: Annotated[float, Arg(help="Least similarity (default 0.9).")] = _THRESHOLD
    limit: Annotated[int, Arg(help="Memories at most (default 5).")] = _SIMILAR_LIMIT
    here: Here = None


@dataclass(frozen=True, slots=True)
class HotRequest:
    """Show the memories used most."""

    limit: Annotated[int | None, Arg(help="Memories at most (default: search.hot_limit).")] = None
    here: Here = None


@dataclass(frozen=True, slots=True)
class TrailRequest:
    """Show which query retrieved what, newest first."""

    limit: Annotated[int, Arg(help="Retrievals at most (default 20).")] = 20
    uri: Annotated[str | None, Arg(help="Only what returned this memory, session or directory.")] = None


@healed
def similar(memory: Runebook, request: SimilarRequest) -> SimilarMemories:
    """Memories that say nearly the same as a text, or as another memory; nothing is merged.

    Raises:
        InvalidInput: If an argument is wrong.
        NotFound: If the URI names no memory.
    """
    threshold, limit = request.threshold, request.limit
    _check_limit(limit, _SIMILAR_MOST)
    if not 0.0 < threshold <= 1.0:
        raise InvalidInput(f"threshold {threshold} is out of range.", hint="Use more than 0, at most 1.")
    own, text = _compared(memory, request.text_or_uri)
    embedder = memory.indexer.embedder  # one that loads is waited for
    loaded = embedder is not None and embedder.ready(memory.config.embedding.wait_seconds)
    near = memory.retriever.near([text], limit + (own is not None), memory.projects.scope(None, request.here))[0]
    found = tuple(item for item in near if item.uri != own and item.score >= threshold)[:limit]
    if loaded:
        return SimilarMemories(found, "meaning", threshold)
    return SimilarMemories(found, "words", threshold, ("compared by words only: no embedding model answers",))


def _compared(memory: Runebook, text_or_uri: str) -> tuple[str | None, str]:
    """The URI, if it is one, and the text to compare."""
    if not text_or_uri.startswith(SCHEME):
        if not text_or_uri.strip() or "\x00" in text_or_uri:
            raise InvalidInput("the text is blank or holds NUL.", hint="Give a text, or the URI of a memory.")
        return None, text_or_uri
    uri = str(memory.browser.visible(MemoryUri.parse(text_or_uri)))
    memory.follow_index()
    text = memory.indexer.catalog.own_text(uri)
    if not text:
        raise NotFound(f"{uri} is no memory.", hint="Give a memory's URI as find, ls or tree prints it, or a text.")
    return uri, text


@healed
def hot(memory: Runebook, request: HotRequest) -> tuple[MostUsedMemory, ...]:
    """The memories used most; see ``HotMemories.hot``.

    Raises:
        InvalidInput: If the limit is out of range.
    """
    if request.limit is not None:
        _check_limit(request.limit, memory.config.search.hot_limit)
    return memory.recalls.hot(request.limit, memory.projects.scope(None, request.here))


def trail(memory: Runebook, request: TrailRequest) -> Sequence[Recall]:
    """Retrievals of this user, newest first; those of other processes as of about a second ago.

    Raises:
        InvalidInput: If an argument is wrong.
        NotFound: If the URI is in a space that may not be seen.
    """
    _check_limit(request.limit, TRAIL_ROWS)
    uri = request.uri
    if uri is not None:
        log, mark, turn = uri.rpartition("#")
        is_turn = mark and turn.isdecimal() and uri.startswith(f"{SCHEME}session/")
        seen = memory.browser.visible(MemoryUri.parse(log if is_turn else uri))
        uri = f"{seen}#{turn}" if is_turn else str(seen)
    memory.store.usage.flush()
    return memory.store.ledger.usage_table.trail(request.limit, uri, memory.config.user_space)


def _check_limit(limit: int, most: int) -> None:
    if not 1 <= limit <= most:
        raise InvalidInput(f"limit {limit} is out of range.", hint=f"Use 1 to {most:,}.")


def _similar_text(found: SimilarMemories) -> str:
    """A line for each memory, nearest first."""
    lines = [f"{item.score:.2f}  {item.uri}" for item in found.similar]
    lines = lines or [f"Nothing stored is that similar (threshold {found.threshold:g})."]
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])


def _trail_text(rows: Sequence[Recall]) -> str:
    """Each retrieval with its hits below it."""
    lines: list[str] = []
    for row in rows:
        took = f"{row.milliseconds:.1f} ms"
        words = " ".join(row.query.split())
        parts = [f"{row.at:%Y-%m-%d %H:%M:%S}", row.kind, took, "cached" if row.cached else "", row.project, words]
        lines.append("  ".join(part for part in parts if part))
        lines += [f"    {score:.2f}  {uri}" for uri, score in row.hits]
    return "\n".join(lines) or "Nothing was retrieved yet."


def _hot_text(memories: Sequence[MostUsedMemory]) -> str:
    """A line for each memory, most used first, with its accesses."""
    lines = [f"{found.access_count:>6}  {found.uri}  {found.abstract}".rstrip() for found in memories]
    return "\n".join(lines) or "No memory was used yet."


SIMILAR = Command("similar", SimilarRequest, similar, text=_similar_text, searches=True)
HOT = Command("hot", HotRequest, hot, member="memories", text=_hot_text)
TRAIL = Command("trail", TrailRequest, trail, member="trail", text=_trail_text)
FEATURE = Feature(commands=(SIMILAR, TRAIL, HOT))
