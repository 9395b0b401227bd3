"""How memories are connected: relations are made, changed and removed; and all of them together are a graph.

A graph's nodes are memories and the conversations that they come from. Its edges are relations (``core/commit/links``),
that a memory was told in a conversation, and that it names somebody or something of which there is a memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from memory_core.core.command import Arg, Command
from memory_core.core.commit.links import link, unlink
from memory_core.core.commit.working_copy import WorkingCopy
from memory_core.core.errors import InvalidInput, NotFound, RunebookError
from memory_core.core.feature import Feature
from memory_core.core.frozen import frozen
from memory_core.core.index.filter import Condition, compile_filter, not_private_elsewhere
from memory_core.core.index.tokenizer import name_pattern
from memory_core.core.memory.memory import parse
from memory_core.core.memory.metadata import REVERSE, Metadata
from memory_core.core.memory.operations import GivenLink, refusal
from memory_core.core.memory.requests import Now
from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt, OperationResult
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Snapshot

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

KIND = "relate"
NODES_MOST = 400
_MENTIONS, _TOLD_IN = "mentions", "told in"
#: Whose names are looked for in other memories; a single letter stands in too many texts.
_NAMED_TYPE, _NAME_CHARS = "entities", 2
#: Both ends store a relation; the one in this set is drawn, its reverse is not.
_DRAWN = frozenset({"similar", "contradicts", "supports", "refines", "replaces"})
#: Names are looked for in so much of each text.
_READ_CHARS = 20_000
_SELECT = (
    "SELECT d.uri, d.name, d.memory_type, d.abstract, d.salience, d.updated_at, "
    f"substr(d.own, 1, {_READ_CHARS}) FROM documents d WHERE"
)


@dataclass(frozen=True, slots=True)
class RelateRequest:
    """Relate a memory to another, change that relation, or remove it."""

    uri: Annotated[str, Arg(help="The memory.", positional=True, metavar="URI")]
    other: Annotated[str, Arg(help="The other memory.", positional=True, metavar="OTHER")]
    relation: Annotated[str, Arg(help="similar, supports, contradicts, refines or replaces.")] = "similar"
    strength: Annotated[float, Arg(help="From 0 to 1.", least=0.0, most=1.0)] = 0.5
    instead: Annotated[str | None, Arg(help="Remove this relation of the two first.", metavar="RELATION")] = None
    remove: Annotated[bool, Arg(help="Remove the relation.")] = False
    dry_run: Annotated[bool, Arg(help="Show what would change; store nothing.")] = False
    now: Now = None


@dataclass(frozen=True, slots=True)
class GraphRequest:
    """Show how memories are connected."""

    types: Annotated[Sequence[str], Arg(help="Only memories of this type.", flag="--type", repeatable=True)] = ()
    after: Annotated[str | None, Arg(help="Only those changed from then on; ISO date or time.")] = None
    before: Annotated[str | None, Arg(help="Only those changed up to then; ISO date or time.")] = None
    around: Annotated[str | None, Arg(help="This memory and what it is connected with.", metavar="URI")] = None
    limit: Annotated[int, Arg(help="Memories at most.", least=1, most=NODES_MOST)] = 150


@frozen
class GraphNode:
    """A memory, or a conversation.

    Attributes:
        uri: Where it is.
        name: What it is called.
        type: The memory's type, or ``conversation``.
        abstract: What it says, in a line.
        salience: How important it is, in [0, 1].
        updated_at: When it was changed last; None where that is not known.
    """

    uri: str
    name: str
    type: str
    abstract: str = ""
    salience: float = 0.5
    updated_at: str | None = None


@frozen
class GraphEdge:
    """How one node is connected with another.

    Attributes:
        source: URI.
        target: URI.
        relation: One of the relations, ``mentions`` or ``told in``.
        strength: In [0, 1].
    """

    source: str
    target: str
    relation: str
    strength: float = 0.5


@frozen
class Graph:
    """Nodes and their connections.

    Attributes:
        nodes: Memories, and conversations.
        edges: Between these.
        left_out: How many memories meet the filter beside them; around one memory this is not counted, and 0.
    """

    JSON: ClassVar = "nodes edges left_out"

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    left_out: int = 0


def relate(memory: Runebook, request: RelateRequest) -> CommitReceipt:
    """Make, change or remove a relation, at both ends, in one commit.

    Raises:
        InvalidInput: If the relation is none, or the strength is out of range.
    """
    relation, instead = request.relation.strip().casefold(), (request.instead or "").strip().casefold()
    for name in filter(None, (relation, instead)):
        if name not in REVERSE:
            raise InvalidInput(f"the relation {name[:64]!r} is unknown.", hint=f"Use one of: {', '.join(REVERSE)}.")
    if not 0.0 <= request.strength <= 1.0:
        raise InvalidInput(f"the strength {request.strength} is out of range.", hint="Use 0 to 1.")
    context = memory.plan_context(now := request.now or datetime.now(UTC))

    def related(copy: WorkingCopy) -> OperationResult:
        source, other = copy.owned(request.uri), copy.owned(request.other)
        before = copy.existing(source).text, copy.text(other)
        for gone in filter(None, (instead, relation if request.remove else None)):
            if not unlink(copy, source, other, gone):
                raise NotFound(f"the two are not related by {gone!r}.", hint="Read the memory; it names its relations.")
        given = GivenLink(uri=str(other), relation=relation, strength=request.strength)
        linked = link(copy, source, [] if request.remove else [given])
        for _, error in linked.refused:
            raise error
        same = before == (copy.text(source), copy.text(other))
        action = Action.UNCHANGED if same else Action.UPDATED
        return OperationResult(KIND, str(source), action, note="; ".join(linked.told()) or None)

    def planned(snapshot: Snapshot) -> ChangeSet:
        copy = WorkingCopy(snapshot, context)
        try:
            result = related(copy)
        except RunebookError as error:
            return ChangeSet((), (refusal(KIND, request.uri, error),))
        return ChangeSet(copy.changes(), (result,))

    return memory.indexed(memory.store.commit(planned, kind=KIND, now=now, dry_run=request.dry_run))


def graph(memory: Runebook, request: GraphRequest) -> Graph:
    """Memories and how they are connected: the most important ones, or one with what it is connected with.

    Raises:
        InvalidInput: If the filter is out of range.
        NotFound: If the memory in the middle is not there.
    """
    if not 1 <= request.limit <= NODES_MOST:
        raise InvalidInput(f"limit {request.limit} is out of range.", hint=f"Use 1 to {NODES_MOST}.")
    memory.opened.look()
    memory.follow_index()
    rows, total = _rows(memory, request)
    if request.around is not None:
        rows = _neighbours(memory, request.around, rows)
    shown = dict(list(rows.items())[: request.limit])
    nodes = {uri: row.node for uri, row in shown.items()}
    edges = list(_mentions(shown))
    for uri in shown:
        metadata = _metadata(memory, uri)
        edges += [
            GraphEdge(uri, other.uri, other.relation, other.strength)
            for other in metadata.links
            if other.uri in shown and other.relation in _DRAWN
        ]
        if metadata.session and (told := _conversation(memory, metadata.session)) is not None:
            nodes.setdefault(told.uri, told)
            edges.append(GraphEdge(uri, told.uri, _TOLD_IN))
    both = {(edge.target, edge.source, edge.relation) for edge in edges if REVERSE.get(edge.relation) == edge.relation}
    left_out = 0 if request.around is not None else max(0, total - len(shown))
    drawn = [
        edge for edge in edges if (edge.source, edge.target, edge.relation) not in both or edge.source < edge.target
    ]
    return Graph(tuple(nodes.values()), tuple(dict.fromkeys(drawn)), left_out)


@frozen
class _Row:
    node: GraphNode
    own: str


def _rows(memory: Runebook, request: GraphRequest) -> tuple[dict[str, _Row], int]:
    """The memories that meet the filter, the most important first; of very many only so many; and how many do."""
    wanted: dict[str, Any] = {"memory_type": {"in": list(request.types)}} if request.types else {}
    times = {op: value for op, value in (("gte", request.after), ("lte", request.before)) if value}
    found = compile_filter(wanted | ({"updated_at": times} if times else {}))
    shown = _shown(memory)
    where = f"{shown.sql} AND d.context_type <> 'resource'{'' if found is None else f' AND {found.sql}'}"
    parameters = (*shown.parameters, *(() if found is None else found.parameters))
    with memory.indexer.catalog.reading() as connection:
        (total,) = connection.execute(f"SELECT count(*) FROM documents d WHERE {where}", parameters).fetchone()
        order = "ORDER BY d.salience DESC, d.updated_at DESC, d.uri LIMIT ?"
        most = request.limit if request.around is None else NODES_MOST
        rows = connection.execute(f"{_SELECT} {where} {order}", (*parameters, most)).fetchall()
    return _read(rows), int(total)


def _neighbours(memory: Runebook, around: str, rows: Mapping[str, _Row]) -> dict[str, _Row]:
    """The memory in the middle, then what it is related to, told beside, or named with."""
    middle = str(memory.browser.visible(MemoryUri.parse(around)))
    listed = {uri: row for uri, row in rows.items() if uri == middle} or _named(memory, [middle])
    if middle not in listed:
        raise NotFound(f"there is no memory in use at {middle!r}.", hint="Look it up with find.")
    own = _metadata(memory, middle)
    linked = [each.uri for each in own.links]
    everything = {**_named(memory, [uri for uri in linked if uri not in rows]), **rows, **listed}
    near = {edge.target if edge.source == middle else edge.source for edge in _mentions(everything, middle)}
    told = {uri for uri in rows if own.session and uri != middle and _metadata(memory, uri).session == own.session}
    wanted = [middle, *linked, *sorted(near | told)]
    return {uri: everything[uri] for uri in dict.fromkeys(wanted) if uri in everything}


def _shown(memory: Runebook) -> Condition:
    """That a document is the first part of a file in use that may be seen from no project, and no conversation's."""
    spaces = [space for space in memory.spaces if not space.startswith("session/")]
    elsewhere = not_private_elsewhere(None)
    marks = ", ".join("?" * len(spaces))
    return Condition(
        f"d.space IN ({marks}) AND d.part = 0 AND d.active AND {elsewhere.sql}", (*spaces, *elsewhere.parameters)
    )


def _named(memory: Runebook, uris: Sequence[str]) -> dict[str, _Row]:
    """These memories, as far as they are in use and may be seen."""
    shown = _shown(memory)
    where = f"d.uri IN (SELECT value FROM json_each(?)) AND {shown.sql}"
    parameters = (json.dumps(list(uris)), *shown.parameters)
    return _read(memory.indexer.catalog.connection().execute(f"{_SELECT} {where}", parameters).fetchall())


def _read(rows: Sequence[Sequence[Any]]) -> dict[str, _Row]:
    return {row[0]: _Row(GraphNode(*row[:6]), row[6]) for row in rows}


def _mentions(rows: Mapping[str, _Row], around: str | None = None) -> Iterator[GraphEdge]:
    """Which memories name somebody or something that another one is about; ``around``: only where it is one of both."""
    texts = {uri: row.own.casefold() for uri, row in rows.items()}
    for uri, row in rows.items():
        name = row.node.name.casefold()
        if row.node.type == _NAMED_TYPE and len(name) >= _NAME_CHARS:
            pattern = re.compile(name_pattern(name))
            among = texts if around in (None, uri) else {around: texts[around]}
            yield from (
                GraphEdge(other, uri, _MENTIONS, 0.3)
                for other, text in among.items()
                if other != uri and name in text and pattern.search(text)
            )


def _metadata(memory: Runebook, uri: str) -> Metadata:
    """What a memory's trailer says; nothing where its file cannot be read."""
    try:
        text = memory.store.text(MemoryUri.parse(uri))
    except RunebookError:
        return Metadata()
    return Metadata() if text is None else parse(MemoryUri.parse(uri), text, None).metadata


def _conversation(memory: Runebook, session: str) -> GraphNode | None:
    try:
        log = memory.browser.visible(memory.commits.session_uri(session))
    except RunebookError:
        return None
    return GraphNode(str(log), session, "conversation") if memory.store.files.stat(log) is not None else None


def _graph_text(found: Graph) -> str:
    if not found.edges:
        what = f"None of {len(found.nodes)} memories is connected with another" if found.nodes else "No memory is there"
        return f"{what} yet. To relate two: runebook relate URI OTHER" if found.nodes else f"{what} yet."
    names = {node.uri: node.name for node in found.nodes}
    return "\n".join(f"{names[edge.source]} — {edge.relation} — {names[edge.target]}" for edge in found.edges)


RELATE = Command("relate", RelateRequest, relate, fails=lambda receipt: receipt.has_refusals, writes=True)
GRAPH = Command("graph", GraphRequest, graph, text=_graph_text)
FEATURE = Feature(commands=(RELATE, GRAPH))
