"""Procedural memory without a model: a failed tool call becomes a pattern that says how often it failed.

Reads the calls that ``tool_counts`` finds. Owns the signature of an error, what is told of a failure, and the block of
occurrences inside the memory's text. One memory for each tool and error. It says what happened and is no rule: what
failed once may work today. That something worked afterwards is told only of the same call, or of one whose arguments
correct it (``corrected``). A program that ran and reported its findings, tests or a compiler, teaches nothing of how
it is called. Secrets were taken out of the messages before. Pure: what is stored already is asked of a callable.

The text is a sentence or two, then a block of our own::

    <!-- occurrences: 7 -->
    - 2026-05-11: web_search(query="x") → TimeoutError: no answer within 30 s
    <!-- /occurrences -->

The number counts all occurrences ever; the lines are the last few. It is read back from the text, so it needs no
other store and follows a person's edits: where it is missing or damaged, the lines are counted. The sentences above
are only rewritten where they are what was generated, number and day aside; edited ones stay for good.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from itertools import islice, zip_longest
from pathlib import PurePosixPath
from typing import Any

from memory_core.core.commit.append import Growing, Learned
from memory_core.core.feature import Feature
from memory_core.core.memory.memory_type import MemoryType, MemoryTypeRegistry
from memory_core.core.memory.names import summary_line
from memory_core.core.memory.operations import MemoryData, WriteOp
from memory_core.core.text.language import in_language
from memory_core.core.text.word_table import cued_patterns, word_pattern, word_table
from memory_core.features.failures import command_of, tells_result, without_wrapping
from memory_core.features.tool_counts import Existing, FinishedCall, collecting_type, growth_of

_pattern = partial(word_pattern, __file__)
MEMORIES_LIMIT = 20
_SOURCE_KIND = "auto_reflection"
OTHER_ERRORS = "other errors"
_REPEATED_SALIENCE = 0.7
_PATTERN_TYPE = "tool_error"
_TYPES_PER_TOOL = 5
_OCCURRENCES_KEPT = 5
_ARGUMENTS_LIMIT_CHARS = 160
_MESSAGE_LIMIT_CHARS = 200
_ERROR_TYPE_LIMIT_CHARS = 60
_READ_LIMIT_CHARS = 4_000
#: Texts of several words that are alike by so much are two tries at one thing; words, by so much, one misspelt.
_SAME_TEXT = 0.6
_SAME_WORD = 0.75
_WORD_CHARS = 4
_OPTION_CHARS = 24
#: A longer word is no word that somebody misspells; of longer texts the beginnings are compared.
_LONG_WORD_CHARS, _TEXT_CHARS = 40, 120
#: Successful calls of the same tool after a failed one that may be its correction.
_LATER_CALLS = 10
#: Arguments that say why, not what.
_REMARKS = frozenset({"description", "explanation", "reason", "thought", "comment", "说明", "原因"})

#: Statuses that are nobody's mistake: there is nothing to learn for the next call.
_STOPPED = frozenset({"cancelled", "canceled", "aborted", "interrupted", "skipped"})

_OPEN = re.compile(r"[ \t]*+<!--[ \t]*+occurrences\b[ \t]*+:?[ \t]*+(\d{1,9})?.*-->[ \t]*+\r?")
_CLOSE = re.compile(r"[ \t]*<!--[ \t]*/occurrences[ \t]*-->[ \t]*\r?")
_DAY = r"\d{4}-\d{2}-\d{2}"
_LINE = re.compile(rf"- (?:({_DAY}): )?.*")
#: A placeholder in an escaped template.
_SLOT = re.escape("{") + "%s" + re.escape("}")

_ERROR_KEYS = ("type", "code", "status", "status_code", "message", "detail", "error", "msg", "reason")


@dataclass(frozen=True, slots=True)
class _Content:
    """A memory's text in its parts: prose above and below, the block's count and lines."""

    prose: str = ""
    count: int = 0
    lines: tuple[str, ...] = ()
    after: str = ""


def error_type(message: str, status: str = "error") -> str:
    """What kind of error a tool's answer tells of, the same however numbers, paths and names in it differ.

    An exception class, an errno name, ``HTTP 404``, a plain phrase, else the first words; the status where the
    answer is blank.
    """
    text = _error_text(message)
    raised: list[str] = _pattern("raised").findall(text) or _pattern("mentioned").findall(text)
    named = [name for name in raised if name not in ("ToolError", "ToolException", "HTTPError", "HTTPStatusError")]
    if named:
        return named[-1][:_ERROR_TYPE_LIMIT_CHARS]
    if (errno := _pattern("errno").search(text)) is not None:
        return errno.group()
    if (http := _pattern("http_status").search(text)) is not None:
        return f"HTTP {http[1] or http[2]}"
    phrases = cued_patterns(__file__, "phrases", re.IGNORECASE)
    phrase = next((named.name for named in phrases if named.compiled.search(text)), None)
    return phrase or (raised[-1] if raised else None) or _first_words(text) or status.strip() or "error"


def lessons(
    calls: Sequence[FinishedCall], registry: MemoryTypeRegistry, existing: Existing, language: str = ""
) -> Learned:
    """Memories of the failures among ``calls``, most frequent first, at most ``MEMORIES_LIMIT``.

    Args:
        calls: Calls that are counted for the first time, in order: ``Added.calls``.
        registry: Without a type ``patterns`` whose key is ``pattern_name`` there are none.
        existing: Fields of a stored memory.
        language: Of the conversation, as ``language_of`` names it; Chinese texts for Chinese, else English.
    """
    memory_type = collecting_type(registry, "patterns", "pattern_name")
    if memory_type is None or memory_type.field("content") is None or memory_type.template_mode:
        return Learned()
    texts = in_language(word_table(__file__)["texts"], language)
    groups = _grouped(calls)
    writes = [
        _lesson(memory_type, tool, error, _occurrences(calls, places, texts), len(places), existing, texts)
        for (tool, error), places in sorted(groups.items(), key=lambda item: -len(item[1]))[:MEMORIES_LIMIT]
    ]
    left_out = len(groups) - len(writes)
    return Learned(writes, notes=(f"{left_out} kinds of tool errors were not kept",) if left_out else ())


def _grouped(calls: Sequence[FinishedCall]) -> dict[tuple[str, str], list[int]]:
    """Places of failed calls by tool and error; the rarer errors of a tool that has many are one group."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, call in enumerate(calls):
        if not call.succeeded and call.status.casefold() not in _STOPPED and not tells_result(call.text):
            groups.setdefault((call.name, error_type(call.text, call.status)), []).append(place)
    folded: dict[tuple[str, str], list[int]] = {}
    kept: dict[str, int] = {}
    for (tool, error), places in sorted(groups.items(), key=lambda item: -len(item[1])):
        kept[tool] = kept.get(tool, 0) + 1
        name = error if kept[tool] <= _TYPES_PER_TOOL else OTHER_ERRORS
        folded[tool, name] = sorted([*folded.get((tool, name), []), *places])
    return folded


def _lesson(
    memory_type: MemoryType,
    tool: str,
    error: str,
    lines: Sequence[str],
    failures: int,
    existing: Existing,
    texts: Mapping[str, str],
) -> WriteOp:
    label = " ".join(tool.split())
    name = f"{label}: {error}"
    stored = existing(memory_type.name, {"pattern_name": name})
    before = _Content() if stored is None else _read(str(stored.get("content") or ""))
    count = before.count + failures
    kept = (*before.lines, *lines)[-_OCCURRENCES_KEPT:]
    ours = stored is None or _is_ours(before.prose, label, error)
    prose = _prose(texts, label, error, count, kept) if ours else before.prose
    block = "\n".join([f"<!-- occurrences: {count} -->", *kept, "<!-- /occurrences -->"])
    content = "\n\n".join(part for part in (prose, block, before.after) if part.strip())
    given: dict[str, Any] = {"pattern_name": name, "content": content}
    was = None if stored is None else stored.get("pattern_type")
    is_kind_ours = was in (None, "", _PATTERN_TYPE, *(("rule",) if ours else ()))
    if memory_type.field("pattern_type") is not None and is_kind_ours:
        given["pattern_type"] = _PATTERN_TYPE
    is_repeated = stored is not None or count > 1
    salience = _REPEATED_SALIENCE if is_repeated and is_kind_ours else None
    data = MemoryData(memory_type=memory_type.name, fields=given, salience=salience)
    data.sourced({"kind": _SOURCE_KIND, "tool": tool, "error_type": error})
    return WriteOp(memory_data=data, replace=True)


def _prose(texts: Mapping[str, str], tool: str, error: str, count: int, lines: Sequence[str]) -> str:
    """The sentences above the block; ``{on}`` and ``{last}`` are phrases with a day, empty where none is known."""
    days = [match[1] for line in lines if (match := _LINE.fullmatch(line)) and match[1]]
    day = max(days, default=None)
    phrase = {key: texts[key].format(day=day) if day else "" for key in ("on", "last")}
    return texts["once" if count == 1 else "repeated"].format(tool=tool, error=error, count=count, **phrase)


def _is_ours(prose: str, tool: str, error: str) -> bool:
    """Whether the prose is a generated one, whatever number and day it tells."""
    for texts in word_table(__file__)["texts"].values():
        days = {key: f"(?:{re.escape(texts[key]).replace(_SLOT % 'day', _DAY)})?" for key in ("on", "last")}
        values = {"tool": re.escape(tool), "error": re.escape(error), "count": r"\d+", **days}
        for template in (texts["once"], texts["repeated"], *texts["earlier"]):
            pattern = re.escape(template)
            for name, value in values.items():
                pattern = pattern.replace(_SLOT % name, value)
            if re.fullmatch(pattern, prose.strip()):
                return True
    return False


def _read(content: str) -> _Content:
    """The parts of a memory's text; anything a person wrote inside the block becomes prose."""
    lines = content.split("\n")
    start = next((place for place in range(len(lines) - 1, -1, -1) if _OPEN.fullmatch(lines[place])), None)
    if start is None:
        return _Content(content.rstrip())
    rest = lines[start + 1 :]
    end = next((place for place, line in enumerate(rest) if _CLOSE.fullmatch(line)), None)
    if end is None:
        end = next((place for place, line in enumerate(rest) if not line.startswith("- ")), len(rest))
        rest.insert(end, "")  # where the end of the block should be
    inside, below = rest[:end], rest[end + 1 :]
    occurrences = tuple(line.rstrip() for line in inside if line.startswith("- "))
    added = [line for line in inside if line.strip() and not line.startswith("- ")]
    opening = _OPEN.fullmatch(lines[start])
    number = int(opening[1]) if opening is not None and opening[1] else 0
    prose = "\n".join([*lines[:start], *added]).strip("\n").rstrip()
    return _Content(prose, max(number, len(occurrences)), occurrences, "\n".join(below).strip("\n"))


def _occurrences(calls: Sequence[FinishedCall], places: Sequence[int], texts: Mapping[str, str]) -> list[str]:
    """The lines of the newest failures; no others are kept."""
    return [_occurrence(calls, place, texts) for place in places[-_OCCURRENCES_KEPT:]]


def _occurrence(calls: Sequence[FinishedCall], place: int, texts: Mapping[str, str]) -> str:
    """One line: the day, the call, its error, and how the same tool worked afterwards."""
    call = calls[place]
    day = "" if call.time is None else f"{call.time.date()}: "
    error = summary_line(_error_text(call.text) or call.status, _MESSAGE_LIMIT_CHARS)
    line = f"{call.name}({_shown(call.arguments)}) → {error}{_worked(calls, place, texts)}"
    return " ".join(f"- {day}{line}".split())


def _worked(calls: Sequence[FinishedCall], place: int, texts: Mapping[str, str]) -> str:
    """That the same call worked later, or what its correction was; empty where nothing of the kind is known."""
    failed = calls[place]
    wanted = _canonical(failed.arguments)
    same_tool = (later for later in calls[place + 1 :] if later.name == failed.name and later.succeeded)
    for later in islice(same_tool, _LATER_CALLS):
        if _canonical(later.arguments) == wanted:
            return texts["worked_same"]
        if (changed := corrected(failed.arguments, later.arguments)) is not None:
            return texts["worked"].format(arguments=_shown(changed))
    return ""


def corrected(old: Any, new: Any) -> Any:
    """What ``new`` gives differently, if it is the same call with its arguments put right; None for another call.

    The first argument names what the call is about: it must be the same, a path that leads to the same file, or
    differ by a misspelt word. Beside it one short value may be another one; longer texts must be alike. A command
    line is the same with one word or its program put right, or with options added.
    """
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        pairs = {"": (old, new)}
    elif command_of(old) and command_of(new):
        return {"command": command_of(new)} if _is_command_corrected(command_of(old), command_of(new)) else None
    else:
        names = [name for name in dict.fromkeys((*old, *new)) if name not in _REMARKS]
        pairs = {name: (old.get(name), new.get(name)) for name in names}
    changed = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    subject = next(iter(pairs), None)
    others = [pair for name, pair in changed.items() if name != subject and not _is_like(*pair)]
    if not changed or (subject in changed and not _is_like(*changed[subject])):
        return None
    if len(others) > 1 or not all(_is_option(value) for pair in others for value in pair):
        return None
    given = {name: pair[1] for name, pair in changed.items()}
    return given if isinstance(new, Mapping) else new


def _is_option(value: Any) -> bool:
    return not isinstance(value, str) or (len(value) <= _OPTION_CHARS and not value.isspace() and " " not in value)


def _is_like(old: Any, new: Any) -> bool:
    """Whether one value is the other put right."""
    if not isinstance(old, str) or not isinstance(new, str):
        return False
    if old.split() == new.split():
        return True
    if "/" in old + new and " " not in old + new:
        name = PurePosixPath(old).name
        return name == PurePosixPath(new).name or _is_misspelt(old, new)
    if _is_misspelt(old, new):
        return True
    long = min(len(old), len(new)) > _OPTION_CHARS
    return long and _are_near(old[:_TEXT_CHARS], new[:_TEXT_CHARS], _SAME_TEXT)


def _is_misspelt(old: str, new: str) -> bool:
    """Whether one word of a text was put right; another number or another short word is another thing."""
    parts = [re.findall(r"[^\W\d_]+|\d+", text) for text in (old, new)]
    differing = [(one, other) for one, other in zip_longest(*parts, fillvalue="") if one != other]
    if len(differing) != 1 or len(parts[0]) != len(parts[1]):
        return False
    one, other = differing[0]
    if min(len(one), len(other)) < _WORD_CHARS or max(len(one), len(other)) > _LONG_WORD_CHARS:
        return False
    return (one + other).isalpha() and _are_near(one, other, _SAME_WORD)


def _are_near(one: str, other: str, share: float) -> bool:
    """Whether so large a part of two short texts is the same."""
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    return matcher.real_quick_ratio() >= share and matcher.quick_ratio() >= share and matcher.ratio() >= share


def _is_command_corrected(old: str, new: str) -> bool:
    """Whether a command line was put right: one word of it, its program, or options that were missing."""
    before, after = old.split(), new.split()
    if len(after) > len(before):
        added = after[len(before) :]
        return after[: len(before)] == before and added[0].startswith("-") and not any(map(_ends_command, added))
    differing = [place for place, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]]
    if len(before) != len(after) or len(differing) != 1:
        return False
    one, other = before[differing[0]], after[differing[0]]
    return (differing[0] == 0 and len(before) > 1) or _is_like(one, other)


def _ends_command(word: str) -> bool:
    """Whether what follows in the command line is another command."""
    return word in ("|", "||", "|&", "&", "&&") or word.endswith(";")


def _canonical(arguments: Any) -> str:
    return json.dumps(arguments, sort_keys=True, ensure_ascii=False)


def _shown(arguments: Any) -> str:
    """Arguments on one line, shortened."""
    if isinstance(arguments, Mapping):
        pieces = [f"{name}={_value(value)}" for name, value in arguments.items()]
        return summary_line(", ".join(pieces), _ARGUMENTS_LIMIT_CHARS)
    return "" if arguments is None else summary_line(_canonical(arguments), _ARGUMENTS_LIMIT_CHARS)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_value(item)}" for key, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def _error_text(message: str) -> str:
    """The words of an error, begin and end of a long one; of a JSON answer those of its ``error`` and the like."""
    text = without_wrapping(message).strip() or message.strip()
    found: list[str] = []
    if text.startswith("{"):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = {}
        for members in (document, document.get("error")):
            given = members if isinstance(members, Mapping) else {}
            found += [
                f"status {value}" if "status" in key or isinstance(value, int) else value
                for key in _ERROR_KEYS
                if isinstance(value := given.get(key), str | int) and not isinstance(value, bool)
            ]
    text = ": ".join(found) or text
    half = _READ_LIMIT_CHARS // 2
    return text if len(text) <= _READ_LIMIT_CHARS else f"{text[:half]}\n{text[-half:]}"


def _first_words(text: str) -> str:
    """The first line that says something, without what differs from call to call."""
    for line in text.splitlines():
        words = _pattern("prefix").sub("", _pattern("variable").sub(" ", line)).split()
        flat = " ".join(word for word in words if any(char.isalpha() for char in word)).strip(" .,:;，。：；!！-")
        if flat:
            short = " ".join(flat.split()[:6])
            limit = _ERROR_TYPE_LIMIT_CHARS if short.isascii() else _ERROR_TYPE_LIMIT_CHARS // 3
            return summary_line(short.casefold(), limit).rstrip("…")
    return ""


def _learned(growing: Growing) -> Learned:
    """Memories of the calls that failed."""
    calls = growing.once(growth_of).calls
    return lessons(calls, growing.context.registry, growing.existing, growing.language)


FEATURE = Feature(learner=_learned)
