"""Compression: memories that nobody used for long give way to a few core memories; the originals are archived.

Only memories that a core can hold whole are taken, so that no word of them is lost to searches; the others stay.
The plan is made of the files as they are under the store's lock. A model, where there is one, has written before that:
a group of which a file changed meanwhile is left for the next time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_core.core.feature import Feature

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

import heapq
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory_core.core.commit.links import LINKS_LIMIT
from memory_core.core.commit.working_copy import WorkingCopy
from memory_core.core.errors import EmbeddingFailed, RunebookError, TooLarge
from memory_core.core.index.filter import utc
from memory_core.core.llm.client import TokenUsage
from memory_core.core.memory import names
from memory_core.core.memory.evidence import merged_confidence
from memory_core.core.memory.memory import Memory, new_memory
from memory_core.core.memory.memory_type import CONTENT, FieldType, MemoryType
from memory_core.core.memory.metadata import CONTESTING, EXPIRES_AT, LINKS, SIMILAR
from memory_core.core.memory.names import first_words, numbered
from memory_core.core.memory.project import project_key
from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt, OperationResult, text_sha256
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.search.fusion import jaccard
from memory_core.core.store.local import Snapshot
from memory_core.core.text.analysis import distinct_words
from memory_core.features.upkeep.archive import archived_uri, put_away
from memory_core.features.upkeep.passes import BATCH_FILES, Pass, brought_back, commit, rows, stored, usage
from memory_core.features.upkeep.summaries import Summaries, Summary, SummaryRequest, SummaryWriter

#: ``source.kind`` of a core, and why its originals are archived.
COMPRESSION, REASON = "compression", "condensed"
#: How a core is linked to its originals.
REPLACES = "replaces"
#: Types that say what must be found as it is: who the user is, what is to be done, and counted experience.
NEVER = frozenset({"profile", "tasks", "tools", "skills"})
#: From this salience on a memory is never condensed.
CRITICAL_SALIENCE = 0.9
_NAMES_LIMIT = 32
_NAME_CHARS = 40
_DIGITS = 4
_EXTRACT = "extract"
_ITEM, _INDENT = "- ", "  "
_BETWEEN_ITEMS = re.compile(r"\n- ")
#: A text that begins so needs a line of its own to stay what it is in Markdown.
_MARKED = re.compile(r"[-*+>|#`~]|\d{1,3}[.)]\s")


@dataclass(frozen=True, slots=True)
class Original:
    """A memory that is to be condensed."""

    memory: Memory
    memory_type: MemoryType

    @property
    def uri(self) -> MemoryUri:
        """Where it is."""
        return self.memory.uri

    @property
    def is_core(self) -> bool:
        """Whether it is itself a core."""
        return bool(self._source)

    @property
    def salience(self) -> float:
        """Its own, or its type's."""
        return self.memory.salience

    @property
    def name(self) -> str:
        """What it is called: its key fields, else the name of its file."""
        keys = (str(self.memory.fields.get(key) or "").strip() for key in self.memory_type.key_fields)
        return " ".join(filter(None, keys)) or self.uri.name.removesuffix(".md")

    @property
    def said(self) -> str:
        """Its body, and the fields that the body does not show."""
        body = str(self.memory.fields.get(CONTENT) or "")
        keys = (CONTENT, *self.memory_type.key_fields)
        own = (self.memory.fields.get(field.name) for field in self.memory_type.fields if field.name not in keys)
        rest = [value for value in own if isinstance(value, str) and value.strip() and value not in body]
        return "\n\n".join([body, *rest]).strip()

    @property
    def items(self) -> tuple[str, ...]:
        """All that it says, under its name; of a core what each of its originals said, under theirs."""
        blocks = _BETWEEN_ITEMS.split(f"\n{self.said}")[1:]
        # As ``extracted`` writes them; what a model or a person wrote stays in one piece.
        listed = all(line.startswith((_ITEM, _INDENT)) or not line.strip() for line in self.said.split("\n"))
        if self._source.get("author") == _EXTRACT and blocks and listed:
            return tuple(block.replace(f"\n{_INDENT}", "\n") for block in blocks)
        return (_headed(self.name, self.said),)

    @property
    def listed(self) -> str:
        """Its part of a core: what it says as a list."""
        return "\n".join(map(_listed, self.items))

    @property
    def _source(self) -> Mapping[str, Any]:
        """Of a core; empty of another memory."""
        source = self.memory.metadata.get("source")
        return source if isinstance(source, Mapping) and source.get("kind") == COMPRESSION else {}


@dataclass(frozen=True, slots=True)
class CorePlan:
    """A core and what it replaces.

    Attributes:
        originals: In the order of their URIs; all of one type, directory and project.
        name: What it is called.
        content: What it says.
        author: ``extract`` or ``model``.
    """

    originals: tuple[Original, ...]
    name: str
    content: str
    author: str = _EXTRACT


def is_condensable(original: Original) -> bool:
    """Whether a memory may be condensed at all, however little it is used.

    Not what a person pinned, put to rest or gave an end, what is critical, or contested: a core would state as plain
    what another memory contradicts.
    """
    memory_type, metadata = original.memory_type, original.memory.metadata
    key = memory_type.field(memory_type.key_fields[-1]) if memory_type.key_fields else None
    named = key is not None and key.type is FieldType.STRING
    if memory_type.name in NEVER or memory_type.template_mode or not named or memory_type.field(CONTENT) is None:
        return False
    if metadata.is_pinned or metadata.get(EXPIRES_AT) is not None or not metadata.is_active:
        return False
    contested = any(link.relation in CONTESTING for link in metadata.links)
    return not contested and original.salience < CRITICAL_SALIENCE and bool(original.said)


def kinship(original: Original) -> tuple[str, str, str, bool]:
    """What must be equal for two memories to share a core: type, directory, project and privacy."""
    memory = original.memory
    return memory.type_name, str(memory.uri.parent), memory.project or "", memory.is_private


def extracted(originals: Sequence[Original]) -> CorePlan:
    """The core of these originals: each whole, under its name; what is equal in name and text stands there once."""
    listed = dict.fromkeys(_listed(item) for original in originals for item in original.items)
    return CorePlan(tuple(originals), _common_name(originals), "\n".join(listed))


def archived_originals(memory: Memory) -> list[str]:
    """Where the originals of a core are, by its trailer; empty of any other memory."""
    source = memory.metadata.get("source")
    if not isinstance(source, Mapping) or source.get("kind") != COMPRESSION:
        return []
    return [link.uri for link in memory.metadata.links if link.relation == REPLACES]


def put(draft: WorkingCopy, core: CorePlan) -> MemoryUri:
    """Write the core and move its originals into the archive.

    Returns:
        Where the core is.

    Raises:
        TooLarge: If the core has no room in a memory.
        RunebookError: If an original cannot be moved.
    """
    uri, fields = _free(draft, core)
    places = [archived_uri(original.uri) for original in core.originals]
    if len(_memory(draft, core, uri, fields, places).text.encode("utf-8")) > draft.context.content_bytes:
        raise TooLarge(f"the core of {len(core.originals)} memories is too large.", hint="Raise limits.content_bytes.")
    places = [put_away(draft, original.uri, REASON, replaced_by=str(uri)) for original in core.originals]
    draft.store(_memory(draft, core, uri, fields, places))
    return uri


def _memory(
    draft: WorkingCopy, core: CorePlan, uri: MemoryUri, fields: dict[str, Any], places: Sequence[MemoryUri]
) -> Memory:
    return new_memory(uri, core.originals[0].memory_type, fields, _metadata(draft, core, places))


def _free(draft: WorkingCopy, core: CorePlan) -> tuple[MemoryUri, dict[str, Any]]:
    """A name that no other memory of the directory has, and the fields with it."""
    first = core.originals[0]
    memory_type, directory = first.memory_type, first.uri.parent
    project = first.memory.project
    wanted = {**_shared_fields(core), memory_type.key_fields[-1]: core.name, CONTENT: core.content}
    for attempt in range(1, _NAMES_LIMIT):
        fields = numbered(memory_type, wanted, attempt)
        key = project_key(project, names.key_of(fields, memory_type.key_fields))
        uri = directory.child(names.render(memory_type.filename_template, fields))
        if draft.snapshot.locate(directory, memory_type.name, key) is None and not draft.is_taken(uri):
            return uri, fields
    raise TooLarge("too many memories have the name of this core.", hint="Rename some of them.")


def _shared_fields(core: CorePlan) -> dict[str, Any]:
    """Fields that all originals have alike, such as the kind of an entity; their content is the core's."""
    first, *others = (original.memory.fields for original in core.originals)
    declared = {field.name for field in core.originals[0].memory_type.fields} - {CONTENT}
    return {
        name: value
        for name, value in first.items()
        if name in declared and all(other.get(name) == value for other in others)
    }


def _metadata(draft: WorkingCopy, core: CorePlan, places: Sequence[MemoryUri]) -> dict[str, Any]:
    every = [original.memory.metadata for original in core.originals]
    tags = dict.fromkeys(tag for metadata in every for tag in metadata.tags)
    categories = {metadata.text("category") or "" for metadata in every}
    _, _, project, private = kinship(core.originals[0])
    now = draft.context.now
    return {
        "version": 1,
        "tags": list(tags) or None,
        "category": categories.pop() or None if len(categories) == 1 else None,
        "created_at": now,
        "updated_at": now,
        "salience": max(original.salience for original in core.originals),
        "confidence": round(merged_confidence([metadata.confidence for metadata in every]), _DIGITS),
        "source": {"kind": COMPRESSION, "author": core.author},
        "project": project or None,
        "private": True if private else None,
        LINKS: list(_links(core, places, now))[:LINKS_LIMIT],
    }


def _links(core: CorePlan, places: Sequence[MemoryUri], now: str) -> Iterator[dict[str, Any]]:
    """To the originals where they are now, then what the originals said of other memories."""
    own = {str(original.uri) for original in core.originals}
    for place in places:
        yield {"uri": str(place), "relation": REPLACES, "strength": 1.0, "at": now}
    for original in core.originals:
        for link in original.memory.metadata.links:
            if link.uri not in own and link.relation != SIMILAR:
                yield {"uri": link.uri, "relation": link.relation, "strength": link.strength, "at": link.at or now}


def _headed(name: str, text: str) -> str:
    """A text under the name of its memory, unless it begins with it."""
    said, after = text[: len(name)].casefold() == name.casefold(), text[len(name) : len(name) + 1]
    if not name or (said and not after.isalnum()) or first_words(text) == name:
        return text
    colon = "：" if _is_wide(name) else ":"
    if "\n" in text or _MARKED.match(text):
        return f"**{name}**{colon}\n{text}"
    return f"**{name}**{colon}{text}" if _is_wide(name) else f"**{name}**{colon} {text}"


def _listed(item: str) -> str:
    """An item of a list; its further lines are indented, so that none of them begins another."""
    first, *more = item.split("\n")
    return "\n".join([_ITEM + first, *(_INDENT + line if line.strip() else line for line in more)])


def _common_name(originals: Sequence[Original]) -> str:
    """The weightiest original's name and how many more there are."""
    weightiest = max(originals, key=lambda each: (not each.is_core, each.salience))
    name, more = first_words(weightiest.name, _NAME_CHARS) or weightiest.name[:_NAME_CHARS], len(originals) - 1
    return f"{name}等{more + 1}条" if _is_wide(name) else f"{name} and {more} more"


def _is_wide(text: str) -> bool:
    return any(unicodedata.east_asian_width(char) in "WF" for char in text)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


#: How alike one text is to each of some others, by their places.
Similarity = Callable[[int, Sequence[int]], Sequence[float]]


def batches(lengths: Sequence[int], similarity: Similarity, size: int, room: int, least: int) -> list[list[int]]:
    """Cut many texts into batches of bounded size, near ones together.

    Args:
        lengths: Of each text, in characters.
        similarity: Of one of them to others, the higher the nearer.
        size: Texts of a batch; the last may have up to ``least - 1`` more, so that none is left alone.
        room: Characters of a batch; a single longer text is a batch of its own.
        least: Fewest of a batch, where there are as many.

    Returns:
        Places of the texts, ascending in each batch.
    """
    left = list(range(len(lengths)))
    found: list[list[int]] = []
    while len(left) >= size + least or sum(lengths[place] for place in left) > room:
        first, others = left[0], left[1:]
        near = zip(similarity(first, others), others, strict=True)
        batch, free = [first], room - lengths[first]
        for _, place in heapq.nsmallest(size - 1, near, key=lambda each: (-each[0], each[1])):
            if lengths[place] <= free:
                batch.append(place)
                free -= lengths[place]
        found.append(sorted(batch))
        taken = set(batch)
        left = [place for place in left if place not in taken]
    return [*found, left] if left else found


def topics(places: Sequence[int], similarity: Similarity, alike: float, most: int, least: int) -> list[list[int]]:
    """Group the texts of a batch.

    Args:
        places: Of the texts.
        similarity: As for ``batches``.
        alike: From this similarity to a group's first text on, a text joins it.
        most: Groups at most.
        least: Fewest texts of a group, where there are as many.

    Returns:
        Places of each group, ascending, in the order of their first texts.
    """
    table = {place: dict(zip(places, similarity(place, places), strict=True)) for place in places}
    groups: list[list[int]] = []
    for place in places:
        near = max(groups, key=lambda group: table[group[0]][place], default=None)
        if near is not None and table[near[0]][place] >= alike:
            near.append(place)
        else:
            groups.append([place])
    while len(groups) > 1:
        small = min(groups, key=lambda group: (len(group), -group[0]))
        if len(groups) <= most and len(small) >= least:
            break
        groups.remove(small)
        _nearest(groups, small, table).extend(small)
    return sorted((sorted(group) for group in groups), key=lambda group: group[0])


def packed(places: Sequence[int], lengths: Sequence[int], size: int, room: int) -> list[list[int]]:
    """The texts of a group in parcels that have room for them, each in the first that has.

    Args:
        places: Of the texts, in order.
        lengths: As for ``batches``.
        size: Texts of a parcel at most.
        room: Characters of a parcel at most.
    """
    parcels: list[list[int]] = []
    used: list[int] = []
    for place in places:
        fitting = (at for at, parcel in enumerate(parcels) if used[at] + lengths[place] <= room and len(parcel) < size)
        at = next(fitting, None)
        if at is None:
            parcels.append([place])
            used.append(lengths[place])
        else:
            parcels[at].append(place)
            used[at] += lengths[place]
    return parcels


def _nearest(groups: Sequence[list[int]], small: Sequence[int], table: Mapping[int, Mapping[int, float]]) -> list[int]:
    def mean(group: Sequence[int]) -> float:
        return sum(table[one][other] for one in group for other in small) / (len(group) * len(small))

    return max(groups, key=mean)


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

    memory: Runebook
    writer: SummaryWriter

    def run(self, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
        """Condense what is due; see ``Pass.run``. A dry run asks no model: it shows what becomes of what."""
        if not self.memory.config.maintenance.compression:
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
            yield from commit(self.memory, _NAME, self._plan(part, now, notes, usage), now, dry_run=dry_run)
            notes, usage = (), TokenUsage()

    def _groups(self, now: datetime) -> Iterator[list[Original]]:
        """Memories that are due, of one type, directory and project each."""
        settings = self.memory.config.maintenance
        before = now - timedelta(days=settings.compression_days)
        old = rows(
            self.memory,
            "NOT d.pinned AND d.active AND d.expires_at IS NULL AND d.salience < ? "
            "AND coalesce(d.updated_at, d.created_at) <= ?",
            CRITICAL_SALIENCE,
            utc(before.isoformat()),
        )
        used = usage(self.memory, old)
        found: dict[tuple[str, str, str, bool], list[Original]] = defaultdict(list)
        for uri in old:
            own = used.get(str(uri))
            if own is not None and (own.access_count >= settings.compression_accesses or own.last_accessed_at > before):
                continue
            original = self._original(uri, self.memory.store.text(uri))
            if original is not None and _is_older(original, before) and is_condensable(original):
                found[kinship(original)].append(original)
        held = brought_back(self.memory, now)
        for alike in found.values():
            group = [each for each in alike if str(each.uri) not in held]
            # A core alone, or cores among themselves, have nothing new to take in.
            if len(group) >= settings.compression_group and not all(original.is_core for original in group):
                yield group

    def _original(self, uri: MemoryUri, text: str | None) -> Original | None:
        found = stored(self.memory, uri, text)
        return None if found is None or found.type is None else Original(found, found.type)

    def _choose(self, group: Sequence[Original], choice: _Choice) -> None:
        """What becomes of a group: cores, each of as many originals as have room in it whole."""
        least = self.memory.config.maintenance.compression_group
        room = min(CORE_CHARS, self.memory.config.limits.content_bytes // _BYTES_PER_CHAR)
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
        embedder = self.memory.indexer.embedder
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
        connection = self.memory.indexer.catalog.connection()
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
        context = self.memory.plan_context(now)

        def planned(snapshot: Snapshot) -> ChangeSet:
            draft = WorkingCopy(snapshot, context)
            results = [result for core in cores for result in _condensed(draft, core)]
            return ChangeSet(draft.changes(), tuple(results), notes, usage.as_dict() if usage.requests else None)

        return planned


def _condensed(draft: WorkingCopy, core: CorePlan) -> Iterator[OperationResult]:
    """Carry one core out, or say why it waits."""
    first = core.originals[0]
    changed = [each.uri for each in core.originals if draft.before(each.uri) != each.memory.text]
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


def _sha256(draft: WorkingCopy, uri: MemoryUri) -> str | None:
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
    changed = original.memory.metadata.changed_at
    return changed is not None and changed <= moment


def _run(memory: Runebook, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
    return Compression(memory, SummaryWriter(memory.config, memory.model)).run(now, dry_run=dry_run)


_NAME = "compression"
FEATURE = Feature(passes=(Pass(_NAME, _run, light=False),))
