"""One way to name a time: the pattern of the words, and the days they mean. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

from memory_core.model.calendar_span import Days

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
