"""Secrets in text: found, and replaced by a mark that says what stood there.

Owns ``find_secrets`` (what is a secret, and where), ``Discreet`` (what the owner's setting makes of it) and the mark.
Recognised are tokens and keys that their issuers mark (``secret_tokens``), numbers with a checksum
(``secret_numbers``), and what is named a password or a key (``secret_words``).

Why patterns of our own: of the libraries at hand, detect-secrets keeps its plugins in process-wide settings that
threads share, scans files line by line (no block of a key, no sentence) and finds by entropy, which takes every
hash for a secret; the native scanners bring tens of megabytes. None knows Chinese sentences, identity numbers, or
full-width digits. Prefixes and checksums are public facts, and few.

Promises: precision before recall; time linear in the text; a text that was redacted holds nothing more to redact.
Does not promise to find every secret: a password in an ordinary sentence, or one that is an ordinary word, passes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from memory_core.model.secret_numbers import digits_of, numbers
from memory_core.model.secret_tokens import tokens
from memory_core.model.secret_words import assignments, member

Mode = Literal["refuse", "redact", "warn", "off"]
_CARD = "card number"
_NUMBERS = frozenset({_CARD, "identity number", "bank account"})
_MARK = "[redacted: "
_SHA256_CHARS = 64


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret at ``text[start:end]``; ``kind`` is a few plain words, such as ``GitHub token``."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a secret stood, for a receipt: never the secret."""

    kind: str
    where: str


def find_secrets(text: str) -> list[Secret]:
    """Every secret in a text, in order; where several readings overlap, the one that begins first and is longest."""
    found = [Secret(*span) for source in (tokens, numbers, assignments) for span in source(text)]
    chosen: list[Secret] = []
    for secret in sorted(found, key=lambda item: (item.start, -item.end)):
        if chosen and secret.start < chosen[-1].end:
            last = chosen[-1]
            chosen[-1] = Secret(last.kind, last.start, max(last.end, secret.end))
        elif not text.startswith(_MARK, secret.start):
            chosen.append(secret)
    return chosen


class Discreet:
    """Replaces secrets by marks, but those that the owner allows.

    Args:
        allowed: Strings that are no secrets here, or their SHA-256 in hexadecimal.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = frozenset(
            entry.lower() if len(entry) == _SHA256_CHARS and _is_hexadecimal(entry) else _digest(entry)
            for entry in allowed
        )

    def secrets(self, text: str) -> list[Secret]:
        """What is to be kept secret in a text."""
        found = find_secrets(text)
        if not self._allowed:
            return found
        return [item for item in found if _digest(text[item.start : item.end]) not in self._allowed]

    def in_name(self, name: str) -> str | None:
        """The kind of secret in a name that must stay exact; numbers may be anybody's ids there, and do not count."""
        return next((secret.kind for secret in self.secrets(name) if secret.kind not in _NUMBERS), None)

    def text(self, text: str, keep: Callable[[Secret], bool] = lambda _secret: False) -> tuple[str, list[str]]:
        """The text with marks for its secrets, and their kinds; ``keep`` spares some."""
        found = [secret for secret in self.secrets(text) if not keep(secret)]
        pieces: list[str] = []
        at = 0
        for secret in found:
            pieces += [text[at : secret.start], mark(secret.kind, text[secret.start : secret.end])]
            at = secret.end
        return "".join([*pieces, text[at:]]), [secret.kind for secret in found]

    def value(self, value: Any, where: str = "", places: list[Place] | None = None, name: str = "") -> Any:
        """A JSON value with marks in every text and key; a member that is named a password counts as one.

        Args:
            value: Text, number, list, mapping, however nested; comes back as itself where nothing is in it.
            where: Its path, for ``places``.
            places: Takes what was found.
            name: The name of the member that it is the value of.
        """
        if isinstance(value, str):
            return self._string(value, where, places, name)
        if isinstance(value, Mapping):
            members: dict[Any, Any] = {}
            for key, item in value.items():
                shown = self._string(key, f"{where} (a name)", places, "") if isinstance(key, str) else key
                members[shown] = self.value(item, f"{where}.{shown}" if where else str(shown), places, str(key))
            return value if members == value else members
        if isinstance(value, list | tuple):
            items = [self.value(item, f"{where}[{index}]", places, name) for index, item in enumerate(value)]
            return value if items == list(value) else type(value)(items)
        return value

    def _string(self, text: str, where: str, places: list[Place] | None, name: str) -> str:
        shown, kinds = self.text(text)
        named = member(name, text) if name and not kinds else None
        if named is not None and _digest(text) not in self._allowed:
            shown, kinds = mark(named, text), [named]
        if places is not None:
            places += [Place(kind, where) for kind in kinds]
        return shown


def mark(kind: str, secret: str) -> str:
    """What stands in place of a secret; of a card the last four digits, as on a receipt."""
    ending = f" ending {digits_of(secret)[-4:]}" if kind == _CARD else ""
    return f"{_MARK}{kind}{ending}]"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _is_hexadecimal(text: str) -> bool:
    return all(char in "0123456789abcdefABCDEF" for char in text)
