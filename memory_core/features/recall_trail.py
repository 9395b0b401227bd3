"""What a store knows about its own use: the trail, hot memories, metrics, and what is nearly said twice.

Notes each retrieval for one user's space and answers questions about them. Never merges what is similar: "server A
has 16 GB" and "server B has 16 GB" are nearer than most paraphrases, and a person or a model must tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from memory_core.core.command import Arg, Command
from memory_core.core.feature import Feature
from memory_core.core.index.indexer import healed
from memory_core.core.memory.requests import Here

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from memory_core.core.config import Config
from memory_core.core.errors import InvalidInput, NotFound
from memory_core.core.index.catalog import Position
from memory_core.core.index.filter import in_use
from memory_core.core.index.indexer import Indexer
from memory_core.core.memory.project import ProjectScope
from memory_core.core.memory.results import Similar
from memory_core.core.memory.uri import SCHEME, MemoryUri
from memory_core.core.search.browse import Browser
from memory_core.core.search.context_sources import standing
from memory_core.core.search.find import Retriever
from memory_core.core.store.local import Store
from memory_core.core.store.usage import TRAIL_ROWS, Recall, Usage, UsageTable
from memory_core.features.redaction import Redaction

#: Memories kept for each that is given, so that a project whose own are few still gets its number.
_SPARE = 5
_ANY_PROJECT = ProjectScope()


@dataclass(frozen=True, slots=True)
class HotMemory:
    """One memory that is used often.

    Attributes:
        uri: Where it is.
        memory_type: Its type.
        abstract: What it says, in a line.
        access_count: Accesses, as of the last count.
        last_accessed_at: As of the last count.
        project: The project it belongs to, if any.
        private: Whether it is only for that project.
    """

    uri: str
    memory_type: str
    abstract: str
    access_count: int
    last_accessed_at: datetime
    project: str | None = None
    private: bool = False

    def as_dict(self) -> dict[str, Any]:
        """JSON form without an absent project."""
        facts: dict[str, Any] = {
            "uri": self.uri,
            "memory_type": self.memory_type,
            "abstract": self.abstract,
            "access_count": self.access_count,
            "last_accessed_at": self.last_accessed_at.isoformat(timespec="milliseconds"),
        }
        return facts if self.project is None else {**facts, "project": self.project}


class HotMemories:
    """The memories of some spaces that are used most; safe to share between threads.

    Args:
        usage: Counts.
        indexer: Follows what was committed, and knows what memories say.
        spaces: ``scope/space`` names that may be seen.
        limit: How many are hot.
        seconds: How long the count stands.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        usage: UsageTable,
        indexer: Indexer,
        spaces: Sequence[str],
        limit: int = 20,
        seconds: float = 3_600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._usage = usage
        self._indexer = indexer
        self._spaces = tuple(spaces)
        self._limit = limit
        self._seconds = seconds
        self._clock = clock
        self._guard = threading.Lock()
        self._counted_at = float("-inf")
        self._counts: dict[str, Usage] = {}
        self._position: Position | None = None
        self._memories: tuple[HotMemory, ...] = ()

    def hot(self, limit: int | None = None, project: ProjectScope = _ANY_PROJECT) -> tuple[HotMemory, ...]:
        """The memories used most, most first; with a project alone, only its own.

        Args:
            limit: At most; None means all that are hot.
            project: Whose private memories may be among them.
        """
        self._indexer.follow()
        with self._guard:
            if self._clock() - self._counted_at >= self._seconds or len(self._memories) < self._limit:
                self._count()
            elif self._position != self._indexer.catalog.position():
                self._read()
            memories = self._memories
        seen = [memory for memory in memories if project.finds(memory.project, private=memory.private)]
        return tuple(seen[: self._limit if limit is None else min(limit, self._limit)])

    def uris(self, limit: int | None = None, project: ProjectScope = _ANY_PROJECT) -> list[str]:
        """Where the memories used most are; see ``hot``."""
        return [memory.uri for memory in self.hot(limit, project)]

    def _count(self) -> None:
        """Find out which are used most; usage of memories that are gone is passed over."""
        self._counts = dict(self._usage.top(_SPARE * self._limit, self._is_there))
        self._counted_at = self._clock()
        self._read()

    def _is_there(self, uri: str) -> bool:
        row = self._indexer.catalog.connection().execute(
            "SELECT space FROM documents WHERE uri = ? AND part = 0 AND context_type <> 'resource'", (uri,)
        )
        found = row.fetchone()
        return found is not None and found[0] in self._spaces

    def _read(self) -> None:
        """Read what they say now; one that is gone is dropped."""
        # Before the rows: what is committed in between is then read once more, never missed.
        self._position = self._indexer.catalog.position()
        used = in_use(datetime.now(UTC))
        rows = self._indexer.catalog.connection().execute(
            "SELECT uri, memory_type, abstract, project, private FROM documents d "
            f"WHERE uri IN (SELECT value FROM json_each(?)) AND part = 0 AND {used.sql}",
            (json.dumps(list(self._counts)), *used.parameters),
        )
        said = {uri: rest for uri, *rest in rows}
        self._memories = tuple(
            HotMemory(uri, memory_type, abstract, usage.access_count, usage.last_accessed_at, project, bool(private))
            for uri, usage in self._counts.items()
            if uri in said
            for memory_type, abstract, project, private in [said[uri]]
        )


SIMILAR_FROM = 0.9
SIMILAR_LIMIT = 5
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

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        facts: dict[str, Any] = {
            "similar": [{"uri": found.uri, "score": found.score} for found in self.similar],
            "by": self.by,
            "threshold": self.threshold,
        }
        return {**facts, "notes": list(self.notes)} if self.notes else facts


class Insight:
    """Questions about one store's use, for one user and agent.

    Args:
        config: Settings; those of ``search`` are followed.
        store: Counts and the trail.
        indexer: What is stored.
        retriever: Tells what is near.
        browser: Tells what may be seen.
        spaces: ``scope/space`` names that may be seen.
        traces: Whether retrievals are counted and remembered.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        indexer: Indexer,
        retriever: Retriever,
        browser: Browser,
        spaces: Sequence[str],
        *,
        traces: bool = True,
    ) -> None:
        self._config = config
        self._traces = traces
        self._store = store
        self._indexer = indexer
        self._retriever = retriever
        self._browser = browser
        self._spaces = tuple(spaces)
        self._redaction = Redaction(config.secrets, config.secrets_allowed)
        self._hot = HotMemories(
            store.ledger.usage_table, indexer, spaces, config.search.hot_limit, config.search.hot_seconds
        )

    def note(
        self,
        kind: Literal["find", "retrieve"],
        query: str,
        hits: Sequence[tuple[str, float]],
        *,
        milliseconds: float,
        cached: bool = False,
        rank: str | None = None,
        session_id: str | None = None,
        project: str | None = None,
        now: datetime | None = None,
    ) -> None:
        """Note a retrieval, for the counts and the trail; written in the background.

        Args:
            kind: What retrieved; a context notes itself once, not the searches it makes.
            query: What was asked; blank of a context without a question, whose hits are not counted. Not kept where
                the setting says so.
            hits: (URI, score) of what the caller was given, best first.
            milliseconds: That it took.
            cached: Whether a cache answered.
            rank: Profile; None is the setting's.
            session_id: Session it was for.
            project: Project it was for.
            now: When; default the clock's.
        """
        if not self._traces:
            return
        self._store.recalled(
            Recall(
                at=now or datetime.now(UTC),
                query=self._redaction.text(query) if self._config.search.trail else "",
                kind=kind,
                hits=tuple(hits),
                milliseconds=milliseconds,
                cached=cached,
                rank=rank or self._config.search.rank,
                session_id=None if session_id is None else self._redaction.text(session_id),
                project=None if project is None else self._redaction.text(project),
                space=self._config.user_space,
                asked=bool(query.strip()),
            )
        )

    def check_name(self, name: str, value: str) -> None:
        """Refuse a name under which something is kept and that holds a secret.

        Raises:
            ContentRejected: If it does.
        """
        self._redaction.check_names(**{name: value})

    def note_read(self, uri: str, now: datetime | None = None) -> None:
        """Note that a file was read, for the counts; written in the background."""
        if self._traces:
            self._store.usage.read(uri, now or datetime.now(UTC))

    def trail(self, limit: int = 20, uri: str | None = None) -> list[Recall]:
        """Retrievals of this user, newest first, a second ago the latest in other processes.

        Args:
            limit: 1 to 10,000, which is all that is kept.
            uri: Only those that returned this file, one of its turns, or something below it.

        Raises:
            InvalidInput: If an argument is wrong.
            NotFound: If the URI is in a space that may not be seen.
        """
        _check_limit(limit, TRAIL_ROWS)
        if uri is not None:
            log, mark, turn = uri.rpartition("#")
            is_turn = mark and turn.isdecimal() and uri.startswith(f"{SCHEME}session/")
            seen = self._browser.visible(MemoryUri.parse(log if is_turn else uri))
            uri = f"{seen}#{turn}" if is_turn else str(seen)
        self._store.usage.flush()
        return self._store.ledger.usage_table.trail(limit, uri, self._config.user_space)

    def standing(self, limit: int, project: ProjectScope, now: datetime | None = None) -> list[str]:
        """What holds whatever is asked; see ``retrieval.standing``."""
        self._indexer.follow()
        return standing(self._indexer.catalog.connection(), self._spaces, limit, project, now or datetime.now(UTC))

    def hot(self, limit: int | None = None, project: ProjectScope = _ANY_PROJECT) -> tuple[HotMemory, ...]:
        """The memories used most; see ``HotMemories.hot``.

        Raises:
            InvalidInput: If the limit is below 1.
        """
        if limit is not None:
            _check_limit(limit, self._config.search.hot_limit)
        return self._hot.hot(limit, project)

    def similar(
        self,
        text_or_uri: str,
        threshold: float = SIMILAR_FROM,
        limit: int = SIMILAR_LIMIT,
        project: ProjectScope = _ANY_PROJECT,
    ) -> SimilarMemories:
        """Memories that say nearly the same as a text, or as another memory; nothing is merged.

        Args:
            text_or_uri: A text, or the URI of a memory, which is then left out.
            threshold: Least score, in (0, 1].
            limit: 1 to 50.
            project: Whose private memories may be among them.

        Raises:
            InvalidInput: If an argument is wrong.
            NotFound: If the URI names no memory.
        """
        _check_limit(limit, _SIMILAR_MOST)
        if not 0.0 < threshold <= 1.0:
            raise InvalidInput(f"threshold {threshold} is out of range.", hint="Use more than 0, at most 1.")
        own, text = self._text(text_or_uri)
        by: Literal["meaning", "words"] = "meaning" if self._loaded() else "words"
        near = self._retriever.near([text], limit + (own is not None), project)[0]
        found = [item for item in near if item.uri != own and item.score >= threshold][:limit]
        notes = () if by == "meaning" else ("compared by words only: no embedding model answers",)
        return SimilarMemories(tuple(found), by, threshold, notes)

    def _text(self, text_or_uri: str) -> tuple[str | None, str]:
        """The URI, if it is one, and the text to compare."""
        if not text_or_uri.startswith(SCHEME):
            if not text_or_uri.strip() or "\x00" in text_or_uri:
                raise InvalidInput("the text is blank or holds NUL.", hint="Give a text, or the URI of a memory.")
            return None, text_or_uri
        uri = str(self._browser.visible(MemoryUri.parse(text_or_uri)))
        self._indexer.follow()
        text = self._indexer.catalog.own_text(uri)
        if not text:
            raise NotFound(f"{uri} is no memory.", hint="Give a memory's URI as find, ls or tree prints it, or a text.")
        return uri, text

    def _loaded(self) -> bool:
        """Whether there is a model that answers, waiting a while for one that loads."""
        embedder = self._indexer.embedder
        return embedder is not None and embedder.ready(self._config.embedding.wait_seconds)


def _check_limit(limit: int, most: int) -> None:
    if not 1 <= limit <= most:
        raise InvalidInput(f"limit {limit} is out of range.", hint=f"Use 1 to {most:,}.")


@dataclass(frozen=True, slots=True)
class SimilarRequest:
    """Find memories that say nearly the same; nothing is merged."""

    text_or_uri: Annotated[str, Arg(help="A text, or the URI of a memory, which is then left out.", positional=True)]
    threshold: Annotated[float, Arg(help="Least score, above 0, at most 1.")] = SIMILAR_FROM
    limit: Annotated[int, Arg(help=f"1 to {_SIMILAR_MOST}.")] = SIMILAR_LIMIT
    here: Here = None


@dataclass(frozen=True, slots=True)
class HotRequest:
    """Show the memories used most."""

    limit: Annotated[int | None, Arg(help="At most so many.")] = None
    here: Here = None


@dataclass(frozen=True, slots=True)
class TrailRequest:
    """Show which query retrieved what, newest first."""

    limit: Annotated[int, Arg(help=f"1 to {TRAIL_ROWS:,}.")] = 20
    uri: Annotated[str | None, Arg(help="Only what returned this file, or something below it.")] = None


@healed
def similar(memory: Runebook, request: SimilarRequest) -> SimilarMemories:
    """Memories that say nearly the same as a text or a memory; see ``Insight.similar``."""
    scope = memory.projects.scope(None, request.here)
    return memory.insight.similar(request.text_or_uri, request.threshold, request.limit, scope)


@healed
def hot(memory: Runebook, request: HotRequest = HotRequest()) -> tuple[HotMemory, ...]:
    """The memories used most; see ``HotMemories.hot``."""
    return memory.insight.hot(request.limit, memory.projects.scope(None, request.here))


def trail(memory: Runebook, request: TrailRequest = TrailRequest()) -> list[Recall]:
    """Which query retrieved what, newest first; see ``Insight.trail``."""
    return memory.insight.trail(request.limit, request.uri)


SIMILAR = Command("similar", SimilarRequest, similar)
HOT = Command("hot", HotRequest, hot)
TRAIL = Command("trail", TrailRequest, trail)
FEATURE = Feature(commands=(SIMILAR, TRAIL, HOT))
