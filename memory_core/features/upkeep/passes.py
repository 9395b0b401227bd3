"""Maintenance that a running server does by itself, now and then, in one of the processes of a store at a time.

When it was done last stands in a file of the machine's folder; who deletes it has it done once more. The lock belongs
to the process, so a killed one keeps nobody from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from memory_core.core.caller import Access
from memory_core.core.command import NOWHERE, Arg, Command
from memory_core.core.config import is_space
from memory_core.core.feature import Feature
from memory_core.core.memory.requests import Now
from memory_core.core.memory.uri import Scope

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Protocol

from memory_core.core.commit.working_copy import PlanContext, WorkingCopy
from memory_core.core.config import Config
from memory_core.core.errors import InvalidInput, RunebookError, StoreBusy
from memory_core.core.index.filter import utc
from memory_core.core.index.indexer import Indexer
from memory_core.core.memory.memory import Memory, parse
from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt, OperationResult
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store import atomic
from memory_core.core.store.local import Snapshot, Store
from memory_core.core.store.locks import StoreLock
from memory_core.core.store.usage import Usage
from memory_core.features.upkeep.archiving import archive

#: Kinds of the commits that bring something back.
_RETURNS = ("undo", "restore")
#: Files that one commit moves, so that a person can look through its receipt and other writers are not kept waiting.
BATCH_FILES = 200


#: Why a memory is due, as it is under the lock; None if it is not.
Due = Callable[[Memory], str | None]


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
    context: Callable[[datetime], PlanContext]
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

    def stored(self, uri: MemoryUri, text: str | None) -> Memory | None:
        """The memory in a text; None where there is none, or its trailer is damaged."""
        if text is None or uri.is_summary:
            return None
        memory = parse(uri, text, self.registry)
        return None if memory.type is None or memory.damage is not None else memory

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
                draft = WorkingCopy(snapshot, context)
                held = self.brought_back(now)
                going = (self._archived(draft, uri, due) for uri in batch if str(uri) not in held)
                results = [result for result in going if result is not None]
                return ChangeSet(draft.changes(), tuple(results))

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

    def _archived(self, draft: WorkingCopy, uri: MemoryUri, due: Due) -> OperationResult | None:
        try:
            found = self.stored(uri, draft.text(uri))
            why = None if found is None else due(found)
            if why is None:
                return None
            target = archive(draft, uri, why)
        except RunebookError as error:
            return OperationResult("archive", str(uri), Action.REJECTED, error.message, error.hint)
        return OperationResult("archive", str(uri), Action.DELETED, note=f"{why}; now {target}")


TASKS = "tasks"
_STATE = "state"
_ENDED = frozenset({"done", "cancelled", "canceled", "completed", "finished", "完成", "已完成", "取消", "已取消"})


@dataclass(frozen=True, slots=True)
class Expiry:
    """Archives what is past ``expires_at``. Search leaves it out from that moment on, whenever this runs."""

    upkeep: Upkeep
    name: ClassVar[str] = "expiry"
    light: ClassVar[bool] = True

    def run(self, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
        """Archive what is due; see ``Pass.run``."""

        def due(memory: Memory) -> str | None:
            return "expired" if memory.metadata.is_expired(now) else None

        expired = self.upkeep.rows("d.expires_at <= ? AND NOT d.pinned", utc(now.isoformat()))
        return self.upkeep.archive(self.name, expired, due, now, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class FinishedTasks:
    """Archives tasks that were done or cancelled ``maintenance.finished_tasks_days`` ago, unless they are pinned."""

    upkeep: Upkeep
    name: ClassVar[str] = "tasks"
    light: ClassVar[bool] = True

    def run(self, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
        """Archive what is due; see ``Pass.run``."""
        before = now - timedelta(days=self.upkeep.config.maintenance.finished_tasks_days)

        def due(memory: Memory) -> str | None:
            state = str(memory.fields.get(_STATE, "")).strip().casefold()
            changed = memory.metadata.changed_at
            if state not in _ENDED or memory.metadata.is_pinned or changed is None or changed > before:
                return None
            return f"{state} since {changed.date()}"

        old = self.upkeep.rows(
            "d.memory_type = ? AND NOT d.pinned AND coalesce(d.updated_at, '') <= ?", TASKS, utc(before.isoformat())
        )
        return self.upkeep.archive(self.name, old, due, now, dry_run=dry_run)


BOUNDED_TYPES = ("facts", "assistant_knowledge")
_AUTOMATIC = "auto_reflection"
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class KnowledgeCapacity:
    """Keeps facts and assistant knowledge within ``tiers.long_term_knowledge_capacity`` each."""

    upkeep: Upkeep
    name: ClassVar[str] = "capacity"
    light: ClassVar[bool] = True

    def run(self, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
        """Archive what is due; see ``Pass.run``."""
        for memory_type in BOUNDED_TYPES:
            beyond = self._beyond(memory_type)

            def due(memory: Memory) -> str | None:
                return "used least of the knowledge beyond its capacity" if _counts(memory) else None

            yield from self.upkeep.archive(self.name, beyond, due, now, dry_run=dry_run)

    def _beyond(self, memory_type: str) -> Sequence[MemoryUri]:
        """Those over the capacity: used least often, then longest ago, then the least important, then the oldest."""
        capacity = self.upkeep.config.tiers.long_term_knowledge_capacity
        uris = self.upkeep.rows("d.memory_type = ? AND d.active AND NOT d.pinned", memory_type)
        if len(uris) <= capacity:
            return []
        read = (self.upkeep.stored(uri, self.upkeep.store.text(uri)) for uri in uris)
        counted = [memory for memory in read if memory is not None and _counts(memory)]
        used = self.upkeep.usage([memory.uri for memory in counted])

        def worth(memory: Memory) -> tuple[Any, ...]:
            usage = used.get(str(memory.uri))
            times = (0, _NEVER) if usage is None else (usage.access_count, usage.last_accessed_at)
            return (*times, memory.salience, str(memory.metadata.get("created_at", "")), memory.uri)

        return [memory.uri for memory in sorted(counted, key=worth)[: max(0, len(counted) - capacity)]]


def _counts(memory: Memory) -> bool:
    source = memory.metadata.get("source")
    return isinstance(source, dict) and source.get("kind") == _AUTOMATIC and not memory.metadata.is_pinned


_log = logging.getLogger(__name__)


class Pass(Protocol):
    """One kind of maintenance."""

    @property
    def name(self) -> str:
        """Names it in settings, on the command line, and as the kind of its commits in history."""
        ...

    @property
    def light(self) -> bool:
        """Whether a running server does it by itself: quick, and without a model."""
        ...

    def run(self, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
        """Do what is due.

        Args:
            now: The moment, aware.
            dry_run: Plan only.

        Yields:
            A receipt for each commit; nothing to do yields nothing.
        """
        ...


@dataclass(frozen=True, slots=True)
class Done:
    """What one pass did, commit by commit, and why it stopped if it failed."""

    name: str
    receipts: tuple[CommitReceipt, ...] = ()
    failure: RunebookError | None = None

    @property
    def changed(self) -> int:
        """Files that were changed, or would be."""
        return len({uri for receipt in self.receipts for uri in receipt.changed_uris})

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        facts: dict[str, Any] = {"pass": self.name, "receipts": [receipt.as_dict() for receipt in self.receipts]}
        if self.failure is not None:
            facts |= {"failure": self.failure.message, "hint": self.failure.hint}
        return facts


@dataclass(frozen=True, slots=True)
class MaintainRequest:
    """Archive what expired, is done or unused, and condense it; for cron, or by hand.

    Attributes:
        light: Only passes that are quick and ask no model.
    """

    only: Annotated[Sequence[str], Arg(help="Passes by name; default all.")] = ()
    dry_run: Annotated[bool, Arg(help="Show what would change; store nothing.")] = False
    light: Annotated[bool, Arg(surfaces=NOWHERE)] = False
    now: Now = None


def passes(memory: Runebook) -> tuple[Pass, ...]:
    """What there is to do, in the order in which it is done."""
    return tuple(each for hook in memory.features.hooks("passes") for each in hook(memory))


def maintain(memory: Runebook, request: MaintainRequest) -> Iterator[Done]:
    """Run the passes, one after the other; each says what it did.

    Raises:
        InvalidInput: If there is no such pass.
    """
    memory.opened.wait_for_adoption()
    known = passes(memory)
    names = [each.name for each in known]
    unknown = sorted(set(request.only) - set(names))
    if unknown:
        raise InvalidInput(
            f"there is no maintenance called {', '.join(unknown)}.", hint=f"Use one of: {', '.join(names)}."
        )
    chosen = [each for each in known if each.name in (request.only or names) and (each.light or not request.light)]
    return _run(chosen, request.now or datetime.now(UTC), dry_run=request.dry_run)


MAINTAIN = Command("maintain", MaintainRequest, maintain, writes=True)


def _passes(memory: Runebook) -> tuple[Pass, ...]:
    upkeep = memory.upkeep
    return Expiry(upkeep), FinishedTasks(upkeep), KnowledgeCapacity(upkeep)


FEATURE = Feature(commands=(MAINTAIN,), hooks={"passes": _passes})


def _run(chosen: Sequence[Pass], now: datetime, *, dry_run: bool) -> Iterator[Done]:
    for each in chosen:
        receipts: list[CommitReceipt] = []
        try:
            receipts.extend(each.run(now, dry_run=dry_run))
        except RunebookError as error:
            _log.warning("maintenance %s stopped: %s", each.name, error.message)
            yield Done(each.name, tuple(receipts), error)
        else:
            yield Done(each.name, tuple(receipts))


def automatic_maintenance(memory: Runebook) -> AutomaticMaintenance | None:
    """What does maintenance by itself, for all users; None where the settings or the view's rights forbid it.

    It ends with the store, once it is started.
    """
    settings = memory.config.maintenance
    if settings.automatic == "off" or memory.access is not Access.READ_WRITE:
        return None
    light = settings.automatic == "light"

    def run(now: datetime, stopping: threading.Event) -> None:
        for user_space in _users(memory):
            for done in maintain(memory.view(user_space), MaintainRequest(light=light, now=now)):
                if done.receipts:
                    _log.info("maintenance %s of %s: %d files", done.name, user_space, done.changed)
                if stopping.is_set():
                    return

    automatic = AutomaticMaintenance(memory.store.files.state, timedelta(hours=settings.every_hours), run)
    memory.opened.before_close.append(automatic.stop)
    return automatic


def _users(memory: Runebook) -> list[str]:
    """The user spaces of this folder, this view's own first."""
    files, found = memory.store.files, [memory.config.user_space]
    for scope in (Scope.USER, Scope.SESSION):
        place = MemoryUri((scope.value,))
        found += [entry.uri.name for entry in files.entries(place) if entry.is_dir] if files.is_dir(place) else []
    return [name for name in dict.fromkeys(found) if is_space(name)]


#: A server that just started has better things to do, and one that is asked a single question ends before this.
_START_SECONDS = 20.0
#: A clock that is set back, or another process that is at it, is looked at again after this.
_LOOK_SECONDS = 600.0
_NAME = "maintained-at"


class AutomaticMaintenance:
    """A thread that runs maintenance when it is due; stopped by ``stop``.

    Args:
        state: The store's folder of machine files.
        every: How often.
        run: Does it; is told the moment, and whether it should come to an end.
        start_seconds: How long to wait at first.
    """

    def __init__(
        self,
        state: Path,
        every: timedelta,
        run: Callable[[datetime, threading.Event], None],
        start_seconds: float = _START_SECONDS,
    ) -> None:
        self._noted = state / _NAME
        self._lock = StoreLock(state / "locks" / "maintenance.lock", timeout_seconds=0.0)
        self._every = every
        self._run = run
        self._start_seconds = start_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="runebook-maintain", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the commit that is being made; safe to call twice."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def due_in(self, now: datetime) -> timedelta:
        """The time until maintenance is due; zero if it is."""
        try:
            last = datetime.fromisoformat(self._noted.read_text(encoding="utf-8").strip())
            return max(timedelta(), min(last - now, timedelta()) + self._every)
        except (OSError, ValueError, TypeError):
            return timedelta()

    def run_if_due(self, now: datetime) -> bool:
        """Do it now if it is due and nobody else is at it.

        Returns:
            Whether it was done.
        """
        if self.due_in(now):
            return False
        try:
            with self._lock.held():
                if self.due_in(now):
                    return False
                self._run(now, self._stopping)
                if self._stopping.is_set():
                    return False
                atomic.replace(self._noted, f"{now.isoformat(timespec='seconds')}\n")
                return True
        except StoreBusy:
            return False

    def _work(self) -> None:
        wait_seconds = self._start_seconds
        while not self._stopping.wait(wait_seconds):
            now = datetime.now(UTC)
            try:
                self.run_if_due(now)
            except (RunebookError, OSError) as error:
                _log.warning("maintenance was put off: %s", error)
            wait_seconds = max(1.0, min(_LOOK_SECONDS, self.due_in(now).total_seconds() or _LOOK_SECONDS))
