"""``viking://`` URIs: the only names by which memory is addressed.

A URI is validated once, when parsed; everything below the edge takes ``MemoryUri``. Validation is
lexical and fails closed: no ``..``, no empty or hidden part (but ``.abstract.md`` and ``.overview.md``), no
control character, backslash, drive letter or device name, plain or percent-encoded. Containment on the
real disk is proved once more by ``FileStore.path_for``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Self
from urllib.parse import unquote

from memory_core.core.errors import InvalidUri
from memory_core.core.text.unicode_form import unicode_form

SCHEME = "viking://"
ABSTRACT_NAME = ".abstract.md"
OVERVIEW_NAME = ".overview.md"
#: Below a user's space: what waits for its owner.
REVIEW_FOLDER = "review"
PART_LIMIT_BYTES = 255
URI_LIMIT_BYTES = 2048

_HIDDEN_ALLOWED = frozenset({ABSTRACT_NAME, OVERVIEW_NAME})
_FORBIDDEN = re.compile(r'[<>:"\\|?*]')
#: The line separators among them: a listing prints one URI a line.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_DEVICES = frozenset(
    {"con", "prn", "aux", "nul", "conin$", "conout$"}
    | {f"{port}{digit}" for port in ("com", "lpt") for digit in "0123456789¹²³"}
)
#: Most parts of URIs are the same few folders.
_REMEMBERED_PARTS = 4_096
#: A longer part is over the limit in any form, and is not remembered.
_PART_CHARS = 4 * PART_LIMIT_BYTES
#: Of what is no URI, so much is told.
_SHOWN_CHARS = 200
_HINT = "Use a URI as ls or tree prints it, for example viking://user/default/memories/profile.md."


class Scope(StrEnum):
    """The first part of every URI."""

    USER = "user"
    AGENT = "agent"
    SESSION = "session"
    ARCHIVE = "archive"


_SCOPES = tuple(scope.value for scope in Scope)


def file_of(uri: str) -> str:
    """A hit's URI without the ``#12`` that names a line of its file; file names may hold a ``#`` themselves."""
    file, _, line = uri.rpartition("#")
    return file if line.isdecimal() else uri


def profile_of(space: str) -> str:
    """Where it says who the user of a space is."""
    return f"{SCHEME}{Scope.USER}/{space}/memories/profile.md"


def range_below(place: MemoryUri | str) -> tuple[str, str]:
    """Before and behind all URIs below a place: "0" is the character after "/"."""
    return f"{place}/", f"{place}0"


def places_of(spaces: Iterable[str]) -> list[str]:
    """URIs of the directories of some spaces (``scope/space``), and of their archives."""
    return [f"viking://{inside}{space}" for space in spaces for inside in ("", f"{Scope.ARCHIVE.value}/")]


def space_of(uri: MemoryUri) -> str:
    """The space (``scope/space``) that a file is of, in use or archived: ``places_of`` the other way round."""
    inside = uri.scope is Scope.ARCHIVE
    return "/".join(uri.parts[inside : inside + 2])


def is_device_name(part: str) -> bool:
    """Whether Windows would open a device for this name (``NUL``, ``com1.md``, …)."""
    return part.split(".", 1)[0].rstrip(" ").casefold() in _DEVICES


@dataclass(frozen=True, slots=True, order=True)
class MemoryUri:
    """A validated location; ``parts`` excludes the scheme and is empty for ``viking://`` itself."""

    parts: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a URI; a trailing slash and Unicode form do not matter.

        Raises:
            InvalidUri: If the text is not a ``viking://`` URI, or any part is unsafe.
        """
        if not isinstance(text, str) or not text.startswith(SCHEME):
            raise InvalidUri(
                f"{str(text)[:_SHOWN_CHARS]!r} is not a URI of this store: it must start with {SCHEME}.", hint=_HINT
            )
        path = text.removeprefix(SCHEME)
        path = path.removesuffix("/")
        if not path:
            return cls()
        try:
            size = len(text.encode("utf-8"))
        except UnicodeEncodeError:
            raise InvalidUri("the URI holds a lone surrogate, which no file name can.", hint=_HINT) from None
        _check_size(size)
        uri = cls(tuple(_checked_part(part, text) for part in path.split("/")))
        _check_scope(uri.parts[0], text)
        if not text.isascii():
            _check_size(len(str(uri).encode("utf-8")))  # composing may lengthen
        return uri

    def __str__(self) -> str:
        return SCHEME + "/".join(self.parts)

    @property
    def is_summary(self) -> bool:
        """Whether it is a directory's L0 or L1, which are made from what is beside them."""
        return self.name in (ABSTRACT_NAME, OVERVIEW_NAME)

    @property
    def is_proposal(self) -> bool:
        """Whether this is a change that waits for its owner, or their folder."""
        return self.scope is Scope.USER and self.parts[2:3] == (REVIEW_FOLDER,)

    @property
    def name(self) -> str:
        """The last part; empty for the root."""
        return self.parts[-1] if self.parts else ""

    @property
    def parent(self) -> MemoryUri:
        """The directory above; the root is its own parent."""
        return MemoryUri(self.parts[:-1])

    @property
    def scope(self) -> Scope | None:
        """The first part, or None for the root."""
        return Scope(self.parts[0]) if self.parts else None

    @property
    def space(self) -> str:
        """``scope/space``, the unit of isolation and of indexing; shorter above a space."""
        return "/".join(self.parts[:2])

    def child(self, name: str) -> MemoryUri:
        """The entry ``name`` below this directory.

        Raises:
            InvalidUri: If the name is unsafe, the URI becomes too long, or the root has no such scope.
        """
        uri = MemoryUri((*self.parts, _checked_part(name, f"{self}/{name}")))
        if not self.parts:
            _check_scope(uri.name, str(uri))
        _check_size(len(str(uri).encode("utf-8")))
        return uri

    def contains(self, other: MemoryUri) -> bool:
        """Whether ``other`` is this location or lies below it."""
        return other.parts[: len(self.parts)] == self.parts


def _check_scope(part: str, uri: str) -> None:
    if part not in _SCOPES:
        raise InvalidUri(f"{uri!r} names no known scope; scopes are {', '.join(_SCOPES)}.", hint=_HINT)


def _check_size(size_bytes: int) -> None:
    if size_bytes > URI_LIMIT_BYTES:
        raise InvalidUri(f"the URI is {size_bytes} bytes; the limit is {URI_LIMIT_BYTES}.", hint=_HINT)


def _checked_part(part: str, uri: str) -> str:
    if len(part) > _PART_CHARS:
        raise InvalidUri(f"a part of {len(part)} characters is over {PART_LIMIT_BYTES} bytes.", hint=_HINT)
    composed, problem = _judged(part)
    if problem is not None:
        raise InvalidUri(f"{uri!r} {problem}.", hint=_HINT)
    return composed


@lru_cache(maxsize=_REMEMBERED_PARTS)
def _judged(part: str) -> tuple[str, str | None]:
    """A part in NFC, and what is wrong with it; None where nothing is."""
    part = unicode_form("NFC", part)
    forms = (part, unquote(part)) if "%" in part else (part,)
    if not part:
        return part, "has an empty part"
    if any(_leaves(form) for form in forms):
        return part, "would leave its directory"
    if any(_CONTROL.search(form) for form in forms):
        return part, "holds a control character"
    if _FORBIDDEN.search(part):
        return part, 'holds one of <>:"\\|?* which no portable file name has'
    if part.startswith(".") and part not in _HIDDEN_ALLOWED:
        return part, "names a hidden file; those are not memory"
    if part != part.strip(" ") or part.endswith("."):
        return part, "has a part that begins or ends with a space or ends with a dot"
    if is_device_name(part):
        return part, "has a part that is a device name on Windows"
    too_long = len(part.encode("utf-8", "surrogatepass")) > PART_LIMIT_BYTES
    return part, f"has a part over {PART_LIMIT_BYTES} bytes" if too_long else None


def _leaves(form: str) -> bool:
    compatible = unicode_form("NFKC", form)
    return compatible in (".", "..") or "/" in form or "\\" in compatible
