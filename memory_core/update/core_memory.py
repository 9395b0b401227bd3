"""Core memories: one memory in the place of several of its type that nobody uses any more.

A core holds each original whole under its name, or what a model wrote in their place. It
takes over their tags, the greatest salience, the mean confidence, and the project; its links name the originals in the
archive, and their trailers name it. Works on a plan's draft; writes nothing itself.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory_core.errors import TooLarge
from memory_core.model import filename
from memory_core.model.availability import EXPIRES_AT, is_active, is_pinned
from memory_core.model.memory_file import dump, parse
from memory_core.model.project import is_private, project_key, stored_project
from memory_core.model.record import CONTENT, MemoryRecord, first_words, read_record, record_key, write_record
from memory_core.model.relations import CONTESTING, LINKS, SIMILAR, confidence_in, relations_in, unit
from memory_core.model.schema import FieldType, MemoryType
from memory_core.model.uri import MemoryUri
from memory_core.scoring.evidence import merged_confidence
from memory_core.update.archiving import archive, archived_uri
from memory_core.update.draft import Draft
from memory_core.update.links import LINKS_LIMIT
from memory_core.update.naming import numbered

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

    uri: MemoryUri
    memory_type: MemoryType
    record: MemoryRecord
    sha256: str

    @property
    def is_core(self) -> bool:
        """Whether it is itself a core."""
        return bool(self._source)

    @property
    def salience(self) -> float:
        """Its own, or its type's."""
        return unit(self.record.meta.get("salience"), self.memory_type.salience)

    @property
    def name(self) -> str:
        """What it is called: its key fields, else the name of its file."""
        keys = (str(self.record.fields.get(key) or "").strip() for key in self.memory_type.key_fields)
        return " ".join(filter(None, keys)) or self.uri.name.removesuffix(".md")

    @property
    def said(self) -> str:
        """Its body, and the fields that the body does not show."""
        body = str(self.record.fields.get(CONTENT) or "")
        keys = (CONTENT, *self.memory_type.key_fields)
        own = (self.record.fields.get(field.name) for field in self.memory_type.fields if field.name not in keys)
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
        source = self.record.meta.get("source")
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
    memory_type, meta = original.memory_type, original.record.meta
    key = memory_type.field(memory_type.key_fields[-1]) if memory_type.key_fields else None
    named = key is not None and key.type is FieldType.STRING
    if memory_type.name in NEVER or memory_type.template_mode or not named or memory_type.field(CONTENT) is None:
        return False
    if is_pinned(meta) or meta.get(EXPIRES_AT) is not None or not is_active(meta):
        return False
    contested = any(link.relation in CONTESTING for link in relations_in(meta))
    return not contested and original.salience < CRITICAL_SALIENCE and bool(original.said)


def kinship(original: Original) -> tuple[str, str, str, bool]:
    """What must be equal for two memories to share a core: type, directory, project and privacy."""
    meta = original.record.meta
    project = stored_project(original.memory_type, meta)
    private = is_private(original.memory_type, meta)
    return original.memory_type.name, str(original.uri.parent), project or "", private


def extracted(originals: Sequence[Original]) -> CorePlan:
    """The core of these originals: each whole, under its name; what is equal in name and text stands there once."""
    listed = dict.fromkeys(_listed(item) for original in originals for item in original.items)
    return CorePlan(tuple(originals), _common_name(originals), "\n".join(listed))


def archived_originals(meta: Mapping[str, Any]) -> list[str]:
    """Where the originals of a core are, by its trailer; empty of any other memory."""
    source = meta.get("source")
    if not isinstance(source, Mapping) or source.get("kind") != COMPRESSION:
        return []
    return [link.uri for link in relations_in(meta) if link.relation == REPLACES]


def put(draft: Draft, core: CorePlan) -> MemoryUri:
    """Write the core and move its originals into the archive.

    Returns:
        Where the core is.

    Raises:
        TooLarge: If the core has no room in a memory.
        RunebookError: If an original cannot be moved.
    """
    uri, fields = _free(draft, core)
    places = [archived_uri(original.uri) for original in core.originals]
    if len(_text(draft, core, fields, places).encode("utf-8")) > draft.context.content_bytes:
        raise TooLarge(f"the core of {len(core.originals)} memories is too large.", hint="Raise limits.content_bytes.")
    places = [archive(draft, original.uri, REASON, replaced_by=str(uri)) for original in core.originals]
    text = _text(draft, core, fields, places)
    memory_type = core.originals[0].memory_type
    draft.identify(uri, memory_type.name, record_key(memory_type, read_record(memory_type, parse(text), "")))
    draft.put(uri, text)
    return uri


def _text(draft: Draft, core: CorePlan, fields: dict[str, Any], places: Sequence[MemoryUri]) -> str:
    memory_type = core.originals[0].memory_type
    return dump(write_record(memory_type, MemoryRecord(fields, _meta(draft, core, places), {}, core.content)))


def _free(draft: Draft, core: CorePlan) -> tuple[MemoryUri, dict[str, Any]]:
    """A name that no other memory of the directory has, and the fields with it."""
    first = core.originals[0]
    memory_type, directory = first.memory_type, first.uri.parent
    project = stored_project(memory_type, first.record.meta)
    wanted = {**_shared_fields(core), memory_type.key_fields[-1]: core.name, CONTENT: core.content}
    for attempt in range(1, _NAMES_LIMIT):
        fields = numbered(memory_type, wanted, attempt)
        key = project_key(project, filename.key_of(fields, memory_type.key_fields))
        uri = directory.child(filename.render(memory_type.filename_template, fields))
        if draft.snapshot.locate(directory, memory_type.name, key) is None and not draft.is_taken(uri):
            return uri, fields
    raise TooLarge("too many memories have the name of this core.", hint="Rename some of them.")


def _shared_fields(core: CorePlan) -> dict[str, Any]:
    """Fields that all originals have alike, such as the kind of an entity; their content is the core's."""
    first, *others = (original.record.fields for original in core.originals)
    declared = {field.name for field in core.originals[0].memory_type.fields} - {CONTENT}
    return {
        name: value
        for name, value in first.items()
        if name in declared and all(other.get(name) == value for other in others)
    }


def _meta(draft: Draft, core: CorePlan, places: Sequence[MemoryUri]) -> dict[str, Any]:
    metas = [original.record.meta for original in core.originals]
    tags = dict.fromkeys(tag for meta in metas for tag in _list(meta.get("tags")) if isinstance(tag, str))
    categories = {str(meta.get("category") or "") for meta in metas}
    _, _, project, private = kinship(core.originals[0])
    now = draft.context.now
    return {
        "version": 1,
        "tags": list(tags) or None,
        "category": categories.pop() or None if len(categories) == 1 else None,
        "created_at": now,
        "updated_at": now,
        "salience": max(original.salience for original in core.originals),
        "confidence": round(merged_confidence([confidence_in(meta) for meta in metas]), _DIGITS),
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
        for link in relations_in(original.record.meta):
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
