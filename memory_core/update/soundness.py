"""What no file, ledger or answer may hold: NUL, half of a surrogate pair, and blank content. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from memory_core.errors import ContentRejected
from memory_core.model.record import CONTENT


def shown(text: str) -> str:
    """The text with half surrogate pairs written as escapes, so that it can be stored and sent."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def is_sound(text: str) -> bool:
    """Whether the text is free of NUL and of half surrogate pairs."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\x00" not in text


def check_text(op: BaseModel) -> None:
    """Refuse an operation that no text file should hold.

    Raises:
        ContentRejected: For NUL characters or lone surrogates in any key or value, or a blank ``content``.
    """
    for name, text in _texts("", op.model_dump()):
        if "\x00" in text:
            raise ContentRejected(f"'{name}' holds a NUL character.", hint="Remove it and send the text again.")
        if not is_sound(text):
            raise ContentRejected(
                f"'{name}' holds half of a surrogate pair, which is not text.",
                hint="Send the complete character, or leave it out.",
            )
        if name == CONTENT and not text.strip():
            raise ContentRejected("the content is blank.", hint="Say what is to be remembered.")


def _texts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every text in a JSON value with the name it goes by; names are texts too."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield f"name of {name or 'a member'}", str(key)
            yield from _texts(str(key), item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(name, item)
