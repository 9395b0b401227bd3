"""Secrets that the words before them give away: assignments, members of JSON, and what people say.

``password=…``, ``api_key: …``, ``my password is …``, 密码是…, 口令：…. What follows must look like a secret: a word
alone, a placeholder, a call, a path or a description ("12 characters") does not. Pure, linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memory_core.model.secret_tokens import PLACEHOLDER, Span

_OPEN = r"(?P<open>(?:\\?[\"'`]|[“「『]|\*\*)?)"
#: What may be the end of a name; what stands before it decides.
_HINT = re.compile(r"pass(?:word|wd|phrase|code)?|pwd|pin(?:[ _\-]?code)?|pw|token|secret|key")
_KEY_WORDS = "api private secret access encryption encrypted signing account shared master auth service license"
#: What makes a key a secret one.
_KEYS = tuple(_KEY_WORDS.split())
_OTHER_WORDS = """
page next prev previous csrf xsrf continue continuation sync cursor max min num count total input output prompt
completion cancel cancellation per stop pad eos bos special first last unk sep
"""
#: What says that a token is of another sort.
_OTHER_TOKENS = tuple(_OTHER_WORDS.split())
_JOINTS = "_- ."
_NETRC_BEFORE = re.compile(r"\blogin[ \t]{1,4}\S{1,64}[ \t]{1,4}$")
_ASSIGNED = re.compile(rf"\\?[\"'`*_]{{0,3}}\]?[ \t]{{0,3}}(?::=|=>|==?|:|：|＝)\s{{0,3}}[bru]?{_OPEN}")
_SAID = re.compile(
    r"(?:\s{1,3}(?:for|of|to|on|at|in)\s[^\n.,;:=]{1,48}?)?\s{1,3}(?:is|was|will be|becomes|to|are)\s{1,3}"
    rf"(?:(?:now|still|just|set to|currently|going to be)\s)?[:：]?\s{{0,2}}{_OPEN}",
    re.IGNORECASE,
)
_BLANK = re.compile(rf"[ \t]{{1,4}}{_OPEN}")
_ELEMENT = re.compile(rf">(?=[^<>\n]{{1,256}}</){_OPEN}")
_CHINESE = re.compile(
    r"(?:密码|密碼|口令|通行码|密钥|密鑰|秘钥|令牌|私钥)[^\s，。；！？,;:：=是为為“「『\"'`]{0,8}\s{0,2}"
    r"(?:就?是|为|為|：|:|=|＝|改成了?|改为了?|改為|设为|設為|设成|设置为|设置成|换成了?|叫)\s{0,2}[:：]?\s{0,2}"
    + _OPEN
)
_ASCII_LOWER = {code: code + 32 for code in range(65, 91)}
_BEFORE_CHARS = 80
_BARE = re.compile(r"[^\s\"'`,;<>()\[\]{}（）。，；、“”「」『』【】！？\u3040-\u9fff\\]{1,256}")
_CLOSING = {'"': '"', "'": "'", "`": "`", "“": "”", "「": "」", "『": "』", "**": "**", '\\"': '\\"', "\\'": "\\'"}
_QUOTED_LIMIT_CHARS = 256

_COMMON_WORDS = """
string text required optional hidden none null true false incorrect wrong invalid missing unknown default empty
secret password passwort kennwort contraseña mot passe encrypted hashed plain plaintext protected visible value
type field basic bearer oauth oauth2 sha256 sha1 sha512 md5 bcrypt argon2 argon2id pbkdf2 base64 utf8 utf-8
confirm reset forgot forgotten change changed expired admin user stored strong weak secure same different
password1 password2 password123 hs256 rs256 es256 aes256 aes-256 ed25519 x509 rsa2048 rsa4096
"""
_COMMON = frozenset(_COMMON_WORDS.split())
_DESCRIBED = re.compile(
    r"\d+(?:st|nd|rd|th|k|ms|s|h|d|m|px|%|mb|gb)?|\d+[-–+]?(?:char|digit|bit|byte|letter|word|symbol|day|week|month|year|"
    r"min|sec|hour|step|factor|times|位|个)\w*.*",
    re.IGNORECASE,
)
_NAME = re.compile(r"[A-Za-z_]\w*(?:(?:\.|->|::)[A-Za-z_]\w*)+|[A-Z]+(?:_[A-Z0-9]+)+")
_PLACE = re.compile(
    r"(?:https?:|file:|~|\.{1,2})?/.*|[\w.+\-]+@[\w\-]+\.[\w.\-]+|[A-Za-z]:\\.*"
    r"|[\w\-]+\.(?:pem|key|txt|json|ya?ml|env|md|py|js|ts)"
)
_RUN = re.compile(r"[A-Za-z0-9]+")
_SIGNS = frozenset("!@#$%^&*?~")
#: A phrase in Chinese with digits, but no date.
_HAN = re.compile(r"[\u4e00-\u9fff]{1,6}[0-9]{3,}(?![0-9年月日号点时])")
_LEAST_CHARS = 4
_LEAST_KEY_CHARS = 12
_LEAST_WORD_CHARS = 6
_MEMBER = re.compile(
    r"(?P<password>.*(?:pass(?:word|wd|phrase|code)|pwd|密码|密碼|口令))"
    r"|(?P<key>.*(?:(?:api|private|secret|access|encryption|signing|account|shared|master|auth|service)[_\- .]?key"
    r"|token|secret)"
    r"|authorization|密钥|令牌)",
    re.IGNORECASE,
)


def assignments(text: str) -> Iterator[Span]:
    """(kind, start, end) of what is named as a secret and looks like one; they may overlap."""
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = text.translate(_ASCII_LOWER)
    for hint in _HINT.finditer(lowered):
        before = lowered[max(0, hint.start() - _BEFORE_CHARS) : hint.start()]
        kind = _kind(hint[0], before, lowered[hint.end() : hint.end() + 1])
        for tail in _tails(hint[0], before) if kind else ():
            opened = tail.match(text, hint.end())
            found = None if opened is None else _valued(text, opened)
            if found is not None and _fits(kind, text[slice(*found)], quoted=bool(opened and opened["open"])):
                yield kind, *found
    if any(word in text for word in ("密", "口令", "令牌", "通行码", "钥")):
        for named in _CHINESE.finditer(text):
            if phrase := _HAN.match(text, named.end()):
                yield "password", *phrase.span()
                continue
            found = _valued(text, named)
            # A word of another script, where Chinese says what the password is, is one.
            if found is not None and is_password(text[slice(*found)], quoted=True):
                yield "password", *found


def _kind(word: str, before: str, after: str) -> str:
    """What a name stands for, from its last word and what is around it; empty for nothing secret."""
    if word == "key":
        return "secret" if before.rstrip(_JOINTS).endswith(_KEYS) else ""
    if word == "token":
        return "" if before.rstrip(_JOINTS).endswith(_OTHER_TOKENS) else "secret"
    if word == "secret":
        return "secret"
    if word in ("pass", "pw") or word.startswith("pin"):
        kind = "PIN" if word.startswith("pin") else "password"
        return "" if before[-1:].isalpha() or after.isalpha() else kind
    return "password"


def _tails(word: str, before: str) -> Iterator[re.Pattern[str]]:
    """How a value may follow."""
    yield _ASSIGNED
    if word != "pass":
        yield _SAID
    if before.endswith("--") or ("login" in before and _NETRC_BEFORE.search(before)):
        yield _BLANK
    if before.endswith("<"):
        yield _ELEMENT


def _valued(text: str, opened: re.Match[str]) -> tuple[int, int] | None:
    """Where the value is that begins behind a match."""
    sign = opened["open"]
    return _quoted(text, opened.end(), _CLOSING[sign]) if sign else _bare(text, opened.end())


def _fits(kind: str, value: str, *, quoted: bool) -> bool:
    if kind == "PIN":  # pins of chips have names with letters
        return value.isdecimal() and len(value) >= _LEAST_CHARS
    return is_password(value, quoted=quoted) if kind == "password" else is_key(value)


def member(name: str, value: str) -> str | None:
    """What kind of secret a member of JSON with this name is, or None."""
    named = _MEMBER.fullmatch(name[-80:]) if len(value) <= _QUOTED_LIMIT_CHARS else None
    if named is None:
        return None
    if named["password"]:
        return "password" if is_password(value, quoted=True) else None
    if name[:-5].rstrip(_JOINTS).lower().endswith(_OTHER_TOKENS):
        return None
    return "secret" if is_key(value) else None


def _quoted(text: str, start: int, closing: str) -> tuple[int, int] | None:
    """A quotation that ends on its line; what is not closed is read as if it were bare."""
    end = text.find(closing, start, start + _QUOTED_LIMIT_CHARS)
    return _bare(text, start) if end < 0 or "\n" in text[start:end] else (start, end)


def _bare(text: str, start: int) -> tuple[int, int] | None:
    """A run without blanks, quotes and brackets; a call or an index is none."""
    found = _BARE.match(text, start)
    if found is None or text[found.end() : found.end() + 1] in ("(", "[", "{"):
        return None
    return start, start + len(found[0].rstrip(".,:?|*&"))


def is_password(value: str, *, quoted: bool) -> bool:
    """Whether a text may be a password: ``quoted`` ones may be a word, others need a digit or a sign in them."""
    if len(value) < _LEAST_CHARS or not _is_secret(value):
        return False
    if value.isdecimal():
        return True
    letters = any(char.isalpha() for char in value)
    if letters and (any(char.isdigit() for char in value) or not _SIGNS.isdisjoint(value)):
        return not _DESCRIBED.fullmatch(value) and not (quoted and value.count(" ") > 4)
    return quoted and len(value) >= _LEAST_WORD_CHARS and value.isascii() and value.isalpha() and value[1:].islower()


def is_key(value: str) -> bool:
    """Whether a text may be a key or token: long, and drawn rather than written."""
    if len(value) < _LEAST_KEY_CHARS or " " in value or not _is_secret(value):
        return False
    kinds = (str.isupper, str.islower, str.isdigit)
    if len(value) >= 20 and all(any(kind(char) for char in value) for kind in kinds) and len(set(value)) >= 14:
        return True
    runs = (run[0] for run in _RUN.finditer(value) if len(run[0]) >= 8)
    return any(any(char.isdigit() for char in run) and any(char.isalpha() for char in run) for run in runs)


def _is_secret(value: str) -> bool:
    """Whether it is no placeholder, word of a manual, name in a program, path or address."""
    if value.strip(".!?").lower() in _COMMON:
        return False
    return not any(pattern.fullmatch(value) for pattern in (PLACEHOLDER, _NAME, _PLACE))
