"""Forgetting on request: every mention of something, shown first, taken out when the same is confirmed.

Of a memory that says other things, too, only the sentences, the name and the tags that say it go (``mentions`` finds
them); a name is made of what is left. A memory that says nothing else is deleted, an entry of a log is taken out, and
of conversations single messages, whose lines stay empty. All in one transaction, as any other commit; history keeps the
texts, so one undo brings everything back. ``purge`` is for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

from memory_core.core.command import NOWHERE, Arg, Command, read_request
from memory_core.core.commit.forgotten import KIND_FORGET, is_forgotten, without_lines
from memory_core.core.commit.links import named_uris, retargeted, without_links
from memory_core.core.commit.plan import plan
from memory_core.core.commit.working_copy import MOVE_WORK, PlanContext, WorkingCopy
from memory_core.core.errors import InvalidInput, RunebookError, TooLarge
from memory_core.core.feature import Feature, Features, RecordKind
from memory_core.core.index.documents import MESSAGES_NAME
from memory_core.core.memory.memory import parse
from memory_core.core.memory.memory_type import CONTENT
from memory_core.core.memory.message import parse_lines
from memory_core.core.memory.names import first_words, name_field_of, render, summary_line
from memory_core.core.memory.operations import DeleteOp, EditOp, MemoryOperations
from memory_core.core.memory.requests import CommitRequest, FindRequest, Here, Now
from memory_core.core.memory.results import (
    Action,
    ChangeSet,
    CommitReceipt,
    FileChange,
    OperationResult,
    Status,
    text_sha256,
)
from memory_core.core.memory.trailer import join, split
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.store.local import Snapshot
from memory_core.features.mentions import (
    Mention,
    files_of,
    find_mentions,
    name_tells,
    names_of,
    text_without,
    texts_of,
    value_without,
    without,
    worded,
)
from memory_core.features.upkeep.core_memories import archived_originals

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

_SHOWN_CHARS = 120
#: A commit writes so many characters of conversations anew, and one more: it holds each twice, and so does its undo.
_LOGS_CHARS = 16 * 1024**2
_STAYS = "its words cannot be taken out alone; edit it, or forget it whole by its URI."
#: The note where what matches is very long.
_MORE = "there is more than one request takes: forget this first, then ask the same again"
_TOO_MUCH = "one commit does not change so much; forget the rest by another one."
_KEEP_NAMES = "still have the old name of what was renamed: one commit does not change so much; doctor shows which."
_CHANGED = "it says something else meanwhile; look again without confirm."
#: Of what is named by its URI, so many characters are kept to be shown.
_READ_CHARS = 1_000
#: How long the index may take to know what is to be forgotten; what it does not know then is not found.
_INDEX_SECONDS = 5.0
#: A search seldom gives so low a score to what is about the question.
_WEAK = 0.12
#: The note of a preview that shows nothing else.
WEAKLY = "all of these match weakly: perhaps none is about what was asked"


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """Take out what the store says about something, after a look at it.

    Every place that says what the query is about is meant: sentences of memories, whole memories that say nothing
    else, entries of logs, messages. With ``uris`` alone, these files whole; with both, those of the places or nothing.
    ``confirm`` is the number that the preview asks for; if another number of places matches now, nothing is changed.
    """

    query: Annotated[str | None, Arg(help="What is to be forgotten.", positional=True)] = None
    target_uri: Annotated[str, Arg(help="Only below this directory.", flag="--in")] = ""
    filter: Annotated[Mapping[str, Any] | None, Arg(help="Which memories count.", metavar="JSON")] = None
    limit: Annotated[int, Arg(help="Files at most.", least=1, most=100)] = 10
    uris: Annotated[Sequence[str] | None, Arg(help="The files themselves.")] = None
    include_conversations: Annotated[bool, Arg(help="Also single messages of conversations.")] = True
    confirm: Annotated[int | None, Arg(help="How many matches the preview showed.", least=0)] = None
    dry_run: Annotated[bool, Arg(help="Only show.", surfaces=NOWHERE)] = False
    request_id: Annotated[str | None, Arg(surfaces=NOWHERE)] = None
    project: Annotated[str | None, Arg(surfaces=NOWHERE)] = None
    here: Here = None
    now: Now = None


def forget(memory: Runebook, request: ForgetRequest) -> CommitReceipt:
    """Show what would be forgotten, or forget it where that is confirmed; see ``ForgetRequest``.

    Raises:
        InvalidInput: If nothing is named, or an argument is wrong.
    """
    if not (request.query or "").strip() and not request.uris:
        raise InvalidInput(
            "forget names nothing.", hint='Give a query, or uris: {"query": "…"} shows what would be deleted.'
        )
    request_id = memory.request_key(request.request_id)
    if request_id is not None and (first := memory.store.first_receipt(request_id)) is not None:
        return first
    memory.store.adopt(memory.spaces)  # what people wrote and nothing has noticed yet is found, too
    behind = memory.follow_index(_INDEX_SECONDS)
    mentions, is_all = _mentions(memory, request)
    unseen = [*([] if is_all else [_MORE]), *([] if behind is None else [behind.note()])]
    if request.query and len(mentions) >= request.limit:
        unseen.insert(0, "there may be more; raise limit, or ask again")
    chosen = frozenset(request.uris) if (request.query or "").strip() and request.uris is not None else None
    able = [mention for mention in mentions if mention.refused is None]
    going = able if chosen is None else [mention for mention in able if mention.address in chosen]
    differs = _difference(request, going, chosen)
    if request.dry_run or request.confirm is None or differs is not None or not going:
        whole = chosen is None or chosen == {mention.address for mention in going}
        shown = _preview(mentions, going if whole else able, differs)
        weak = [WEAKLY] if going and _match_weakly(memory, going) else []
        return replace(shown, notes=(*shown.notes, *weak, *_left_in_archive(going, memory.store.text), *unseen))
    moment = request.now or datetime.now(UTC)
    context = memory.plan_context(moment)
    naming = _naming(memory, going)
    receipt = memory.store.commit(
        lambda snapshot: memory.features.completed(
            _planned(going, naming, snapshot, context, memory.features), snapshot, context
        ),
        kind=KIND_FORGET,
        request_id=request_id,
        now=moment,
        large_of=memory.user_space,
    )
    memory.after_commit(receipt, moment)
    receipt = memory.indexed(receipt)
    return replace(receipt, notes=(*receipt.notes, *unseen))


def _match_weakly(memory: Runebook, going: Sequence[Mention]) -> bool:
    """Whether no mention comes near what was asked; where age decides the scores, they do not tell."""
    tells = memory.config.search.rank in ("relevance", "balanced")
    return tells and all(mention.score is not None and mention.score < _WEAK for mention in going)


def _result(mention: Mention) -> OperationResult:
    """The line of a receipt that shows a mention, and what goes of it."""
    if mention.refused is not None:
        return OperationResult(KIND_FORGET, mention.address, Action.REJECTED, mention.refused, "Leave it out.")
    score = "" if mention.score is None else f"score {mention.score:.2f}: "
    if mention.is_part:
        gone = [summary_line(each, _SHOWN_CHARS) for each in mention.sentences]
        if mention.name_goes:
            gone.insert(0, f'its name, "{summary_line(mention.name, _SHOWN_CHARS)}"')
        gone += [f'its tag "{tag}"' for tag in mention.gone_tags]
        stays = f"; stays: {summary_line(' '.join(mention.left), _SHOWN_CHARS)}" if mention.name_goes else ""
        note = f"{score}goes: {' … '.join(gone)}{stays}"
        return OperationResult(KIND_FORGET, mention.address, Action.UPDATED, note=note)
    says_more = any(each not in mention.labels for each in worded(mention.text))
    note = f"{score}{summary_line(mention.text if says_more or not mention.name else mention.name, _SHOWN_CHARS)}"
    return OperationResult(KIND_FORGET, mention.address, Action.DELETED, note=note)


def _mentions(memory: Runebook, request: ForgetRequest) -> tuple[list[Mention], bool]:
    """What a request means, the best first, and whether that is all."""
    query = (request.query or "").strip()
    if not query:
        return _named(memory, request), True
    if request.target_uri:
        memory.browser.visible(MemoryUri.parse(request.target_uri))
    scope = memory.projects.scope(request.project, request.here)
    wanted = FindRequest(query, request.target_uri, request.limit, filter=request.filter, now=request.now)
    return find_mentions(memory, wanted, scope, conversations=request.include_conversations)


def _named(memory: Runebook, request: ForgetRequest) -> list[Mention]:
    """What a caller names itself, in that order; each file is read once."""
    named = [Mention.at(address) for address in dict.fromkeys(request.uris or ())]
    named = [replace(mention, uri=memory.browser.visible(mention.uri)) for mention in named]
    read = {
        mention.address: mention
        for uri, parts in _by_file(named).items()
        for mention in _read(memory, request, uri, parts)
    }
    return [read[mention.address] for mention in named]


def _by_file(mentions: Iterable[Mention]) -> dict[MemoryUri, list[Mention]]:
    found: dict[MemoryUri, list[Mention]] = {}
    for mention in mentions:
        found.setdefault(mention.uri, []).append(mention)
    return found


def _read(memory: Runebook, request: ForgetRequest, uri: MemoryUri, parts: Sequence[Mention]) -> list[Mention]:
    """What is named of one file, with what it says, or why it cannot go."""
    try:
        text = memory.store.text(uri)
    except RunebookError as error:
        return [replace(part, refused=error.message) for part in parts]
    if text is None:
        refused = "there is no such file; of a directory, name its files or give target_uri with a query."
        return [replace(part, refused=refused) for part in parts]
    if uri.scope is Scope.SESSION or uri.name == MESSAGES_NAME:
        lines = text.split("\n")
        return [_message_of(part, lines, request) for part in parts]
    body = split(text).body
    entries = _entries_of([part for part in parts if part.line is not None], text, memory.features.kind_of(uri))
    seen = text_sha256(text)
    whole = [part for part in parts if part.line is None]
    return [*entries, *(replace(part, text=body[:_READ_CHARS], seen_sha256=seen) for part in whole)]


def _entries_of(parts: Sequence[Mention], text: str, kind: RecordKind | None) -> list[Mention]:
    """Entries of one log, as it says them now."""
    starts = [part.line or 0 for part in parts]
    entries = kind.entries(text, starts) if kind is not None and kind.has_entries else {}
    found = [(part, entries.get(start, "")) for part, start in zip(parts, starts, strict=True)]
    none = "there is no entry on that line."
    return [
        replace(part, text=entry[:_READ_CHARS], seen_sha256=text_sha256(entry), refused=None if entry else none)
        for part, entry in found
    ]


def _difference(request: ForgetRequest, going: list[Mention], chosen: frozenset[str] | None) -> str | None:
    """Why what is confirmed is not what is found now."""
    if chosen is not None and chosen != {mention.address for mention in going}:
        return "uris names other places than match now"
    if request.confirm is not None and request.confirm != len(going):
        return f"{len(going)} match now, not {request.confirm}"
    return None


def _message_of(mention: Mention, lines: Sequence[str], request: ForgetRequest) -> Mention:
    if not request.include_conversations:
        return replace(mention, refused="it is a conversation; include_conversations is not set.")
    if mention.line is None:
        return replace(mention, refused="it is a whole conversation; name single lines, as in messages.jsonl#12.")
    messages, _ = parse_lines(lines[mention.line]) if mention.line < len(lines) else ([], [])
    if not messages or is_forgotten(messages[0]):
        return replace(mention, refused="there is no message on that line.")
    return replace(mention, text=messages[0].text[:_READ_CHARS], seen_sha256=text_sha256(lines[mention.line]))


def _preview(mentions: list[Mention], going: list[Mention], differs: str | None) -> CommitReceipt:
    results = tuple(map(_result, mentions))
    if not going:
        status = Status.REJECTED if mentions else Status.UNCHANGED
        why = "nothing that matches can go, or uris names none of it" if mentions else "nothing matches"
        return CommitReceipt("", status, results, notes=(f"nothing was deleted: {why}",))
    notes = [
        f"nothing was deleted yet; to take out what is listed, send the same with confirm={len(going)}; with uris "
        "beside it, exactly those of these places or nothing; uris without the query delete whole files"
    ]
    if differs is not None:
        notes.insert(0, f"not what was confirmed: {differs}")
    return CommitReceipt("", Status.DRY_RUN, results, notes=tuple(notes))


def _naming(memory: Runebook, going: Iterable[Mention]) -> dict[MemoryUri, list[MemoryUri]]:
    """Of each memory that is to get another name, or to go, the files that name it; of the latter, those it names."""
    going = list(going)
    renamed = {mention.uri: list[MemoryUri]() for mention in going if mention.name_goes}
    wanted = {address: uri for uri in renamed for address in map(str, _addresses(uri))}
    shelves = (files_of(memory, archived=archived, sessions=False) for archived in (False, True) if wanted)
    for uri in chain.from_iterable(shelves):
        kind = memory.features.kind_of(uri)
        if not uri.name.endswith(".md") or uri.is_summary or (kind is not None and kind.has_entries):
            continue
        with suppress(RunebookError):  # what cannot be read cannot be changed; doctor names it
            trailer = split(memory.store.look(uri)[0] or "").trailer or {}
            for named in {wanted[address] for address in named_uris(trailer) & wanted.keys()}:
                renamed[named].append(uri)
    for mention in going:
        if mention.line is None and not mention.is_part:
            with suppress(RunebookError):
                trailer = split(memory.store.look(mention.uri)[0] or "").trailer or {}
                renamed[mention.uri] = [MemoryUri.parse(each) for each in sorted(named_uris(trailer))]
    return renamed


def _addresses(uri: MemoryUri) -> list[MemoryUri]:
    """By what others name a memory: of one in the archive also where it was."""
    return [uri, *([MemoryUri(uri.parts[1:])] if uri.scope is Scope.ARCHIVE else [])]


def _planned(
    going: list[Mention],
    naming: Mapping[MemoryUri, Sequence[MemoryUri]],
    snapshot: Snapshot,
    context: PlanContext,
    features: Features,
) -> ChangeSet:
    """Sentences, memories, entries and messages go in one change set; what names a renamed memory names it anew."""
    copy = WorkingCopy(snapshot, context)
    files = [mention for mention in going if mention.line is None]
    operations = MemoryOperations()
    left: dict[str, str] = {}
    for mention in files:
        if not _may_change(copy, mention.uri):
            left[mention.address] = _TOO_MUCH
            continue
        uri, memory = mention.uri, copy.memory(mention.uri)
        text = copy.text(uri)
        if not mention.is_part and text is not None and text_sha256(text) != mention.seen_sha256:
            left[mention.address] = _CHANGED
            continue
        goes = not mention.is_part and (uri.is_proposal or uri.scope is Scope.ARCHIVE)
        plain = memory is not None and mention.is_part and memory.type is None
        if goes or plain or uri.is_summary or features.kind_of(uri) is not None:
            is_gone = _rewrite(mention, copy)
        else:
            is_gone = _operate(operations, mention, copy)
        if not is_gone:
            left[mention.address] = _STAYS
    decided = plan(operations, snapshot, context) if len(operations) else ChangeSet()
    shown = {mention.address: _result(mention) for mention in files if mention.address not in left}
    results = [each if each.action is Action.REJECTED else shown.get(each.uri, each) for each in decided.results]
    results += [shown[str(change.uri)] for change in copy.changes() if str(change.uri) in shown]
    lines, of_lines = _lines_planned([each for each in going if each.line is not None], snapshot, copy, features)
    results += [_result(replace(each, refused=left[each.address])) for each in files if each.address in left]
    edited = {change.uri: change for change in decided.changes}
    behind = _rename_in_others(copy, edited, naming)
    _unlink_in_others(copy, edited, naming)
    changes = [*edited.values(), *copy.changes()]
    gone = [each for each in going if each.line is not None or each.address not in left]
    notes = (*decided.notes, *behind, *_left_in_archive(gone, snapshot.text))
    return replace(decided, changes=(*changes, *lines), results=(*results, *of_lines), notes=notes)


def _rename_in_others(
    copy: WorkingCopy, edited: dict[MemoryUri, FileChange], naming: Mapping[MemoryUri, Sequence[MemoryUri]]
) -> list[str]:
    """Let relations follow the renamed memories, also in files that the operations changed.

    Returns:
        What is told of those that do not, for one commit does not change so much.
    """
    moved = {change.moved_from: change.uri for change in copy.changes() if change.moved_from is not None}
    named = ((old, pair) for old in moved for pair in zip(_addresses(old), _addresses(moved[old]), strict=True))
    ends = [pair for old, pair in named if pair[0] == old or copy.text(pair[0]) is None]

    def renamed(trailer: dict[str, Any]) -> dict[str, Any]:
        return reduce(lambda left, end: retargeted(left, *end), ends, trailer)

    left = 0
    for source in sorted({source for old in moved for source in naming.get(old, ())}):
        at = moved.get(source, source)
        if not _may_change(copy, at):
            left += 1
            continue
        _change_trailer(copy, edited, at, renamed)
    return [f"relations of {left} files {_KEEP_NAMES}"] if left else []


def _unlink_in_others(
    copy: WorkingCopy, edited: dict[MemoryUri, FileChange], naming: Mapping[MemoryUri, Sequence[MemoryUri]]
) -> None:
    """Take out the relations to memories that are gone, also in files that the operations changed."""
    changes = {**edited, **{change.uri: change for change in copy.changes()}}
    moved = {change.moved_from for change in changes.values()}
    gone = {uri for uri, change in changes.items() if change.after is None and uri not in moved}
    addresses = {str(address) for uri in gone for address in _addresses(uri)}
    named = {source for uri in gone for source in naming.get(uri, ()) if _is_own(copy, source)}
    for at in sorted(chain(named, (MemoryUri((Scope.ARCHIVE.value, *each.parts)) for each in named))):
        if _may_change(copy, at):
            _change_trailer(copy, edited, at, lambda trailer: without_links(trailer, addresses))


def _change_trailer(
    copy: WorkingCopy,
    edited: dict[MemoryUri, FileChange],
    at: MemoryUri,
    change: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    """Change what a file that is there says of itself, also where the operations changed it."""
    before = edited[at].after if at in edited else copy.text(at)
    file = split(before or "")
    trailer = change(dict(file.trailer or {}))
    if before is None or trailer == (file.trailer or {}):
        return
    after = join(file.body, trailer)
    if at in edited:
        edited[at] = replace(edited[at], after=after)
    else:
        copy.put(at, after)


def _is_own(copy: WorkingCopy, uri: MemoryUri) -> bool:
    """Whether a memory that another one names is one of this user or agent."""
    try:
        copy.context.owned(str(uri))
    except RunebookError:
        return False
    return True


def _lines_planned(
    going: list[Mention], snapshot: Snapshot, copy: WorkingCopy, features: Features
) -> tuple[list[FileChange], list[OperationResult]]:
    """The logs without entries and messages, and what became of each."""
    changes: list[FileChange] = []
    results: list[OperationResult] = []
    rewritten = 0
    for log, parts in _by_file(going).items():
        is_too_much = rewritten >= _LOGS_CHARS or not _may_change(copy)
        before = None if is_too_much else snapshot.text(log)
        if before is None:
            refused = _TOO_MUCH if is_too_much else "it is gone meanwhile."
            results += [_result(replace(part, refused=refused)) for part in parts]
            continue
        kind = features.kind_of(log)
        if kind is not None:
            now = [each.seen_sha256 for each in _entries_of(parts, before, kind)]
        else:
            said = dict(enumerate(before.split("\n")))
            now = [text_sha256(said.get(part.line or 0, "")) for part in parts]
        read = list(zip(parts, now, strict=True))
        results += [_result(replace(part, refused=_CHANGED)) for part, sha256 in read if part.seen_sha256 != sha256]
        parts = [part for part, sha256 in read if part.seen_sha256 == sha256]
        lines = {part.line for part in parts if part.line is not None}
        after = without_lines(before, lines) if kind is None else _without_entries(before, lines, kind)
        if after != before:
            name = log.parent.name if kind is None else ""
            changes.append(FileChange(log, before, after, "", name))
            rewritten += len(before)
        results += map(_result, parts)
    return changes, results


def _may_change(copy: WorkingCopy, uri: MemoryUri | None = None) -> bool:
    """Whether others can wait for one file more, and for its text; where they cannot it is not even read."""
    try:
        copy.work(MOVE_WORK)
        if uri is not None:
            copy.work_on(uri)
    except TooLarge:
        return False
    return True


def _rewrite(mention: Mention, copy: WorkingCopy) -> bool:
    """Take a file, or what goes of it, out where no operation may touch it; of no type, it gets another name, too.

    Returns:
        Whether anything goes.
    """
    text, memory = copy.text(mention.uri), copy.memory(mention.uri)
    if text is None or memory is None or not mention.is_part:
        copy.put(mention.uri, None)
        return True
    left = text_without(mention.uri, text, mention.sentences, mention.gone_tags)
    if left is None or not mention.name_goes:
        copy.put(mention.uri, left)
        return left != text
    name = render("{name}.md", {"name": first_words(next(iter(worded(split(left).body)), ""))})
    place = copy.free_beside(mention.uri.parent.child(name), str(mention.uri))
    copy.move(mention.uri, replace(memory, uri=place, text=left))
    return True


def _operate(operations: MemoryOperations, mention: Mention, copy: WorkingCopy) -> bool:
    """Add what takes a memory, or sentences of it, out; or change it here, where an edit of its fields is not enough.

    A name that says it becomes another one, made of what is left. A rendered body that a person edited, and what is
    archived, lose the sentences and stay.

    Returns:
        Whether anything goes.
    """
    gone = DeleteOp(uri=str(mention.uri), reason="forgotten on request")
    memory = copy.memory(mention.uri)
    if memory is None or not mention.is_part or memory.type is None:
        operations.delete_operations.append(gone)
        return True
    left = {name: without(text, mention.sentences) for name, text in texts_of(memory).items()}
    body = left.pop("", memory.body)
    keys = names_of(memory)
    telling = {name for name, key in keys.items() if name_tells(key, mention.sentences)}
    if mention.name_goes and not telling:
        telling = set(keys)
    unknown = value_without(memory.unknown, mention.sentences)
    here = memory.hand_edited or mention.uri.scope is Scope.ARCHIVE or mention.gone_tags or unknown != memory.unknown
    if not telling and not (here and memory.damage is None):
        changed = {name: text for name, text in left.items() if text != memory.fields[name]}
        if changed:
            operations.edit_operations.append(EditOp(uri=str(mention.uri), patches=changed))
        return bool(changed)
    fields = {**memory.fields, **left}
    version = memory.metadata.next_version
    metadata: dict[str, Any] = {"version": version, "updated_at": copy.context.now}
    if mention.gone_tags:
        metadata["tags"] = [tag for tag in memory.metadata.tags if tag not in mention.gone_tags] or None
    if telling or mention.sentences:
        metadata |= {"abstract": None, "overview": None}
    kept = replace(memory, body=body, unknown=unknown)
    if not telling:
        copy.store(kept.changed(fields=fields, metadata=metadata))
        return body != memory.body or fields != memory.fields or bool(mention.gone_tags) or unknown != memory.unknown
    shown = body if memory.hand_edited else ""
    said = [each for text in (left.get(CONTENT, ""), *left.values(), shown) for each in worded(text)]
    name = first_words(next((each for each in said if each not in mention.labels), ""))
    if not name:
        return False
    fields = {name: value for name, value in fields.items() if name not in telling}
    fields.setdefault(name_field_of(memory.type), name)
    place = copy.free_name(mention.uri.parent, memory.type, fields)
    copy.move(mention.uri, kept.changed(uri=place, fields=fields, metadata=metadata))
    return True


def _without_entries(text: str, starts: set[int], kind: RecordKind) -> str:
    """The log of a day without the entries that begin at these lines."""
    lengths = kind.entry_lengths(text)
    gone = {line for start in starts for line in range(start, start + lengths.get(start, 1))}
    return "\n".join(line for number, line in enumerate(text.split("\n")) if number not in gone)


def _left_in_archive(going: Sequence[Mention], text_of: Callable[[MemoryUri], str | None]) -> Iterator[str]:
    """Of each core that goes, where the memories are that it was condensed from: forgetting it leaves them there."""
    named = {str(mention.uri) for mention in going}
    for mention in going:
        text = text_of(mention.uri) if mention.line is None else None
        originals = archived_originals(parse(mention.uri, text, None)) if text is not None else []
        left = [uri for uri in originals if uri not in named and text_of(MemoryUri.parse(uri)) is not None]
        if left:
            yield (
                f"{mention.uri} was condensed from {len(originals)} memories; {len(left)} of them are still in the "
                f"archive, whole: to forget them too, name them as uris: {', '.join(left)}"
            )


FORGET = Command(
    "forget",
    ForgetRequest,
    forget,
    fails=lambda receipt: receipt.status == "rejected",
    searches=True,
    writes=True,
)


def _asked(memory: Runebook, commit: CommitRequest, value: Mapping[str, Any]) -> CommitReceipt:
    """What the argument ``forget`` of a commit means."""
    asked = replace(
        read_request(ForgetRequest, value, "mcp"),
        dry_run=commit.dry_run,
        request_id=commit.request_id,
        project=commit.project,
        here=commit.here,
        now=commit.now,
    )
    return memory.run(FORGET, asked)


FEATURE = Feature(commands=(FORGET,), commit_arguments={"forget": _asked})
