"""Which texts of a memory's fields its body shows, and what a person says who corrects either by hand.

The program notes a digest of each text that it shows. So a text that left the body was taken out, and one that changed
in the trailer is another one now. Pure; what is noted where is decided in ``memory``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any

from memory_core.core.memory.field_values import plain
from memory_core.core.memory.memory_type import FieldValue, MemoryType
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.template import Frames, bare, captured, text_frames, text_names
from memory_core.core.text.language import sentence_spans, sentences

_DIGEST_CHARS = 8
_LABEL_DIGEST_CHARS = 4
#: So many places of a text in a body are looked at.
_PLACES = 100
_QUOTES = '"“”'
_LABEL = re.compile(r"[^:：]{1,60}[:：]")
_LABEL_BEFORE = re.compile(r"(\w[^:：,，;；.。!?！？\n]{0,59})[:：][^\w\n]{0,9}\Z")
_LABEL_REACH = 80
_PARAGRAPHS = re.compile(r"\n\s*\n")


def note_of(body: str, text: str, *, in_template: bool) -> str:
    """What is noted of a text that a body shows: a digest of it and, unless a template put it there, of its label."""
    return next(iter(() if in_template else _notes(body, text)), _digest(text))


def is_of(noted: Any, value: FieldValue) -> bool:
    """Whether that was noted of a text."""
    return str(noted)[:_DIGEST_CHARS] == _digest(value)


def shows(body: str, text: str) -> bool:
    """Whether a text stands in a body, however its lines are broken."""
    return text.strip() in body or " ".join(text.split()) in " ".join(body.split())


def with_content(body: str, content: str) -> str:
    """A body, and below it the paragraphs of the content beside it that it does not show."""
    shown = {" ".join(part.split()) for part in _PARAGRAPHS.split(body)}
    hidden = [part for part in _PARAGRAPHS.split(content.strip()) if " ".join(part.split()) not in shown]
    return "\n\n".join([*([body.rstrip()] if body.strip() else []), *hidden]) if hidden else body


def apart(memory_type: MemoryType, fields: Mapping[str, FieldValue], body: str) -> dict[str, FieldValue]:
    """The fields with what a rendered body that a person edited does not show of them, sentence by sentence."""
    names = text_names(memory_type)
    texts = {name: plain(value) for name, value in fields.items() if name in names}
    left = not_shown(texts, body, text_frames(memory_type, fields))
    return {name: left.get(name, value) for name, value in fields.items() if name not in names or name in left}


def not_shown(texts: Mapping[str, str], body: str, frames: Frames | None = None) -> dict[str, str]:
    """Texts without the sentences that a body has as its own, or in a frame; without those that it has whole.

    Args:
        texts: By name.
        body: A Markdown text.
        frames: What may stand before and behind a text in its lines (``text_frames``); by default any label, quotes.
    """
    if not texts:
        return {}
    lines = body.split("\n")
    said = {bare(each) for line in lines for each in sentences(line)}
    if frames is None:
        said |= {bare(_LABEL.sub("", each, count=1)) for each in said}
        said |= {each.strip(_QUOTES) for each in said}
    for prefix, suffix in frames or ():
        held = (line.removesuffix(suffix)[len(prefix) :] for line in map(bare, lines) if line.startswith(prefix))
        said.update(bare(each) for line in held for each in sentences(line))
    left = {name: _without(text, said) for name, text in texts.items()}
    return {name: text for name, text in left.items() if text}


def _without(text: str, said: Collection[str]) -> str:
    """A text without these sentences."""
    lines = []
    for line in text.split("\n"):
        spans = list(sentence_spans(line))
        ends = [*(start for start, _ in spans[1:]), len(line)]
        left = [
            line[start:following]
            for (start, end), following in zip(spans, ends, strict=False)
            if bare(line[start:end]) not in said
        ]
        if left or not spans:
            lines.append(line if len(left) == len(spans) else "".join(left).rstrip())
    return "\n".join(lines).strip()


def gone_from(body: str, texts: Mapping[str, str], known: Mapping[str, Any]) -> Collection[str]:
    """Names of the texts that a body showed, and does not show any longer, or only behind another label."""
    left = not_shown(texts, body)
    places = {name: set(islice(_notes(body, text), _PLACES)) for name, text in texts.items()}
    return {name for name, found in places.items() if name in left or (found and known[name] not in found)}


def with_corrections(
    memory_type: MemoryType, body: str, fields: Mapping[str, FieldValue], known: Mapping[str, Any]
) -> tuple[str, dict[str, FieldValue]]:
    """A body that says what a person corrected in the trailer, in place of what it showed of that.

    Args:
        memory_type: Its type.
        body: The Markdown above the trailer.
        fields: As the trailer has them.
        known: What is noted of the texts that were corrected; see ``Memory.shown``.

    Returns:
        The body, and in template mode the fields that are told beside it.
    """
    if memory_type.template_mode:
        said = [*(captured(memory_type, body) or {}).values()]
    else:
        lines = [bare(line) for line in body.split("\n")]
        lines += [bare(_LABEL.sub("", line, count=1)) for line in lines]
        said = [*_PARAGRAPHS.split(body), *lines, *(line.strip(_QUOTES) for line in lines)]
    texts = {_digest(text): text.strip() for text in said if text.strip()}
    found = ((name, texts.get(str(noted)[:_DIGEST_CHARS], "")) for name, noted in known.items())
    places = ((body.index(text), name, text) for name, text in found if text and body.count(text) == 1)
    left, before = dict(fields), len(body)
    for start, name, text in sorted(places, reverse=True):
        if start + len(text) <= before:
            body = body[:start] + plain(fields.get(name, "")).strip() + body[start + len(text) :]
            before = start
            if memory_type.template_mode:
                left.pop(name, None)
    return body, left


def _notes(body: str, text: str) -> Iterator[str]:
    """For each place where a body has a text, a digest of it, and one of the label before it."""
    text = text.strip()
    at = body.find(text) if text else -1
    while at >= 0:
        label = _LABEL_BEFORE.search(body, max(0, at - _LABEL_REACH), at)
        yield _digest(text) + (text_sha256(label[1].casefold())[:_LABEL_DIGEST_CHARS] if label else "")
        at = body.find(text, at + len(text))


def _digest(value: FieldValue) -> str:
    """Of what a field says."""
    return text_sha256(plain(value).strip())[:_DIGEST_CHARS]
