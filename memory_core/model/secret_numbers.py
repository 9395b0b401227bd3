"""Secrets that a checksum gives away: payment cards, Chinese identity numbers, bank accounts (IBAN).

Precision comes from the checksum together with what the number must begin with (an issuer's range, a region and a
birthday, a country and its length). Full-width digits count. Pure, linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date

from memory_core.model.secret_tokens import Span

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
