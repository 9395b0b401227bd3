"""Dates that a question names, absolute and relative, in English and Chinese, as spans of days.

The table beside this module holds the words and patterns of both languages, each with what it means, and what only
looks like a time ("may I", "march on", 五月天, versions, prices). Owned here: what each meaning is in days, and the
calendar that it takes. A date without a year is the latest one that is not in the future; 05/07/2023 is read both
ways. Pure: the present moment is passed in; never raises on any text; time is linear in its length.

Our own because no library does both languages in the time: dateparser 1.5 takes 3 to 32 ms a question and 0.5 s to
import, reads "May I ask" and "we march on" as dates and 上周三, 五月七号, 三天前 wrongly or not at all; parsedatetime
2.6 reads "May I", 555-1234 and no Chinese; ms-recognizers-text 1.0 cannot be imported as published.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timedelta
from functools import cache, partial

from memory_core.core.frozen import frozen
from memory_core.core.text.normalization import simplified
from memory_core.core.text.word_table import cued_patterns, word_pattern, word_set, word_table

Days = tuple[date, date]
Reading = tuple[Days, ...]

_pattern, _words = partial(word_pattern, __file__), partial(word_set, __file__)
#: The number of the first line of a list in the table; of others 0.
_FIRST = {"months": 1, "numbers": 1, "ordinals": -1, "steps": -2, "years": -3, "days": -3}
_FIRST_DAY, _LAST_DAY = date(1900, 1, 1), date(2100, 12, 31)
_DAY = timedelta(days=1)
_SATURDAY, _SUNDAY = 5, 6
_WINTER = 3
_SEVERAL = 7
_NEAR_CHARS = 40
#: Shorter times have no parts that are named.
_LEAST_PARTED = 27
_WIDE_DIGITS = {0xFF10 + digit: str(digit) for digit in range(10)} | {0xFF0F: "/", 0xFF0D: "-", 0xFF0E: "."}


@frozen
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
    found = list(_matches(read, today, "english"))
    if not read.isascii():
        found += _matches(read, today, "chinese")
    found.sort(key=lambda match: (match.start, -match.end))
    spans: list[TimeSpan] = []
    reached = 0
    for match in found:
        if match.start >= reached:
            reached = match.end
            said = text[match.start : match.end].strip(" .,")
            spans += (TimeSpan(start, end, said, match.relative) for start, end in dict.fromkeys(match.days))
    return tuple(spans)


def month_days(year: int, month: int, months: int = 1) -> Days:
    """``months`` whole months from the given one on."""
    last_year, last_month = _month_step(year, month, months - 1)
    return date(year, month, 1), date(last_year, last_month, monthrange(last_year, last_month)[1])


def _number_of(text: str) -> int:
    """The value of a numeral below one hundred, or of a row of digits: 七, 十, 二十三, 廿五, 二〇二三, 12.

    Raises:
        ValueError: If it is none.
    """
    if text.isascii():
        return int(text)
    digits = _values("digits")
    tens, ten, ones = text.replace("廿", "二十").replace("卅", "三十").partition("十")
    if not set(tens + ones) <= digits.keys() or (ten and max(len(tens), len(ones)) > 1):
        raise ValueError(text)
    if not ten:
        return int("".join(str(digits[character]) for character in tens))
    return 10 * digits.get(tens, 1) + digits.get(ones, 0)


@frozen
class _Found:
    start: int
    end: int
    days: tuple[Days, ...]
    relative: bool


def _matches(text: str, today: date, language: str) -> Iterator[_Found]:
    lowered = text.lower()
    for pattern in cued_patterns(__file__, language, re.ASCII | re.IGNORECASE if language == "english" else 0):
        if not pattern.cued(lowered):
            continue
        for match in pattern.compiled.finditer(text):
            try:
                days = _MEANINGS[pattern.name](match, today)
                days = tuple((first, last) for first, last in days if first >= _FIRST_DAY and last <= _LAST_DAY)
                year = match.groupdict().get("year")
                relative = year is None or year in _values("years")
                if days:
                    yield _part(text, _near(text, _Found(match.start(), match.end(), days, relative)))
            except (ValueError, OverflowError):  # no such day in the calendar
                continue


def _near(text: str, found: _Found) -> _Found:
    """With "the weekend before" and the like in front of a day, what that means."""
    day, last = found.days[0]
    before = max(0, found.start - _NEAR_CHARS)
    match = _pattern("near").search(text[before : found.start]) if len(found.days) == 1 and day == last else None
    if match is None:
        return found
    days = _beside(match["unit"].lower(), match["side"].lower(), day)
    return found if days is None else _Found(before + match.start(), found.end, (days,), found.relative)


def _part(text: str, found: _Found) -> _Found:
    """With "the first week of" in front of a month or year, or 第一周, 月底 behind it, that part of it."""
    (first, last), *others = found.days
    if others or (last - first).days < _LEAST_PARTED:
        return found
    before = max(0, found.start - _NEAR_CHARS)
    ahead = next(
        (match for match in _pattern("part").finditer(text[before : found.end]) if before + match.end() >= found.start),
        None,
    )
    behind = _pattern("part_behind").match(text, found.end)
    match = ahead or behind
    if match is None:
        return found
    which = _values("ordinals")[(match["which"] or match["third"]).lower()]
    unit = _units().get((match["unit"] or "").lower(), "")
    days = _part_days(first, last, which, unit)
    start, end = (before + ahead.start(), found.end) if ahead else (found.start, match.end())
    return _Found(start, end, (days,), found.relative)


def _part_days(first: date, last: date, which: int, unit: str) -> Days:
    """The numbered week, weekend, month or day of a period, -1 the last; without a unit, that third of it."""
    if unit == "month":
        start = first if which > 0 else date(last.year, last.month, 1)
        return month_days(*_month_step(start.year, start.month, which - 1 if which > 0 else 0))
    if unit == "weekend":
        saturday = _weekday_after(first - _DAY, _SATURDAY) if which > 0 else _weekday_before(last + _DAY, _SATURDAY)
        saturday += max(0, which - 1) * 7 * _DAY
        return saturday, saturday + _DAY
    if unit:
        length = (1 if unit == "day" else 7) * _DAY
        start = first + (which - 1) * length if which > 0 else last + _DAY - length
        return start, start + length - _DAY
    third = (last - first + _DAY) / 3
    at = {1: 0, 2: 1}.get(which, 2)
    return first + at * third, last if at == 2 else first + (at + 1) * third - _DAY


def _beside(unit: str, side: str, day: date) -> Days | None:
    """The day or days of a unit before, after or around a day; None where that means nothing."""
    if side == "of":
        return _unit_days(day, unit) if unit in ("week", "weekend") else None
    later = side in ("after", "following")
    if unit == "weekend":
        saturday = _weekday_after(day, _SATURDAY) if later else _weekday_before(day, _SUNDAY) - _DAY
        return saturday, saturday + _DAY
    if unit in _values("weekdays"):
        weekday = _values("weekdays")[unit]
        return _one(_weekday_after(day, weekday) if later else _weekday_before(day, weekday))
    reach = {"day": 1, "night": 1, "week": 7, "month": 31}[unit] * _DAY
    return (day + _DAY, day + reach) if later else (day - reach, day - _DAY)


# The table.


@cache
def _values(name: str) -> Mapping[str, int]:
    """The words of one kind, each with its number: lines count from the first one's."""
    lines = enumerate(word_table(__file__)[name], _FIRST.get(name, 0))
    return {word: value for value, said in lines for word in said.split("|")}


@cache
def _units() -> Mapping[str, str]:
    return {word: unit for unit, said in word_table(__file__)["units"].items() for word in said.split("|")}


# The meanings: the ways to read a match, none if it is no time after all.


def _date(match: re.Match[str], today: date) -> Reading:
    """7 May 2023, the 7th of May, May 2023, 2023-05-07, 2023.05.07, 10/2022, 2023年5月7日, 去年5月, 上个月5号."""
    said = match.groupdict()
    day = None if said.get("day") is None else _number_of(said["day"])
    if said.get("step"):
        year, month = _month_step(today.year, today.month, _values("steps")[said["step"]])
        return (_day_or_month(year, month, day),)
    if said["month"].lower() in _words("verbs") and not _means_month(match):
        return ()
    month = _values("months").get(said["month"].lower()) or _number_of(said["month"])
    if said["year"] is not None:
        return (_day_or_month(_year_of(said["year"], today), month, day),)
    return (month_days(today.year - (month > today.month), month) if day is None else _latest(today, month, day),)


def _means_month(match: re.Match[str]) -> bool:
    """Whether May or March with a number beside it is the month: an ordinal or a year beside a day says so."""
    said = match.groupdict()
    before = match.string[max(0, match.start() - 16) : match.start()].lower().split()[-1:]
    if _words("subjects").intersection(before):
        return False
    if "day" in said:
        marked = said["year"] or said["ordinal"] or said.get("of")
    elif _pattern("unit").match(match.string, match.end()):
        return False
    else:
        marked = said["month"][0].isupper()
    by_words = _words("prepositions").intersection(before)
    return bool(marked or by_words or _pattern("clause_end").match(match.string, match.end()))


def _date_in_either_order(match: re.Match[str], _today: date) -> Reading:
    """05/07/2023 both ways, 25/12/2023, 7.5.2023 day first."""
    first, second, year = int(match["first"]), int(match["second"]), int(match["year"])
    orders = [(second, first)] if match["mark"] == "." else [(first, second), (second, first)]
    return tuple(_day_or_month(year, month, day) for month, day in orders if 1 <= month <= 12)


def _lone_month(match: re.Match[str], today: date) -> Reading:
    """In May, last May, this March, next June, month of May."""
    name, word = match["month"], match["step"].lower()
    may_be_verb = name.islower() and name in _words("verbs") and word in _words("before_modal")
    if may_be_verb and _pattern("after_modal").match(match.string, match.end()):
        return ()
    month, step = _values("months")[name.lower()], _values("steps").get(word)
    if step is None:
        years = -(month > today.month)
    else:
        years = {-1: -(month >= today.month), 0: 0, 1: month <= today.month}[step]
    return (month_days(today.year + years, month),)


def _year(match: re.Match[str], today: date) -> Reading:
    """In 2022, since 2019, 2022年, 去年夏天, 今年上半年, 去年年底."""
    year, said = _year_of(match["year"], today), match.groupdict()
    if said.get("season"):
        return (_season_days(year, _values("seasons")[said["season"]]),)
    if said.get("part"):
        parts = word_table(__file__)["parts_of_year"]
        first, months = parts.get(said["part"]) or parts[f"年{said['part']}"]
        return (month_days(year, first, months),)
    return (_unit_days(date(year, 1, 1), "year"),)


def _season(match: re.Match[str], today: date) -> Reading:
    """Summer of 2022, last summer, this winter, in the fall, 上个夏天, 这个冬天."""
    season, word = _values("seasons")[match["season"].lower()], (match["step"] or "").lower()
    if match.groupdict().get("year"):
        return (_season_days(int(match["year"]), season),)
    # In January and February this winter is the one that began last year.
    year = today.year - (season == _WINTER and today.month < 3)
    begun = _season_days(year, season)[0] <= today
    step = _values("steps").get(word)
    if step == 0 or (step == 1 and not begun) or (word.startswith("in") and begun):
        return (_season_days(year, season),)
    if step == 1:
        return (_season_days(year + 1, season),)
    over = next(days for years in range(3) if (days := _season_days(today.year - years, season))[1] < today)
    return (over,) if word else ()


def _unit(match: re.Match[str], today: date) -> Reading:
    """Last week, this weekend, next year, past month, last Friday, on Friday; 上周三, 本周, 上周末, 周三, 礼拜天."""
    word, said = (match["step"] or "").lower(), (match["unit"] or "week").lower()
    unit, weekday = _units().get(said, ""), _values("weekdays").get(said, _values("chinese_weekdays").get(said))
    step = None if word == "past" else _values("steps").get(word)
    latest = word in ("last", "previous")  # the latest Friday there was; 上周五 is that of last week
    if weekday is not None:
        if step is None and today.weekday() == weekday:
            return (_one(today),)
        if step is None or latest:
            return (_one(_weekday_before(today, weekday)),)
        return (_one(_unit_days(today, "week", step)[0] + weekday * _DAY),)
    if word == "past":
        return (_past_days(today, "week" if unit == "weekend" else unit, 1),)
    if unit == "weekend" and (latest or (step is None and today.weekday() < _SATURDAY)):
        sunday = _weekday_before(today, _SUNDAY)
        return ((sunday - _DAY, sunday),)
    if step is None:
        return (_unit_days(today, unit),) if unit == "weekend" else ()
    return (_unit_days(today, unit, step),)


def _day(match: re.Match[str], today: date) -> Reading:
    """yesterday, last night, today, the other day, 今天, 昨晚, 大前天."""
    said = " ".join(match["day"].lower().split())
    if said == "the other day":
        return ((today - 7 * _DAY, today - _DAY),)
    return (_one(today + _values("days").get(said, 0) * _DAY),)


def _ago(match: re.Match[str], today: date) -> Reading:
    """Three days ago, a couple of weeks ago, a few months ago, two hours ago, 三天前, 半年前, 几个月前."""
    unit, count = _counted(match)
    if unit == "hour":
        return (_one(today),)
    if count is None:  # a few: two to seven of them
        return ((_ago_days(today, unit, _SEVERAL)[0], _ago_days(today, unit, 2)[1]),)
    return (_ago_days(today, unit, count),)


def _past(match: re.Match[str], today: date) -> Reading:
    """The last three days, the past two weeks, 最近三天, 过去半年, 这几天."""
    unit, count = _counted(match)
    return (_past_days(today, unit, _SEVERAL if count is None else count),)


_MEANINGS: Mapping[str, Callable[[re.Match[str], date], Reading]] = {
    "date": _date,
    "date in either order": _date_in_either_order,
    "month": _lone_month,
    "year": _year,
    "season": _season,
    "unit": _unit,
    "day": _day,
    "ago": _ago,
    "past": _past,
}


def _counted(match: re.Match[str]) -> tuple[str, int | None]:
    """A unit and how many of it, None for a few."""
    unit = _units()[match["unit"].lower()]
    said = match["count"].lower()
    word = said.removesuffix("of").split()[-1]
    if word == "半" or said.startswith("half"):
        halves = {"day": ("day", 0), "hour": ("hour", 0), "week": ("day", 3), "year": ("month", 6)}
        return halves.get(unit, ("week", 2))
    return unit, None if word in _words("some") else _values("numbers").get(word) or _number_of(word)


def _year_of(text: str, today: date) -> int:
    """2023, 2023年, 二〇二三年, 23年, 去年."""
    if text in _values("years"):
        return today.year + _values("years")[text]
    year = _number_of(text.removesuffix("年").strip())
    return 2000 + year if year < 100 else year


# The calendar.


def _one(day: date) -> Days:
    return day, day


def _day_or_month(year: int, month: int, day: int | None) -> Days:
    return month_days(year, month) if day is None else _one(date(year, month, day))


def _month_step(year: int, month: int, months: int) -> tuple[int, int]:
    """Year and month that lie ``months`` later, or earlier."""
    years, index = divmod(year * 12 + month - 1 + months, 12)
    if not 1 <= years <= date.max.year:
        raise OverflowError(f"year {years} is out of range")
    return years, index + 1


def _season_days(year: int, season: int) -> Days:
    """Three months, spring being 0; the winter of a year begins in its December."""
    return month_days(year, 3 + 3 * season, 3)


def _unit_days(day: date, unit: str, steps: int = 0) -> Days:
    """The whole week (Monday to Sunday), weekend, month or year around ``day``, or so many later."""
    if unit == "month":
        return month_days(*_month_step(day.year, day.month, steps))
    if unit == "year":
        return date(day.year + steps, 1, 1), date(day.year + steps, 12, 31)
    monday = day + (7 * steps - day.weekday()) * _DAY
    return monday + (unit == "weekend") * _SATURDAY * _DAY, monday + 6 * _DAY


def _weekday_before(day: date, weekday: int) -> date:
    """The latest such day strictly before ``day``; Monday is 0."""
    return day - ((day.weekday() - weekday - 1) % 7 + 1) * _DAY


def _weekday_after(day: date, weekday: int) -> date:
    """The next such day strictly after ``day``."""
    return day + ((weekday - day.weekday() - 1) % 7 + 1) * _DAY


def _latest(today: date, month: int, day: int) -> Days:
    """The latest such date that is not in the future; 29 February may lie up to eight years back."""
    for year in range(today.year, today.year - 9, -1):
        if day <= monthrange(year, month)[1] and date(year, month, day) <= today:
            return _one(date(year, month, day))
    raise ValueError(f"no month {month} has a day {day}")


def _ago_days(today: date, unit: str, count: int) -> Days:
    """What "``count`` units ago" means: a day; the days around one, for weeks; a whole month or year."""
    if unit == "day":
        return _one(today - count * _DAY)
    if unit == "week":
        return today - (7 * count + 3) * _DAY, today - (7 * count - 3) * _DAY
    return _unit_days(today, unit, -count)


def _past_days(today: date, unit: str, count: int) -> Days:
    """The last so many units up to today."""
    return today - count * {"day": 1, "week": 7, "month": 31, "year": 366}[unit] * _DAY, today
