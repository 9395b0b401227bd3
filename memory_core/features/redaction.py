"""Redaction: secrets in whatever a commit would store, and what the owner's setting makes of them.

Owns what a secret is: tokens and keys that their form gives away, numbers whose checksum fits (of cards, identities,
bank accounts), and what English, Chinese or code names as a password or key. And the rule for each shape that comes
in: operations, messages of a conversation, names, files of an export, questions that go into the trail. Applied at
the edge of the updater and the recorder, before anything is planned, compared, logged, put into the ledger or shown
to a model; so a message that is sent again is compared in the form in which it was stored.

``refuse`` rejects the operation that holds a secret, alone. A message of a conversation is not refused but redacted
then too: a conversation with a hole in it is another conversation, and its calls could not be counted. So is a file
of an export, most of which is no secret. Names that must stay exact (of a session, a request, a project) cannot be
redacted and are refused. SEARCH text of a patch is left alone: it is not stored, and a secret can only be taken out
of a file by quoting it. Pure.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import html
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from memory_core.core.config import Config
from memory_core.core.errors import ContentRejected
from memory_core.core.feature import Cleaned, Cleaner, Feature
from memory_core.core.memory.message import Message, ToolCall, ToolResult, dump_lines, parse_lines
from memory_core.core.memory.results import Action, OperationResult
from memory_core.core.memory.trailer import join, split
from memory_core.core.text.word_table import CuedPattern, cued_patterns, word_pattern, word_set, word_table

if TYPE_CHECKING:
    from pydantic import BaseModel

    from memory_core.core.memory.operations import MemoryOperations

Mode = Literal["refuse", "redact", "warn", "off"]
_pattern, _words = partial(word_pattern, __file__), partial(word_set, __file__)
_MARK = "[redacted: "
_CARD_KIND = "card number"
_NUMBER_KINDS = frozenset({_CARD_KIND, "identity number", "bank account"})


class Secret(NamedTuple):
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
    """Every secret in a text, in order; where several readings overlap, the one that begins first and is longest.

    What JSON, URLs, HTML and programs write as escapes is read, too, also where it is escaped again.
    """
    found = _secrets_in(text)
    if _holds_escapes(text):
        found += _secrets_behind_escapes(text)
    chosen: list[Secret] = []
    for secret in sorted(found, key=lambda item: (item.start, -item.end)):
        if chosen and secret.start < chosen[-1].end:
            last = chosen[-1]
            chosen[-1] = Secret(last.kind, last.start, max(last.end, secret.end))
        elif not text.startswith(_MARK, secret.start):
            chosen.append(secret)
    return chosen


def _secrets_in(text: str) -> list[Secret]:
    """Every reading of a text as it stands."""
    if not (_name_shows_sign if len(text) <= _NAME_CHARS else _shows_sign)(text):
        return []
    return [secret for source in (_tokens, _numbers, _assignments) for secret in source(text)]


_ESCAPED_TIMES = 3


def _holds_escapes(text: str) -> bool:
    return "\\" in text or "%" in text or "&" in text


def _secrets_behind_escapes(text: str) -> Iterator[Secret]:
    places: Sequence[int] = range(len(text) + 1)
    plain = text
    for _ in range(_ESCAPED_TIMES):
        if not _holds_escapes(plain):
            return
        plain, starts = _unescaped(plain)
        if len(starts) == len(places):
            return
        places = [places[start] for start in starts]
        yield from (Secret(kind, places[start], places[end]) for kind, start, end in _secrets_in(plain))


def _unescaped(text: str) -> tuple[str, list[int]]:
    """The text with its escapes read once, and where each of its characters, and its end, stood before."""
    pieces: list[str] = []
    starts: list[int] = []
    at = 0
    for escape in _pattern("escape").finditer(text):
        read = _read_escape(escape[0])
        if read:
            pieces += [text[at : escape.start()], read]
            starts += [*range(at, escape.start()), *[escape.start()] * len(read)]
            at = escape.end()
    return "".join([*pieces, text[at:]]), [*starts, *range(at, len(text) + 1)]


def _read_escape(escape: str) -> str:
    """What one escape stands for; empty where it stands for nothing."""
    if escape.startswith("&"):
        read = html.unescape(escape)
        return "" if read == escape else read
    if escape.startswith("%"):
        return bytes.fromhex(escape.replace("%", "")).decode("utf-8", "replace")
    if escape[-1] in "nrtfb" and escape[-2] == "\\":
        return " "
    if escape[-3:].isdecimal() and escape[-4] == "\\":
        return chr(int(escape[-3:], 8))
    codes = [int(code.strip("{}"), 16) for code in re.split(r"\\+[uUx]", escape)[1:]]
    if any(code > sys.maxunicode for code in codes):
        return ""
    return "".join(map(chr, codes)).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _shows_sign(text: str) -> bool:
    """Whether a text has what each rule asks for first; a quick no for most texts, and never a wrong one."""
    return (
        bool(_cues_in(text))
        or _BEGIN in text
        or (_pattern("two_digits").search(text) is not None and _pattern("number_begins").search(text) is not None)
        or any(_hints(_lowered(text)))
        or (not text.isascii() and any(cue in text for cue in _words("chinese_cues")))
    )


#: The names of members come with every commit.
_NAME_CHARS = 24
_name_shows_sign = lru_cache(maxsize=1_024)(_shows_sign)


# Tokens.

_KEY_LIMIT_CHARS = 65_536
_BEGIN, _CLOSE = "-----BEGIN ", "-----END "


@cache
def _token_rules() -> tuple[tuple[CuedPattern, Callable[[str], bool]], ...]:
    """What each kind of token looks like, and what else must hold of it; a group in a pattern is the secret."""
    checks = (_CHECKS[entry.get("holds")] for entry in word_table(__file__)["tokens"])
    return tuple(zip(cued_patterns(__file__, "tokens"), checks, strict=True))


@cache
def _cues() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The cues of all tokens, by a mark that they hold: a text without the mark has none of them."""
    marked: dict[str, tuple[str, ...]] = {}
    for rule, _ in _token_rules():
        for cue in rule.cues:
            mark = next((mark for mark in "_-.:/=" if mark in cue), cue)
            marked[mark] = (*marked.get(mark, ()), cue)
    return tuple(marked.items())


def _cues_in(text: str) -> set[str]:
    return {cue for mark, cues in _cues() if mark in text for cue in cues if cue in text}


def _tokens(text: str) -> Iterator[Secret]:
    """Every secret that its form gives away; they may overlap."""
    yield from _private_keys(text)
    cues = _cues_in(text)
    for rule, holds in _token_rules() if cues else ():
        if cues.isdisjoint(rule.cues):
            continue
        for match in rule.compiled.finditer(text):
            if holds(match[match.lastindex or 0]):
                yield Secret(rule.name, *match.span(match.lastindex or 0))


def _private_keys(text: str) -> Iterator[Secret]:
    """Blocks in PEM's form, of PGP, SSH or TLS, whole or cut off, and with line ends written as escapes."""
    at = text.find(_BEGIN)
    closing = -1
    while at >= 0:
        after = at + len(_BEGIN)
        head = text.find("-----", after, after + 60)
        if head >= 0 and "PRIVATE KEY" in text[after:head]:
            if closing < after:
                closing = text.find(_CLOSE, head)
                closing = len(text) if closing < 0 else closing
            if _pattern("private_key_line").search(text, head + 5, min(closing, head + 1_000)):
                after = _end_of_key(text, head + 5, closing)
                yield Secret("private key", at, after)
        at = text.find(_BEGIN, after)


def _end_of_key(text: str, start: int, closing: int) -> int:
    """Where a block ends: behind its last line, or where what follows can be no part of it."""
    last = text.find("-----", closing + len(_CLOSE), closing + 80)
    if last >= 0 and closing - start <= _KEY_LIMIT_CHARS and text.find(_BEGIN, start, closing) < 0:
        return last + 5
    body = _pattern("private_key_body").match(text, start)
    return start if body is None else body.end()


def _is_mixed(token: str) -> bool:
    """Whether digits and letters are both there: no word, no number."""
    return any(char.isdigit() for char in token) and any(char.isalpha() for char in token)


def _is_drawn(token: str, different: int = 16) -> bool:
    """Whether a text looks drawn, not written: three kinds of characters, few repeated."""
    kinds = (str.isupper, str.islower, str.isdigit)
    return len(set(token)) >= different and all(any(kind(char) for char in token) for kind in kinds)


def _is_basic(text: str) -> bool:
    """Whether base64 holds ``name:password``."""
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return False
    name, colon, password = plain.partition(":")
    return bool(name.isprintable() and colon and password)


_CHECKS: Mapping[str | None, Callable[[str], bool]] = {
    None: bool,
    "mixed": _is_mixed,
    "drawn": lambda token: _is_drawn(token) and not token.endswith("EXAMPLEKEY"),
    "varied": lambda token: len(set(token)) >= 12,
    "no example": lambda token: not token.endswith("EXAMPLE"),
    "name and password": _is_basic,
    "password": lambda token: not _pattern("placeholder").fullmatch(token),
}


# Numbers.

_LOOK_BACK_CHARS = 40


def _numbers(text: str) -> Iterator[Secret]:
    """Every number that is a card's, a person's or an account's."""
    for match in _pattern("card").finditer(text):
        before = text[max(0, match.start() - _LOOK_BACK_CHARS) : match.start()]
        if _is_card(_digits(match[0])) and not _pattern("no_card").search(before):
            yield Secret(_CARD_KIND, *match.span())
    for match in _pattern("identity").finditer(text):
        if _is_identity(_digits(match[0])):
            yield Secret("identity number", *match.span())
    for match in _pattern("iban").finditer(text):
        if _is_iban(match[0].replace(" ", "")):
            yield Secret("bank account", *match.span())


def _digits(text: str) -> str:
    """The decimal digits of a text, as ASCII."""
    return "".join(str(int(char)) for char in text if char.isdecimal())


def _begins(digits: str, ranges: str) -> bool:
    """Whether a number begins with one of ``51-55 62``."""
    spans = [span.partition("-") for span in ranges.split()]
    return any(int(low) <= int(digits[: len(low)]) <= int(high or low) for low, _, high in spans)


def _is_card(digits: str) -> bool:
    issuers = word_table(__file__)["card_issuers"].items()
    known = any(str(len(digits)) in sizes.split() and _begins(digits, ranges) for sizes, ranges in issuers)
    if not known or len(set(digits)) < 2:  # nobody's, though the sum may fit
        return False
    doubled = sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + doubled) % 10 == 0


def _is_identity(digits: str) -> bool:
    if not _begins(digits, word_table(__file__)["identity_regions"]):
        return False
    try:
        born = date(int(digits[6:10]), int(digits[10:12]), int(digits[12:14]))
    except ValueError:
        return False
    total = sum(int(digit) << (17 - place) for place, digit in enumerate(digits[:17]))
    last = digits[17] if len(digits) == 18 else "X"
    return 1900 <= born.year <= 2099 and last == "10X98765432"[total % 11]


def _is_iban(text: str) -> bool:
    if f"{text[:2]}:{len(text)}" not in _words("iban_lengths"):
        return False
    return int("".join(str(int(char, 36)) for char in text[4:] + text[:4])) % 97 == 1


# What is named a secret.

_JOINTS = "_- ."
_ASCII_LOWER = {code: code + 32 for code in range(65, 91)}
_BEFORE_CHARS = 80
_CLOSING = {"“": "”", "「": "」", "『": "』"}
_QUOTED_LIMIT_CHARS = 256
_SIGNS = frozenset("!@#$%^&*?~")
_LEAST_CHARS = 4
_LEAST_WORD_CHARS = 6
_LEAST_KEY_CHARS = 12
_NAME_LIMIT_CHARS = 80


def _assignments(text: str) -> Iterator[Secret]:
    """What is named as a secret and looks like one; they may overlap."""
    for kind, hint, before in _hints(_lowered(text)):
        for tail in _tails(hint[0], before):
            opened = _pattern(tail).match(text, hint.end())
            found = None if opened is None else _value(text, opened)
            if found is not None and _fits(kind, text[slice(*found)], quoted=bool(opened and opened["open"])):
                yield Secret(kind, *found)
    if not any(cue in text for cue in _words("chinese_cues")):
        return
    for named in _pattern("said_in_chinese").finditer(text):
        if phrase := _pattern("chinese_phrase").match(text, named.end()):
            yield Secret("password", *phrase.span())
            continue
        found = _value(text, named)
        # A word of another script, where Chinese says what the password is, is one.
        if found is not None and _is_password(text[slice(*found)], quoted=True):
            yield Secret("password", *found)


def _lowered(text: str) -> str:
    """The text in lower case, of the same length."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_ASCII_LOWER)


def _hints(lowered: str) -> Iterator[tuple[str, re.Match[str], str]]:
    """The words that may name a secret, each with the kind of it and with what stands before."""
    for hint in _pattern("hint").finditer(lowered):
        before = lowered[max(0, hint.start() - _BEFORE_CHARS) : hint.start()]
        kind = _kind_by_hint(hint[0], before, lowered[hint.end() : hint.end() + 1])
        if kind:
            yield kind, hint, before


def _kind_by_hint(word: str, before: str, after: str) -> str:
    """What a name stands for, from its last word and what is around it; empty for nothing secret."""
    if word == "key":
        return "secret" if before.rstrip(_JOINTS).endswith(tuple(_words("secret_keys"))) else ""
    if word == "token":
        return "" if before.rstrip(_JOINTS).endswith(tuple(_words("other_tokens"))) else "secret"
    if word == "secret":
        return "secret"
    if word in ("pass", "pw") or word.startswith("pin"):
        kind = "PIN" if word.startswith("pin") else "password"
        return "" if before[-1:].isalpha() or after.isalpha() else kind
    return "password"


def _tails(word: str, before: str) -> Iterator[str]:
    """How a value may follow."""
    yield "assigned"
    if word != "pass":
        yield "said"
    if before.endswith("--") or ("login" in before and _pattern("login_before").search(before)):
        yield "after_blank"
    if before.endswith("<"):
        yield "element"


def _value(text: str, opened: re.Match[str]) -> tuple[int, int] | None:
    """Where the value is that begins behind a match: a quotation that ends on its line, or a run of characters."""
    start, sign = opened.end(), opened["open"]
    end = text.find(_CLOSING.get(sign, sign), start, start + _QUOTED_LIMIT_CHARS) if sign else -1
    if end >= 0 and "\n" not in text[start:end]:
        return start, end
    found = _pattern("bare_value").match(text, start)
    if found is None or text[found.end() : found.end() + 1] in ("(", "[", "{"):  # a call or an index
        return None
    return start, start + len(found[0].rstrip(".,:?|*&"))


def _fits(kind: str, value: str, *, quoted: bool) -> bool:
    if kind == "PIN":  # pins of chips have names with letters
        return value.isdecimal() and len(value) >= _LEAST_CHARS
    return _is_password(value, quoted=quoted) if kind == "password" else _is_key(value)


@lru_cache(maxsize=1_024)
def _kind_by_member(name: str) -> str:
    """What kind of secret a member of JSON with this name holds; empty for none."""
    named = _pattern("named").fullmatch(name[-_NAME_LIMIT_CHARS:])
    if named is None:
        return ""
    if named["password"]:
        return "password"
    return "" if name[:-5].rstrip(_JOINTS).lower().endswith(tuple(_words("other_tokens"))) else "secret"


def _is_password(value: str, *, quoted: bool) -> bool:
    """Whether a text may be a password: ``quoted`` ones may be a word, others need a digit or a sign in them."""
    if len(value) < _LEAST_CHARS or not _may_be_secret(value):
        return False
    if value.isdecimal():
        return True
    letters = any(char.isalpha() for char in value)
    if letters and (any(char.isdigit() for char in value) or not _SIGNS.isdisjoint(value)):
        described = _pattern("described").fullmatch(value)
        return not described and not (quoted and value.count(" ") > 4)
    return quoted and len(value) >= _LEAST_WORD_CHARS and value.isascii() and value.isalpha() and value[1:].islower()


def _is_key(value: str) -> bool:
    """Whether a text may be a key or token: long, and drawn rather than written."""
    if len(value) < _LEAST_KEY_CHARS or " " in value or not _may_be_secret(value):
        return False
    if len(value) >= 20 and _is_drawn(value, 14):
        return True
    return any(_is_mixed(run) for run in re.findall("[A-Za-z0-9]{8,}", value))


def _may_be_secret(value: str) -> bool:
    """Whether it is no placeholder, word of a manual, name in a program, path or address."""
    if value.strip(".!?").lower() in _words("common_words"):
        return False
    return not (_pattern("placeholder").fullmatch(value) or _pattern("name_or_path").fullmatch(value))


# What becomes of them.

_REFUSED_HINT = "Leave the secret out, or let the owner change the settings secrets or secrets_allowed."
_NAME_HINT = "Use another name: one that is no key, token or password."
_NOTES_LIMIT = 20
#: Of numbers in JSON: shorter ones are no password, longer ones nobody's number.
_LEAST_NUMBER, _NUMBERS_END = 10 ** (_LEAST_CHARS - 1), 10**20
#: A log's lines end with a line feed alone.
_LINES = re.compile("[^\n]*\n|[^\n]+")
#: What messages, calls and results call their members where they are sent.
_SENT_AS = {"text": "content", "message_id": "id", "call_id": "id"}
_NOT_TEXT = ("tool_calls", "tool_results", "project")
#: Members of operations that name what is there already.
_REFERENCES = ("uri", "replacement_uri", "directory_uri", "links")

Op = TypeVar("Op", bound="BaseModel")
Said = TypeVar("Said", Message, ToolCall, ToolResult)


class Redaction(Cleaner):
    """Applies one setting.

    Args:
        mode: What becomes of a secret.
        allowed: Strings that are no secrets here, or their SHA-256 in hexadecimal.
    """

    def __init__(self, mode: Mode = "redact", allowed: Iterable[str] = ()) -> None:
        self._mode = mode
        self._stores_all = mode in ("off", "warn")
        self._allowed = frozenset(
            entry.lower() if re.fullmatch("[0-9a-fA-F]{64}", entry) else _digest(entry) for entry in allowed
        )

    def text(self, text: str) -> str:
        """A text of ours that may quote a secret, such as a reason or a question; with marks unless all is stored."""
        return text if self._stores_all else self._marked(text, "", [])

    def result(self, result: OperationResult) -> OperationResult:
        """A line of a receipt, which may quote what was sent; receipts are kept."""
        reason, hint, note = (
            None if text is None else self.text(text) for text in (result.reason, result.hint, result.note)
        )
        return replace(result, reason=reason, hint=hint, note=note)

    def check_names(self, **names: str | None) -> None:
        """Refuse names that must stay exact and hold a secret; numbers may be anybody's ids there, and do not count.

        Raises:
            ContentRejected: If one does.
        """
        for name, value in names.items():
            if kind := self._kind_in_name(value):
                raise ContentRejected(f"{name} holds what looks like a secret ({kind}).", hint=_NAME_HINT)

    def _kind_in_name(self, name: str | None) -> str:
        if name is None or self._stores_all:
            return ""
        # in a name "--" may stand for marks, such as "**", that were around a word
        secrets = self._secrets(name) or self._secrets(name.replace("--", " "))
        return next((secret.kind for secret in secrets if secret.kind not in _NUMBER_KINDS), "")

    def value(self, value: Any, where: str, places: list[Place], name: str = "") -> Any:
        """A JSON value with marks in every text and key; a member that is named a password counts as one.

        Args:
            value: Text, number, list, mapping, however nested; comes back as itself where nothing is in it.
            where: Its path, for ``places``.
            places: Takes what was found.
            name: The name of the member that it is the value of.
        """
        if isinstance(value, str):
            shown = self._marked(value, where, places)
            may_be_secret = shown == value and len(value) <= _QUOTED_LIMIT_CHARS
            kind = _kind_by_member(name[-2 * _NAME_LIMIT_CHARS :]) if may_be_secret else ""
            if not kind or not _fits(kind, value, quoted=True) or _digest(value) in self._allowed:
                return shown
            places.append(Place(kind, where))
            return _mark(kind, value)
        if isinstance(value, int) and not isinstance(value, bool) and _LEAST_NUMBER <= abs(value) < _NUMBERS_END:
            shown = self.value(str(value), where, places, name)
            return value if shown == str(value) else shown
        if value is None or isinstance(value, int | float):
            return value
        if isinstance(value, Mapping):
            members: dict[Any, Any] = {}
            for key, item in value.items():
                shown = _other_than(members, self.value(key, f"{where} (a name)", places), key)
                members[shown] = self.value(item, f"{where}.{shown}" if where else str(shown), places, str(key))
            return value if members == value else members
        if isinstance(value, list | tuple):
            items = [self.value(item, f"{where}[{index}]", places, name) for index, item in enumerate(value)]
            return value if items == list(value) else type(value)(items)
        return value

    def keeps(self, value: Any) -> bool:
        """Whether a JSON value may be stored as it is."""
        places: list[Place] = []
        if not self._stores_all:
            self.value(value, "", places)
        return not places

    def messages(self, messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        """Messages as they are stored, and notes for the receipt."""
        if self._mode == "off":
            return tuple(messages), ()
        places: list[Place] = []
        kept = [self._message(message, f"messages[{index}]", places) for index, message in enumerate(messages)]
        return tuple(messages if self._mode == "warn" else kept), self._notes(places)

    def file(self, text: str, where: str, *, log: bool) -> tuple[str, tuple[str, ...]]:
        """A file that comes from elsewhere, as it is stored, and notes; ``log`` is one with a message a line."""
        if self._mode == "off":
            return text, ()
        places: list[Place] = []
        if log:
            clean = "".join(self._line(line, where, places) for line in _LINES.findall(text))
        else:
            file = split(text)
            trailer = None if file.trailer is None else self.value(dict(file.trailer), where, places)
            clean = join(self.value(file.body, where, places), trailer)
        notes = self._notes([Place(place.kind, where) for place in places])
        return (text if self._mode == "warn" or not places else clean), notes

    def operations(self, operations: MemoryOperations) -> Cleaned:
        """Operations as they may be planned."""
        if self._mode == "off":
            return Cleaned(operations)
        places: list[Place] = []
        refused: list[OperationResult] = []
        kept: dict[str, Any] = {
            name: self._each(getattr(operations, name), name, places, refused)
            for name in ("write_operations", "edit_operations", "delete_operations", "overview_operations")
        }
        kept["reasoning"] = self.value(operations.reasoning, "reasoning", places)
        is_same = self._mode == "warn" or not (places or refused)
        changed = operations if is_same else operations.model_copy(update=kept)
        return Cleaned(changed, tuple(refused), self._notes(places))

    def _secrets(self, text: str, known: str = "") -> list[Secret]:
        """What is to be kept secret in a text, but not what another text holds already."""
        found = ((item, text[item.start : item.end]) for item in find_secrets(text))
        return [item for item, secret in found if secret not in known and _digest(secret) not in self._allowed]

    def _marked(self, text: str, where: str, places: list[Place], known: str = "") -> str:
        """The text with marks for its secrets, which are added to ``places``; what ``known`` holds too stays."""
        pieces: list[str] = []
        at = 0
        for secret in self._secrets(text, known):
            pieces += [text[at : secret.start], _mark(secret.kind, text[secret.start : secret.end])]
            at = secret.end
            places.append(Place(secret.kind, where))
        return "".join([*pieces, text[at:]])

    def _message(self, message: Message, where: str, places: list[Place]) -> Message:
        calls, results = (
            [
                self._members(each, f"{where}.{name}[{index}]", places)
                for index, each in enumerate(getattr(message, name))
            ]
            for name in ("tool_calls", "tool_results")
        )
        clean = self._members(message, where, places)
        return replace(clean, tool_calls=tuple(calls), tool_results=tuple(results))

    def _members(self, said: Said, where: str, places: list[Place]) -> Said:
        """A message, a call or a result with marks in its texts."""
        names = [member.name for member in fields(said) if member.name not in _NOT_TEXT]
        clean = {name: self.value(getattr(said, name), f"{where}.{_SENT_AS.get(name, name)}", places) for name in names}
        return replace(said, **clean)

    def _line(self, line: str, where: str, places: list[Place]) -> str:
        messages, damage = parse_lines(line)
        if damage:
            return str(self.value(line, where, places))
        found = len(places)
        clean = [self._message(message, where, places) for message in messages]
        return dump_lines(clean) if len(places) > found else line

    def _each(
        self, operations: Sequence[Op], group: str, places: list[Place], refused: list[OperationResult]
    ) -> list[Op]:
        kept: list[Op] = []
        for index, operation in enumerate(operations):
            if kind := self._kind_in_name(getattr(operation, "uri", None)) if group == "write_operations" else "":
                reason = f"its uri holds what looks like a secret ({kind})."
                refused.append(OperationResult("write", "", Action.REJECTED, reason, _NAME_HINT))
                continue
            found: list[Place] = []
            clean = self._operation(operation, f"{group}[{index}]", found)
            if found and self._mode == "refuse":
                kinds = ", ".join(dict.fromkeys(f"{place.kind} in {place.where}" for place in found[:_NOTES_LIMIT]))
                op = group.partition("_")[0]
                refused.append(OperationResult(op, "", Action.REJECTED, f"it holds a secret: {kinds}.", _REFUSED_HINT))
            else:
                places += found
                kept.append(clean if found else operation)
        return kept

    def _operation(self, operation: Op, where: str, places: list[Place]) -> Op:
        """An operation, or what a write brings, with marks in all but what names something that is there already."""
        from memory_core.core.memory.operations import EditOp, OverviewOp, WriteOp

        clean: dict[str, Any] = {}
        before = len(places)
        if isinstance(operation, EditOp):
            patches = operation.patches.items()
            kept: dict[str, Any] = {}
            for name, patch in patches:
                shown = _other_than(kept, self._marked(name, f"{where}.patches (a name)", places), name)
                kept[shown] = self._patch(patch, f"{where}.patches.{shown}", places, name)
            clean["patches"] = kept
        elif isinstance(operation, OverviewOp):
            for name in ("abstract", "overview"):
                clean[name] = self._patch(getattr(operation, name), f"{where}.{name}", places, name)
        elif isinstance(operation, WriteOp):
            clean["memory_data"] = self._operation(operation.memory_data, f"{where}.memory_data", places)
        others = {name: value for name, value in operation if name not in _REFERENCES and name not in clean}
        others = self.value(others, where, places)
        return operation if len(places) == before else operation.model_copy(update=others | clean)

    def _patch(self, patch: Any, where: str, places: list[Place], name: str) -> Any:
        """A patch with marks in what it brings; what it looks for, and a secret that stood there, is not new."""
        if isinstance(patch, list):
            blocks = []
            for index, block in enumerate(patch):
                replacement = self._marked(block.replace, f"{where}[{index}]", places, known=block.search)
                blocks.append(block.model_copy(update={"replace": replacement}))
            return blocks
        if not isinstance(patch, str) or "<<<<<<< SEARCH" not in patch:
            return self.value(patch, where, places, name)
        from memory_core.core.commit.patch import looked_for

        return self._marked(patch, where, places, known=looked_for(patch))

    def _notes(self, places: Sequence[Place]) -> tuple[str, ...]:
        """A line for each place."""
        told = "stored as it came, though it looks like a secret" if self._mode == "warn" else "stored without a secret"
        lines = list(dict.fromkeys(f"{told}: {place.kind} in {place.where}" for place in places))
        more = len(lines) - _NOTES_LIMIT
        return (*lines[:_NOTES_LIMIT], *((f"and {more} more places with secrets",) if more > 0 else ()))


def _other_than(members: Mapping[Any, Any], shown: Any, name: Any) -> Any:
    """The name with its mark, other than those of ``members``: two secrets must not become one member."""
    while shown != name and shown in members:
        shown += "'"
    return shown


def _mark(kind: str, secret: str) -> str:
    """What stands in place of a secret; of a card the last four digits, as on a receipt."""
    ending = f" ending {_digits(secret)[-4:]}" if kind == _CARD_KIND else ""
    return f"{_MARK}{kind}{ending}]"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def redaction_of(config: Config) -> Redaction:
    """What the settings ask for."""
    return Redaction(config.secrets, config.secrets_allowed)


FEATURE = Feature(cleaner=redaction_of)
