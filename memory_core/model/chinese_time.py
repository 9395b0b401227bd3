"""The words for times in Chinese, each with the days it means; ``time_expression`` matches them.

For simplified writing. What recurs (每周三, 一月一次), the weather (今天气) and a band (五月天) are no time. Pure.
"""

from __future__ import annotations

import re
from datetime import date, timedelta

from memory_core.model import calendar_span as calendar
from memory_core.model.time_rule import Reading, Rule

_DIGITS = {
    digit: value
    for value, digits in enumerate(("零〇○", "一", "二两", "三", "四", "五", "六", "七", "八", "九"))
    for digit in digits
}
_YEARS_BACK = {"大前年": -3, "前年": -2, "去年": -1, "今年": 0, "本年": 0, "明年": 1, "后年": 2}
_DAYS_BACK = {"大前": -3, "前": -2, "昨": -1, "今": 0, "明": 1, "后": 2, "大后": 3}
_STEPS = {"上上": -2, "上": -1, "这": 0, "本": 0, "当": 0, "下": 1, "下下": 2}
_SEASONS = {"春": calendar.SPRING, "夏": calendar.SUMMER, "秋": calendar.AUTUMN, "冬": calendar.WINTER}
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
        year, month = calendar.month_step(today.year, today.month, _STEPS[step])
        relative = True
    else:
        month = number_of(match["month"])
        if not 1 <= month <= 12:
            raise ValueError(match["month"])
        if match["year"] is None:
            return (calendar.latest_day(today, month, day) if day else calendar.latest_month(today, month),), True
        year, relative = _year(match["year"], today)
    return (calendar.around(date(year, month, day), 0) if day else calendar.month_days(year, month),), relative


def _part_of_year(match: re.Match[str], today: date) -> Reading:
    """2022年, 去年夏天, 今年上半年, 去年年底."""
    year, relative = _year(match["year"], today)
    if match["season"]:
        return (calendar.season_days(year, _SEASONS[match["season"]]),), relative
    if match["part"]:
        part = match["part"] if match["part"] in _PARTS_OF_YEAR else f"年{match['part']}"
        first, months = _PARTS_OF_YEAR[part]
        return (calendar.month_days(year, first, months),), relative
    return (calendar.year_days(year),), relative


def _season(match: re.Match[str], today: date) -> Reading:
    """上个夏天, 这个冬天."""
    season = _SEASONS[match["season"]]
    which = calendar.last_season if match["step"] == "上" else calendar.this_season
    return (which(today, season),), True


def _week(match: re.Match[str], today: date) -> Reading:
    """上周三, 本周, 下个星期天, 上周末, 周三, 礼拜天."""
    step, mark = match["step"], match["mark"]
    if step is None:
        if mark is None:
            return (), True
        if mark == "末":
            return (calendar.weekend_days(today) if today.weekday() >= 5 else calendar.weekend_before(today),), True
        day = _WEEKDAYS[mark]
        return (calendar.around(today if today.weekday() == day else calendar.weekday_before(today, day), 0),), True
    weeks = _STEPS[step]
    if mark is None:
        return (calendar.week_days(today, weeks),), True
    if mark == "末":
        return (calendar.weekend_days(today, weeks),), True
    return (calendar.around(calendar.week_days(today, weeks)[0] + timedelta(days=_WEEKDAYS[mark]), 0),), True


def _day(match: re.Match[str], today: date) -> Reading:
    """今天, 昨晚, 大前天."""
    return (calendar.around(today + timedelta(days=_DAYS_BACK[match["which"]]), 0),), True


def _ago(match: re.Match[str], today: date) -> Reading:
    """三天前, 两周前, 半年前, 几个月前, 三小时前."""
    count, unit = match["count"], match["unit"]
    if unit in ("小时", "分钟"):
        return (calendar.around(today, 0),), True
    if count == "半":
        if unit == "天":
            return (calendar.around(today, 0),), True
        return (calendar.ago(today, "month", 6) if unit == "年" else calendar.ago(today, "week", 2),), True
    if count in ("几", "数", "好几"):
        return (calendar.some_ago(today, _UNITS[unit]),), True
    return (calendar.ago(today, _UNITS[unit], number_of(count)),), True


def _past(match: re.Match[str], today: date) -> Reading:
    """最近三天, 过去两个月, 这几天, 前几天."""
    count, unit = match["count"], _UNITS[match["unit"]]
    if count == "半":
        return (calendar.past(today, "week" if unit == "month" else "month", 2 if unit == "month" else 6),), True
    return (calendar.past(today, unit, 7 if count in ("几", "好几") else number_of(count)),), True


_NUMERAL = "零〇○一二两三四五六七八九十廿卅"
_FREE = rf"(?<![\d.{_NUMERAL}百千万第每])"
_NAMED_YEAR = "大前年|前年|去年|今年|本年|明年|后年"
_WRITTEN_YEAR = r"(?:19|20)\d\d\s?年|2100\s?年|[一二][零〇○九一][零〇○一二三四五六七八九]{2}年"
_COUNT = rf"(?P<count>\d{{1,3}}|[{_NUMERAL}]{{1,3}}|半|好几|几|数)"
_UNIT = "个?(?P<unit>天|日|周|星期|礼拜|月|年|小时|分钟)"

RULES = (
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
    Rule(("天", "季"), re.compile(r"(?P<step>上|这)一?个?(?P<season>[春夏秋冬])[天季]"), _season),
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
    Rule(("前",), re.compile(rf"{_FREE}{_COUNT}{_UNIT}(?:以|之)?前(?!端|面|后|台)"), _ago),
    Rule(
        ("近", "过去", "前", "这"),
        re.compile(rf"(?:最近|近|过去|前|这)的?(?:这)?{_COUNT}个?(?P<unit>天|日|周|星期|礼拜|月|年)"),
        _past,
    ),
)
