"""What the HTTP API is asked and what it answers, as pydantic models from which OpenAPI is made.

What the library returns is described by its own classes: ``shape`` makes the model of the members that ``as_json``
gives. Members that say nothing are left out of an answer; an answer may hold more than its model names. A question is
strict: a name that means nothing is refused.
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from memory_core.core.memory.results import CommitReceipt, Hit, LinkedMemory, Listing, json_members
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.search.memory_list import LIMIT_MOST, EntrySummary
from memory_core.core.store.usage import Recall
from memory_core.core.text.text_diff import Row
from memory_core.features.doctor import Report
from memory_core.features.history import Commit, FileStep
from memory_core.features.upkeep.archive import Archived


class Answer(BaseModel):
    """What the API says; may hold more members than these."""

    model_config = ConfigDict(extra="allow")


@functools.cache
def shape(kind: Any) -> Any:
    """The model of what ``as_json`` makes of a class."""
    members = {member: (_jsonable(hint), about) for member, hint, about in _members(kind)}
    return answer(kind.__name__, (inspect.getdoc(kind) or kind.__name__).split("\n", 1)[0], **members)


def answer(name: str, about: str, like: Any = Answer, /, **members: Any) -> Any:
    """A model of these members, each a type, or a type and what it is; one that may be None may be left out.

    Args:
        name: In OpenAPI.
        about: What it is.
        like: The model that it extends.
        members: By name; ``lambda_`` is called ``lambda``.
    """
    fields: dict[str, Any] = {}
    for member, given in members.items():
        hint, told = given if isinstance(given, tuple) else (given, None)
        alias = member.removesuffix("_") if member.endswith("_") else None
        usual = None if type(None) in get_args(hint) else ...
        fields[member] = (hint, Field(usual, description=told, alias=alias))
    return create_model(name, __base__=like, __doc__=about, **fields)


def _members(kind: Any) -> Iterator[tuple[str, Any, str | None]]:
    """Name, type and description of each member."""
    hints = get_type_hints(kind)
    described = dict(re.findall(r"^    (\w+): (.+)$", inspect.getdoc(kind) or "", re.MULTILINE))
    for name, member, may_lack in json_members(kind):
        hint = hints[name] if name in hints else get_type_hints(getattr(kind, name).fget)["return"]
        if not member:
            yield from _members(hint)
        else:
            yield member, hint | None if may_lack else hint, described.get(name)


def many(item: Any) -> Any:
    """A list of these."""
    return types.GenericAlias(list, (item,))


def _jsonable(hint: Any) -> Any:
    """A type as it is in JSON."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return functools.reduce(operator.or_, (_jsonable(each) for each in inner))
    if origin is tuple:
        kinds = tuple(_jsonable(each) for each in inner if each is not Ellipsis)
        return many(kinds[0]) if Ellipsis in inner else types.GenericAlias(tuple, kinds)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return types.GenericAlias(dict, (str, _jsonable(inner[1])))
    if hint in (MemoryUri, Path, datetime):
        return str
    if isinstance(hint, type) and issubclass(hint, Enum):
        return Literal.__getitem__(tuple(each.value for each in hint))
    found: Any = hint
    return shape(found) if is_dataclass(hint) else hint


ErrorAnswer = answer(
    "ErrorAnswer",
    "What went wrong, and the caller's next step.",
    error=(str, "What failed, and why."),
    hint=(str, "What to do next."),
)
Receipt = shape(CommitReceipt)
Summary = shape(EntrySummary)
Rows = many(shape(Row))
RefusedAnswer = answer(
    "RefusedAnswer", "Nothing was stored; the receipt says what was refused.", ErrorAnswer, receipt=Receipt
)
EntriesAnswer = answer(
    "EntriesAnswer",
    "Some of the memories that meet a filter.",
    entries=many(Summary),
    total=(int, "How many meet the filter."),
    offset=int,
    next_offset=(int | None, "Where the next ones begin."),
)
_KIND, _MERGE = Literal["string", "int64", "float32", "bool"], Literal["patch", "sum", "avg", "immutable", "replace"]
FieldAnswer = answer(
    "FieldAnswer",
    "One field of a memory, as its type declares it.",
    name=str,
    type=_KIND,
    description=str,
    merge_op=_MERGE,
    value=(str | int | float | bool | None, "Left out where it has none."),
)
TypeFieldAnswer = answer(
    "TypeFieldAnswer",
    "One field that memories of a type have.",
    name=str,
    type=_KIND,
    description=str,
    merge_op=(_MERGE, "How a new value meets the stored one; avg is computed, never written."),
    key=(bool, "Whether the memory is named by it."),
)
TypeAnswer = answer(
    "TypeAnswer",
    "A memory type.",
    name=str,
    description=str,
    directory=(str, "Where its memories are."),
    mode=(Literal["simple", "template"], "simple: the text is `content`; template: made of fields."),
    salience=(float, "Importance of a new one."),
    fields=many(TypeFieldAnswer),
)
TypesAnswer = answer("TypesAnswer", "All memory types.", types=many(TypeAnswer))
MessageAnswer = answer("MessageAnswer", "One message.", line=int, role=str, speaker=str, time=str | None, text=str)
SourcePage = answer(
    "SourcePage",
    "A line of the conversation that a memory came from.",
    MessageAnswer,
    uri=(str, "The message: `…/messages.jsonl#12`."),
    session_id=str,
)
Entry = answer(
    "Entry",
    "One memory, or another file of the store, whole.",
    Summary,
    text=(str, "The whole file."),
    body=(str, "Its Markdown, without the trailer."),
    html=(str, "The body rendered; safe to show as it is."),
    fields=many(FieldAnswer),
    source=(dict[str, Any] | None, "Where it comes from: kind, session and the like."),
    source_pages=(many(SourcePage), "Lines of that conversation that speak of it."),
    links=many(shape(LinkedMemory)),
    sha256=(str, "Of the whole file; the ETag, and what If-Match takes."),
    version=int,
    editable=(bool, "Whether this caller may change it here."),
    lines=int,
    cut=(bool | None, "Whether text and body are only the beginning of a very long file."),
)
ConflictAnswer = answer(
    "ConflictAnswer",
    "The memory is no longer what the caller saw; nothing was stored.",
    ErrorAnswer,
    current=(Entry | None, "What it is now; absent where it is gone."),
)
Preview = answer("Preview", "What a change would make of a memory.", html=str, rows=Rows)
EditAnswer = answer(
    "EditAnswer",
    "What became of a change.",
    receipt=Receipt,
    entry=(Entry | None, "The memory as it is now."),
    preview=(Preview | None, "Of a dry run: what it would become."),
)
HtmlAnswer = answer("HtmlAnswer", "Markdown as HTML.", html=str)
HitAnswer = answer(
    "HitAnswer", "One found item, with what its score is made of.", shape(Hit), path=str, name=str, accesses=int
)
SearchAnswer = answer(
    "SearchAnswer",
    "What answers a query, best first.",
    hits=many(HitAnswer),
    total=int,
    notes=list[str],
    milliseconds=float,
)
TreeAnswer = answer(
    "TreeAnswer",
    "What is below a directory.",
    entries=many(answer("ListingAnswer", "One entry of a directory.", shape(Listing), path=str)),
    left_out=(int, "Entries beyond the limit."),
)
AboutAnswer = answer(
    "AboutAnswer",
    "Which store this is, and what the caller may do.",
    **dict.fromkeys(("version", "user_space", "agent_space", "rank"), str),
    **dict.fromkeys(("owner", "writable", "private_mode"), bool),
    **dict.fromkeys(("label", "project"), str | None),
    **dict.fromkeys(("decay_lambda", "half_life_days", "heat_threshold"), float),
    **dict.fromkeys(("ranks", "types", "passes"), list[str]),
    counts=(dict[str, int], "Memories in use, by type."),
    review=Literal["off", "automatic"],
    model=(dict[str, Any], "Which models work on the store."),
)
CommitAnswer = answer(
    "CommitAnswer",
    "One commit, as far as the caller may see it.",
    shape(Commit),
    file_count=(int | None, "In a list: how many files it touched, where not all are named."),
)
HistoryAnswer = answer(
    "HistoryAnswer",
    "Commits, newest first.",
    commits=many(CommitAnswer),
    more=(bool, "Whether there are older ones; ask with `before` the last commit_id."),
)
CommitDiffAnswer = answer(
    "CommitDiffAnswer",
    "One commit with what it changed.",
    commit=CommitAnswer,
    files=many(answer("FileDiffAnswer", "What a commit changed in one file.", shape(FileStep), rows=Rows)),
)
VersionAnswer = answer(
    "VersionAnswer",
    "A file as one commit left it.",
    commit=CommitAnswer,
    action=Literal["created", "updated", "deleted"],
    withheld=str | None,
    moved_from=str | None,
    rows=Rows,
)
VersionsAnswer = answer(
    "VersionsAnswer", "The versions of a file, newest first, through its renames.", versions=many(VersionAnswer)
)
RowsAnswer = answer("RowsAnswer", "Two texts side by side.", rows=Rows)
SessionAnswer = answer(
    "SessionAnswer",
    "A stored conversation.",
    **dict.fromkeys(("session_id", "uri", "updated_at"), str),
    **dict.fromkeys(("messages", "segments"), int),
    waiting=(int, "Messages whose memories are still to be extracted."),
)
SessionsAnswer = answer("SessionsAnswer", "Conversations, the latest first.", sessions=many(SessionAnswer), total=int)
_Topic = answer(
    "Topic",
    "What a conversation said about one topic.",
    **dict.fromkeys(("uri", "session_id", "title", "summary"), str),
    keywords=list[str],
)
SegmentAnswer = answer(
    "SegmentAnswer",
    "What a conversation said about one topic.",
    _Topic,
    first_line=(int | None, "Line where its first page begins."),
    pages=(list[tuple[int, int]], "First and last line of each exchange."),
)
ConversationAnswer = answer(
    "ConversationAnswer",
    "Messages of one conversation, in order.",
    session_id=str,
    uri=str,
    messages=many(MessageAnswer),
    segments=many(SegmentAnswer),
    total=int,
    offset=int,
)
HeatSegment = answer(
    "HeatSegment",
    "A segment and what its heat is made of.",
    _Topic,
    visits=(int, "Since it was last cooled."),
    interactions=int,
    hours=(float, "Since the last visit, else since it began."),
    heat=float,
)
HeatMemory = answer(
    "HeatMemory",
    "A memory that is used, and what age leaves of it.",
    **dict.fromkeys(("uri", "path", "name", "memory_type"), str),
    accesses=int,
    age_days=(float, "Since the last access."),
    decay=float,
    salience=float,
)
HeatAnswer = answer(
    "HeatAnswer",
    "What is hot, and how it cools.",
    segments=(many(HeatSegment), "Hottest first."),
    threshold=(float, "Heat from which a segment's exchanges become memories."),
    **dict.fromkeys(("tau_hours", "alpha", "beta", "gamma", "lambda_"), float),
    memories=(many(HeatMemory), "Most used first, at most 50."),
)
WaitingAnswer = answer(
    "WaitingAnswer",
    "A conversation whose memories are still to be extracted.",
    **dict.fromkeys(("session_id", "uri", "since"), str),
    **dict.fromkeys(("messages", "attempts"), int),
    **dict.fromkeys(("retry_at", "reason"), str | None),
)
QueueAnswer = answer("QueueAnswer", "What waits, longest first.", waiting=many(WaitingAnswer))
ReceiptsAnswer = answer("ReceiptsAnswer", "A receipt for each commit.", receipts=many(Receipt))
ConsolidationAnswer = answer(
    "ConsolidationAnswer",
    "What became of what waited.",
    ReceiptsAnswer,
    waiting=(int, "Conversations that still wait."),
)
ArchiveAnswer = answer(
    "ArchiveAnswer",
    "Files of the archive.",
    archived=many(shape(Archived)),
    more=bool,
)
PassAnswer = answer(
    "PassAnswer",
    "What one pass of maintenance did, or would do.",
    name=str,
    receipts=many(Receipt),
    changed=int,
    failure=str | None,
    hint=str | None,
)
MaintenanceAnswer = answer("MaintenanceAnswer", "What the passes did, or would do.", passes=many(PassAnswer))
ProceduralEntry = answer(
    "ProceduralEntry",
    "What is known of a tool or a skill, with its figures.",
    Summary,
    figures=(dict[str, float | None], "Its counts and averages, by field."),
)
ProceduralAnswer = answer(
    "ProceduralAnswer",
    "How things are done: patterns, tools, skills and cases.",
    patterns=many(Summary),
    tools=many(ProceduralEntry),
    skills=many(ProceduralEntry),
    cases=many(Summary),
)
RollingSummaryAnswer = answer(
    "RollingSummaryAnswer",
    "The page that every new session begins with; empty where there is none yet.",
    **dict.fromkeys(("text", "html", "uri"), str),
    written_by=Literal["person", "maintenance", "nobody"],
    updated_at=str | None,
    sha256=(str, "Of its file; empty where there is none."),
)
SummaryWritten = answer(
    "SummaryWritten", "What became of a new rolling summary.", receipt=Receipt, summary=RollingSummaryAnswer
)
ProposalAnswer = answer(
    "ProposalAnswer",
    "A change that waits for its owner.",
    name=(str, "Its id."),
    **dict.fromkeys(("title", "op", "uri", "would", "target", "at", "reason", "gone"), str),
    texts=dict[str, str],
    edited=bool,
    session_id=str | None,
)
ReviewAnswer = answer("ReviewAnswer", "What waits for review, oldest first.", waiting=many(ProposalAnswer))
TrailAnswer = answer("TrailAnswer", "Which query retrieved what, newest first.", trail=many(shape(Recall)))
StatsAnswer = answer("StatsAnswer", "Figures of the store; more than these.", memories=int, by_type=dict[str, int])
HealthAnswer = shape(Report)

Unit = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
FieldValue = str | bool | int | Annotated[float, Field(allow_inf_nan=False)]
Uri = Annotated[str, Field(max_length=4_096)]
_EXPIRES = "An ISO date or time from which it no longer holds; empty is never."


class Question(BaseModel):
    """A request's body; a name that means nothing is refused."""

    model_config = ConfigDict(extra="forbid")


class EntriesQuestion(BaseModel):
    """Which memories are listed, and in which order; of the query."""

    memory_type: str | None = Field(None, max_length=64, examples=["preferences"])
    context_type: Literal["memory", "skill"] | None = Field(None, description="memory, or skill for tools and skills.")
    category: str | None = Field(None, max_length=200)
    project: str | None = Field(None, max_length=400, description="Only of this project.")
    importance_min: float | None = Field(None, ge=0, le=1)
    importance_max: float | None = Field(None, ge=0, le=1)
    updated_after: str | None = Field(None, max_length=64, description="ISO date or time, included.")
    updated_before: str | None = Field(None, max_length=64, description="ISO date or time, included.")
    pinned: bool | None = None
    active: bool | None = Field(None, description="Neither at rest nor past its time.")
    words: str = Field("", max_length=500, description="All stand in name or text.", examples=["茶"])
    sort: Literal["updated", "created", "importance", "accesses", "name"] = "updated"
    limit: int = Field(50, ge=1, le=LIMIT_MOST)
    offset: int = Field(0, ge=0, le=10_000_000)


class NewEntry(Question):
    """A memory to keep, or an entry of the day's log."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"content": "The user drinks green tea in the morning.", "memory_type": "preferences"},
                {"content": "用户早上喝绿茶。", "memory_type": "preferences", "fields": {"topic": "饮品"}},
                {"content": "Fixed the login form.", "to": "daily_log"},
            ]
        },
    )

    content: str | None = Field(None, description="What it says; types of fields take `fields` instead.")
    memory_type: str | None = Field(None, max_length=64, description="See GET /api/memory/types; default notes.")
    category: str | None = Field(None, max_length=200)
    priority: str | Unit | None = Field(None, description="low, normal, high, critical, or 0 to 1.")
    salience: Unit | None = Field(None, description="The same as a number; not beside `priority`.")
    fields: dict[str, FieldValue] | None = Field(None, description="Fields of the type.")
    pinned: bool | None = None
    expires_at: str | None = Field(None, max_length=64, description=_EXPIRES)
    project: str | None = Field(None, max_length=400, description="The project it belongs to.")
    private: bool | None = Field(None, description="Whether it is for that project only.")
    to: Literal["long_term", "daily_log"] = Field("long_term", description="daily_log: an entry of today's log.")
    request_id: str | None = Field(None, min_length=1, max_length=200, description="A retry with it adds nothing.")
    dry_run: bool = Field(False, description="Plan only.")


class EntryEdit(Question):
    """What to change of a memory; what is left out stays."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"content": "The user drinks oolong in the morning.", "tags": ["tea"]},
                {"fields": {"topic": "饮品"}, "salience": 0.8, "pinned": True},
                {"active": False, "dry_run": True},
            ]
        },
    )

    content: str | None = Field(None, description="The whole new text, of types that have one.")
    fields: dict[str, FieldValue | None] = Field(
        default_factory=dict,
        description="The whole new value of each; also of counts, which a commit by an agent would add up. null "
        "empties a text.",
    )
    salience: Unit | None = None
    confidence: Unit | None = None
    tags: list[Annotated[str, Field(max_length=200)]] | None = Field(None, max_length=100)
    pinned: bool | None = None
    expires_at: str | None = Field(None, max_length=64, description=_EXPIRES)
    active: bool | None = Field(None, description="false puts it to rest: kept, but neither found nor recalled.")
    dry_run: bool = Field(False, description="Plan only: the answer has a preview.")


class MarkdownText(Question):
    """A text to render."""

    markdown: str = Field(max_length=1_000_000, examples=["# Tea\n\nGreen, *in the morning*.", "**茶**：早上喝绿茶。"])


class SearchQuestion(Question):
    """A search."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"query": "what does the user drink?", "limit": 5},
                {"query": "用户喝什么茶？", "memory_type": "preferences", "rank": "relevance"},
                {"query": "deploy", "filter": {"updated_at": {"gte": "2026-01-01"}}, "use_decay": False},
            ]
        },
    )

    query: str = Field(max_length=20_000, description="A question or key words, in any language.")
    use_decay: bool = Field(True, description="false ranks by the match alone.")
    rank: Literal["relevance", "balanced", "decay", "weighted"] | None = Field(
        None, description="How hits are ordered; default the owner's setting."
    )
    category: str | None = Field(None, max_length=200)
    memory_type: str | None = Field(None, max_length=64)
    limit: int = Field(10, ge=1, le=100)
    target_uri: Uri = Field("", description="Only files at or below it.")
    filter: dict[str, Any] | None = Field(
        None, description='`{"and": […]}`, `{"or": […]}`, `{"not": {…}}` or `{field: {op: value}}`.'
    )
    score_threshold: Unit | None = None
    project: str | None = Field(None, max_length=400, description="Only this one.")


class DryRun(Question):
    """Whether to plan only."""

    dry_run: bool = False


class Consolidation(Question):
    """What is to be extracted."""

    session_id: str | None = Field(None, max_length=400, description="Only this conversation, and all of it again.")


class Archiving(Question):
    """What is to be archived: the named memories, or old logs."""

    uris: list[Uri] | None = Field(None, max_length=1_000, description="None: the logs of days that are old enough.")
    days: int | None = Field(None, ge=1, le=36_500, description="Of logs: their age; default the settings.")
    dry_run: bool = False


class Restoring(Question):
    """What is to be brought back from the archive."""

    uris: list[Uri] = Field(min_length=1, max_length=1_000)
    dry_run: bool = False


class Maintenance(Question):
    """Which passes of maintenance to run."""

    only: list[Annotated[str, Field(max_length=64)]] = Field(default_factory=list, max_length=50)
    dry_run: bool = Field(True, description="Plan only, unless it is false.")


class SummaryText(Question):
    """The page that every new session begins with."""

    text: str = Field(max_length=262_144, examples=["Lin is moving to Chengdu in May.", "林五月搬到成都。"])
