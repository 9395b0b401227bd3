"""What a context is made of: memories, rules, turns of conversations, and what was learnt about tools and skills.

Reads pieces as they are seen from a project, with what makes a long one shorter; says which messages a memory came
from; and brings along what was learnt about a skill when its ``SKILL.md`` is read. Nothing is written.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from memory_core.core.caches import remembered
from memory_core.core.commit.forgotten import is_forgotten
from memory_core.core.errors import InvalidInput, NotFound, StorageFailed
from memory_core.core.frozen import frozen
from memory_core.core.index.documents import EVENT_TIME, MESSAGES_NAME, STANDING_SALIENCE
from memory_core.core.memory.directory_page import abstract_line
from memory_core.core.memory.exchange import Speaker, opener_of, speaker_of, starts_exchange
from memory_core.core.memory.memory import Memory, parse
from memory_core.core.memory.memory_type import CONTENT, FieldValue, MemoryTypeRegistry
from memory_core.core.memory.message import Message, parse_lines, search_text, transcript_line
from memory_core.core.memory.metadata import CONTESTING, SHOWN_FIELDS, outdoes
from memory_core.core.memory.names import key_of, summary_line
from memory_core.core.memory.project import ProjectScope, project_key
from memory_core.core.memory.results import Rival
from memory_core.core.memory.shown_texts import not_shown
from memory_core.core.memory.template import text_frames
from memory_core.core.memory.uri import ABSTRACT_NAME, SCHEME, MemoryUri, Scope, file_of, profile_of
from memory_core.core.search.context_formats import RECALLED_NOTE, Piece, as_data
from memory_core.core.search.passages import READ_CHARS, best_sentences
from memory_core.core.search.ranking import interleaved
from memory_core.core.text.analysis import distinct_words
from memory_core.core.text.language import is_small_talk
from memory_core.core.text.unicode_form import unicode_form

if TYPE_CHECKING:
    from memory_core.core.memory.metadata import Metadata
    from memory_core.core.memory.results import FindResult, Hit
    from memory_core.core.search.browse import Browser
    from memory_core.core.store.ledger import Ledger

_LINES = 6
#: A line that has less of the memory's weight than this share of the best line's is left out.
_NEAR = 0.4
_SPEAKERS = frozenset({"user", "assistant"})


def source_lines(
    text: str, messages: Sequence[tuple[int, Message]], words: Mapping[int, frozenset[str]] | None = None
) -> list[tuple[int, Message]]:
    """The few messages that a memory most likely came from, in their order.

    Args:
        text: What the memory says.
        messages: Of the conversation, with their line numbers.
        words: Of each message by its line, where somebody asks for several memories; see ``words_said``.
    """
    numbers = {word: number for number, word in enumerate(distinct_words(text))}
    said: list[tuple[int, Message, array[int]]] = []
    for line, message in messages:  # one at a time, and as numbers: the words of a long conversation take gigabytes
        own = distinct_words(search_text(message)) if words is None else words[line]
        held = array("I", (numbers[word] for word in own if word in numbers))
        if held and message.role in _SPEAKERS:
            said.append((line, message, held))
    often = Counter(number for _, _, held in said for number in held)
    weights = {number: math.log(1.0 + len(said) / count) for number, count in often.items()}
    scored = [(sum(weights[number] for number in held), line, message) for line, message, held in said]
    best = max((score for score, _, _ in scored), default=0.0)
    near = sorted((each for each in scored if each[0] >= _NEAR * best), key=lambda each: (-each[0], each[1]))
    return sorted(((line, message) for _, line, message in near[:_LINES]), key=lambda each: each[0])


def words_said(messages: Iterable[tuple[int, Message]]) -> dict[int, frozenset[str]]:
    """The words of each message, by its line."""
    return {line: distinct_words(search_text(message)) for line, message in messages}


#: Messages of one exchange, at most, on each side of one that is looked at.
_REACH_TURNS = 6
#: What a turn beside one that was found is worth, as a share of it: the question that it answers or the answer that it
#: was given, and any other.
_ANSWER_WORTH, _NEIGHBOUR_WORTH = 0.7, 0.5
#: Worth of a turn whose content a memory made of its conversation already says.
_TOLD_WORTH = 0.3
#: Such a share of a turn's words is then in the memory.
_TOLD_SHARE = 0.7
#: A text of more letters is shown by what bears on the question, where the budget does not hold all of it.
_LONG_CHARS = 480
#: A greeting, thanks or a goodbye has no more.
_GREETING_CHARS = 60
#: Characters that a token has at least, of a text in letters.
_CHARS_PER_TOKEN = 4
#: Messages that are kept as they were read: the next questions mostly find the same ones.
_READ_MESSAGES, _READ_BYTES = 1_024, 16 << 20
_ASKS = ("?", "\uff1f")


class ConversationLog:
    """The lines of one session's log, read as turns.

    Args:
        lines: JSON lines; damaged ones are passed over.
        visible: Whether a message may be shown.
    """

    def __init__(self, lines: Sequence[str], visible: Callable[[Message], bool]) -> None:
        self._lines = lines
        self._visible = visible
        self._messages: dict[int, Message | None] = {}
        self._opener = opener_of(map(self._speaker, range(len(lines))))

    def turn(self, line: int) -> Message | None:
        """The message of a line; None where there is none to show."""
        return self._message(line) if 0 <= line < len(self._lines) else None

    def beside(self, line: int) -> Iterator[tuple[int, float]]:
        """The question that a turn answers, its answer, and what else stands next to it in the same exchange.

        Nothing that only greets or thanks.

        Returns:
            Their lines, and what each is worth beside the turn.
        """
        own = self.turn(line)
        for at in (line - 1, line + 1):
            other = self.turn(at)
            if own is None or other is None or _greets(other):
                continue
            if (own if at > line else other).text.rstrip().endswith(_ASKS):
                yield at, _ANSWER_WORTH
            elif not self._begins(max(at, line)):
                yield at, _NEIGHBOUR_WORTH

    def last_exchanges(self, count: int) -> Iterator[int]:
        """The lines of the last exchanges, newest first."""
        end = len(self._lines) - 1
        while end >= 0 and count:
            first = end
            while first > 0 and end - first < _REACH_TURNS and not self._begins(first):
                first -= 1
            shown = [at for at in range(end, first - 1, -1) if self._message(at) is not None]
            yield from shown
            count -= bool(shown)
            end = first - 1

    def _begins(self, at: int) -> bool:
        """Whether the opener speaks after somebody else."""
        return starts_exchange(self._speaker, at, self._opener)

    def _speaker(self, at: int) -> Speaker:
        return speaker_of(self._message(at))

    def _message(self, at: int) -> Message | None:
        """The message of a line; None for a damaged one, a prompt, or one that may not be shown."""
        if at not in self._messages:
            said = _said(self._lines[at])
            self._messages[at] = said if said is not None and self._visible(said) else None
        return self._messages[at]


def _greets(message: Message) -> bool:
    return len(message.text) <= _GREETING_CHARS and is_small_talk(message.text)


@remembered(_READ_MESSAGES, _READ_BYTES)
def _said(line: str) -> Message | None:
    """The message of a line; None for a damaged one or a prompt."""
    messages, _ = parse_lines(line)
    return next((each for each in messages if speaker_of(each) is not None), None)


_FIND_LIMIT = 100
_KNOWLEDGE: Mapping[str, Any] = {"memory_type": {"ne": "message"}}
_TURNS: Mapping[str, Any] = {"memory_type": "message"}
_TOOLS: Mapping[str, Any] = {"memory_type": "tools"}
_PROCEDURAL: Mapping[str, Any] = {"memory_type": {"in": ["patterns", "cases", "skills"]}}
_TOOL_NAMES_CHARS = 8_000
_NOTHING = "nothing relevant to the question is stored"


#: Searches: given a question, how many hits at most and a filter or None; see ``Retriever.find``.
Find = Callable[[str, int, Mapping[str, Any] | None], "FindResult"]


@frozen
class Found:
    """Hits, best first: memories, logs, tools and skills; and turns of conversations."""

    question: str
    knowledge: tuple[Hit, ...]
    turns: tuple[Hit, ...]
    notes: tuple[str, ...]


def recall(find: Find, questions: Sequence[str], knowledge: int, turns: int, own_session: str | None) -> Found:
    """Search for each of the questions.

    Args:
        find: Searches.
        questions: At least one: the widest first, which is the one that ``Found`` names if it finds anything.
        knowledge: Hits other than turns, at most.
        turns: Turns, at most.
        own_session: Session whose turns are left out.
    """
    each = [_searched(find, question, knowledge, turns, own_session) for question in questions]
    found = [one for one in each if one.knowledge or one.turns]
    if not found:
        notes = dict.fromkeys(note for one in each for note in one.notes)
        return replace(each[-1], notes=(*notes, _NOTHING))
    return Found(
        found[0].question,
        interleaved([one.knowledge for one in reversed(found)])[:knowledge],
        interleaved([one.turns for one in reversed(found)])[:turns],
        tuple(dict.fromkeys(note for one in found for note in one.notes)),
    )


def _searched(find: Find, question: str, knowledge: int, turns: int, own_session: str | None) -> Found:
    """What one question finds."""
    found = find(question, _FIND_LIMIT, None)
    known, said = _split(found.hits, own_session)
    notes = [note for note in found.notes if not note.startswith("nothing relevant")]
    if found.total >= _FIND_LIMIT and len(known) < knowledge:
        more = find(question, min(knowledge, _FIND_LIMIT), _KNOWLEDGE)
        known, notes = more.hits, notes + [note for note in more.notes if more.total]
    if found.total >= _FIND_LIMIT and len(said) < turns:
        but_own = _TURNS if own_session is None else {**_TURNS, "session_id": {"ne": own_session}}
        more = find(question, min(turns, _FIND_LIMIT), but_own)
        said, notes = more.hits, notes + [note for note in more.notes if more.total]
    return Found(question, known[:knowledge], said[:turns], tuple(notes))


def procedural(find: Find, question: str, limit: int) -> tuple[Hit, ...]:
    """What was learned about doing such things: patterns, cases and skills."""
    return find(question, limit, _PROCEDURAL).hits


def tools_named(find: Find, names: Sequence[str]) -> Iterator[Hit]:
    """Memories of these tools under a longer or shorter name: ``mcp__github__search``, ``search``."""
    wanted = [_words(name) for name in names]
    for hit in find(" ".join(names)[:_TOOL_NAMES_CHARS], min(_FIND_LIMIT, 2 * len(names) + 2), _TOOLS).hits:
        own = _words(MemoryUri.parse(hit.uri).name.removesuffix(".md"))
        if any(own and name and (own[-len(name) :] == name or name[-len(own) :] == own) for name in wanted):
            yield hit


def _split(hits: Sequence[Hit], own_session: str | None) -> tuple[tuple[Hit, ...], tuple[Hit, ...]]:
    """Hits other than turns, and the turns of other sessions: of those that say the same, one of another."""
    turns: list[Hit] = []
    for hit in hits:
        places = (hit.uri, *hit.also) if hit.memory_type == "message" else ()
        uri = next((uri for uri in places if own_session is None or uri.split("/")[4] != own_session), None)
        if uri is not None:
            turns.append(replace(hit, uri=uri))
    return tuple(hit for hit in hits if hit.memory_type != "message"), tuple(turns)


#: Parts whose pieces are compared with turns by their worth.
_COMPARED = frozenset({"memories", "tools", "constraints"})
#: Preferences and patterns bind, and so does whatever matters this much or was pinned.
_BINDING_TYPES = frozenset({"preferences", "patterns"})
_KIND_OF_TYPE = {"tools": "tools", "skills": "skill"} | dict.fromkeys(_BINDING_TYPES, "constraints")
_DIRECTORY_LINE_CHARS = 160
_DIRECTORIES = 200
#: When an event was, to the day, month or year.
_DAY = re.compile(r"\d{4}(?:-\d\d(?:-\d\d)?)?(?!\d)")
#: What joins the words of a name.
_JOINTS = re.compile(r"[\s_-]+")
#: How a generated line begins; the count beside it is exact.
_COUNTED = re.compile(r"[^:]{0,60} \(\d+\+?\)(?:: |$)")


@frozen
class TurnLimits:
    """Which of the turns that were found are of use.

    Attributes:
        tokens: What is worth reading, about.
        turns: Found turns at most; 0 is no limit.
        groups: Segments, or conversations that have none, at most; 0 is no limit.
        turn_from: Least score of a turn.
        group_from: Least score of the best turn of each segment or conversation.
    """

    tokens: int
    turns: int
    groups: int
    turn_from: float
    group_from: float


@frozen
class Spaces:
    """Whose memories are read: the user's and the agent's space."""

    user: str
    agent: str

    @property
    def sessions(self) -> MemoryUri:
        """Where the user's conversations are."""
        return MemoryUri((Scope.SESSION.value, self.user))

    def memories(self, directory: str) -> MemoryUri:
        """The directory of a memory type."""
        return MemoryUri.parse(directory.replace("{user_space}", self.user).replace("{agent_space}", self.agent))


def space_of(uri: str) -> str:
    """The space that an address is in; empty for one above all spaces."""
    return next(iter(uri.removeprefix(SCHEME).split("/")[1:2]), "")


class PieceReader:
    """Reads pieces of one store as they are seen from a project.

    Args:
        browser: Reads files.
        ledger: Knows names, counts and which conversation grew last.
        registry: Memory types.
        spaces: Whose memories.
        scope: The project at hand.
        shared: The readers of shared spaces, by their names.
    """

    def __init__(
        self,
        browser: Browser,
        ledger: Ledger,
        registry: MemoryTypeRegistry,
        spaces: Spaces,
        scope: ProjectScope,
        shared: Mapping[str, PieceReader] | None = None,
    ) -> None:
        self._shared = shared or {}
        self._browser = browser
        self.ledger = ledger
        self._registry = registry
        self.spaces = spaces
        self._scope = scope
        self._logs: dict[str, ConversationLog] = {}
        self._groups = [groups(self) for groups in browser.features.members("turn_groups")]

    @property
    def profile_uri(self) -> str:
        """Where the user's profile is."""
        return profile_of(self.spaces.user)

    def profile(self, names: Sequence[str], sought: re.Pattern[str] | None) -> list[Piece]:
        """The profile, and above it those of the owner's names that it does not say; nothing where nothing is known."""
        piece = self.memory(self.profile_uri, kind="profile")
        text = "" if piece is None else piece.text
        unsaid = [name for name in names if name.casefold() not in text.casefold()]
        if not text and not unsaid:
            return []
        said = f"The user's name: {', '.join(unsaid)}\n{text}".strip() if unsaid else text
        piece = Piece("profile", self.profile_uri, said) if piece is None else replace(piece, text=said)
        return [_with_passages(piece, sought)]

    def recalled(self, hit: Hit, sought: re.Pattern[str] | None) -> Piece | None:
        """The memory of a hit; of a long one also what bears on the question."""
        piece = self.memory(hit.uri, hit)
        if piece is None or piece.kind not in _COMPARED:
            return piece
        return replace(_with_passages(piece, sought), worth=hit.score)

    def memory(self, uri: str, hit: Hit | None = None, kind: str | None = None) -> Piece | None:
        """A memory's body and what its fields add to it; None where it is empty or not to be seen.

        Of a hit whose file is gone or empty the hit's line stands in.

        Args:
            uri: The file.
            hit: What the search said of it.
            kind: The part; None is that of its type and weight.
        """
        if (other := self._shared.get(space_of(uri))) is not None:
            return other.memory(uri, hit, kind)
        kind_of_file = self._browser.features.kind_of(MemoryUri.parse(file_of(uri)))
        if kind_of_file is not None and kind_of_file.has_entries:
            return kind_of_file.piece(self, uri, hit)
        memory = self.memory_at(uri)
        text = _with_fields(memory) or ("" if hit is None else hit.abstract)
        if not text or not self.sees(memory.project, private=memory.is_private):
            return None
        said_at = memory.metadata.text("updated_at")
        changed = said_at if hit is None else hit.updated_at or said_at
        happened = _DAY.match(str(memory.fields.get(EVENT_TIME, "")))
        dated = None if changed is None else changed[:10]
        memory_type = memory.type_name if hit is None else hit.memory_type
        rivals = rivals_of(memory, self._named) if hit is None else hit.rivals
        if kind is None:
            kind = _kind(memory_type, memory.metadata)
            if kind == "constraints" and memory.project not in (None, self._scope.current):
                kind = "memories"  # what binds in another project does not bind here
        return Piece(
            kind=kind,
            uri=uri,
            text=with_rivals(text, rivals),
            score=None if hit is None else hit.score,
            date=dated if happened is None else happened[0],
            memory_type=memory_type,
            contested_by=tuple(rival.uri for rival in rivals),
            session=memory.metadata.session,
        )

    def named(self, memory_type: str, name: str) -> str | None:
        """Where the memory of that name is, however the name is spelt; of this project first, then of none."""
        try:
            known = self._registry.get(memory_type)
        except NotFound:
            return None
        directory = self.spaces.memories(known.directory)
        spellings = dict.fromkeys((name, *(_JOINTS.sub(joint, name.strip()) for joint in "-_ ")))
        for spelling in spellings:
            key = key_of(dict.fromkeys(known.key_fields[:1], spelling), known.key_fields)
            for project in dict.fromkeys((self._scope.current, None)):
                found = self.ledger.locate(directory, memory_type, project_key(project, key))
                if found is not None:
                    return str(found)
        return None

    def directory(self) -> list[Piece]:
        """What is stored: each directory with its count and line, and the conversations."""
        pieces: list[Piece] = []
        for space in (("user", self.spaces.user), ("agent", self.spaces.agent)):
            for uri, count in self.ledger.directories.counts(MemoryUri(space)).items():
                line = self._line(uri)
                pieces.append(Piece("directory", f"{uri}/", f"{uri}/ ({count})" + (f": {line}" if line else "")))
        place = f"{self.spaces.sessions}/"
        if sessions := self.ledger.directories.sessions(self.spaces.sessions):
            pieces.append(Piece("directory", place, f"{place} ({sessions} conversations)"))
        return pieces[:_DIRECTORIES]

    def turns(
        self, found: Iterable[Hit], sought: re.Pattern[str] | None, memories: Iterable[Piece], limits: TurnLimits
    ) -> list[Piece]:
        """The turns that were found and those beside them, by what each is worth.

        Args:
            found: Turns, best first.
            sought: Words of the question: long turns are shown by the sentences that hold them.
            memories: Given before the turns: a turn that says no more than a memory made of it comes last.
            limits: Which of them, and how much is of use.
        """
        score = self._within(found, limits)
        worth: dict[tuple[str, int], float] = {}
        for (log, line), own in score.items():
            for at, share in ((line, 1.0), *self._log(log).beside(line)):
                worth[log, at] = max(worth.get((log, at), 0.0), share * own)
        told: dict[str, list[frozenset[str]]] = {}
        for memory in memories:
            if memory.session:
                told.setdefault(memory.session, []).append(distinct_words(memory.text))
        pieces: list[Piece] = []
        tokens = 0
        for (log, at), value in sorted(worth.items(), key=lambda item: -item[1]):
            enough = tokens > limits.tokens
            if enough and (log, at) not in score:
                continue
            piece = self._turn("session", log, at, score.get((log, at)), value)
            if piece is not None and not enough:  # what comes later is named where it does not fit, and no more
                piece = _worth_less(_with_passages(piece, sought), told.get(log.split("/")[4], ()))
                tokens += min(len(piece.text), _LONG_CHARS) // _CHARS_PER_TOKEN
            pieces += [] if piece is None else [piece]
        return sorted(pieces, key=lambda piece: -(piece.worth or 0.0))

    def _within(self, found: Iterable[Hit], limits: TurnLimits) -> dict[tuple[str, int], float]:
        """Log, line and score of the turns that may be shown, best first."""
        score: dict[tuple[str, int], float] = {}
        best: set[str] = set()
        for hit in found:
            log, _, line = hit.uri.rpartition("#")
            said = self._log(log).turn(int(line)) if line.isdecimal() and hit.score >= limits.turn_from else None
            if said is None or (_greets(said) and "exact" not in hit.why):
                continue
            if limits.groups or limits.group_from:
                group, _ = self._group(log, int(line))
                if group not in best and (hit.score < limits.group_from or 0 < limits.groups <= len(best)):
                    continue
                best.add(group)
            score[log, int(line)] = hit.score
            if len(score) == limits.turns:
                break
        return score

    def _group(self, log: str, line: int) -> tuple[str, str]:
        """The segment of a turn and what it is about; of a turn in none its conversation, and nothing."""
        groups = (group_of(log, line) for group_of in self._groups)
        return next((found for found in groups if found is not None), (log, ""))

    def _turn(
        self, kind: str, log: str, line: int, score: float | None = None, worth: float | None = None
    ) -> Piece | None:
        """A turn as it stands below its conversation."""
        message = self._log(log).turn(line)
        if message is None:
            return None
        date = None if message.time is None else message.time.date().isoformat()
        about = self._group(log, line)[1]
        heading = (log.removesuffix(f"/{MESSAGES_NAME}"), date, f"[{about}]" if about else None)
        return Piece(
            kind,
            f"{log}#{line}",
            transcript_line(message, READ_CHARS, dated=False),
            score,
            date,
            heading=" ".join(each for each in heading if each),
            worth=worth,
        )

    def recent(self, own_session: str | None, exchanges: int) -> list[Piece]:
        """The turns of the last exchanges of the last conversation other than this one, newest first."""
        own = None if own_session is None else self.spaces.sessions.child(own_session)
        for log in self.ledger.directories.newest_logs(self.spaces.sessions, 2):
            if exchanges and (own is None or not own.contains(MemoryUri.parse(log))):
                shown = (self._turn("recent", log, line) for line in self._log(log).last_exchanges(exchanges))
                return [piece for piece in shown if piece is not None]
        return []

    def _log(self, uri: str) -> ConversationLog:
        if uri not in self._logs:
            self._logs[uri] = ConversationLog(self.text(uri).removesuffix("\n").split("\n"), self._shows)
        return self._logs[uri]

    def _shows(self, message: Message) -> bool:
        return not is_forgotten(message) and self.sees(message.project, private=message.private)

    def sees(self, project: str | None, *, private: bool) -> bool:
        """What is another project's is not seen where one alone is asked for; what is nobody's is its owner's."""
        other = self._scope.only and project not in (None, self._scope.current)
        return not other and self._scope.sees(project, private=private)

    def _line(self, directory: str) -> str:
        """The directory's L0 without the count."""
        line = abstract_line(self.text(f"{directory}/{ABSTRACT_NAME}"))
        return summary_line(_COUNTED.sub("", line, count=1), _DIRECTORY_LINE_CHARS)

    def _named(self, uri: str) -> Memory | None:
        """A memory that another one names; None where it may not be seen."""
        memory = self.memory_at(uri)
        return memory if self.sees(memory.project, private=memory.is_private) else None

    def memory_at(self, uri: str) -> Memory:
        """The memory at a URI; an empty one where there is none."""
        return parse(MemoryUri.parse(uri), self.text(uri), self._registry)

    def text(self, uri: str) -> str:
        """What a file says; empty where there is none that may be seen, or can be read."""
        try:
            return self._browser.read(uri).content if "#" in uri else self._browser.text(MemoryUri.parse(uri)) or ""
        except (NotFound, InvalidInput, StorageFailed):  # one file that cannot be read holds up no other
            return ""


def _with_fields(memory: Memory) -> str:
    """The body, and below it the fields that it does not show."""
    lines = [f"{name}: {value}" for name, value in fields_beside(memory).items()]
    return "\n".join([memory.body.strip(), *lines]).strip()


def fields_beside(memory: Memory) -> dict[str, FieldValue]:
    """The fields that are told beside the body, which does not show them: the state of a task, the solution of a case.

    Beside a rendered body none, unless a person edited it.
    """
    if memory.type is None:
        return {}
    rendered = memory.type.template_mode
    if rendered and (not memory.hand_edited or SHOWN_FIELDS not in memory.metadata):
        return {}
    left_out = {*memory.type.key_fields, *(() if rendered else (CONTENT,))}
    values = {
        field.name: value
        for field in memory.type.fields
        if field.name not in left_out
        # of a rendered body a person left the numbers out
        and isinstance(value := memory.fields.get(field.name), str if rendered else str | int | float)
    }
    frames = text_frames(memory.type, memory.fields) if rendered else None
    told = not_shown({name: str(value) for name, value in values.items()}, memory.body, frames)
    return {name: values[name] for name in told}


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W_]+", name.casefold())


def _kind(memory_type: str, metadata: Metadata) -> str:
    """The part of a memory; what a tool once failed with is known of the tool, and binds nobody."""
    if metadata.is_tool_failure and not metadata.is_pinned:
        return "tools"
    kind = _KIND_OF_TYPE.get(memory_type, "memories")
    holds = metadata.is_pinned or metadata.share("salience", 0.0) >= STANDING_SALIENCE
    return "constraints" if kind == "memories" and holds else kind


def _worth_less(turn: Piece, told: Iterable[frozenset[str]]) -> Piece:
    """A turn as it is; one whose words a memory has that was made of its conversation comes after the others."""
    words = distinct_words(turn.text) if told else frozenset()
    if not any(len(words & known) >= _TOLD_SHARE * len(words) for known in told):
        return turn
    return replace(turn, worth=_TOLD_WORTH * (turn.worth or 0.0))


def _with_passages(piece: Piece, sought: re.Pattern[str] | None) -> Piece:
    """A long piece with what makes it shorter: of a turn the speaker stays."""
    width = _width(piece.text)
    if width * len(piece.text) <= _LONG_CHARS:
        return piece
    speaker, _, said = piece.text.partition(": ") if piece.heading else ("", "", piece.text)
    before, joint = (f"{speaker}: ", " ") if piece.heading else ("", "\n")
    return replace(piece, passages=lambda chars: before + best_sentences(said, sought, int(chars / width), joint))


def _width(text: str) -> float:
    """How many letters a character of the text says as much as: a Chinese one says three."""
    if text.isascii():
        return 1.0
    return 1.0 + 2.0 * sum("\u3400" <= char <= "\u9fff" for char in text) / len(text)


_FILE = "skill.md"
_FOLDER = "skills"
_NAME_CHARS = 200
_QUOTES = "\"'`“”‘’<> \t\r\n"


def skill_name_of(path: str) -> str | None:
    """The skill whose file this is: ``…/skills/<name>/SKILL.md``.

    Args:
        path: Of any system, absolute or not, perhaps quoted or a ``file:`` address; case matters only in the name.

    Returns:
        The folder's name; None for any other file.
    """
    bare = path.strip(_QUOTES)
    if bare.casefold().startswith("file:"):
        bare = unquote(bare)
    parts = re.split(r"[\\/]+", bare.replace("\\ ", " "))
    if len(parts) < 3 or parts[-1].casefold() != _FILE or parts[-3].casefold() != _FOLDER:
        return None
    name = unicode_form("NFC", parts[-2]).strip()
    sound = name not in ("", ".", "..") and len(name) <= _NAME_CHARS and name.isprintable()
    return name if sound else None


def skill_block(reader: PieceReader, name: str) -> str:
    """The skill's memory as a block of data; empty if nothing is remembered of it, or it may not be seen."""
    uri = reader.named("skills", name)
    piece = None if uri is None else reader.memory(uri, kind="skill")
    if piece is None:
        return ""
    return f'<skill_memory uri="{piece.uri}" note="{RECALLED_NOTE}">\n{as_data(piece.text)}\n</skill_memory>\n'


def with_skill_memory(reader: PieceReader, path: str, text: str) -> str:
    """The text read from ``path``, with the skill's memory below it if it is a skill's file and there is one."""
    name = skill_name_of(path)
    block = "" if name is None else skill_block(reader, name)
    if not block:
        return text
    return f"{text.rstrip(chr(10))}\n\n{block}" if text.strip() else block


_RIVAL_CHARS = 160
_RIVALS_SHOWN = 2


def rivals_of(memory: Memory, named: Callable[[str], Memory | None]) -> tuple[Rival, ...]:
    """The memories in use that say otherwise and stand above this one, the weightiest first.

    Args:
        memory: The contested one.
        named: Gives the memory at a URI; None where it may not be seen.
    """
    found: dict[str, Rival] = {}
    own, confidence = memory.metadata.text("updated_at") or "", memory.metadata.confidence
    for link in memory.metadata.links:
        if link.relation not in CONTESTING:
            continue
        other = named(link.uri)
        said = None if other is None else other.metadata.text("updated_at")
        if other is None or said is None or not other.metadata.is_active:
            continue
        weight = other.metadata.confidence
        is_strongest = link.uri not in found or link.strength > found[link.uri].strength
        if is_strongest and outdoes(link.relation, said, weight, own, confidence):
            line = summary_line(other.line, _RIVAL_CHARS)
            found[link.uri] = Rival(link.uri, link.relation, link.strength, weight, line, said)
    return tuple(sorted(found.values(), key=lambda rival: (-rival.strength * rival.confidence, rival.uri)))


def with_rivals(text: str, rivals: Iterable[Rival]) -> str:
    """A memory's text, and below it what contradicts it, so that nobody reads the one without the other."""
    lines = [
        f"[{rival.verb} a newer memory{f' of {rival.updated_at[:10]}' if rival.updated_at else ''}: "
        f"{summary_line(rival.abstract, _RIVAL_CHARS)}]"
        for rival in list(rivals)[:_RIVALS_SHOWN]
    ]
    return "\n".join([text, *lines])
