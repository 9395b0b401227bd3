"""Summaries: one call of a model for a whole batch of texts that are to be summarised.

Segments of conversations, months of logs, the rolling summary: whoever has an extract already asks here for
something better, and keeps the extract where there is no model, no answer, or none that can be used. An answer is
judged item by item, and written unless the file changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field

from memory_core.core.config import Config
from memory_core.core.errors import ModelFailed
from memory_core.core.extract.prompts import PromptLibrary, fenced
from memory_core.core.llm.client import LLMClient, TokenUsage, Turn
from memory_core.core.llm.structured import JSONAdapter
from memory_core.core.memory.results import (
    Action,
    ChangeSet,
    CommitReceipt,
    FileChange,
    OperationResult,
    Status,
    as_json,
)
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Snapshot
from memory_core.core.text.extractive_summary import numbers
from memory_core.core.text.tokens import count_tokens
from memory_core.features.upkeep.passes import commit

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

_PHASE = "summaries"
#: Items of one request: a model that is asked for more forgets some.
ITEMS_LIMIT = 40
#: Share of a prompt that the texts may take; the rest is the task and the schema.
_TEXT_SHARE = 0.8
#: An answer of more characters than it was allowed is still used up to here, beyond it the extract is kept.
_TOLERANCE = 1.5
_ITEM_TOKENS = 40
_NAMED = 3


@dataclass(frozen=True, slots=True)
class SummaryTask:
    """One item of a batch.

    Attributes:
        texts: What is summarised, in order.
        limit_chars: Of the summary. A number that no text names is refused.
    """

    texts: tuple[str, ...]
    limit_chars: int


@dataclass(frozen=True, slots=True)
class Summaries:
    """What a model wrote of a batch.

    Attributes:
        items: Its summaries, in the order of the tasks; None where the extract is to be kept.
        usage: What the call cost; ``requests`` is 0 or 1.
        notes: What a receipt should say, with the reasons why extracts were kept.
    """

    items: tuple[str | None, ...] = ()
    usage: TokenUsage = field(default_factory=TokenUsage)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Improvement:
    """A text that a model may write better.

    Attributes:
        uri: Of the file.
        task: What the model is asked.
        written: The file with its summary, given its present text and the store under the lock; None where they are no
            longer what the model was shown.
        op: Of the receipt's line, with ``note``.
    """

    uri: MemoryUri
    task: SummaryTask
    written: Callable[[str | None, str, Snapshot], str | None]
    op: str
    note: str


def improve(memory: Runebook, kind: str, due: Sequence[Improvement], now: datetime) -> Iterator[CommitReceipt]:
    """Ask the model once for all that is due, and write what came of it in one commit.

    A call that changed nothing has a receipt where there is something to say of it, such as that it failed.
    """
    asked = write_summaries(memory.config, memory.model, [each.task for each in due])

    def planned(snapshot: Snapshot) -> ChangeSet:
        changes: list[FileChange] = []
        results: list[OperationResult] = []
        for each, summary in zip(due, asked.items, strict=True):
            before = snapshot.text(each.uri)
            after = None if summary is None else each.written(before, summary, snapshot)
            if after is not None:
                changes.append(FileChange(each.uri, before, after))
                results.append(OperationResult(each.op, str(each.uri), Action.UPDATED, note=each.note))
        return ChangeSet(tuple(changes), tuple(results), asked.notes, as_json(asked.usage))

    done = commit(memory, kind, planned, now, dry_run=False) if any(asked.items) else ()
    yield from done
    if not done and (asked.notes or asked.usage.requests):
        yield CommitReceipt("", Status.UNCHANGED, notes=asked.notes, usage=as_json(asked.usage))


class SummaryItem(BaseModel):
    """One entry of the model's answer."""

    number: int = Field(description="Number of the item.")
    text: str = Field(description="The summary.")


class SummaryBatch(BaseModel):
    """The model's answer."""

    summaries: Annotated[list[SummaryItem], Field(description="One for each item.")]


@cache
def _adapter() -> JSONAdapter[SummaryBatch]:
    return JSONAdapter(SummaryBatch, purpose="summaries")


def write_summaries(config: Config, model: Callable[[], LLMClient | None], tasks: Sequence[SummaryTask]) -> Summaries:
    """Summaries of a batch, by at most one call; those that have no room in it keep their extracts.

    Never raises for a model that fails: the reason is in the notes.

    Args:
        config: Bounds of prompt, answer and time.
        model: The model, or None; raises ``ModelFailed`` where the one that is configured cannot be used.
        tasks: The batch.
    """
    nothing: tuple[str | None, ...] = (None,) * len(tasks)
    usage = TokenUsage()
    try:
        client = model() if tasks else None
        system = PromptLibrary(config.prompt_dirs).render(_PHASE)
        asked = list(_fitting(config, tasks, system))
        if client is None:
            return Summaries(nothing)
        if not asked:
            return _judged(tasks, asked, SummaryBatch(summaries=[]), usage)
        turn = Turn("user", "\n\n".join(_shown(number, tasks[number - 1]) for number in asked))
        usage = TokenUsage(requests=1)
        answer = client.complete(_adapter().format(system, [turn], config.llm.max_tokens), config.llm.deadline_seconds)
        usage = answer.usage
        return _judged(tasks, asked, _adapter().parse(answer).value, usage)
    except ModelFailed as error:
        note = f"the model wrote no summaries, extracts were kept: {error.message} {error.hint}"
        return Summaries(nothing, usage, (note,))


def _fitting(config: Config, tasks: Sequence[SummaryTask], system: str) -> Iterator[int]:
    """Numbers, from 1, of the items that prompt and answer have room for."""
    prompt = int(config.extraction.prompt_tokens * _TEXT_SHARE) - count_tokens(system)
    answer = config.llm.max_tokens
    taken = 0
    for number, task in enumerate(tasks, start=1):
        cost = count_tokens(_shown(number, task))
        written = min(cost, task.limit_chars) + _ITEM_TOKENS
        if taken < ITEMS_LIMIT and cost <= prompt and written <= answer:
            taken += 1
            prompt, answer = prompt - cost, answer - written
            yield number


def _shown(number: int, task: SummaryTask) -> str:
    """An item as the model reads it."""
    texts = "\n".join(fenced(text) for text in task.texts)
    return f"## Item {number} (at most {task.limit_chars} characters)\n{texts}"


def _judged(tasks: Sequence[SummaryTask], asked: Sequence[int], batch: SummaryBatch, usage: TokenUsage) -> Summaries:
    """The answer, item by item: the first entry of a number counts."""
    given = {entry.number: entry for entry in reversed(batch.summaries)}
    items: list[str | None] = []
    reasons: list[str] = []
    for number, task in enumerate(tasks, start=1):
        answer = given.get(number) if number in asked else None
        why = _fault(task, answer) if number in asked else "no room for it in the request"
        reasons += [why] if why else []
        items.append(None if why or answer is None else answer.text.strip())
    notes = (f"{len(reasons)} of {len(items)} summaries are extracts: {_few(reasons)}",) if reasons else ()
    return Summaries(tuple(items), usage, notes)


def _fault(task: SummaryTask, entry: SummaryItem | None) -> str:
    """Why an entry cannot be used; empty if it can."""
    text = "" if entry is None else entry.text.strip()
    if not text:
        return "the model gave none"
    if "\x00" in text or len(text) > task.limit_chars * _TOLERANCE:
        return f"the model's has {len(text)} characters, not {task.limit_chars}"
    invented = sorted(numbers(text) - {number for given in task.texts for number in numbers(given)})
    return f"the model's invents {', '.join(invented[:_NAMED])}" if invented else ""


def _few(reasons: Sequence[str]) -> str:
    """The distinct reasons, a few of them."""
    distinct = list(dict.fromkeys(reasons))
    more = f", and {len(distinct) - _NAMED} more" if len(distinct) > _NAMED else ""
    return "; ".join(distinct[:_NAMED]) + more
