"""Memories whose time is over leave for the archive: past their expiry, or tasks that ended a while ago."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from memory_core.index.filter import utc
from memory_core.lifecycle.maintenance.upkeep import Stored, Upkeep
from memory_core.model.availability import is_expired, is_pinned
from memory_core.model.changes import CommitReceipt

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

        def due(memory: Stored) -> str | None:
            return "expired" if is_expired(memory.meta, now) else None

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

        def due(memory: Stored) -> str | None:
            state = str(memory.record.fields.get(_STATE, "")).strip().casefold()
            ended = state in _ENDED and not is_pinned(memory.meta)
            return f"{state} since {_day(memory.meta)}" if ended and _changed(memory.meta, now) <= before else None

        old = self.upkeep.rows(
            "d.memory_type = ? AND NOT d.pinned AND coalesce(d.updated_at, '') <= ?", TASKS, utc(before.isoformat())
        )
        return self.upkeep.archive(self.name, old, due, now, dry_run=dry_run)


def _day(meta: Any) -> str:
    return str(meta.get("updated_at", ""))[:10] or "an unknown day"


def _changed(meta: Any, now: datetime) -> datetime:
    """When a memory was last changed; what cannot be read is now, so that nothing leaves for being unreadable."""
    try:
        moment = datetime.fromisoformat(str(meta.get("updated_at") or meta.get("created_at")))
    except ValueError:
        return now
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
