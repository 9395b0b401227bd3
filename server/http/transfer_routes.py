"""Routes of the API for import, export, backup and restore, as the commands of these names do them. For the owner."""

from __future__ import annotations

import base64
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from starlette.responses import FileResponse

from memory_core.core.errors import InvalidInput, NotFound
from memory_core.core.memory.results import as_json
from memory_core.core.memory.uri import SCHEME, MemoryUri
from memory_core.features.backup import back_up, restore, verify
from memory_core.features.export import Selection, export
from memory_core.features.export_file import BACKUP, open_pack
from memory_core.features.import_export import Import, OnConflict, import_export
from memory_core.features.imports.import_run import (
    ImportReport,
    ImportRequest,
    check_model,
    extract_imported,
    import_memories,
    is_export,
)
from memory_core.runebook import Runebook
from server.http.api import Reader, Refusal, Writer, answer, declared, route
from server.http.api_answers import DryRun, Exporting, Importing, NewUpload, UploadPart
from server.http.settings_routes import OWNER_ALONE, Owner
from server.http.transfers import Transfer, Transfers

if TYPE_CHECKING:
    from memory_core.core.store.issued_tokens import IssuedTokens
    from server.protocol.session import ServedStore

#: Of a body of JSON; a part is written in base64 in it.
_PART_SHARE = 2
_PART_MOST_BYTES = 2 * 1024**2
#: Of what needs a look, so many are named.
_SHOWN = 100

moving = APIRouter(tags=["owner"], dependencies=OWNER_ALONE)


def _transfers(owner: Owner) -> Transfers:
    return owner.transfers


OwnersTransfers = Annotated[Transfers, Depends(_transfers)]
TransferId = Annotated[str, Path(max_length=32, examples=["9f86d081884c7d65"])]


@route(moving, "POST", "/transfers", "UploadAnswer", nulls=True, status_code=201)
def begin_upload(request: Request, transfers: OwnersTransfers, asked: NewUpload) -> Any:
    """Begin to send a file that is to be imported or restored. For the owner."""
    part_bytes = min(request.app.state.body_bytes // _PART_SHARE, _PART_MOST_BYTES)
    return {"transfer": transfers.begin(asked.name), "part_bytes": part_bytes}


@route(moving, "PUT", "/transfers/{transfer_id}", "TransferAnswer", 404, nulls=True)
def add_part(transfers: OwnersTransfers, transfer_id: TransferId, part: UploadPart) -> Any:
    """Send the next part of a file. For the owner."""
    try:
        content = base64.b64decode(part.base64, validate=True)
    except ValueError:
        raise InvalidInput("the part is not base64.", hint="Encode it as RFC 4648 says.") from None
    return transfers.add(transfer_id, part.offset, content)


@route(moving, "GET", "/transfers/{transfer_id}", "TransferAnswer", 404, nulls=True)
def read_transfer(transfers: OwnersTransfers, transfer_id: TransferId) -> Any:
    """How far a transfer is, and what came of it. For the owner."""
    return transfers.get(transfer_id)


@route(moving, "DELETE", "/transfers/{transfer_id}", "TransferAnswer", 404, nulls=True)
def discard_transfer(transfers: OwnersTransfers, transfer_id: TransferId) -> Any:
    """Let go of a file. For the owner."""
    found = transfers.get(transfer_id)
    transfers.discard(transfer_id)
    return found


@moving.get("/transfers/{transfer_id}/file", response_model=None, responses=declared(404))
def download(transfers: OwnersTransfers, transfer_id: TransferId) -> Any:
    """The file that an export or a backup made. For the owner."""
    found = transfers.get(transfer_id)
    if found.state != "done" or not found.path.is_file():
        return answer(404, "there is no such file yet.", "Wait until the work is done.")
    return FileResponse(found.path, filename=found.name, media_type="application/octet-stream")


@route(moving, "POST", "/transfers/{transfer_id}/import", "TransferAnswer", 404, nulls=True)
def import_file(memory: Writer, transfers: OwnersTransfers, transfer_id: TransferId, asked: Importing) -> Any:
    """Bring in what a file holds, or as a dry run say what would come. For the owner."""
    return transfers.start(transfers.get(transfer_id), partial(_import, memory, asked))


@route(moving, "POST", "/exports", "TransferAnswer", nulls=True, status_code=202)
def begin_export(memory: Reader, transfers: OwnersTransfers, asked: Exporting) -> Any:
    """Write memories to a file, to be downloaded when it is done. For the owner."""
    known = [each.name for each in memory.registry.list_all()]
    if asked.memory_type is not None and asked.memory_type not in known:
        raise NotFound(f"there is no memory type {asked.memory_type!r}.", hint=f"Use one of: {', '.join(known)}.")
    target = MemoryUri.parse(SCHEME)
    selection = Selection(target, asked.project, asked.memory_type, asked.sessions, asked.history)

    def work(transfer: Transfer) -> dict[str, Any]:
        done = export(memory, transfer.path, selection)
        return {"counts": done.counts, "left_out": done.left_out_lines[:_SHOWN]}

    return transfers.make(f"runebook-export.{asked.format}", work)


@route(moving, "POST", "/backups", "TransferAnswer", nulls=True, status_code=202)
def begin_backup(memory: Reader, transfers: OwnersTransfers) -> Any:
    """Copy everything, verified, to a file to be downloaded. For the owner."""
    memory.store.expect_folder("a backup")

    def work(transfer: Transfer) -> dict[str, Any]:
        done = back_up(memory.store, transfer.path)
        shown = {"left_out": done.left_out[:_SHOWN], "notes": done.note_lines[:_SHOWN]}
        return {"counts": done.counts, **shown}

    return transfers.make("runebook-backup.zip", work)


@route(moving, "POST", "/transfers/{transfer_id}/restore", "TransferAnswer", 404, nulls=True)
def restore_backup(request: Request, memory: Reader, owner: Owner, transfer_id: TransferId, asked: DryRun) -> Any:
    """Put a backup in the place of the memory folder, which is moved aside; as a dry run check it. For the owner."""
    memory.store.expect_folder("restoring a backup")
    if not owner.may_restore:
        raise Refusal(409, "clients use this server.", "Stop it, and run runebook restore; or use runebook ui.")
    store = request.app.state.store
    work = partial(_check, memory) if asked.dry_run else partial(_restore, memory, store, owner.tokens)
    return owner.transfers.start(owner.transfers.get(transfer_id), work)


def _import(memory: Runebook, asked: Importing, transfer: Transfer) -> dict[str, Any]:
    if asked.format in (None, "runebook") and is_export(transfer.path):
        useless = [name for name in ("project", "extract") if getattr(asked, name)]
        if useless:
            raise InvalidInput(
                f"{' and '.join(useless)}: not for an export of Runebook.", hint="It says itself what belongs where."
            )
        policy = OnConflict(asked.on_conflict)
        return _own_report(import_export(memory, transfer.path, on_conflict=policy, dry_run=asked.dry_run))
    request = ImportRequest(
        transfer.path,
        asked.format,
        dry_run=asked.dry_run,
        assignment=memory.projects.assignment(asked.project, None, None),
        move_originals=False,
        sent=True,
    )
    if asked.extract:
        check_model(memory)
    done = import_memories(memory, request)
    if asked.extract and not asked.dry_run:
        extract_imported(memory, done)
    return _report(done)


def _report(done: ImportReport) -> dict[str, Any]:
    return {
        "format": done.format,
        "counts": as_json(done.sorted_counts),
        "left_out": [f"{each.place}: {each.reason}" for each in done.left_out[:_SHOWN]],
        "kept": [f"{each.place}: {each.reason}" for each in done.kept[:_SHOWN]],
        "notes": [*done.notes, *done.extracted_lines, *done.skipped_lines],
        "commits": done.commits,
    }


def _own_report(done: Import) -> dict[str, Any]:
    counts = Counter(created=len(done.created), updated=len(done.updated), unchanged=done.unchanged)
    return {
        "format": "runebook",
        "counts": {"files": {action: count for action, count in counts.items() if count}},
        "left_out": [f"{each.name}: {each.reason}" for each in done.refused[:_SHOWN]],
        "kept": [f"{each.name}: {each.reason}" for each in done.kept[:_SHOWN]],
        "notes": [*(f"{each.uri} stays, {each.imported} is beside it" for each in done.beside[:_SHOWN]), *done.notes],
        "commits": done.commits,
    }


def _check(memory: Runebook, transfer: Transfer) -> dict[str, Any]:
    files = verify(transfer.path)
    memory.indexer.follow()
    with open_pack(transfer.path, BACKUP) as found:
        facts = found.manifest
    return {
        "created_at": facts.get("created_at"),
        "files": files,
        "counts": facts.get("counts", {}),
        "replaces": sum(memory.memory_list.counts().values()),
    }


def _restore(memory: Runebook, store: ServedStore, tokens: IssuedTokens | None, transfer: Transfer) -> dict[str, Any]:
    home = memory.config.root
    # Settings that run programs, and tokens, are not changed over HTTP: a backup changes them no more than that.
    count, aside = restore(transfer.path, home, force=True, keep_rights=True, closed=store.replaced)
    if tokens is not None:
        tokens.database.reopen()
    return {"files": count, "aside": None if aside is None else aside.name}


ROUTERS = (moving,)
