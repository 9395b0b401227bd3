"""Compression: memories that nobody used for long give way to a few core memories; the originals are archived.

Only memories that a core can hold whole are taken, so that no word of them is lost to searches; the others stay.
The plan is made of the files as they are under the store's lock. A model, where there is one, has written before that:
a group of which a file changed meanwhile is left for the next time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from memory_core.errors import EmbeddingFailed, RunebookError
from memory_core.index.filter import utc
from memory_core.index.words.tokenizer import distinct_words
from memory_core.lifecycle.maintenance.summaries import Summaries, Summary, SummaryRequest, SummaryWriter
from memory_core.lifecycle.maintenance.topics import Similarity, batches, packed, topics
from memory_core.lifecycle.maintenance.upkeep import BATCH_FILES, Upkeep
from memory_core.llm.client import TokenUsage
from memory_core.model.changes import Action, ChangeSet, CommitReceipt, OperationResult, text_sha256
from memory_core.model.record import changed_at
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
#: Characters of a core. A memory longer than the share of one original is not condensed.
CORE_CHARS = 6_000
_BYTES_PER_CHAR = 8
#: Of the room of its cores, what a batch fills at most: topics are not cut to measure.
_FILLED = 0.7
#: From these on two texts are of one topic: cosine, or share of common words.
_ALIKE_BY_VECTOR, _ALIKE_BY_WORDS = 0.45, 0.15
#: The beginning of a text tells its topic.
_TOPIC_CHARS = 1_000
#: Loading a model takes about a second; maintenance is in no hurry.
_MODEL_SECONDS = 30.0
#: URIs of one question to the index.
_QUERIED = 500


@dataclass(slots=True)
class _Choice:
    """What is condensed of what is due, and how many stay for which reason."""

    cores: list[CorePlan] = field(default_factory=list)
    due: int = 0
    long: int = 0
    longest: int = 0

    @property
    def note(self) -> str:
        """For the receipt."""
        taken = sum(len(core.originals) for core in self.cores)
        few = self.due - taken - self.long
        why = (
            [f"{self.long} longer than {self.longest} characters, which a core cannot hold whole"] if self.long else []
        )
        why += [f"{few} with too few beside them that fit into one core"] if few else []
        stay = f"; {self.due - taken} stay as they are: {', '.join(why)}" if why else ""
        into = f"{len(self.cores)} cores" if len(self.cores) > 1 else "one core"
        return f"{taken} of {self.due} memories that are due are condensed, into {into}{stay}"


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
        choice = _Choice()
        for group in self._groups(now):
            self._choose(group, choice)
        cores = choice.cores
        if not cores:
            return
        written = None if dry_run else self._written(cores)
        if written is not None:
            cores = [_authored(core, summary) for core, summary in zip(cores, written.items, strict=True)]
        notes, usage = ((), TokenUsage()) if written is None else (written.notes, written.usage)
        notes = (choice.note, *notes)
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
        held = self.upkeep.brought_back(now)
        for alike in found.values():
            group = [each for each in alike if str(each.uri) not in held]
            # A core alone, or cores among themselves, have nothing new to take in.
            if len(group) >= settings.compression_group and not all(original.is_core for original in group):
                yield group

    def _original(self, uri: MemoryUri, text: str | None) -> Original | None:
        stored = self.upkeep.stored(uri, text)
        if stored is None or text is None:
            return None
        return Original(uri, stored.memory_type, stored.record, text_sha256(text))

    def _choose(self, group: Sequence[Original], choice: _Choice) -> None:
        """What becomes of a group: cores, each of as many originals as have room in it whole."""
        least = self.upkeep.config.maintenance.compression_group
        room = min(CORE_CHARS, self.upkeep.config.limits.content_bytes // _BYTES_PER_CHAR)
        lengths = [len(each.listed) + 1 for each in group]
        longest = room // least
        fitting = [each for each, length in zip(group, lengths, strict=True) if length <= longest]
        choice.due += len(group)
        choice.long += len(group) - len(fitting)
        choice.longest = longest
        if len(fitting) < least:
            return
        similarity, alike = self._similarity(fitting)
        places = list(range(len(fitting)))
        lengths = [length for length in lengths if length <= longest]
        while len(places) >= least:
            parcels = list(_parcels(places, lengths, similarity, alike, room, least))
            fresh = [[fitting[place] for place in parcel] for parcel in parcels]
            choice.cores += [extracted(each) for each in fresh if not all(one.is_core for one in each)]
            taken = {place for parcel in parcels for place in parcel}
            if not taken:
                return
            places = [place for place in places if place not in taken]

    def _similarity(self, originals: Sequence[Original]) -> tuple[Similarity, float]:
        """By meaning where there is a model, else by words."""
        try:
            vectors = self._vectors(originals)
        except EmbeddingFailed:
            vectors = None
        if vectors is not None:
            table = vectors
            return lambda one, others: (table[list(others)] @ table[one]).tolist(), _ALIKE_BY_VECTOR
        words = [distinct_words(_topic(each)) for each in originals]
        return lambda one, others: [jaccard(words[one], words[other]) for other in others], _ALIKE_BY_WORDS

    def _vectors(self, originals: Sequence[Original]) -> NDArray[np.float32] | None:
        """float32 (n, dim): those of the index, else made now; None where there is no model.

        Raises:
            EmbeddingFailed: If the model cannot be used.
        """
        embedder = self.upkeep.indexer.embedder
        if embedder is None or not embedder.ready(_MODEL_SECONDS):
            return None
        known = self._indexed([str(each.uri) for each in originals], embedder.fingerprint)
        missing = [each for each in originals if str(each.uri) not in known]
        if missing:
            made = embedder.embed([_topic(each) for each in missing])
            known |= {str(each.uri): vector for each, vector in zip(missing, made, strict=True)}
        return np.stack([known[str(each.uri)] for each in originals])

    def _indexed(self, uris: Sequence[str], fingerprint: str) -> dict[str, NDArray[np.float32]]:
        """float32 (dim,) by URI: what the index has of the memories' beginnings, as this model sees them."""
        found: dict[str, NDArray[np.float32]] = {}
        connection = self.upkeep.indexer.catalog.connection()
        for start in range(0, len(uris), _QUERIED):
            part = uris[start : start + _QUERIED]
            rows = connection.execute(
                "SELECT p.uri, v.vector FROM passages p JOIN vectors v ON v.space = p.space AND v.uri = p.uri "
                "AND v.part = p.part AND v.content_sha256 = p.content_sha256 AND v.fingerprint = ? "
                f"WHERE p.part = 0 AND p.uri IN ({','.join('?' * len(part))})",
                (fingerprint, *part),
            )
            found |= {uri: np.frombuffer(blob, dtype="<f4") for uri, blob in rows.fetchall()}
        sizes = Counter(len(vector) for vector in found.values())
        usual = max(sizes, key=lambda size: sizes[size], default=0)
        return {uri: vector for uri, vector in found.items() if len(vector) == usual}

    def _written(self, cores: Sequence[CorePlan]) -> Summaries:
        """What the model makes of all cores, by one call."""
        texts = [tuple(item for each in core.originals for item in each.items) for core in cores]
        return self.writer.write([SummaryRequest(each, CORE_CHARS, replaces=True) for each in texts])

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
    author = "written by the model" if core.author == "model" else "whole and word for word"
    note = f"the core of {len(core.originals)} {first.memory_type.name}, {author}"
    yield OperationResult(OPERATION, str(uri), Action.CREATED, note=note)
    for original in core.originals:
        note = f"condensed into {uri}; now {archived_uri(original.uri)}"
        yield OperationResult("archive", str(original.uri), Action.DELETED, note=note)


def _parcels(
    places: Sequence[int], lengths: Sequence[int], similarity: Similarity, alike: float, room: int, least: int
) -> Iterator[list[int]]:
    """Places of originals that share a core: near ones, and as many of them as fit."""
    own = [lengths[place] for place in places]

    def among(one: int, others: Sequence[int]) -> Sequence[float]:
        return similarity(places[one], [places[other] for other in others])

    for batch in batches(own, among, BATCH_ORIGINALS, int(room * CORES * _FILLED), least):
        for topic in topics(batch, among, alike, CORES, least):
            for parcel in packed(topic, own, BATCH_ORIGINALS + least, room):
                if len(parcel) >= least:
                    yield [places[at] for at in parcel]


def _topic(original: Original) -> str:
    """What tells the topic of a memory: its name and its beginning."""
    return f"{original.name}\n{original.said}"[:_TOPIC_CHARS]


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
    changed = changed_at(original.record.meta)
    return changed is not None and changed <= moment
