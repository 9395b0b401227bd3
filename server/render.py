"""Results as a model reads them: short text beside structured content, with the same facts.

Keeps every result under ``RESULT_LIMIT_CHARS`` in both forms together, drops whole entries from the end,
and says what was left out and how to get it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from mcp.types import CallToolResult, TextContent

from memory_core.model.changes import CommitReceipt, Status
from memory_core.model.hits import ContextPack, FindResult, Hit, Listings, ReadResult

RESULT_LIMIT_CHARS = 40_000
#: A read's content is capped at this: it travels twice, as text and as structured content.
CONTENT_LIMIT_CHARS = 17_000

T = TypeVar("T")


def failure(message: str) -> CallToolResult:
    """An error result; hosts show its text."""
    return CallToolResult(content=[TextContent(type="text", text=message)], is_error=True)


def result(text: str, facts: dict[str, Any], *, is_error: bool = False) -> CallToolResult:
    """A result with the same facts in both forms."""
    content = [TextContent(type="text", text=text)]
    return CallToolResult(content=content, structured_content=facts, is_error=is_error)


def receipt_text(receipt: CommitReceipt) -> str:
    """A receipt, a line for each operation."""
    head = f"{receipt.status}" + (f" ({receipt.commit_id})" if receipt.commit_id else "")
    lines = [head]
    for item in receipt.results:
        line = f"- {item.action}: {item.uri or item.op}"
        if item.reason:
            line += f". {item.reason}"
        if item.hint:
            line += f" Next: {item.hint}"
        if item.note:
            line += f" ({item.note})"
        lines.append(line)
    if receipt.usage:
        lines.append("counts: " + ", ".join(f"{name} {count}" for name, count in receipt.usage.items()))
    if receipt.similar:
        near = ", ".join(f"{item.uri} ({item.score:.2f})" for item in receipt.similar)
        lines.append(f"similar, kept apart: {near}")
    lines += [f"note: {note}" for note in receipt.notes]
    return "\n".join(lines)


def receipt_result(receipt: CommitReceipt) -> CallToolResult:
    """A receipt; an error only when nothing at all was stored."""
    rejected = receipt.status is Status.REJECTED
    return _fitted(
        receipt,
        len(receipt.results),
        lambda whole, count: replace(whole, results=whole.results[:count]),
        receipt_text,
        CommitReceipt.as_dict,
        "results; the commit itself is whole",
        is_error=rejected,
    )


def find_text(found: FindResult) -> str:
    """Hits, best first, each with its address, score and reasons."""
    lines = [f"{found.total} found" + (":" if found.total else ".")]
    for rank, hit in enumerate(found.hits, 1):
        why = ", ".join(f"{name} {value:.2f}" for name, value in hit.why.items())
        lines.append(f"{rank}. {hit.abstract}\n   {hit.uri} [{_kind(hit)}, score {hit.score:.2f}: {why}]")
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])


def find_result(found: FindResult) -> CallToolResult:
    """Hits, as many of the best as fit."""

    def best(whole: FindResult, count: int) -> FindResult:
        kept = {id(hit) for hit in whole.hits[:count]}
        groups = {
            name: tuple(hit for hit in getattr(whole, name) if id(hit) in kept)
            for name in ("memories", "resources", "skills")
        }
        return replace(whole, **groups)

    return _fitted(
        found, found.total, best, find_text, FindResult.as_dict, "hits; ask again with a smaller limit or a filter"
    )


def listings_text(listings: Listings) -> str:
    """Entries, one a line."""
    if not listings.entries:
        return "Nothing here yet."
    lines = [f"{entry.uri}" + (f"  {entry.abstract}" if entry.abstract else "") for entry in listings.entries]
    if listings.left_out:
        lines.append(f"… and {listings.left_out} more; list a directory below, or raise node_limit")
    return "\n".join(lines)


def listing_result(listings: Listings) -> CallToolResult:
    """Entries, as many of the first as fit."""
    return _fitted(
        listings,
        len(listings.entries),
        lambda whole, count: Listings(whole.entries[:count], whole.left_out + len(whole.entries) - count),
        listings_text,
        Listings.as_dict,
        "entries; list a directory below",
    )


def read_text(page: ReadResult) -> str:
    """The lines themselves, and where to go on."""
    if page.next_offset is None:
        return page.content
    last = page.next_offset
    return f"{page.content}\n[lines {page.first_line}–{last - 1} of {page.total_lines}; go on with offset {last}]"


def read_result(page: ReadResult) -> CallToolResult:
    """Lines of a file."""
    return result(read_text(page), page.as_dict())


def retrieve_result(pack: ContextPack) -> CallToolResult:
    """A context pack; the text is whole, the structured form names what is in each part."""
    lines = [pack.text] if pack.text else ["Nothing is stored yet that fits."]
    if pack.left_out:
        shown = ", ".join(pack.left_out[:10])
        lines.append(f"[left out for the budget: {len(pack.left_out)}: {shown}]")
    lines += [f"note: {note}" for note in pack.notes]
    facts = pack.as_dict()
    if len(json.dumps(facts, ensure_ascii=False)) + len(pack.text) > RESULT_LIMIT_CHARS:
        for part in facts["parts"]:
            del part["text"]
    return result("\n".join(lines), facts)


def _kind(hit: Hit) -> str:
    return hit.memory_type or hit.context_type


def _fitted(
    whole: T,
    count: int,
    first: Callable[[T, int], T],
    text: Callable[[T], str],
    facts: Callable[[T], dict[str, Any]],
    what: str,
    *,
    is_error: bool = False,
) -> CallToolResult:
    """The result with as many leading entries as stay under the limit."""
    kept = count
    while True:
        part = whole if kept == count else first(whole, kept)
        shown, members = text(part), facts(part)
        size = len(shown) + len(json.dumps(members, ensure_ascii=False))
        if size <= RESULT_LIMIT_CHARS or kept == 0:
            break
        kept = min(kept - 1, int(kept * RESULT_LIMIT_CHARS / size))
    if kept < count:
        cut = f"left out {count - kept} {what}"
        shown = f"{shown}\nnote: {cut}"
        members = {**members, "notes": [*members.get("notes", []), cut]}
    return result(shown, members, is_error=is_error)
