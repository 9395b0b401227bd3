"""Routes of the API about the past, stored conversations, upkeep, and what the store knows about itself."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import accumulate, chain, islice
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Path, Query, Request, Response

from memory_core.core.caller import current_author
from memory_core.core.command import Command
from memory_core.core.commit.conflicts import ABSENT
from memory_core.core.errors import NotFound, RunebookError
from memory_core.core.extract.extractor import ALL_LOGS
from memory_core.core.index.documents import MESSAGES_NAME, memory_document
from memory_core.core.memory.message import Message, numbered, search_text, transcript_line
from memory_core.core.memory.metadata import read_moment
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.memory.results import CommitReceipt, as_json, text_sha256
from memory_core.core.memory.trailer import split
from memory_core.core.memory.uri import SCHEME, MemoryUri
from memory_core.core.search.context_sources import source_lines, words_said
from memory_core.core.search.memory_list import LIMIT_MOST, EntryFilter, EntrySummary
from memory_core.core.text.analysis import fold, holds_all
from memory_core.core.text.text_diff import Row, side_by_side
from memory_core.features.doctor import DOCTOR, DoctorRequest
from memory_core.features.graph import GRAPH, NODES_MOST, RELATE, GraphRequest, RelateRequest
from memory_core.features.history import LAST, Commit, FileDiff
from memory_core.features.metrics import STATS, StatsRequest
from memory_core.features.recall_trail import TRAIL, TrailRequest
from memory_core.features.review import ACCEPT, REJECT, DecisionRequest, first_waiting, named
from memory_core.features.rolling_summary import (
    NAME,
    SUMMARY_CLEAR,
    SummaryClearRequest,
    read_rolling_summary,
    rolling_summary_uri,
)
from memory_core.features.tiers.stored import StoredSegment, all_segments, heats, segments_in
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.features.upkeep.archive import ARCHIVE, ARCHIVE_LIST, RESTORE, ArchiveListRequest, ArchiveRequest
from memory_core.features.upkeep.passes import MAINTAIN, MaintainRequest
from memory_core.runebook import Runebook
from server.http.api import IfMatch, Reader, Refusal, Writer, expect_stored, route, seen_sha256
from server.http.api_answers import Archiving, Consolidation, DryRun, Relation, Restoring, SummaryText, answer_from
from server.http.authentication import identity
from server.http.conversation_titles import title_of, titles
from server.http.memory_routes import ROWS_CHARS, ROWS_MOST, EntryPath, field_facts, message_facts, past_of, stored
from server.http.page_files import render
from server.http.settings_routes import OWNER_ALONE

history_routes = APIRouter(tags=["past"])
CommitId = Annotated[
    str, Path(max_length=64, description='Its id, or "last".', examples=["20261121T214112-c263029f", "last"])
]
Context = Annotated[int, Query(ge=0, le=1_000_000, description="Unchanged lines shown around a change.")]
_COMMITS_MOST = 500
#: Versions of a file at most, and characters of them whose rows are shown.
_VERSIONS_MOST, _VERSIONS_CHARS = 200, 4_000_000
_FILES_LISTED, _RESULT_CHARS = 50, 300


@route(history_routes, "GET", "/history", "HistoryAnswer", 404)
def history(
    memory: Reader,
    uri: Annotated[str | None, Query(max_length=4_096, description="Only what touched it, or is below it.")] = None,
    limit: Annotated[int, Query(ge=1, le=_COMMITS_MOST)] = 50,
    before: Annotated[str | None, Query(max_length=64, description="Only commits older than this one.")] = None,
) -> Any:
    """Commits, newest first."""
    memory.opened.look()
    found = past_of(memory).commits(uri, limit + 1, before, files_most=_FILES_LISTED)
    listed = [_listed(commit) for commit in found[:limit]]
    memory.follow_index()
    named = _titles(memory, chain.from_iterable(each["files"] for each in listed))
    return {"commits": listed, "more": len(found) > limit, "titles": named}


@route(history_routes, "GET", "/commits/{commit_id}", "CommitDiffAnswer", 404)
def read_commit(memory: Reader, commit_id: CommitId, context: Context = 3) -> Any:
    """One commit with what it changed, file by file, side by side."""
    history = past_of(memory)
    commit = history.commit(commit_id)
    files: list[dict[str, Any]] = []
    left = ROWS_MOST, ROWS_CHARS
    for diff in history.diff(commit.commit_id):
        rows, left = _shown_rows(diff, context, *left)
        files.append({**as_json(diff.step), "rows": rows})
    return {"commit": commit, "files": files, "titles": _titles(memory, files)}


def _titles(memory: Runebook, files: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The titles of the conversations among files of commits, but for those that are not to be shown."""
    return titles(memory, (file["uri"] for file in files if not file.get("withheld")))


@route(history_routes, "POST", "/commits/{commit_id}/undo", "CommitReceipt", 404, 409)
def undo(memory: Writer, commit_id: CommitId, asked: DryRun | None = None) -> Any:
    """Take a commit back, and keep what happened since. "last" is the bearer's own last one."""
    own = current_author() if commit_id == LAST and identity() is not None else None
    return memory.run(UNDO, UndoRequest(commit_id, author=own, dry_run=_is_dry_run(asked)))


@route(history_routes, "GET", "/versions/{path:path}", "VersionsAnswer", 404)
def versions(
    memory: Reader,
    path: EntryPath,
    limit: Annotated[int, Query(ge=1, le=_VERSIONS_MOST)] = 50,
    context: Context = 3,
) -> Any:
    """The versions of a file, newest first, through its renames; it may be gone by now."""
    memory.opened.look()
    listed: list[dict[str, Any]] = []
    left, chars_left = (ROWS_MOST, ROWS_CHARS), _VERSIONS_CHARS
    for version in past_of(memory).versions(f"{SCHEME}{path}", limit):
        chars_left -= len(version.diff.before) + len(version.diff.after)
        rows, left = _shown_rows(version.diff, context, *(left if chars_left > 0 else (0, 0)))
        listed.append(answer_from("VersionAnswer", version.diff.step, commit=version.commit, rows=rows))
    return {"versions": listed}


def _is_dry_run(asked: DryRun | None) -> bool:
    return asked is not None and asked.dry_run


def _listed(commit: Commit) -> dict[str, Any]:
    """A commit as a list shows it; of many files and results, and of long results, it shows the beginning."""
    results = tuple(result.clipped(_RESULT_CHARS) for result in commit.results[:_FILES_LISTED])
    shown: dict[str, Any] = as_json(replace(commit, files=commit.files[:_FILES_LISTED], results=results))
    count = len(commit.files)
    return shown if count <= _FILES_LISTED else {**shown, "file_count": count}


def _shown_rows(diff: FileDiff, context: int, most: int, chars: int) -> tuple[Sequence[Row], tuple[int, int]]:
    """The rows of one file, at most so many of so many characters, and one that counts the lines of the others.

    Returns:
        The rows, and how many more rows and characters may come.
    """
    rows = side_by_side(diff.before, diff.after, context, most, chars)
    return rows, (max(0, most - len(rows)), max(0, chars - sum(row.chars for row in rows)))


conversations = APIRouter(tags=["conversations"])
_TEXT_CHARS = 40_000
_HOT_MEMORIES = 50
_SECONDS_PER_DAY = 86_400.0
_HEAT_SEGMENTS = 500
_SHOWN_SEGMENTS = 200
#: At most so many memories of a conversation are shown; they are compared with its last messages and characters.
_MEMORIES_MOST, _READ_MESSAGES, _READ_CHARS = 100, 2_000, 500_000


@route(conversations, "GET", "/sessions", "SessionsAnswer", nulls=True)
def sessions(
    memory: Reader,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    waiting: Annotated[bool, Query(description="Only those whose memories are still to be extracted.")] = False,
) -> Any:
    """Conversations, that in which something was said last first."""
    memory.opened.look()
    memory.follow_index()
    every = _logs(memory)
    wait = {row.log for row in memory.extractor.waiting(max(1, len(every)))}
    logs = [log for log in every if log in wait] if waiting else every
    last, stored = _last_said(memory, logs)
    logs.sort(key=lambda log: (last[log], stored.get(log, ""), str(log)), reverse=True)
    shown = [_session_facts(memory, log, last[log]) for log in logs[offset : offset + limit]]
    return {"sessions": shown, "total": len(logs), "all": len(every), "waiting": len(wait.intersection(every))}


def _last_said(memory: Runebook, logs: Sequence[MemoryUri]) -> tuple[dict[MemoryUri, str], Mapping[MemoryUri, str]]:
    """When something was last said in each conversation, else when it was stored; and when each was stored."""
    said = memory.indexer.catalog.last_said([str(log) for log in logs])
    stored = memory.extractor.queue.grown_at(logs)
    return {log: said.get(str(log)) or stored.get(log, "") for log in logs}, stored


SessionId = Annotated[str, Path(max_length=400, examples=["2026-05-08-1f3a9c2e"])]


@route(conversations, "GET", "/sessions/{session_id}", "ConversationAnswer", 404)
def conversation(
    memory: Reader,
    session_id: SessionId,
    words: Annotated[str, Query(max_length=500, description="Only messages that hold all of these.")] = "",
    offset: Annotated[int, Query(ge=0, le=100_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Any:
    """What was said in a conversation, message by message, and what it was about."""
    log, messages = _conversation(memory, session_id)
    memory.follow_index()
    wanted = set(fold(words).split())
    shown, total = [], 0
    for line, each in messages:
        if not wanted or holds_all(fold(_message_text(each)), wanted):
            if offset <= total < offset + limit:
                shown.append((line, each))
            total += 1
    segments = segments_in(memory.store, log).used
    return {
        "session_id": session_id,
        "uri": str(log),
        "title": title_of(memory, log, segments),
        "updated_at": _last_said(memory, [log])[0][log],
        "messages": [message_facts(line, each, _message_text(each)) for line, each in shown],
        "segments": [_segment_facts(each) for each in segments],
        "total": total,
        "offset": offset,
    }


@route(conversations, "GET", "/sessions/{session_id}/memories", "ToldAnswer", 404)
def session_memories(memory: Reader, session_id: SessionId) -> Any:
    """The memories that come from a conversation, each with the lines that it most likely came from."""
    log, messages = _conversation(memory, session_id)
    read = list(deque(messages, _READ_MESSAGES))
    held = accumulate(len(search_text(message)) for _, message in reversed(read))
    kept = sum(chars <= _READ_CHARS for chars in held)
    read = read[len(read) - kept :]
    words = words_said(read)
    scope = memory.projects.scope(None, None)
    found = []
    for uri in memory.store.giving_way(_memory_uris(memory, log.parent.name)):
        try:
            each = stored(memory, uri.removeprefix(SCHEME))
        except RunebookError:  # deleted, archived, or not to be seen
            continue
        if each.metadata.session != log.parent.name or not scope.sees(each.project, private=each.is_private):
            continue
        document = memory_document(each)
        lines = [line for line, _ in source_lines(document.own, read, words=words)]
        found.append({**as_json(memory.memory_list.summary(document)), "lines": lines})
    return {"memories": found}


def _conversation(memory: Runebook, session_id: str) -> tuple[MemoryUri, Iterator[tuple[int, Message]]]:
    """The log of a conversation, and its messages, one after the other, with the numbers of their lines."""
    log = memory.browser.visible(memory.commits.session_uri(session_id))
    text = memory.store.text(log)
    if text is None:
        raise NotFound(f"there is no conversation {session_id!r}.", hint="List them with GET /api/memory/sessions.")
    return log, memory.store.giving_way(numbered(text))


def _memory_uris(memory: Runebook, session: str) -> list[str]:
    """Memories whose trailer names a session, or did."""
    named = f'"session_id": {json.dumps(session, ensure_ascii=False)}'
    spaces = [space for space in memory.spaces if not space.startswith("session/")]
    past = memory.store.ledger.past
    found = (past.files_saying(f"{SCHEME}{space}/memories", named, _MEMORIES_MOST) for space in spaces)
    return list(islice(chain.from_iterable(found), _MEMORIES_MOST))


@route(conversations, "GET", "/heat", "HeatAnswer", nulls=True)
def heat(memory: Reader, limit: Annotated[int, Query(ge=1, le=_HEAT_SEGMENTS)] = _SHOWN_SEGMENTS) -> Any:
    """Which segments of conversations are hot, and which memories are used most, with what age leaves of them."""
    tiers, now = memory.config.tiers, datetime.now(UTC)
    memory.store.usage.flush()
    scope = memory.projects.scope(None, None)
    found = [
        each
        for each in all_segments(memory.store, memory.commits.sessions)
        if scope.sees(each.segment.project, private=each.segment.private)
    ]
    warm = sorted(zip(found, heats(memory.store, tiers, found, now), strict=True), key=lambda pair: -pair[1].heat)
    segments = []
    for each, warmed in warm[:limit]:
        since = warmed.last_visit or read_moment(each.segment.created_at) or now
        hours = max(0.0, (now - since).total_seconds() / 3_600.0)
        own = {**_segment_facts(each), "interactions": each.segment.interactions, "hours": hours}
        segments.append(answer_from("HeatSegment", warmed, **own))
    rate = memory.config.search.decay_lambda
    return {
        "segments": segments,
        "threshold": tiers.mid_term_heat_threshold,
        "tau_hours": tiers.heat_tau_hours,
        "alpha": tiers.heat_alpha,
        "beta": tiers.heat_beta,
        "gamma": tiers.heat_gamma,
        "memories": _hot_memories(memory, now),
        "lambda": rate,
    }


@route(conversations, "GET", "/queue", "QueueAnswer")
def queue(memory: Reader) -> Any:
    """Conversations whose memories are still to be extracted, longest waiting first, with the reason."""
    rows = memory.extractor.waiting(ALL_LOGS)
    return {"waiting": [answer_from("WaitingAnswer", row, messages=row.waiting) for row in rows]}


@route(conversations, "POST", "/consolidate", "ConsolidationAnswer", 404)
def consolidate(memory: Writer, asked: Consolidation | None = None) -> Any:
    """Extract what waits with the configured model; without one, or if it fails, everything waits on."""
    receipts = list(memory.extract_waiting(asked.session_id if asked else None))
    return {"receipts": receipts, "waiting": len(memory.extractor.waiting(ALL_LOGS))}


def _logs(memory: Runebook) -> list[MemoryUri]:
    place, files = memory.commits.sessions, memory.store.files
    if not files.is_dir(place):
        return []
    logs = (entry.uri.child(MESSAGES_NAME) for entry in files.entries(place) if entry.is_dir)
    return [log for log in logs if files.stat(log) is not None]


def _session_facts(memory: Runebook, log: MemoryUri, last: str) -> dict[str, Any]:
    row = memory.extractor.queue.get(log)
    try:
        stored = row.stored if row is not None else len(memory.extractor.sessions.messages(log))
        found = segments_in(memory.store, log).used
        title = title_of(memory, log, found)
    except RunebookError:  # a damaged log is listed all the same
        stored, found, title = 0, (), None
    return {
        "session_id": log.parent.name,
        "uri": str(log),
        "messages": stored,
        "waiting": 0 if row is None else row.waiting,
        "segments": len(found),
        "title": title,
        "updated_at": last,
    }


def _message_text(message: Message) -> str:
    """What a message says, tool calls and their results included."""
    return transcript_line(replace(message, time=None, name="-"), None).removeprefix("-: ")[:_TEXT_CHARS]


def _segment_facts(each: StoredSegment) -> dict[str, Any]:
    pages = [(exchange.first, exchange.last) for exchange in each.segment.exchanges]
    own = {"uri": each.uri, "session_id": each.log.parent.name, "first_line": pages[0][0] if pages else None}
    return answer_from("SegmentAnswer", each.segment, **own, pages=pages)


def _hot_memories(memory: Runebook, now: datetime) -> list[dict[str, Any]]:
    page = memory.entries(EntryFilter(sort="accesses", limit=_HOT_MEMORIES), now)
    return [
        answer_from("HeatMemory", entry, age_days=max(0.0, (now - accessed).total_seconds() / _SECONDS_PER_DAY))
        for entry in page.entries
        if entry.accesses and (accessed := read_moment(entry.last_access)) is not None
    ]


keeping = APIRouter(tags=["keeping"])
_LOGS = "logs"
_ARCHIVED_MOST = 1_000
ProposalName = Annotated[str, Path(max_length=400, description="Its id.", examples=["3f9a2c1e"])]


@route(keeping, "GET", "/archive", "ArchiveAnswer")
def archived(
    memory: Reader,
    words: Annotated[str, Query(max_length=500, description="All stand in name or text.", examples=["码头"])] = "",
    limit: Annotated[int, Query(ge=1, le=_ARCHIVED_MOST)] = 200,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Any:
    """What left for the archive, all or what holds these words."""
    found = list(islice(memory.run(ARCHIVE_LIST, ArchiveListRequest(words)), offset, offset + limit + 1))
    return {"archived": found[:limit], "more": len(found) > limit}


@route(keeping, "POST", "/archive", "ReceiptsAnswer", 404, 409)
def archive(memory: Writer, asked: Archiving) -> Any:
    """Put memories into the archive; without `uris`, the logs of days that are old enough."""
    if asked.uris is not None:
        if asked.days is not None:
            raise Refusal(400, "days goes without uris.", "Leave one of the two out.")
        return {"receipts": [expect_stored(memory.run(ARCHIVE, ArchiveRequest(asked.uris, dry_run=asked.dry_run)))]}
    keeper = memory if asked.days is None else _with_archive_days(memory, asked.days)
    done = list(keeper.run(MAINTAIN, MaintainRequest(only=[_LOGS], dry_run=asked.dry_run)))
    failure = next((each.failure for each in done if each.failure is not None), None)
    if failure is not None:
        raise failure
    return {"receipts": [receipt for each in done for receipt in each.receipts]}


@route(keeping, "POST", "/archive/restore", "CommitReceipt", 404, 409)
def restore(memory: Writer, asked: Restoring) -> Any:
    """Bring files back from the archive; a file's original URI names it as well."""
    return memory.run(RESTORE, ArchiveRequest(asked.uris, dry_run=asked.dry_run))


@route(keeping, "GET", "/rolling-summary", "RollingSummaryAnswer")
def rolling_summary(memory: Reader, response: Response) -> Any:
    """The page that every new session begins with."""
    memory.opened.look()
    return _summary_facts(memory, response)


@route(keeping, "PUT", "/rolling-summary", "SummaryWritten", 409, 412)
def write_rolling_summary(memory: Writer, asked: SummaryText, response: Response, if_match: IfMatch = None) -> Any:
    """Write that page: maintenance then leaves it alone."""
    expected = None
    if if_match is not None and (seen := seen_sha256(if_match)) is not None:
        expected = {str(rolling_summary_uri(memory.config.user_space)): seen}
    receipt = memory.commit(CommitRequest(asked.text, memory_type=NAME, expected=expected))
    if any(result.conflict for result in receipt.results):
        more = {"summary": _summary_facts(memory, response)}
        raise Refusal(412, "the summary changed since it was read.", "Compare both, and send it anew.", more)
    return {"receipt": expect_stored(receipt), "summary": _summary_facts(memory, response)}


@route(keeping, "DELETE", "/rolling-summary", "CommitReceipt", 409)
def clear_rolling_summary(memory: Writer) -> Any:
    """Remove that page, whoever wrote it: the next maintenance may make it anew."""
    return memory.run(SUMMARY_CLEAR, SummaryClearRequest())


@route(keeping, "GET", "/review", "ReviewAnswer")
def review(memory: Reader) -> Any:
    """What a model would remember and the owner has not accepted yet, oldest first, as much as a page shows."""
    shown, left = first_waiting(memory)
    waiting = [
        answer_from("ProposalAnswer", each, name=each.id, would=each.action, session_id=each.session) for each in shown
    ]
    return {"waiting": waiting, "left": left}


@route(keeping, "POST", "/review/{name}/accept", "CommitReceipt", 404, 409, 412)
def accept(memory: Writer, name: ProposalName, asked: DryRun | None = None, if_match: IfMatch = None) -> Any:
    """Do what a proposal proposes."""
    return _decided(memory, ACCEPT, name, asked, if_match)


@route(keeping, "POST", "/review/{name}/reject", "CommitReceipt", 404, 409, 412)
def reject(memory: Writer, name: ProposalName, asked: DryRun | None = None, if_match: IfMatch = None) -> Any:
    """Drop a proposal; the same is not proposed again from the same conversation."""
    return _decided(memory, REJECT, name, asked, if_match)


def _decided(
    memory: Runebook,
    decide: Command[DecisionRequest, list[CommitReceipt]],
    name: str,
    asked: DryRun | None,
    if_match: str | None,
) -> CommitReceipt:
    """The receipt of a decision on a proposal that is as it was seen."""
    proposal = named(memory, name)
    seen = None if if_match is None else seen_sha256(if_match)
    if seen not in (None, proposal.sha256):
        raise Refusal(412, "the proposal changed since it was read.", "Look at it again, and decide anew.")
    uri = str(proposal.uri)
    expected = {uri: proposal.sha256}
    (receipt,) = memory.run(decide, DecisionRequest([uri], dry_run=_is_dry_run(asked), expected=expected))
    return receipt


def _with_archive_days(memory: Runebook, days: int) -> Runebook:
    """The same view with another age from which logs are archived."""
    settings = memory.config.maintenance.model_copy(update={"archive_days": days})
    return memory.configured(memory.config.model_copy(update={"maintenance": settings}))


def _summary_facts(memory: Runebook, response: Response) -> dict[str, Any]:
    uri = rolling_summary_uri(memory.config.user_space)
    text = memory.store.text(uri)
    found = read_rolling_summary(text)
    updated = (split(text or "").trailer or {}).get("updated_at")
    sha256 = ABSENT if text is None else text_sha256(text)
    response.headers["etag"] = f'"{sha256}"'
    shown = "" if found is None else found.text
    return {
        "text": shown,
        "html": render(shown),
        "written_by": "nobody" if found is None else "person" if found.authored else "maintenance",
        "updated_at": updated if isinstance(updated, str) else None,
        "sha256": sha256,
        "uri": str(uri),
    }


insight = APIRouter(tags=["insight"])
_NUMBERS = frozenset({"int64", "float32"})
_DATED = ("day", "uri", "name", "memory_type")


@route(insight, "GET", "/procedural", "ProceduralAnswer")
def procedural(memory: Reader, limit: Annotated[int, Query(ge=1, le=LIMIT_MOST)] = 100) -> Any:
    """How things are done: patterns, what is known of tools and skills with their figures, and solved cases."""

    def listed(memory_type: str) -> tuple[EntrySummary, ...]:
        return memory.entries(EntryFilter(memory_type=memory_type, limit=limit)).entries

    counted = {
        name: [{**as_json(entry), "figures": _figures(memory, entry)} for entry in listed(name)]
        for name in ("tools", "skills")
    }
    return {"patterns": listed("patterns"), **counted, "cases": listed("cases")}


@route(insight, "GET", "/calendar", "CalendarAnswer")
def calendar(
    memory: Reader,
    month: Annotated[str, Query(pattern=r"^[12]\d{3}-(0[1-9]|1[0-2])$", examples=["2026-05"])],
) -> Any:
    """What happened in a month, as memories tell it, and which memories were made on each day."""
    memory.opened.look()
    memory.follow_index()
    *dated, made = memory.memory_list.calendar(f"{month}-01", f"{month}-31")
    events, added = ([dict(zip(_DATED, each, strict=True)) for each in found] for found in dated)
    return {"month": month, "events": events, "added": added, "made": made}


@route(insight, "GET", "/growth", "GrowthAnswer")
def growth(memory: Reader) -> Any:
    """The memories as a whole: how many came in which month, how often any was retrieved, how fresh they are."""
    memory.opened.look()
    memory.follow_index()
    memory.store.usage.flush()
    found = memory.memory_list.growth(memory.config.user_space)
    return {
        "months": [{"month": month, "count": count} for month, count in found.months],
        "recalls": [{"day": day, "count": count} for day, count in found.recalls],
        "freshness": [{"least": least, "count": count} for least, count in found.freshness],
    }


@route(insight, "GET", "/graph", "GraphAnswer", 404)
def memory_graph(
    memory: Reader,
    types: Annotated[list[str] | None, Query(max_length=50, description="Only memories of these types.")] = None,
    after: Annotated[str | None, Query(max_length=64, description="Changed from then on; ISO date or time.")] = None,
    before: Annotated[str | None, Query(max_length=64, description="Changed up to then.")] = None,
    around: Annotated[
        str | None, Query(max_length=4_096, description="A memory and what it is connected with.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=NODES_MOST)] = 150,
) -> Any:
    """Memories, the conversations they come from, and how they are connected; the most important ones first."""
    found = memory.run(GRAPH, GraphRequest(types or (), after, before, around, limit))
    return {**as_json(found), "titles": titles(memory, (node.uri for node in found.nodes))}


@route(insight, "POST", "/relations", "CommitReceipt", 404, 409)
def relate(memory: Writer, asked: Relation) -> Any:
    """Make, change or remove a relation of two memories, at both ends."""
    return memory.run(RELATE, RelateRequest(**asked.model_dump()))


@route(insight, "GET", "/trail", "TrailAnswer", 404)
def trail(
    memory: Reader,
    uri: Annotated[str | None, Query(max_length=4_096, description="Only what returned it.")] = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
) -> Any:
    """Which query retrieved what, newest first."""
    return {"trail": memory.run(TRAIL, TrailRequest(limit, uri))}


@route(insight, "GET", "/stats", "StatsAnswer", nulls=True)
def stats(memory: Reader) -> Any:
    """Figures of the store: the caller's part of it, or for the owner all of it."""
    return memory.run(STATS, StatsRequest(whole=identity() is None, wait=False))


@route(insight, "GET", "/health", "Report", dependencies=OWNER_ALONE)
async def health(memory: Reader, request: Request) -> Any:
    """An examination of the whole store from all sides; takes a second or more. For the owner."""
    # One at a time, whoever asks meanwhile gets the same answer: else a few reloads would take every thread.
    state = request.app.state
    running: asyncio.Task[dict[str, Any]] | None = getattr(state, "examination", None)
    if running is None or running.done():
        examine = anyio.to_thread.run_sync(lambda: as_json(memory.run(DOCTOR, DoctorRequest())))
        running = state.examination = asyncio.create_task(examine)
        running.add_done_callback(_consume_error)
    return await asyncio.shield(running)


@route(insight, "POST", "/health/repair", "Report", dependencies=OWNER_ALONE)
def repair_store(memory: Writer, asked: DryRun | None = None) -> Any:
    """Repair what can be repaired, and examine the store again; as a dry run, examine it only. For the owner."""
    return memory.run(DOCTOR, DoctorRequest(repair=not _is_dry_run(asked)))


def _consume_error(examination: asyncio.Task[dict[str, Any]]) -> None:
    """Mark its error as seen: asyncio would log it where nobody waits for it any more."""
    if not examination.cancelled():
        examination.exception()


def _figures(memory: Runebook, entry: EntrySummary) -> dict[str, float | None]:
    try:
        found = stored(memory, entry.path)
    except RunebookError:  # it went this moment
        return {}
    return {field["name"]: field["value"] for field in field_facts(found) if field["type"] in _NUMBERS}


ROUTERS = (history_routes, conversations, keeping, insight)
