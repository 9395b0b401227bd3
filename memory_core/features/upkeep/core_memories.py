"""Compression: memories that nobody used for long give way to a few core memories; the originals are archived.

A core is a list of whole memories, word for word, so that no word of them is lost to searches; what it has no room for
stays as it is. The plan is made of the files as they are under the store's lock: a core of which a file changed since
it was read is left for the next time.
"""

from __future__ import annotations

import heapq
import logging
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from memory_core.core.commit.links import LINKS_LIMIT
from memory_core.core.commit.working_copy import WorkingCopy
from memory_core.core.errors import EmbeddingFailed, RunebookError, TooLarge
from memory_core.core.feature import Feature
from memory_core.core.index.filter import utc
from memory_core.core.memory import names
from memory_core.core.memory.evidence import merged_confidence
from memory_core.core.memory.memory import Memory, new_memory
from memory_core.core.memory.memory_type import CONTENT, FieldType, MemoryType
from memory_core.core.memory.metadata import CONTESTING, EXPIRES_AT, LINKS, SIMILAR
from memory_core.core.memory.names import first_words, numbered
from memory_core.core.memory.project import project_key
from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt, OperationResult
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.search.fusion import jaccard
from memory_core.core.store.local import Snapshot
from memory_core.core.text.analysis import distinct_words
from memory_core.features.upkeep.archive import put_away
from memory_core.features.upkeep.passes import BATCH_FILES, Pass, brought_back, commit, memory_at, rows, usage

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

_log = logging.getLogger(__name__)
#: ``source.kind`` of a core, and why its originals are archived.
_COMPRESSION, _REASON = "compression", "condensed"
#: How a core is linked to its originals.
_REPLACES = "replaces"
#: Types that say what must be found as it is: who the user is, what is to be done, and counted experience.
_NEVER_CONDENSED = frozenset({"profile", "tasks", "tools", "skills"})
#: From this salience on a memory is never condensed.
_CRITICAL_SALIENCE = 0.9
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

    @property
    def memory_type(self) -> MemoryType:
        """Its type; a memory without one is never condensed."""
        assert self.memory.type is not None  # as ``stored`` found
        return self.memory.type

    @property
    def uri(self) -> MemoryUri:
        """Where it is."""
        return self.memory.uri

    @property
    def is_core(self) -> bool:
        """Whether it is itself a core."""
        return _is_core(self.memory)

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
        # As ``content`` lists them; what a model or a person wrote stays in one piece.
        listed = all(line.startswith((_ITEM, _INDENT)) or not line.strip() for line in self.said.split("\n"))
        if self.is_core and self.memory.metadata.source.get("author") == _EXTRACT and blocks and listed:
            return tuple(block.replace(f"\n{_INDENT}", "\n") for block in blocks)
        return (_headed(self.name, self.said),)

    @property
    def listed(self) -> str:
        """Its part of a core: what it says as a list."""
        return "\n".join(map(_listed, self.items))


@dataclass(frozen=True, slots=True)
class CorePlan:
    """A core: the originals that it replaces, in the order of their URIs.

    All are of one type, directory, project and privacy.
    """

    originals: tuple[Original, ...]

    @property
    def name(self) -> str:
        """The weightiest original's name and how many more there are."""
        weightiest = max(self.originals, key=lambda each: (not each.is_core, each.memory.salience))
        name = first_words(weightiest.name, _NAME_CHARS) or weightiest.name[:_NAME_CHARS]
        more = len(self.originals) - 1
        return f"{name}等{more + 1}条" if _is_wide(name) else f"{name} and {more} more"

    @property
    def content(self) -> str:
        """Each original whole, under its name; what is equal in name and text stands there once."""
        return "\n".join(dict.fromkeys(_listed(item) for original in self.originals for item in original.items))


def _is_condensable(original: Original) -> bool:
    """Whether a memory may be condensed at all, however little it is used.

    Not what a person pinned, put to rest or gave an end, what is critical, or contested: a core would state as plain
    what another memory contradicts.
    """
    memory_type, metadata = original.memory_type, original.memory.metadata
    key = memory_type.field(memory_type.key_fields[-1]) if memory_type.key_fields else None
    named = key is not None and key.type is FieldType.STRING
    if memory_type.name in _NEVER_CONDENSED or memory_type.template_mode:
        return False
    if not named or memory_type.field(CONTENT) is None:
        return False
    if metadata.is_pinned or metadata.get(EXPIRES_AT) is not None or not metadata.is_active:
        return False
    contested = any(link.relation in CONTESTING for link in metadata.links)
    return not contested and original.memory.salience < _CRITICAL_SALIENCE and bool(original.said)


def _kinship(original: Original) -> tuple[str, str, str, bool]:
    """What must be equal for two memories to share a core: type, directory, project and privacy."""
    memory = original.memory
    return memory.type_name, str(memory.uri.parent), memory.project or "", memory.is_private


def archived_originals(memory: Memory) -> list[str]:
    """Where the originals of a core are, by its trailer; empty of any other memory."""
    return [link.uri for link in memory.metadata.links if link.relation == _REPLACES] if _is_core(memory) else []


def _is_core(memory: Memory) -> bool:
    return bool(memory.metadata.source.get("kind") == _COMPRESSION)


def put(draft: WorkingCopy, core: CorePlan) -> tuple[MemoryUri, list[MemoryUri]]:
    """Write the core and move its originals into the archive.

    Returns:
        Where the core is, and where each of its originals is now.

    Raises:
        RunebookError: If an original cannot be moved, or the core has no name.
    """
    uri, fields = _free(draft, core)
    places = [put_away(draft, original.uri, _REASON, replaced_by=str(uri)) for original in core.originals]
    draft.store(new_memory(uri, core.originals[0].memory_type, fields, _metadata(draft, core, places)))
    return uri, places


def _free(draft: WorkingCopy, core: CorePlan) -> tuple[MemoryUri, dict[str, Any]]:
    """A name that no other memory of the directory has, and the fields with it."""
    first = core.originals[0]
    memory_type, directory = first.memory_type, first.uri.parent
    wanted = {**_shared_fields(core), memory_type.key_fields[-1]: core.name, CONTENT: core.content}
    for attempt in range(1, _NAMES_LIMIT):
        fields = numbered(memory_type, wanted, attempt)
        key = project_key(first.memory.project, names.key_of(fields, memory_type.key_fields))
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
    categories = {metadata.text("category") for metadata in every}
    first, now = core.originals[0].memory, draft.context.now
    return {
        "version": 1,
        "tags": list(tags) or None,
        "category": categories.pop() if len(categories) == 1 else None,
        "created_at": now,
        "updated_at": now,
        "salience": max(original.memory.salience for original in core.originals),
        "confidence": round(merged_confidence([metadata.confidence for metadata in every]), _DIGITS),
        "source": {"kind": _COMPRESSION, "author": _EXTRACT},
        "project": first.project,
        "private": True if first.is_private else None,
        LINKS: list(_links(core, places, now))[:LINKS_LIMIT],
    }


def _links(core: CorePlan, places: Sequence[MemoryUri], now: str) -> Iterator[dict[str, Any]]:
    """To the originals where they are now, then what the originals said of other memories."""
    own = {str(original.uri) for original in core.originals}
    for place in places:
        yield {"uri": str(place), "relation": _REPLACES, "strength": 1.0, "at": now}
    for original in core.originals:
        for link in original.memory.metadata.links:
            if link.uri not in own and link.relation != SIMILAR:
                yield {"uri": link.uri, "relation": link.relation, "strength": link.strength, "at": link.at or now}


def _headed(name: str, text: str) -> str:
    """A text under the name of its memory, unless it begins with it."""
    begins, after = text[: len(name)].casefold() == name.casefold(), text[len(name) : len(name) + 1]
    if not name or (begins and not after.isalnum()) or first_words(text) == name:
        return text
    gap = "\n" if "\n" in text or _MARKED.match(text) else "" if _is_wide(name) else " "
    return f"**{name}**{'：' if _is_wide(name) else ':'}{gap}{text}"


def _listed(item: str) -> str:
    """An item of a list; its further lines are indented, so that none of them begins another."""
    first, *more = item.split("\n")
    return "\n".join([_ITEM + first, *(_INDENT + line if line.strip() else line for line in more)])


def _is_wide(text: str) -> bool:
    return any(unicodedata.east_asian_width(char) in "WF" for char in text)


#: How alike one text is to each of some others, by their places.
Similarity = Callable[[int, Sequence[int]], Sequence[float]]

#: Originals of a core, at most: a few more where the rest is too small for a core, never more than a memory has links.
#: So many memories that are due make about three cores.
_ORIGINALS, _CORES = 40, 3
#: Characters of a core. A memory longer than the share of one original is not condensed.
_CORE_CHARS = 6_000
_BYTES_PER_CHAR = 8
#: From these on two texts are of one topic: cosine, or share of common words.
_ALIKE_BY_VECTOR, _ALIKE_BY_WORDS = 0.45, 0.15
#: The beginning of a text tells its topic.
_TOPIC_CHARS = 1_000
#: Loading a model takes about a second; maintenance is in no hurry.
_MODEL_SECONDS = 30.0


def parcels(lengths: Sequence[int], similarity: Similarity, alike: float, room: int, least: int) -> list[list[int]]:
    """Group many texts into parcels of bounded size, near ones together.

    The first text that is left takes the nearest ones: all that are alike, and others while it has too few, or while
    too few would be left for another parcel.

    Args:
        lengths: Of each text, in characters.
        similarity: Of one of them to others, the higher the nearer.
        alike: From this similarity on two texts are of one topic.
        room: Characters of a parcel at most.
        least: Texts of a parcel at least.

    Returns:
        Places of the texts of each parcel, ascending; the texts that found too few others are in none.
    """
    left, found = list(range(len(lengths))), []
    fewest = max(least, min(len(left), _ORIGINALS) // _CORES)
    while len(left) >= least:
        first, others = left[0], left[1:]
        near = zip(similarity(first, others), others, strict=True)
        parcel, free = [first], room - lengths[first]
        for score, place in heapq.nsmallest(_ORIGINALS + least, near, key=lambda each: (-each[0], each[1])):
            is_full = len(parcel) >= _ORIGINALS or (score < alike and len(parcel) >= fewest)
            if len(parcel) >= LINKS_LIMIT or (is_full and len(left) - len(parcel) >= least):
                break
            if lengths[place] <= free:
                parcel.append(place)
                free -= lengths[place]
        if len(parcel) >= least:
            found.append(sorted(parcel))
        left = [place for place in left if place not in parcel]
    return found


def _run(memory: Runebook, now: datetime, *, dry_run: bool) -> Iterator[CommitReceipt]:
    """Condense what was not used for long, by the settings ``maintenance.compression*``."""
    if not memory.config.maintenance.compression:
        return
    cores, note = _chosen(memory, now)
    notes: tuple[str, ...] = (note,)
    context = memory.plan_context(now)
    for part in _commits(cores):

        def planned(snapshot: Snapshot, part: Sequence[CorePlan] = part, notes: tuple[str, ...] = notes) -> ChangeSet:
            draft = WorkingCopy(snapshot, context)
            results = [result for core in part for result in _condensed(draft, core)]
            return ChangeSet(draft.changes(), tuple(results), notes)

        yield from commit(memory, _COMPRESSION, planned, now, dry_run=dry_run)
        notes = ()


def _chosen(memory: Runebook, now: datetime) -> tuple[list[CorePlan], str]:
    """The cores to be made of what is due, and how many of it stay for which reason."""
    least = memory.config.maintenance.compression_group
    room = min(_CORE_CHARS, memory.config.limits.content_bytes // _BYTES_PER_CHAR)
    cores: list[CorePlan] = []
    due = long = 0
    for group in _groups(memory, now):
        short = [each for each in group if len(each.listed) < room // least]
        due, long = due + len(group), long + len(group) - len(short)
        if len(short) < least:
            continue
        similarity, alike = _likeness(memory, short)
        for parcel in parcels([len(each.listed) + 1 for each in short], similarity, alike, room, least):
            core = CorePlan(tuple(short[place] for place in parcel))
            if not all(each.is_core for each in core.originals):
                cores.append(core)
    taken = sum(len(core.originals) for core in cores)
    why = [f"{long} longer than {room // least} characters, which a core cannot hold whole"] if long else []
    why += [f"{few} with too few beside them that fit into one core"] if (few := due - taken - long) else []
    stay = f"; {due - taken} stay as they are: {', '.join(why)}" if why else ""
    into = f"{len(cores)} cores" if len(cores) > 1 else "one core"
    return cores, f"{taken} of {due} memories that are due are condensed, into {into}{stay}"


def _groups(memory: Runebook, now: datetime) -> Iterator[list[Original]]:
    """Memories that are due, of one type, directory, project and privacy each."""
    settings = memory.config.maintenance
    before = now - timedelta(days=settings.compression_days)
    old = rows(
        memory,
        "NOT d.pinned AND d.active AND d.expires_at IS NULL AND d.salience < ? "
        "AND coalesce(d.updated_at, d.created_at) <= ?",
        _CRITICAL_SALIENCE,
        utc(before.isoformat()),
    )
    used, kept = usage(memory, old), brought_back(memory, now)
    found: dict[tuple[str, str, str, bool], list[Original]] = defaultdict(list)
    for uri in old:
        own = used.get(str(uri))
        if own is not None and (own.access_count >= settings.compression_accesses or own.last_accessed_at > before):
            continue
        read = memory_at(memory, uri)
        if read is None or str(uri) in kept:
            continue
        original, changed = Original(read), read.metadata.changed_at
        if changed is None or not _is_condensable(original):
            continue
        # The file itself has to say that it was last changed before, and has been here since.
        if max(changed, read.metadata.recorded_at or changed) <= before:
            found[_kinship(original)].append(original)
    for group in found.values():
        # A core alone, or cores among themselves, have nothing new to take in.
        if len(group) >= settings.compression_group and not all(original.is_core for original in group):
            yield group


def _likeness(memory: Runebook, originals: Sequence[Original]) -> tuple[Similarity, float]:
    """By meaning where there is a model, else by words; and from which similarity on two are of one topic."""
    topics = [f"{each.name}\n{each.said}"[:_TOPIC_CHARS] for each in originals]
    embedder = memory.indexer.embedder
    try:
        if embedder is not None and embedder.ready(_MODEL_SECONDS):
            vectors = embedder.embed(topics)
            return lambda one, others: (vectors[list(others)] @ vectors[one]).tolist(), _ALIKE_BY_VECTOR
    except EmbeddingFailed as error:
        _log.warning("memories are compared by their words: %s", error.message)
    words = list(map(distinct_words, topics))
    return lambda one, others: [jaccard(words[one], words[other]) for other in others], _ALIKE_BY_WORDS


def _condensed(draft: WorkingCopy, core: CorePlan) -> Iterator[OperationResult]:
    """Carry one core out, or say why it waits."""
    first = core.originals[0]
    changed = [each.uri for each in core.originals if draft.before(each.uri) != each.memory.text]
    if changed:
        note = "changed meanwhile: its group is left for the next time"
        yield OperationResult("condense", str(changed[0]), Action.UNCHANGED, note=note)
        return
    try:
        uri, places = put(draft, core)
    except RunebookError as error:
        yield OperationResult("condense", str(first.uri), Action.REJECTED, error.message, error.hint)
        return
    note = f"the core of {len(core.originals)} {first.memory_type.name}, whole and word for word"
    yield OperationResult("condense", str(uri), Action.CREATED, note=note)
    for original, place in zip(core.originals, places, strict=True):
        note = f"condensed into {uri}; now {place}"
        yield OperationResult("archive", str(original.uri), Action.DELETED, note=note)


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


FEATURE = Feature(passes=(Pass(_COMPRESSION, _run, light=False),))
