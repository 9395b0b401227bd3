"""What an import did or, as a dry run, would do: counted by type, with what was left out and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from memory_core.lifecycle.imports.items import LeftOut, LogItem, SummaryItem
from memory_core.lifecycle.imports.memories import Outcome, Placed
from memory_core.model.changes import Action

_SHOWN = 20
_UNDO_SHOWN = 5


@dataclass(slots=True)
class ImportReport:
    """The sum of all batches.

    Attributes:
        format: Name of the format.
        dry_run: Whether nothing was written.
        counts: By type (``facts``, ``daily_logs``, ``conversations``, ``messages``, ``links``, …) and action.
        left_out: What could not be taken.
        kept: What differs here and stays as it is here.
        passed: What is not meant to come along, by what it is.
        sessions: Sessions that are new or went on.
        commits: The commits made, oldest first; each can be undone.
        extracted: Files that a model's extraction changed.
        moved: Originals that were renamed, by their new name.
        notes: What else is worth knowing.
    """

    format: str
    dry_run: bool
    counts: dict[str, Counter[Action]] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    kept: list[LeftOut] = field(default_factory=list)
    passed: Counter[str] = field(default_factory=Counter)
    sessions: list[str] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    extracted: int = 0
    moved: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count a batch of memories."""
        for placed in outcome.placed:
            self.count(_kind(placed), placed.action)
        self.left_out += outcome.left_out
        self.kept += outcome.kept
        self.notes += outcome.notes

    def count(self, kind: str, action: Action, number: int = 1) -> None:
        """Count what became of some things of a kind."""
        if number:
            self.counts.setdefault(kind, Counter())[action] += number

    def total(self, action: Action) -> int:
        """How many memories, entries and conversations it happened to."""
        return sum(counted[action] for kind, counted in self.counts.items() if kind not in ("messages", "links"))

    @property
    def changed(self) -> bool:
        """Whether anything is or would be other than before."""
        return any(counted[action] for counted in self.counts.values() for action in (Action.CREATED, Action.UPDATED))

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "format": self.format,
            "dry_run": self.dry_run,
            "counts": {
                kind: {str(action): number for action, number in sorted(counted.items())}
                for kind, counted in sorted(self.counts.items())
            },
            "left_out": [found.as_dict() for found in self.left_out],
            "kept": [found.as_dict() for found in self.kept],
            "passed": dict(self.passed),
            "commits": self.commits,
            "sessions": self.sessions,
            "extracted": self.extracted,
            "moved": self.moved,
            "notes": self.notes,
        }

    def lines(self) -> Iterator[str]:
        """Text form: what needs a look, then the counts."""
        yield from _listed("left out", self.left_out)
        yield from _listed("kept", self.kept)
        yield from self.notes[:_SHOWN]
        if len(self.notes) > _SHOWN:
            yield f"and {len(self.notes) - _SHOWN:,} more notes; see them with --json."
        for what, number in self.passed.most_common():
            yield f"not imported: {number:,} {what}"
        would = "would be " if self.dry_run else ""
        for kind, counted in sorted(self.counts.items()):
            told = [
                f"{counted[action]:,} {would if action is not Action.UNCHANGED else ''}{action}" for action in counted
            ]
            yield f"{kind}: {', '.join(told)}"
        if self.extracted:
            yield f"extracted from conversations: {self.extracted:,} files changed"
        yield from (f"renamed to {name}" for name in self.moved)
        yield (
            f"{self.format}: {self.total(Action.CREATED):,} {would}created, {self.total(Action.UPDATED):,} {would}"
            f"updated, {self.total(Action.UNCHANGED):,} unchanged, {len(self.left_out):,} left out."
        )
        if 0 < len(self.commits) <= _UNDO_SHOWN:
            yield f"Undo with: {'; '.join(f'runebook undo {commit}' for commit in reversed(self.commits))}"
        elif self.commits:
            yield f"{len(self.commits):,} commits, each undoable; see them with: runebook history"


def _kind(placed: Placed) -> str:
    if isinstance(placed.item, LogItem):
        return "daily_logs"
    if isinstance(placed.item, SummaryItem):
        return "rolling_summary"
    parts = placed.uri.split("/")
    return placed.item.memory_type if len(parts) < 7 else parts[5]


def _listed(word: str, found: list[LeftOut]) -> Iterator[str]:
    yield from (f"{word}: {each.place}: {each.reason}" for each in found[:_SHOWN])
    if len(found) > _SHOWN:
        yield f"{word}: and {len(found) - _SHOWN:,} more; see them with --json."
