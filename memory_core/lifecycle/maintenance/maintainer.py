"""The passes of maintenance, run one after the other; each commit is a transaction with a receipt, and can be undone.

A pass that fails leaves the others be and is run again the next time: what is due is always derived from the files, the
ledger and the clock it is given, never from what an earlier run remembered.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from memory_core.errors import InvalidInput, RunebookError
from memory_core.model.changes import CommitReceipt

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


class Maintainer:
    """Runs passes over one user's memories.

    Args:
        passes: In the order in which they run.
    """

    def __init__(self, passes: Sequence[Pass]) -> None:
        self._passes = tuple(passes)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all passes, in order."""
        return tuple(each.name for each in self._passes)

    def run(
        self, now: datetime, *, dry_run: bool = False, only: Collection[str] = (), light: bool = False
    ) -> Iterator[Done]:
        """Run the passes, one after the other.

        Args:
            now: The moment that ages count from, aware.
            dry_run: Plan only.
            only: Names of passes; empty is all.
            light: Only those that are quick and ask no model.

        Raises:
            InvalidInput: If there is no such pass.
        """
        unknown = sorted(set(only) - set(self.names))
        if unknown:
            raise InvalidInput(
                f"there is no maintenance called {', '.join(unknown)}.", hint=f"Use one of: {', '.join(self.names)}."
            )
        return self._run(now, dry_run, only, light)

    def _run(self, now: datetime, dry_run: bool, only: Collection[str], light: bool) -> Iterator[Done]:
        for each in self._passes:
            if (only and each.name not in only) or (light and not each.light):
                continue
            receipts: list[CommitReceipt] = []
            try:
                receipts.extend(each.run(now, dry_run=dry_run))
            except RunebookError as error:
                _log.warning("maintenance %s stopped: %s", each.name, error.message)
                yield Done(each.name, tuple(receipts), error)
            else:
                yield Done(each.name, tuple(receipts))
