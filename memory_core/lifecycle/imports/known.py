"""What earlier imports brought: remembered in their commits' receipts, so it outlives what becomes of the memories.

A line of a receipt ends in ``[import 3f2a… 9c1d…]``: the item's identity (format, spaces, id in the source) and what it
said then. An item that is known is not brought again, whether its memory was edited, moved, archived or deleted since;
an import that is taken back is forgotten with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from memory_core.lifecycle.imports.items import digest_of
from memory_core.model.changes import OperationResult
from memory_core.storage.ledger import Ledger

KIND = "import"
_MARK = re.compile(r"\[import ([0-9a-f]{16}) ([0-9a-f]{16})\]$")


@dataclass(frozen=True, slots=True)
class Mark:
    """One item that came in: what it said, as which file, in which commit."""

    digest: str
    uri: str
    seq: int


class Known:
    """The items of earlier imports.

    Args:
        ledger: Where the receipts are.
        scope: Format and spaces; an id means the same only within them.
    """

    def __init__(self, ledger: Ledger, scope: tuple[str, ...]) -> None:
        self._ledger = ledger
        self._scope = scope
        self._marks: dict[str, Mark] | None = None

    def get(self, item_id: str) -> Mark | None:
        """The item's mark, if it came in before."""
        if self._marks is None:
            self._marks = {
                found[1]: Mark(found[2], result["uri"], commit.seq)
                for commit in self._ledger.past.of_kind(KIND)
                for result in commit.receipt["results"]
                if (found := _MARK.search(result.get("note") or ""))
            }
        return self._marks.get(self._identity(item_id))

    def marked(self, result: OperationResult, item_id: str, digest: str) -> OperationResult:
        """The line of a receipt with the item's mark."""
        mark = f"[import {self._identity(item_id)} {digest}]"
        return replace(result, note=" ".join(filter(None, (result.note, mark))))

    def forget(self) -> None:
        """Read the receipts anew next time; there are more now."""
        self._marks = None

    def _identity(self, item_id: str) -> str:
        return digest_of([*self._scope, item_id])
