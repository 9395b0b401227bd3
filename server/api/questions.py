"""The shapes of what the API is asked: pydantic models, strict about names, lenient about nothing."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Unit = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
FieldValue = str | bool | int | Annotated[float, Field(allow_inf_nan=False)]
Uri = Annotated[str, Field(max_length=4_096)]
_EXPIRES = "An ISO date or time from which it no longer holds; empty is never."


class Question(BaseModel):
    """A request's body; a name that means nothing is refused."""

    model_config = ConfigDict(extra="forbid")


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
