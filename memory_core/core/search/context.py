"""The context engine of one store: arguments as a caller gives them, in; a context pack, out.

Checks what was asked, binds the search to the project at hand, and notes the retrieval once, not each search of it.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from memory_core.core.errors import InvalidInput, StorageFailed, StoreBusy
from memory_core.core.frozen import frozen
from memory_core.core.memory.message_shapes import parse_messages
from memory_core.core.memory.requests import CONTEXT_FORMATS, FindRequest, RetrieveRequest
from memory_core.core.memory.results import ContextItem, ContextPack, ContextPart, FindResult, merge_results
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.search.context_formats import (
    Blocks,
    Format,
    Markdown,
    Packing,
    Piece,
    SimulatedCalls,
    SystemPrompt,
    json_tokens,
    pack,
)
from memory_core.core.search.context_sources import (
    Find,
    PieceReader,
    Spaces,
    TurnLimits,
    procedural,
    recall,
    space_of,
    tools_named,
)
from memory_core.core.search.passages import words_sought
from memory_core.core.store.usage import Recall
from memory_core.core.text.language import is_small_talk
from memory_core.core.text.tokens import count_tokens

if TYPE_CHECKING:
    from memory_core.core.config import Config
    from memory_core.core.memory.memory_type import MemoryTypeRegistry
    from memory_core.core.memory.project import ProjectScope
    from memory_core.core.search.browse import Browser
    from memory_core.core.search.find import Retriever
    from memory_core.core.search.recalls import Recalls
    from memory_core.core.store.ledger import Ledger

LEAST_TOKENS, MOST_TOKENS = 200, 10_000
_TOOLS_LIMIT = 100
_NAME_CHARS = 200

#: Rows of a session beside URIs: that it was greeted with profile and directory, and that recall has begun.
_GREETED, _RECALLED = "viking://#greeted", "viking://#recalled"
_PROCEDURAL_LIMIT = 5
#: Turns that are looked at: as many as the budget may hold, as a turn of a few words costs.
_LEAST_TURNS, _MOST_TURNS, _TURN_TOKENS = 20, 100, 20
_HOT_LIMIT = 10
#: Rules of the user's, and preferences that are none, that are given whatever is asked.
_RULES_LIMIT, _TASTES_LIMIT = 32, 12
#: Turns are read for so many times the budget, as not all of them fit.
_READ_TIMES = 2
#: Of joined messages the end is the question; search reads no more than this.
_QUERY_CHARS = 8_000
#: Share of the budget that the current input may take, and characters that a token of it may have.
_INPUT_SHARE = 0.05
_CHARS_PER_TOKEN = 8
#: Of what did not fit so many are named, as far as there is room; notes may take this share of the budget.
_LEFT_OUT_NAMED = 10
_NOTES_SHARE = 0.25
#: What may stand beside the pieces; and what a text costs there beside itself.
_BESIDE_TOKENS = json_tokens({"tokens": MOST_TOKENS, "left_out": [], "left_out_count": MOST_TOKENS, "notes": []})
_BESIDE_ONE_TOKENS = 3


@frozen
class ContextRequest:
    """What context is for.

    Attributes:
        now: Aware.
        project: The project at hand; private memories of others are left out.
        query: What was asked outright; never blank.
        said: The user's messages, oldest first; the last ones are the query where none is given.
        session_id: The session's folder name; without one nothing is remembered between calls.
        tools: Names of the tools at hand.
        skill: Name of the skill at hand.
        token_budget: Tokens of the whole result, in either form.
        form: One of ``CONTEXT_FORMATS``.
        fresh: Whether the session's context was lost, so that everything may come again.
    """

    now: datetime
    project: ProjectScope
    query: str | None = None
    said: tuple[str, ...] = ()
    session_id: str | None = None
    tools: tuple[str, ...] = ()
    skill: str | None = None
    token_budget: int = 4_000
    form: str = "blocks"
    fresh: bool = False

    def questions(self, messages: int) -> list[str]:
        """The query; else the last so many messages together, and the newest alone. Empty where there is nothing."""
        if self.query is not None:
            return [self.query]
        joined = "\n".join(text for text in self.said[-messages:] if text.strip())
        texts = (text[-_QUERY_CHARS:].replace("\x00", " ") for text in (joined, self.newest))
        return list(dict.fromkeys(text for text in texts if text.strip()))

    @property
    def newest(self) -> str:
        """What the user, or the agent, said last."""
        return self.query if self.query is not None else next(iter(self.said[-1:]), "")


#: Asked of each pack and its budget: a smaller budget, or None where the pack can be delivered.
Fit = Callable[[ContextPack, int], int | None]


@dataclass(slots=True)
class _ContextParts:
    """Candidates of each part, best first, no URI twice; and what to tell the caller."""

    parts: dict[str, list[Piece]]
    notes: list[str]
    taken: set[str]
    known: Mapping[str, str]
    repeated: int = 0

    def add(self, pieces: Iterable[Piece | None], *, again: bool = False, told: bool = True) -> None:
        """Add what is there, not yet among them, and new to the session.

        ``again``: also what the session has; ``told``: count what is left out because the session has it.
        """
        for piece in pieces:
            if piece is None or piece.uri in self.taken:
                continue
            self.taken.update((piece.uri, *(uri for uri, _ in piece.within)))
            if not again and self.known.get(piece.uri) == _digest(piece.text):
                self.repeated += told
                continue
            self.parts.setdefault(piece.kind, []).append(piece)


class ContextEngine:
    """Retrieves context from one store.

    Args:
        config: Settings.
        ledger: Names, counts, order of conversations, and what sessions were given.
        registry: Memory types.
        browser: Reads files.
        retriever: Searches.
        recalls: Notes the retrieval, and knows the memories used most.
        traces: Whether it is kept what sessions are given.
        waiting: Given a session, what a client is told of other conversations that wait; None for nothing.
        shared: The engines of shared spaces, by their names; their memories are recalled as well, and their rules hold.
    """

    def __init__(
        self,
        config: Config,
        ledger: Ledger,
        registry: MemoryTypeRegistry,
        browser: Browser,
        retriever: Retriever,
        recalls: Recalls,
        *,
        traces: bool = True,
        waiting: Callable[[str | None], str | None] = lambda _session: None,
        shared: Mapping[str, ContextEngine] | None = None,
    ) -> None:
        self._waiting = waiting
        self._shared = shared or {}
        self._config = config.retrieve
        self._owner_names = config.owner_names
        self._ledger = ledger
        self._registry = registry
        self._browser = browser
        self._retriever = retriever
        self._recalls = recalls
        self._traces = traces
        self._spaces = Spaces(config.user_space, config.agent_space)

    def retrieve(
        self, asked: RetrieveRequest, project: ProjectScope, fit: Fit = lambda _pack, _budget: None
    ) -> ContextPack:
        """Context for an agent's next step, inside a token budget.

        Raises:
            InvalidInput: If an argument is wrong.
        """
        if asked.format not in CONTEXT_FORMATS:
            known = ", ".join(CONTEXT_FORMATS)
            raise InvalidInput(f"format {asked.format!r} is unknown.", hint=f"Use one of: {known}.")
        started = time.perf_counter()
        now = asked.now
        moment = now or datetime.now().astimezone()  # days of logs are those of the clock on the wall
        request = ContextRequest(
            now=moment,
            query=asked.query if asked.query and asked.query.strip() else None,
            said=_said(asked.messages),
            session_id=None if asked.session_id is None else self._session(asked.session_id),
            tools=_names(asked.tool),
            skill=None if asked.skill is None else _name(asked.skill, "skill"),
            token_budget=_budget(self._config.token_budget if asked.token_budget is None else asked.token_budget),
            form=asked.format,
            fresh=asked.fresh,
            project=project,
        )

        def find(query: str, limit: int, filter: Mapping[str, Any] | None) -> FindResult:
            wanted = FindRequest(query, limit=limit, filter=filter, now=now)
            own = self._retriever.find(wanted, project)
            return merge_results([own, *(each._knowledge(wanted, project) for each in self._shared.values())], limit)

        pack = self._build(request, find, fit)
        given = [item for part in pack.parts if part.kind != "directory" for item in part.items]
        for name, engine in {"": self, **self._shared}.items():
            hits = [(item.uri, item.score or 0.0) for item in given if self._shared_name(item.uri) == name]
            if name and not hits:
                continue
            engine._recalls.note(
                Recall(
                    now or datetime.now(UTC),
                    next(iter(request.questions(self._config.query_messages)), ""),
                    "retrieve",
                    tuple(hits),
                    1_000 * (time.perf_counter() - started),
                    session_id=None if name else request.session_id,
                    project=project.current,
                )
            )
        return pack

    def _knowledge(self, wanted: FindRequest, project: ProjectScope) -> FindResult:
        """What is found beside turns of conversations."""
        found = self._retriever.find(wanted, project)
        return replace(found, resources=tuple(hit for hit in found.resources if hit.memory_type != "message"))

    def _shared_name(self, uri: str) -> str:
        """The shared space that an address is in; empty for the user's own."""
        space = space_of(uri)
        return space if space in self._shared else ""

    def _reader(self, project: ProjectScope) -> PieceReader:
        others = {name: engine._reader(project) for name, engine in self._shared.items()}
        return PieceReader(self._browser, self._ledger, self._registry, self._spaces, project, others)

    def _build(self, request: ContextRequest, find: Find, fit: Fit) -> ContextPack:
        """Gather, pack, and note what the session was given."""
        injections, session = self._ledger.injections, request.session_id
        key = f"{self._spaces.user}/{session}"
        seen = {} if session is None or request.fresh else injections.seen(key)
        silent = self._config.intent_check and bool(request.newest) and is_small_talk(request.newest)
        gathered = self._gather(request, find, seen, silent)
        budget = request.token_budget
        while True:
            packing, result = _packed(request, gathered.parts, budget, _told(gathered, request.token_budget, budget))
            smaller = fit(result, budget)
            if smaller is None:
                break
            budget = smaller
        if session is None or not self._traces:
            return result
        shown = (piece for piece in packing.pieces if piece.kind != "directory")
        # Of a text that was shown in part another question may need another part.
        given = {piece.uri: piece for piece in shown if not (piece.cut and piece.passages)}
        items = {piece.uri: _digest(piece.text) for piece in chain(*gathered.parts.values()) if piece.uri in given}
        items |= {uri: _digest(text) for piece in given.values() if not piece.cut for uri, text in piece.within}
        asked = not silent and bool(request.questions(self._config.query_messages))
        started = {_GREETED: "", _RECALLED: ""} if asked else {_GREETED: ""}
        try:
            if request.fresh:
                injections.forget(key)
            injections.record(key, items | started, request.now.isoformat())
        except (StoreBusy, StorageFailed) as error:
            notes = _fitting(
                [f"some of this may be given again: {error.message}"], request.token_budget - result.tokens
            )
            return replace(result, notes=(*result.notes, *notes))
        return result

    def _gather(self, request: ContextRequest, find: Find, seen: Mapping[str, str], silent: bool) -> _ContextParts:
        reader = self._reader(request.project)
        gathered = _ContextParts({}, [], set(), seen)
        sought = words_sought("\n".join(request.questions(self._config.query_messages))[-_QUERY_CHARS:])
        gathered.add(reader.profile(self._owner_names, sought), told=False)
        gathered.taken.add(reader.profile_uri)
        if _GREETED not in seen:
            gathered.add(reader.directory(), again=True)
        _at_hand(request, reader, find, gathered)
        for engine in (self, *self._shared.values()):
            rules = engine._recalls.always_on(_RULES_LIMIT, request.project, request.now)
            gathered.add((reader.memory(uri, kind="constraints") for uri in rules), told=False)
        if silent:
            gathered.notes.append("small talk: nothing was recalled")
            return gathered
        first = _RECALLED not in seen if request.session_id is not None else request.query is None
        if first:
            gathered.notes += [line for line in [self._waiting(request.session_id)] if line]
            for opening in self._browser.features.members("opening"):
                for piece, told in opening(reader, request.now, self._config):
                    gathered.add([piece], told=told)
        if request.questions(self._config.query_messages):
            self._recall(request, reader, find, gathered, sought, opening=first and self._config.implicit_recall)
        else:
            hot = self._recalls.hot(_HOT_LIMIT, request.project)
            gathered.add(reader.memory(memory.uri) for memory in hot)
        if first:
            tastes = self._recalls.always_on(_TASTES_LIMIT, request.project, request.now, tastes=True)
            gathered.add(reader.memory(uri) for uri in tastes)
            gathered.add(reader.recent(request.session_id, self._config.recent_pages))
        return gathered

    def _recall(
        self,
        request: ContextRequest,
        reader: PieceReader,
        find: Find,
        gathered: _ContextParts,
        sought: re.Pattern[str] | None,
        *,
        opening: bool,
    ) -> None:
        """Memories and turns of conversations for a question; at a session's start also lessons, cases and skills."""
        config = self._config
        found = recall(
            find,
            request.questions(config.query_messages),
            config.top_k_knowledge,
            min(_MOST_TURNS, _LEAST_TURNS + request.token_budget // _TURN_TOKENS),
            None if request.fresh else request.session_id,
        )
        hits = [hit for hit in found.knowledge if hit.score >= config.knowledge_threshold]
        if opening and request.query is None:
            hits = [hit for hit in hits if hit.uri != reader.profile_uri][: config.implicit_recall_top_k]
        if opening:
            learned = procedural(find, found.question, _PROCEDURAL_LIMIT)
            hits += [hit for hit in learned if hit.score >= config.knowledge_threshold]
        gathered.add(reader.recalled(hit, sought) for hit in hits)
        limits = TurnLimits(
            _READ_TIMES * request.token_budget,
            config.retrieval_queue_capacity,
            config.top_sessions,
            config.page_similarity_threshold,
            config.segment_similarity_threshold,
        )
        turns = reader.turns(found.turns, sought, gathered.parts.get("memories", ()), limits)
        gathered.add(piece for piece in turns if not piece.is_neighbour)
        gathered.add((piece for piece in turns if piece.is_neighbour), told=False)
        gathered.notes += found.notes

    def _session(self, session_id: str) -> str:
        """The session's folder name."""
        if "/" in session_id or not session_id.strip():
            raise InvalidInput(f"session_id {session_id!r} cannot be a folder name.", hint="Use letters, digits, '-'.")
        self._recalls.check_name("session_id", session_id)
        return MemoryUri.parse(f"{self._spaces.sessions}/{session_id}").name


def _packed(
    request: ContextRequest, candidates: Mapping[str, Sequence[Piece]], budget: int, notes: Sequence[str]
) -> tuple[Packing, ContextPack]:
    """The pieces that fit, and the pack of them; the pack costs at most the budget, whichever form a client shows."""
    form = _format(request, budget)
    kept = _fitting(notes, int(budget * _NOTES_SHARE))
    room = budget - form.envelope_tokens - _BESIDE_TOKENS - sum(map(_note_tokens, kept))
    packing = pack(candidates, room, form)
    pieces = packing.pieces
    plain = Blocks() if isinstance(form, Blocks) else form
    kinds = dict.fromkeys(piece.kind for piece in pieces)
    messages, text = form.messages(pieces), form.text(pieces)
    result = ContextPack(
        parts=tuple(_part(kind, [piece for piece in pieces if piece.kind == kind], plain) for kind in kinds),
        text=text,
        shown=form.shown(pieces),
        structured=form.structured(pieces),
        tokens=MOST_TOKENS,
        left_out=packing.left_out,
        messages=None if messages is None else tuple(messages),
        notes=kept,
    )
    cost = max(count_tokens(f"{result.shown}\n{result.told}"), json_tokens(result.as_result()))
    named = _fitting(packing.left_out[:_LEFT_OUT_NAMED], budget - cost)
    cost += sum(map(_note_tokens, named))
    return packing, replace(result, tokens=cost if pieces else 0, left_out_named=len(named))


def _fitting(texts: Sequence[str], tokens: int) -> tuple[str, ...]:
    """The first of the texts that may be told beside a pack for so many tokens."""
    costs = list(accumulate(map(_note_tokens, texts)))
    return tuple(text for text, cost in zip(texts, costs, strict=True) if cost <= tokens)


def _note_tokens(text: str) -> int:
    """What a text costs beside a pack: in a list of the JSON, or on a line of its own."""
    return json_tokens(text) + _BESIDE_ONE_TOKENS


def _format(request: ContextRequest, budget: int) -> Format:
    if request.form == "text":
        return Markdown()
    if request.form == "system":
        return SystemPrompt()
    if request.form == "blocks":
        return Blocks(_ending(request.newest, int(budget * _INPUT_SHARE)))
    question = next(iter(request.questions(1)), "")
    return SimulatedCalls("anthropic" if request.form == "messages-anthropic" else "openai", question)


def _told(gathered: _ContextParts, asked_tokens: int, packed_tokens: int) -> tuple[str, ...]:
    """The notes of a pack."""
    notes = list(gathered.notes)
    if gathered.repeated:
        notes.append(f"given in this session before and left out: {gathered.repeated}; fresh=true gives all again")
    if packed_tokens < asked_tokens:
        notes.append(f"packed for {packed_tokens} tokens, not {asked_tokens}: more could not be delivered")
    return tuple(notes)


def _at_hand(request: ContextRequest, reader: PieceReader, find: Find, gathered: _ContextParts) -> None:
    """What is known of the skill and the tools at hand."""
    if request.skill is not None:
        uri = reader.named("skills", request.skill)
        if uri is None:
            gathered.notes.append(f"nothing is remembered of the skill {request.skill[:80]!r} yet")
        else:
            gathered.add([reader.memory(uri, kind="skill")])
    unknown: list[str] = []
    for name in request.tools:
        uri = reader.named("tools", name)
        if uri is None:
            unknown.append(name)
        else:
            gathered.add([reader.memory(uri, kind="tools")])
    if unknown:
        gathered.add(reader.memory(hit.uri, hit, kind="tools") for hit in tools_named(find, unknown))


def _part(kind: str, pieces: Sequence[Piece], form: Format) -> ContextPart:
    items = tuple(ContextItem(piece.uri, piece.score, piece.cut) for piece in pieces)
    return ContextPart(kind, form.text(pieces), items)


def _ending(text: str, tokens: int) -> str:
    """The end of a message, which is what it comes to; at most so many tokens."""
    shown = " ".join(text.replace("\x00", " ").split())
    if len(shown) <= tokens * _CHARS_PER_TOKEN and count_tokens(shown) <= tokens:
        return shown
    shown = shown[-tokens * _CHARS_PER_TOKEN :]
    while count_tokens(shown) >= tokens > 0:
        shown = shown[max(1, len(shown) // 8) :]
    return f"…{shown}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _said(messages: Sequence[Any] | None) -> tuple[str, ...]:
    if not messages:
        return ()
    return tuple(message.text for message in parse_messages(messages) if message.role == "user")


def _names(tool: str | Sequence[str] | None) -> tuple[str, ...]:
    given = [tool] if isinstance(tool, str) else list(tool or ())
    if len(given) > _TOOLS_LIMIT:
        raise InvalidInput(f"{len(given)} tools are too many.", hint=f"Name the {_TOOLS_LIMIT} that matter.")
    return tuple(dict.fromkeys(_name(name, "tool") for name in given))


def _name(name: str, argument: str) -> str:
    if not name.strip() or len(name) > _NAME_CHARS or "\x00" in name:
        raise InvalidInput(f"{argument} is no name.", hint=f"Give a name of 1 to {_NAME_CHARS} characters.")
    return name.strip()


def _budget(tokens: int) -> int:
    if not LEAST_TOKENS <= tokens <= MOST_TOKENS:
        raise InvalidInput(
            f"token_budget {tokens} is out of range.", hint=f"Use {LEAST_TOKENS} to {MOST_TOKENS:,} tokens."
        )
    return tokens
