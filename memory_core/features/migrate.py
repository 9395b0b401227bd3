"""Migration of an older store: semantic file names and trailers of the present format, without a model.

Owns what ``runebook migrate`` does. A name that says nothing gives way to one made of the memory's key, heading
or words; a trailer of another format becomes one of ours; derived averages leave it; keys nobody knows stay.
Bodies are not touched, nor are session files, logs, summaries, the archive and hand-named files without a trailer.
Each batch is one ordinary commit: killed between two, the next run goes on; a second run changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from memory_core.core.command import NOWHERE, Arg, Command
from memory_core.core.commit.links import linked_uris, retargeted
from memory_core.core.commit.working_copy import PlanContext, WorkingCopy
from memory_core.core.errors import FieldRejected, RunebookError
from memory_core.core.feature import Feature
from memory_core.core.memory import names
from memory_core.core.memory.memory import Memory, dump, parse
from memory_core.core.memory.memory_type import CONTENT, MemoryType, MemoryTypeRegistry, resolve_category
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
class Proposal:
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


def propose(memory_type: MemoryType, uri: MemoryUri, text: str, modified_at: str | None = None) -> Proposal | None:
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
    return Proposal(memory_type, memory, naming if renames else None, "; ".join(remarks))


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
_AGAIN = "Run the migration again once nobody writes to the file."


@dataclass(frozen=True, slots=True)
class Renamed:
    """A file with a new name; ``why`` says where the name comes from."""

    old_uri: str
    new_uri: str
    memory_type: str
    keys: Mapping[str, str]
    why: str


@dataclass(frozen=True, slots=True)
class Touched:
    """A file that kept its name: what was rewritten in it, or why it was skipped and what to do."""

    uri: str
    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Migration:
    """What a migration did or, as a dry run, would do.

    Attributes:
        dry_run: Whether nothing was written.
        renamed: Files with a new name.
        rewritten: Files whose trailer changed: brought to the present format, or links that follow a renamed file.
        unchanged: URIs of files that are as they should be.
        skipped: Files that need a person.
        commits: The commits, oldest first; undoing them in reverse brings the old files back.
    """

    dry_run: bool
    renamed: tuple[Renamed, ...] = ()
    rewritten: tuple[Touched, ...] = ()
    unchanged: tuple[str, ...] = ()
    skipped: tuple[Touched, ...] = ()
    commits: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "dry_run": self.dry_run,
            "renamed": [
                {"from": item.old_uri, "to": item.new_uri, "memory_type": item.memory_type}
                | {"keys": dict(item.keys), "why": item.why}
                for item in self.renamed
            ],
            "rewritten": [{"uri": item.uri, "why": item.reason} for item in self.rewritten],
            "unchanged": list(self.unchanged),
            "skipped": [{"uri": item.uri, "reason": item.reason, "hint": item.hint} for item in self.skipped],
            "commits": list(self.commits),
        }

    def lines(self) -> Iterator[str]:
        """Text form: a line or two for each file that is not simply unchanged, then the counts."""
        for renamed in self.renamed:
            yield f"rename   {renamed.old_uri}"
            yield f"      -> {renamed.new_uri}  ({renamed.why})"
        for touched in self.rewritten:
            yield f"rewrite  {touched.uri}  ({touched.reason})"
        for touched in self.skipped:
            yield f"skip     {touched.uri}  ({touched.reason}) {touched.hint}"
        done = "would be " if self.dry_run else ""
        yield (
            f"{len(self.renamed)} {done}renamed, {len(self.rewritten)} {done}rewritten, "
            f"{len(self.unchanged)} unchanged, {len(self.skipped)} skipped."
        )


@dataclass(frozen=True, slots=True)
class MigrateRequest:
    """Give the files of an older store semantic names and our trailer."""

    dry_run: Annotated[bool, Arg(help="Show what would change; write nothing.")] = False
    batch_files: Annotated[int, Arg(surfaces=NOWHERE)] = 200
    now: Now = None


def migrate(memory: Runebook, request: MigrateRequest) -> Migration:
    """Bring the memories of one user and agent space to the present format, in commits of bounded size.

    Others may go on using the store; a file that somebody changes meanwhile is skipped.

    Raises:
        StoreBusy: If another writer held the store too long. Batches before that are done.
        StorageFailed: If the disk or the ledger refuses. Batches before that are done.
    """
    memory.opened.adopted.wait()
    store, registry, dry_run = memory.store, memory.registry, request.dry_run
    user_space, agent_space = memory.config.user_space, memory.config.agent_space
    places = [
        MemoryUri.parse(f"viking://user/{user_space}/memories"),
        MemoryUri.parse(f"viking://agent/{agent_space}/memories"),
    ]
    survey = _Survey(store, registry)
    for place in places:
        survey.take(place)
    moment = request.now or datetime.now(UTC)
    context = PlanContext(registry, user_space, agent_space, moment.astimezone(UTC).isoformat(timespec="seconds"))
    todo = list(survey.expected)
    commits: list[str] = []
    for start in range(0, len(todo), request.batch_files):
        tell("migrating", start, len(todo), unit="files")
        batch = _Batch(survey, context, todo[start : start + request.batch_files])
        receipt = store.commit(batch.plan, kind="migrate", now=moment, dry_run=dry_run)
        batch.settle(dry_run=dry_run)
        commits += [receipt.commit_id] if receipt.commit_id else []
    moved = {uri for item in survey.renamed for uri in (item.old_uri, item.new_uri)}
    memory.indexer.follow()
    return Migration(
        dry_run,
        tuple(survey.renamed),
        tuple(item for uri, item in survey.rewritten.items() if uri not in moved),
        tuple(survey.unchanged),
        tuple(survey.skipped),
        tuple(commits),
    )


MIGRATE = Command("migrate", MigrateRequest, migrate, writes=True)
FEATURE = Feature(commands=(MIGRATE,))


class _Survey:
    """What is known of all files: who must change, which names and keys are taken, who links to whom.

    Holds no texts, so that a large store needs little memory.
    """

    def __init__(self, store: Store, registry: MemoryTypeRegistry) -> None:
        self.store = store
        self.registry = registry
        self.expected: dict[MemoryUri, str] = {}
        self.names: dict[MemoryUri, set[str]] = {}
        self.keys: set[tuple[MemoryUri, str, str]] = set()
        self.linking: dict[str, set[MemoryUri]] = {}
        self.moved: dict[MemoryUri, MemoryUri] = {}
        self.renamed: list[Renamed] = []
        self.rewritten: dict[str, Touched] = {}
        self.unchanged: list[str] = []
        self.skipped: list[Touched] = []

    def take(self, place: MemoryUri) -> None:
        """Look at every file below ``place``; reads only."""
        if not self.store.files.is_dir(place):
            return
        for entry in self.store.files.walk(place):
            self.names.setdefault(entry.uri.parent, set()).add(names.fold(entry.uri.name))
            if entry.uri.name.endswith(".md") and not entry.uri.is_summary:
                self._take_file(entry.uri)

    def _take_file(self, uri: MemoryUri) -> None:
        text: str | None = None
        proposal: Proposal | None = None
        try:
            text = self.store.text(uri)
            if text is None:
                return
            for target in linked_uris(split(text).trailer or {}):
                self.linking.setdefault(target, set()).add(uri)
            proposal = self.decide(uri, text)
            if proposal is None:
                self.unchanged.append(str(uri))
        except RunebookError as error:
            self.skipped.append(Touched(str(uri), error.message, error.hint))
        if proposal is not None:
            self.expected[uri] = text_sha256(text or "")
        if proposal is None or proposal.naming is None or proposal.naming.given:
            memory = parse(uri, text or "", self.registry) if proposal is None else proposal.memory
            if memory.type is not None and text is not None:
                self.keys.add((memory.uri.parent, memory.type_name, memory.key))

    def decide(self, uri: MemoryUri, text: str) -> Proposal | None:
        """``propose`` for a file of this store."""
        named = split(text).type_name
        memory_type = self.registry.type_at(uri, named)
        if memory_type is None:
            if not is_random_name(uri.name.removesuffix(".md")):
                return None
            raise Refused("its folder belongs to no memory type", hint="Move it to a type's folder, or declare a type.")
        if named is not None and memory_type.name not in (named, resolve_category(named)):
            raise Refused(
                f"its trailer names the unknown memory type '{named[:64]}'", hint="Declare that type in YAML."
            )
        stat = self.store.files.stat(uri)
        written = None if stat is None else datetime.fromtimestamp(stat.mtime_ns / 1e9, UTC)
        return propose(memory_type, uri, text, None if written is None else written.isoformat(timespec="seconds"))


class _Batch:
    """One commit: plans under the lock against the texts as they are; what it did counts once it is committed."""

    def __init__(self, survey: _Survey, context: PlanContext, uris: Sequence[MemoryUri]) -> None:
        self._survey = survey
        self._context = context
        self._uris = uris

    def plan(self, snapshot: Snapshot) -> ChangeSet:
        """The batch's change set; a file that changed since the survey is left out and named."""
        self._draft = WorkingCopy(snapshot, self._context)
        self._moved: dict[MemoryUri, MemoryUri] = {}
        self._renamed: list[Renamed] = []
        self._rewritten: list[Touched] = []
        self._skipped: list[Touched] = []
        self._results: list[OperationResult] = []
        self._keys: set[tuple[MemoryUri, str, str]] = set()
        for uri in self._uris:
            try:
                self._attempt(uri)
            except RunebookError as error:
                self._skipped.append(Touched(str(uri), error.message, error.hint))
                self._results.append(OperationResult("migrate", str(uri), Action.REJECTED, error.message, error.hint))
        for old, new in self._moved.items():
            self._relink(old, new)
        return ChangeSet(self._draft.changes(), tuple(self._results))

    def settle(self, *, dry_run: bool) -> None:
        """Let the next batch build on this one."""
        survey = self._survey
        survey.moved |= self._moved
        survey.renamed += self._renamed
        survey.skipped += self._skipped
        survey.keys |= self._keys
        for touched in self._rewritten:
            survey.rewritten.setdefault(touched.uri, touched)
        for change in self._draft.changes():
            if change.after is not None:
                survey.names.setdefault(change.uri.parent, set()).add(names.fold(change.uri.name))
                if change.uri in survey.expected and not dry_run:
                    survey.expected[change.uri] = text_sha256(change.after)
        touched_uris = {touched.uri for touched in self._rewritten}
        survey.unchanged = [uri for uri in survey.unchanged if uri not in touched_uris]

    def _attempt(self, uri: MemoryUri) -> None:
        text = self._draft.text(uri)
        if text is None or text_sha256(text) != self._survey.expected[uri]:
            raise Refused("it changed while the migration ran", hint=_AGAIN)
        proposal = self._survey.decide(uri, text)
        if proposal is not None:  # an earlier batch may have brought it to the present format with its links
            self._apply(uri, proposal)

    def _apply(self, uri: MemoryUri, proposal: Proposal) -> None:
        memory_type = proposal.memory_type
        if proposal.naming is None:
            self._draft.put(uri, dump(proposal.memory))
            self._rewrite(uri, proposal.why)
            return
        memory = self._place(proposal.memory, proposal.naming, memory_type)
        memory = replace(memory, unknown={**memory.unknown, MIGRATED_FROM: str(uri)})
        new = memory.uri
        self._draft.put(uri, None)
        self._draft.put(new, dump(memory))
        self._keys.add((new.parent, memory_type.name, memory.key))
        self._moved[uri] = new
        keys = {name: str(memory.fields[name]) for name in memory_type.key_fields if name in memory.fields}
        self._renamed.append(Renamed(str(uri), str(new), memory_type.name, keys, proposal.why))
        self._result(new, Action.CREATED, note=f"renamed from {uri}: {proposal.why}")
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
            if (naming.given or not self._is_known(key)) and not self._is_taken(directory.child(name)):
                return replace(memory, uri=directory.child(name), fields=fields)
        raise FieldRejected("too many memories have this name.", hint="Rename the file by hand.")

    def _is_known(self, key: tuple[MemoryUri, str, str]) -> bool:
        if key in self._keys or key in self._survey.keys:
            return True
        found = self._draft.snapshot.locate(*key)
        return found is not None and found not in self._survey.expected

    def _is_taken(self, uri: MemoryUri) -> bool:
        return names.fold(uri.name) in self._survey.names.get(uri.parent, ()) or self._draft.is_taken(uri)

    def _relink(self, old: MemoryUri, new: MemoryUri) -> None:
        """Let links in other memories follow a renamed file."""
        for source in sorted(self._survey.linking.get(str(old), ())):
            at = self._moved.get(source) or self._survey.moved.get(source, source)
            try:
                text = self._draft.text(at)
            except RunebookError:
                continue  # it was unreadable in the survey too, and is reported there
            file = split(text or "")
            if file.trailer is None or self._survey.registry.type_at(at, file.type_name) is None:
                continue
            trailer = retargeted(file.trailer, old, new)
            if trailer != file.trailer:
                if text == self._draft.before(at):
                    self._rewrite(at, "its links follow renamed files")
                self._draft.put(at, join(file.body, trailer))

    def _rewrite(self, uri: MemoryUri, why: str) -> None:
        self._rewritten.append(Touched(str(uri), why))
        self._result(uri, Action.UPDATED, note=why)

    def _result(self, uri: MemoryUri, action: Action, note: str) -> None:
        self._results.append(OperationResult("migrate", str(uri), action, note=note))
