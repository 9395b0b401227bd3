"""What is recalled: each retrieval is noted for the counts and the trail, and the memories used most are known.

For one user's space. What the trail shows is a feature's; here it is only written, in the background.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal

from memory_core.core.caller import current_author, is_looking
from memory_core.core.frozen import frozen
from memory_core.core.index.filter import in_use
from memory_core.core.memory.project import ProjectScope
from memory_core.core.store.usage import Recall, Usage, UsageTable

if TYPE_CHECKING:
    from memory_core.core.config import Config
    from memory_core.core.feature import Cleaner, Features
    from memory_core.core.index.catalog import Position
    from memory_core.core.index.indexer import Indexer
    from memory_core.core.store.local import Store

#: Memories kept for each that is given, so that a project whose own are few still gets its number.
_SPARE = 5
_ANY_PROJECT = ProjectScope()


@frozen
class MostUsedMemory:
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

    JSON: ClassVar = "uri memory_type abstract access_count last_accessed_at project?"

    uri: str
    memory_type: str
    abstract: str
    access_count: int
    last_accessed_at: datetime
    project: str | None = None
    private: bool = False


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
        self._memories: tuple[MostUsedMemory, ...] = ()

    def hot(self, limit: int | None = None, project: ProjectScope = _ANY_PROJECT) -> tuple[MostUsedMemory, ...]:
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
            MostUsedMemory(
                uri, memory_type, abstract, usage.access_count, usage.last_accessed_at, project, bool(private)
            )
            for uri, usage in self._counts.items()
            if uri in said
            for memory_type, abstract, project, private in [said[uri]]
        )


class Recalls:
    """Notes what is retrieved and read, and knows what is used most.

    Args:
        config: Settings; those of ``search`` are followed.
        store: Counts and the trail.
        indexer: What is stored.
        spaces: ``scope/space`` names that may be seen.
        features: Their cleaner takes out of a question what must not be kept.
        traces: Whether retrievals are counted and remembered.
        shared: Whether others see the spaces, too: then only what was given is noted, and not what was asked.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        indexer: Indexer,
        spaces: Sequence[str],
        features: Features,
        *,
        traces: bool = True,
        shared: bool = False,
    ) -> None:
        self._config = config
        self._traces = traces
        self._shared = shared
        self._store = store
        self._indexer = indexer
        self._spaces = tuple(spaces)
        self._features = features
        self._hot = HotMemories(
            store.ledger.usage_table, indexer, spaces, config.search.hot_limit, config.search.hot_seconds
        )

    @cached_property
    def _cleaner(self) -> Cleaner:
        return self._features.cleaner(self._config)

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
        """Note a retrieval, for the counts and the trail, unless the owner looks; written in the background.

        Args:
            kind: What retrieved; a context notes itself once, not the searches it makes.
            query: What was asked; blank of a context without a question, whose hits are not counted. Not kept where
                the setting says so, nor for others who see the space: a search in one's own asks the shared ones too.
            hits: (URI, score) of what the caller was given, best first.
            milliseconds: That it took.
            cached: Whether a cache answered.
            rank: Profile; None is the setting's.
            session_id: Session it was for.
            project: Project it was for.
            now: When; default the clock's.
        """
        if not self._traces or is_looking():
            return
        self._store.usage.recalled(
            Recall(
                at=now or datetime.now(UTC),
                query=self._cleaner.text(query) if self._config.search.trail and not self._shared else "",
                kind=kind,
                hits=tuple(hits),
                milliseconds=milliseconds,
                cached=cached,
                rank=rank or self._config.search.rank,
                session_id=None if session_id is None or self._shared else self._cleaner.text(session_id),
                project=None if project is None or self._shared else self._cleaner.text(project),
                space=self._config.user_space,
                asked=bool(query.strip()),
            )
        )

    def check_name(self, name: str, value: str) -> None:
        """Refuse a name under which something is kept and that holds a secret.

        Raises:
            ContentRejected: If it does.
        """
        self._cleaner.check_names(**{name: value})

    def note_read(self, uri: str, now: datetime | None = None) -> None:
        """Note that a file was read, for the counts, unless the owner looks; written in the background."""
        if self._traces and not is_looking():
            self._store.usage.read(uri, now or datetime.now(UTC))

    def note_call(self, now: datetime | None = None) -> None:
        """Note that the client that is served calls."""
        if self._traces and (client := current_author()):
            self._store.usage.called(client, now or datetime.now(UTC))

    def always_on(self, limit: int, project: ProjectScope, now: datetime, *, tastes: bool = False) -> list[str]:
        """What holds whatever is asked; see ``context_sources.always_on``."""
        from memory_core.core.search.context_sources import always_on

        self._indexer.follow()
        return always_on(self._indexer.catalog.connection(), self._spaces, limit, project, now, tastes=tastes)

    def hot(self, limit: int | None = None, project: ProjectScope = _ANY_PROJECT) -> tuple[MostUsedMemory, ...]:
        """The memories used most; see ``HotMemories.hot``."""
        return self._hot.hot(limit, project)
