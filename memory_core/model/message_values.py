"""Single values inside a client's message: times, durations, counts, text and JSON that a file can hold."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from memory_core.errors import ContentRejected, InvalidInput

DEPTH_LIMIT = 64
_INTEGER_LIMIT_BITS = 4096
_COUNT_LIMIT = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS = re.compile(r"[+-]?\d{9,}(\.\d+)?")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_TIME_HINT = "Send ISO 8601 such as 2023-05-08T13:56:00+08:00, or seconds or milliseconds since 1970, or no time."


def sound_text(text: str, at: str) -> str:
    """The text, unchanged.

    Raises:
        ContentRejected: If it holds NUL or a lone surrogate; ``at`` says where.
    """
    found = _UNSTORABLE.search(text)
    if found is None:
        return text
    what = "a NUL character" if found.group() == "\x00" else "a lone surrogate"
    raise ContentRejected(
        f"{at} holds {what} at character {found.start()}, which no text file can.", hint="Remove it and send again."
    )


def json_value(value: Any, at: str, depth: int = 0) -> Any:
    """A plain copy of a JSON value.

    Raises:
        InvalidInput: If it is no JSON value, is nested beyond ``DEPTH_LIMIT``, or holds a number JSON has not.
        ContentRejected: If a text in it cannot be stored.
    """
    if depth > DEPTH_LIMIT:
        raise InvalidInput(f"{at} is nested deeper than {DEPTH_LIMIT}.", hint="Send it as text.")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return sound_text(value, at)
    if isinstance(value, int) and value.bit_length() <= _INTEGER_LIMIT_BITS:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list | tuple):
        return [json_value(item, at, depth + 1) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {sound_text(key, at): json_value(item, at, depth + 1) for key, item in value.items()}
    raise InvalidInput(f"{at} holds a value that JSON cannot carry.", hint="Send text, finite numbers, lists, objects.")


def moment(value: Any, at: str) -> datetime | None:
    """A time with its offset; UTC where none is given, None for None or blank text.

    Numbers, and text of nine or more digits, count seconds since 1970; from 1e11 on milliseconds, from 1e14
    on microseconds, from 1e17 on nanoseconds.

    Raises:
        InvalidInput: If it is not a time between the years 1 and 9999.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        if isinstance(value, str):
            text = value.strip()
            found = _since_epoch(float(text)) if _DIGITS.fullmatch(text) else datetime.fromisoformat(text)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found = _since_epoch(value)
        elif isinstance(value, datetime):
            found = value
        else:
            raise TypeError
        found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        found = found.replace(tzinfo=timezone(found.utcoffset() or timedelta(0)), fold=0)
        found.astimezone(UTC)  # a time that overflows in UTC could be neither compared nor sorted
    except (ValueError, OverflowError, TypeError):
        shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}…"
        raise InvalidInput(f"the time of {at}, {shown}, cannot be read.", hint=_TIME_HINT) from None
    return found


def milliseconds(entry: Mapping[str, Any], at: str) -> int | None:
    """``duration_ms``, else ``duration`` in seconds, as whole milliseconds; None when neither is given.

    Raises:
        InvalidInput: If it is not a number >= 0.
    """
    for key, scale in (("duration_ms", 1), ("duration", 1000)):
        value = entry.get(key)
        if value is not None:
            return _count(value, scale, f"{at}.{key}", "Give duration_ms in milliseconds, or duration in seconds.")
    return None


def token_count(value: Any, at: str) -> int | None:
    """A number of tokens; None for None.

    Raises:
        InvalidInput: If it is not a number >= 0.
    """
    return None if value is None else _count(value, 1, f"{at}: a token count", "Give whole numbers, or none.")


def _count(value: Any, scale: int, at: str, hint: str) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value * scale <= _COUNT_LIMIT:
        raise InvalidInput(f"{at} is not a number of at least 0.", hint=hint)
    return round(value * scale)


def _since_epoch(number: float) -> datetime:
    size = abs(number)
    unit = next((unit for limit, unit in ((1e11, 1), (1e14, 10**3), (1e17, 10**6)) if size < limit), 10**9)
    if isinstance(number, int):
        whole, rest = divmod(number, unit)
        return _EPOCH + timedelta(seconds=whole, microseconds=rest * 10**6 // unit)
    return _EPOCH + timedelta(seconds=number / unit)
