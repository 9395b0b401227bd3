"""Secrets that their issuers mark: prefixes of tokens, blocks of private keys, passwords in URLs and headers.

Prefixes and lengths are what the issuers publish. Every pattern starts at a literal and where a token can start,
and is linear in the text; a rule whose literal is not in the text costs one ``in``. Pure.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
