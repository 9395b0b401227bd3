"""Stretches of the calendar as (first day, last day): months, seasons, weeks, weekends, and steps between them.

Weeks begin on Monday, seasons are those of the north, winter carries the year of its December. Pure; a day
outside what ``date`` can hold raises ``ValueError`` or ``OverflowError``.
"""

from __future__ import annotations

from calendar import monthrange
from datetime import date, timedelta

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
