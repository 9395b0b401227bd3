"""The words for times in English, each with the days it means; ``time_expression`` matches them.

May and March are months only where something says so, a bare month or weekday only after a word such as "in" or
"last", a year only after such a word and not before what is counted. Pure.
"""

from __future__ import annotations

import re
from datetime import date, timedelta

from memory_core.model import calendar_span as calendar
from memory_core.model.time_rule import Reading, Rule

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
    "spring": calendar.SPRING,
    "summer": calendar.SUMMER,
    "autumn": calendar.AUTUMN,
    "fall": calendar.AUTUMN,
    "winter": calendar.WINTER,
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
        return (calendar.latest_day(today, month, day),), True
    return (calendar.around(date(int(year), month, day), 0),), False


def _named_month(match: re.Match[str], _today: date) -> Reading:
    """May 2023, May of 2023."""
    if not _month_means_month(match, match["month"], marked=match["month"][0].isupper()):
        return (), False
    if _UNIT.match(match.string, match.end()) and match["month"].lower() in _VERBS:
        return (), False
    return (calendar.month_days(int(match["year"]), _MONTHS[match["month"].lower()]),), False


def _lone_month(match: re.Match[str], today: date) -> Reading:
    """In May, last May, this March, next June."""
    name, which = match["month"], match["which"].lower()
    if name.islower() and name in _VERBS and which in ("this", "last", "next", "past", "during", "since", "until"):
        rest = _AFTER_MODAL.match(match.string, match.end())
        if rest is not None and _AFTER_WHEN.match(match.string, match.end()) is None:
            return (), False
    month = _MONTHS[name.lower()]
    if which == "this":
        return (calendar.month_days(today.year, month),), True
    if which == "next":
        return (calendar.month_days(today.year + (month <= today.month), month),), True
    if which in ("last", "past"):
        return (calendar.month_days(today.year - (month >= today.month), month),), True
    return (calendar.latest_month(today, month),), True


def _year_first(match: re.Match[str], _today: date) -> Reading:
    """2023-05-07, 2023/5/7, 2023.05.07, 2023-05."""
    year, month, day = int(match["year"]), int(match["month"] or match["dotted_month"]), match["day"]
    if day is None and match["dotted_day"] is None:
        return (calendar.month_days(year, month),), False
    return (calendar.around(date(year, month, int(day or match["dotted_day"])), 0),), False


def _year_last(match: re.Match[str], _today: date) -> Reading:
    """05/07/2023 both ways, 25/12/2023, 7.5.2023 day first, 10/2023."""
    first, second, year = int(match["first"]), match["second"], int(match["year"])
    if second is None:
        return (calendar.month_days(year, first),), False
    orders = [(int(second), first)] if match["mark"] == "." else [(first, int(second)), (int(second), first)]
    days = tuple(calendar.around(date(year, month, day), 0) for month, day in orders if 1 <= month <= 12)
    return days, False


def _lone_year(match: re.Match[str], _today: date) -> Reading:
    """In 2022, since 2019."""
    return (() if _UNIT.match(match.string, match.end()) else (calendar.year_days(int(match["year"])),)), False


def _season(match: re.Match[str], today: date) -> Reading:
    """Summer of 2022, last summer, this winter, in the fall."""
    season, year, which = _SEASONS[match["season"].lower()], match["year"], (match["which"] or "").lower()
    if year is not None:
        return (calendar.season_days(int(year), season),), False
    if which == "this":
        return (calendar.this_season(today, season),), True
    if which == "next":
        later = calendar.this_season(today, season)
        return (later if later[0] > today else calendar.season_days(later[0].year + 1, season),), True
    if which.startswith("in"):
        current = calendar.this_season(today, season)
        return (current if current[0] <= today else calendar.last_season(today, season),), True
    return ((calendar.last_season(today, season),), True) if which else ((), False)


def _relative_unit(match: re.Match[str], today: date) -> Reading:
    """Last week, this weekend, next year, past month, last Friday, on Friday, since Monday."""
    which, unit = match["which"].lower(), match["unit"].lower()
    step = {"last": -1, "previous": -1, "this": 0, "next": 1}.get(which)
    if unit in WEEKDAYS:
        if step is None or step < 0:
            latest = today if step is None and today.weekday() == WEEKDAYS[unit] else None
            return (calendar.around(latest or calendar.weekday_before(today, WEEKDAYS[unit]), 0),), True
        return (calendar.around(calendar.week_days(today, step)[0] + timedelta(days=WEEKDAYS[unit]), 0),), True
    if step is None:
        return (calendar.past(today, "week" if unit == "weekend" else unit, 1),), True
    if unit == "weekend":
        return (calendar.weekend_before(today) if step < 0 else calendar.weekend_days(today, step),), True
    if unit == "week":
        return (calendar.week_days(today, step),), True
    return (calendar.ago(today, unit, -step),), True


def _ago(match: re.Match[str], today: date) -> Reading:
    """Three days ago, a couple of weeks ago, a few months ago, two hours ago."""
    count, unit = match["count"].lower(), match["unit"].lower()
    if unit in ("hour", "minute"):
        return (calendar.around(today, 0),), True
    number = _COUNTS.get(count.split()[0]) if not count.isdigit() else int(count)
    if "few" in count or count == "several" or number is None:
        return (calendar.some_ago(today, unit),), True
    return (calendar.ago(today, unit, 2 if "couple" in count else number),), True


def _past(match: re.Match[str], today: date) -> Reading:
    """The last three days, the past two weeks."""
    count = match["count"].lower()
    number = int(count) if count.isdigit() else 7 if count in ("few", "several") else _COUNTS[count.split()[0]]
    return (calendar.past(today, match["unit"].lower(), number),), True


def _fixed_day(match: re.Match[str], today: date) -> Reading:
    """yesterday, last night, today, the other day."""
    said = " ".join(match[0].lower().split())
    if said == "the other day":
        return ((today - timedelta(days=7), today - timedelta(days=1)),), True
    return (calendar.around(today + timedelta(days=_FIXED_DAYS.get(said, 0)), 0),), True


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

RULES = (
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
