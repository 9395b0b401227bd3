"""Features: slices that add to a store without the core knowing them.

A feature is a module with a ``Feature`` in it. What it adds is listed there: commands, kinds of files that are no
memories, steps of a commit, parts of a context, passes of upkeep. Which features there are is given to whoever opens
a store, as slices: a name, the module, and what it adds by name, so that a module is imported when something of it is
needed and not before. Without a slice everything else works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from memory_core.core.command import Argument, Command
from memory_core.core.errors import InvalidInput
from memory_core.core.frozen import frozen
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.text.unicode_form import unicode_form

if TYPE_CHECKING:
    from memory_core.core.commit.working_copy import PlanContext
    from memory_core.core.config import Config
    from memory_core.core.index.documents import Document
    from memory_core.core.memory.message import Message
    from memory_core.core.memory.operations import MemoryOperations, WriteOp
    from memory_core.core.memory.results import ChangeSet, Hit, OperationResult
    from memory_core.core.search.context_formats import Piece
    from memory_core.core.search.context_sources import PieceReader
    from memory_core.core.store.local import Snapshot


class RecordKind:
    """A kind of files that are no memories; what a kind does not say is as for any other Markdown file.

    Files of the archive are asked about by the URI that they had before.

    Attributes:
        name: Memory type of its documents and of its writes.
        names: Memory types and categories whose writes are for a file of this kind, folded.
        has_entries: Whether ``<uri>#<line>`` is a part of such a file.
        is_appended: Whether a write only adds to its end.
    """

    name: str = ""
    names: frozenset[str] = frozenset()
    has_entries: bool = False
    is_appended: bool = False

    def holds(self, uri: MemoryUri) -> bool:
        """Whether a file is of this kind."""
        raise NotImplementedError

    def documents(self, uri: MemoryUri, text: str) -> Sequence[Document]:
        """What is searched of a file; nothing, unless the kind has documents."""
        return ()

    @property
    def is_searched(self) -> bool:
        """Whether files of this kind have documents."""
        return type(self).documents is not RecordKind.documents

    def privacy_source(self, uri: MemoryUri) -> MemoryUri | None:
        """The file whose privacy a file shares; None where it has its own."""
        return None

    def assignments(self, text: str) -> Iterable[tuple[str | None, bool]] | None:
        """Project and privacy of each entry; None where the trailer says it of the whole."""
        return None

    def listing_line(self, text: str) -> str | None:
        """What a file says, for a listing; None where that is what a memory's would be."""
        return None

    def entry_lengths(self, text: str) -> Mapping[int, int]:
        """How many lines entries have, by the line at which each begins; any other line stands for itself."""
        return {}

    def entries(self, text: str, starts: Iterable[int]) -> dict[int, str]:
        """The entries that begin at these lines; an empty one where the text has no such line."""
        lines, lengths = text.split("\n"), self.entry_lengths(text)
        return {start: "\n".join(lines[start : start + lengths.get(start, 1)]) for start in starts}

    def resting_lines(self, uri: MemoryUri, text: str) -> tuple[MemoryUri, Sequence[tuple[int, int]]] | None:
        """A log and its lines, first and last, that are not in use while this file is archived; None for none."""
        return None

    def piece(self, reader: PieceReader, uri: str, hit: Hit | None) -> Piece | None:
        """A file, or an entry of it, as a context shows it."""
        return None

    def takes(self, name: str | None) -> bool:
        """Whether a write with this type or category is for such a file; case, width, ``_``, ``-`` do not matter."""
        folded = unicode_form("NFKC", name or "").casefold().replace("_", " ").replace("-", " ")
        return " ".join(folded.split()) in self.names

    def target(self, context: PlanContext, moment: datetime) -> MemoryUri:
        """The file that a write of this moment is for; its offset decides the day."""
        raise NotImplementedError

    def check_size(self, uri: MemoryUri, chars: int) -> None:
        """Refuse a write that makes a file of this kind too long; by itself a kind refuses none.

        Args:
            uri: The file.
            chars: How many it would have.

        Raises:
            TooLarge: The file would have more than a kind takes.
        """

    def with_write(self, text: str | None, write: WriteOp, context: PlanContext, moment: datetime) -> tuple[str, str]:
        """The file with a write, and a note for its result; of a kind that is appended, what comes to its end.

        Args:
            text: The file as it is; None where there is none. Of a kind that is appended, its end is enough.
            write: Of a commit.
            context: Of its plan.
            moment: Its time.

        Raises:
            RunebookError: If this write is refused; the commit's other writes go on.
        """
        raise NotImplementedError


class Cleaner:
    """Takes out of a commit what must not be stored; this one takes nothing out, as of a store that has none."""

    def text(self, text: str) -> str:
        """A text as it may be kept."""
        return text

    def result(self, result: OperationResult) -> OperationResult:
        """A result as it may be shown."""
        return result

    def check_names(self, **names: str | None) -> None:
        """Refuse names that cannot be kept.

        Raises:
            ContentRejected: If one cannot.
        """

    def messages(self, messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        """Messages as they may be stored, and notes for the receipt."""
        return tuple(messages), ()

    def operations(self, operations: MemoryOperations) -> Cleaned:
        """Operations as they may be planned."""
        return Cleaned(operations)


@frozen
class Cleaned:
    """Operations without secrets.

    Attributes:
        operations: Those that may be planned.
        refused: A result for each that was taken out.
        notes: For the receipt.
    """

    operations: MemoryOperations
    refused: tuple[OperationResult, ...] = ()
    notes: tuple[str, ...] = ()


#: Keeps operations for the store's owner instead of doing them; the arguments are those of ``decide``.
Reviewer = Callable[["MemoryOperations", "Snapshot", "PlanContext", datetime, "Features"], "ChangeSet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """What a feature adds; everything but commands and their arguments is named in its slice, too.

    A store is the ``Runebook`` that is open.

    Attributes:
        commands: What can be asked of it.
        commit_arguments: By name, what answers an argument of a commit: given the store, the ``CommitRequest`` and
            the value.
        record_kinds: Kinds of files that are no memories.
        cleaner: Given the settings, takes out of each commit what must not be stored.
        reviewer: Keeps for the owner what a model proposes, where the settings say so.
        learner: What new messages teach without a model: ``Growing`` in, ``Learned`` out.
        hints: Lines about messages for the model that extracts them.
        extracted_lines: Given the store's files and a log: lines that memories were made of out of their order.
        removals: Completes a change set that removes memories, given it, the snapshot and the plan's context.
        after_commit: Called with the store, a receipt and the moment, after a commit that changed conversations.
        follow_up: Given the store: what comes after an extraction, see ``intake.FollowUp``.
        opening: Pieces that a session's first context begins with, given the reader, the moment and the settings.
        turn_groups: Given the reader of a context: the group of a turn, by its log and line.
        pages: Pages that can be read and are no files.
        passes: Of upkeep.
        background: Starts what the feature does by itself while a server has the store open, given the store.
    """

    commands: tuple[Command[Any, Any], ...] = ()
    commit_arguments: Mapping[str, Callable[[Any, Any, Any], Any]] = field(default_factory=dict)
    record_kinds: tuple[RecordKind, ...] = ()
    cleaner: Callable[[Config], Cleaner] | None = None
    reviewer: Reviewer | None = None
    learner: Callable[[Any], Any] | None = None
    hints: Callable[[Sequence[Message]], Sequence[str]] | None = None
    extracted_lines: Callable[[Any, MemoryUri], frozenset[int]] | None = None
    removals: Callable[[ChangeSet, Snapshot, PlanContext], ChangeSet] | None = None
    after_commit: Callable[[Any, Any, datetime], None] | None = None
    follow_up: Callable[[Any], Any] | None = None
    opening: Callable[[PieceReader, datetime, Any], Iterable[tuple[Piece | None, bool]]] | None = None
    turn_groups: Callable[[PieceReader], Callable[[str, int], tuple[str, str] | None]] | None = None
    pages: Any = None
    passes: tuple[Any, ...] = ()
    background: Callable[[Any], None] | None = None


class Slice(NamedTuple):
    """A feature that may be taken out, or one module of it.

    Attributes:
        name: Of the feature; those of one name go together.
        module: Holds ``FEATURE``.
        words: First words of its commands.
        adds: Members of its ``Feature`` that the core asks for.
        arguments: Of a commit that it answers, in the place of storing something.
    """

    name: str
    module: str
    words: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()
    arguments: tuple[Argument, ...] = ()


class Features:
    """The features of an open store; a module is imported when it is first needed.

    Args:
        slices: Which there are.
    """

    def __init__(self, slices: Sequence[Slice] = ()) -> None:
        self.slices = tuple(slices)
        self._members: dict[str, tuple[Any, ...]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Which features there are."""
        return tuple(dict.fromkeys(each.name for each in self.slices))

    def without(self, name: str) -> Features:
        """All but one."""
        return Features([each for each in self.slices if each.name != name])

    def members(self, name: str) -> tuple[Any, ...]:
        """What the features have in a member of ``Feature``, in their order."""
        if name not in self._members:
            modules = (each for each in self.slices if name in each.adds)
            self._members[name] = tuple(getattr(_feature(each), name) for each in modules)
        return self._members[name]

    @cached_property
    def record_kinds(self) -> tuple[RecordKind, ...]:
        """The kinds of files that are no memories."""
        return tuple(kind for kinds in self.members("record_kinds") for kind in kinds)

    def kind_of(self, uri: MemoryUri) -> RecordKind | None:
        """The kind of a file, archived or not; None for memories, conversations and whatever else there is."""
        place = MemoryUri(uri.parts[1:]) if uri.scope is Scope.ARCHIVE else uri
        return next((kind for kind in self.record_kinds if kind.holds(place)), None)

    def kind_for(self, name: str | None) -> RecordKind | None:
        """The kind that takes writes with this memory type or category."""
        return next((kind for kind in self.record_kinds if kind.takes(name)), None)

    def cleaner(self, config: Config) -> Cleaner:
        """What takes out of each commit what must not be stored."""
        found: Cleaner = next((make(config) for make in self.members("cleaner")), Cleaner())
        return found

    def completed(self, decided: ChangeSet, snapshot: Snapshot, context: PlanContext) -> ChangeSet:
        """A change set that removes memories, or moves them away, with what features change for it."""
        for complete in self.members("removals"):
            decided = complete(decided, snapshot, context)
        return decided

    @property
    def reviewer(self) -> Reviewer | None:
        """What keeps operations for the owner, if there is such a feature."""
        return next(iter(self.members("reviewer")), None)

    @property
    def commit_arguments(self) -> tuple[Argument, ...]:
        """Arguments of a commit that features answer."""
        return tuple(argument for each in self.slices for argument in each.arguments)

    def answer(self, memory: Any, commit: Any, name: str, value: Any) -> Any:
        """What a feature makes of an argument of a commit.

        Raises:
            InvalidInput: If there is no such argument.
        """
        for each in self.slices:
            if any(argument.name == name for argument in each.arguments):
                return _feature(each).commit_arguments[name](memory, commit, value)
        raise InvalidInput(f"'{name}' is not an argument.", hint="Leave it out.")

    def commands(self, word: str | None = None) -> Iterator[Command[Any, Any]]:
        """Commands that begin with a word; all of them without one."""
        for each in self.slices:
            if each.words and (word is None or word in each.words):
                for command in _feature(each).commands:
                    if word is None or command.name.split()[0] == word:
                        yield command


#: Of a store that can only commit, find and read.
NO_FEATURES = Features()


def _feature(each: Slice) -> Feature:
    found: Feature = import_module(each.module).FEATURE
    return found
