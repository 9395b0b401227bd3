"""Dates that a question names, absolute and relative, in English and Chinese, as spans of days.

Owned here: which words mean a time, and which only look like it ("may I", "march on", 五月天, versions, prices).
A date without a year is the latest one that is not in the future; 05/07/2023 is read both ways. Pure: the present
moment is passed in; never raises on any text; time is linear in its length.

Our own because no library does both languages in the time: dateparser 1.5 takes 3 to 32 ms a question and 0.5 s to
import, reads "May I ask" and "we march on" as dates and 上周三, 五月七号, 三天前 wrongly or not at all; parsedatetime
2.6 reads "May I", 555-1234 and no Chinese; ms-recognizers-text 1.0 cannot be imported as published.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from memory_core.model import calendar_span as calendar
from memory_core.model.calendar_span import Days
from memory_core.model.chinese_time import RULES as CHINESE_RULES
from memory_core.model.english_time import RULES as ENGLISH_RULES
from memory_core.model.english_time import WEEKDAYS
from memory_core.model.han import simplified
from memory_core.model.time_rule import Rule

_FIRST_DAY, _LAST_DAY = date(1900, 1, 1), date(2100, 12, 31)

_WIDE_DIGITS = {0xFF10 + digit: str(digit) for digit in range(10)} | {0xFF0F: "/", 0xFF0D: "-", 0xFF0E: "."}
_NEAR = re.compile(
    r"\b(?:the\s{1,3})?(weekend|week|day|night|month|" + "|".join(WEEKDAYS) + r")\s{1,3}"
    r"(before|after|of|following|prior to)\s{1,3}(?:the\s{1,3})?$",
    re.ASCII | re.IGNORECASE,
)
_NEAR_CHARS = 40


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A stretch of days that a text names.

    Attributes:
        start: First day.
        end: Last day, included.
        text: The words that name it.
        relative: Whether it depends on the present day.
    """

    start: date
    end: date
    text: str
    relative: bool


@dataclass(frozen=True, slots=True)
class _Found:
    start: int
    end: int
    days: tuple[Days, ...]
    relative: bool


def time_spans(text: str, now: datetime) -> tuple[TimeSpan, ...]:
    """The times that ``text`` names, in order; of overlapping ones the earliest and longest.

    Args:
        text: A question, or any text.
        now: The present moment; its date, as it stands, is today.

    Returns:
        Spans within the years 1900 to 2100. A date that can be read two ways (05/07/2023) gives both, month first.
    """
    read = simplified(text.translate(_WIDE_DIGITS))
    if len(read) != len(text):
        read = text
    today = now.date()
    found = list(_matches(read, today, ENGLISH_RULES))
    if not read.isascii():
        found += _matches(read, today, CHINESE_RULES)
    found.sort(key=lambda match: (match.start, -match.end))
    spans: list[TimeSpan] = []
    reached = 0
    for match in found:
        if match.start >= reached:
            reached = match.end
            said = text[match.start : match.end].strip(" .,")
            spans += (TimeSpan(start, end, said, match.relative) for start, end in dict.fromkeys(match.days))
    return tuple(spans)


def _matches(text: str, today: date, rules: Iterable[Rule]) -> Iterator[_Found]:
    lowered = text.lower()
    for rule in rules:
        if not any(cue in lowered for cue in rule.cues):
            continue
        for match in rule.pattern.finditer(text):
            try:
                days, relative = rule.resolve(match, today)
                days = tuple((first, last) for first, last in days if first >= _FIRST_DAY and last <= _LAST_DAY)
                if days:
                    yield _near(text, _Found(match.start(), match.end(), days, relative))
            except (ValueError, OverflowError):  # no such day in the calendar
                continue


def _near(text: str, found: _Found) -> _Found:
    """With "the weekend before" and the like in front of a day, what that means."""
    first, last = found.days[0]
    if len(found.days) != 1 or first != last:
        return found
    before = max(0, found.start - _NEAR_CHARS)
    match = _NEAR.search(text[before : found.start])
    if match is None:
        return found
    unit, side = match[1].lower(), match[2].lower()
    days = _beside(unit, side, first)
    return found if days is None else _Found(before + match.start(), found.end, (days,), found.relative)


def _beside(unit: str, side: str, day: date) -> Days | None:
    if side == "of":
        return {"week": calendar.week_days(day), "weekend": calendar.weekend_days(day)}.get(unit)
    later = side in ("after", "following")
    if unit in WEEKDAYS:
        found = calendar.weekday_before(day, WEEKDAYS[unit])
        return calendar.around(found + timedelta(weeks=1 + (found + timedelta(weeks=1) == day)) if later else found, 0)
    if unit == "weekend":
        first = calendar.weekend_before(day)[0] + timedelta(weeks=1)
        start = first if first > day else first + timedelta(weeks=1)
        return (start, start + timedelta(days=1)) if later else calendar.weekend_before(day)
    reach = timedelta(days={"day": 1, "night": 1, "week": 7, "month": 31}[unit])
    step = timedelta(days=1)
    return (day + step, day + reach) if later else (day - reach, day - step)
