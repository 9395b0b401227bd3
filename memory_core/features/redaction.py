"""Discretion: what the owner's setting makes of secrets in whatever a commit would store.

Owns the rule for each shape that comes in: operations, messages of a conversation, names, files of an export,
questions that go into the trail. Applied at the edge of the updater and the recorder, before anything is planned,
compared, logged, put into the ledger or shown to a model; so a message that is sent again is compared in the form in
which it was stored.

``refuse`` rejects the operation that holds a secret, alone. A message of a conversation is not refused but redacted
then too: a conversation with a hole in it is another conversation, and its calls could not be counted. So is a file
of an export, most of which is no secret. Names that
must stay exact (of a session, a request, a project) cannot be redacted and are refused. SEARCH text of a patch is
left alone: it is not stored, and a secret can only be taken out of a file by quoting it. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from memory_core.core.errors import ContentRejected
from memory_core.core.memory.message import Message, dump_lines, parse_lines
from memory_core.core.memory.operations import EditOp, MemoryData, MemoryOperations, OverviewOp, WriteOp
from memory_core.core.memory.results import Action, OperationResult
from memory_core.core.memory.trailer import join, split

_ANY = r"[0-9０-９]"
#: Behind four digits, since a pattern that begins with one is searched for much faster.
_BEFORE = rf"(?<![A-Za-z0-9_.+/\-０-９]{_ANY}{{4}})"
_AFTER = r"(?![A-Za-z0-9_０-９]|[.,:/\-][0-9０-９])"
_GAP = r"[ \-\u3000－‐\u00a0]"
_CARD = re.compile(
    rf"{_ANY}{{4}}{_BEFORE}(?:{_ANY}{{10,15}}|({_GAP}){_ANY}{{4}}\1{_ANY}{{4}}\1{_ANY}{{4}}(?:\1{_ANY}{{1,3}})?"
    rf"|({_GAP}){_ANY}{{6}}\2{_ANY}{{4,5}}){_AFTER}"
)
#: Numbers that are named otherwise are no cards, whatever their sum.
_NAMED_OTHERWISE = re.compile(
    r"(?:order|tracking|track|invoice|ticket|parcel|shipment|isbn|issn|imei|ean|upc|gtin|barcode|serial|phone|tel|mobile|"
    r"timestamp|commit|build|message[ _]?id|user[ _]?id|id|uid|订单|运单|快递|单号|编号|流水|条码|电话|手机|序列号)"
    r"(?:[ _]?(?:number|no|nr|id|code|号码|号|编号))?[\"'.]?\s{0,2}(?:#|is|was|=|:|：|是|为)?[\"']?\s{0,2}#?$",
    re.IGNORECASE,
)
_LOOK_BACK_CHARS = 40
#: Beginnings of numbers and how long they are then.
_ISSUERS: tuple[tuple[int, int, frozenset[int]], ...] = (
    (4, 4, frozenset({16, 19})),
    (51, 55, frozenset({16})),
    (2221, 2720, frozenset({16})),
    (34, 34, frozenset({15})),
    (37, 37, frozenset({15})),
    (6011, 6011, frozenset({16, 19})),
    (644, 659, frozenset({16, 19})),
    (3528, 3589, frozenset({16, 19})),
    (300, 305, frozenset({14})),
    (36, 36, frozenset({14})),
    (38, 39, frozenset({14})),
    (62, 62, frozenset({16, 17, 18, 19})),
    (2200, 2204, frozenset({16})),
)

_IDENTITY = re.compile(
    rf"{_ANY}{{4}}(?<![A-Za-z0-9_.０-９]{_ANY}{{4}}){_ANY}{{13}}[0-9０-９XxＸｘ](?![A-Za-z0-9_０-９])"
)
_IDENTITY_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_REGIONS = frozenset(
    {*range(11, 16), *range(21, 24), *range(31, 38), *range(41, 47), *range(50, 55), *range(61, 66), 71, 81, 82, 83}
)

_IBAN = re.compile(
    r"[A-Z]{2}[0-9]{2}(?<![A-Za-z0-9][A-Z]{2}[0-9]{2})(?:[A-Z0-9]{11,30}|(?: [A-Z0-9]{4}){2,7}(?: [A-Z0-9]{1,3})?)"
    r"(?![A-Za-z0-9])"
)
_IBAN_FORMS = """
AD:24 AE:23 AL:28 AT:20 AZ:28 BA:20 BE:16 BG:22 BH:22 BR:29 BY:28 CH:21 CR:22 CY:28 CZ:24 DE:22 DK:18 DO:28
EE:20 EG:29 ES:24 FI:18 FO:18 FR:27 GB:22 GE:22 GI:23 GL:18 GR:27 GT:28 HR:21 HU:28 IE:22 IL:23 IQ:23 IS:26
IT:27 JO:30 KW:30 KZ:20 LB:28 LC:32 LI:21 LT:20 LU:20 LV:21 MC:27 MD:24 ME:22 MK:19 MR:27 MT:31 MU:30 NL:18
NO:15 PK:24 PL:28 PS:29 PT:25 QA:29 RO:24 RS:22 SA:24 SC:31 SE:24 SI:19 SK:24 SM:27 ST:25 SV:28 TL:23 TN:24
TR:26 UA:29 VA:22 VG:24 XK:20
"""
_IBAN_LENGTHS = dict(form.split(":") for form in _IBAN_FORMS.split())


def numbers(text: str) -> Iterator[Span]:
    """(kind, start, end) of every number that is a card's, a person's or an account's."""
    for match in _CARD.finditer(text):
        before = text[max(0, match.start() - _LOOK_BACK_CHARS) : match.start()]
        if _is_card(match[0]) and not _NAMED_OTHERWISE.search(before):
            yield "card number", *match.span()
    for match in _IDENTITY.finditer(text):
        if _is_identity(match[0]):
            yield "identity number", *match.span()
    for match in _IBAN.finditer(text):
        if _is_iban(match[0].replace(" ", "")):
            yield "bank account", *match.span()


def digits_of(text: str) -> str:
    """The decimal digits of a text, as ASCII."""
    return "".join(str(int(char)) for char in text if char.isdecimal())


def _is_card(text: str) -> bool:
    digits = digits_of(text)
    known = any(low <= int(digits[: len(str(low))]) <= high and len(digits) in sizes for low, high, sizes in _ISSUERS)
    if not known or len(set(digits)) < 2:  # nobody's, though the sum may fit
        return False
    doubled = (int(digit) * 2 for digit in digits[-2::-2])
    return (sum(int(digit) for digit in digits[::-2]) + sum(value - 9 * (value > 9) for value in doubled)) % 10 == 0


def _is_identity(text: str) -> bool:
    digits = digits_of(text)
    if int(digits[:2]) not in _REGIONS:
        return False
    try:
        born = date(int(digits[6:10]), int(digits[10:12]), int(digits[12:14]))
    except ValueError:
        return False
    total = sum(int(digit) * weight for digit, weight in zip(digits, _IDENTITY_WEIGHTS, strict=False))
    check = "10X98765432"[total % 11]
    last = digits[17] if len(digits) == 18 else "X"
    return 1900 <= born.year <= 2099 and last == check


def _is_iban(text: str) -> bool:
    if str(len(text)) != _IBAN_LENGTHS.get(text[:2]):
        return False
    return int("".join(str(int(char, 36)) for char in text[4:] + text[:4])) % 97 == 1


#: A token does not start or end inside a longer word; a path or a query may hold it.
_START = r"(?<![A-Za-z0-9_\-])"
_END = r"(?![A-Za-z0-9_\-])"
_KEY_LIMIT_CHARS = 65_536
_BEGIN = "-----BEGIN "
_CLOSE = "-----END "
#: A line that is no prose, and as much as follows of such lines and of the headers before them.
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{40}")
_KEY_GAP = r"(?:\s|\\[nrt])"
_KEY_BODY = re.compile(
    rf"(?:{_KEY_GAP}{{1,4}}[A-Za-z\-]{{1,24}}: [^\n\\]{{1,120}}){{0,8}}"
    rf"(?:{_KEY_GAP}{{0,6}}[A-Za-z0-9+/=]{{16,}}){{0,1000}}"
    rf"(?:{_KEY_GAP}{{1,4}}[A-Za-z0-9+/]{{1,80}}(?:={{1,2}}|(?=\s{{0,9}}\Z)))?"
)
#: What stands for a password in examples.
PLACEHOLDER = re.compile(
    r"[*•·.…xX#_\-?]*|<.*|\$.*|\{.*|%.*|\[.*|\(.*|(?:your|my|the|some|new|old|test|this)?[_\- ]?(?:user[_\-]?)?"
    r"(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|key|api[_\-]?key)(?:[_\-]?here)?"
    r"|your.*|example.*|.*example|placeholder|redacted|change[_\-]?me|insert.*|dummy.*|sample.*",
    re.IGNORECASE | re.DOTALL,
)

Span = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class _Rule:
    """What one kind of token looks like; a group, where there is one, is the secret in it."""

    kind: str
    literals: tuple[str, ...]
    pattern: re.Pattern[str]
    holds: Callable[[str], bool] | None = None


def _mixed(token: str) -> bool:
    """Whether digits and letters are both there: no word, no number."""
    return any(char.isdigit() for char in token) and any(char.isalpha() for char in token)


def _random(token: str) -> bool:
    """Whether a base64 text of fixed length looks drawn: three kinds of characters, few repeated."""
    kinds = (str.isupper, str.islower, str.isdigit)
    return all(any(kind(char) for char in token) for kind in kinds) and len(set(token)) >= 16


def _no_example(token: str) -> bool:
    return not token.endswith("EXAMPLE")


def _is_password(text: str) -> bool:
    return PLACEHOLDER.fullmatch(text) is None


def _is_basic(text: str) -> bool:
    """Whether base64 holds ``name:password``."""
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return False
    name, colon, password = plain.partition(":")
    return bool(name.isprintable() and colon and password)


def _rule(
    kind: str, literals: str, pattern: str, holds: Callable[[str], bool] | None = None, *, bare: bool = False
) -> _Rule:
    whole = pattern if bare else f"{_START}{pattern}{_END}"
    return _Rule(kind, tuple(literals.split()), re.compile(whole), holds)


_URL_SAFE = r"[A-Za-z0-9_\-]"
_RULES = (
    _rule("AWS access key", "AKIA ASIA ABIA ACCA", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}", _no_example),
    _rule(
        "AWS secret key",
        "aws AWS ecret Secret",
        r"(?i:aws|secret)[^\n]{0,40}?[^A-Za-z0-9/+\n]([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        lambda token: _random(token) and not token.endswith("EXAMPLEKEY"),
        bare=True,
    ),
    _rule("Google API key", "AIza", rf"AIza{_URL_SAFE}{{35}}"),
    _rule("Google token", "ya29. GOCSPX- 1//0",
          rf"(?:ya29\.{_URL_SAFE}{{20,}}|GOCSPX-{_URL_SAFE}{{28}}|1//0{_URL_SAFE}{{30,}})"),
    _rule("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
          r"(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{22,})", _mixed),
    _rule("GitLab token", "glpat- gldt- glrt- glcbt- glptt- glft- glsoat- glagent- gloas- glimt- glffct-",
          rf"gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|oas|imt|ffct)-{_URL_SAFE}{{20,}}(?:\.{_URL_SAFE}+)*"),
    _rule("Slack token", "xox xapp-",
          r"(?:xox[abceoprs]-(?:\d-)?[A-Za-z0-9\-]{10,}|xapp-\d-[A-Za-z0-9\-]{20,})", _mixed),
    _rule("Slack webhook", "hooks.slack.com",
          r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9+/]{20,})", bare=True),
    _rule("Discord webhook", "/api/webhooks/", rf"/api/webhooks/\d{{15,22}}/({_URL_SAFE}{{40,}})", bare=True),
    _rule("Stripe key", "sk_live_ sk_test_ rk_live_ rk_test_ whsec_",
          r"(?:[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/]{24,})", _mixed),
    _rule("Anthropic API key", "sk-ant-", rf"sk-ant-{_URL_SAFE}{{20,}}", _mixed),
    _rule("OpenAI API key", "sk-proj- sk-svcacct- sk-admin- T3BlbkFJ",
          rf"(?:sk-(?:proj|svcacct|admin)-{_URL_SAFE}{{20,}}|sk-[A-Za-z0-9]{{20}}T3BlbkFJ[A-Za-z0-9]{{20}})", _mixed),
    _rule("API key", "sk- gsk_ xai- pplx- r8_ nvapi-",
          rf"(?:sk-(?:or-v1-)?[A-Za-z0-9]{{32,}}|gsk_[A-Za-z0-9]{{40,}}|xai-[A-Za-z0-9]{{60,}}|pplx-[A-Za-z0-9]{{40,}}"
          rf"|r8_[A-Za-z0-9]{{37}}|nvapi-{_URL_SAFE}{{60,}})", _mixed),
    _rule("Hugging Face token", "hf_", r"hf_[A-Za-z0-9]{30,}", lambda token: len(set(token)) >= 12),
    _rule("npm token", "npm_", r"npm_[A-Za-z0-9]{36}", _mixed),
    _rule("PyPI token", "pypi-AgE", rf"pypi-AgE{_URL_SAFE}{{40,}}"),
    _rule("Telegram bot token", ":AA", rf"\d{{8,10}}:AA{_URL_SAFE}{{33}}"),
    _rule("Twilio key", "SK", r"SK[0-9a-f]{32}"),
    _rule("SendGrid key", "SG.", rf"SG\.{_URL_SAFE}{{16,32}}\.{_URL_SAFE}{{30,64}}"),
    _rule("Mailgun key", "key-", r"key-[0-9a-f]{32}"),
    _rule("DigitalOcean token", "dop_v1_ doo_v1_ dor_v1_", r"do[opr]_v1_[0-9a-f]{64}"),
    _rule("Shopify token", "shp", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _rule("Databricks token", "dapi", r"dapi[0-9a-f]{32}(?:-\d)?"),
    _rule("Docker token", "dckr_", rf"dckr_(?:pat|oat)_{_URL_SAFE}{{20,}}"),
    _rule("Grafana token", "glsa_ glc_", r"(?:glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}|glc_[A-Za-z0-9+/]{32,})"),
    _rule("Vault token", "hvs. hvb.", rf"hv[sb]\.{_URL_SAFE}{{24,}}"),
    _rule("Notion token", "ntn_ secret_", r"(?:ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43})", _mixed),
    _rule("Linear key", "lin_api_", r"lin_api_[A-Za-z0-9]{32,}"),
    _rule("Figma token", "figd_", rf"figd_{_URL_SAFE}{{30,}}"),
    _rule("Atlassian token", "ATATT3 ATCTT3", rf"AT[AC]TT3{_URL_SAFE}{{50,}}(?:=[0-9A-F]{{8}})?"),
    _rule("Azure storage key", "AccountKey=", r"AccountKey=([A-Za-z0-9+/]{86}==)", bare=True),
    _rule("cloud access key", "LTAI AKID", r"(?:LTAI[A-Za-z0-9]{16,24}|AKID[A-Za-z0-9]{32})", _mixed),
    _rule("age key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    _rule("Runebook token", "rb_", rf"rb_[0-9a-f]{{12}}_{_URL_SAFE}{{43}}"),
    _rule("JSON web token", "eyJ", rf"eyJ{_URL_SAFE}{{8,}}\.eyJ{_URL_SAFE}{{8,}}\.{_URL_SAFE}{{8,}}"),
    _rule("bearer token", "earer EARER",
          r"(?i:bearer)[ \t]{1,4}([A-Za-z0-9._~+/\-]{20,4096}={0,2})", _mixed, bare=True),
    _rule("credentials of a header", "asic ASIC",
          r"(?i:basic)[ \t]{1,4}([A-Za-z0-9+/]{6,512}={0,2})", _is_basic, bare=True),
    _rule("password in a URL", "://",
          r"""://[^\s/:@'"<>`]{0,128}:([^\s/@'"<>`]{1,256})@(?=[\w\[.])""", _is_password, bare=True),
    _rule("credentials of a request", "curl",
          r"""curl\b[^\n]{0,200}?[ \t](?:-u|--user)[ =]?['"]?[^\s:'"]{1,64}:([^\s'"]{3,256})""",
          _is_password, bare=True),
)  # fmt: skip
#: One flat loop over them costs a fifth of one for each rule, and most texts hold none.
_LITERALS = tuple((literal, index) for index, rule in enumerate(_RULES) for literal in rule.literals)


def tokens(text: str) -> Iterator[Span]:
    """(kind, start, end) of every secret that its form gives away; they may overlap."""
    yield from _private_keys(text)
    wanted = {index for literal, index in _LITERALS if literal in text}
    for index in sorted(wanted):
        rule = _RULES[index]
        group = 1 if rule.pattern.groups else 0
        for match in rule.pattern.finditer(text):
            if rule.holds is None or rule.holds(match[group]):
                yield rule.kind, *match.span(group)


def _private_keys(text: str) -> Iterator[Span]:
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
            if _KEY_LINE.search(text, head + 5, min(closing, head + 1_000)):
                after = _end_of_key(text, head + 5, closing)
                yield "private key", at, after
        at = text.find(_BEGIN, after)


def _end_of_key(text: str, start: int, closing: int) -> int:
    """Where a block ends: behind its last line, or where what follows can be no part of it."""
    last = text.find("-----", closing + len(_CLOSE), closing + 80)
    if last >= 0 and closing - start <= _KEY_LIMIT_CHARS and text.find(_BEGIN, start, closing) < 0:
        return last + 5
    body = _KEY_BODY.match(text, start)
    return start if body is None else body.end()


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


Mode = Literal["refuse", "redact", "warn", "off"]
_CARD_KIND = "card number"
_NUMBERS = frozenset({_CARD_KIND, "identity number", "bank account"})
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
    ending = f" ending {digits_of(secret)[-4:]}" if kind == _CARD_KIND else ""
    return f"{_MARK}{kind}{ending}]"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _is_hexadecimal(text: str) -> bool:
    return all(char in "0123456789abcdefABCDEF" for char in text)


_REFUSED_HINT = "Leave the secret out, or let the owner change the settings secrets or secrets_allowed."
_IDENTIFIER_HINT = "Use another name: one that is no key, token or password."
_SEARCH = re.compile(r"^<<<<<<< SEARCH[ \t]*\r?$.*?^=======[ \t]*\r?$", re.MULTILINE | re.DOTALL)
_NOTES_LIMIT = 20

Op = TypeVar("Op", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Cleared:
    """Operations that may be planned, what was refused of them, and what a receipt says about it."""

    operations: MemoryOperations
    refused: tuple[OperationResult, ...] = ()
    notes: tuple[str, ...] = ()


class Redaction:
    """Applies one setting.

    Args:
        mode: What becomes of a secret.
        allowed: Strings that are none; see ``Discreet``.
    """

    def __init__(self, mode: Mode, allowed: Iterable[str] = ()) -> None:
        self._mode = mode
        self._discreet = Discreet(allowed)

    def text(self, text: str) -> str:
        """A text of ours that may quote a secret, such as a reason or a question; with marks unless all is stored."""
        return text if self._mode in ("off", "warn") else self._discreet.text(text)[0]

    def result(self, result: OperationResult) -> OperationResult:
        """A line of a receipt, which may quote what was sent; receipts are kept."""
        reason, hint, note = (
            None if text is None else self.text(text) for text in (result.reason, result.hint, result.note)
        )
        return replace(result, reason=reason, hint=hint, note=note)

    def check_names(self, **names: str | None) -> None:
        """Refuse names that must stay exact and hold a secret.

        Raises:
            ContentRejected: If one does.
        """
        for name, value in names.items():
            self._check_name(name, value)

    def _check_name(self, name: str, value: str | None) -> None:
        if value is None or self._mode in ("off", "warn"):
            return
        kind = self._discreet.in_name(value)
        if kind is not None:
            raise ContentRejected(f"{name} holds what looks like a secret ({kind}).", hint=_IDENTIFIER_HINT)

    def messages(self, messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        """Messages as they are stored, and notes for the receipt."""
        if self._mode == "off":
            return tuple(messages), ()
        places: list[Place] = []
        kept = [self._message(message, f"messages[{index}]", places) for index, message in enumerate(messages)]
        return tuple(messages if self._mode == "warn" else kept), self._notes(places)

    def _message(self, message: Message, where: str, places: list[Place]) -> Message:
        def clean(value: Any, name: str) -> Any:
            return self._discreet.value(value, f"{where}.{name}", places)

        calls = tuple(
            replace(
                call,
                call_id=clean(call.call_id, "tool_calls.id"),
                name=clean(call.name, "tool_calls.name"),
                arguments=clean(call.arguments, f"tool_calls[{index}].arguments"),
                skill_name=clean(call.skill_name, "tool_calls.skill_name"),
            )
            for index, call in enumerate(message.tool_calls)
        )
        results = tuple(
            replace(
                result,
                call_id=clean(result.call_id, "tool_results.id"),
                name=clean(result.name, "tool_results.name"),
                text=clean(result.text, f"tool_results[{index}].content"),
                status=clean(result.status, "tool_results.status"),
            )
            for index, result in enumerate(message.tool_results)
        )
        return replace(
            message,
            role=clean(message.role, "role"),
            text=clean(message.text, "content"),
            name=clean(message.name, "name"),
            message_id=clean(message.message_id, "id"),
            tool_calls=calls,
            tool_results=results,
            extra=clean(dict(message.extra), "extra"),
        )

    def file(self, text: str, where: str, *, log: bool) -> tuple[str, tuple[str, ...]]:
        """A file that comes from elsewhere, as it is stored, and notes; ``log`` is one with a message a line."""
        if self._mode == "off":
            return text, ()
        places: list[Place] = []
        if log:
            clean = "".join(self._line(line, where, places) for line in text.splitlines(keepends=True))
        else:
            clean = self._memory(text, where, places)
        notes = self._notes([Place(place.kind, where) for place in places])
        return (text if self._mode == "warn" or not places else clean), notes

    def _line(self, line: str, where: str, places: list[Place]) -> str:
        messages, damage = parse_lines(line)
        if damage:
            return str(self._discreet.value(line, where, places))
        found = len(places)
        clean = [self._message(message, where, places) for message in messages]
        return dump_lines(clean) if len(places) > found else line

    def _memory(self, text: str, where: str, places: list[Place]) -> str:
        file = split(text)
        body = self._discreet.value(file.body, where, places)
        trailer = None if file.trailer is None else self._discreet.value(dict(file.trailer), where, places)
        return join(body, trailer)

    def keeps(self, value: Any) -> bool:
        """Whether a JSON value may be stored as it is."""
        places: list[Place] = []
        if self._mode not in ("off", "warn"):
            self._discreet.value(value, places=places)
        return not places

    def operations(self, operations: MemoryOperations) -> Cleared:
        """Operations as they may be planned."""
        if self._mode == "off":
            return Cleared(operations)
        places: list[Place] = []
        refused: list[OperationResult] = []
        kept: dict[str, Any] = {
            name: self._each(getattr(operations, name), name, places, refused)
            for name in ("write_operations", "edit_operations", "delete_operations", "overview_operations")
        }
        kept["reasoning"] = self._discreet.value(operations.reasoning, "reasoning", places)
        changed = operations if self._mode == "warn" else operations.model_copy(update=kept)
        return Cleared(changed, tuple(refused), self._notes(places))

    def _each(
        self, operations: Sequence[Op], group: str, places: list[Place], refused: list[OperationResult]
    ) -> list[Op]:
        kept: list[Op] = []
        for index, operation in enumerate(operations):
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
        """The operation without secrets. URIs stay: they name what is there already."""
        if isinstance(operation, WriteOp):
            memory_data = self._model(operation.memory_data, f"{where}.memory_data", places, skip=("links",))
            extra = self._discreet.value(dict(operation.model_extra or {}), where, places)
            return operation.model_copy(update={"memory_data": memory_data, **extra})
        if isinstance(operation, EditOp):
            patches = {
                name: self._patch(patch, f"{where}.patches.{name}", places, name)
                for name, patch in operation.patches.items()
            }
            return operation.model_copy(update={"patches": patches})
        if isinstance(operation, OverviewOp):
            given = {name: getattr(operation, name) for name in ("abstract", "overview")}
            patches = {name: self._patch(text, f"{where}.{name}", places, name) for name, text in given.items()}
            return operation.model_copy(update=patches)
        return self._model(operation, where, places, skip=("uri", "replacement_uri"))

    def _model(self, model: Op, where: str, places: list[Place], skip: tuple[str, ...]) -> Op:
        members = {name: value for name, value in model if name not in skip}
        clean = self._discreet.value(members, where, places)
        copied = model.model_copy(update=clean)
        if isinstance(copied, MemoryData) and isinstance(model, MemoryData):
            copied.sourced(model.source, model.said_at)
        return copied

    def _patch(self, patch: Any, where: str, places: list[Place], name: str) -> Any:
        if isinstance(patch, list):
            return [
                block.model_copy(
                    update={"replace": self._replaced(block.replace, block.search, f"{where}[{index}]", places)}
                )
                for index, block in enumerate(patch)
            ]
        if not isinstance(patch, str) or "<<<<<<< SEARCH" not in patch:
            return self._discreet.value(patch, where, places, name)
        searches = [(match.start(), match.end()) for match in _SEARCH.finditer(patch)]
        quoted = "\n".join(patch[start:end] for start, end in searches)

        def stands(secret: Secret) -> bool:
            inside = any(start <= secret.start < end for start, end in searches)
            return inside or patch[secret.start : secret.end] in quoted

        clean, kinds = self._discreet.text(patch, stands)
        places += [Place(kind, where) for kind in kinds]
        return clean

    def _replaced(self, text: str, search: str, where: str, places: list[Place]) -> str:
        """Text that takes the place of another; a secret that stood there already is not new."""
        clean, kinds = self._discreet.text(text, lambda secret: text[secret.start : secret.end] in search)
        places += [Place(kind, where) for kind in kinds]
        return clean

    def _notes(self, places: Sequence[Place]) -> tuple[str, ...]:
        """A line for each place."""
        told = "stored as it came, though it looks like a secret" if self._mode == "warn" else "not stored, redacted"
        lines = list(dict.fromkeys(f"{told}: {place.kind} in {place.where}" for place in places))
        more = len(lines) - _NOTES_LIMIT
        return (*lines[:_NOTES_LIMIT], *((f"and {more} more places with secrets",) if more > 0 else ()))
