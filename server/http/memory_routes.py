"""Routes of the API about memories one by one: finding, listing, reading, keeping, changing and deleting them.

A memory is shown as ``read`` shows it, to whom ``read`` shows it. Who opens or searches with a token uses a memory,
unless the page asks; what the owner looks at is no use. A person's change is whole new values, exactly as they were
typed: a patch field takes its text as it is even where it looks like a SEARCH/REPLACE block, and a count takes its new
value, not what to add. That is safe because the transaction refuses it all if the memory is no longer what the person
saw.
"""

from __future__ import annotations

import math
import re
import time
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from memory_core.core.caller import Access
from memory_core.core.commit.patch import is_patch
from memory_core.core.errors import FieldRejected, InvalidInput, NotFound, RunebookError
from memory_core.core.index.documents import MESSAGES_NAME, Document, memory_document
from memory_core.core.memory.directory_page import recorded
from memory_core.core.memory.field_values import coerce, derive
from memory_core.core.memory.memory import Memory, parse
from memory_core.core.memory.memory_type import CONTENT, PLACEHOLDER, FieldType, MemoryField, MemoryType, MergeOp
from memory_core.core.memory.message import Message, numbered
from memory_core.core.memory.requests import CommitRequest, FindRequest, TreeRequest
from memory_core.core.memory.results import CommitReceipt, Hit, Status, as_json, text_sha256
from memory_core.core.memory.uri import SCHEME, MemoryUri, file_of
from memory_core.core.search.context_sources import fields_beside, source_lines
from memory_core.core.search.memory_list import EntryFilter
from memory_core.core.search.passages import Excerpt, excerpt_of, words_sought
from memory_core.core.text.text_diff import side_by_side
from memory_core.features.daily_logs import MEMORY_TYPE as DAILY_LOGS
from memory_core.features.history import History, history_of
from memory_core.features.organize import ORGANIZE, OrganizeRequest
from memory_core.features.upkeep.archive import ARCHIVE, ArchiveRequest
from memory_core.features.upkeep.passes import passes
from memory_core.runebook import Runebook
from memory_core.version import program_version
from server.http.api import IfMatch, Reader, Refusal, Writer, expect_stored, route, seen_sha256
from server.http.api_answers import (
    Bulk,
    EntriesQuery,
    EntryEdit,
    MarkdownText,
    NewEntry,
    SearchQuestion,
    answer_from,
    answer_model,
)
from server.http.authentication import identity
from server.http.conversation_titles import titles
from server.http.page_files import plain, render

#: Of a longer file (a conversation, not a memory) only the beginning is given.
_TEXT_CHARS = 1_000_000
_SHOWN_CHARS = 2_000
#: Of differences at most so many rows are shown.
ROWS_MOST, ROWS_CHARS = 5_000, 4_000_000


def stored(memory: Runebook, path: str) -> Memory:
    """The file at a path of the API.

    Raises:
        NotFound: If there is none, or the caller may not see it.
        InvalidUri: If the path cannot be one.
    """
    uri = memory.browser.visible(MemoryUri.parse(f"{SCHEME}{path}"))
    text = memory.store.text(uri) if uri.parts else None
    if text is None:
        memory.browser.read(str(uri))  # says why: archived, a directory, or nothing there
        raise NotFound(f"there is nothing at {str(uri)!r}.", hint="Search with find, or list its parent with ls.")
    return _parsed(memory, uri, text)


def _parsed(memory: Runebook, uri: MemoryUri, text: str) -> Memory:
    markdown = uri.name.endswith(".md") and not uri.is_summary
    return parse(uri, text, memory.registry if markdown else None)


def sha256_of(found: Memory) -> str:
    """The hash of a file as the history knows it; in quotes it is the ETag."""
    return text_sha256(recorded(found.uri, found.text) or "")


def is_editable(memory: Runebook, found: Memory) -> bool:
    """Whether the caller may change the memory by its fields."""
    if memory.access is not Access.READ_WRITE or found.type is None or found.damage is not None:
        return False
    own = {("user", memory.config.user_space, "memories"), ("agent", memory.config.agent_space, "memories")}
    return found.uri.parts[:3] in own


def entry_facts(memory: Runebook, found: Memory) -> dict[str, Any]:
    """All of a memory: the answer ``Entry``."""
    is_log = not found.uri.name.endswith(".md")
    document = _log_document(found) if is_log else memory_document(found)
    version, source = found.metadata.get("version"), found.metadata.get("source")
    body = found.body[:_TEXT_CHARS]
    return {
        **as_json(memory.memory_list.summary(document)),
        "text": found.text[:_TEXT_CHARS],
        "body": body,
        "html": plain(body[:_SHOWN_CHARS]) if is_log else render(body),
        "fields": field_facts(found),
        "source": dict(source) if isinstance(source, dict) else None,
        "source_pages": _source_pages(memory, source, document),
        "links": as_json(memory.browser.seen_from(memory.projects.current(None)).linked(found.uri)),
        "sha256": sha256_of(found),
        "version": version if isinstance(version, int) and not isinstance(version, bool) else 1,
        "editable": is_editable(memory, found),
        "hand_edited": True if found.hand_edited else None,
        "lines": found.text.count("\n") + (not found.text.endswith("\n") and bool(found.text)),
        "cut": True if len(found.text) > _TEXT_CHARS else None,
    }


def field_facts(found: Memory) -> list[dict[str, Any]]:
    """The fields of a memory's type with their values; none without a type."""
    if found.type is None:
        return []
    values: dict[str, Any] = {**found.fields, **derive(found.type, found.fields)}
    shown = {CONTENT, *PLACEHOLDER.findall(found.type.content_template or "")}
    beside = set(fields_beside(found)) if found.hand_edited else set()
    return [
        answer_from("FieldAnswer", field, value=_scalar(values.get(field.name)), in_text=field.name in shown - beside)
        for field in found.type.fields
    ]


def _scalar(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else None


def message_facts(line: int, message: Message, text: str) -> dict[str, Any]:
    """A message of a conversation, with what of it is shown."""
    time = None if message.time is None else message.time.isoformat()
    return answer_from("MessageAnswer", message, line=line, speaker=message.name or message.role, time=time, text=text)


def past_of(memory: Runebook) -> History:
    """History as the caller may see it."""
    return history_of(memory, memory.projects.current(None))


def _log_document(found: Memory) -> Document:
    """A file that is no Markdown, as far as a list shows one."""
    name = f"{found.uri.parent.name}/{found.uri.name}"
    return Document(found.uri, 0, "resource", "", name, abstract="", own="", previous="", heading="", passages=())


def _source_pages(memory: Runebook, source: Any, document: Document) -> list[dict[str, Any]]:
    session_id = source.get("session_id") if isinstance(source, dict) else None
    if not isinstance(session_id, str):
        return []
    try:
        log = memory.browser.visible(memory.commits.session_uri(session_id))
        messages = list(numbered(memory.store.text(log) or ""))
    except RunebookError:
        return []
    scope = memory.projects.scope(document.project, None)
    seen = [(line, each) for line, each in messages if scope.sees(each.project, private=each.private)]
    return [
        message_facts(line, message, message.text[:_SHOWN_CHARS]) | {"uri": f"{log}#{line}", "session_id": session_id}
        for line, message in source_lines(document.own, seen)
    ]


_STANDING = ("salience", "confidence", "tags", "pinned", "expires_at", "active")


def operations_of(edit: EntryEdit, found: Memory) -> dict[str, Any]:
    """The operations that make the change.

    Args:
        edit: What the caller wants.
        found: The memory as the caller saw it; of a known type.

    Raises:
        InvalidInput: If nothing is to be changed, or a value cannot be one of its field.
    """
    memory_type = found.type
    assert memory_type is not None
    given = dict(edit.fields)
    if edit.content is not None:
        if given.get(CONTENT) not in (None, edit.content):
            raise InvalidInput("content and fields.content differ.", hint="Send the text in one of the two.")
        given[CONTENT] = edit.content
    patches = {name: _patch(memory_type, found.fields.get(name), name, value) for name, value in given.items()}
    standing = {name: value for name in _STANDING if (value := getattr(edit, name)) is not None}
    if not patches and not standing:
        raise InvalidInput("nothing is to be changed.", hint="Give content, fields, or what else is to be different.")
    return {"edit_operations": [{"uri": str(found.uri), "patches": patches, **standing}]}


def _patch(memory_type: MemoryType, old: Any, name: str, value: Any) -> Any:
    field = memory_type.field(name)
    if field is None or field.merge_op is MergeOp.AVG:
        names = ", ".join(known.name for known in memory_type.fields if known.merge_op is not MergeOp.AVG)
        raise InvalidInput(
            f"type '{memory_type.name}' has no field {name!r} that can be written.", hint=f"It has {names}."
        )
    if value is None:
        if field.type is not FieldType.STRING:
            raise InvalidInput(f"field '{name}' cannot be emptied.", hint="Give a number, or true or false.")
        value = ""
    if field.merge_op is MergeOp.SUM:
        return _increment(field, old, value)
    if field.merge_op is MergeOp.PATCH and isinstance(value, str) and isinstance(old, str) and is_patch(value):
        # The text quotes a patch; it is not one.
        return [{"search": old, "replace": value}] if old else value
    return value


def _increment(field: MemoryField, old: Any, value: Any) -> Any:
    """What to add so that the field holds the new value."""
    try:
        wanted = coerce(field, value)
        stored = 0 if old is None else coerce(field, old)
    except FieldRejected as error:
        raise InvalidInput(error.message, hint=error.hint) from None
    assert not isinstance(wanted, str)
    assert not isinstance(stored, str)
    return wanted - stored


memories = APIRouter(tags=["memories"])
EntryPath = Annotated[
    str,
    Path(
        description="The URI without `viking://`, each segment percent-encoded.",
        examples=["user/default/memories/notes/Tea.md", "user/default/memories/notes/%E8%8C%B6.md"],
    ),
]
_ETAG: dict[str, Any] = {"ETag": {"description": 'The file\'s `"sha256"`.', "schema": {"type": "string"}}}
_WITH_ETAG = {200: {"headers": _ETAG}}
_NOTHING_NEW = {200: {"model": answer_model("CommitReceipt"), "description": "Nothing new was stored."}}


@route(memories, "GET", "/entries", "EntriesAnswer")
def list_entries(memory: Reader, asked: Annotated[EntriesQuery, Query()]) -> Any:
    """The memories that meet a filter, page by page."""
    wanted = EntryFilter(**asked.model_dump())
    page = memory.entries(wanted)
    after = wanted.offset + len(page.entries)
    more = after if page.entries and after < page.total else None
    return {"entries": page.entries, "total": page.total, "offset": wanted.offset, "next_offset": more}


@route(memories, "POST", "/entries", "CommitReceipt", 404, 409, responses=_NOTHING_NEW, status_code=201)
def add_entry(memory: Writer, new: NewEntry, response: Response) -> Any:
    """Keep a memory, or add to the day's log."""
    if new.priority is not None and new.salience is not None:
        raise Refusal(400, "priority and salience say the same.", "Give one of the two.")
    if new.to == "daily_log" and new.memory_type is not None:
        raise Refusal(400, "an entry of the day's log has no memory_type.", "Leave it out, or leave `to` out.")
    receipt = memory.commit(
        CommitRequest(
            new.content,
            memory_type=DAILY_LOGS if new.to == "daily_log" else new.memory_type,
            category=new.category,
            priority=new.priority if new.salience is None else new.salience,
            fields=new.fields,
            request_id=new.request_id,
            project=new.project,
            private=new.private,
            dry_run=new.dry_run,
            metadata={"pinned": new.pinned, "expires_at": new.expires_at},
        )
    )
    if receipt.status not in (Status.COMMITTED, Status.PARTIAL):
        response.status_code = 200
    return receipt


@route(memories, "GET", "/entries/{path:path}", "Entry", 404, responses=_WITH_ETAG)
def read_entry(memory: Reader, path: EntryPath, response: Response) -> Any:
    """One memory whole: its text, rendered and by fields, what it relates to, and where it comes from."""
    found = stored(memory, path)
    memory.recalls.note_read(str(found.uri))
    response.headers["etag"] = f'"{sha256_of(found)}"'
    return entry_facts(memory, found)


@route(memories, "PATCH", "/entries/{path:path}", "EditAnswer", 404, 409, 412, 428, responses=_WITH_ETAG)
def edit_entry(memory: Writer, path: EntryPath, edit: EntryEdit, response: Response, if_match: IfMatch = None) -> Any:
    """Change a memory, if it still is what the caller saw."""
    if if_match is None:
        raise Refusal(428, "If-Match is missing.", "Send the ETag of the memory as it was read.")
    seen = seen_sha256(if_match)
    found = stored(memory, path)
    _expect_same(memory, found, seen)
    if not is_editable(memory, found):
        raise Refusal(409, f"{found.uri} cannot be changed by fields.", "Edit the file by hand.", _NO_RECEIPT)
    receipt = memory.commit(
        CommitRequest(
            operations=operations_of(edit, found), expected={str(found.uri): sha256_of(found)}, dry_run=edit.dry_run
        )
    )
    _expect_no_conflict(memory, path, receipt)
    expect_stored(receipt)
    if edit.dry_run:
        return {"receipt": receipt, "preview": _preview(memory, edit, found)}
    now = stored(memory, path)
    response.headers["etag"] = f'"{sha256_of(now)}"'
    return {"receipt": receipt, "entry": entry_facts(memory, now)}


@route(memories, "DELETE", "/entries/{path:path}", "CommitReceipt", 404, 409, 412)
def delete_entry(memory: Writer, path: EntryPath, if_match: IfMatch = None) -> Any:
    """Delete a memory; undoing the commit that the receipt names brings it back."""
    seen = None if if_match is None else seen_sha256(if_match)
    found = stored(memory, path)
    _expect_same(memory, found, seen)
    expected = {str(found.uri): sha256_of(found)}
    receipt = memory.commit(
        CommitRequest(operations={"delete_operations": [{"uri": str(found.uri)}]}, expected=expected)
    )
    _expect_no_conflict(memory, path, receipt)
    return receipt


@route(memories, "POST", "/bulk", "CommitReceipt", 404, 409)
def change_many(memory: Writer, asked: Bulk) -> Any:
    """Tag, pin, move to a project, archive or delete several memories in one commit, which one undo takes back."""
    rest = (asked.tags, asked.untags, asked.pinned, asked.project)
    if asked.action == "organize":
        return memory.run(ORGANIZE, OrganizeRequest(asked.uris, *rest, dry_run=asked.dry_run))
    if any(rest[:2]) or any(each is not None for each in rest[2:]):
        raise Refusal(400, f"{asked.action} takes no tags, pinned or project.", "Leave them out.")
    if asked.action == "archive":
        return memory.run(ARCHIVE, ArchiveRequest(asked.uris, dry_run=asked.dry_run))
    removed = {"delete_operations": [{"uri": uri} for uri in dict.fromkeys(asked.uris)]}
    return memory.commit(CommitRequest(operations=removed, dry_run=asked.dry_run))


@route(memories, "POST", "/preview", "HtmlAnswer", nulls=True)
def preview_markdown(text: MarkdownText) -> Any:
    """Markdown as HTML that is safe to show as it is; stores nothing."""
    return {"html": render(text.markdown)}


def _preview(memory: Runebook, edit: EntryEdit, found: Memory) -> dict[str, Any]:
    """What a change would make of a memory."""
    changes = memory.preview(operations_of(edit, found))
    after = next((change.after for change in changes if change.uri == found.uri), None)
    now = _parsed(memory, found.uri, found.text if after is None else after)
    return {"html": render(now.body), "rows": side_by_side(found.text, now.text, most=ROWS_MOST, most_chars=ROWS_CHARS)}


def _expect_same(memory: Runebook, found: Memory, seen: str | None) -> None:
    """Refuse early what the transaction would refuse; it is the transaction that promises.

    Raises:
        Refusal: 412 with the memory as it is.
    """
    if seen is not None and seen != sha256_of(found):
        raise Refusal(
            412,
            f"{found.uri} changed since it was read.",
            "Compare both, and send what you want with the new ETag.",
            {"current": entry_facts(memory, found)},
        )


def _expect_no_conflict(memory: Runebook, path: str, receipt: CommitReceipt) -> None:
    if any(result.conflict for result in receipt.results):
        now = stored(memory, path)  # gone meanwhile: 404
        _expect_same(memory, now, "")


_NO_RECEIPT = {"receipt": as_json(CommitReceipt("", Status.REJECTED))}
finding = APIRouter(tags=["looking"])
_RANKS = ["balanced", "decay", "weighted", "relevance"]
_TREE_NODES = 5_000
_PASSAGE_CHARS = 280


@route(finding, "GET", "/about", "AboutAnswer")
def about(memory: Reader, request: Request) -> Any:
    """Which store this is, and what the caller may do."""
    config, bearer, home = memory.config, identity(), memory.home or memory
    embedder = memory.indexer.embedder
    memory.follow_index()
    model = {
        "embedding": config.embedding.provider,
        "embedding_ready": embedder is not None and embedder.ready(0),
        "llm": config.llm.provider,
        "llm_model": config.llm.model,
    }
    return answer_from(
        "AboutAnswer",
        config,
        version=program_version(),
        label=None if bearer is None else bearer.label,
        owner=bearer is None and request.app.state.owner is not None,
        files=not config.store.url,
        writable=memory.access is Access.READ_WRITE,
        private_mode=memory.access is Access.PRIVATE,
        spaces=[
            {"space": view.config.user_space, "writable": view.access is Access.READ_WRITE}
            for view in (home, *home.shared_views.values())
        ],
        project=memory.projects.current(None),
        decay_lambda=config.search.decay_lambda,
        half_life_days=math.log(2) / config.search.decay_lambda,
        heat_threshold=config.tiers.mid_term_heat_threshold,
        rank=config.search.rank,
        ranks=_RANKS,
        types=[known.name for known in memory.registry.list_all()],
        counts=memory.memory_list.counts(),
        latest=next((commit.commit_id for commit in past_of(memory).newest(1)), None),
        passes=[each.name for each in passes(memory)],
        model=model,
    )


@route(finding, "GET", "/types", "TypesAnswer", nulls=True)
def types(memory: Reader) -> Any:
    """All memory types with their fields."""
    return {"types": [_type_facts(memory, known) for known in memory.registry.list_all()]}


@route(finding, "GET", "/labels", "LabelsAnswer")
def labels(memory: Reader) -> Any:
    """Which tags and projects there are, the most used first, 1,000 of each at most."""
    memory.opened.look()
    memory.follow_index()
    tags, projects = memory.memory_list.labels()
    return {"tags": tags, "projects": projects}


@route(finding, "POST", "/search", "SearchAnswer", 404, nulls=True)
def search(memory: Reader, asked: SearchQuestion) -> Any:
    """What answers a query, best first, with what each score is made of."""
    started = time.perf_counter()
    found = memory.find(
        FindRequest(
            asked.query,
            asked.target_uri,
            asked.limit,
            score_threshold=asked.score_threshold,
            filter=_filter(asked),
            rank=_rank(asked),
            project=asked.project,
        )
    )
    used = memory.store.ledger.usage_table.usage(hit.uri for hit in found.hits)
    passages = memory.passages(asked.query, [hit.uri for hit in found.hits], _PASSAGE_CHARS)
    sought = words_sought(asked.query)
    hits = [
        _hit_facts(hit, used[hit.uri].access_count if hit.uri in used else 0, passages.get(hit.uri), sought)
        for hit in found.hits
    ]
    taken = round(1_000 * (time.perf_counter() - started), 3)
    called = titles(memory, (hit.uri for hit in found.hits))
    return {"hits": hits, "total": len(hits), "notes": found.notes, "milliseconds": taken, "titles": called}


@route(finding, "GET", "/tree", "TreeAnswer", 404)
def tree(
    memory: Reader,
    uri: Annotated[str, Query(max_length=4_096, examples=["viking://user/default/memories"])] = SCHEME,
    depth: Annotated[int, Query(ge=1, le=16)] = 1,
    hidden: Annotated[bool, Query(description="Also .abstract.md and .overview.md.")] = False,
    limit: Annotated[int, Query(ge=1, le=_TREE_NODES)] = 1_000,
) -> Any:
    """What is below a directory, depth first."""
    asked = TreeRequest(uri, show_all_hidden=hidden, node_limit=limit, level_limit=depth, counts_deeper=False)
    found = memory.tree(asked)
    entries = [{**as_json(entry), "path": entry.uri.removeprefix(SCHEME).rstrip("/")} for entry in found.entries]
    return {"entries": entries, "left_out": found.left_out}


def _type_facts(memory: Runebook, known: MemoryType) -> dict[str, Any]:
    return answer_from(
        "TypeAnswer",
        known,
        directory=memory.commits.context(datetime.now(UTC), "", None).directory_text(known),
        mode="template" if known.template_mode else "simple",
        fields=[answer_from("TypeFieldAnswer", field, key=field.name in known.key_fields) for field in known.fields],
    )


def _filter(asked: SearchQuestion) -> dict[str, Any] | None:
    simple = {"category": asked.category, "memory_type": asked.memory_type}
    parts: list[dict[str, Any]] = [{name: value} for name, value in simple.items() if value is not None]
    if asked.filter:
        parts.append(asked.filter)
    return {"and": parts} if parts else None


def _rank(asked: SearchQuestion) -> str | None:
    if asked.rank is not None:
        if not asked.use_decay and asked.rank != "relevance":
            raise Refusal(400, "without decay there is only the rank relevance.", "Leave rank or use_decay out.")
        return asked.rank
    return None if asked.use_decay else "relevance"


def _hit_facts(hit: Hit, accesses: int, passage: Excerpt | None, sought: re.Pattern[str] | None) -> dict[str, Any]:
    file = file_of(hit.uri)
    parts = file.split("/")
    name = parts[-2] if parts[-1] == MESSAGES_NAME else parts[-1].removesuffix(".md")
    shown = passage or Excerpt(hit.abstract)
    return {
        **as_json(hit),
        "path": file.removeprefix(SCHEME),
        "name": name,
        "accesses": accesses,
        "name_marks": excerpt_of(name, sought, len(name)).marks,
        "passage": shown.text,
        "marks": shown.marks,
    }


ROUTERS = (memories, finding)
