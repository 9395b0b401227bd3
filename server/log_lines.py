"""Lines of the log: what went wrong, not what anybody said.

A message of ours may quote a URI, a path or an argument, and their names are made of memories. Above the level DEBUG
these are left out, here, where lines are written: so a library's messages and texts of exceptions are covered too, and
a module may say all it knows. A line logged at DEBUG is whole but for secrets, which no line holds at any level.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping

#: A name may hold blanks: up to the last ending of a memory's file in the line, else to the next blank.
_URI = re.compile(r"viking://(?:[^\n]*\.(?:md|jsonl)\b(?:#\d+)?|[^\s'\",;)]*)")
_FILE = re.compile(r"(?:(?<![\w:/])|(?<=file:))(?:/|[A-Za-z]:\\)[^\n]*\.(?:md|jsonl)\b")
_QUOTED = re.compile(r"(?<!\w)(?:'(?:[^'\\\n]|\\.)+'|\"(?:[^\"\\\n]|\\.)+\"|`[^`\n]+`|“[^”\n]+”)(?!\w)")
_LEFT_OUT = "…"
_KEY_NAME = re.compile(r".*(?:KEY|TOKEN|SECRET|PASSWORD)", re.IGNORECASE)
_LEAST_KEY_CHARS = 8


class LogLine(logging.Formatter):
    """Formats records without content and without secrets.

    Args:
        form: As for ``logging.Formatter``.
        environment: Variables whose values are never written, if their names are those of keys.
    """

    def __init__(self, form: str, environment: Mapping[str, str] = os.environ) -> None:
        super().__init__(form)
        self._keys = tuple(
            value for name, value in environment.items() if _KEY_NAME.fullmatch(name) and len(value) >= _LEAST_KEY_CHARS
        )

    def format(self, record: logging.LogRecord) -> str:
        """The line; of an exception below it, the same."""
        from memory_core.model.secrets import Discreet  # its patterns take longer to compile than a start may

        text = super().format(record)
        for key in self._keys:
            text = text.replace(key, _LEFT_OUT)
        text = Discreet().text(text)[0]
        return text if record.levelno <= logging.DEBUG else without_content(text)


def without_content(text: str) -> str:
    """The text without URIs, files of memories and quotations."""
    return _QUOTED.sub(f"'{_LEFT_OUT}'", _FILE.sub(_LEFT_OUT, _URI.sub(f"viking://{_LEFT_OUT}", text)))
