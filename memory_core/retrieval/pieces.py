"""Pieces of a context read from the store: memories, directories, pages of conversations, logs of days.

Reads through a browser and never writes. What a person may not see from a project, and what is gone, is no piece.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from memory_core.errors import InvalidInput, NotFound
from memory_core.model.availability import is_active, is_expired
from memory_core.model.conversation import Message
from memory_core.model.daily_log import LogEntry, entries, log_day, log_uri, readable
from memory_core.model.directory_summary import abstract_line
from memory_core.model.filename import key_of
from memory_core.model.forgetting import is_forgotten
from memory_core.model.hits import Hit
from memory_core.model.memory_file import parse
from memory_core.model.project import ProjectScope, is_private, project_key, stored_project
from memory_core.model.record import CONTENT, summary_line
from memory_core.model.rolling_summary import (
    Line,
    read_rolling_summary,
    rolling_summary_uri,
    said_digests,
    without,
)
from memory_core.model.schema import MemoryType
from memory_core.model.segment import EXTRACT, Segment, parse_segment, segments_of
from memory_core.model.uri import ABSTRACT_NAME, MemoryUri, Scope, file_of
from memory_core.registry import MemoryTypeRegistry
from memory_core.retrieval.browse import Browser
from memory_core.retrieval.contradictions import rivals_in, with_rivals
from memory_core.retrieval.packing import Piece
from memory_core.retrieval.pages import ConversationLog, Page
from memory_core.retrieval.standing import STANDING_SALIENCE
from memory_core.storage.ledger import Ledger

#: Preferences and patterns bind, and so does whatever matters this much or was pinned.
_BINDING_TYPES = frozenset({"preferences", "patterns"})
_KIND_OF_TYPE = {"tools": "tools", "skills": "skill"} | dict.fromkeys(_BINDING_TYPES, "constraints")
_DIRECTORY_LINE_CHARS = 160
_DIRECTORIES = 200
#: Of one conversation that are read.
_SEGMENTS = 10_000
_OVERVIEW_CHARS = 160
#: When an event was, to the day, month or year.
_DAY = re.compile(r"\d{4}(?:-\d\d(?:-\d\d)?)?(?!\d)")
#: What joins the words of a name.
_JOINTS = re.compile(r"[\s_-]+")
#: How a generated line begins; the count beside it is exact.
_COUNTED = re.compile(r"[^:]{0,60} \(\d+\+?\)(?:: |$)")


@dataclass(frozen=True, slots=True)
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


class PieceReader:
    """Reads pieces of one store as they are seen from a project.

    Args:
        browser: Reads files.
        ledger: Knows names, counts and which conversation grew last.
        registry: Memory types.
        spaces: Whose memories.
        scope: The project at hand.
    """

    def __init__(
        self, browser: Browser, ledger: Ledger, registry: MemoryTypeRegistry, spaces: Spaces, scope: ProjectScope
    ) -> None:
        self._browser = browser
        self._ledger = ledger
        self._registry = registry
        self._spaces = spaces
        self._scope = scope
        self._logs: dict[str, ConversationLog] = {}
        self._segments: dict[str, list[tuple[str, Segment]]] = {}

    @property
    def profile_uri(self) -> str:
        """Where the user's profile is."""
        return f"viking://user/{self._spaces.user}/memories/profile.md"

    def profile(self) -> list[Piece]:
        """The profile, if there is one."""
        return [piece for piece in [self.memory(self.profile_uri, kind="profile")] if piece is not None]

    def memory(self, uri: str, hit: Hit | None = None, kind: str | None = None) -> Piece | None:
        """A memory's body and what its fields add to it; None if it is gone, empty or not to be seen.

        Args:
            uri: The file.
            hit: What the search said of it.
            kind: The part; None is that of its type and weight.
        """
        day = log_day(MemoryUri.parse(file_of(uri)))
        if day is not None:
            return self._logged(uri, day, hit)
        file = parse(self._text(uri))
        meta = file.trailer or {}
        known = self._registry.type_at(MemoryUri.parse(uri), file.type_name)
        text = _with_fields(known, meta, file.body.strip()) or ("" if hit is None else hit.abstract)
        if not text or not self._sees(stored_project(None, meta), private=is_private(None, meta)):
            return None
        changed = meta.get("updated_at") if hit is None else hit.updated_at or meta.get("updated_at")
        happened = _DAY.match(str(meta.get("event_time", "")))
        dated = changed[:10] if isinstance(changed, str) else None
        own_type = "" if known is None else known.name
        memory_type = own_type if hit is None else hit.memory_type
        rivals = rivals_in(meta, self._named) if hit is None else hit.rivals
        return Piece(
            kind=kind or _kind(memory_type, meta.get("salience"), meta.get("pinned")),
            uri=uri,
            text=with_rivals(text, rivals),
            score=None if hit is None else hit.score,
            date=dated if happened is None else happened[0],
            memory_type=memory_type,
            contested_by=tuple(rival.uri for rival in rivals),
        )

    def named(self, memory_type: str, name: str) -> str | None:
        """Where the memory of that name is, however the name is spelt; of this project first, then of none."""
        try:
            known = self._registry.get(memory_type)
        except NotFound:
            return None
        directory = self._spaces.memories(known.directory)
        spellings = dict.fromkeys((name, *(_JOINTS.sub(joint, name.strip()) for joint in "-_ ")))
        for spelling in spellings:
            key = key_of(dict.fromkeys(known.key_fields[:1], spelling), known.key_fields)
            for project in dict.fromkeys((self._scope.current, None)):
                found = self._ledger.locate(directory, memory_type, project_key(project, key))
                if found is not None:
                    return str(found)
        return None

    def directory(self) -> list[Piece]:
        """What is stored: each directory with its count and line, and the conversations."""
        pieces: list[Piece] = []
        for space in (("user", self._spaces.user), ("agent", self._spaces.agent)):
            for uri, count in self._ledger.directories.counts(MemoryUri(space)).items():
                line = self._line(uri)
                pieces.append(_directory(f"{uri}/", f"{uri}/ ({count})" + (f": {line}" if line else "")))
        sessions = self._ledger.directories.sessions(self._spaces.sessions)
        if sessions:
            pieces.append(
                _directory(f"{self._spaces.sessions}/", f"{self._spaces.sessions}/ ({sessions} conversations)")
            )
        return pieces[:_DIRECTORIES]

    def pages(
        self, hits: Iterable[Hit], sessions: int, most: int, session_from: float, page_from: float
    ) -> list[Piece]:
        """The pages of the turns that were found, best first.

        Turns belong to the segment that holds them; those that are in none yet, to the end of their conversation.

        Args:
            hits: Turns, best first.
            sessions: Segments and ends of conversations that pages are taken from, the best ones.
            most: Pages at most.
            session_from: Least score of the best turn of each.
            page_from: Least score of a page's best turn.
        """
        best: set[str] = set()
        found: dict[str, Piece] = {}
        for hit in hits:
            log, _, line = hit.uri.rpartition("#")
            if hit.score < page_from or not line.isdecimal():
                continue
            segment = self._segment(log, int(line))
            group = log if segment is None else segment[0]
            if group not in best and len(best) < sessions and hit.score >= session_from:
                best.add(group)
            if group not in best:
                continue
            page = self._log(log).page_of(int(line))
            if page is not None and len(found) < most:
                piece = _page("session", log, page, hit.score, "" if segment is None else _overview(segment[1]))
                found.setdefault(piece.uri, piece)
        return list(found.values())

    def _segment(self, log: str, line: int) -> tuple[str, Segment] | None:
        """The segment that holds a turn, with its URI."""
        if log not in self._segments:
            directory = segments_of(MemoryUri.parse(log))
            names = self._ledger.directories.newest(directory, _SEGMENTS)
            read = ((str(directory.child(name)), parse_segment(self._text(f"{directory}/{name}"))) for name in names)
            self._segments[log] = [(uri, segment) for uri, segment in read if segment is not None]
        return next(((uri, segment) for uri, segment in self._segments[log] if segment.holds(line)), None)

    def recent(self, own_session: str | None, pages: int) -> list[Piece]:
        """The last pages of the last conversation other than this one, newest first."""
        own = None if own_session is None else self._spaces.sessions.child(own_session)
        for log in self._ledger.directories.newest_logs(self._spaces.sessions, 2):
            if pages and (own is None or not own.contains(MemoryUri.parse(log))):
                return [_page("recent", log, page) for page in self._log(log).last_pages(pages)]
        return []

    def rolling_summary(self, now: datetime) -> Piece | None:
        """The summary of all that is known, if there is one, without what does not hold any more.

        Left out is, of a page that was made, each line whose memory is gone, archived, at rest, past its time, a
        project's, or says something else by now.
        """
        uri = rolling_summary_uri(self._spaces.user)
        stored = read_rolling_summary(self._text(str(uri)))
        if stored is None:
            return None
        said: dict[str, frozenset[str]] = {}

        def holds(line: Line) -> bool:
            if line.uri not in said:
                said[line.uri] = self._said_to_all(line.uri, now)
            return line.digest in said[line.uri]

        text = without(stored, holds).text
        return Piece("summary", str(uri), text) if text else None

    def _said_to_all(self, uri: str, now: datetime) -> frozenset[str]:
        """Digests of what a memory in use says now; none where it is of one project."""
        text = self._text(uri)
        file = parse(text)
        meta = file.trailer or {}
        if not text or file.damage is not None or not is_active(meta) or is_expired(meta, now):
            return frozenset()
        place = MemoryUri.parse(uri)
        known = self._registry.type_at(place, file.type_name)
        of_all = place.scope is not Scope.ARCHIVE and stored_project(known, meta) is None
        return said_digests(place, file.body) if of_all else frozenset()

    def daily_logs(self, today: date, days: int) -> list[Piece]:
        """The logs of the last days, newest first."""
        logs: list[Piece] = []
        for back in range(days):
            day = today - timedelta(days=back)
            piece = self._logged(str(log_uri(self._spaces.user, day)), day)
            if piece is not None:
                logs.append(piece)
        return logs

    def _logged(self, uri: str, day: date, hit: Hit | None = None) -> Piece | None:
        """The log of a day, or one entry of it; None where there is nothing to show."""
        shown = {entry.line: readable(entry) for entry in entries(self._text(uri)) if self._shows_entry(entry)}
        if not shown:
            return None
        within = () if "#" in uri else tuple((f"{uri}#{line}", text) for line, text in shown.items())
        score = None if hit is None else hit.score
        return Piece("log", uri, "\n".join(shown.values()), score, day.isoformat(), within=within)

    def _log(self, uri: str) -> ConversationLog:
        if uri not in self._logs:
            self._logs[uri] = ConversationLog(self._text(uri).split("\n"), self._shows)
        return self._logs[uri]

    def _shows(self, message: Message) -> bool:
        return not is_forgotten(message) and self._sees(message.project, private=message.private)

    def _shows_entry(self, entry: LogEntry) -> bool:
        return self._sees(entry.project, private=entry.private)

    def _sees(self, project: str | None, *, private: bool) -> bool:
        """What is another project's is not seen where one alone is asked for; what is nobody's is its owner's."""
        other = self._scope.only and project not in (None, self._scope.current)
        return not other and self._scope.sees(project, private=private)

    def _line(self, directory: str) -> str:
        """The directory's L0 without the count."""
        line = abstract_line(self._text(f"{directory}/{ABSTRACT_NAME}"))
        return summary_line(_COUNTED.sub("", line, count=1), _DIRECTORY_LINE_CHARS)

    def _named(self, uri: str) -> str:
        """The text of a memory that another one names; empty where it may not be seen."""
        text = self._text(uri)
        meta = parse(text).trailer or {}
        return text if self._sees(stored_project(None, meta), private=is_private(None, meta)) else ""

    def _text(self, uri: str) -> str:
        try:
            return self._browser.read(uri).content
        except (NotFound, InvalidInput):
            return ""


def tools_named(names: Sequence[str], hits: Iterable[Hit]) -> Iterator[Hit]:
    """Hits that are memories of these tools under a longer or shorter name: ``mcp__github__search``, ``search``."""
    wanted = [_words(name) for name in names]
    for hit in hits:
        own = _words(MemoryUri.parse(hit.uri).name.removesuffix(".md"))
        if any(own and name and (own[-len(name) :] == name or name[-len(own) :] == own) for name in wanted):
            yield hit


def _with_fields(memory_type: MemoryType | None, meta: Mapping[str, Any], body: str) -> str:
    """The body, and below it the fields that it does not show: the state of a task, the solution of a case."""
    if memory_type is None or memory_type.template_mode:
        return body
    lines = [
        f"{field.name}: {value}"
        for field in memory_type.fields
        if field.name not in (CONTENT, *memory_type.key_fields)
        and isinstance(value := meta.get(field.name), str | int | float)
        and str(value).strip()
        and f"\n{value}\n" not in f"\n{body}\n"
    ]
    return "\n".join([body, *lines]).strip()


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W_]+", name.casefold())


def _kind(memory_type: str, salience: object, pinned: object) -> str:
    """The part of a memory."""
    kind = _KIND_OF_TYPE.get(memory_type, "memories")
    weighs = isinstance(salience, int | float) and salience >= STANDING_SALIENCE
    return "constraints" if kind == "memories" and (weighs or pinned is True) else kind


def _directory(uri: str, line: str) -> Piece:
    return Piece("directory", uri, line)


def _page(kind: str, log: str, page: Page, score: float | None = None, overview: str = "") -> Piece:
    text = f"{overview}\n{page.text}" if overview else page.text
    return Piece(kind, f"{log}#{page.first}", text, score, page.date)


def _overview(segment: Segment) -> str:
    """What a page's segment is about, in a line; sentences that were only taken from its pages add nothing."""
    told = "" if segment.summary_by == EXTRACT else summary_line(segment.summary, _OVERVIEW_CHARS)
    return f"[{told}]" if told else ""
