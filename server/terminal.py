"""What a process shares with the terminal it runs in: texts that are safe to show, log lines, signals that end it."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
from collections.abc import Mapping

#: Controls of both sets, marks of direction, blanks without width (joiners stay: emoji and scripts need them), tags.
_ACTED_UPON = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def plain(text: str) -> str:
    """The text with escapes for what a terminal would act upon."""
    return _ACTED_UPON.sub(_escaped, text)


def plain_json(text: str) -> str:
    """JSON with the same characters escaped; it means what it meant."""
    return _ACTED_UPON.sub(lambda match: json.dumps(match[0])[1:-1], text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


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
        from memory_core.features.redaction import Redaction  # a start has no time for it

        text = super().format(record)
        for key in self._keys:
            text = text.replace(key, _LEFT_OUT)
        text = Redaction().text(text)
        return text if record.levelno <= logging.DEBUG else without_content(text)


def without_content(text: str) -> str:
    """The text without URIs, files of memories and quotations."""
    return _QUOTED.sub(f"'{_LEFT_OUT}'", _FILE.sub(_LEFT_OUT, _URI.sub(f"viking://{_LEFT_OUT}", text)))


def termination_signals() -> list[signal.Signals]:
    """Those that ask a process to end."""
    if sys.platform == "win32":
        return [signal.SIGTERM, signal.SIGINT, signal.SIGBREAK]
    return [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
