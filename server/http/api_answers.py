"""What the HTTP API is asked and what it answers, as pydantic models from which OpenAPI is made.

What the library returns is described by its own classes: ``model_of`` makes the model of the members that ``as_json``
gives. Members that say nothing are left out of an answer; an answer may hold more than its model names. A question is
strict: a name that means nothing is refused, but in a query, where ``space`` stands beside it.
"""

from __future__ import annotations

import functools
import inspect
import keyword
import operator
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from memory_core.core.memory.results import CommitReceipt, Hit, LinkedMemory, Listing, json_members
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.search.memory_list import LIMIT_MOST, EntrySummary
from memory_core.core.settings_file import Setting
from memory_core.core.store.issued_tokens import IssuedToken
from memory_core.core.store.usage import Recall
from memory_core.core.text.text_diff import Row
from memory_core.core.text.word_table import word_table
from memory_core.features.doctor import Report
from memory_core.features.graph import Graph
from memory_core.features.history import Commit, FileStep
from memory_core.features.upkeep.archive import Archived
from server.fail_fast import FAIL_FAST, with_few_unknown


class Answer(BaseModel):
    """What the API says; may hold more members than these."""

    model_config = ConfigDict(extra="allow")


@functools.cache
def model_of(kind: Any) -> Any:
    """The model of what ``as_json`` makes of a class."""
    members = ((member, _jsonable(hint), about) for member, hint, about in _members(kind))
    return _model(kind.__name__, (inspect.getdoc(kind) or kind.__name__).split("\n", 1)[0], Answer, members)


#: What the library returns, by the name that the table of answers uses.
_KINDS: tuple[Any, ...] = (CommitReceipt, EntrySummary, Row, LinkedMemory, Hit, Listing, Commit, FileStep, Setting)
_RESULTS: Mapping[str, Any] = {kind.__name__: kind for kind in (*_KINDS, Archived, Graph, IssuedToken, Recall, Report)}
_PLAIN: Mapping[str, Any] = {"str": str, "int": int, "float": float, "bool": bool, "Any": Any}


@functools.cache
def answer_model(name: str) -> Any:
    """The model of an answer, by its name in the table beside this module, or that of what the library returns.

    In the table ``$about`` says what the answer is, ``$extends`` names the one that it extends, and each member is
    ``type: what it is``.
    A type is a name, ``[items]``, ``{values}``, ``=one|other``, or several of them with ``|``; one that ends in ``?``
    may be left out.
    """
    if name in _RESULTS:
        return model_of(_RESULTS[name])
    members = dict(word_table(__file__)[name])
    about, like = members.pop("$about"), members.pop("$extends", None)
    described = ((member, *description.partition(": ")[::2]) for member, description in members.items())
    return _model(name, about, Answer if like is None else answer_model(like), described)


def _model(name: str, about: str, like: Any, members: Iterable[tuple[str, str | Any, str | None]]) -> Any:
    """A model of members, each with its type, or its notation, and what it is."""
    fields: dict[str, Any] = {}
    for member, given, description in members:
        hint = _typed(given) if isinstance(given, str) else given
        usual = None if type(None) in get_args(hint) else ...
        # A word of Python cannot be a member: it is one by its alias.
        own = f"{member}_" if keyword.iskeyword(member) else member
        fields[own] = (hint, Field(usual, description=description or None, alias=None if own == member else member))
    return create_model(name, __base__=like, __doc__=about, **fields)


def answer_from(name: str, given: Any, /, **more: Any) -> dict[str, Any]:
    """An answer of the table: each member is given, or the attribute of its name.

    Args:
        name: Of the answer.
        given: Has the attributes.
        more: Members that are not, or otherwise.
    """
    return {member: more[member] if member in more else getattr(given, member) for member in _members_of(name)}


def _members_of(name: str) -> Iterator[str]:
    table = word_table(__file__)[name]
    if table.get("$extends") in word_table(__file__):
        yield from _members_of(table["$extends"])
    yield from (member for member in table if not member.startswith("$"))


def _typed(notation: str) -> Any:
    """The type that a notation of the table stands for."""
    if notation.endswith("?"):
        return _typed(notation[:-1]) | None
    if notation[0] == "=":
        return Literal.__getitem__(tuple(notation[1:].split("|")))
    if notation[0] == "[":
        return many(_typed(notation[1:-1]))
    if notation[0] == "{":
        return types.GenericAlias(dict, (str, _typed(notation[1:-1])))
    if notation[0] == "(":
        return types.GenericAlias(tuple, tuple(map(_typed, notation[1:-1].split(", "))))
    if "|" in notation:
        return functools.reduce(operator.or_, map(_typed, notation.split("|")))
    return _PLAIN[notation] if notation in _PLAIN else answer_model(notation)


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
    return model_of(found) if is_dataclass(hint) else hint


Unit = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
FieldValue = str | bool | int | Annotated[float, Field(allow_inf_nan=False)]
Uri = Annotated[str, Field(max_length=4_096)]
_EXPIRES = "An ISO date or time from which it no longer holds; empty is never."


def _add_examples(schema: dict[str, Any], question: type[BaseModel]) -> None:
    """Add the examples that the table has of a question."""
    examples = word_table(__file__)["examples"]
    if question.__name__ in examples:
        schema["examples"] = examples[question.__name__]


class Question(BaseModel):
    """A request's body; a name that means nothing is refused."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_add_examples)

    @model_validator(mode="before")
    @classmethod
    def _with_few_unknown(cls, given: Any) -> Any:
        return with_few_unknown(given, cls.model_fields) if isinstance(given, dict) else given


class EntriesQuery(BaseModel):
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
    tags: list[Annotated[str, Field(max_length=200)]] = Field([], max_length=20, description="All of these.")
    words: str = Field("", max_length=500, description="All stand in name or text.", examples=["茶"])
    sort: Literal["updated", "created", "importance", "accesses", "name"] = "updated"
    limit: int = Field(50, ge=1, le=LIMIT_MOST)
    offset: int = Field(0, ge=0, le=10_000_000)


class NewEntry(Question):
    """A memory to keep, or an entry of the day's log."""

    content: str | None = Field(None, description="What it says; types of fields take `fields` instead.")
    memory_type: str | None = Field(None, max_length=64, description="See GET /api/memory/types; default notes.")
    category: str | None = Field(None, max_length=200)
    priority: str | Unit | None = Field(None, description="low, normal, high, critical, or 0 to 1.")
    salience: Unit | None = Field(None, description="The same as a number; not beside `priority`.")
    fields: Annotated[dict[str, FieldValue], FAIL_FAST] | None = Field(None, description="Fields of the type.")
    pinned: bool | None = None
    expires_at: str | None = Field(None, max_length=64, description=_EXPIRES)
    project: str | None = Field(None, max_length=400, description="The project it belongs to.")
    private: bool | None = Field(None, description="Whether it is for that project only.")
    to: Literal["long_term", "daily_log"] = Field("long_term", description="daily_log: an entry of today's log.")
    request_id: str | None = Field(None, min_length=1, max_length=200, description="A retry with it adds nothing.")
    dry_run: bool = Field(False, description="Plan only.")


class EntryEdit(Question):
    """What to change of a memory; what is left out stays."""

    content: str | None = Field(None, description="The whole new text, of types that have one.")
    fields: Annotated[dict[str, FieldValue | None], FAIL_FAST] = Field(
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


class Bulk(Question):
    """What to do with several memories in one commit."""

    uris: list[Uri] = Field(min_length=1, max_length=500)
    action: Literal["organize", "archive", "delete"] = Field(
        "organize", description="organize: tag, pin or move to a project, as the members below say."
    )
    tags: list[Annotated[str, Field(max_length=200)]] = Field([], max_length=100, description="To be added.")
    untags: list[Annotated[str, Field(max_length=200)]] = Field([], max_length=100, description="To be taken away.")
    pinned: bool | None = None
    project: str | None = Field(None, max_length=400, description='To be moved to; "global" is none.')
    dry_run: bool = Field(False, description="Plan only.")


class MarkdownText(Question):
    """A text to render."""

    markdown: str = Field(max_length=1_000_000, examples=["# Tea\n\nGreen, *in the morning*.", "**茶**：早上喝绿茶。"])


class SearchQuestion(Question):
    """A search."""

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


class Relation(Question):
    """How a memory relates to another."""

    uri: Uri
    other: Uri
    relation: str = Field("similar", max_length=64, description="similar, supports, contradicts, refines or replaces.")
    strength: Unit = 0.5
    instead: str | None = Field(None, max_length=64, description="Remove this relation of the two first.")
    remove: bool = Field(False, description="Remove the relation.")
    dry_run: bool = Field(False, description="Plan only.")


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


class SettingValue(Question):
    """A new value of a setting."""

    value: FieldValue | Annotated[list[str], FAIL_FAST] | None = Field(
        None, description="null takes it out of the settings file.", examples=["relevance", 30, True]
    )


class NewToken(Question):
    """A token to issue."""

    label: str = Field(max_length=64, description="What its owner calls it.")
    user_space: str | None = Field(None, max_length=64, description="Whose memories it opens; default the store's.")
    agent_space: str | None = Field(None, max_length=64, description="Which agent's; default that of the user.")
    read_only: bool = Field(False, description="Refuse it every write.")
    expires_days: float | None = Field(None, gt=0, le=36_500, description="null: until it is revoked.")
    shared: list[str] = Field(
        default_factory=list,
        max_length=100,
        description="Spaces that it opens beside its own, as NAME, or NAME:read to only read there.",
        examples=[["team", "handbook:read"]],
    )


class NewUpload(Question):
    """A file that is to be sent."""

    name: str = Field(max_length=400, description="Its name; some formats are told by it.", examples=["notes.zip"])


class UploadPart(Question):
    """A part of a file."""

    offset: int = Field(ge=0, description="Bytes that were sent before.", examples=[0])
    base64: str = Field(description="Its bytes.", examples=["UEsDBA=="])


class Importing(Question):
    """How a file is imported."""

    format: str | None = Field(None, max_length=64, description="Where it is not recognised; see runebook import.")
    project: str | None = Field(None, max_length=400, description="Other programs: the project of everything.")
    on_conflict: Literal["keep", "replace", "both"] = Field(
        "keep", description="Export of Runebook: where a file here differs."
    )
    extract: bool = Field(False, description="Other programs: extract memories from the conversations, with the model.")
    dry_run: bool = False


class Exporting(Question):
    """What is exported."""

    format: Literal["zip", "jsonl"] = "zip"
    memory_type: str | None = Field(None, max_length=64, description="Only memories of this type.")
    project: str | None = Field(None, max_length=400, description="Only of this project.")
    sessions: bool = Field(True, description="Conversations, too.")
    history: bool = Field(False, description="Also who changed what when, with the texts before.")


class SummaryText(Question):
    """The page that every new session begins with."""

    text: str = Field(max_length=262_144, examples=["Lin is moving to Chengdu in May.", "林五月搬到成都。"])
