"""The shapes of what the API answers about the past, conversations and upkeep."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from server.api.answers import Answer, OperationAnswer, Receipt, Row, SummaryAnswer


class StepAnswer(BaseModel):
    """What a commit did to one file."""

    uri: str
    action: Literal["created", "updated", "deleted"]
    moved_from: str | None = None
    appended: bool | None = Field(None, description="Whether a log only grew.")
    withheld: str | None = Field(None, description="Why its text is not shown.")


class CommitAnswer(Answer):
    """One commit, as far as the caller may see it."""

    commit_id: str
    at: str
    author: str
    kind: str
    undoes: str | None = Field(None, description="The commit that it took back.")
    undone_by: str | None = Field(None, description="The commit that took it back, if that still holds.")
    line: str = Field(description="What it did, for a person.")
    files: list[StepAnswer]
    file_count: int | None = Field(None, description="In a list: how many files it touched, where not all are named.")
    results: list[OperationAnswer]


class HistoryAnswer(BaseModel):
    """Commits, newest first."""

    commits: list[CommitAnswer]
    more: bool = Field(description="Whether there are older ones; ask with `before` the last commit_id.")


class FileDiffAnswer(StepAnswer):
    """What a commit changed in one file."""

    rows: list[Row]


class CommitDiffAnswer(BaseModel):
    """One commit with what it changed."""

    commit: CommitAnswer
    files: list[FileDiffAnswer]


class VersionAnswer(BaseModel):
    """A file as one commit left it."""

    commit: CommitAnswer
    action: Literal["created", "updated", "deleted"]
    withheld: str | None = None
    moved_from: str | None = None
    rows: list[Row]


class VersionsAnswer(BaseModel):
    """The versions of a file, newest first, through its renames."""

    versions: list[VersionAnswer]


class RowsAnswer(BaseModel):
    """Two texts side by side."""

    rows: list[Row]


class SessionAnswer(BaseModel):
    """A stored conversation."""

    session_id: str
    uri: str
    messages: int
    waiting: int = Field(description="Messages whose memories are still to be extracted.")
    segments: int
    updated_at: str


class SessionsAnswer(BaseModel):
    """Conversations, the latest first."""

    sessions: list[SessionAnswer]
    total: int


class MessageAnswer(BaseModel):
    """One message."""

    line: int
    role: str
    speaker: str
    time: str | None = None
    text: str


class SegmentAnswer(BaseModel):
    """What a conversation said about one topic."""

    uri: str
    session_id: str
    title: str
    summary: str
    keywords: list[str]
    first_line: int | None = Field(None, description="Line where its first page begins.")
    pages: list[tuple[int, int]] = Field(description="First and last line of each exchange.")


class ConversationAnswer(BaseModel):
    """Messages of one conversation, in order."""

    session_id: str
    uri: str
    messages: list[MessageAnswer]
    segments: list[SegmentAnswer]
    total: int
    offset: int


class HeatSegment(BaseModel):
    """A segment and what its heat is made of."""

    uri: str
    session_id: str
    title: str
    summary: str
    keywords: list[str]
    visits: int = Field(description="Since it was last cooled.")
    interactions: int
    hours: float = Field(description="Since the last visit, else since it began.")
    heat: float


class HeatMemory(BaseModel):
    """A memory that is used, and what age leaves of it."""

    uri: str
    path: str
    name: str
    memory_type: str
    accesses: int
    age_days: float = Field(description="Since the last access.")
    decay: float
    salience: float


class HeatAnswer(BaseModel):
    """What is hot, and how it cools."""

    segments: list[HeatSegment] = Field(description="Hottest first.")
    threshold: float = Field(description="Heat from which a segment's exchanges become memories.")
    tau_hours: float
    alpha: float
    beta: float
    gamma: float
    memories: list[HeatMemory] = Field(description="Most used first, at most 50.")
    decay_lambda: float = Field(alias="lambda")


class WaitingAnswer(BaseModel):
    """A conversation whose memories are still to be extracted."""

    session_id: str
    uri: str
    messages: int
    since: str
    attempts: int
    retry_at: str | None = None
    reason: str | None = None


class QueueAnswer(BaseModel):
    """What waits, longest first."""

    waiting: list[WaitingAnswer]


class ConsolidationAnswer(BaseModel):
    """What became of what waited."""

    receipts: list[Receipt]
    waiting: int = Field(description="Conversations that still wait.")


class ReceiptsAnswer(BaseModel):
    """A receipt for each commit."""

    receipts: list[Receipt]


class ArchivedAnswer(BaseModel):
    """A file of the archive."""

    uri: str
    original: str = Field(description="Where it was.")
    at: str | None = None
    reason: str | None = None
    abstract: str


class ArchiveAnswer(BaseModel):
    """Files of the archive."""

    archived: list[ArchivedAnswer]
    more: bool


class PassAnswer(BaseModel):
    """What one pass of maintenance did, or would do."""

    name: str
    receipts: list[Receipt]
    changed: int
    failure: str | None = None
    hint: str | None = None


class MaintenanceAnswer(BaseModel):
    """What the passes did, or would do."""

    passes: list[PassAnswer]


class ProceduralEntry(SummaryAnswer):
    """What is known of a tool or a skill, with its figures."""

    figures: dict[str, float | None] = Field(description="Its counts and averages, by field.")


class ProceduralAnswer(BaseModel):
    """How things are done: patterns, tools, skills and cases."""

    patterns: list[SummaryAnswer]
    tools: list[ProceduralEntry]
    skills: list[ProceduralEntry]
    cases: list[SummaryAnswer]


class RollingSummaryAnswer(BaseModel):
    """The page that every new session begins with; empty where there is none yet."""

    text: str
    html: str
    written_by: Literal["person", "maintenance", "nobody"]
    updated_at: str | None = None
    sha256: str = Field(description="Of its file; empty where there is none.")
    uri: str


class SummaryWritten(BaseModel):
    """What became of a new rolling summary."""

    receipt: Receipt
    summary: RollingSummaryAnswer


class ProposalAnswer(Answer):
    """A change that waits for its owner."""

    name: str = Field(description="Its id.")
    title: str
    op: str
    uri: str
    would: str
    target: str
    texts: dict[str, str]
    edited: bool
    session_id: str | None = None
    at: str
    reason: str
    gone: str


class ReviewAnswer(BaseModel):
    """What waits for review, oldest first."""

    waiting: list[ProposalAnswer]


class RecallHit(BaseModel):
    """What a retrieval returned."""

    uri: str
    score: float


class RecallAnswer(BaseModel):
    """One retrieval."""

    at: str
    query: str
    kind: str
    hits: list[RecallHit]
    milliseconds: float
    cached: bool
    rank: str
    session_id: str | None = None
    project: str | None = None


class TrailAnswer(BaseModel):
    """Which query retrieved what, newest first."""

    trail: list[RecallAnswer]


class StatsAnswer(Answer):
    """Figures of the store; more than these."""

    memories: int
    by_type: dict[str, int]


class FindingAnswer(BaseModel):
    """One thing that an examination has to say."""

    check: str
    severity: Literal["ok", "notice", "warning", "error"]
    subject: str
    detail: str
    repair: str | None = None


class HealthAnswer(BaseModel):
    """An examination of the store from all sides."""

    clean: bool
    repaired: list[str]
    findings: list[FindingAnswer]
