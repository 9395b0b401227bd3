"""Results as text, for people and for models, and as results of MCP tools, which carry the same facts in both forms."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from memory_core.core.memory.results import (
    DEEPER_MOST,
    CommitReceipt,
    ContextPack,
    FindResult,
    Hit,
    Listings,
    OperationResult,
    ReadResult,
    Status,
    as_json,
)

if TYPE_CHECKING:
    from mcp.types import CallToolResult


RESULT_LIMIT_CHARS = 40_000
#: A read's content is capped at this: it travels twice, as text and as structured content.
CONTENT_LIMIT_CHARS = 17_000
_NOTE_CHARS = 400
_FAILURE_LIMIT_CHARS = 4_000
_BRIEF_ELSEWHERE = (
    "The brief of this conversation is too long for a receipt: take it with the prompt extract_memories and this "
    "session_id, or lower extraction.brief_tokens."
)
_REASON_LIMIT_CHARS = 1_000
_ALSO_SHOWN = 5
_RIVALS_SHOWN = 3
_LINKS_SHOWN = 20
_LEAST_BUDGET_TOKENS = 200
#: What becomes of a file is less than what is done to the memory.
_DONE = {("archive", "deleted"): "archived", ("restore", "created"): "restored"}
#: A hit of a lower lexical and semantic share seldom answers: what does comes to 0.3 and more, also across languages.
_WEAK = 0.2

T = TypeVar("T")


def failure(message: str) -> CallToolResult:
    """An error result; hosts show its text. What a caller sent is not echoed back at any length."""
    return result(_clipped(message, _FAILURE_LIMIT_CHARS), None, is_error=True)


def result(text: str, facts: dict[str, Any] | None, *more: str, is_error: bool = False) -> CallToolResult:
    """A result with the same facts in both forms; ``more`` are texts that stand apart from the first."""
    from mcp.types import CallToolResult, TextContent  # a command has no time for it

    content = [TextContent(type="text", text=each) for each in (text, *filter(None, more))]
    return CallToolResult(content=content, structured_content=facts, is_error=is_error)


def plain_text(found: Any) -> str:
    """A result of any kind as the command line shows it."""
    if isinstance(found, CommitReceipt):
        return receipt_text(found)
    if isinstance(found, FindResult):
        return find_text(found, tells_weak=True)
    if isinstance(found, Listings):
        return listings_text(found, as_options=True)
    if isinstance(found, ReadResult):
        links = links_text(found)
        return found.content.removesuffix("\n") + (f"\n\n{links}" if links else "")
    if isinstance(found, ContextPack):
        return found.text if found.messages is None else json.dumps(found.messages, ensure_ascii=False)
    if isinstance(found, Sequence):
        return "\n".join(plain_text(each) for each in found)
    return "\n".join(found.lines())


def receipt_text(receipt: CommitReceipt) -> str:
    """A receipt, a line for each operation."""
    lines = [_receipt_head(receipt)]
    for item in receipt.results:
        done = _DONE.get((item.op, item.action), item.action)
        line = f"- {done}: {item.uri or item.op}" + (f", in the project {item.project}" if item.project else "")
        if item.reason:
            line += f". {item.reason.rstrip('.')}."
        if item.hint:
            line += f" Next: {item.hint}"
        if item.note:
            line += f" ({item.note})"
        lines.append(_inside(line))
        if item.went:
            lines.append(_inside(f"  it no longer says: {item.went}"))
        if item.now:
            lines.append(_inside(f"  it says now: {item.now}"))
    if receipt.usage:
        lines.append("counts: " + ", ".join(f"{name} {count}" for name, count in receipt.usage.items()))
    if receipt.similar:
        near = ", ".join(f"{item.uri} ({item.score:.2f})" for item in receipt.similar)
        lines.append(f"similar, kept apart: {near}")
    lines += [_inside(f"note: {note}") for note in receipt.notes]
    if receipt.working_memory:
        lines.append(working_memory_text(receipt.working_memory))
    if receipt.brief:
        lines += ["", receipt.brief]
    return "\n".join(lines)


def _receipt_head(receipt: CommitReceipt) -> str:
    head = f"{receipt.status}" + (f" ({receipt.commit_id})" if receipt.commit_id else "")
    if receipt.space is not None:
        head += f" in the shared space {receipt.space}, by {receipt.author or 'unknown'}"
    return f"{head}: nothing was changed; this is what would be" if receipt.status is Status.DRY_RUN else head


def _inside(line: str) -> str:
    """A line of a receipt; what it quotes may have several, and none of them begins as a line of ours does."""
    return "\n    ".join(line.splitlines())


def working_memory_text(facts: Mapping[str, Any]) -> str:
    """What must stay in a compressed context."""
    lines = ["keep in the compressed context:"]
    lines += [_inside(f"  open: {task}") for task in facts.get("open_tasks", ())]
    if facts.get("summary"):
        lines.append(_inside(f"  summary: {facts['summary']}"))
    return "\n".join(lines)


def receipt_result(receipt: CommitReceipt) -> CallToolResult:
    """A receipt; an error only when nothing at all was stored."""
    brief = receipt.brief
    if brief is not None and len(brief) > CONTENT_LIMIT_CHARS + _NOTE_CHARS:
        brief = _BRIEF_ELSEWHERE
    receipt = replace(
        receipt,
        brief=brief,
        results=tuple(_short(item) for item in receipt.results),
        notes=tuple(_clipped(note, _REASON_LIMIT_CHARS) for note in receipt.notes),
    )
    tally = ", ".join(f"{count} {action}" for action, count in Counter(item.action for item in receipt.results).items())
    return _fitted(
        receipt,
        len(receipt.results),
        _troubled_first,
        receipt_text,
        f"results of {len(receipt.results)} ({tally}), refused ones are shown first; the commit itself is whole",
        is_error=receipt.status is Status.REJECTED,
    )


def _troubled_first(receipt: CommitReceipt, count: int) -> CommitReceipt:
    """The first ``count`` results, with those that say why before those that went well."""
    ordered = sorted(receipt.results, key=lambda item: item.reason is None)
    return replace(receipt, results=tuple(ordered[:count]))


def _short(item: OperationResult) -> OperationResult:
    """The result without the bulk of what the caller sent, which a reason may quote."""
    texts: dict[str, Any] = {name: getattr(item, name) for name in ("uri", "reason", "hint", "note")}
    clipped: dict[str, Any] = {
        name: text if text is None else _clipped(text, _REASON_LIMIT_CHARS) for name, text in texts.items()
    }
    return replace(item, **clipped)


def find_text(found: FindResult, *, tells_weak: bool = False) -> str:
    """Hits, best first, each with its address, score and reasons; ``tells_weak`` says where they hardly match."""
    lines = [f"{found.total} found" + (":" if found.total else ".")]
    all_weak = tells_weak and found.total > 0 and all(map(_is_weak, found.hits))
    if all_weak:
        lines = [f"{found.total} found, and all match weakly: perhaps nothing stored answers this."]
    tail = _tail_begins(found.hits) if tells_weak and not all_weak else None
    for rank, hit in enumerate(found.hits, 1):
        if rank - 1 == tail:
            lines.append("— from here on less than half of the first score —")
        why = ", ".join(f"{name} {value:.2f}" for name, value in hit.why.items())
        lines.append(f"{rank}. {hit.abstract}\n   {hit.uri} [{_kind(hit)}, score {hit.score:.2f}: {why}]")
        if hit.space is not None:
            lines.append(f"   shared space {hit.space}" + (f", written by {hit.author}" if hit.author else ""))
        if hit.confidence < 1.0:
            lines.append(f"   confidence {hit.confidence:.2f}")
        for rival in hit.rivals[:_RIVALS_SHOWN]:
            lines.append(f"   {rival.verb} {rival.uri} (strength {rival.strength:.2f}): {rival.abstract}")
        if hit.also:
            shown = ", ".join(hit.also[:_ALSO_SHOWN])
            lines.append(f"   the same {len(hit.also)} more times: {shown}{', …' if hit.also[_ALSO_SHOWN:] else ''}")
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])


def _is_weak(hit: Hit) -> bool:
    """Whether neither words nor meaning of a hit come near the question, and nothing else speaks for it."""
    if any(name in hit.why for name in ("rerank", "exact", "speaker", "date", "owner")):
        return False
    return max(hit.why.get("lexical", 0.0), hit.why.get("semantic", 0.0)) < _WEAK


def _tail_begins(hits: Sequence[Hit]) -> int | None:
    """From which hit on all are far below the best; None where none is."""
    near = [rank for rank, hit in enumerate(hits) if hit.score >= hits[0].score / 2 or hit.why.get("exact")]
    return near[-1] + 1 if near and near[-1] + 1 < len(hits) else None


def find_result(found: FindResult) -> CallToolResult:
    """Hits, as many of the best as fit."""

    def best(whole: FindResult, count: int) -> FindResult:
        kept = {id(hit) for hit in whole.hits[:count]}
        groups: dict[str, Any] = {
            name: tuple(hit for hit in getattr(whole, name) if id(hit) in kept)
            for name in ("memories", "resources", "skills")
        }
        return replace(whole, **groups)

    return _fitted(found, found.total, best, find_text, "hits; ask again with a smaller limit or a filter")


def listings_text(listings: Listings, *, as_options: bool = False) -> str:
    """Entries, one a line; ``as_options`` names arguments as the command line has them."""
    if not listings.entries:
        return "Nothing here yet."
    names = ("--node-limit", "--level-limit") if as_options else ("node_limit", "level_limit")
    lines = [f"{entry.uri}" + (f"  {entry.abstract}" if entry.abstract else "") for entry in listings.entries]
    if listings.left_out:
        lines.append(f"… and {listings.left_out} more; list a directory below, raise {names[0]}, or use find")
    if listings.deeper:
        more = " or more" if listings.deeper >= DEEPER_MOST else ""
        files = f"{listings.deeper:,}{more} file{'s' if listings.deeper > 1 else ''}"
        lines.append(
            f"… and {files} on deeper levels; {names[1]} {listings.levels} shows them, or list a directory below"
        )
    return "\n".join(lines)


def listing_result(listings: Listings) -> CallToolResult:
    """Entries, as many of the first as fit."""
    return _fitted(
        listings,
        len(listings.entries),
        lambda whole, count: replace(
            whole, entries=whole.entries[:count], left_out=whole.left_out + len(whole.entries) - count
        ),
        listings_text,
        'entries that did not fit; list a directory below, use output="original", or find with target_uri',
    )


def links_text(page: ReadResult) -> str:
    """The memories that a memory relates to, one a line; empty for none."""
    lines: list[str] = []
    for link in page.links[:_LINKS_SHOWN]:
        state = "" if link.state == "in use" else f", {link.state}"
        what = f": {link.abstract}" if link.abstract else ""
        lines.append(f"- {link.relation.replace('_', ' ')} {link.uri} (strength {link.strength:.2f}{state}){what}")
    more = [f"- and {len(page.links) - _LINKS_SHOWN} more"] if len(page.links) > _LINKS_SHOWN else []
    author = [f"Written by {page.author}"] if page.author else []
    return "\n".join([*author, *(["This memory", *lines, *more] if lines else [])])


def read_text(page: ReadResult) -> str:
    """The lines themselves, and where to go on."""
    if page.next_offset is None:
        return page.content
    last = page.next_offset
    if last == page.first_line:
        return f"[no lines asked for, of {page.total_lines}; go on with offset {last}]"
    return f"{page.content}\n[lines {page.first_line}–{last - 1} of {page.total_lines}; go on with offset {last}]"


def read_result(read: Callable[[int], ReadResult]) -> CallToolResult:
    """Lines of a file, as many as fit.

    Args:
        read: Reads with a limit in characters; asked again with a smaller one where escaping makes the
            structured form longer than the text.
    """
    limit_chars = CONTENT_LIMIT_CHARS
    while True:
        page = read(limit_chars)
        text, facts = read_text(page), as_json(page)
        links = links_text(page)
        size = _size(text + links, facts)
        if size < RESULT_LIMIT_CHARS or limit_chars < _NOTE_CHARS:
            return result(text, facts, links)
        limit_chars = int(limit_chars * 0.95 * RESULT_LIMIT_CHARS / size)


def smaller_budget(pack: ContextPack, budget_tokens: int) -> int | None:
    """The budget to pack for again, because no result can hold this pack; None where one can."""
    size = _size(f"{pack.shown}\n{pack.told}", pack.as_result())
    if size < RESULT_LIMIT_CHARS or budget_tokens <= _LEAST_BUDGET_TOKENS:
        return None
    return max(_LEAST_BUDGET_TOKENS, int(budget_tokens * 0.95 * RESULT_LIMIT_CHARS / size))


def retrieve_result(pack: ContextPack) -> CallToolResult:
    """A context pack in both forms, each within its budget; beside messages, what is told stands apart."""
    shown = pack.shown or "Nothing to recall here."
    if pack.messages is None:
        return result("\n".join(filter(None, (shown, pack.told))), pack.as_result())
    return result(shown, pack.as_result(), pack.told)


def _kind(hit: Hit) -> str:
    return hit.memory_type or hit.context_type


def _fitted(
    whole: T,
    count: int,
    first: Callable[[T, int], T],
    text: Callable[[T], str],
    what: str,
    *,
    is_error: bool = False,
) -> CallToolResult:
    """The result with as many leading entries as stay under the limit."""
    kept = count
    while True:
        part = whole if kept == count else first(whole, kept)
        shown, facts = text(part), as_json(part)
        limit = RESULT_LIMIT_CHARS if kept == count else RESULT_LIMIT_CHARS - 2 * _NOTE_CHARS
        size = _size(shown, facts)
        if size < limit or kept == 0:
            break
        kept = min(kept - 1, int(kept * limit / size))
    if kept < count:
        cut = f"left out {count - kept} {what}"
        shown = f"{shown}\nnote: {cut}"
        facts = {**facts, "notes": [*facts.get("notes", []), cut]}
    return result(shown, facts, is_error=is_error)


def _size(text: str, facts: dict[str, Any]) -> int:
    """Characters of both forms together."""
    return len(text) + len(json.dumps(facts, ensure_ascii=False))


def _clipped(text: str, limit: int) -> str:
    """The text; of a longer one its beginning and end, where the next step stands."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail]} […{len(text) - limit} characters left out…] {text[-tail:]}"
