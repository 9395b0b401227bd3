"""Memories whose time is over leave for the archive: past their expiry, or tasks that ended a while ago."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from memory_core.index.filter import utc
from memory_core.lifecycle.maintenance.upkeep import Stored, Upkeep
from memory_core.model.availability import is_expired, is_pinned
from memory_core.model.changes import CommitReceipt
from memory_core.model.record import changed_at

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
            changed = changed_at(memory.meta)
            if state not in _ENDED or is_pinned(memory.meta) or changed is None or changed > before:
                return None
            return f"{state} since {changed.date()}"

        old = self.upkeep.rows(
            "d.memory_type = ? AND NOT d.pinned AND coalesce(d.updated_at, '') <= ?", TASKS, utc(before.isoformat())
        )
        return self.upkeep.archive(self.name, old, due, now, dry_run=dry_run)
