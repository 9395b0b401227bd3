"""Daily logs: ``viking://user/{space}/logs/YYYY-MM-DD.md``, a Markdown list with an entry an item.

Owned here: the form of the file, what a commit adds to the log of the day, what of it is searched, and what a
session's first context shows. An entry like the one before it is still an entry. Pure; the moment, with the offset of
the clock on the wall, is given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from memory_core.core.errors import ContentRejected, InvalidInput, TooLarge
from memory_core.core.feature import Feature, RecordKind
from memory_core.core.index.documents import ABSTRACT_LIMIT_CHARS, Document
from memory_core.core.index.encoder import passages
from memory_core.core.index.tokenizer import date_words
from memory_core.core.memory.memory_type import CONTENT
from memory_core.core.memory.metadata import ACTIVE, EXPIRES_AT, PINNED, read_moment
from memory_core.core.memory.names import summary_line
from memory_core.core.memory.trailer import read_members
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.text.normalization import signature, simplified

if TYPE_CHECKING:
    from memory_core.core.commit.working_copy import PlanContext
    from memory_core.core.config import RetrieveConfig
    from memory_core.core.memory.operations import WriteOp
    from memory_core.core.memory.results import Hit
    from memory_core.core.search.context_formats import Piece
    from memory_core.core.search.context_sources import PieceReader

MEMORY_TYPE = "daily_logs"
KINDS = ("event", "auto_extract", "reflection")
DEFAULT_SALIENCE = 0.5
_LOG_CHARS = 2 * 1024**2
_FOLDER = "logs"
_DAY = re.compile(r"(\d{4}-\d\d-\d\d)\.md")
_ITEM = re.compile(r"[-*+] (?:(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)(?::[0-5]\d)?(?: |$))?")
_META = re.compile(r" {2}<!-- (?P<json>\{.*\}) -->")
_LABELS = ("category", "tool", "error", "project", "session_id")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry.

    Attributes:
        text: What happened; a line break between lines, none at the end.
        time: ``HH:MM`` on the clock of that day; None if a person left it out.
        at: The moment, ISO 8601 with offset, if known.
        kind: ``event``, ``auto_extract`` or ``reflection``.
        salience: 0 to 1.
        category: A label.
        tool: The tool that was used.
        error: What went wrong.
        project: The project it belongs to.
        private: Whether it is for that project only.
        session_id: The session it comes from.
        line: 0-based number of its first line in the file; of a new one 0.
        lines: How many lines it takes, blank ones after it not counted.
    """

    text: str
    time: str | None = None
    at: str | None = None
    kind: str = KINDS[0]
    salience: float = DEFAULT_SALIENCE
    category: str | None = None
    tool: str | None = None
    error: str | None = None
    project: str | None = None
    private: bool = False
    session_id: str | None = None
    line: int = 0
    lines: int = 1


def log_uri(user_space: str, day: date) -> MemoryUri:
    """The file of a day."""
    return MemoryUri((Scope.USER.value, user_space, _FOLDER, f"{day.isoformat()}.md"))


def log_day(uri: MemoryUri) -> date | None:
    """The day whose log this is; None if it is no daily log."""
    named = _DAY.fullmatch(uri.name)
    if uri.scope is not Scope.USER or len(uri.parts) != 4 or uri.parts[2] != _FOLDER or named is None:
        return None
    try:
        return date.fromisoformat(named[1])
    except ValueError:
        return None


def new_entry(text: str, moment: datetime, **facts: Any) -> LogEntry:
    """An entry made at ``moment``; its offset says whose clock."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").strip().split("\n")
    words = "\n".join(line if line.strip() else "" for line in lines)
    return LogEntry(words, moment.strftime("%H:%M"), moment.isoformat(timespec="seconds"), **facts)


def added_entry(end: str | None, day: date, entry: LogEntry) -> str:
    """What one more entry adds to a log.

    Args:
        end: The log; what its last entry added is enough. None where there is no log.
        day: Of the log.
        entry: The new one.
    """
    if not end:
        return f"# {day.isoformat()}\n\n{_rendered(entry)}"
    joint = "" if end.endswith("\n") else "\n"
    listed = end.rstrip("\n").rpartition("\n")[2].startswith(("- ", "* ", "+ ", "  "))
    return f"{joint}{'' if listed or end.endswith(chr(10) * 2) else chr(10)}{_rendered(entry)}"


def entries(log: str) -> tuple[LogEntry, ...]:
    """All entries of a log in the order of the file; headings are none."""
    blocks: list[tuple[int, list[str]]] = []
    open_block = False
    for number, line in enumerate(log.replace("\r\n", "\n").split("\n")):
        if not line.strip():
            if open_block:
                blocks[-1][1].append("")
        elif line.startswith("  ") and open_block:
            blocks[-1][1].append(line)
        elif line.startswith("#") and re.match(r"#{1,6} ", line):
            open_block = False
        elif _ITEM.match(line) or not open_block or _ended(blocks[-1][1]):
            blocks.append((number, [line]))
            open_block = True
        else:
            blocks[-1][1].append(line)
    read = (_read(number, lines) for number, lines in blocks)
    return tuple(entry for entry in read if entry.text)


def readable(entry: LogEntry) -> str:
    """The entry as a list item without its comment; what that says of kind and category stands in brackets."""
    labels = [entry.kind if entry.kind != KINDS[0] else None, entry.category, entry.tool, entry.error]
    brackets = ", ".join(filter(None, labels))
    text = entry.text.replace("\n", "\n  ")
    return " ".join(part for part in ("-", entry.time, f"[{brackets}]" if brackets else None, text) if part is not None)


def _ended(block: list[str]) -> bool:
    """Whether a line that is not indented begins something new: after a blank line, or our own comment."""
    return not block[-1] or _META.fullmatch(block[-1]) is not None


def _rendered(entry: LogEntry) -> str:
    first, *rest = entry.text.split("\n")
    meta: dict[str, Any] = {"at": entry.at}
    if entry.kind != KINDS[0]:
        meta["kind"] = entry.kind
    if entry.salience != DEFAULT_SALIENCE:
        meta["salience"] = entry.salience
    meta |= {name: getattr(entry, name) for name in _LABELS if getattr(entry, name) is not None}
    if entry.private:
        meta["private"] = True
    comment = json.dumps(meta, ensure_ascii=False).replace("<", "\\u003c").replace(">", "\\u003e")
    lines = [f"- {entry.time} {first}", *(f"  {line}" if line else "" for line in rest), f"  <!-- {comment} -->"]
    return "\n".join(lines) + "\n"


def _read(number: int, lines: list[str]) -> LogEntry:
    while not lines[-1]:
        lines.pop()
    meta: dict[str, Any] = {}
    body, comment = lines, _META.fullmatch(lines[-1])
    if comment is not None:
        with suppress(ValueError, RecursionError):  # a person's own comment
            meta = json.loads(comment["json"])
            body = lines[:-1]
    item = _ITEM.match(lines[0])
    time = None
    if item is not None:
        body = [body[0][item.end() :], *(line.removeprefix("  ") for line in body[1:])]
        time = f"{int(item['hour']):02}:{item['minute']}" if item["hour"] else None
    members = {
        name: meta[name] for name in ("at", "kind", "salience", "private", *_LABELS) if meta.get(name) not in (None, "")
    }
    own = {"text": "\n".join(body).strip(), "time": time, "line": number, "lines": len(lines)}
    entry = read_members(LogEntry, {**members, **own})
    assert entry is not None  # it has a text
    return replace(
        entry,
        at=entry.at if read_moment(entry.at) is not None else None,
        kind=entry.kind if entry.kind in KINDS else KINDS[0],
        salience=entry.salience if 0 <= entry.salience <= 1 else DEFAULT_SALIENCE,
    )


_FIELDS = ("kind", "tool", "error")
_LABEL_CHARS = 200


def _entry(write: WriteOp, context: PlanContext, moment: datetime) -> tuple[LogEntry, list[str]]:
    from memory_core.core.memory.operations import check_text, escaped

    check_text(write)
    data = write.memory_data
    fields = dict(data.fields)
    content = fields.pop(CONTENT, None)
    if not isinstance(content, str) or not content.strip():
        raise ContentRejected("an entry of the daily log without content says nothing.", hint="Give content.")
    size = len(content.encode("utf-8", "surrogatepass"))
    if size > context.content_bytes:
        raise TooLarge(
            f"the entry has {size:,} bytes; the limit is {context.content_bytes:,}.", hint="Log what matters of it."
        )
    facts: dict[str, Any] = {name: fields.pop(name) for name in _FIELDS if fields.get(name) not in (None, "")}
    kind = facts.pop("kind", KINDS[0])
    if kind not in KINDS:
        raise InvalidInput(f"kind {escaped(str(kind))!r} is unknown.", hint=f"Use one of: {', '.join(KINDS)}.")
    labels = {"tool": _label("tool", facts["tool"])} if "tool" in facts else {}
    if "error" in facts:
        labels["error"] = " ".join(str(facts["error"]).split())
    category = data.given.get("category")
    entry = new_entry(
        content,
        moment,
        kind=kind,
        salience=data.given.get("salience", DEFAULT_SALIENCE),
        category=None if category is None or DAILY_LOGS.takes(category) else _label("category", category),
        project=context.assignment.project,
        private=context.assignment.is_private,
        session_id=context.source.get("session_id"),
        **labels,
    )
    notes = [f"ignored fields the log does not take: {', '.join(fields)}"] if fields else []
    if data.given.get(PINNED) or data.given.get(EXPIRES_AT) or ACTIVE in data.given:
        notes.append("entries of the log are not pinned, and do not expire or rest")
    if write.uri is not None and write.uri != str(log_uri(context.user_space, moment.date())):
        notes.append("entries go to the log of the day, whatever uri is named")
    return entry, notes


def _label(name: str, value: Any) -> str:
    label = " ".join(str(value).split())
    if len(label) > _LABEL_CHARS:
        raise InvalidInput(f"{name} has {len(label)} characters.", hint=f"A label has at most {_LABEL_CHARS}.")
    return label


def _entry_document(uri: MemoryUri, day: date, entry: LogEntry) -> Document:
    when = entry.at or f"{day.isoformat()}T{entry.time or '00:00'}:00"
    labels = [label for label in (entry.category, entry.tool, entry.error) if label]
    own = "\n".join([entry.text, *labels])
    return Document(
        uri=uri,
        part=entry.line,
        context_type="resource",
        memory_type=MEMORY_TYPE,
        name=day.isoformat(),
        abstract=summary_line(f"{day.isoformat()} {entry.time or ''} {entry.text}", ABSTRACT_LIMIT_CHARS),
        own=own,
        previous="",
        heading=date_words(day),
        passages=tuple(passages(simplified(own))),
        created_at=when,
        updated_at=when,
        happened=day.isoformat(),
        salience=entry.salience,
        tags=(entry.kind,),
        category=entry.category,
        project=entry.project,
        private=entry.private and entry.project is not None,
        signature=signature(f"{day.isoformat()} {own}"),
        session_id=entry.session_id,
    )


class DailyLogs(RecordKind):
    """The logs, and writes to the log of the day."""

    name = MEMORY_TYPE
    names = frozenset({"daily logs", "daily log", "dailylog", "dailylogs", "日志", "每日日志", "当日日志"})
    has_entries = True
    is_appended = True

    def holds(self, uri: MemoryUri) -> bool:
        """Whether this is the log of a day."""
        return log_day(uri) is not None

    def documents(self, uri: MemoryUri, text: str) -> Sequence[Document]:
        """One an entry; ``part`` is the entry's first line."""
        day = log_day(uri)
        return [] if day is None else [_entry_document(uri, day, entry) for entry in entries(text)]

    def assignments(self, text: str) -> Iterable[tuple[str | None, bool]]:
        """Those of the entries."""
        return [(entry.project, entry.private) for entry in entries(text)]

    def listing_line(self, text: str) -> str:
        """The entries, one after the other."""
        return "; ".join(entry.text for entry in entries(text))

    def entry_lengths(self, text: str) -> Mapping[int, int]:
        """Those of the entries, by their first lines."""
        return {entry.line: entry.lines for entry in entries(text)}

    def piece(self, reader: PieceReader, uri: str, hit: Hit | None) -> Piece | None:
        """The log of a day, or one entry of it; None where there is nothing to show."""
        day = log_day(MemoryUri.parse(uri.partition("#")[0]))
        seen = (entry for entry in entries(reader.text(uri)) if reader.sees(entry.project, private=entry.private))
        shown = {entry.line: readable(entry) for entry in seen}
        if not shown or day is None:
            return None
        within = () if "#" in uri else tuple((f"{uri}#{line}", text) for line, text in shown.items())
        score = None if hit is None else hit.score
        from memory_core.core.search.context_formats import Piece

        return Piece("log", uri, "\n".join(shown.values()), score, day.isoformat(), within=within)

    def target(self, context: PlanContext, moment: datetime) -> MemoryUri:
        """The log of the day."""
        return log_uri(context.user_space, moment.date())

    def check_size(self, uri: MemoryUri, chars: int) -> None:
        """Refuse what would make the log of a day longer than 2 MiB: each entry has it indexed anew."""
        if chars > _LOG_CHARS:
            raise TooLarge(f"{str(uri)!r} would be over {_LOG_CHARS // 1024**2} MiB.", hint="Write it tomorrow.")

    def with_write(self, text: str | None, write: WriteOp, context: PlanContext, moment: datetime) -> tuple[str, str]:
        """One more entry for the log's end."""
        entry, notes = _entry(write, context, moment)
        return added_entry(text, moment.date(), entry), "; ".join(notes)


DAILY_LOGS = DailyLogs()


def _opening(reader: PieceReader, now: datetime, config: RetrieveConfig) -> Iterator[tuple[Piece | None, bool]]:
    """The logs of the last days, newest first."""
    for back in range(config.daily_log_days):
        uri = log_uri(reader.spaces.user, now.date() - timedelta(days=back))
        yield DAILY_LOGS.piece(reader, str(uri), None), True


FEATURE = Feature(record_kinds=(DAILY_LOGS,), opening=_opening)
