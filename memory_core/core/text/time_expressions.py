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
from calendar import monthrange
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from memory_core.core.text.normalization import simplified

Days = tuple[date, date]

SPRING, SUMMER, AUTUMN, WINTER = range(4)
_DAY = timedelta(days=1)
_SATURDAY = 5


def month_days(year: int, month: int, months: int = 1) -> Days:
    """``months`` whole months from the given one on."""
    last_year, last_month = month_step(year, month, months - 1)
    return date(year, month, 1), date(last_year, last_month, monthrange(last_year, last_month)[1])


def month_step(year: int, month: int, months: int) -> tuple[int, int]:
    """Year and month that lie ``months`` later, or earlier."""
    years, index = divmod(year * 12 + month - 1 + months, 12)
    if not 1 <= years <= date.max.year:
        raise OverflowError(f"year {years} is out of range")
    return years, index + 1


def year_days(year: int) -> Days:
    """A whole year."""
    return date(year, 1, 1), date(year, 12, 31)


def season_days(year: int, season: int) -> Days:
    """Three months; the winter of a year begins in its December."""
    return month_days(year, 3 + 3 * season, 3)


def last_season(today: date, season: int) -> Days:
    """The latest one that is over."""
    return next(days for years in range(3) if (days := season_days(today.year - years, season))[1] < today)


def this_season(today: date, season: int) -> Days:
    """The one of this year; in January and February this winter is the one that began last year."""
    return season_days(today.year - (season == WINTER and today.month < 3), season)


def week_days(day: date, weeks: int = 0) -> Days:
    """Monday to Sunday around ``day``, or ``weeks`` later."""
    monday = day - day.weekday() * _DAY + timedelta(weeks=weeks)
    return monday, monday + 6 * _DAY


def weekend_days(day: date, weeks: int = 0) -> Days:
    """Saturday and Sunday of the week around ``day``, or of ``weeks`` later."""
    monday, sunday = week_days(day, weeks)
    return monday + _SATURDAY * _DAY, sunday


def weekday_before(day: date, weekday: int) -> date:
    """The latest such day strictly before ``day``; Monday is 0."""
    return day - ((day.weekday() - weekday - 1) % 7 + 1) * _DAY


def weekend_before(day: date) -> Days:
    """The latest weekend that is over before ``day``."""
    sunday = weekday_before(day, _SATURDAY + 1)
    return sunday - _DAY, sunday


def around(day: date, reach_days: int) -> Days:
    """The day and so many on each side."""
    return day - reach_days * _DAY, day + reach_days * _DAY


def latest_month(today: date, month: int) -> Days:
    """The latest such month that has begun."""
    return month_days(today.year - (month > today.month), month)


def latest_day(today: date, month: int, day: int) -> Days:
    """The latest such date that is not in the future; 29 February may lie up to eight years back."""
    for year in range(today.year, today.year - 9, -1):
        if day <= monthrange(year, month)[1] and date(year, month, day) <= today:
            return date(year, month, day), date(year, month, day)
    raise ValueError(f"no month {month} has a day {day}")


def ago(today: date, unit: str, count: int) -> Days:
    """What "``count`` units ago" means: a day; the days around one, for weeks; a whole month or year."""
    if unit == "day":
        return around(today - count * _DAY, 0)
    if unit == "week":
        return around(today - timedelta(weeks=count), 3)
    if unit == "month":
        return month_days(*month_step(today.year, today.month, -count))
    return year_days(today.year - count)


def past(today: date, unit: str, count: int) -> Days:
    """The last so many units up to today."""
    return today - count * {"day": 1, "week": 7, "month": 31, "year": 366}[unit] * _DAY, today


def some_ago(today: date, unit: str) -> Days:
    """What "a few units ago" may mean: two to seven of them."""
    return ago(today, unit, 7)[0], ago(today, unit, 2)[1]


#: The ways to read an expression, none if it is no time after all; and whether they depend on the present day.
Reading = tuple[tuple[Days, ...], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern and its meaning.

    Attributes:
        cues: Of these one stands in every text that the pattern matches, in lower case: a quick way past most texts.
        pattern: The words.
        resolve: From a match and today's date to its reading; raises ValueError or OverflowError for no such day.
    """

    cues: tuple[str, ...]
    pattern: re.Pattern[str]
    resolve: Callable[[re.Match[str], date], Reading]


_DIGITS = {
    digit: value
    for value, digits in enumerate(("零〇○", "一", "二两", "三", "四", "五", "六", "七", "八", "九"))
    for digit in digits
}
_YEARS_BACK = {"大前年": -3, "前年": -2, "去年": -1, "今年": 0, "本年": 0, "明年": 1, "后年": 2}
_DAYS_BACK = {"大前": -3, "前": -2, "昨": -1, "今": 0, "明": 1, "后": 2, "大后": 3}
_STEPS = {"上上": -2, "上": -1, "这": 0, "本": 0, "当": 0, "下": 1, "下下": 2}
_CHINESE_SEASONS = {"春": SPRING, "夏": SUMMER, "秋": AUTUMN, "冬": WINTER}
#: First month and number of months.
_PARTS_OF_YEAR = {
    "年初": (1, 2),
    "年底": (11, 2),
    "年末": (11, 2),
    "上半年": (1, 6),
    "下半年": (7, 6),
    "暑假": (7, 2),
    "寒假": (1, 2),
}
_UNITS = {"天": "day", "日": "day", "周": "week", "星期": "week", "礼拜": "week", "月": "month", "年": "year"}
_WEEKDAYS = {**{mark: day for day, mark in enumerate("一二三四五六日")}, "天": 6, "七": 6} | {
    str(day + 1): day for day in range(7)
}


def number_of(text: str) -> int:
    """The value of a numeral below one hundred, or of a row of digits: 七, 十, 二十三, 廿五, 二〇二三, 12.

    Raises:
        ValueError: If it is none.
    """
    if text.isascii():
        return int(text)
    text = text.replace("廿", "二十").replace("卅", "三十")
    tens, ten, ones = text.partition("十")
    if not ten:
        return int("".join(_digit(character) for character in text))
    if len(tens) > 1 or len(ones) > 1:
        raise ValueError(text)
    return 10 * int(_digit(tens) if tens else 1) + int(_digit(ones) if ones else 0)


def _digit(character: str) -> str:
    if character not in _DIGITS:
        raise ValueError(character)
    return str(_DIGITS[character])


def _year(text: str, today: date) -> tuple[int, bool]:
    """The year, and whether it was counted from today."""
    if text in _YEARS_BACK:
        return today.year + _YEARS_BACK[text], True
    year = number_of(text.removesuffix("年").strip())
    return (2000 + year if year < 100 else year), False


def _date(match: re.Match[str], today: date) -> Reading:
    """2023年5月7日, 去年5月, 五月七号, 上个月5号."""
    day = match["day"] and number_of(match["day"])
    step = match["step"]
    if step is not None:
        year, month = month_step(today.year, today.month, _STEPS[step])
        relative = True
    else:
        month = number_of(match["month"])
        if not 1 <= month <= 12:
            raise ValueError(match["month"])
        if match["year"] is None:
            return (latest_day(today, month, day) if day else latest_month(today, month),), True
        year, relative = _year(match["year"], today)
    return (around(date(year, month, day), 0) if day else month_days(year, month),), relative


def _part_of_year(match: re.Match[str], today: date) -> Reading:
    """2022年, 去年夏天, 今年上半年, 去年年底."""
    year, relative = _year(match["year"], today)
    if match["season"]:
        return (season_days(year, _CHINESE_SEASONS[match["season"]]),), relative
    if match["part"]:
        part = match["part"] if match["part"] in _PARTS_OF_YEAR else f"年{match['part']}"
        first, months = _PARTS_OF_YEAR[part]
        return (month_days(year, first, months),), relative
    return (year_days(year),), relative


def _chinese_season(match: re.Match[str], today: date) -> Reading:
    """上个夏天, 这个冬天."""
    season = _CHINESE_SEASONS[match["season"]]
    which = last_season if match["step"] == "上" else this_season
    return (which(today, season),), True


def _week(match: re.Match[str], today: date) -> Reading:
    """上周三, 本周, 下个星期天, 上周末, 周三, 礼拜天."""
    step, mark = match["step"], match["mark"]
    if step is None:
        if mark is None:
            return (), True
        if mark == "末":
            return (weekend_days(today) if today.weekday() >= 5 else weekend_before(today),), True
        day = _WEEKDAYS[mark]
        return (around(today if today.weekday() == day else weekday_before(today, day), 0),), True
    weeks = _STEPS[step]
    if mark is None:
        return (week_days(today, weeks),), True
    if mark == "末":
        return (weekend_days(today, weeks),), True
    return (around(week_days(today, weeks)[0] + timedelta(days=_WEEKDAYS[mark]), 0),), True


def _day(match: re.Match[str], today: date) -> Reading:
    """今天, 昨晚, 大前天."""
    return (around(today + timedelta(days=_DAYS_BACK[match["which"]]), 0),), True


def _chinese_ago(match: re.Match[str], today: date) -> Reading:
    """三天前, 两周前, 半年前, 几个月前, 三小时前."""
    count, unit = match["count"], match["unit"]
    if unit in ("小时", "分钟"):
        return (around(today, 0),), True
    if count == "半":
        if unit == "天":
            return (around(today, 0),), True
        return (ago(today, "month", 6) if unit == "年" else ago(today, "week", 2),), True
    if count in ("几", "数", "好几"):
        return (some_ago(today, _UNITS[unit]),), True
    return (ago(today, _UNITS[unit], number_of(count)),), True


def _chinese_past(match: re.Match[str], today: date) -> Reading:
    """最近三天, 过去两个月, 这几天, 前几天."""
    count, unit = match["count"], _UNITS[match["unit"]]
    if count == "半":
        return (past(today, "week" if unit == "month" else "month", 2 if unit == "month" else 6),), True
    return (past(today, unit, 7 if count in ("几", "好几") else number_of(count)),), True


_NUMERAL = "零〇○一二两三四五六七八九十廿卅"
_FREE = rf"(?<![\d.{_NUMERAL}百千万第每])"
_NAMED_YEAR = "大前年|前年|去年|今年|本年|明年|后年"
_WRITTEN_YEAR = r"(?:19|20)\d\d\s?年|2100\s?年|[一二][零〇○九一][零〇○一二三四五六七八九]{2}年"
_COUNT = rf"(?P<count>\d{{1,3}}|[{_NUMERAL}]{{1,3}}|半|好几|几|数)"
_CHINESE_UNIT = "个?(?P<unit>天|日|周|星期|礼拜|月|年|小时|分钟)"

CHINESE_RULES = (
    Rule(
        ("月",),
        re.compile(
            rf"{_FREE}(?:(?:(?P<year>{_NAMED_YEAR}|{_WRITTEN_YEAR}|\d\d\s?年)的?\s?)?(?P<month>\d{{1,2}}|[{_NUMERAL}]{{1,3}})\s?月份?"
            rf"|(?<!以)(?P<step>上上|上|这|本|当|下)个?月)"
            rf"(?!天|龄|[一两三几]次)(?:的?\s?(?P<day>\d{{1,2}}|[{_NUMERAL}]{{1,3}})\s?[日号](?!线|楼|院|机))?"
        ),
        _date,
    ),
    Rule(
        ("年",),
        re.compile(
            rf"{_FREE}(?P<year>{_NAMED_YEAR}|{_WRITTEN_YEAR})(?:的?(?:(?P<season>[春夏秋冬])[天季]"
            r"|(?P<part>年?[初底末]|[上下]半年|暑假|寒假)))?"
        ),
        _part_of_year,
    ),
    Rule(("天", "季"), re.compile(r"(?P<step>上|这)一?个?(?P<season>[春夏秋冬])[天季]"), _chinese_season),
    Rule(
        ("周", "星期", "礼拜"),
        re.compile(
            rf"(?<![\d{_NUMERAL}半几每以])(?:(?P<step>上上|上|这|本|下下|下)一?个?)?(?:周|星期|礼拜)"
            rf"(?:(?P<mark>[一二三四五六七日天末1-7])(?![次个年月周期{_NUMERAL}\d]))?(?!围|期|边|到|年|转|报|刊)"
        ),
        _week,
    ),
    Rule(
        ("今", "昨", "前", "明", "后"),
        re.compile(
            r"(?<![以从之])(?P<which>大前|大后|前|昨|今|明|后)(?:天(?!气(?!温)|性|天|的努力)|日|晚(?!饭|上好|年)|夜|早|晨|儿)"
        ),
        _day,
    ),
    Rule(("前",), re.compile(rf"{_FREE}{_COUNT}{_CHINESE_UNIT}(?:以|之)?前(?!端|面|后|台)"), _chinese_ago),
    Rule(
        ("近", "过去", "前", "这"),
        re.compile(rf"(?:最近|近|过去|前|这)的?(?:这)?{_COUNT}个?(?P<unit>天|日|周|星期|礼拜|月|年)"),
        _chinese_past,
    ),
)


_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan",
            "february feb",
            "march mar",
            "april apr",
            "may",
            "june jun",
            "july jul",
            "august aug",
            "september sept sep",
            "october oct",
            "november nov",
            "december dec",
        ),
        1,
    )
    for name in names.split()
}
WEEKDAYS = {
    name: number
    for number, name in enumerate(("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"))
}
_SEASONS = {
    "spring": SPRING,
    "summer": SUMMER,
    "autumn": AUTUMN,
    "fall": AUTUMN,
    "winter": WINTER,
}
_COUNTS = {
    word: number
    for number, words in enumerate(
        (
            "",
            "a an one",
            "two couple",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
        )
    )
    for word in words.split()
}
_FIXED_DAYS = {"the day before yesterday": -2, "yesterday": -1, "last night": -1, "tomorrow": 1}
#: Months that are other words, too; and the words after which they are.
_VERBS = frozenset({"may", "march"})
_SUBJECTS = frozenset(
    {
        "i",
        "you",
        "we",
        "they",
        "he",
        "she",
        "it",
        "that",
        "which",
        "who",
        "what",
        "this",
        "these",
        "those",
        "there",
        "to",
    }
)
_PREPOSITIONS = frozenset({"on", "since", "until", "till", "before", "after", "around", "by", "from", "of", "for"})
#: "This may be" is no month, "this may when we met" is; "in 2000 lines" is no year.
_AFTER_MODAL = re.compile(r"\s+[a-z]", re.ASCII)
_AFTER_WHEN = re.compile(r"\s+(?:i|we|you|he|she|they|when|where|while|and|at|with|in|on|did|do|was|were|is)\b", re.I)
_UNIT = re.compile(
    r"\s?(?:%|[kmgt]i?b\b|[mμn]?s\b|px\b|rpm\b|usd\b|eur\b|rmb\b|people\b|dollars?\b|euros?\b"
    r"|(?!is\b|was\b|has\b|does\b|this\b|us\b|as\b|perhaps\b|[a-z]{1,20}ss\b)[a-z]{2,20}s\b)",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"\s*(?:$|[?.,;:!)\]}\n'\"])")


def _word_before(match: re.Match[str]) -> str:
    words = match.string[max(0, match.start() - 16) : match.start()].split()
    return words[-1].lower() if words else ""


def _month_means_month(match: re.Match[str], month: str, *, marked: bool) -> bool:
    """Whether May or March with a number beside it is the month; ``marked``: an ordinal or a year says so."""
    if month.lower() not in _VERBS:
        return True
    before = _word_before(match)
    if before in _SUBJECTS:
        return False
    return marked or before in _PREPOSITIONS or _CLAUSE_END.match(match.string, match.end()) is not None


def _named_day(match: re.Match[str], today: date) -> Reading:
    """7 May 2023, the 7th of May, May 7th, 2023, May 7."""
    name, year = match["month"], match["year"]
    marked = bool(year or match["ordinal"] or match.groupdict().get("of"))
    if not _month_means_month(match, name, marked=marked):
        return (), False
    month, day = _MONTHS[name.lower()], int(match["day"])
    if year is None:
        return (latest_day(today, month, day),), True
    return (around(date(int(year), month, day), 0),), False


def _named_month(match: re.Match[str], _today: date) -> Reading:
    """May 2023, May of 2023."""
    if not _month_means_month(match, match["month"], marked=match["month"][0].isupper()):
        return (), False
    if _UNIT.match(match.string, match.end()) and match["month"].lower() in _VERBS:
        return (), False
    return (month_days(int(match["year"]), _MONTHS[match["month"].lower()]),), False


def _lone_month(match: re.Match[str], today: date) -> Reading:
    """In May, last May, this March, next June."""
    name, which = match["month"], match["which"].lower()
    if name.islower() and name in _VERBS and which in ("this", "last", "next", "past", "during", "since", "until"):
        rest = _AFTER_MODAL.match(match.string, match.end())
        if rest is not None and _AFTER_WHEN.match(match.string, match.end()) is None:
            return (), False
    month = _MONTHS[name.lower()]
    if which == "this":
        return (month_days(today.year, month),), True
    if which == "next":
        return (month_days(today.year + (month <= today.month), month),), True
    if which in ("last", "past"):
        return (month_days(today.year - (month >= today.month), month),), True
    return (latest_month(today, month),), True


def _year_first(match: re.Match[str], _today: date) -> Reading:
    """2023-05-07, 2023/5/7, 2023.05.07, 2023-05."""
    year, month, day = int(match["year"]), int(match["month"] or match["dotted_month"]), match["day"]
    if day is None and match["dotted_day"] is None:
        return (month_days(year, month),), False
    return (around(date(year, month, int(day or match["dotted_day"])), 0),), False


def _year_last(match: re.Match[str], _today: date) -> Reading:
    """05/07/2023 both ways, 25/12/2023, 7.5.2023 day first, 10/2023."""
    first, second, year = int(match["first"]), match["second"], int(match["year"])
    if second is None:
        return (month_days(year, first),), False
    orders = [(int(second), first)] if match["mark"] == "." else [(first, int(second)), (int(second), first)]
    days = tuple(around(date(year, month, day), 0) for month, day in orders if 1 <= month <= 12)
    return days, False


def _lone_year(match: re.Match[str], _today: date) -> Reading:
    """In 2022, since 2019."""
    return (() if _UNIT.match(match.string, match.end()) else (year_days(int(match["year"])),)), False


def _season(match: re.Match[str], today: date) -> Reading:
    """Summer of 2022, last summer, this winter, in the fall."""
    season, year, which = _SEASONS[match["season"].lower()], match["year"], (match["which"] or "").lower()
    if year is not None:
        return (season_days(int(year), season),), False
    if which == "this":
        return (this_season(today, season),), True
    if which == "next":
        later = this_season(today, season)
        return (later if later[0] > today else season_days(later[0].year + 1, season),), True
    if which.startswith("in"):
        current = this_season(today, season)
        return (current if current[0] <= today else last_season(today, season),), True
    return ((last_season(today, season),), True) if which else ((), False)


def _relative_unit(match: re.Match[str], today: date) -> Reading:
    """Last week, this weekend, next year, past month, last Friday, on Friday, since Monday."""
    which, unit = match["which"].lower(), match["unit"].lower()
    step = {"last": -1, "previous": -1, "this": 0, "next": 1}.get(which)
    if unit in WEEKDAYS:
        if step is None or step < 0:
            latest = today if step is None and today.weekday() == WEEKDAYS[unit] else None
            return (around(latest or weekday_before(today, WEEKDAYS[unit]), 0),), True
        return (around(week_days(today, step)[0] + timedelta(days=WEEKDAYS[unit]), 0),), True
    if step is None:
        return (past(today, "week" if unit == "weekend" else unit, 1),), True
    if unit == "weekend":
        return (weekend_before(today) if step < 0 else weekend_days(today, step),), True
    if unit == "week":
        return (week_days(today, step),), True
    return (ago(today, unit, -step),), True


def _ago(match: re.Match[str], today: date) -> Reading:
    """Three days ago, a couple of weeks ago, a few months ago, two hours ago."""
    count, unit = match["count"].lower(), match["unit"].lower()
    if unit in ("hour", "minute"):
        return (around(today, 0),), True
    number = _COUNTS.get(count.split()[0]) if not count.isdigit() else int(count)
    if "few" in count or count == "several" or number is None:
        return (some_ago(today, unit),), True
    return (ago(today, unit, 2 if "couple" in count else number),), True


def _past(match: re.Match[str], today: date) -> Reading:
    """The last three days, the past two weeks."""
    count = match["count"].lower()
    number = int(count) if count.isdigit() else 7 if count in ("few", "several") else _COUNTS[count.split()[0]]
    return (past(today, match["unit"].lower(), number),), True


def _fixed_day(match: re.Match[str], today: date) -> Reading:
    """yesterday, last night, today, the other day."""
    said = " ".join(match[0].lower().split())
    if said == "the other day":
        return ((today - timedelta(days=7), today - timedelta(days=1)),), True
    return (around(today + timedelta(days=_FIXED_DAYS.get(said, 0)), 0),), True


def _english(pattern: str) -> re.Pattern[str]:
    names = {
        "MONTH": r"(?P<month>" + "|".join(_MONTHS) + r")(?![a-z])\.?",
        "YEAR": r"(?P<year>(?:19|20)\d\d|2100)(?![\d%s]|[.,:/-]\d)",
        "DAY": r"(?P<day>\d{1,2})(?P<ordinal>st|nd|rd|th)?",
        "WEEKDAY": "|".join(WEEKDAYS),
        "COUNT": r"(?P<count>\d{1,3}|an?\s{1,3}(?:couple\s{1,3}of|few)|(?:couple\s{1,3}of)|few|several|"
        + "|".join(_COUNTS)
        + ")",
        "_": r"\s{1,3}",
    }
    for name, part in names.items():
        pattern = pattern.replace(f"<{name}>", part)
    return re.compile(pattern, re.ASCII | re.IGNORECASE)


_MONTH_CUES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_YEAR_CUES = ("19", "20", "2100")
_WHICH_CUES = ("last", "past", "previous", "this", "next")

ENGLISH_RULES = (
    Rule(
        _MONTH_CUES,
        _english(r"(?<![\w.,/$€£:-])<DAY>(?P<of>\s{1,3}of)?<_><MONTH>(?:,?\s{1,3}<YEAR>)?(?!\w)"),
        _named_day,
    ),
    Rule(
        _MONTH_CUES,
        _english(r"(?<![\w-])<MONTH>\s{1,3}(?:the\s{1,3})?<DAY>(?![\w:%]|[.,/-]\d)(?:,?\s{1,3}<YEAR>)?"),
        _named_day,
    ),
    Rule(_MONTH_CUES, _english(r"(?<![\w-])<MONTH>(?:,|\s{1,3}of)?\s{1,3}<YEAR>"), _named_month),
    Rule(
        _MONTH_CUES,
        _english(
            r"\b(?P<which>in|during|since|until|early|mid|late|this|last|past|next|month\sof)"
            r"(?:-|\s{1,3})(?:early|mid|late)?[-\s]{0,3}<MONTH>(?![\w'’-])(?!\s{1,3}\d)"
        ),
        _lone_month,
    ),
    Rule(
        _YEAR_CUES,
        _english(
            r"(?<![\d$€£])(?<!\d[-./])(?P<year>(?:19|20)\d\d|2100)(?:[-/](?P<month>\d{1,2})"
            r"(?:[-/](?P<day>\d{1,2}))?|\.(?P<dotted_month>\d\d)\.(?P<dotted_day>\d\d))(?!\d|[-/.]\d)"
        ),
        _year_first,
    ),
    Rule(
        _YEAR_CUES,
        _english(
            r"(?<![\d$€£])(?<!\d[-./])(?P<first>\d{1,2})(?:(?P<mark>[-/.])(?P<second>\d{1,2})(?P=mark)|/)"
            r"(?P<year>(?:19|20)\d\d|2100)(?!\d|[-/.]\d)"
        ),
        _year_last,
    ),
    Rule(
        _YEAR_CUES,
        _english(
            r"\b(?:in|during|since|until|throughout|early|mid|late|year|of|from|before|after)"
            r"(?:-|\s{1,3})(?:the\s{1,3}year\s{1,3})?<YEAR>(?!\w)"
        ),
        _lone_year,
    ),
    Rule(
        tuple(_SEASONS),
        _english(
            r"\b(?:(?P<which>last|this|next|past|previous|in\s{1,3}the)\s{1,3})?"
            r"(?P<season>spring|summer|autumn|fall|winter)\b(?:(?:\s{1,3}of|,)?\s{1,3}<YEAR>)?"
        ),
        _season,
    ),
    Rule(
        _WHICH_CUES,
        _english(r"\b(?P<which>last|previous|this|next|past)<_>(?P<unit>weekend|week|month|year|<WEEKDAY>)\b"),
        _relative_unit,
    ),
    Rule(
        tuple(WEEKDAYS),
        _english(r"\b(?P<which>on|since|until)<_>(?P<unit><WEEKDAY>)\b(?!\s{1,3}(?:before|after|following|of)\b)"),
        _relative_unit,
    ),
    Rule(("ago",), _english(r"\b<COUNT><_>(?P<unit>day|week|month|year|hour|minute)s?<_>ago\b"), _ago),
    Rule(
        ("last", "past", "previous"),
        _english(r"\b(?:last|past|previous)<_><COUNT><_>(?P<unit>day|week|month|year)s?\b"),
        _past,
    ),
    Rule(
        ("day", "night", "to", "this"),
        _english(
            r"\b(?:the\sday\sbefore\syesterday|the\sother\sday|yesterday|last\s{1,3}night|today|tonight|tomorrow"
            r"|this\s{1,3}(?:morning|afternoon|evening))\b"
        ),
        _fixed_day,
    ),
)


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
        return {"week": week_days(day), "weekend": weekend_days(day)}.get(unit)
    later = side in ("after", "following")
    if unit in WEEKDAYS:
        found = weekday_before(day, WEEKDAYS[unit])
        return around(found + timedelta(weeks=1 + (found + timedelta(weeks=1) == day)) if later else found, 0)
    if unit == "weekend":
        first = weekend_before(day)[0] + timedelta(weeks=1)
        start = first if first > day else first + timedelta(weeks=1)
        return (start, start + timedelta(days=1)) if later else weekend_before(day)
    reach = timedelta(days={"day": 1, "night": 1, "week": 7, "month": 31}[unit])
    step = timedelta(days=1)
    return (day + step, day + reach) if later else (day - reach, day - step)
