"""Keeping the store in order: the archive, maintenance, the rolling summary, and what waits for review."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from memory_core.core.commit.conflicts import ABSENT
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.memory.results import CommitReceipt, text_sha256
from memory_core.core.memory.trailer import split
from memory_core.features.review import ACCEPT, REJECT, DecisionRequest, Proposal
from memory_core.features.review import waiting as waiting_proposals
from memory_core.features.rolling_summary import (
    NAME,
    SUMMARY_CLEAR,
    SummaryClearRequest,
    read_rolling_summary,
    rolling_summary_uri,
)
from memory_core.features.upkeep.archive import ARCHIVE, ARCHIVE_LIST, RESTORE, ArchiveListRequest, ArchiveRequest
from memory_core.features.upkeep.passes import MAINTAIN, MaintainRequest
from memory_core.runebook import Runebook
from server.api import answers, past_answers
from server.api.caller import IfMatch, Reader, Writer, seen_sha256
from server.api.questions import Archiving, DryRun, Maintenance, Restoring, SummaryText
from server.api.refusals import Refusal, declared, expect_stored
from server.http.page_files import render

routes = APIRouter(tags=["keeping"])
_LOGS = "logs"
_ARCHIVED_MOST = 1_000
ProposalName = Annotated[str, Path(max_length=400, description="Its id.", examples=["3f9a2c1e"])]


@routes.get(
    "/archive", response_model=past_answers.ArchiveAnswer, responses=declared(), response_model_exclude_none=True
)
def archived(
    memory: Reader,
    words: Annotated[str, Query(max_length=500, description="All stand in name or text.", examples=["码头"])] = "",
    limit: Annotated[int, Query(ge=1, le=_ARCHIVED_MOST)] = 200,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Any:
    """What left for the archive, all or what holds these words."""
    found = list(islice(memory.run(ARCHIVE_LIST, ArchiveListRequest(words)), offset, offset + limit + 1))
    return {"archived": [each.as_dict() for each in found[:limit]], "more": len(found) > limit}


@routes.post(
    "/archive",
    response_model=past_answers.ReceiptsAnswer,
    responses=declared(404, 409, 413, 415),
    response_model_exclude_none=True,
)
def archive(memory: Writer, asked: Archiving) -> Any:
    """Put memories into the archive; without `uris`, the logs of days that are old enough."""
    if asked.uris is not None:
        if asked.days is not None:
            raise Refusal(400, "days goes without uris.", "Leave one of the two out.")
        return {
            "receipts": [
                expect_stored(memory.run(ARCHIVE, ArchiveRequest(asked.uris, dry_run=asked.dry_run))).as_dict()
            ]
        }
    keeper = memory if asked.days is None else _with_archive_days(memory, asked.days)
    done = list(keeper.run(MAINTAIN, MaintainRequest(only=[_LOGS], dry_run=asked.dry_run)))
    failure = next((each.failure for each in done if each.failure is not None), None)
    if failure is not None:
        raise failure
    return {"receipts": [receipt.as_dict() for each in done for receipt in each.receipts]}


@routes.post(
    "/archive/restore",
    response_model=answers.Receipt,
    responses=declared(404, 409, 413, 415),
    response_model_exclude_none=True,
)
def restore(memory: Writer, asked: Restoring) -> Any:
    """Bring files back from the archive; the place where one was names it too."""
    return expect_stored(memory.run(RESTORE, ArchiveRequest(asked.uris, dry_run=asked.dry_run))).as_dict()


@routes.post(
    "/maintain",
    response_model=past_answers.MaintenanceAnswer,
    responses=declared(413, 415),
    response_model_exclude_none=True,
)
def maintain(memory: Writer, asked: Maintenance) -> Any:
    """Run the passes of maintenance, or show what they would do."""
    passes = []
    for done in memory.run(MAINTAIN, MaintainRequest(only=asked.only, dry_run=asked.dry_run)):
        facts = done.as_dict()
        passes.append({**facts, "name": facts.pop("pass"), "changed": done.changed})
    return {"passes": passes}


@routes.get(
    "/rolling-summary",
    response_model=past_answers.RollingSummaryAnswer,
    responses=declared(),
    response_model_exclude_none=True,
)
def rolling_summary(memory: Reader, response: Response) -> Any:
    """The page that every new session begins with."""
    memory.opened.look()
    return _summary_facts(memory, response)


@routes.put(
    "/rolling-summary",
    response_model=past_answers.SummaryWritten,
    responses=declared(409, 412, 413, 415),
    response_model_exclude_none=True,
)
def write_rolling_summary(memory: Writer, asked: SummaryText, response: Response, if_match: IfMatch = None) -> Any:
    """Write that page: maintenance then leaves it alone."""
    expected = None
    if if_match is not None and (seen := seen_sha256(if_match)) is not None:
        expected = {str(rolling_summary_uri(memory.config.user_space)): seen}
    receipt = memory.commit(CommitRequest(asked.text, memory_type=NAME, expected=expected))
    if any(result.conflict for result in receipt.results):
        more = {"summary": _summary_facts(memory, response)}
        raise Refusal(412, "the summary changed since it was read.", "Compare both, and send it anew.", more)
    expect_stored(receipt)
    return {"receipt": receipt.as_dict(), "summary": _summary_facts(memory, response)}


@routes.delete(
    "/rolling-summary",
    response_model=answers.Receipt,
    responses=declared(409, 415),
    response_model_exclude_none=True,
)
def clear_rolling_summary(memory: Writer) -> Any:
    """Remove that page, whoever wrote it: the next maintenance may make it anew."""
    return expect_stored(memory.run(SUMMARY_CLEAR, SummaryClearRequest())).as_dict()


@routes.get("/review", response_model=past_answers.ReviewAnswer, responses=declared(), response_model_exclude_none=True)
def review(memory: Reader) -> Any:
    """What a model would remember and the owner has not accepted yet, oldest first."""
    return {"waiting": [_proposal_facts(each) for each in waiting_proposals(memory)]}


@routes.post(
    "/review/{name}/accept",
    response_model=answers.Receipt,
    responses=declared(404, 409, 413, 415),
    response_model_exclude_none=True,
)
def accept(memory: Writer, name: ProposalName, asked: DryRun | None = None) -> Any:
    """Do what a proposal proposes."""
    return _decided(memory.run(ACCEPT, DecisionRequest([name], dry_run=asked is not None and asked.dry_run)))


@routes.post(
    "/review/{name}/reject",
    response_model=answers.Receipt,
    responses=declared(404, 409, 413, 415),
    response_model_exclude_none=True,
)
def reject(memory: Writer, name: ProposalName, asked: DryRun | None = None) -> Any:
    """Drop a proposal; the same is not proposed again from the same conversation."""
    return _decided(memory.run(REJECT, DecisionRequest([name], dry_run=asked is not None and asked.dry_run)))


def _decided(receipts: list[CommitReceipt]) -> dict[str, Any]:
    (receipt,) = receipts
    return expect_stored(receipt).as_dict()


def _with_archive_days(memory: Runebook, days: int) -> Runebook:
    """The same view with another age from which logs are archived."""
    settings = memory.config.maintenance.model_copy(update={"archive_days": days})
    return Runebook(memory.config.model_copy(update={"maintenance": settings}), memory.opened, memory.access)


def _summary_facts(memory: Runebook, response: Response) -> dict[str, Any]:
    uri = rolling_summary_uri(memory.config.user_space)
    text = memory.store.text(uri)
    found = read_rolling_summary(text)
    updated = (split(text or "").trailer or {}).get("updated_at")
    sha256 = ABSENT if text is None else text_sha256(text)
    response.headers["etag"] = f'"{sha256}"'
    said = "" if found is None else found.text
    return {
        "text": said,
        "html": render(said),
        "written_by": "nobody" if found is None else "person" if found.authored else "maintenance",
        "updated_at": updated if isinstance(updated, str) else None,
        "sha256": sha256,
        "uri": str(uri),
    }


def _proposal_facts(proposal: Proposal) -> dict[str, Any]:
    facts = proposal.as_dict()
    return {**facts, "name": facts.pop("id"), "title": proposal.title, "op": proposal.op, "gone": proposal.gone}
