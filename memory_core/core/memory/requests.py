"""Requests: what is asked of a store, one frozen dataclass for each operation.

A surface reads one at the edge (``command.read_request``) and every layer takes it as it is. ``now`` and ``here`` are
for callers of the library: the moment that ages count from, and the project that the caller works in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Annotated, Any

from memory_core.core.command import NOWHERE, Arg, Command
from memory_core.core.frozen import frozen

RANKS = ("relevance", "balanced", "decay", "weighted")
OUTPUTS = ("agent", "original")
CONTEXT_FORMATS = ("blocks", "text", "system", "messages-anthropic", "messages-openai")
Now = Annotated[datetime | None, Arg(help="The moment; default the clock's.", surfaces=NOWHERE)]
Here = Annotated[str | None, Arg(help="The project that the caller works in.", surfaces=NOWHERE)]
SearchedProject = Annotated[
    str | None,
    Arg(
        help='Only memories of this project; "." is the current one. Default: all, the current project first.',
        cli='only this project; "." is the one you are in (default: all, that one first)',
    ),
]
_PROJECT_OF = (
    'Project it belongs to, e.g. github.com/acme/backend; "global" is none. Default: the current one for cases, '
    "patterns and conversations, none for what is about the user."
)
#: Members of a commit that say how it is done, not what.
_AROUND = frozenset({"request_id", "dry_run", "project", "space", "metadata", "alone", "extract", "here", "now"})
_TYPES = (
    "profile, preferences, entities, events, cases, patterns, tools, skills, facts, tasks, reflections, "
    "assistant_knowledge, notes (default), daily_logs (an entry of today's log; fields kind: event, auto_extract or "
    "reflection, tool, error), rolling_summary (the page that sessions begin with, written anew), or a type of the "
    "owner's."
)


@dataclass(frozen=True, slots=True, kw_only=False)
class CommitRequest:
    """Remember something: one memory, ready-made operations, or a conversation; exactly one of the three.

    Attributes:
        metadata: Of one memory: keys of ``metadata.METADATA`` that a commit may give.
        alone: An argument of a feature that stands alone, such as ``undo``, by its name.
        expected: Of one memory, or operations that answer no brief: SHA-256 of files by URI. If one of them is
            something else by now, nothing is stored and the receipt says ``conflict``.
        extract: Of a conversation: False only stores it.
    """

    memory_content: Annotated[
        str | None,
        Arg(
            help="One memory, in the user's language.",
            cli="the memory; '-' reads standard input",
            positional=True,
            metavar="content",
        ),
    ] = None
    memory_type: Annotated[
        str | None,
        Arg(
            help=_TYPES,
            cli="memory type (default notes; daily_logs: today's log); see runebook types",
            flag="--type",
        ),
    ] = None
    priority: Annotated[str | float | None, Arg(help="low, normal, high, critical, or 0 to 1.")] = None
    category: Annotated[str | None, Arg(help="A label; also picks a type if none is named.")] = None
    fields: Annotated[
        Mapping[str, str | int | float | bool | None] | None,
        Arg(
            help="The type's fields, e.g. {topic: …} for preferences.",
            cli="a field of the type; repeatable",
            flag="--field",
            metavar="NAME=VALUE",
        ),
    ] = None
    metadata: Annotated[Mapping[str, Any], Arg(help="What else is said of one memory.")] = field(default_factory=dict)
    messages: Annotated[
        Sequence[dict[str, Any]] | None,
        Arg(
            help="A conversation, also in Anthropic's or OpenAI's shape with tool calls. "
            "Stored verbatim, then turned into memories; what is already stored is skipped.",
            cli="JSON list of messages; '-' reads standard input",
            is_file=True,
        ),
    ] = None
    session_id: Annotated[
        str | None,
        Arg(
            help="Session of the messages; with operations: of the brief they answer.",
            cli="session the messages belong to",
        ),
    ] = None
    operations: Annotated[
        Any,
        Arg(
            help="Writes, edits, deletes; each stands alone.",
            cli="JSON MemoryOperations; '-' reads standard input",
            is_file=True,
        ),
    ] = None
    request_id: Annotated[
        str | None,
        Arg(
            help="Makes a retry safe: the same id returns the first receipt.",
            cli="makes a retry return the first receipt",
        ),
    ] = None
    project: Annotated[
        str | None,
        Arg(
            help=_PROJECT_OF,
            cli='project it belongs to; "." is the one you are in, "global" is none (default: by type)',
        ),
    ] = None
    private: Annotated[
        bool | None,
        Arg(help="Keep it from every other project.", cli="keep it from every other project, or share it"),
    ] = None
    space: Annotated[
        str | None,
        Arg(help="A shared space to store in, undo or forget in; default your own.", surfaces=frozenset({"mcp"})),
    ] = None
    brief: Annotated[
        bool | None,
        Arg(
            help="With messages, or alone: returns the brief of session_id, or of what waits longest.",
            cli="print the task by which a model turns a stored conversation into memories",
        ),
    ] = None
    dry_run: Annotated[bool, Arg(help="Show what would change; store nothing.")] = False
    alone: Annotated[Mapping[str, Any], Arg(surfaces=NOWHERE)] = field(default_factory=dict)
    expected: Annotated[Mapping[str, str] | None, Arg(surfaces=NOWHERE)] = None
    extract: Annotated[bool, Arg(surfaces=NOWHERE)] = True
    here: Here = None
    now: Now = None

    @property
    def given(self) -> tuple[str, ...]:
        """Names of what is to be done or stored: those that stand alone, then all others."""
        members = [each.name for each in fields(self) if each.name not in _AROUND]
        others = [name for name in members if getattr(self, name) is not None]
        return (*self.alone, *others, *self.metadata)


@frozen
class FindRequest:
    """Search memories and past conversations by meaning and by words."""

    query: Annotated[str, Arg(help="A question or key words, in any language.", cli="-", positional=True)]
    target_uri: Annotated[str, Arg(help="Only below this directory.")] = ""
    limit: Annotated[int, Arg(help="Hits at most; default 10.", cli="hits at most (default 10)", least=1, most=100)] = (
        10
    )
    score_threshold: Annotated[
        float | None,
        Arg(help="Leave out hits below it.", cli="leave out hits that score less (0 to 1)", least=0, most=1),
    ] = None
    filter: Annotated[
        Mapping[str, Any] | None,
        Arg(
            help='{field: value} or {field: {eq|ne|in|gt|gte|lt|lte|contains: value}}, {"and"|"or": [...]}, '
            '{"not": {...}}; also over salience, confidence, active, pinned, expires_at, created_at, updated_at, role.',
            cli='JSON, e.g. {"memory_type": "facts"}',
        ),
    ] = None
    rank: Annotated[
        str | None,
        Arg(
            help="relevance ignores age and importance; default: the owner's setting.",
            cli="default: search.rank",
            choices=RANKS,
        ),
    ] = None
    project: SearchedProject = None
    here: Here = None
    now: Now = None


@frozen
class ReadRequest:
    """Read a memory file, or a page of history or metrics, by lines."""

    uri: Annotated[str, Arg(help="As find, ls and tree print it.", cli="-", positional=True)]
    offset: Annotated[int, Arg(help="First line, from 0.")] = 0
    limit: Annotated[int, Arg(help="Lines; default -1, all.")] = -1
    limit_chars: Annotated[int | None, Arg(surfaces=NOWHERE)] = None
    here: Here = None


@frozen
class ListRequest:
    """List a memory directory with one-line abstracts."""

    uri: Annotated[
        str,
        Arg(help="A directory, e.g. viking://user/default/memories.", cli="-", positional=True, usual="viking://"),
    ]
    output: Annotated[str, Arg(help="agent (default) adds abstracts.", choices=OUTPUTS)] = "agent"
    abs_limit: Annotated[int, Arg(help="Characters of an abstract; default 256.", least=1, most=2_000)] = 256
    show_all_hidden: Annotated[bool, Arg(help="Also .abstract.md and .overview.md.")] = False
    node_limit: Annotated[int, Arg(help="Entries at most; default 1000.", least=1, most=10_000)] = 1000
    here: Here = None


@frozen
class TreeRequest(ListRequest):
    """List all memory directories and files below a URI."""

    uri: Annotated[str, Arg(cli="-", positional=True)] = "viking://"
    level_limit: Annotated[int, Arg(help="Depth; default 3.", cli="depth (default 3)", least=1, most=16)] = 3
    counts_deeper: Annotated[bool, Arg(surfaces=NOWHERE)] = True


@frozen
class RetrieveRequest:
    """Context for an agent's next step, packed into a token budget."""

    query: Annotated[str | None, Arg(help="What you are about to deal with.", cli="-", positional=True)] = None
    messages: Annotated[
        Sequence[dict[str, Any]] | None,
        Arg(
            help="Instead of query: the conversation; its last 5 user messages count.",
            cli="JSON messages; the user's last five are the query",
            is_file=True,
        ),
    ] = None
    session_id: Annotated[
        str | None,
        Arg(
            help="Your session: what it was given before is not repeated.",
            cli="what this session was given before is not repeated",
        ),
    ] = None
    tool: Annotated[
        str | Sequence[str] | None,
        Arg(
            help="Tools at hand, by name: adds what is known of using them.",
            cli="a tool at hand; repeatable: adds what is known of it",
            repeatable=True,
        ),
    ] = None
    skill: Annotated[
        str | None,
        Arg(help="Skill you are about to use, by name; likewise.", cli="the skill at hand: adds what is known of it"),
    ] = None
    token_budget: Annotated[
        int | None, Arg(help="Default 4000.", cli="default: retrieve.token_budget", least=200, most=10_000)
    ] = None
    format: Annotated[
        str,
        Arg(
            help="blocks (default): typed blocks; text: Markdown; system: for a system prompt; messages-…: a simulated "
            "tool call and result in that API's shape.",
            cli="default text; messages-… prints JSON to insert after the user's message",
            choices=CONTEXT_FORMATS,
            usual="text",
        ),
    ] = "blocks"
    fresh: Annotated[
        bool,
        Arg(
            help="Your context was compacted or lost: give everything again.",
            cli="the session's context was lost: repeat everything",
        ),
    ] = False
    project: SearchedProject = None
    here: Here = None
    now: Now = None


COMMIT = Command(
    "commit",
    CommitRequest,
    lambda memory, request: memory.commit(request),
    help="Remember something.",
    fails=lambda receipt: receipt.status == "rejected",
    writes=True,
)
FIND = Command(
    "find",
    FindRequest,
    lambda memory, request: memory.find(request),
    help="Search memories and past conversations.",
    searches=True,
)
READ = Command("read", ReadRequest, lambda memory, request: memory.read(request), help="Read a memory file.")
LS = Command("ls", ListRequest, lambda memory, request: memory.ls(request), help="List a directory.")
TREE = Command(
    "tree",
    TreeRequest,
    lambda memory, request: memory.tree(request),
    help="List what is below a URI, three levels deep.",
)
RETRIEVE = Command(
    "retrieve",
    RetrieveRequest,
    lambda memory, request: memory.retrieve(request),
    help="Print context for a task, packed into a token budget.",
    searches=True,
)
