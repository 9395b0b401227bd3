"""Names: which memory a set of fields is, and what its file is called.

``render`` keeps meaning (``Python code style.md``, ``支付系统.md``), ``key_of`` says when two memories are
the same one, ``fold`` says when two *names* would collide on some file system.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from memory_core.core.errors import FieldRejected
from memory_core.core.memory.memory_type import CONTENT, DATE_FORMAT, PLACEHOLDER, MemoryType
from memory_core.core.memory.template import composed
from memory_core.core.memory.uri import is_device_name
from memory_core.core.text.language import phrase, sentences
from memory_core.core.text.normalization import simplified
from memory_core.core.text.unicode_form import unicode_form
from memory_core.core.text.word_table import word_table

LIMIT_BYTES = 255
#: Of a field that names a memory; a file's name holds the beginning.
NAME_CHARS = 1_000
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
    return unicode_form("NFC", unicode_form("NFKC", name).casefold())


def key_of(values: Mapping[str, object], key_fields: tuple[str, ...]) -> str:
    """The normalised key: same key, same memory.

    Case, width, Unicode form, spacing, and simplified or traditional characters do not distinguish memories; wording
    does.
    """
    given = ("" if (value := values.get(name)) is None else str(value) for name in key_fields)
    return simplified("\x1f".join(" ".join(fold(text).split()) for text in given))


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
            words = " ".join(str("" if value is None else value).split())
            text = _UNSAFE.sub("-", unicode_form("NFC", words)).strip(" .")
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
    stem = unicode_form("NFC", stem).strip(" .") or "untitled"
    if is_device_name(stem):
        stem = f"_{stem}"
    room = LIMIT_BYTES - _SUFFIX_ROOM_BYTES - len(extension.encode("utf-8"))
    encoded = stem.encode("utf-8")
    if len(encoded) > room:
        mark = "~" + short_hash(stem)
        stem = encoded[: room - len(mark)].decode("utf-8", "ignore").rstrip(" .") + mark
    return f"{stem}{suffix}{extension}"


_TIME_FIELD = re.compile(r"(?:^|_)(?:date|time|day)$")

_DATED = re.compile(r"(\d{4}(?:-\d{2}(?:-\d{2})?)?)[_ -]+(.+)")


def is_time_field(name: str) -> bool:
    """Whether a key field holds a date or time, going by its name."""
    return _TIME_FIELD.search(name) is not None


def name_field_of(memory_type: MemoryType) -> str:
    """The last key field that is no date; the type must have a key.

    Raises:
        IndexError: If it has none.
    """
    named = [key for key in memory_type.key_fields if not is_time_field(key)]
    return (named or list(memory_type.key_fields))[-1]


def stem_keys(memory_type: MemoryType, stem: str) -> dict[str, str]:
    """The key fields that a file name shows: the whole of it, less a date in front where the type has one."""
    name_field = name_field_of(memory_type)
    first = memory_type.key_fields[0]
    if first != name_field and is_time_field(first):
        dated = _DATED.fullmatch(stem)
        if dated is not None:
            return {first: dated[1], name_field: dated[2]}
    return {name_field: stem}


_READ_CHARS = 2_000


def first_words(text: str, limit_chars: int = 60) -> str:
    """A name for a text that has none: its first sentence, as far as that goes whole; see ``language.phrase``."""
    line = next((line.strip(" #*->`\t") for line in text.splitlines() if line.strip(" #*->`\t")), "")
    said = next(iter(sentences(line[:_READ_CHARS])), "")
    return phrase(said.rstrip(" .。!！?？,;:，；：、"), limit_chars)


def summary_line(text: str, limit_chars: int) -> str:
    """The first sentence or so of a text on one line, at most ``limit_chars`` characters."""
    return phrase(text, limit_chars)


#: Memories that begin alike are numbered so far; then a hash of the text names them.
_NUMBERED = 9


def with_keys(memory_type: MemoryType, given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with the key under its own name where it was given under a common one, such as ``name`` or ``date``."""
    fields = dict(given)
    for meaning, others in word_table(__file__)["keys"].items():
        keys = [field for field in memory_type.fields if field.name in memory_type.key_fields]
        dates = [field.name for field in keys if field.format == DATE_FORMAT]
        own = dates if meaning == "date" else [field.name for field in keys if field.name not in dates]
        if not own or str(fields.get(own[-1]) or "").strip():
            continue
        found = next((name for name in others if name in fields and memory_type.field(name) is None), None)
        if found is not None:
            fields[own[-1]] = fields.pop(found)
    return fields


def named(memory_type: MemoryType, values: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Fields with content and name filled in, and whether the name was made up.

    A key without a letter, such as a date, does not name a memory by itself: two events of one day are two.

    Raises:
        FieldRejected: If there is nothing to make a name of.
    """
    fields = dict(values)
    if CONTENT not in fields and not memory_type.template_mode:
        fields[CONTENT] = composed(memory_type, fields)
    keys = memory_type.key_fields
    name_field = name_field_of(memory_type) if keys else ""
    is_given = not keys or bool(str(fields.get(name_field, "")).strip())
    if is_given or any(char.isalpha() for key in keys for char in str(fields.get(key, ""))):
        return fields, False
    name = first_words(str(fields.get(CONTENT, "")))
    if not name:
        raise FieldRejected(
            f"a memory of type '{memory_type.name}' needs a name.", hint=f"Give the field '{name_field}'."
        )
    fields[name_field] = name
    return fields, True


def numbered(memory_type: MemoryType, fields: Mapping[str, Any], attempt: int) -> dict[str, Any]:
    """The fields under the ``attempt``-th name to try, from 1: ``name``, ``name (2)``, …, ``name ~1a2b3c4d``."""
    if attempt == 1 or not memory_type.key_fields:
        return dict(fields)
    key = name_field_of(memory_type)
    text = str(fields.get(CONTENT, ""))
    mark = f"({attempt})" if attempt <= _NUMBERED else f"~{short_hash(f'{attempt - _NUMBERED}:{text}')}"
    return {**fields, key: f"{fields.get(key, '')} {mark}".strip()}
