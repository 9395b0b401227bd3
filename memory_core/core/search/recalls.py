"""What is recalled: each retrieval is noted for the counts and the trail, and the memories used most are known.

For one user's space. What the trail shows is a feature's; here it is only written, in the background.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from memory_core.core.caller import current_author, owner_is_looking
from memory_core.core.frozen import frozen
from memory_core.core.index.documents import STANDING_SALIENCE
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
#: What holds whatever is asked, and what else is known of the user's tastes.
_RULES, _TASTES = "d.always_on", "d.memory_type = 'preferences' AND NOT d.always_on"


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


@dataclass(slots=True, eq=False)
class HotMemories:
    """The memories of some spaces that are used most; safe to share between threads.

    Attributes:
        usage: Counts.
        indexer: Follows what was committed, and knows what memories say.
        spaces: ``scope/space`` names that may be seen.
        limit: How many are hot.
        seconds: How long the count stands.
        clock: Seconds that only grow.
    """

    usage: UsageTable
    indexer: Indexer
    spaces: Sequence[str]
    limit: int
    seconds: float
    clock: Callable[[], float] = time.monotonic
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _counted_at: float = float("-inf")
    _counts: Mapping[str, Usage] = field(default_factory=dict)
    _position: Position | None = None
    _memories: tuple[MostUsedMemory, ...] = ()

    def hot(self, limit: int | None = None, project: ProjectScope = _ANY_PROJECT) -> tuple[MostUsedMemory, ...]:
        """The memories used most, most first; with a project alone, only its own.

        Args:
            limit: At most; None means all that are hot.
            project: The project at hand; private memories of others are left out.
        """
        self.indexer.follow(spaces=self.spaces)
        with self._guard:
            if self.clock() - self._counted_at >= self.seconds or len(self._memories) < self.limit:
                self._count()
            elif self._position != self.indexer.catalog.position():
                self._read()
            memories = self._memories
        seen = [memory for memory in memories if project.finds(memory.project, private=memory.private)]
        return tuple(seen[: self.limit if limit is None else min(limit, self.limit)])

    def _count(self) -> None:
        """Find out which are used most; usage of memories that are gone is passed over."""
        self._counts = dict(self.usage.top(_SPARE * self.limit, self._is_there))
        self._counted_at = self.clock()
        self._read()

    def _is_there(self, uri: str) -> bool:
        row = self.indexer.catalog.connection().execute(
            "SELECT space FROM documents WHERE uri = ? AND part = 0 AND context_type <> 'resource'", (uri,)
        )
        found = row.fetchone()
        return found is not None and found[0] in self.spaces

    def _read(self) -> None:
        """Read what they say now; one that is gone is dropped."""
        # Before the rows: what is committed in between is then read once more, never missed.
        self._position = self.indexer.catalog.position()
        valid = in_use(datetime.now(UTC))
        rows = self.indexer.catalog.connection().execute(
            "SELECT uri, memory_type, abstract, project, private FROM documents d "
            f"WHERE uri IN (SELECT value FROM json_each(?)) AND part = 0 AND {valid.sql}",
            (json.dumps(list(self._counts)), *valid.parameters),
        )
        found = {
            uri: MostUsedMemory(
                uri, memory_type, abstract, used.access_count, used.last_accessed_at, project, bool(private)
            )
            for uri, memory_type, abstract, project, private in rows
            for used in [self._counts[uri]]
        }
        self._memories = tuple(found[uri] for uri in self._counts if uri in found)


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
        search = config.search
        #: The memories used most; see ``HotMemories.hot``.
        self.hot = HotMemories(store.ledger.usage_table, indexer, spaces, search.hot_limit, search.hot_seconds).hot

    @cached_property
    def _cleaner(self) -> Cleaner:
        return self._features.cleaner(self._config)

    def note(self, recall: Recall) -> None:
        """Note a retrieval, for the counts and the trail, unless the owner looks; written in the background.

        Args:
            recall: As it was asked: a context notes itself once, not the searches it makes. Its question is not kept
                where the setting says so, nor for others who see the space: a search in one's own asks the shared ones
                too. Of a context without a question the hits are not counted. No rank is the setting's.
        """
        if not self._traces or owner_is_looking():
            return
        clean = self._cleaner.text
        self._store.usage.recalled(
            replace(
                recall,
                query=clean(recall.query) if self._config.search.trail and not self._shared else "",
                rank=recall.rank or self._config.search.rank,
                session_id=None if recall.session_id is None or self._shared else clean(recall.session_id),
                project=None if recall.project is None or self._shared else clean(recall.project),
                space=self._config.user_space,
                asked=bool(recall.query.strip()),
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
        if self._traces and not owner_is_looking():
            self._store.usage.read(uri, now or datetime.now(UTC))

    def note_call(self, now: datetime | None = None) -> None:
        """Note that the client that is served calls."""
        if self._traces and (client := current_author()):
            self._store.usage.called(client, now or datetime.now(UTC))

    def always_on(self, limit: int, project: ProjectScope, now: datetime, *, tastes: bool = False) -> list[str]:
        """URIs of what holds whatever is asked, the newest first: of no project, or of the one at hand.

        Of more than ``limit``, those that are pinned or critical stay, then the newest.

        Args:
            limit: At most.
            project: The one at hand; with a project alone, only its own.
            now: The moment, aware; what is past its time then does not hold.
            tastes: Preferences that are no rules instead.
        """
        self._indexer.follow(spaces=self._spaces)
        marks = ",".join("?" * len(self._spaces))
        valid = in_use(now)
        own = "" if project.only else "d.general OR "
        rows = self._indexer.catalog.connection().execute(
            f"SELECT uri FROM (SELECT uri, updated_at, id FROM documents d WHERE space IN ({marks}) AND part = 0 "
            f"AND {_TASTES if tastes else _RULES} AND context_type = 'memory' AND ({own}d.project IS ?) "
            f"AND {valid.sql} ORDER BY pinned OR salience >= ? DESC, updated_at DESC, id DESC LIMIT ?) "
            "ORDER BY updated_at DESC, id DESC",
            (*self._spaces, project.current, *valid.parameters, STANDING_SALIENCE, limit),
        )
        return [uri for (uri,) in rows]
