"""The life of memories from the command line: maintenance, the archive, what is pinned, and what expires."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from memory_core.core.memory.requests import CommitRequest
from memory_core.features.upkeep.archive import ARCHIVE, ARCHIVE_LIST, RESTORE, ArchiveListRequest, ArchiveRequest
from memory_core.features.upkeep.passes import MAINTAIN, MaintainRequest
from server.commands.opening import Commands, open_memory_of, show
from server.commands.progress import Progress

if TYPE_CHECKING:
    from memory_core.features.upkeep.archive import Archived


def register(commands: Commands) -> None:
    """Declare ``maintain``, ``archive``, ``pin`` and ``expire``."""
    maintain_command = commands.add(
        "maintain", "Archive what expired, is done or unused, and condense it; for cron, or by hand.", maintain
    )
    maintain_command.add_argument("--dry-run", action="store_true", help="show what would change; write nothing")
    maintain_command.add_argument(
        "--only", action="append", default=[], metavar="PASS", help="this pass alone; may be given several times"
    )
    archive_command = commands.add("archive", "List the archive, put memories into it, or bring them back.", archive)
    archive_command.add_argument("action", choices=("list", "add", "restore"), help="what to do")
    archive_command.add_argument(
        "names", nargs="*", metavar="URI", help="memories to put away or bring back; with list: words they hold"
    )
    archive_command.add_argument("--dry-run", action="store_true", help="show what would change; write nothing")
    pin_command = commands.add("pin", "Keep a memory from ever being condensed or archived by itself.", pin)
    pin_command.add_argument("uri", metavar="URI", help="the memory")
    pin_command.add_argument("--off", action="store_true", help="no longer")
    expire_command = commands.add("expire", "Let a memory hold only until a date.", expire)
    expire_command.add_argument("uri", metavar="URI", help="the memory")
    expire_command.add_argument("at", metavar="WHEN", help="ISO date or time from which it no longer holds, or never")


def maintain(arguments: argparse.Namespace) -> int:
    """Run maintenance and say what each pass did."""
    from memory_core.core.progress import Stage
    from server.rendering import receipt_text

    facts: list[dict[str, Any]] = []
    lines: list[str] = []
    failed = False
    with open_memory_of(arguments) as memory, Progress() as tell:
        for done in memory.run(MAINTAIN, MaintainRequest(dry_run=arguments.dry_run, only=arguments.only)):
            facts.append(done.as_dict())
            tell(Stage("maintaining", len(facts), None, f"passes, {done.name} last"))
            would = "would change" if arguments.dry_run else "changed"
            lines.append(f"{done.name}: {f'{would} {done.changed} files' if done.receipts else 'nothing to do'}")
            lines += [f"  {line}" for receipt in done.receipts for line in receipt_text(receipt).splitlines()]
            if done.failure is not None:
                failed = True
                lines.append(f"  stopped: {done.failure.message} Next: {done.failure.hint}")
    show(arguments, {"dry_run": arguments.dry_run, "passes": facts}, "\n".join(lines))
    return 1 if failed else 0


def archive(arguments: argparse.Namespace) -> int:
    """List the archive, or move memories into it or out of it."""
    from server.rendering import receipt_text

    with open_memory_of(arguments, warm=False) as memory:
        if arguments.action == "list":
            found = list(memory.run(ARCHIVE_LIST, ArchiveListRequest(" ".join(arguments.names))))
            none = "Nothing in the archive holds these words." if arguments.names else "Nothing is archived."
            lines = [f"{each.uri}\n    {each.abstract}{_why(each)}" for each in found]
            show(arguments, {"archived": [each.as_dict() for each in found]}, "\n".join(lines) or none)
            return 0
        move = ARCHIVE if arguments.action == "add" else RESTORE
        receipt = memory.run(move, ArchiveRequest(arguments.names, arguments.dry_run))
    show(arguments, receipt.as_dict(), receipt_text(receipt))
    return 0 if receipt.changed_uris else 1


def _why(archived: Archived) -> str:
    said = ": ".join(part for part in ((archived.at or "")[:10], archived.reason) if part)
    return f" ({said})" if said else ""


def pin(arguments: argparse.Namespace) -> int:
    """Pin a memory, or no longer."""
    return _standing(arguments, {"pinned": not arguments.off})


def expire(arguments: argparse.Namespace) -> int:
    """Set or clear the date until which a memory holds."""
    return _standing(arguments, {"expires_at": "" if arguments.at == "never" else arguments.at})


def _standing(arguments: argparse.Namespace, said: dict[str, Any]) -> int:
    from server.rendering import receipt_text

    with open_memory_of(arguments) as memory:
        receipt = memory.commit(CommitRequest(operations={"edit_operations": [{"uri": arguments.uri, **said}]}))
    show(arguments, receipt.as_dict(), receipt_text(receipt))
    return 1 if any(result.reason for result in receipt.results) else 0
