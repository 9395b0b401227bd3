"""Migration of an older store: semantic file names and trailers of the present format, without a model.

Owns what ``runebook migrate`` does. A name that says nothing gives way to one made of the memory's key, heading
or words; a trailer of another format becomes one of ours; derived averages leave it; keys nobody knows stay.
Bodies are not touched, nor are session files, logs, summaries, the archive and hand-named files without a trailer.
A migration is one ordinary commit, which one undo takes back; a second run changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from memory_core.core.command import Arg, Command
from memory_core.core.commit.links import linked_uris, retargeted
from memory_core.core.commit.working_copy import PlanContext, WorkingCopy
from memory_core.core.errors import FieldRejected, RunebookError
from memory_core.core.feature import Feature
from memory_core.core.memory import names
from memory_core.core.memory.memory import Memory, dump, parse
from memory_core.core.memory.memory_type import CONTENT, MemoryType, resolve_category
from memory_core.core.memory.names import numbered
from memory_core.core.memory.requests import Now
from memory_core.core.memory.results import Action, ChangeSet, OperationResult, text_sha256
from memory_core.core.memory.trailer import Parts, join, split
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.progress import tell
from memory_core.core.store.local import Snapshot, Store
from memory_core.features.older_format import Naming, is_random_name, is_rendering, name_of, understand

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

_BURIED = re.compile(r"^[ \t]*<!--[ \t]*MEMORY_FIELDS", re.MULTILINE)
_FORM = re.compile(r"[\s_-]+")
_COLLISION = re.compile(r"~[0-9a-f]{8}$")


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a file should become, its new name aside.

    Attributes:
        memory_type: Its type.
        memory: It in the present format.
        naming: The key to name it by; None where the name stays.
        why: What is done, as a phrase.
    """

    memory_type: MemoryType
    memory: Memory
    naming: Naming | None
    why: str


class Refused(RunebookError):
    """Why a file is left alone, and what a person can do about it."""


def convert(memory_type: MemoryType, uri: MemoryUri, text: str, modified_at: str | None = None) -> Conversion | None:
    """Decide what becomes of one file, from its text and name alone.

    Args:
        memory_type: The type that the store takes the file for.
        uri: Where it is.
        text: Its whole text.
        modified_at: When it was last written, ISO 8601; kept as ``updated_at`` where the file has no time.

    Returns:
        None if it is as it should be.

    Raises:
        Refused: If nobody but a person should change it.
    """
    file, stem = split(text), uri.name.removesuffix(".md")
    _expect_clear(memory_type, file)
    random = bool(memory_type.key_fields) and is_random_name(stem)
    if file.trailer is None and not random and not is_rendering(memory_type, file.body):
        return None
    reading = understand(memory_type, uri, text)
    memory = reading.memory
    naming = name_of(memory_type, reading, stem) if memory_type.key_fields else None
    if random and naming is not None and naming.given and _alike(stem, _stem(memory_type, naming.keys)):
        random = False  # a key may look like an identifier
    if random and naming is None:
        raise Refused("nothing in it makes a name", hint="Give the file a heading, or rename it by hand.")
    if naming is not None:
        made = {key: value for key, value in naming.keys.items() if str(memory.fields.get(key, "")).strip() != value}
        memory = replace(memory, fields={**memory.fields, **made})
    converted = dump(memory) != text
    if not random and not converted:
        return None
    if memory.metadata.get("updated_at", memory.metadata.get("created_at")) is None and modified_at is not None:
        memory = replace(memory, metadata=memory.metadata.changed({"updated_at": modified_at}))
    renames = random or (naming is not None and naming.given and not _alike(stem, _stem(memory_type, memory.fields)))
    remarks = [*([f"named by {naming.why}"] if renames and naming else ["trailer of another format"]), *reading.remarks]
    return Conversion(memory_type, memory, naming if renames else None, "; ".join(remarks))


def _expect_clear(memory_type: MemoryType, file: Parts) -> None:
    """Refuse a file that does not say clearly which of it is text and which is trailer."""
    if file.damage is not None:
        raise Refused(file.damage, hint="Mend or remove the trailer by hand.")
    if file.trailer is None:
        if any(_opens_trailer(file.body, match.end()) for match in _BURIED.finditer(file.body)):
            raise Refused("it has a MEMORY_FIELDS comment that is not its end", hint="Move the comment to the end.")
        return
    content = file.trailer.get(CONTENT)
    if memory_type.template_mode or not isinstance(content, str) or not content.strip() or not file.body.strip():
        return
    if content.split() != file.body.split():
        raise Refused("its text and the content in its trailer differ", hint="Keep one of the two.")


def _opens_trailer(text: str, at: int) -> bool:
    """Whether a JSON object begins here; prose about trailers has none."""
    brace = text.find("{", at)
    if brace < 0 or text[at:brace].strip():
        return False
    try:
        return isinstance(json.JSONDecoder().raw_decode(text, brace)[0], dict)
    except (ValueError, RecursionError):
        return False


def _stem(memory_type: MemoryType, fields: Mapping[str, Any]) -> str:
    return names.render(memory_type.filename_template, fields).removesuffix(".md")


def _alike(stem: str, wanted: str) -> bool:
    """Whether two names differ in form only: case, spacing, underscores, the mark of a collision."""
    first, second = (_FORM.sub(" ", names.fold(_COLLISION.sub("", name))).strip() for name in (stem, wanted))
    return first == second


#: The trailer key that remembers where a renamed memory was.
MIGRATED_FROM = "migrated_from"
_NAMES_LIMIT = 32


@dataclass(frozen=True, slots=True)
class Renamed:
    """A file with a new name; ``why`` says where the name comes from."""

    JSON: ClassVar = "old_uri:from new_uri:to memory_type keys why"

    old_uri: str
    new_uri: str
    memory_type: str
    keys: Mapping[str, str]
    why: str


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A file that kept its name, and what was rewritten in it."""

    uri: str
    why: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that kept its name and form: why, and what to do; its links may follow renamed files."""

    uri: str
    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class Migration:
    """What a migration did or, as a dry run, would do.

    Attributes:
        dry_run: Whether nothing was written.
        renamed: Files with a new name.
        rewritten: Files whose trailer changed: brought to the present format, or links that follow a renamed file.
        unchanged: URIs of files that are as they should be.
        skipped: Files that need a person; one whose links were rewritten is among ``rewritten``, too.
        commits: The commit, where anything changed; undoing it brings the old files back.
    """

    JSON: ClassVar = "*"

    dry_run: bool
    renamed: tuple[Renamed, ...] = ()
    rewritten: tuple[Rewritten, ...] = ()
    unchanged: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    commits: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Text form: a line or two for each file that is not simply unchanged, then the counts."""
        for renamed in self.renamed:
            yield f"rename   {renamed.old_uri}"
            yield f"      -> {renamed.new_uri}  ({renamed.why})"
        for rewritten in self.rewritten:
            yield f"rewrite  {rewritten.uri}  ({rewritten.why})"
        for skipped in self.skipped:
            yield f"skip     {skipped.uri}  ({skipped.reason}) {skipped.hint}"
        done = "would be " if self.dry_run else ""
        yield (
            f"{len(self.renamed)} {done}renamed, {len(self.rewritten)} {done}rewritten, "
            f"{len(self.unchanged)} unchanged, {len(self.skipped)} skipped."
        )


@dataclass(frozen=True, slots=True)
class MigrateRequest:
    """Give the files of an older store semantic names and our trailer."""

    dry_run: Annotated[bool, Arg(help="Show what would change; write nothing.")] = False
    now: Now = None


def migrate(memory: Runebook, request: MigrateRequest) -> Migration:
    """Bring the memories of one user and agent space to the present format, in one commit.

    Raises:
        StoreBusy: If another writer held the store too long. Nothing was changed.
        StorageFailed: If the disk or the ledger refuses. Nothing was changed.
    """
    memory.opened.adopted.wait()
    moment = request.now or datetime.now(UTC)
    run = _Run(memory.store, memory.plan_context(moment))
    run.survey()
    receipt = memory.store.commit(run.plan, kind="migrate", now=moment, dry_run=request.dry_run)
    memory.indexer.follow()
    return replace(run.done, dry_run=request.dry_run, commits=tuple(filter(None, [receipt.commit_id])))


MIGRATE = Command("migrate", MigrateRequest, migrate, writes=True)
FEATURE = Feature(commands=(MIGRATE,))


class _Run:
    """One migration: decides on every file, then plans under the lock, on the texts as they are then."""

    def __init__(self, store: Store, context: PlanContext) -> None:
        self._store = store
        self._context = context
        #: What was decided on a text, by the file and the hash of the text: it need not be decided under the lock.
        self._decided: dict[tuple[MemoryUri, str], Conversion | None] = {}

    def survey(self) -> None:
        """Decide on every file; reads only, beside others who write."""
        uris = list(self._uris())
        for number, uri in enumerate(uris):
            tell("migrating", number, len(uris), unit="files")
            with contextlib.suppress(RunebookError):  # the plan says why
                text = self._store.text(uri)
                if text is not None:
                    self._decided[uri, text_sha256(text)] = self._decide(uri, text)

    def plan(self, snapshot: Snapshot) -> ChangeSet:
        """What becomes of all files; one that cannot be brought over keeps its name and form."""
        self._draft = WorkingCopy(snapshot, self._context)
        self._renamed: list[Renamed] = []
        self._rewritten: dict[MemoryUri, str] = {}
        self._results: list[OperationResult] = []
        self._keys: set[tuple[MemoryUri, str, str]] = set()
        self._expected: dict[MemoryUri, Conversion] = {}
        unchanged: list[MemoryUri] = []
        skipped: list[Skipped] = []
        linking: dict[str, set[MemoryUri]] = {}
        for uri in self._uris():
            try:
                text = self._draft.text(uri)
                if text is None:
                    continue
                for target in linked_uris(split(text).trailer or {}):
                    linking.setdefault(target, set()).add(uri)
                known = uri, text_sha256(text)
                conversion = self._decided[known] if known in self._decided else self._decide(uri, text)
            except RunebookError as error:
                skipped.append(Skipped(str(uri), error.message, error.hint))
                continue
            if conversion is None:
                unchanged.append(uri)
            else:
                self._expected[uri] = conversion
            self._keep_key(uri, text, conversion)
        for uri, conversion in self._expected.items():
            try:
                self._apply(uri, conversion)
            except RunebookError as error:
                skipped.append(Skipped(str(uri), error.message, error.hint))
                self._results.append(OperationResult("migrate", str(uri), Action.REJECTED, error.message, error.hint))
        self._relink(linking)
        self.done = Migration(
            dry_run=False,
            renamed=tuple(self._renamed),
            rewritten=tuple(Rewritten(str(uri), why) for uri, why in self._rewritten.items()),
            unchanged=tuple(str(uri) for uri in unchanged if uri not in self._rewritten),
            skipped=tuple(skipped),
        )
        return ChangeSet(self._draft.changes(), tuple(self._results))

    def _uris(self) -> Iterator[MemoryUri]:
        for space in (f"user/{self._context.user_space}", f"agent/{self._context.agent_space}"):
            place = MemoryUri.parse(f"viking://{space}/memories")
            if self._store.files.is_dir(place):
                found = (entry.uri for entry in self._store.files.walk(place))
                yield from (uri for uri in found if uri.name.endswith(".md") and not uri.is_summary)

    def _decide(self, uri: MemoryUri, text: str) -> Conversion | None:
        """``convert`` for a file of this store."""
        registry = self._context.registry
        named = split(text).type_name
        memory_type = registry.type_at(uri, named)
        if memory_type is None:
            if not is_random_name(uri.name.removesuffix(".md")):
                return None
            raise Refused("its folder belongs to no memory type", hint="Move it to a type's folder, or declare a type.")
        if named is not None and memory_type.name not in (named, resolve_category(named)):
            raise Refused(
                f"its trailer names the unknown memory type '{named[:64]}'", hint="Declare that type in YAML."
            )
        stat, modified_at = self._store.files.stat(uri), None
        if stat is not None and stat.mtime_ns > 0:  # older versions moved texts to a database without it
            modified_at = datetime.fromtimestamp(stat.mtime_ns / 1e9, UTC).isoformat(timespec="seconds")
        return convert(memory_type, uri, text, modified_at)

    def _keep_key(self, uri: MemoryUri, text: str, conversion: Conversion | None) -> None:
        """Note the key of a memory that has one: no other is to get it."""
        if conversion is None or conversion.naming is None or conversion.naming.given:
            memory = parse(uri, text, self._context.registry) if conversion is None else conversion.memory
            if memory.type is not None:
                self._keys.add((uri.parent, memory.type_name, memory.key))

    def _apply(self, uri: MemoryUri, conversion: Conversion) -> None:
        memory_type = conversion.memory_type
        if conversion.naming is None:
            self._draft.put(uri, dump(conversion.memory))
            self._rewrite(uri, conversion.why)
            return
        memory = self._place(conversion.memory, conversion.naming, memory_type)
        memory = replace(memory, unknown={**memory.unknown, MIGRATED_FROM: str(uri)})
        new = memory.uri
        self._draft.move(uri, parse(new, dump(memory), self._context.registry))
        self._keys.add((new.parent, memory_type.name, memory.key))
        keys = {name: str(memory.fields[name]) for name in memory_type.key_fields if name in memory.fields}
        self._renamed.append(Renamed(str(uri), str(new), memory_type.name, keys, conversion.why))
        self._result(new, Action.CREATED, note=f"renamed from {uri}: {conversion.why}")
        self._result(uri, Action.DELETED, note=f"renamed to {new}")

    def _place(self, memory: Memory, naming: Naming, memory_type: MemoryType) -> Memory:
        """A free name beside the old one. A made-up key is numbered; a given one stays and only its file is marked."""
        directory = memory.uri.parent
        for attempt in range(1, _NAMES_LIMIT):
            fields = dict(memory.fields) if naming.given else numbered(memory_type, memory.fields, attempt)
            name = names.render(memory_type.filename_template, fields)
            if naming.given and attempt > 1:
                stem, dot, extension = name.rpartition(".")
                name = names.fit(stem, dot + extension, "~" + names.short_hash(f"{attempt}:{memory.uri}"))
            key = (directory, memory_type.name, names.key_of(fields, memory_type.key_fields))
            if (naming.given or not self._is_known(key)) and not self._draft.is_taken(directory.child(name)):
                return replace(memory, uri=directory.child(name), fields=fields)
        raise FieldRejected("too many memories have this name.", hint="Rename the file by hand.")

    def _is_known(self, key: tuple[MemoryUri, str, str]) -> bool:
        if key in self._keys:
            return True
        found = self._draft.snapshot.locate(*key)
        return found is not None and found not in self._expected

    def _relink(self, linking: Mapping[str, set[MemoryUri]]) -> None:
        """Let links in memories follow the renamed files."""
        moved = {MemoryUri.parse(item.old_uri): MemoryUri.parse(item.new_uri) for item in self._renamed}
        for old, new in moved.items():
            for source in sorted(linking.get(str(old), ())):
                at = moved.get(source, source)
                text = self._draft.text(at) or ""
                file = split(text)
                if file.trailer is None or self._context.registry.type_at(at, file.type_name) is None:
                    continue
                trailer = retargeted(file.trailer, old, new)
                if trailer != file.trailer:
                    if text == self._draft.before(at):
                        self._rewrite(at, "its links follow renamed files")
                    self._draft.put(at, join(file.body, trailer))

    def _rewrite(self, uri: MemoryUri, why: str) -> None:
        self._rewritten[uri] = why
        self._result(uri, Action.UPDATED, note=why)

    def _result(self, uri: MemoryUri, action: Action, note: str) -> None:
        self._results.append(OperationResult("migrate", str(uri), action, note=note))
