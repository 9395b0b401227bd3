"""The log of a day: entries with their time, in a Markdown file that a person reads and edits.

::

    # 2026-05-07

    - 14:03 Moved the payment service to the new cluster.
      It took two tries.
      <!-- {"at": "2026-05-07T14:03:12+08:00", "kind": "reflection", "category": "work"} -->

One list item an entry; what the line does not say stands in the comment below it, which no reader of the rendered
page sees. Items without a time or comment, and paragraphs, are entries too: a log written by hand is a log. A day is
that of the clock on the wall where the entry was made, and the comment keeps the offset, so that the file reads
right for its owner and still tells the moment wherever it is moved. Pure.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from memory_core.model.uri import MemoryUri, Scope

MEMORY_TYPE = "daily_logs"
KINDS = ("event", "auto_extract", "reflection")
DEFAULT_SALIENCE = 0.5
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
    said = "\n".join(line if line.strip() else "" for line in lines)
    return LogEntry(said, moment.strftime("%H:%M"), moment.isoformat(timespec="seconds"), **facts)


def with_entry(log: str | None, day: date, entry: LogEntry) -> str:
    """The log with one more entry at its end; what was there stays as it is, to the byte."""
    if not log:
        return f"# {day.isoformat()}\n\n{_rendered(entry)}"
    joint = "" if log.endswith("\n") else "\n"
    listed = log.rstrip("\n").rpartition("\n")[2].startswith(("- ", "* ", "+ ", "  "))
    return f"{log}{joint}{'' if listed or log.endswith(chr(10) * 2) else chr(10)}{_rendered(entry)}"


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
    said = ", ".join(label for label in labels if label)
    head = " ".join(part for part in ("-", entry.time, f"[{said}]" if said else None) if part)
    text = entry.text.replace("\n", "\n  ")
    return f"{head} {text}"


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
        lines = lines[:-1]
    meta: dict[str, Any] = {}
    found = _META.fullmatch(lines[-1])
    body = lines
    if found is not None:
        try:
            meta = json.loads(found["json"])
            body = lines[:-1]
        except (ValueError, RecursionError):  # a person's own comment
            meta = {}
    item = _ITEM.match(lines[0])
    time = None
    if item is not None:
        body = [body[0][item.end() :], *(line.removeprefix("  ") for line in body[1:])]
        time = f"{int(item['hour']):02}:{item['minute']}" if item["hour"] else None
    text = "\n".join(body).strip()
    kind, salience = meta.get("kind"), meta.get("salience")
    sound = isinstance(salience, int | float) and not isinstance(salience, bool) and 0 <= salience <= 1
    labels = {name: value for name in _LABELS if isinstance(value := meta.get(name), str) and value}
    return LogEntry(
        text,
        time,
        _moment(meta.get("at")),
        kind if kind in KINDS else KINDS[0],
        float(salience) if sound and salience is not None else DEFAULT_SALIENCE,
        private=meta.get("private") is True,
        line=number,
        lines=len(lines),
        **labels,
    )


def _moment(value: Any) -> str | None:
    try:
        return value if isinstance(value, str) and datetime.fromisoformat(value) else None
    except ValueError:
        return None
