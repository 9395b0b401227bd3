r"""Text on a terminal: what was stored by others may not move the cursor, change colours or turn words around.

Owns which characters a terminal acts upon instead of showing them; they are shown as escapes, ``\x1b``. Line feeds
and tabs stay. JSON output needs none of this: it escapes what is below a blank itself, and is read by programs; the
rest is escaped there too, in JSON's own way, by ``plain_json``. Pure.
"""

from __future__ import annotations

import re

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
    return _ACTED_UPON.sub(_escaped_for_json, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped_for_json(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
