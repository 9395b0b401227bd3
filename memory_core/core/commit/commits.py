"""Commits of operations and of explicit content.

It checks sizes, builds the plan's context and leaves every decision to the pure planner. It runs no model: what a model
decided arrives as operations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from pydantic import ValidationError

from memory_core.core.commit.conflicts import at_their_places, changed_since, taken_away
from memory_core.core.commit.decide import decide
from memory_core.core.commit.working_copy import PlanContext, WriteMode
from memory_core.core.config import Config
from memory_core.core.errors import ContentRejected, InvalidInput, InvalidUri, TooLarge
from memory_core.core.feature import Features
from memory_core.core.frozen import frozen
from memory_core.core.index.documents import MESSAGES_NAME
from memory_core.core.memory.memory_type import CONTENT, MemoryType, MemoryTypeRegistry, resolve_category
from memory_core.core.memory.message import Message, dump_lines, parse_lines
from memory_core.core.memory.metadata import CATEGORY, FIELDS, METADATA, utc_text
from memory_core.core.memory.operations import MemoryData, MemoryOperations, WriteOp, escaped, flatten_extras
from memory_core.core.memory.project import NO_PROJECT, ProjectAssignment
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.memory.results import (
    Action,
    ChangeSet,
    CommitReceipt,
    OperationResult,
    SessionProgress,
    text_sha256,
)
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.store.local import Snapshot, Store

PRIORITIES: Mapping[str, float] = {"low": 0.3, "normal": 0.5, "high": 0.8, "critical": 1.0}


def salience_of(priority: str | float | None) -> float | None:
    """``priority`` as salience in [0, 1]; None stays None.

    Raises:
        InvalidInput: If it is neither a number in [0, 1] nor low, normal, high or critical.
    """
    if priority is None:
        return None
    if isinstance(priority, str):
        known = PRIORITIES.get(priority.strip().casefold())
        if known is not None:
            return known
        try:
            priority = float(priority)
        except ValueError:
            priority = -1.0
    if isinstance(priority, bool) or not 0.0 <= priority <= 1.0:
        raise InvalidInput(
            "priority is not one Runebook knows.", hint="Use low, normal, high, critical, or a number from 0 to 1."
        )
    return float(priority)


DEFAULT_TYPE = "notes"
#: The setting ``review`` under which what a model proposes waits for the owner.
_REVIEWED = "automatic"
#: Operations of one commit, sound or not; and how many malformed ones, and unknown keys, its receipt names.
OPERATIONS_MOST, _NAMED = 10_000, 50
#: A commit that brings so much may take long to plan.
LARGE_CHARS = 32_768
#: Files that must still be as they were; each is read while other writers wait.
_EXPECTED_MOST = 2_000
#: Metadata that a commit of one memory may give.
_GIVEN = frozenset(field.name for field in METADATA if "commit" in field.given_by)


def parse_operations(raw: Mapping[str, Any] | MemoryOperations) -> tuple[MemoryOperations, list[OperationResult]]:
    """Read operations item by item, so that one malformed item never spoils the others.

    Returns:
        The sound operations; and a result for each item that was left out, of very many for the first ones, and one
        for all others.

    Raises:
        InvalidInput: If ``raw`` is not an object.
        TooLarge: If it holds more than ``OPERATIONS_MOST`` items. None was read.
    """
    if isinstance(raw, MemoryOperations):
        return raw, []
    if not isinstance(raw, Mapping):
        raise InvalidInput("operations must be an object.", hint="Send {write_operations: [...], …}.")
    groups = {name: _items(value) for name, value in raw.items() if name.endswith("_operations")}
    if (count := sum(map(len, groups.values()))) > OPERATIONS_MOST:
        raise TooLarge(
            f"operations holds {count:,} items; the limit is {OPERATIONS_MOST:,}.",
            hint="Send them in several commits.",
        )
    sound: dict[str, Any] = {name: value for name, value in raw.items() if name not in groups}
    named: list[str] = []
    more = 0
    for name, items in groups.items():
        kept = sound.setdefault(name, [])
        for index, item in enumerate(items):
            try:
                MemoryOperations.model_validate({name: [item]})
            except ValidationError as error:
                if len(named) == _NAMED:
                    more += 1
                    continue
                where, wrong = _first_fault(error, 2)
                named.append(escaped(f"{name}[{index}].{where}: {wrong}".replace("].:", "]:")))
            else:
                kept.append(item)
    dropped = [_malformed(line, "Correct that item and send it again.") for line in named]
    if more:
        dropped.append(_malformed(f"and {more:,} more malformed items.", "Correct those as well and send them again."))
    try:
        return MemoryOperations.model_validate(sound), dropped
    except ValidationError as error:
        raise InvalidInput(f"operations.{': '.join(_first_fault(error))}.", hint="Correct that member.") from None


def _malformed(line: str, hint: str) -> OperationResult:
    return OperationResult("operations", "", Action.REJECTED, line, hint)


def _first_fault(error: ValidationError, depth: int = 0) -> tuple[str, str]:
    """Where an object is wrong, below so many levels, and how."""
    first = error.errors()[0]
    return ".".join(map(str, first["loc"][depth:])), first["msg"]


def _items(value: Any) -> list[Any]:
    """A list of operations; some hosts send the list, or a single item, as JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return [value]
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


@frozen
class Span:
    """Messages ``start`` to ``end`` (not included) of a session's log, whose memories a commit brings.

    ``sha256`` is that of their lines; empty where a ``Settlement`` says whether they still stand there. ``earlier`` is
    the first of the messages that a model was shown before them, and the SHA-256 of these lines.
    """

    log: MemoryUri
    start: int
    end: int
    sha256: str = ""
    earlier: tuple[int, str] | None = None


class Settlement(Protocol):
    """What operations were made of where that is no ``Span``, and what of it changes in the commit that brings them."""

    def refusal(self, snapshot: Snapshot) -> ChangeSet | None:
        """Why nothing is done, if it no longer waits for these memories; None if it does."""
        ...

    def settled(self, decided: ChangeSet, snapshot: Snapshot) -> ChangeSet:
        """The change set with what is then done."""
        ...


class Commits:
    """Commits to one store on behalf of one user and agent space.

    Args:
        store: The store.
        registry: The memory types.
        config: Names the spaces that are changed.
        features: Of the store.
        user_space: The user's own space, which a shared one that is changed is not.
    """

    def __init__(
        self,
        store: Store,
        registry: MemoryTypeRegistry,
        config: Config,
        features: Features,
        user_space: str,
    ) -> None:
        self._store = store
        self._registry = registry
        self._config = config
        self.features = features
        self.user_space = user_space
        self.cleaner = features.cleaner(config)
        #: Keeps for the owner what a model or a cue proposes; None where everything is done at once.
        self.reviewer = features.reviewer if config.review == _REVIEWED else None

    def apply_operations(
        self,
        operations: Mapping[str, Any] | MemoryOperations,
        *,
        dropped: Sequence[OperationResult] = (),
        source_kind: str = "auto_reflection",
        session_id: str | None = None,
        request_id: str | None = None,
        dry_run: bool = False,
        now: datetime | None = None,
        seen: Mapping[str, str] | None = None,
        reads_elsewhere: bool = False,
        only_if: Mapping[str, str] | None = None,
        span: Span | None = None,
        settlement: Settlement | None = None,
        kind: str = "commit",
        assignment: ProjectAssignment = NO_PROJECT,
        said_at: datetime | None = None,
        write_mode: WriteMode = WriteMode.REFUSE,
        watch: Callable[[ChangeSet], None] = lambda _planned: None,
    ) -> CommitReceipt:
        """Execute operations as one commit; ``receipt.changed_uris`` are the files that changed.

        Args:
            operations: MemoryOperations, parsed or as JSON.
            dropped: Of parsed ones, the results of malformed items that were left out.
            source_kind: ``user_explicit`` or ``auto_reflection``; written into new memories.
            session_id: Session the knowledge comes from.
            request_id: Makes a retry return the first receipt.
            dry_run: Plan only.
            now: Time of the commit, with the offset that decides the day of a log; default the clock's, on the wall.
            seen: SHA-256 of the files as the author of the operations saw them; see ``PlanContext``.
            reads_elsewhere: Whether the author may have read other files too.
            only_if: SHA-256 of files that must still be so, or nothing at all is done; see ``conflicts.changed_since``.
            span: The messages that the operations were made of. They leave the queue with this commit, unless
                nothing of it could be applied or a file changed meanwhile. Operations may then be empty.
            settlement: Likewise, for messages out of their order.
            kind: Of the commit, shown in history.
            assignment: The project of the memories.
            said_at: When what the operations tell was said, aware; None is now.
            write_mode: What a write does where text stands that it does not say, unless the write says `replace`.
            watch: Told what is planned, before it is done or, with ``dry_run``, instead.

        Raises:
            InvalidInput: If there is nothing to do.
            TooLarge: If the whole is too large, or ``only_if`` names too many files.
        """
        parsed, malformed = parse_operations(operations)
        dropped = [*dropped, *malformed]
        if not len(parsed) and not dropped and span is None and settlement is None:
            raise InvalidInput(
                "operations holds no operation.",
                hint="Send at least one write, edit, delete or overview operation; types and fields: runebook types.",
            )
        sent = json.dumps(parsed.model_dump(), ensure_ascii=False)
        self.check_size(sent)
        if only_if is not None and len(only_if) > _EXPECTED_MOST:
            raise TooLarge(
                f"expected names {len(only_if):,} files; the limit is {_EXPECTED_MOST:,}.",
                hint="Name only the files that the operations change, or send them in several commits.",
            )
        if session_id is not None:
            self.session_uri(session_id)
        self.cleaner.check_names(session_id=session_id, request_id=request_id, project=assignment.project)
        cleared = self.cleaner.operations(parsed)
        parsed = cleared.operations
        moment = now or datetime.now().astimezone()
        by_model = source_kind != "user_explicit" and (span or settlement or seen) is not None
        settle = self.reviewer if by_model and self.reviewer is not None else decide
        context = replace(
            self.context(moment, source_kind, session_id, said_at),
            seen=seen,
            reads_elsewhere=reads_elsewhere,
            assignment=assignment,
            write_mode=write_mode,
            quotes=True,
        )
        refused_before = tuple(map(self.cleaner.result, (*dropped, *cleared.refused)))
        notes = cleared.notes
        if ignored := flatten_extras(parsed):
            others = f" and {len(ignored) - _NAMED:,} more" if len(ignored) > _NAMED else ""
            told = f"ignored unknown keys: {', '.join(ignored[:_NAMED])}{others}"
            notes = (escaped(self.cleaner.text(told)), *notes)

        is_extraction = span is not None or settlement is not None
        read = seen if seen is not None and is_extraction and not reads_elsewhere else {}

        def planned(snapshot: Snapshot) -> ChangeSet:
            if (refused := self._refusal(snapshot, only_if, read, span, settlement)) is not None:
                return refused
            here = context if seen is None else replace(context, seen=at_their_places(snapshot, seen))
            decided = settle(parsed, snapshot, here, moment, self.features)
            results = (*map(self.cleaner.result, decided.results), *refused_before)
            decided = replace(decided, results=results, notes=(*decided.notes, *notes))
            watch(decided)
            if _spoilt(decided):
                return decided
            if settlement is not None:
                decided = settlement.settled(decided, snapshot)
            elif span is not None:
                decided = replace(decided, progress=SessionProgress(span.log, extracted=span.end))
            return _explained(decided, parsed.reasoning)

        return self._store.commit(
            planned,
            kind=kind,
            request_id=request_id,
            now=moment,
            dry_run=dry_run,
            large_of=self.user_space,
            is_large=len(sent) >= LARGE_CHARS or len(dropped) > _NAMED,
        )

    def remember(self, request: CommitRequest, request_id: str | None, assignment: ProjectAssignment) -> CommitReceipt:
        """Store one explicit memory as it was given, or what a feature stores under its name.

        Args:
            request: What is to be remembered.
            request_id: Its name in the ledger.
            assignment: The project of the memory.

        Raises:
            InvalidInput: If an argument is wrong.
            NotFound: If the memory type is unknown.
        """
        return self.apply_operations(
            MemoryOperations(write_operations=[WriteOp(memory_data=self._given(request))]),
            source_kind="user_explicit",
            session_id=request.session_id,
            request_id=request_id,
            dry_run=request.dry_run,
            now=request.now,
            only_if=request.expected,
            assignment=assignment,
            write_mode=WriteMode.ADD,
        )

    def _given(self, request: CommitRequest) -> MemoryData:
        """One explicit memory as the member of a write."""
        content, category = request.memory_content, request.category
        apart = self.features.kind_for(category if request.memory_type is None else request.memory_type)
        known = self._type_named(request.memory_type, category) if apart is None else None
        values = dict(request.fields or {})
        if content is not None:
            if not content.strip():
                raise ContentRejected("memory_content is blank.", hint="Say what is to be remembered.")
            if known is not None and known.field(CONTENT) is None:
                names = ", ".join(field.name for field in known.fields if field.avg is None)
                raise InvalidInput(
                    f"type '{known.name}' is rendered from its fields and takes no memory_content.",
                    hint=f"Send fields instead; it has {names}.",
                )
            if values.get(CONTENT) not in (None, content):
                raise InvalidInput(
                    "memory_content and fields.content say different things.", hint="Send the text in one of the two."
                )
            values[CONTENT] = content
        FIELDS[CATEGORY].stored(category)
        unknown = [name for name in request.metadata if name not in _GIVEN]
        if unknown:
            raise InvalidInput(f"'{unknown[0]}' is no metadata.", hint=f"There is {', '.join(sorted(_GIVEN))}.")
        given = {"salience": salience_of(request.priority), "category": category, **request.metadata}
        named = apart or known
        name = DEFAULT_TYPE if named is None else named.name
        try:
            return MemoryData(memory_type=name, fields=values, **given)
        except ValidationError as error:
            raise InvalidInput(
                f"{': '.join(_first_fault(error))}.", hint="Field values are text, numbers or booleans."
            ) from None

    def _refusal(
        self,
        snapshot: Snapshot,
        expected: Mapping[str, str] | None,
        read: Mapping[str, str],
        span: Span | None,
        settlement: Settlement | None,
    ) -> ChangeSet | None:
        """Why nothing of operations is done; None if they may be planned. ``read`` is all that a model was shown."""
        if expected is not None and (refused := changed_since(snapshot, expected)) is not None:
            return refused
        if span is not None and not self._awaits(span, snapshot):
            return done_meanwhile(span.log)
        if settlement is not None and (refused := settlement.refusal(snapshot)) is not None:
            return refused
        return taken_away(snapshot, read)

    def _awaits(self, span: Span, snapshot: Snapshot) -> bool:
        row = self._store.ledger.extractions.get(span.log)
        if row is None or row.extracted != span.start:
            return False
        messages, _ = parse_lines(snapshot.text(span.log) or "")
        stands = text_sha256(dump_lines(messages[span.start : span.end])) == span.sha256
        return stands and (span.earlier is None or span.earlier == earlier_than(span.start, messages, span.earlier[0]))

    def session_uri(self, session_id: str) -> MemoryUri:
        """The message log of a session.

        Raises:
            InvalidUri: If the id cannot be a folder name.
        """
        if "/" in session_id or not session_id.strip() or session_id.startswith("."):
            raise InvalidUri(
                f"session_id {session_id!r} cannot be a folder name.", hint="Use letters, digits, '-' and '_'."
            )
        return self.sessions.child(session_id).child(MESSAGES_NAME)

    @property
    def sessions(self) -> MemoryUri:
        """The directory of this user's sessions."""
        return MemoryUri((Scope.SESSION.value, self._config.user_space))

    def _type_named(self, memory_type: str | None, category: str | None) -> MemoryType:
        """The type that was asked for; a category of another vocabulary stands for one of ours."""
        name = memory_type or (resolve_category(category) if category else None) or DEFAULT_TYPE
        return self._registry.find(name) or self._registry.get(resolve_category(name) or name)

    def context(
        self, moment: datetime, kind: str, session_id: str | None, said_at: datetime | None = None
    ) -> PlanContext:
        """What a plan of a commit at this moment is told; what was said later than that is said now."""
        source = {"kind": kind} | ({"session_id": session_id} if session_id else {})
        return PlanContext(
            registry=self._registry,
            user_space=self._config.user_space,
            agent_space=self._config.agent_space,
            now=utc_text(moment),
            said_at=None if said_at is None or said_at > moment else utc_text(said_at),
            source=source,
            content_bytes=self._config.limits.content_bytes,
        )

    def check_size(self, text: str, messages: int = 0) -> None:
        """Refuse a commit over the limits.

        Raises:
            TooLarge: If the text is longer in UTF-8 than ``limits.commit_bytes``, or there are more messages than
                ``limits.commit_messages``.
        """
        most = self._config.limits.commit_messages
        if messages > most:
            raise TooLarge(
                f"the commit has {messages:,} messages; the limit is {most:,}.",
                hint="Send them in several commits, in their order; of a stored conversation the last ones suffice.",
            )
        size = len(text.encode("utf-8", "surrogatepass"))
        limit = self._config.limits.commit_bytes
        if size > limit:
            raise TooLarge(
                f"the commit is {size:,} bytes; the limit is {limit:,}.", hint="Send it in several smaller commits."
            )


def earlier_than(start: int, messages: Sequence[Message], first: int) -> tuple[int, str]:
    """What ``Span.earlier`` is of the messages from ``first`` on that stand before ``start``."""
    return first, text_sha256(dump_lines(messages[first:start]))


def _explained(decided: ChangeSet, reasoning: str | None) -> ChangeSet:
    """The change set with a line that says why nothing was remembered of a session, where nothing was."""
    if decided.results or decided.progress is None:
        return decided
    why, log = escaped((reasoning or "").strip()) or "no reason given", str(decided.progress.log)
    result = OperationResult("extraction", log, Action.UNCHANGED, note=f"nothing to remember: {why}")
    return replace(decided, results=(result,))


def _spoilt(decided: ChangeSet) -> bool:
    """Whether a file changed meanwhile, or nothing could be applied: the messages then stay in the queue."""
    rejected = [result for result in decided.results if result.action is Action.REJECTED]
    return any(result.conflict for result in rejected) or bool(rejected and len(rejected) == len(decided.results))


_DONE_MEANWHILE = "these messages were extracted or changed meanwhile, by another client; nothing was changed"


def done_meanwhile(log: MemoryUri | None) -> ChangeSet:
    """Nothing is done: others extracted or changed the messages."""
    result = OperationResult("extraction", str(log or ""), Action.UNCHANGED, note=_DONE_MEANWHILE)
    return ChangeSet((), (result,))


def was_done_meanwhile(receipt: CommitReceipt) -> bool:
    """Whether nothing was applied, because messages or memories are not as the author of the operations saw them."""
    return not receipt.commit_id and any(
        result.note == _DONE_MEANWHILE or result.conflict for result in receipt.results
    )
