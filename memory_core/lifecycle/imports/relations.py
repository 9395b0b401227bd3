"""Relations between imported memories, as links: one batch, planned once all memories are in. Plans only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memory_core.lifecycle.imports.items import LeftOut, MemoryItem, Relation, digest_of
from memory_core.lifecycle.imports.known import Known
from memory_core.model.changes import Action, ChangeSet
from memory_core.model.operations import LINK_RELATIONS, EditOp, Link, MemoryOperations
from memory_core.storage.store import Snapshot
from memory_core.update.bounds import Context
from memory_core.update.planner import plan


@dataclass(frozen=True, slots=True)
class Joint:
    """A relation that is to become a link."""

    item: MemoryItem
    relation: Relation

    @property
    def item_id(self) -> str:
        """Names the relation in the source."""
        return f"{self.item.item_id}\x1f{self.relation.word}\x1f{self.relation.target}"


class RelationBatch:
    """The plan of one commit.

    Args:
        joints: The relations.
        places: Where each memory is, by its id in the source.
        context: Time, types and spaces of the commit.
        known: What earlier imports brought.
    """

    def __init__(self, joints: Sequence[Joint], places: Mapping[str, str], context: Context, known: Known) -> None:
        self._joints = joints
        self._places = places
        self._context = context
        self._known = known
        self.linked = 0
        self.left_out: list[LeftOut] = []

    def plan(self, snapshot: Snapshot) -> ChangeSet:
        """The batch's changes; a link that cannot be made is left out alone."""
        self.linked, self.left_out = 0, []
        wanted: list[Joint] = []
        edits: list[EditOp] = []
        for joint in self._joints:
            source, target = self._places.get(joint.item.item_id), self._places.get(joint.relation.target)
            if self._known.get(joint.item_id) is not None or source is None or target is None or source == target:
                continue
            wanted.append(joint)
            edits.append(EditOp(uri=source, links=[Link(uri=target, relation=_word(joint.relation.word))]))
        decided = plan(MemoryOperations(edit_operations=edits), snapshot, self._context)
        results = []
        for joint, result in zip(wanted, decided.results, strict=True):
            if result.action is Action.REJECTED:
                what = f"relation {joint.relation.word!r} to {joint.relation.target!r}"
                self.left_out.append(LeftOut(f"{joint.item.place}, {what}", result.reason or "it was refused"))
                results.append(result)
            else:
                self.linked += result.action is Action.UPDATED
                results.append(self._known.marked(replace(result, op="import"), joint.item_id, digest_of("")))
        return replace(decided, results=tuple(results))


def _word(word: str) -> str:
    """The relation of ours that says the same, else only that the two have to do with each other."""
    return word if word in LINK_RELATIONS else "similar"
