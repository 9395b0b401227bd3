"""What every pass works on: one user's and one agent's memories of one store, and how a pass commits.

A pass names files it takes to be due; the plan looks again under the store's lock, at the texts as they are then. What
a person changed in between is judged as it is now, and a file that is gone is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from memory_core.config import Config
from memory_core.errors import RunebookError
from memory_core.index.indexer import Indexer
from memory_core.model.changes import Action, ChangeSet, CommitReceipt, OperationResult
from memory_core.model.memory_file import parse
from memory_core.model.record import MemoryRecord, read_record
from memory_core.model.relations import unit
from memory_core.model.schema import MemoryType
from memory_core.model.uri import MemoryUri
from memory_core.registry import MemoryTypeRegistry
from memory_core.storage.store import Snapshot, Store
from memory_core.storage.tables.usage import Usage
from memory_core.update.archiving import archive
from memory_core.update.bounds import Context
from memory_core.update.draft import Draft
from memory_core.update.summaries import refresh

#: Kinds of the commits that bring something back.
_RETURNS = ("undo", "restore")
#: Files that one commit moves, so that a person can look through its receipt and other writers are not kept waiting.
BATCH_FILES = 200


@dataclass(frozen=True, slots=True)
class Stored:
    """A memory as a pass judges it."""

    uri: MemoryUri
    memory_type: MemoryType
    record: MemoryRecord

    @property
    def meta(self) -> Mapping[str, Any]:
        """Its trailer's reserved keys."""
        return self.record.meta

    @property
    def salience(self) -> float:
        """Its own, or its type's; in [0, 1]."""
        return unit(self.meta.get("salience"), self.memory_type.salience)


#: Why a memory is due, as it is under the lock; None if it is not.
Due = Callable[[Stored], str | None]


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Access to one user's memories for the passes of maintenance.

    Attributes:
        context: What a plan at a moment is told.
        indexed: Brings the index up to date after a commit.
    """

    config: Config
    store: Store
    registry: MemoryTypeRegistry
    indexer: Indexer
    context: Callable[[datetime], Context]
    indexed: Callable[[CommitReceipt], CommitReceipt]

    @property
    def spaces(self) -> tuple[str, str]:
        """``scope/space`` of the user's and the agent's memories."""
        return f"user/{self.config.user_space}", f"agent/{self.config.agent_space}"

    def rows(self, condition: str, *parameters: Any) -> list[MemoryUri]:
        """Memories whose row ``d`` in the catalog meets a condition, in the order of their URIs."""
        self.indexer.follow()
        rows = self.indexer.catalog.connection().execute(
            "SELECT d.uri FROM documents d WHERE d.space IN (?, ?) AND d.part = 0 AND d.context_type <> 'resource' "
            f"AND {condition} ORDER BY d.uri",
            (*self.spaces, *parameters),
        )
        return [MemoryUri.parse(uri) for (uri,) in rows.fetchall()]

    def usage(self, uris: Sequence[MemoryUri]) -> dict[str, Usage]:
        """How often memories were used, those that were."""
        self.store.usage.flush()
        return self.store.ledger.usage_table.usage(map(str, uris))

    def stored(self, uri: MemoryUri, text: str | None) -> Stored | None:
        """The memory in a text; None where there is none, or its trailer is damaged."""
        if text is None or uri.is_summary:
            return None
        file = parse(text)
        memory_type = self.registry.type_at(uri, file.type_name)
        if memory_type is None or file.damage is not None:
            return None
        return Stored(uri, memory_type, read_record(memory_type, file, uri.name.removesuffix(".md")))

    def brought_back(self, now: datetime) -> frozenset[str]:
        """URIs of what somebody restored, or took a change of back, and nothing happened to since.

        For ``maintenance.compression_days`` it is not sent away again.
        """
        since = now - timedelta(days=self.config.maintenance.compression_days)
        newest = self.store.ledger.last_changed_by(_RETURNS)
        return frozenset(uri for uri, at in newest.items() if datetime.fromisoformat(at) > since)

    def archive(
        self, kind: str, uris: Sequence[MemoryUri], due: Due, now: datetime, *, dry_run: bool
    ) -> Iterator[CommitReceipt]:
        """Move the memories that are due into the archive, in commits of bounded size.

        Args:
            kind: Of the commits.
            uris: Candidates.
            due: Judges each under the lock.
            now: The moment.
            dry_run: Plan only.
        """
        context = self.context(now)
        for start in range(0, len(uris), BATCH_FILES):
            batch = uris[start : start + BATCH_FILES]

            def planned(snapshot: Snapshot, batch: Sequence[MemoryUri] = batch) -> ChangeSet:
                draft = Draft(snapshot, context)
                held = self.brought_back(now)
                going = (self._archived(draft, uri, due) for uri in batch if str(uri) not in held)
                results = [result for result in going if result is not None]
                return refresh(ChangeSet(draft.changes(), tuple(results)), snapshot, context)

            receipt = self.commit(kind, planned, now, dry_run=dry_run)
            if receipt is not None:
                yield receipt

    def commit(
        self, kind: str, plan: Callable[[Snapshot], ChangeSet], now: datetime, *, dry_run: bool
    ) -> CommitReceipt | None:
        """Commit a plan of maintenance; None where it changes nothing.

        Raises:
            StoreBusy: If another writer held the store too long.
            StorageFailed: If the ledger could not be written.
        """
        receipt = self.store.commit(plan, kind=kind, now=now, dry_run=dry_run)
        if not receipt.changed_uris and not any(result.action is Action.REJECTED for result in receipt.results):
            return None
        return receipt if dry_run else self.indexed(receipt)

    def _archived(self, draft: Draft, uri: MemoryUri, due: Due) -> OperationResult | None:
        try:
            found = self.stored(uri, draft.text(uri))
            why = None if found is None else due(found)
            if why is None:
                return None
            target = archive(draft, uri, why)
        except RunebookError as error:
            return OperationResult("archive", str(uri), Action.REJECTED, error.message, error.hint)
        return OperationResult("archive", str(uri), Action.DELETED, note=f"{why}; now {target}")
