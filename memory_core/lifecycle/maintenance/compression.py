"""Compression: memories that nobody used for long give way to a few core memories; the originals are archived.

The plan is made of the files as they are under the store's lock. A model, where there is one, has written before that:
a group of which a file changed meanwhile is left for the next time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from memory_core.errors import EmbeddingFailed, RunebookError
from memory_core.index.filter import utc
from memory_core.index.tokenizer import distinct_words
from memory_core.lifecycle.history.undo import KIND as UNDO
from memory_core.lifecycle.maintenance.summaries import Summaries, Summary, SummaryRequest, SummaryWriter
from memory_core.lifecycle.maintenance.topics import Similarity, batches, topics
from memory_core.lifecycle.maintenance.upkeep import BATCH_FILES, Upkeep
from memory_core.llm.client import TokenUsage
from memory_core.model.changes import Action, ChangeSet, CommitReceipt, OperationResult, text_sha256
from memory_core.model.uri import MemoryUri
from memory_core.scoring.fusion import jaccard
from memory_core.storage.store import Snapshot
from memory_core.update.archiving import archived_uri
from memory_core.update.core_memory import (
    CRITICAL_SALIENCE,
    CorePlan,
    Original,
    extracted,
    is_condensable,
    kinship,
    put,
)
from memory_core.update.draft import Draft
from memory_core.update.summaries import refresh

OPERATION = "condense"
#: Originals that are condensed together; a memory has room for fifty links.
BATCH_ORIGINALS = 40
#: Core memories that a batch becomes, at most.
CORES = 3
#: Characters of a core.
CORE_CHARS = 4_000
_BYTES_PER_CHAR = 8
#: From these on two texts are of one topic: cosine, or share of common words.
_ALIKE_BY_VECTOR, _ALIKE_BY_WORDS = 0.45, 0.15
#: The beginning of a text tells its topic.
_TOPIC_CHARS = 1_000
#: Loading a model takes about a second; maintenance is in no hurry.
_MODEL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Compression:
    """Condenses what was not used for long, by the settings ``maintenance.compression*``."""

    upkeep: Upkeep
    writer: SummaryWriter
    name: ClassVar[str] = "compression"
    light: ClassVar[bool] = False

    def run(self, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
        """Condense what is due; see ``Pass.run``. A dry run asks no model: it shows what becomes of what."""
        if not self.upkeep.config.maintenance.compression:
            return
        cores = [core for group in self._groups(now) for core in self._cores(group)]
        if not cores:
            return
        written = None if dry_run else self._written(cores)
        if written is not None:
            cores = [_authored(core, summary) for core, summary in zip(cores, written.items, strict=True)]
        notes, usage = ((), TokenUsage()) if written is None else (written.notes, written.usage)
        for part in _commits(cores):
            receipt = self.upkeep.commit(self.name, self._plan(part, now, notes, usage), now, dry_run=dry_run)
            notes, usage = (), TokenUsage()
            if receipt is not None:
                yield receipt

    def _groups(self, now: datetime) -> Iterator[list[Original]]:
        """Memories that are due, of one type, directory and project each."""
        settings = self.upkeep.config.maintenance
        before = now - timedelta(days=settings.compression_days)
        old = self.upkeep.rows(
            "NOT d.pinned AND d.active AND d.expires_at IS NULL AND d.salience < ? "
            "AND coalesce(d.updated_at, d.created_at) <= ?",
            CRITICAL_SALIENCE,
            utc(before.isoformat()),
        )
        used = self.upkeep.usage(old)
        found: dict[tuple[str, str, str, bool], list[Original]] = defaultdict(list)
        for uri in old:
            usage = used.get(str(uri))
            if usage is not None and (
                usage.access_count >= settings.compression_accesses or usage.last_accessed_at > before
            ):
                continue
            original = self._original(uri, self.upkeep.store.text(uri))
            if original is not None and _is_older(original, before) and is_condensable(original):
                found[kinship(original)].append(original)
        for alike in found.values():
            group = [original for original in alike if not self._undone(original.uri, before)]
            # A core alone, or cores among themselves, have nothing new to take in.
            if len(group) >= settings.compression_group and not all(original.is_core for original in group):
                yield group

    def _undone(self, uri: MemoryUri, before: datetime) -> bool:
        """Whether somebody took a change of it back since: what was undone is not done again at once."""
        newest = self.upkeep.store.ledger.history(uri, 1)
        return bool(newest) and newest[0].kind == UNDO and datetime.fromisoformat(newest[0].at) > before

    def _original(self, uri: MemoryUri, text: str | None) -> Original | None:
        stored = self.upkeep.stored(uri, text)
        if stored is None or text is None:
            return None
        return Original(uri, stored.memory_type, stored.record, text_sha256(text))

    def _cores(self, group: Sequence[Original]) -> Iterator[CorePlan]:
        """What a group becomes, word for word."""
        least = self.upkeep.config.maintenance.compression_group
        room = min(CORE_CHARS, self.upkeep.config.limits.content_bytes // _BYTES_PER_CHAR)
        similarity, alike = self._similarity([f"{each.name}\n{each.said}"[:_TOPIC_CHARS] for each in group])
        for batch in batches(len(group), similarity, BATCH_ORIGINALS, least):
            for topic in topics(batch, similarity, alike, CORES, least):
                yield extracted([group[place] for place in topic], room)

    def _similarity(self, texts: Sequence[str]) -> tuple[Similarity, float]:
        """By meaning where there is a model, else by words."""
        embedder = self.upkeep.indexer.embedder
        if embedder is not None and embedder.ready(_MODEL_SECONDS):
            try:
                vectors = embedder.embed(texts)
            except EmbeddingFailed:
                pass
            else:
                return lambda one, other: float(vectors[one] @ vectors[other]), _ALIKE_BY_VECTOR
        words = [distinct_words(text) for text in texts]
        return lambda one, other: jaccard(words[one], words[other]), _ALIKE_BY_WORDS

    def _written(self, cores: Sequence[CorePlan]) -> Summaries:
        """What the model makes of all cores, by one call."""
        requests = []
        for core in cores:
            texts = [f"{name}\n{text}" if name else text for each in core.originals for name, text in each.items]
            requests.append(SummaryRequest(tuple(texts), CORE_CHARS, replaces=True))
        return self.writer.write(requests)

    def _plan(
        self, cores: Sequence[CorePlan], now: datetime, notes: tuple[str, ...], usage: TokenUsage
    ) -> Callable[[Snapshot], ChangeSet]:
        context = self.upkeep.context(now)

        def planned(snapshot: Snapshot) -> ChangeSet:
            draft = Draft(snapshot, context)
            results = [result for core in cores for result in _condensed(draft, core)]
            decided = ChangeSet(draft.changes(), tuple(results), notes, usage.as_dict() if usage.requests else None)
            return refresh(decided, snapshot, context)

        return planned


def _condensed(draft: Draft, core: CorePlan) -> Iterator[OperationResult]:
    """Carry one core out, or say why it waits."""
    first = core.originals[0]
    changed = [each.uri for each in core.originals if _sha256(draft, each.uri) != each.sha256]
    if changed:
        note = "changed meanwhile: its group is left for the next time"
        yield OperationResult(OPERATION, str(changed[0]), Action.UNCHANGED, note=note)
        return
    try:
        uri = put(draft, core)
    except RunebookError as error:
        yield OperationResult(OPERATION, str(first.uri), Action.REJECTED, error.message, error.hint)
        return
    author = "written by the model" if core.author == "model" else "word for word"
    note = f"the core of {len(core.originals)} {first.memory_type.name}, {author}"
    yield OperationResult(OPERATION, str(uri), Action.CREATED, note=note)
    for original in core.originals:
        note = f"condensed into {uri}; now {archived_uri(original.uri)}"
        yield OperationResult("archive", str(original.uri), Action.DELETED, note=note)


def _sha256(draft: Draft, uri: MemoryUri) -> str | None:
    text = draft.text(uri)
    return None if text is None else text_sha256(text)


def _authored(core: CorePlan, summary: Summary | None) -> CorePlan:
    """The core in the model's words, where it gave some that can be used."""
    if summary is None:
        return core
    return replace(core, name=summary.title or core.name, content=summary.text, author="model")


def _commits(cores: Sequence[CorePlan]) -> Iterator[list[CorePlan]]:
    """Cores of one commit: a bounded number of files."""
    part: list[CorePlan] = []
    for core in cores:
        if part and sum(len(each.originals) for each in [*part, core]) > BATCH_FILES:
            yield part
            part = []
        part.append(core)
    if part:
        yield part


def _is_older(original: Original, moment: datetime) -> bool:
    """Whether the file itself says that it was last changed before; one that does not say stays."""
    meta = original.record.meta
    try:
        changed = datetime.fromisoformat(str(meta.get("updated_at") or meta.get("created_at")))
    except ValueError:
        return False
    return (changed if changed.tzinfo is not None else changed.replace(tzinfo=UTC)) <= moment
