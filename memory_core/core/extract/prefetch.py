"""Phase 0 of the update loop: what is stored that may matter to a conversation, gathered before the model is asked.

The directories with counts and summaries (L0), their overviews (L1), and the memories that a search with the
conversation as query finds, whole where they fit. Everything stays inside a token budget and the work is bounded
however large the store is. Says which files were shown whole, and never writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memory_core.core.errors import InvalidInput
from memory_core.core.extract.prompts import TypeGuide, cut_end, fenced, one_line
from memory_core.core.extract.store_view import StoreView
from memory_core.core.memory.directory_page import abstract_line, is_generated, own_words, parse_page, readable
from memory_core.core.memory.memory_type import MemoryType
from memory_core.core.memory.message import Message
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.uri import ABSTRACT_NAME, OVERVIEW_NAME
from memory_core.core.text.tokens import count_tokens

_DIRECTORY_SHARE = 0.2
_OVERVIEW_SHARE = 0.2
_OVERVIEW_TOKENS = 160
_ABSTRACT_TOKENS = 40
_NAMES = 8
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


@dataclass(frozen=True, slots=True)
class Prefetched:
    """What was gathered.

    Attributes:
        directories: One line a directory: its URI, how many memories, the newest names, its summary.
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


class Prefetcher:
    """Gathers context from one store.

    Args:
        guide: Names the directories of memory types.
        view: The store.
    """

    def __init__(self, guide: TypeGuide, view: StoreView) -> None:
        self._guide = guide
        self._view = view

    def gather(self, messages: Sequence[Message], budget_tokens: int) -> Prefetched:
        """Context for a conversation.

        Args:
            messages: The conversation; without any, directories and overviews only.
            budget_tokens: Tokens that ``Prefetched.text`` may take, headings included.
        """
        seen: dict[str, str] = {}
        room = budget_tokens - count_tokens(Prefetched("x", "x", "x").text)
        nearest = self._nearest(messages)
        directories = self._directories(int(room * _DIRECTORY_SHARE), seen)
        left = room - count_tokens(directories)
        memories = self._memories(nearest, left, seen)
        shown = [uri for uri in nearest if uri in seen]
        rest = [uri for uri in nearest if uri not in shown]
        overviews = self._overviews(rest, min(left - count_tokens(memories), int(room * _OVERVIEW_SHARE)), seen)
        return Prefetched(directories, overviews, memories, seen)

    def _directories(self, budget: int, seen: dict[str, str]) -> str:
        """One line each, in the richest form in which all fit; bare ones, as many as fit, where none does."""
        forms = [found for uri in self._guide.directories() if (found := self._forms(uri)) is not None]
        for level in (2, 1, 0):
            lines = [found[level] for found in forms]
            used = sum(count_tokens(line) for line in lines)
            if used <= budget:
                break
        while used > budget:
            used -= count_tokens(lines.pop())
        dropped = len(forms) - len(lines)
        for directory in self._guide.directories():
            uri = f"{directory}/{ABSTRACT_NAME}"
            text = self._view.text(uri) or ""
            if any(line.startswith(f"- {directory}/ ") and _shows(line, abstract_line(text)) for line in lines):
                _note(seen, uri, text)
        if dropped:
            lines.append(f"- … and {dropped} more: list them with ls")
        return "\n".join(lines)

    def _forms(self, directory: str) -> tuple[str, str, str] | None:
        """A directory bare, with its summary, and with the newest names too; None if it is empty."""
        newest, total = self._view.newest_in(directory, _NAMES)
        if not total:
            return None
        names = ", ".join(one_line(name.removesuffix(".md"))[:_NAME_CHARS] for name in newest)
        more = f", and {total - len(newest)} more" if total > len(newest) else ""
        count = "1 memory" if total == 1 else f"{total} memories"
        stored = self._view.text(f"{directory}/{ABSTRACT_NAME}") or ""
        # A generated summary names what is named here.
        told = "" if is_generated(stored) else cut_end(one_line(abstract_line(stored)), _ABSTRACT_TOKENS)
        summary = f" — {told}" if told else ""
        bare = f"- {directory}/ ({count})"
        return bare, bare + summary, f"- {directory}/ ({count}: {names}{more}){summary}"

    def _overviews(self, nearest: Sequence[str], budget: int, seen: dict[str, str]) -> str:
        """Overviews: those that somebody wrote, then generated ones of directories with near memories not shown."""
        near = [uri.rpartition("/")[0] for uri in nearest]
        known = self._guide.directories()
        texts = {
            uri: self._view.text(f"{uri}/{OVERVIEW_NAME}") or ""
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

    def _memories(self, nearest: Sequence[str], budget: int, seen: dict[str, str]) -> str:
        parts: list[str] = []
        used = 0
        for uri in nearest:
            room = min(budget - used, int(budget * _MEMORY_SHARE))
            if room < _LEAST_TOKENS or len(parts) >= _MEMORIES:
                break
            shown = self._view.show(uri, room)
            if shown is None:
                continue
            parts.append(shown.text)
            used += count_tokens(shown.text)
            if shown.sha256 is not None:
                seen[shown.uri] = shown.sha256
        return "\n\n".join(parts)

    def _nearest(self, messages: Sequence[Message]) -> list[str]:
        """URIs to show: what there is only one of (the profile), then hits of all queries, best first."""
        scores: dict[str, float] = {}
        for query in queries(messages):
            try:
                found = self._view.find_memories(query, _HITS)
            except InvalidInput:
                continue
            for hit in (*found.memories, *found.skills):
                scores[hit.uri] = max(scores.get(hit.uri, 0.0), hit.score)
        best = sorted(scores, key=lambda uri: (-scores[uri], uri))
        return list(dict.fromkeys((*(self._single(kind) for kind in self._keyless() if messages), *best)))

    def _keyless(self) -> list[MemoryType]:
        return [known for known in self._guide.registry.list_all() if not known.key_fields]

    def _single(self, memory_type: MemoryType) -> str:
        return f"{self._guide.directory(memory_type)}/{memory_type.filename_template}"


def _shows(line: str, abstract: str) -> bool:
    """Whether a directory's line ends with the abstract as it is stored, whole."""
    return bool(abstract) and line.endswith(f" — {abstract}")


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
