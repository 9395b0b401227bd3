"""Purging: texts erased for good, from files, history, index and trail, with no way back.

First the files are deleted, as any commit deletes them; then their texts leave the ledger and the index, and both are
written anew, so that the bytes are gone from the disk. What a purge was stopped at, the next one finishes. A purged
file loses its name too, which was made of its words: history knows it as ``purged-…``. Copies that others hold of the
words (another memory, a log, a backup) are not touched but named. For the owner alone: no tool reaches this.
"""

from __future__ import annotations

import secrets
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated

from memory_core.core.command import Arg, Command
from memory_core.core.errors import InvalidInput, NotFound, StorageFailed
from memory_core.core.feature import Feature
from memory_core.core.index.documents import MESSAGES_NAME
from memory_core.core.index.vectors import HAS_NO_PASSAGE, prune
from memory_core.core.memory.message import parse_lines
from memory_core.core.memory.requests import Now
from memory_core.core.memory.results import (
    Action,
    ChangeSet,
    CommitReceipt,
    FileChange,
    OperationResult,
    Status,
    utf8_bytes,
)
from memory_core.core.memory.trailer import split
from memory_core.core.memory.uri import ABSTRACT_NAME, OVERVIEW_NAME, MemoryUri, Scope, space_of
from memory_core.core.store.history_rows import Erasure, Stay, vacuum
from memory_core.core.store.local import Snapshot
from memory_core.features.history import history_of
from memory_core.features.tiers.segment import segments_of
from memory_core.features.undo import UndoRequest, undo
from memory_core.features.upkeep.archive import archived_uri

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

KIND = "purge"
_ROOT_DEPTH = 3
#: So many lines of erased texts are looked for afterwards, the longest first.
_TRACES = 200
#: In history the longest of these are looked for.
_TRACES_PAST = 20
#: A shorter line is not looked for: other texts hold it, too.
_TRACE_BYTES = 12
_CHUNK_BYTES = 1 << 20
_NAMED_FILES = 20


@dataclass(frozen=True, slots=True)
class Doomed:
    """What a purge would erase.

    Attributes:
        files: Files that are there.
        erasures: Their texts, those of files of which only history knows, and what either was before it was renamed.
    """

    files: tuple[MemoryUri, ...]
    erasures: tuple[Erasure, ...]

    @property
    def names(self) -> list[str]:
        """Where they are and were; where another one has the name by now, that one stays."""
        return [str(uri) for uri in dict.fromkeys(erasure.uri for erasure in self.erasures if erasure.end is None)]


@dataclass(frozen=True, slots=True)
class PurgeRequest:
    """Erase a file and all its past for good; nothing brings it back.

    ``commit`` names instead what one commit brought.
    """

    uri: Annotated[str | None, Arg(help="A file, or a directory of memories.", positional=True)] = None
    commit: Annotated[str | None, Arg(help="Take this commit back and erase what it brought.")] = None
    now: Now = None


def doomed(memory: Runebook, uri: str) -> Doomed:
    """What purging a file, or everything below a directory, would erase.

    Raises:
        InvalidInput: If the URI is not below a space.
        NotFound: If there is nothing, and never was.
    """
    place = memory.browser.visible(MemoryUri.parse(uri))
    if len(place.parts) < _ROOT_DEPTH:
        raise InvalidInput(f"{uri!r} is too much to purge at once.", hint="Name a file or a directory of memories.")
    history, rows = history_of(memory), memory.store.ledger.past
    files: list[MemoryUri] = []
    erasures: dict[tuple[MemoryUri, int], Erasure] = {}
    waiting = [place, *_segments_too(place)]
    while waiting:
        each = waiting.pop(0)
        here: dict[MemoryUri, None] = {}
        if memory.store.files.is_dir(each):
            walked = (entry.uri for entry in memory.store.files.walk(each))
            kept = (file for file in walked if not file.is_summary or memory.store.look(file)[0] is not None)
            here = dict.fromkeys(kept)
        elif memory.store.files.stat(each) is not None:
            here = {each: None}
        files += here
        for file in dict.fromkeys((*here, *filter(history.sees, rows.below(each)))):
            stays = rows.stays(file)
            ended = [stay for stay in stays if stay.went_to is None]
            if file in here:  # where one file is meant, it is the one that is there
                ended = stays[-1:] if file == place else [*ended, *(stay for stay in stays[-1:] if stay.went_to)]
            past = [stay for last in ended for stay in rows.before(last)]
            if not stays:  # no commit knows it
                erasures[file, 0] = Erasure(file, _tombstone(file))
            # What moved on is another by now; where all did, a name means what it was under that name.
            for stay in past or (stays if file == place else ()):
                if history.sees(stay.uri) and space_of(stay.uri) == space_of(file):
                    erasures[stay.uri, stay.first] = Erasure(stay.uri, _tombstone(stay.uri), stay.first, stay.end)
                    waiting += _segments_too(stay.uri) if stay.uri != file else ()
    if not erasures:
        raise NotFound(
            f"there is nothing at {uri!r}, and history knows of nothing that ended there.", hint="Look with ls."
        )
    return Doomed(tuple(files), tuple(erasures.values()))


def purge(memory: Runebook, request: PurgeRequest) -> CommitReceipt:
    """Erase a file, or everything below a directory, with every version; or what one commit brought.

    Raises:
        InvalidInput: If not exactly one of the two is named, or something of the commit cannot be undone. Nothing was
            erased.
        NotFound: If there is nothing to erase.
        StorageFailed: If a file could not be removed, or was written again; nothing was erased from history then.
        StoreBusy: If other programs kept the store in use; run it again.
    """
    memory.opened.adopted.wait()
    if request.uri is not None and request.commit is None:
        return _purge_files(memory, request.uri, request.now)
    if request.commit is not None and request.uri is None:
        return _purge_commit(memory, request.commit, request.now)
    raise InvalidInput("purge takes a URI or a commit.", hint="Name one of the two.")


PURGE = Command("purge", PurgeRequest, purge, writes=True)
FEATURE = Feature(commands=(PURGE,))


def _purge_files(memory: Runebook, uri: str, now: datetime | None) -> CommitReceipt:
    files = doomed(memory, uri)
    moment = now or datetime.now(UTC)

    def removal(snapshot: Snapshot) -> ChangeSet:
        """The files deleted, and taken out of what names them."""
        texts = ((file, snapshot.text(file)) for file in files.files)
        changes = tuple(FileChange(file, text, None) for file, text in texts if text is not None)
        results = tuple(OperationResult(KIND, str(change.uri), Action.DELETED) for change in changes)
        return memory.features.completed(ChangeSet(changes, results), snapshot, memory.plan_context(moment))

    receipt = memory.store.commit(removal, kind=KIND, now=moment)
    erased = _erased(memory, receipt, files.erasures)
    rows = memory.store.ledger.past
    if others := [str(file) for file in files.files if any(stay.went_to is None for stay in rows.stays(file))]:
        note = f"history holds an earlier one of this name, which the same command erases, too: {', '.join(others)}"
        erased = replace(erased, notes=(*erased.notes, note))
    memory.opened.pages.remove_below(memory.browser.visible(MemoryUri.parse(uri)))
    return erased


def _purge_commit(memory: Runebook, commit_id: str, now: datetime | None) -> CommitReceipt:
    history = history_of(memory)
    past = history.resolve(commit_id)
    ledger = memory.store.ledger
    receipt = CommitReceipt("", Status.COMMITTED)
    memory.store.adopt()
    rows = [row for row in ledger.steps_of(past.seq) if history.sees(row.uri)]
    gone = {row.uri for row in rows if memory.store.files.stat(row.uri) is None}
    purged = {MemoryUri.parse(uri) for _, uri in ledger.past.purged([past.seq])}
    undone = {row.uri for each in ledger.past.undone_by(past.commit_id) for row in ledger.steps_of(each.seq)}
    if not {row.uri for row in rows} <= undone | (gone & purged):
        for dry_run in (True, False):  # the preview first: one file that cannot go back keeps all of them
            receipt = undo(memory, UndoRequest(past.commit_id, dry_run=dry_run, now=now))
            _expect_undone(receipt, gone & purged)
    undoing = [each.seq for each in ledger.past.undone_by(past.commit_id)]
    files = [row.uri for row in rows if not row.uri.is_summary]
    quoting = (segments for file in files for segments in _segments_too(file))
    changes = [(file, past.seq) for file in files]
    for segment in (known for segments in quoting for known in ledger.past.below(segments)):
        since = [seq for seq in ledger.past.seqs_of(segment) if seq >= past.seq]
        changes += [(segment, since[0])] if since else []
    erasures = {
        (erasure.uri, erasure.first): erasure
        for file, seq in changes
        for erasure in _brought(memory, ledger.past.since(file, seq), undoing)
    }
    return _erased(memory, receipt, list(erasures.values()))


def _brought(memory: Runebook, stays: Sequence[tuple[Stay, int]], undoing: Sequence[int]) -> Iterator[Erasure]:
    """What a commit brought to a file, wherever the file stayed from then on; a name that came with it goes, too."""
    ledger = memory.store.ledger
    for stay, first in stays:
        touching = [seq for seq in ledger.past.seqs_of(stay.uri) if seq >= first]
        touching = [seq for seq in touching if stay.end is None or seq < stay.end]
        undone = next((seq for seq in undoing if seq in touching), None)
        if undone is not None and (change := ledger.change(undone, stay.uri)) and change.after_sha256 is not None:
            yield Erasure(stay.uri, None, first, undone)  # what the undo left stays
            return
        if undone is not None or stay.end is not None or memory.store.files.stat(stay.uri) is None:
            yield Erasure(stay.uri, _tombstone(stay.uri) if first <= stay.first else None, first, stay.end)
        else:  # there was nothing to undo: what the newest commit left stays
            yield Erasure(stay.uri, None, first, touching[-1])
        if undone is not None:
            return


def _expect_undone(receipt: CommitReceipt, erased: Container[MemoryUri]) -> None:
    for result in receipt.results:
        if result.action is Action.REJECTED and MemoryUri.parse(result.uri) not in erased:
            raise InvalidInput(
                f"{result.uri} cannot go back: {result.reason}",
                hint="Purge that file by its URI, or undo the later commit first. Nothing was erased.",
            )


def _expect_gone(memory: Runebook, files: Iterable[MemoryUri]) -> None:
    """The store must be held: what somebody writes there later is not to be erased with it."""
    for file in files:
        there = memory.store.look(file)[0] if file.is_summary else memory.store.files.stat(file)
        if there is not None or memory.store.ledger.file(file) is not None:
            raise StorageFailed(
                f"{str(file)!r} is still there, or there again; nothing was erased from history.",
                hint="Check the permissions of the memory folder, then run the same command again.",
            )


def _erased(memory: Runebook, receipt: CommitReceipt, erasures: Sequence[Erasure]) -> CommitReceipt:
    ledger = memory.store.ledger
    traces = _traces(ledger.past.texts(erasures))
    memory.store.usage.flush()
    memory.indexer.follow(None)
    directories = {directory for erasure in erasures for directory in _directories(erasure.uri)}
    summaries = [directory.child(name) for directory in directories for name in (ABSTRACT_NAME, OVERVIEW_NAME)]
    with memory.store.exclusive():
        _expect_gone(memory, (erasure.uri for erasure in erasures if erasure.end is None))
        ledger.past.erase(erasures, summaries)
    memory.indexer.follow(None)
    memory.opened.pages.bring_up_to_date()
    _clean_index(memory, erasures)
    vacuum(ledger.database.connection())
    results = tuple(map(_result, erasures))
    left = list(_left(memory, traces, [str(erasure.uri) for erasure in erasures if erasure.end is None]))
    past = list(_left_in_history(memory, traces))
    notes = [memory.store.kept_of_erased]
    if memory.indexer.vectors.trouble is not None:
        notes.append("the vector server is away: numbers of these texts are deleted there once it is back")
    if left:
        more = f" and {len(left) - _NAMED_FILES} more" if len(left) > _NAMED_FILES else ""
        notes.append(f"these still hold words or the name of it: {', '.join(left[:_NAMED_FILES])}{more}")
    if past:
        notes.append(f"history holds words of it under these URIs, which can be purged, too: {', '.join(past)}")
    return replace(receipt, status=Status.COMMITTED, results=results, similar=(), notes=(*receipt.notes, *notes))


def _result(erasure: Erasure) -> OperationResult:
    if erasure.tombstone is None:
        note = "texts of earlier commits are erased for good"
    else:
        note = "erased for good; history knows it by this name"
    return OperationResult(KIND, str(erasure.tombstone or erasure.uri), Action.DELETED, note=note)


def _clean_index(memory: Runebook, erasures: Sequence[Erasure]) -> None:
    """Documents of files that are gone, and vectors of texts that are gone, leave the index's own files, too."""
    catalog = memory.indexer.catalog
    scopes: set[tuple[str, str]] = set()
    with catalog.writing() as writer:
        for erasure in erasures:
            if erasure.end is None:
                catalog.remove(writer, erasure.uri)
            asked = f"SELECT seq, space, fingerprint FROM vectors WHERE uri = ? AND {HAS_NO_PASSAGE}"
            rows = writer.execute(asked, (str(erasure.uri),)).fetchall()
            scopes |= {(space, fingerprint) for _, space, fingerprint in rows}
            prune(writer, [seq for seq, _, _ in rows])
        catalog.words.compact()
    connection = catalog.connection()
    for space, fingerprint in sorted(scopes):
        memory.indexer.vectors.compact(connection, space, fingerprint)
    vacuum(connection)


def _left(memory: Runebook, traces: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """Files below the root that hold one of the lines, or the URI of what was erased."""
    wanted = [each.encode("utf-8") for each in (*traces, *names)]
    if not wanted:
        return
    longest = max(map(len, wanted))
    for name, opened in memory.store.files.contents():
        tail = b""
        with opened() as file:
            while chunk := file.read(_CHUNK_BYTES):
                window = tail + chunk
                if any(trace in window for trace in wanted):
                    yield name
                    break
                tail = window[-longest:]


def _left_in_history(memory: Runebook, traces: Sequence[str]) -> Iterable[str]:
    """URIs under which history still holds one of the lines."""
    saying = (memory.store.ledger.past.files_saying("viking:/", trace, _NAMED_FILES) for trace in traces[:_TRACES_PAST])
    return islice(dict.fromkeys(uri for uris in saying for uri in uris), _NAMED_FILES)


def _segments_too(place: MemoryUri) -> tuple[MemoryUri, ...]:
    """What quotes a conversation's log: the segments of its session, in use and archived."""
    if place.scope is not Scope.SESSION or place.name != MESSAGES_NAME:
        return ()
    return segments_of(place), archived_uri(segments_of(place))


def _tombstone(uri: MemoryUri) -> MemoryUri:
    """A name that says nothing of what was there."""
    _, dot, extension = uri.name.rpartition(".")
    return uri.parent.child(f"purged-{secrets.token_hex(4)}{dot}{extension if dot else ''}")


def _directories(uri: MemoryUri) -> Iterator[MemoryUri]:
    """The directories above a memory, down from the root of its memories."""
    for depth in range(_ROOT_DEPTH, len(uri.parts)):
        yield MemoryUri(uri.parts[:depth])


def _traces(texts: Iterable[str]) -> list[str]:
    """Lines by which an erased text would be known, the longest of all."""
    lines: set[str] = set()
    for text in texts:
        messages, damage = parse_lines(text)
        bodies = [message.text for message in messages] if messages and not damage else [split(text).body]
        lines |= {line.strip() for body in bodies for line in body.splitlines()}
    long = (line for line in lines if utf8_bytes(line) >= _TRACE_BYTES)
    return sorted(long, key=utf8_bytes, reverse=True)[:_TRACES]
