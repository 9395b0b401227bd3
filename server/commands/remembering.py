"""Remembering: memories, operations, conversations, and what waits to be extracted."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

from memory_core.core.memory.requests import CommitRequest
from server.commands.opening import Commands, here, json_file, open_memory_of, show, text_file
from server.terminal import plain

if TYPE_CHECKING:
    from memory_core.core.memory.results import CommitReceipt


def register(commands: Commands) -> None:
    """Declare ``commit`` and ``extract``."""
    commit_command = commands.add("commit", "Remember something.", commit)
    commit_command.add_argument("content", nargs="?", help="the memory; '-' reads standard input")
    commit_command.add_argument(
        "--type", dest="memory_type", help="memory type (default notes; daily_logs: today's log); see runebook types"
    )
    commit_command.add_argument("--priority", help="low, normal, high, critical, or 0 to 1")
    commit_command.add_argument("--category", help="a label; also picks a type if none is named")
    commit_command.add_argument(
        "--field", action="append", default=[], metavar="NAME=VALUE", help="a field of the type; repeatable"
    )
    commit_command.add_argument("--messages", metavar="FILE", help="JSON list of messages; '-' reads standard input")
    commit_command.add_argument("--operations", metavar="FILE", help="JSON MemoryOperations; '-' reads standard input")
    commit_command.add_argument("--session-id", help="session the messages belong to")
    commit_command.add_argument("--request-id", help="makes a retry return the first receipt")
    commit_command.add_argument("--pinned", action="store_true", help="never condense or archive it by itself")
    commit_command.add_argument("--expires-at", metavar="WHEN", help="ISO date or time from which it no longer holds")
    commit_command.add_argument(
        "--project", help='project it belongs to; "." is the one you are in, "global" is none (default: by type)'
    )
    commit_command.add_argument(
        "--private", action=argparse.BooleanOptionalAction, help="keep it from every other project, or share it"
    )
    commit_command.add_argument("--dry-run", action="store_true", help="show what would change; store nothing")
    extract_command = commands.add(
        "extract", "Turn waiting conversations into memories, with the model of llm.*.", extract
    )
    extract_command.add_argument("--session-id", help="only this conversation, and all of it again")
    extract_command.add_argument("--list", action="store_true", dest="only_list", help="only show what waits and why")


def commit(arguments: argparse.Namespace) -> int:
    """Remember something."""
    from server import rendering

    content = text_file("-") if arguments.content == "-" else arguments.content
    pairs = [_pair(field) for field in arguments.field]
    with open_memory_of(arguments) as memory:
        receipt = memory.commit(
            CommitRequest(
                content,
                memory_type=arguments.memory_type,
                priority=arguments.priority,
                category=arguments.category,
                fields=dict(pairs) or None,
                messages=json_file(arguments.messages),
                operations=json_file(arguments.operations),
                session_id=arguments.session_id,
                request_id=arguments.request_id,
                dry_run=arguments.dry_run,
                project=arguments.project,
                private=arguments.private,
                here=here(memory.config),
                metadata=_metadata(arguments),
            )
        )
    facts = receipt.as_dict()
    show(arguments, facts, rendering.receipt_text(receipt))
    return 1 if facts["status"] == "rejected" else 0


def _metadata(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {"pinned": arguments.pinned or None, "expires_at": arguments.expires_at}
    return {name: value for name, value in given.items() if value is not None}


def extract(arguments: argparse.Namespace) -> int:
    """Extract the memories of waiting conversations."""
    from memory_core.core.commit.receipts import still_waits
    from server import rendering

    with open_memory_of(arguments) as memory:
        if arguments.only_list:
            rows = memory.extractor.waiting()
            facts = {"waiting": [row.as_dict() for row in rows]}
            lines = [f"{row.log.parent.name}: {row.waiting} messages since {row.since}" for row in rows]
            lines = [line + (f" ({row.reason})" if row.reason else "") for line, row in zip(lines, rows, strict=True)]
            show(arguments, facts, "\n".join(lines) or "No conversation waits.")
            return 0
        receipts = []
        waiting = 1 if arguments.session_id else len(memory.extractor.waiting())
        for receipt in _shown(memory.extract_waiting(arguments.session_id), waiting):
            receipts.append(receipt)
            if not arguments.json:
                print(plain(rendering.receipt_text(receipt)), flush=True)
    waits = any(receipt.status == "rejected" or still_waits(receipt) for receipt in receipts)
    if arguments.json:
        print(json.dumps({"receipts": [receipt.as_dict() for receipt in receipts]}, ensure_ascii=False, indent=2))
    elif not receipts:
        print("No conversation waits.")
    return 1 if waits else 0


def _shown(receipts: Iterator[CommitReceipt], waiting: int) -> Iterator[CommitReceipt]:
    """The receipts of conversations, with progress while each is waited for."""
    from memory_core.core.progress import Stage
    from server.commands.progress import Progress

    for number in count():
        with Progress() as tell:  # closed while a receipt is printed
            tell(Stage("extracting", number, max(number, waiting), "conversations"))
            receipt = next(receipts, None)
        if receipt is None:
            return
        yield receipt


def _pair(text: str) -> tuple[str, str]:
    from memory_core.core.errors import InvalidInput

    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput(f"--field {text!r} has no value.", hint='Write --field NAME="value".')
    return name.strip(), value
