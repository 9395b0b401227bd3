"""Search filters: JSON in, a condition over the catalog's documents out.

``{"and": […]}``, ``{"or": […]}``, ``{"not": {…}}`` and ``{field: {op: value}}`` (or ``{field: value}`` for eq), with
ops eq, ne, in, gt, gte, lt, lte, contains. Values only ever become bound parameters.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from memory_core.core.errors import InvalidFilter
from memory_core.core.frozen import frozen

_SHARES = ("salience", "confidence")
_FLAGS = ("active", "pinned")
_TIMES = ("expires_at", "created_at", "updated_at", "time")
#: What may be compared, in the order in which it is told.
FIELDS = (
    *("memory_type", "context_type", "category", "tags", "project"),
    *(*_SHARES, *_FLAGS, *_TIMES),
    *("role", "speaker", "session_id", "uri"),
)
_COMPARISONS: Mapping[str, str] = {"eq": "IS", "ne": "IS NOT", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_OPERATORS = ("eq", "ne", "in", "gt", "gte", "lt", "lte", "contains")
#: A year, a month or a day: compared with as much of a time as it gives.
_PERIOD = re.compile(r"\d{4}(-\d{2}(-\d{2})?)?")
_DEPTH_LIMIT = 16
_TESTS_LIMIT = 500
_EXAMPLE = (
    'For example {"and": [{"memory_type": {"in": ["facts", "events"]}}, {"time": {"gte": "2026-01-01"}}]}; '
    f"fields are {', '.join(FIELDS)}; operators are {', '.join(_OPERATORS)}."
)


@frozen
class Condition:
    """An SQL condition over ``documents d`` and its parameters."""

    sql: str
    parameters: tuple[Any, ...] = ()


#: Every document meets it.
ANYTHING = Condition("1")


@frozen
class Bounds:
    """What a search by words stays within.

    Attributes:
        scopes: Scope terms of the spaces, so that what others hold changes no score; None means everywhere.
        documents: How many documents there are within the scopes.
        condition: What documents must meet.
    """

    scopes: Sequence[str] | None = None
    documents: int = 0
    condition: Condition | None = None


def private_elsewhere(project: str | None) -> Condition:
    """That a document is private to another project than the one somebody looks from."""
    return Condition("(d.private AND d.project IS NOT NULL AND d.project IS NOT ?)", (project,))


def not_private_elsewhere(project: str | None) -> Condition:
    """That it is not."""
    elsewhere = private_elsewhere(project)
    return Condition(f"NOT {elsewhere.sql}", elsewhere.parameters)


def in_use(now: datetime) -> Condition:
    """That a document was not put to rest and is not past its time."""
    return Condition("(d.active AND (d.expires_at IS NULL OR d.expires_at > ?))", (utc(now.isoformat()),))


def all_of(parts: Sequence[Condition | None]) -> Condition | None:
    """That a document meets all of the conditions there are; None where there is none."""
    conditions = [part for part in parts if part is not None]
    return _joined(conditions, "AND") if conditions else None


def utc(text: str | None) -> str | None:
    """A time as the catalog compares it: ISO 8601 in UTC, to the second; None stays None.

    A text that is no time is kept as it is, so that a bare year or month still compares.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        return text


def compile_filter(tree: Mapping[str, Any] | None, depth: int = 0) -> Condition | None:
    """Turn a filter into a condition; None and {} mean no condition.

    Raises:
        InvalidFilter: If any node is not one of the documented shapes.
    """
    if tree is None or tree == {}:
        return None
    if not isinstance(tree, Mapping):
        raise InvalidFilter("a filter must be an object.", hint=_EXAMPLE)
    if depth > _DEPTH_LIMIT:
        raise InvalidFilter("the filter is nested too deeply.", hint="Flatten it.")
    return _bounded((_node(name, value, depth) for name, value in tree.items()), "AND")


def mentions(tree: Any, names: Collection[str]) -> bool:
    """Whether a filter of a sound shape tests any of these fields."""
    if isinstance(tree, Mapping):
        return any(name in names or mentions(value, names) for name, value in tree.items())
    return isinstance(tree, list) and any(mentions(item, names) for item in tree)


def _node(name: str, value: Any, depth: int) -> Condition:
    if name in ("and", "or"):
        if not isinstance(value, list) or not value:
            raise InvalidFilter(f"'{name}' takes a list of filters that is not empty.", hint=_EXAMPLE)
        return _bounded((_required(item, depth) for item in value), name.upper())
    if name == "not":
        inner = _required(value, depth)
        return Condition(f"{inner.sql} IS NOT TRUE", inner.parameters)
    if name not in FIELDS:
        raise InvalidFilter(f"unknown filter field {name!r}.", hint=_EXAMPLE)
    tests = value if isinstance(value, Mapping) else {"eq": value}
    if not tests:
        raise InvalidFilter(f"the filter on {name!r} tests nothing.", hint=_EXAMPLE)
    return _bounded((_comparison(name, op, operand) for op, operand in tests.items()), "AND")


def _required(tree: Any, depth: int) -> Condition:
    found = compile_filter(tree, depth + 1)
    if found is None:
        raise InvalidFilter("an empty filter inside and, or, not means nothing.", hint=_EXAMPLE)
    return found


def _comparison(name: str, op: str, operand: Any) -> Condition:
    if op not in _OPERATORS:
        raise InvalidFilter(f"unknown operator {op!r} on {name!r}.", hint=_EXAMPLE)
    if op == "in":
        if not isinstance(operand, list) or not operand:
            raise InvalidFilter(f"'in' on {name!r} takes a list that is not empty.", hint=_EXAMPLE)
        return _bounded((_comparison(name, "eq", item) for item in operand), "OR")
    value = _scalar(name, operand)
    if value is None and (op not in ("eq", "ne") or name == "tags"):
        raise InvalidFilter(f"the test of {name!r} needs a value.", hint=_EXAMPLE)
    if name == "tags":
        return _tag(op, value)
    if op == "contains" and name in (*_SHARES, *_FLAGS):
        raise InvalidFilter(f"'contains' on {name!r} needs a field of text.", hint=_EXAMPLE)
    side = column = "d.created_at" if name == "time" else f"d.{name}"
    if name in _TIMES and isinstance(value, str) and _PERIOD.fullmatch(value):
        side = f"substr({column}, 1, {len(value)})"
    if op == "contains":
        return Condition(f"instr(lower({column}), lower(?)) > 0", (str(value),))
    return Condition(f"{side} {_COMPARISONS[op]} ?", (value,))


def _scalar(name: str, value: Any) -> str | float | None:
    if value is None:
        return None
    if name in _FLAGS:
        if not isinstance(value, bool):
            raise InvalidFilter(f"{name} is true or false.", hint=_EXAMPLE)
        return float(value)
    if name in _SHARES:
        sound = isinstance(value, int | float) and not isinstance(value, bool)
        if not sound or not 0.0 <= value <= 1.0:
            raise InvalidFilter(f"{name} is compared with a number from 0 to 1.", hint=_EXAMPLE)
        return float(value)
    if not isinstance(value, str):
        raise InvalidFilter(f"the value for {name!r} must be text.", hint=_EXAMPLE)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidFilter(f"the value for {name!r} holds half a character.", hint=_EXAMPLE) from None
    return _time(name, value) if name in _TIMES else value


def _time(name: str, value: str) -> str:
    """A period as it is, a moment in UTC."""
    period = _PERIOD.fullmatch(value) is not None
    try:
        datetime.fromisoformat(f"{value}-01-01"[:10] if period else value)
    except ValueError:
        raise InvalidFilter(
            f"{name!r} is compared with an ISO 8601 date or time.", hint='For example "2026-03-17".'
        ) from None
    return value if period else utc(value) or value


def _tag(op: str, value: Any) -> Condition:
    if op not in ("eq", "ne", "contains"):
        raise InvalidFilter("tags take eq, ne, in or contains.", hint=_EXAMPLE)
    negation = "NOT " if op == "ne" else ""
    sql = f"{negation}EXISTS (SELECT 1 FROM json_each(d.tags) t WHERE lower(t.value) = lower(?))"
    return Condition(sql, (str(value),))


def _bounded(parts: Iterable[Condition], operator: str) -> Condition:
    """Parts of a filter, of which none is made once there are too many."""
    made: list[Condition] = []
    values = 0
    for part in parts:
        values += len(part.parameters)
        if values > _TESTS_LIMIT:  # SQLite takes no expression that is deeper than 1,000
            raise InvalidFilter(
                f"the filter compares more than {_TESTS_LIMIT} values.", hint="Ask in several searches."
            )
        made.append(part)
    return _joined(made, operator)


def _joined(parts: list[Condition], operator: str) -> Condition:
    sql = f" {operator} ".join(part.sql for part in parts)
    parameters = tuple(parameter for part in parts for parameter in part.parameters)
    return Condition(f"({sql})", parameters)
