"""The shapes of what the API answers about memories: pydantic models, from which OpenAPI is made.

Members that say nothing are left out of an answer. Models that carry facts of the library as they are (a receipt, a
hit) allow more members than they name.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_URI = "Where it is: a viking:// URI."
_PATH = "The URI without `viking://`; as a path of this API each segment is percent-encoded."


class Answer(BaseModel):
    """What the API says; may hold more members than these."""

    model_config = ConfigDict(extra="allow")


class ErrorAnswer(Answer):
    """What went wrong, and the caller's next step."""

    error: str = Field(description="What failed, and why.", examples=["there is nothing at 'viking://user/default/x'."])
    hint: str = Field(description="What to do next.", examples=["Search with find, or list its parent with ls."])


class OperationAnswer(Answer):
    """One line of a receipt."""

    op: str = Field(description="What was asked for.")
    uri: str = Field(description=_URI)
    action: Literal["created", "updated", "deleted", "unchanged", "queued", "rejected"]
    reason: str | None = Field(None, description="What was refused, and why.")
    hint: str | None = Field(None, description="What to do about it.")
    note: str | None = Field(None, description="What else is worth knowing.")
    conflict: bool | None = Field(None, description="Whether the file is no longer what the caller saw.")


class SimilarAnswer(BaseModel):
    """A stored memory near a new one; named, never merged."""

    uri: str = Field(description=_URI)
    score: float


class Receipt(Answer):
    """What a commit did, operation by operation; zero changes is never `committed`."""

    commit_id: str = Field(description="Names the commit in history; empty when nothing was stored.")
    status: Literal["committed", "partial", "unchanged", "queued", "rejected", "dry_run"]
    results: list[OperationAnswer]
    similar: list[SimilarAnswer] = Field(default_factory=list, description="Near neighbours of what was created.")
    notes: list[str] | None = Field(None, description="Facts the caller should know.")


class RefusedAnswer(ErrorAnswer):
    """Nothing was stored; the receipt says what was refused."""

    receipt: Receipt


class SummaryAnswer(Answer):
    """One memory in a list."""

    uri: str = Field(description=_URI, examples=["viking://user/default/memories/notes/Tea.md"])
    path: str = Field(description=_PATH, examples=["user/default/memories/notes/Tea.md"])
    name: str = Field(description="What it is called.", examples=["Tea", "茶"])
    memory_type: str = Field(description="Its type; empty for a file of none.", examples=["notes"])
    context_type: str = Field(description="memory, skill or resource.", examples=["memory"])
    abstract: str = Field(
        description="What it says, in a line.", examples=["Green tea in the morning.", "早上喝绿茶。"]
    )
    category: str | None = None
    tags: list[str] = Field(default_factory=list)
    project: str | None = Field(None, description="The project it belongs to.")
    private: bool = Field(description="Whether it is only for that project.")
    salience: float = Field(description="Its importance, 0 to 1.")
    confidence: float = Field(description="How far it is trusted, 0 to 1.")
    active: bool = Field(description="False when it was put to rest: kept, but neither found nor recalled.")
    pinned: bool = Field(description="Whether it is kept from ever being condensed or archived by itself.")
    expires_at: str | None = Field(None, description="From when it no longer holds.")
    created_at: str | None = None
    updated_at: str | None = None
    accesses: int = Field(description="How often it was read, or found near the top.")
    last_access: str | None = None
    decay: float = Field(description="exp(-lambda * days since the last access or change), in (0, 1].")


class EntriesAnswer(BaseModel):
    """Some of the memories that meet a filter."""

    entries: list[SummaryAnswer]
    total: int = Field(description="How many meet the filter.")
    offset: int
    next_offset: int | None = Field(None, description="Where the next ones begin.")


class FieldAnswer(BaseModel):
    """One field of a memory, as its type declares it."""

    name: str
    type: Literal["string", "int64", "float32", "bool"]
    description: str
    merge_op: Literal["patch", "sum", "avg", "immutable", "replace"]
    value: str | int | float | bool | None = Field(None, description="Left out where it has none.")


class TypeFieldAnswer(BaseModel):
    """One field that memories of a type have."""

    name: str
    type: Literal["string", "int64", "float32", "bool"]
    description: str
    merge_op: Literal["patch", "sum", "avg", "immutable", "replace"] = Field(
        description="How a new value meets the stored one; avg is computed, never written."
    )
    key: bool = Field(description="Whether the memory is named by it.")


class TypeAnswer(BaseModel):
    """A memory type."""

    name: str
    description: str
    directory: str = Field(description="Where its memories are.")
    mode: Literal["simple", "template"] = Field(description="simple: the text is `content`; template: made of fields.")
    salience: float = Field(description="Importance of a new one.")
    fields: list[TypeFieldAnswer]


class TypesAnswer(BaseModel):
    """All memory types."""

    types: list[TypeAnswer]


class SourcePage(BaseModel):
    """A line of the conversation that a memory came from."""

    uri: str = Field(description="The message: `…/messages.jsonl#12`.")
    session_id: str
    line: int
    role: str
    speaker: str
    time: str | None = None
    text: str


class LinkAnswer(Answer):
    """Another memory that this one relates to."""

    uri: str = Field(description=_URI)
    relation: str
    strength: float
    abstract: str
    state: str = Field(description="in use, at rest, archived or gone.")
    at: str | None = None


class Entry(SummaryAnswer):
    """One memory, or another file of the store, whole."""

    text: str = Field(description="The whole file.")
    body: str = Field(description="Its Markdown, without the trailer.")
    html: str = Field(description="The body rendered; safe to show as it is.")
    fields: list[FieldAnswer]
    source: dict[str, Any] | None = Field(None, description="Where it comes from: kind, session and the like.")
    source_pages: list[SourcePage] = Field(description="Lines of that conversation that speak of it.")
    links: list[LinkAnswer]
    sha256: str = Field(description="Of the whole file; the ETag, and what If-Match takes.")
    version: int
    editable: bool = Field(description="Whether this caller may change it here.")
    lines: int
    cut: bool | None = Field(None, description="Whether text and body are only the beginning of a very long file.")


class ConflictAnswer(ErrorAnswer):
    """The memory is no longer what the caller saw; nothing was stored."""

    current: Entry | None = Field(None, description="What it is now; absent where it is gone.")


class RowSide(BaseModel):
    """One line of one of two texts."""

    line: int = Field(description="Its number, from 1.")
    text: str
    parts: list[tuple[str, bool]] | None = Field(None, description="Pieces of it, each with whether it differs.")


class Row(BaseModel):
    """One row of two texts side by side."""

    kind: Literal["same", "changed", "added", "removed", "skipped"]
    left: RowSide | None = None
    right: RowSide | None = None
    count: int | None = Field(None, description="Equal lines that a skipped row stands for.")


class Preview(BaseModel):
    """What a change would make of a memory."""

    html: str
    rows: list[Row]


class EditAnswer(BaseModel):
    """What became of a change."""

    receipt: Receipt
    entry: Entry | None = Field(None, description="The memory as it is now.")
    preview: Preview | None = Field(None, description="Of a dry run: what it would become.")


class HtmlAnswer(BaseModel):
    """Markdown as HTML."""

    html: str


class HitAnswer(Answer):
    """One found item, with what its score is made of."""

    uri: str = Field(description="Turns of a conversation carry their line: `…/messages.jsonl#12`.")
    path: str
    name: str
    accesses: int
    context_type: str
    memory_type: str
    score: float
    abstract: str
    updated_at: str | None = None
    confidence: float
    why: dict[str, float]


class SearchAnswer(BaseModel):
    """What answers a query, best first."""

    hits: list[HitAnswer]
    total: int
    notes: list[str]
    milliseconds: float


class ListingAnswer(Answer):
    """One entry of a directory."""

    uri: str
    path: str
    name: str
    is_dir: bool
    size: int
    updated_at: str
    abstract: str | None = None


class TreeAnswer(BaseModel):
    """What is below a directory."""

    entries: list[ListingAnswer]
    left_out: int = Field(description="Entries beyond the limit.")


class ModelAnswer(BaseModel):
    """Which models work on the store."""

    embedding: str = Field(description="Its provider; none is search by words.")
    embedding_ready: bool = Field(description="Whether it is loaded.")
    llm: str = Field(description="Provider of the model that extracts memories; none leaves it to the client's.")
    llm_model: str


class AboutAnswer(BaseModel):
    """Which store this is, and what the caller may do."""

    version: str
    user_space: str
    agent_space: str
    label: str | None = Field(None, description="Of the token that was shown.")
    owner: bool = Field(description="Whether the caller is the owner of the folder, not the bearer of a token.")
    writable: bool
    private_mode: bool
    project: str | None = None
    decay_lambda: float
    half_life_days: float
    heat_threshold: float
    rank: str = Field(description="The profile that a search takes unless told otherwise.")
    ranks: list[str]
    types: list[str]
    counts: dict[str, int] = Field(description="Memories in use, by type.")
    passes: list[str] = Field(description="Passes of maintenance.")
    review: Literal["off", "automatic"]
    model: ModelAnswer
