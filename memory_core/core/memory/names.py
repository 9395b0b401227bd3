"""Semantic file names: from a template and field values to a name every platform can hold.

``render`` keeps meaning (``Python code style.md``, ``支付系统.md``), ``key_of`` says when two memories are
the same one, ``fold`` says when two *names* would collide on some file system.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping

from memory_core.core.memory.memory_type import PLACEHOLDER
from memory_core.core.memory.uri import is_device_name
from memory_core.core.text.normalization import simplified

LIMIT_BYTES = 255
#: Left free at the end of a name for a collision suffix such as ``~1a2b3c4d``.
_SUFFIX_ROOM_BYTES = 10
_SEPARATORS = " _-."
#: Also what a URI takes for one of these: ``%2F`` and the wide backslashes.
_UNSAFE = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff﹨＼]|%(?=[0-9A-Fa-f]{2})')


def short_hash(text: str) -> str:
    """Eight hexadecimal digits that name ``text``."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def fold(name: str) -> str:
    """The form under which Windows or macOS may confuse two names: compatibility form, case folded."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKC", name).casefold())


def key_of(values: Mapping[str, object], key_fields: tuple[str, ...]) -> str:
    """The normalised key: same key, same memory.

    Case, width, Unicode form, spacing, and simplified or traditional characters do not distinguish memories; wording
    does.
    """
    given = ("" if (value := values.get(name)) is None else str(value) for name in key_fields)
    return refold("\x1f".join(" ".join(fold(text).split()) for text in given))


def refold(key: str) -> str:
    """A key as ``key_of`` gives it now, from one that it gave when it told simplified from traditional characters."""
    return simplified(key)


def render(template: str, values: Mapping[str, object]) -> str:
    """Fill ``template`` and make the result a portable file name.

    An empty value leaves together with the separator that follows it (or, at the end, precedes it).

    Args:
        template: For example ``{event_time}_{event_name}.md``.
        values: Field values; missing and None count as empty.

    Returns:
        A name in NFC, at most ``LIMIT_BYTES`` less room for a collision suffix, never hidden,
        never a device name, never empty.
    """
    stem_template, dot, extension = template.rpartition(".")
    pieces: list[str] = []
    pending_separator = ""
    for index, piece in enumerate(PLACEHOLDER.split(stem_template)):
        if index % 2:
            value = values.get(piece)
            text = _safe("" if value is None else str(value))
            if text:
                pieces.append(pending_separator + text)
                pending_separator = ""
            elif not pieces:
                pending_separator = ""
        elif piece.strip(_SEPARATORS):
            pieces.append(pending_separator + piece)
            pending_separator = ""
        elif pieces:
            pending_separator = pending_separator or piece
    return fit("".join(pieces), dot + extension)


def fit(stem: str, extension: str, suffix: str = "") -> str:
    """``stem + suffix + extension``, cut by whole characters with a short hash when too long in bytes."""
    stem = unicodedata.normalize("NFC", stem).strip(" .") or "untitled"
    if is_device_name(stem):
        stem = f"_{stem}"
    room = LIMIT_BYTES - _SUFFIX_ROOM_BYTES - len(extension.encode("utf-8"))
    encoded = stem.encode("utf-8")
    if len(encoded) > room:
        mark = "~" + short_hash(stem)
        stem = encoded[: room - len(mark)].decode("utf-8", "ignore").rstrip(" .") + mark
    return f"{stem}{suffix}{extension}"


def _safe(value: str) -> str:
    cleaned = _UNSAFE.sub("-", unicodedata.normalize("NFC", " ".join(value.split())))
    return cleaned.strip(" .")
