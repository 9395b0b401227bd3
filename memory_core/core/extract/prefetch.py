"""Phase 0 of the update loop: what is stored that may matter to a conversation, gathered before the model is asked.

The directories with counts and summaries (L0), their overviews (L1), and the memories that a search with the
conversation as query finds, whole where they fit. Everything stays inside a token budget and the work is bounded
however large the store is. Says which files were shown whole, and never writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memory_core.core.errors import InvalidInput
from memory_core.core.extract.prompts import TypeGuide, cut_end, fenced
from memory_core.core.extract.store_view import StoreView
from memory_core.core.frozen import frozen
from memory_core.core.memory.directory_page import abstract_line, is_generated, own_words, parse_page, readable
from memory_core.core.memory.message import Message, one_line
from memory_core.core.memory.results import Hit, text_sha256
from memory_core.core.memory.uri import ABSTRACT_NAME, OVERVIEW_NAME
from memory_core.core.text.analysis import fold
from memory_core.core.text.tokens import count_tokens

_DIRECTORY_SHARE = 0.3
_OVERVIEW_SHARE = 0.2
_OVERVIEW_TOKENS = 160
_ABSTRACT_TOKENS = 40
_NAMES = 12
_NAME_CHARS = 48
_MEMORIES = 16
_MEMORY_SHARE = 0.5
_LEAST_TOKENS = 40
_HITS = 16
_QUERIES = 6
_QUERY_CHARS = 600
#: A query of fewer characters says too little; the other speaker's words are added.
_ENOUGH_CHARS = 24
_TOOLS = 8
_SPEAKERS = 4
#: Of a memory that is too long to be shown whole.
_BEGINNING_TOKENS = 120
#: Of a URI such as ``viking://user/default/memories``.
_ROOT_PARTS = 5
_ENTITY = "entities"


@dataclass(frozen=True, slots=True)
class Prefetched:
    """What was gathered.

    Attributes:
        directories: One line a directory below its root: how many memories, names of those not shown, its summary.
        overviews: Directory overviews.
        memories: The nearest memories.
        seen: SHA-256 of the text of each file that is shown whole, by URI.
    """

    directories: str = ""
    overviews: str = ""
    memories: str = ""
    seen: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All parts with their headings; says so where nothing is stored."""
        parts = (
            ("## Directories", self.directories),
            ("## Overviews", self.overviews),
            ("## Memories near to the conversation", self.memories),
        )
        return "\n\n".join(f"{heading}\n{text}" for heading, text in parts if text) or "(nothing yet)"


@dataclass(slots=True)
class _Line:
    """A directory: memories in all, how many of them are shown, names of others, what somebody wrote of it."""

    total: int
    shown: int = 0
    names: list[str] = field(default_factory=list)
    summary: str = ""

    def __str__(self) -> str:
        count = "1 memory" if self.total == 1 else f"{self.total} memories"
        more = self.total - self.shown - len(self.names)
        listed = ", ".join([*self.names, f"and {more} more"] if more > 0 else self.names) if self.names else ""
        also = ("; not shown here: " if self.shown else ": ") if listed else ""
        return f"({count}{also}{listed}){f' — {self.summary}' if self.summary else ''}"


@frozen
class Prefetcher:
    """Gathers context from one store.

    Attributes:
        guide: Names the directories of memory types.
        view: The store.
    """

    guide: TypeGuide
    view: StoreView

    def gather(self, messages: Sequence[Message], budget_tokens: int) -> Prefetched:
        """Context for a conversation.

        Args:
            messages: The conversation; without any, directories and overviews only.
            budget_tokens: Tokens that ``Prefetched.text`` may take, headings included.
        """
        seen: dict[str, str] = {}
        room = budget_tokens - count_tokens(Prefetched("x", "x", "x").text)
        nearest = self._nearest(messages)
        parts = self._memories(nearest, room - int(room * _DIRECTORY_SHARE), seen)
        directories = self._directories(nearest, parts, int(room * _DIRECTORY_SHARE), seen)
        left = room - count_tokens(directories) - _tokens(parts)
        parts |= self._memories([uri for uri in nearest if uri not in parts], left, seen, _MEMORIES - len(parts))
        rest = [uri for uri in nearest if uri not in seen]
        left = room - count_tokens(directories) - _tokens(parts)
        overviews = self._overviews(rest, min(left, int(room * _OVERVIEW_SHARE)), seen)
        return Prefetched(directories, overviews, "\n\n".join(parts.values()), seen)

    def _directories(self, nearest: Sequence[str], shown: Mapping[str, str], budget: int, seen: dict[str, str]) -> str:
        """A line each, with names where there is room; as many lines as fit where all are too many.

        What is near to the conversation is named first and in full; what is shown is not named again.
        """
        held = {uri: self.view.newest_in(uri, _NAMES) for uri in self.guide.directories()}
        lines = {uri: _Line(total) for uri, (_, total) in held.items() if total}
        kept = dict(lines)
        while kept and _cost(kept) > budget:
            kept.popitem()
        for uri in (uri for uri in shown if _parent(uri) in kept):
            kept[_parent(uri)].shown += 1
        for directory, line in kept.items():
            stored = self.view.text(f"{directory}/{ABSTRACT_NAME}") or ""
            # A generated summary names what is named here.
            line.summary = "" if is_generated(stored) else cut_end(one_line(abstract_line(stored)), _ABSTRACT_TOKENS)
            if _cost(kept) > budget:
                line.summary = ""
            elif line.summary and line.summary == abstract_line(stored):
                _note(seen, f"{directory}/{ABSTRACT_NAME}", stored)
        near = [uri for uri in nearest[:_MEMORIES] if _parent(uri) in kept and self.view.text(uri) is not None]
        named = [(_parent(uri), _name(uri)) for uri in near if uri not in shown]
        known = {*near, *shown}
        newest = [
            (uri, names[at]) for at in range(_NAMES) for uri, (names, _) in held.items() if uri in kept and names[at:]
        ]
        named += [(uri, _name(file, _NAME_CHARS)) for uri, file in newest if f"{uri}/{file}" not in known]
        for directory, name in named:
            kept[directory].names.append(name)
            if _cost(kept) > budget:
                kept[directory].names.pop()
        dropped = len(lines) - len(kept)
        return _listed(kept) + (f"\n- … and {dropped} more: list them with ls" if dropped else "")

    def _overviews(self, nearest: Sequence[str], budget: int, seen: dict[str, str]) -> str:
        """Overviews: those that somebody wrote, then generated ones of directories with near memories not shown."""
        near = [_parent(uri) for uri in nearest]
        known = self.guide.directories()
        texts = {
            uri: self.view.text(f"{uri}/{OVERVIEW_NAME}") or ""
            for uri in dict.fromkeys((*near, *known))
            if uri in known
        }
        pages = {uri: parse_page(text) for uri, text in texts.items() if text.strip()}
        order = [uri for uri, page in pages.items() if page.authored.strip()]
        order += [uri for uri, page in pages.items() if uri not in order and uri in near and page.listed]
        parts: list[str] = []
        for directory in order:
            uri = f"{directory}/{OVERVIEW_NAME}"
            cut = cut_end(readable(texts[directory]), _OVERVIEW_TOKENS)
            part = f"{uri}\n{fenced(cut)}"
            if count_tokens("\n".join([*parts, part])) > budget:
                continue
            parts.append(part)
            authored = pages[directory].authored.strip()
            if authored and cut.startswith(authored):
                _note(seen, uri, texts[directory])
        return "\n".join(parts)

    def _memories(
        self, nearest: Sequence[str], budget: int, seen: dict[str, str], most: int = _MEMORIES
    ) -> dict[str, str]:
        """The text of each memory that there is room for, by URI, of at most so many."""
        parts: dict[str, str] = {}
        for uri in nearest:
            room = min(budget - _tokens(parts), max(int(budget * _MEMORY_SHARE), _LEAST_TOKENS))
            if room < _LEAST_TOKENS or len(parts) >= most:
                break
            shown = self.view.show(uri, room)
            if shown is not None and shown.sha256 is None:
                shown = self.view.show(uri, min(room, _BEGINNING_TOKENS))
            if shown is None or (shown.sha256 is None and "\n" not in shown.text):
                continue  # what has no room is named beside its directory
            parts[uri] = shown.text
            if shown.sha256 is not None:
                seen[shown.uri] = shown.sha256
        return parts

    def _nearest(self, messages: Sequence[Message]) -> list[str]:
        """URIs to show: what there is only one of (the profile), who speaks, then hits of all queries, best first."""
        scores: dict[str, float] = {}
        for query in queries(messages):
            for hit in self._hits(query):
                scores[hit.uri] = max(scores.get(hit.uri, 0.0), hit.score)
        best = sorted(scores, key=lambda uri: (-scores[uri], uri))
        keyless = [known for known in self.guide.registry.list_all() if not known.key_fields]
        only = [f"{self.guide.directory(known)}/{known.filename_template}" for known in keyless if messages]
        return list(dict.fromkeys((*only, *self._speakers(messages), *best)))

    def _speakers(self, messages: Sequence[Message]) -> list[str]:
        """The entities that bear the name of somebody who speaks."""
        entities = self.guide.registry.find(_ENTITY)
        if entities is None:
            return []
        names = dict.fromkeys(message.name for message in messages if message.name and message.name.strip())
        below = f"{self.guide.directory(entities)}/"
        hits = [(name, hit.uri) for name in list(names)[:_SPEAKERS] for hit in self._hits(name)]
        return [uri for name, uri in hits if uri.startswith(below) and fold(name) in fold(_name(uri))]

    def _hits(self, query: str) -> list[Hit]:
        try:
            found = self.view.find_memories(query, _HITS)
        except InvalidInput:
            return []
        return [*found.memories, *found.skills]


def _parent(uri: str) -> str:
    return uri.rpartition("/")[0]


def _listed(lines: Mapping[str, _Line]) -> str:
    """The directories, those of one root below its URI."""
    found: list[str] = []
    root = ""
    for uri, line in lines.items():
        parts = uri.split("/")
        if root != (root := "/".join(parts[:_ROOT_PARTS])):
            found.append(f"{root}/")
        found.append(f"- {'/'.join(parts[_ROOT_PARTS:]) or '.'}/ {line}")
    return "\n".join(found)


def _cost(lines: Mapping[str, _Line]) -> int:
    return count_tokens(_listed(lines))


def _name(uri: str, most_chars: int | None = None) -> str:
    """The name of a memory's file; ends with an ellipsis where it is longer than it may be."""
    name = one_line(uri.rpartition("/")[2].removesuffix(".md"))
    return name if most_chars is None or len(name) <= most_chars else f"{name[:most_chars].rstrip()}…"


def _tokens(parts: Mapping[str, str]) -> int:
    return sum(count_tokens(part) for part in parts.values())


def queries(messages: Sequence[Message]) -> list[str]:
    """What to search for: the user's messages in up to six slices, and the tools that were used.

    Short messages share a slice with their neighbours; each slice holds at most some hundred characters, taken
    evenly from its messages.
    """
    said = [message.text for message in messages if message.role == "user" and message.text.strip()]
    if sum(len(text) for text in said) < _ENOUGH_CHARS:
        said = [message.text for message in messages if message.role != "system" and message.text.strip()]
    size = -(-len(said) // _QUERIES) if said else 1
    slices = [said[start : start + size] for start in range(0, len(said), size)]
    found = ["\n".join(text.strip()[: _QUERY_CHARS // len(texts)] for text in texts) for texts in slices]
    used = [name for message in messages for call in message.tool_calls for name in (call.name, call.skill_name)]
    tools = list(dict.fromkeys(name for name in used if name and name.strip()))[:_TOOLS]
    return [query for query in (*found, " ".join(tools)) if query.strip() and "\x00" not in query]


def _note(seen: dict[str, str], uri: str, page: str) -> None:
    """Note that a page was seen: what somebody wrote on it, since its list goes on changing."""
    words = own_words(uri.rpartition("/")[2], page)
    if words is not None:
        seen[uri] = text_sha256(words)
