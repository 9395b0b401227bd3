"""Maintenance: the passes that keep a store tidy, run by a command, or by a running server now and then.

Owned here: what passes share, the passes that archive what expired, what is done and what is beyond its capacity, and
the thread of a server, in one of the processes of a store at a time. When it was done last stands in a file of the
machine's folder; who deletes it has it done once more. The lock belongs to the process, so a killed one keeps nobody
from it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol

from memory_core.core.caller import Access
from memory_core.core.command import NOWHERE, Arg, Command
from memory_core.core.commit.working_copy import WorkingCopy
from memory_core.core.errors import InvalidInput, RunebookError, StoreBusy
from memory_core.core.feature import Feature
from memory_core.core.index.filter import utc
from memory_core.core.memory.memory import Memory, parse
from memory_core.core.memory.requests import Now
from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt, OperationResult, as_json
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Snapshot
from memory_core.core.store.usage import Usage
from memory_core.features.upkeep.archive import put_away

if TYPE_CHECKING:
    from memory_core.core.store.local import UpkeepMark
    from memory_core.runebook import Runebook

_log = logging.getLogger(__name__)
#: Kinds of the commits that bring something back.
_RETURNS = ("undo", "restore")
#: Files that one commit moves, so that a person can look through its receipt and other writers are not kept waiting.
BATCH_FILES = 200


#: Why a memory is due, as it is under the lock; None if it is not.
Due = Callable[[Memory], str | None]


class Reach:
    """Which spaces of memories passes look through in a view: those of its user and its agent, unless told otherwise.

    Attributes:
        spaces: As the catalog names them, ``scope/space``.
    """

    def __init__(self, memory: Runebook) -> None:
        self.spaces: tuple[str, ...] = memory.spaces[:2]


def rows(memory: Runebook, condition: str, *parameters: Any) -> list[MemoryUri]:
    """Memories within ``Reach`` whose row ``d`` in the catalog meets a condition, in the order of their URIs."""
    memory.indexer.follow(None)
    spaces = memory.part(Reach).spaces
    found = memory.indexer.catalog.connection().execute(
        f"SELECT d.uri FROM documents d WHERE d.space IN ({', '.join('?' * len(spaces))}) AND d.part = 0 "
        f"AND d.context_type <> 'resource' AND {condition} ORDER BY d.uri",
        (*spaces, *parameters),
    )
    return [MemoryUri.parse(uri) for (uri,) in found.fetchall()]


def usage(memory: Runebook, uris: Sequence[MemoryUri]) -> dict[str, Usage]:
    """How often memories were used, those that were."""
    memory.store.usage.flush()
    return memory.store.ledger.usage_table.usage(map(str, uris))


def stored(memory: Runebook, uri: MemoryUri, text: str | None) -> Memory | None:
    """The memory in a text; None where there is none, or its trailer is damaged."""
    if text is None or uri.is_summary:
        return None
    found = parse(uri, text, memory.registry)
    return None if found.type is None or found.damage is not None else found


def text_at(memory: Runebook, uri: MemoryUri) -> str | None:
    """The text of a file; None where there is none or, with a warning in the log, where it cannot be read."""
    try:
        return memory.store.text(uri)
    except RunebookError as error:
        _log.warning("a file was passed over: %s", error.message)
        return None


def memory_at(memory: Runebook, uri: MemoryUri) -> Memory | None:
    """The memory in a file; see ``stored`` and ``text_at``."""
    return stored(memory, uri, text_at(memory, uri))


def brought_back(memory: Runebook, now: datetime) -> frozenset[str]:
    """URIs of what somebody restored, or took a change of back, and nothing happened to since.

    For ``maintenance.compression_days`` it is not sent away again.
    """
    since = now - timedelta(days=memory.config.maintenance.compression_days)
    newest = memory.store.ledger.last_changed_by(_RETURNS)
    return frozenset(uri for uri, at in newest.items() if datetime.fromisoformat(at) > since)


def archive_due(
    memory: Runebook,
    kind: str,
    uris: Sequence[MemoryUri],
    due: Due,
    now: datetime,
    *,
    dry_run: bool,
    op: str = "archive",
    typed: bool = True,
) -> Iterator[CommitReceipt]:
    """Move the memories that are due into the archive, in commits of bounded size.

    Args:
        memory: The store.
        kind: Of the commits.
        uris: Candidates.
        due: Judges each under the lock.
        now: The moment.
        dry_run: Plan only.
        op: Of the receipt's lines.
        typed: Whether only sound memories of a type may be.
    """
    context = memory.plan_context(now)

    def archived(draft: WorkingCopy, uri: MemoryUri) -> OperationResult | None:
        try:
            text = draft.text(uri)
            found = stored(memory, uri, text) if typed or text is None else parse(uri, text, memory.registry)
            why = None if found is None else due(found)
            if why is None:
                return None
            target = put_away(draft, uri, why)
        except RunebookError as error:
            return OperationResult(op, str(uri), Action.REJECTED, error.message, error.hint)
        return OperationResult(op, str(uri), Action.DELETED, note=f"{why}; now {target}")

    for start in range(0, len(uris), BATCH_FILES):
        batch = uris[start : start + BATCH_FILES]

        def planned(snapshot: Snapshot, batch: Sequence[MemoryUri] = batch) -> ChangeSet:
            draft = WorkingCopy(snapshot, context)
            kept = brought_back(memory, now)
            results = [archived(draft, uri) for uri in batch if str(uri) not in kept]
            return ChangeSet(draft.changes(), tuple(result for result in results if result is not None))

        yield from commit(memory, kind, planned, now, dry_run=dry_run)


def commit(
    memory: Runebook,
    kind: str,
    plan: Callable[[Snapshot], ChangeSet],
    now: datetime,
    *,
    dry_run: bool,
    is_large: bool = False,
) -> tuple[CommitReceipt, ...]:
    """Commit a plan of maintenance; no receipt where it changes nothing.

    Args:
        memory: The store.
        kind: Of the commit.
        plan: Pure.
        now: Time of the commit.
        dry_run: Plan only.
        is_large: Whether it is planned before its turn; see ``Store.commit``.

    Raises:
        TooLarge: If others would wait too long.
        StoreBusy: If another writer held the store too long.
        StorageFailed: If the ledger could not be written.
    """
    receipt = memory.store.commit(
        plan, kind=kind, now=now, dry_run=dry_run, large_of=memory.user_space, is_large=is_large
    )
    if not receipt.changed_uris and not any(result.action is Action.REJECTED for result in receipt.results):
        return ()
    return (memory.indexed(receipt),)


_EXPIRY, _TASKS, _CAPACITY = "expiry", "tasks", "capacity"
_STATE = "state"
_ENDED = frozenset({"done", "cancelled", "canceled", "completed", "finished", "完成", "已完成", "取消", "已取消"})


def archive_expired(memory: Runebook, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
    """Archive what is past ``expires_at``. Search leaves it out from that moment on, whenever this runs."""

    def due(found: Memory) -> str | None:
        return "expired" if found.metadata.is_expired(now) else None

    expired = rows(memory, "d.expires_at <= ? AND NOT d.pinned", utc(now.isoformat()))
    return archive_due(memory, _EXPIRY, expired, due, now, dry_run=dry_run)


def _finish_tasks(memory: Runebook, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
    """Archive tasks that were done or cancelled ``maintenance.finished_tasks_days`` ago, unless they are pinned."""
    before = now - timedelta(days=memory.config.maintenance.finished_tasks_days)

    def due(found: Memory) -> str | None:
        state = str(found.fields.get(_STATE, "")).strip().casefold()
        changed = found.metadata.changed_at
        if state not in _ENDED or found.metadata.is_pinned or changed is None or changed > before:
            return None
        return f"{state} since {changed.date()}"

    condition = "d.memory_type = ? AND NOT d.pinned AND coalesce(d.updated_at, '') <= ?"
    old = rows(memory, condition, _TASKS, utc(before.isoformat()))
    return archive_due(memory, _TASKS, old, due, now, dry_run=dry_run)


_BOUNDED_TYPES = ("facts", "assistant_knowledge")
_AUTOMATIC = "auto_reflection"
_NEVER = datetime.min.replace(tzinfo=UTC)


def _keep_capacity(memory: Runebook, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
    """Keep facts and assistant knowledge within ``tiers.long_term_knowledge_capacity`` each."""

    def due(found: Memory) -> str | None:
        return "used least of the knowledge beyond its capacity" if _counts(found) else None

    for memory_type in _BOUNDED_TYPES:
        yield from archive_due(memory, _CAPACITY, _beyond(memory, memory_type), due, now, dry_run=dry_run)


def _beyond(memory: Runebook, memory_type: str) -> Sequence[MemoryUri]:
    """Those over the capacity: used least often, then longest ago, then the least important, then the oldest."""
    capacity = memory.config.tiers.long_term_knowledge_capacity
    uris = rows(memory, "d.memory_type = ? AND d.active AND NOT d.pinned", memory_type)
    if len(uris) <= capacity:
        return []
    read = (memory_at(memory, uri) for uri in uris)
    counted = [found for found in read if found is not None and _counts(found)]
    used = usage(memory, [found.uri for found in counted])

    def worth(found: Memory) -> tuple[Any, ...]:
        own = used.get(str(found.uri))
        times = (0, _NEVER) if own is None else (own.access_count, own.last_accessed_at)
        return (*times, found.salience, str(found.metadata.get("created_at", "")), found.uri)

    return [found.uri for found in sorted(counted, key=worth)[: max(0, len(counted) - capacity)]]


def _counts(memory: Memory) -> bool:
    return memory.metadata.source.get("kind") == _AUTOMATIC and not memory.metadata.is_pinned


class Run(Protocol):
    """Does what is due."""

    def __call__(self, memory: Runebook, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
        """Yield a receipt for each commit; nothing to do yields nothing.

        Args:
            memory: The store.
            now: The moment, aware.
            dry_run: Plan only.
        """
        ...


class Pass(NamedTuple):
    """One kind of maintenance.

    Attributes:
        name: In settings, on the command line, and as the kind of its commits in history.
        run: Does it.
        light: Whether a running server does it by itself: quick, and without a model.
        of_user: Whether it is done once for a user, with the first agent space; else it looks through each.
    """

    name: str
    run: Run
    light: bool = True
    of_user: bool = False


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
        facts: dict[str, Any] = {"pass": self.name, "receipts": [as_json(receipt) for receipt in self.receipts]}
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
    return tuple(each for passes in memory.features.members("passes") for each in passes)


def maintain(
    memory: Runebook, request: MaintainRequest, *, stopped: Callable[[], bool] = lambda: False
) -> Iterator[Done]:
    """Run the passes over all memories of a view's user, one after the other; each says what it did.

    Several agents may work with the user, see ``OpenedStore.agent_spaces``.

    Args:
        memory: The store.
        request: Which, and when.
        stopped: Asked after each commit; True ends the pass, and nothing is done after it.

    Raises:
        InvalidInput: If there is no such pass.
        StoreBusy: If the store could not be asked who works with it.
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
    once, each_space = _views(memory)
    return _run(once, each_space, chosen, request.now or datetime.now(UTC), dry_run=request.dry_run, stopped=stopped)


MAINTAIN = Command("maintain", MaintainRequest, maintain, writes=True)


def _background(memory: Runebook) -> None:
    if (automatic := automatic_maintenance(memory)) is not None:
        automatic.start()


FEATURE = Feature(
    commands=(MAINTAIN,),
    passes=(Pass(_EXPIRY, archive_expired), Pass(_TASKS, _finish_tasks), Pass(_CAPACITY, _keep_capacity)),
    background=_background,
)


def _views(memory: Runebook) -> tuple[Runebook, list[Runebook]]:
    """The view for what is done once for a user, and those that together reach each space of theirs once.

    What is made for a user is seen by each agent who works with them: where there are several, it is made of the user's
    own space alone.
    """
    config = memory.config
    agents = memory.opened.agent_spaces(config.user_space, config.agent_space)
    views = [memory.configured(config.with_spaces(config.user_space, agent)) for agent in agents]
    for view in views[1:]:
        view.part(Reach).spaces = view.spaces[1:2]
    if len(views) == 1:
        return views[0], views
    once = memory.configured(views[0].config)
    once.part(Reach).spaces = once.spaces[:1]
    return once, views


def _run(
    once: Runebook,
    each_space: Sequence[Runebook],
    chosen: Sequence[Pass],
    now: datetime,
    *,
    dry_run: bool,
    stopped: Callable[[], bool],
) -> Iterator[Done]:
    for each in chosen:
        receipts: list[CommitReceipt] = []
        failure: RunebookError | None = None
        views = [once] if each.of_user else each_space
        try:
            for receipt in chain.from_iterable(each.run(view, now, dry_run=dry_run) for view in views):
                receipts.append(receipt)
                if stopped():
                    break
        except RunebookError as error:
            _log.warning("maintenance %s stopped: %s", each.name, error.message)
            failure = error
        yield Done(each.name, tuple(receipts), failure)
        if stopped():
            return


def automatic_maintenance(memory: Runebook) -> AutomaticMaintenance | None:
    """What does maintenance by itself, for all users; None where the settings or the view's rights forbid it.

    It ends with the store, once it is started.
    """
    settings = memory.config.maintenance
    if settings.automatic == "off" or memory.access is not Access.READ_WRITE:
        return None
    light = settings.automatic == "light"

    def run(now: datetime, stopping: threading.Event) -> None:
        for user_space, agent_spaces in memory.opened.users():
            request = MaintainRequest(light=light, now=now)
            for done in maintain(memory.view(user_space, agent_spaces[0]), request, stopped=stopping.is_set):
                if done.receipts:
                    _log.info("maintenance %s of %s: %d files", done.name, user_space, done.changed)
            if stopping.is_set():
                return

    automatic = AutomaticMaintenance(memory.opened.upkeep_mark(), timedelta(hours=settings.every_hours), run)
    memory.opened.before_close.append(automatic.stop)
    return automatic


#: A server that just started has better things to do, and one that is asked a single question ends before this.
_START_SECONDS = 20.0
#: A clock that is set back, or another process that is at it, is looked at again after this.
_LOOK_SECONDS = 600.0


class AutomaticMaintenance:
    """A thread that runs maintenance when it is due; stopped by ``stop``.

    Args:
        mark: When it was done last, and the turn of who does it.
        every: How often.
        run: Does it; is told the moment, and whether it should come to an end.
    """

    def __init__(
        self,
        mark: UpkeepMark,
        every: timedelta,
        run: Callable[[datetime, threading.Event], None],
    ) -> None:
        self._mark = mark
        self._every = every
        self._run = run
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
            last = datetime.fromisoformat(self._mark.read().strip())
            # A mark of the future, as a clock that was wrong leaves it, is as old as it is ahead.
            return max(timedelta(), self._every - abs(now - last))
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
            with self._mark.lock().held():
                if self.due_in(now):
                    return False
                self._run(now, self._stopping)
                if self._stopping.is_set():
                    return False
                self._mark.write(now.isoformat(timespec="seconds"))
                return True
        except StoreBusy:
            return False

    def _work(self) -> None:
        wait_seconds = _START_SECONDS
        while not self._stopping.wait(wait_seconds):
            now = datetime.now(UTC)
            wait_seconds = _LOOK_SECONDS
            try:
                self.run_if_due(now)
                wait_seconds = max(1.0, min(_LOOK_SECONDS, self.due_in(now).total_seconds() or _LOOK_SECONDS))
            except (RunebookError, OSError) as error:
                _log.warning("maintenance was put off: %s", error)
