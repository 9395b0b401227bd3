"""Putting several memories in order at once: tags, pins, and the project they belong to, in one commit.

What a memory says stays, and so do its version and its time. One undo takes all of it back; a memory that cannot be
changed is refused alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from memory_core.core.command import Arg, Command
from memory_core.core.commit.working_copy import WorkingCopy
from memory_core.core.errors import FieldRejected, InvalidInput, RunebookError
from memory_core.core.feature import Feature
from memory_core.core.memory.memory import Memory
from memory_core.core.memory.memory_type import MemoryType, ProjectMode
from memory_core.core.memory.metadata import FIELDS, PINNED, TAG_CHARS
from memory_core.core.memory.operations import escaped, refusal
from memory_core.core.memory.project import GLOBAL, project_name
from memory_core.core.memory.requests import Now
from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt, OperationResult
from memory_core.core.store.local import Snapshot
from memory_core.core.text.unicode_form import unicode_form

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

KIND = "organize"


@dataclass(frozen=True, slots=True)
class OrganizeRequest:
    """Tag memories, pin them, or move them to a project, all in one commit."""

    uris: Annotated[Sequence[str], Arg(help="The memories.", positional=True, metavar="URI")]
    tags: Annotated[Sequence[str], Arg(help="Add this tag.", flag="--tag", metavar="TAG", repeatable=True)] = ()
    untags: Annotated[
        Sequence[str], Arg(help="Take this tag away.", flag="--untag", metavar="TAG", repeatable=True)
    ] = ()
    pinned: Annotated[bool | None, Arg(help="Keep them from being condensed or archived by themselves.")] = None
    project: Annotated[str | None, Arg(help='Move them to this project; "global" is none.', metavar="NAME")] = None
    dry_run: Annotated[bool, Arg(help="Show what would change; store nothing.")] = False
    now: Now = None


def organize(memory: Runebook, request: OrganizeRequest) -> CommitReceipt:
    """Change how memories are ordered.

    Raises:
        InvalidInput: If no memory is named, nothing is to be changed, or a tag or a project cannot be one.
        ContentRejected: If a tag or the project holds a secret.
    """
    if not request.uris:
        raise InvalidInput("no memory is named.", hint="Give one URI or more, as ls and find print them.")
    given = [tag_name(tag) for tag in request.tags]
    taken = {tag_name(tag) for tag in request.untags}
    if not given and not taken and request.pinned is None and request.project is None:
        raise InvalidInput("nothing is to be changed.", hint="Give a tag to add or to take away, pinned, or a project.")
    wanted: dict[str, Any] = {} if request.pinned is None else {PINNED: request.pinned or None}
    if request.project is not None:
        name = request.project.strip()
        wanted["project"] = None if name.casefold() == GLOBAL else project_name(name)
    memory.commits.cleaner.check_names(project=wanted.get("project"))
    for tag in given:
        memory.commits.cleaner.check_names(tag=tag)
    context = memory.plan_context(now := request.now or datetime.now(UTC))

    def planned(snapshot: Snapshot) -> ChangeSet:
        copy = WorkingCopy(snapshot, context)
        results = []
        for uri in request.uris:
            try:
                found, memory_type = copy.typed(copy.owned(uri))
                changed = _ordered(copy, found, memory_type, {**wanted, "tags": _tags(found, given, taken)})
            except RunebookError as error:
                results.append(refusal(KIND, uri, error))
                continue
            same = changed.text == found.text
            if not same:
                copy.store(changed)
            results.append(OperationResult(KIND, str(found.uri), Action.UNCHANGED if same else Action.UPDATED))
        return ChangeSet(copy.changes(), tuple(results))

    receipt = memory.store.commit(planned, kind=KIND, now=now, dry_run=request.dry_run, large_of=memory.user_space)
    return memory.indexed(receipt)


def tag_name(text: str) -> str:
    """A tag as it is stored: NFC, without the # that some write before it.

    Raises:
        InvalidInput: If it is blank, too long, or holds what no line of text does.
    """
    name = unicode_form("NFC", text).strip().removeprefix("#").strip()
    if not name or len(name) > TAG_CHARS or not name.isprintable():
        raise InvalidInput(f"{escaped(text[:60])!r} is no tag.", hint=f"Use 1 to {TAG_CHARS} printable characters.")
    return name


def _tags(memory: Memory, given: Sequence[str], taken: set[str]) -> list[str] | None:
    """The tags that a memory has then; None for none."""
    tags = [tag for tag in dict.fromkeys((*memory.metadata.tags, *given)) if tag not in taken]
    return FIELDS["tags"].stored(tags) or None


def _ordered(copy: WorkingCopy, memory: Memory, memory_type: MemoryType, wanted: Mapping[str, Any]) -> Memory:
    """The memory with this metadata.

    Raises:
        FieldRejected: If its file is damaged, its type belongs to no project, or the project has such a memory.
    """
    if memory.damage is not None:
        raise FieldRejected(f"{memory.damage}.", hint="Mend or remove the file's trailer by hand.")
    metadata = dict(wanted)
    moves = "project" in wanted and wanted["project"] != memory.project
    if moves:
        if memory_type.project is ProjectMode.NEVER:
            raise FieldRejected(f"memories of type '{memory_type.name}' belong to no project.", hint="Leave it out.")
        metadata["private"] = memory.metadata.get("private") if wanted["project"] else None
    if all(memory.metadata.get(name) == value for name, value in metadata.items()):
        return memory
    changed = memory.changed(metadata=metadata)
    other = copy.holder(changed) if moves else None
    if other is not None:
        raise FieldRejected(f"{str(other)!r} is there already.", hint="Merge the two by hand, or rename one.")
    return changed


ORGANIZE = Command("organize", OrganizeRequest, organize, fails=lambda receipt: receipt.has_refusals, writes=True)
FEATURE = Feature(commands=(ORGANIZE,))
