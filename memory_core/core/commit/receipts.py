"""Receipts of several commits that belong together: a recorded conversation, and what was made of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memory_core.core.llm.client import TokenUsage
from memory_core.core.memory.results import Action, CommitReceipt, OperationResult, as_json, status_of
from memory_core.core.memory.uri import MemoryUri

#: The line of a receipt that says what became of a conversation's memories.
EXTRACTION = "extraction"


def still_waits(receipt: CommitReceipt) -> bool:
    """Whether messages wait for extraction yet; proposals that wait for their owner do not count."""
    return any(result.op == EXTRACTION and result.action is Action.QUEUED for result in receipt.results)


def merged(recorded: CommitReceipt, log: MemoryUri, extracted: CommitReceipt) -> CommitReceipt:
    """The receipt of a recorded conversation together with what was made of the session ``log``."""
    own = any((result.op, result.uri) == ("messages", str(log)) for result in recorded.results)
    waited = tuple(result for result in recorded.results if (result.op, result.uri) != (EXTRACTION, str(log)))
    whole = added(replace(recorded, results=waited), extracted)
    return replace(whole, working_memory=extracted.working_memory) if own else whole


def added(recorded: CommitReceipt, extracted: CommitReceipt) -> CommitReceipt:
    """The receipt of a recorded conversation together with what was made of some of its messages, or of others."""
    results = (*recorded.results, *extracted.results)
    notes = (*recorded.notes, *extracted.notes)
    if recorded.commit_id and extracted.commit_id:
        notes = (*notes, f"the memories are commit {extracted.commit_id}")
    usage = {**(recorded.usage or {})}
    for name, count in (extracted.usage or {}).items():
        usage[name] = usage.get(name, 0) + count
    return replace(
        recorded,
        commit_id=recorded.commit_id or extracted.commit_id,
        status=status_of(results),
        results=results,
        similar=(*recorded.similar, *extracted.similar),
        notes=notes,
        usage=usage or None,
    )


def summed(receipts: Sequence[CommitReceipt], results: Sequence[OperationResult], usage: TokenUsage) -> CommitReceipt:
    """One receipt of all commits of an extraction; it bears the id of the last that changed something."""
    every = tuple(result for receipt in receipts for result in receipt.results) + tuple(results)
    told = [receipt.working_memory["summary"] for receipt in receipts if receipt.working_memory]
    return CommitReceipt(
        commit_id=next((receipt.commit_id for receipt in reversed(receipts) if receipt.commit_id), ""),
        status=status_of(every),
        results=every,
        notes=tuple(dict.fromkeys(note for receipt in receipts for note in receipt.notes)),
        usage=as_json(usage) if usage.requests else None,
        working_memory={"open_tasks": [], "summary": " ".join(told)} if told else None,
    )
