"""Memories one by one: listing, reading, keeping, changing and deleting them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response

from memory_core.core.memory.requests import CommitRequest
from memory_core.core.memory.results import CommitReceipt, Status
from memory_core.core.search.memory_list import LIMIT_MOST, EntryFilter
from memory_core.core.text.text_diff import side_by_side
from memory_core.features.daily_logs import MEMORY_TYPE as DAILY_LOGS
from memory_core.runebook import Runebook
from server.api import answers
from server.api.caller import IfMatch, Reader, Writer, seen_sha256
from server.api.change import operations_of
from server.api.entry import Stored, described, entry_facts, is_editable, stored
from server.api.questions import EntryEdit, MarkdownText, NewEntry
from server.api.refusals import Refusal, declared, expect_stored
from server.http.page_files import render

routes = APIRouter(tags=["memories"])
EntryPath = Annotated[
    str,
    Path(
        description="The URI without `viking://`, each segment percent-encoded.",
        examples=["user/default/memories/notes/Tea.md", "user/default/memories/notes/%E8%8C%B6.md"],
    ),
]
_ETAG: dict[str, Any] = {"ETag": {"description": 'The file\'s `"sha256"`.', "schema": {"type": "string"}}}
_CONTEXTS = Literal["memory", "skill"]


@routes.get("/entries", response_model=answers.EntriesAnswer, responses=declared(), response_model_exclude_none=True)
def list_entries(
    memory: Reader,
    memory_type: Annotated[str | None, Query(max_length=64, examples=["preferences"])] = None,
    context_type: Annotated[_CONTEXTS | None, Query(description="memory, or skill for tools and skills.")] = None,
    category: Annotated[str | None, Query(max_length=200)] = None,
    project: Annotated[str | None, Query(max_length=400, description="Only of this project.")] = None,
    importance_min: Annotated[float | None, Query(ge=0, le=1)] = None,
    importance_max: Annotated[float | None, Query(ge=0, le=1)] = None,
    updated_after: Annotated[str | None, Query(max_length=64, description="ISO date or time, included.")] = None,
    updated_before: Annotated[str | None, Query(max_length=64, description="ISO date or time, included.")] = None,
    pinned: Annotated[bool | None, Query()] = None,
    active: Annotated[bool | None, Query(description="Neither at rest nor past its time.")] = None,
    words: Annotated[str, Query(max_length=500, description="All stand in name or text.", examples=["茶"])] = "",
    sort: Literal["updated", "created", "importance", "accesses", "name"] = "updated",
    limit: Annotated[int, Query(ge=1, le=LIMIT_MOST)] = 50,
    offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
) -> Any:
    """The memories that meet a filter, page by page."""
    wanted = EntryFilter(
        memory_type=memory_type,
        context_type=context_type,
        category=category,
        project=project,
        importance_min=importance_min,
        importance_max=importance_max,
        updated_after=updated_after,
        updated_before=updated_before,
        pinned=pinned,
        active=active,
        words=words,
        sort=sort,
        limit=limit,
        offset=offset,
    )
    page = memory.entries(wanted)
    after = offset + len(page.entries)
    return {
        "entries": [entry.as_dict() for entry in page.entries],
        "total": page.total,
        "offset": offset,
        "next_offset": after if page.entries and after < page.total else None,
    }


@routes.post(
    "/entries",
    response_model=answers.Receipt,
    status_code=201,
    responses={
        200: {"model": answers.Receipt, "description": "Nothing new was stored."},
        **declared(404, 409, 413, 415),
    },
    response_model_exclude_none=True,
)
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
    expect_stored(receipt)
    if receipt.status not in (Status.COMMITTED, Status.PARTIAL):
        response.status_code = 200
    return receipt.as_dict()


@routes.get(
    "/entries/{path:path}",
    response_model=answers.Entry,
    responses={200: {"headers": _ETAG}, **declared(404)},
    response_model_exclude_none=True,
)
def read_entry(memory: Reader, path: EntryPath, response: Response) -> Any:
    """One memory whole: its text, rendered and by fields, what it relates to, and where it comes from."""
    found = stored(memory, path)
    memory.recalls.note_read(str(found.uri))
    response.headers["etag"] = found.etag
    return entry_facts(memory, found)


@routes.patch(
    "/entries/{path:path}",
    response_model=answers.EditAnswer,
    responses={200: {"headers": _ETAG}, **declared(404, 409, 412, 413, 415, 428)},
    response_model_exclude_none=True,
)
def edit_entry(memory: Writer, path: EntryPath, edit: EntryEdit, response: Response, if_match: IfMatch = None) -> Any:
    """Change a memory, if it still is what the caller saw."""
    if if_match is None:
        raise Refusal(428, "If-Match is missing.", "Send the ETag of the memory as it was read.")
    seen = seen_sha256(if_match)
    found = stored(memory, path)
    _expect_same(memory, found, seen)
    if not is_editable(memory, found):
        raise Refusal(409, f"{found.uri} cannot be changed by fields.", "Edit the file by hand.", _no_receipt())
    receipt = memory.commit(
        CommitRequest(
            operations=operations_of(edit, found), expected={str(found.uri): found.sha256}, dry_run=edit.dry_run
        )
    )
    _expect_no_conflict(memory, path, receipt)
    expect_stored(receipt)
    if edit.dry_run:
        return {"receipt": receipt.as_dict(), "preview": _preview(memory, edit, found)}
    now = stored(memory, path)
    response.headers["etag"] = now.etag
    return {"receipt": receipt.as_dict(), "entry": entry_facts(memory, now)}


@routes.delete(
    "/entries/{path:path}",
    response_model=answers.Receipt,
    responses=declared(404, 409, 412, 415),
    response_model_exclude_none=True,
)
def delete_entry(memory: Writer, path: EntryPath, if_match: IfMatch = None) -> Any:
    """Delete a memory; undoing the commit that the receipt names brings it back."""
    seen = None if if_match is None else seen_sha256(if_match)
    found = stored(memory, path)
    _expect_same(memory, found, seen)
    expected = {str(found.uri): found.sha256 if seen is None else seen}
    receipt = memory.commit(
        CommitRequest(operations={"delete_operations": [{"uri": str(found.uri)}]}, expected=expected)
    )
    _expect_no_conflict(memory, path, receipt)
    return expect_stored(receipt).as_dict()


@routes.post("/preview", response_model=answers.HtmlAnswer, responses=declared(413, 415))
def preview_markdown(text: MarkdownText) -> Any:
    """Markdown as HTML that is safe to show as it is; stores nothing."""
    return {"html": render(text.markdown)}


def _preview(memory: Runebook, edit: EntryEdit, found: Stored) -> dict[str, Any]:
    """What a change would make of a memory."""
    changes = memory.preview(operations_of(edit, found))
    after = next((change.after for change in changes if change.uri == found.uri), None)
    now = described(memory, found.uri, found.text if after is None else after)
    rows = side_by_side(found.text, now.text)
    return {"html": render(now.memory.body), "rows": [row.as_dict() for row in rows]}


def _expect_same(memory: Runebook, found: Stored, seen: str | None) -> None:
    """Refuse early what the transaction would refuse; it is the transaction that promises.

    Raises:
        Refusal: 412 with the memory as it is.
    """
    if seen is not None and seen != found.sha256:
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


def _no_receipt() -> dict[str, Any]:
    return {"receipt": CommitReceipt("", Status.REJECTED).as_dict()}
