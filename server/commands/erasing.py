"""Forgetting and purging, which ask whoever sits at the terminal before they delete."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_core.core.errors import InvalidInput, StorageFailed, StoreBusy
from server.commands import declared
from server.commands.opening import given_uri, is_address, json_text, open_memory_of, show
from server.terminal import plain

if TYPE_CHECKING:
    from memory_core.core.memory.results import CommitReceipt


def forget(arguments: argparse.Namespace) -> int:
    """Take out what a query is about."""
    from memory_core.core.memory.results import CommitReceipt
    from memory_core.features.forgetting import FORGET, WEAKLY

    query, uris = arguments.query, list(map(given_uri, arguments.uri or ()))
    if query is not None and is_address(query):
        uris, query = [given_uri(query), *uris], None
    if bool((query or "").strip()) is bool(uris):
        raise InvalidInput(
            "forget takes a query or --uri, one of the two.",
            hint="Write runebook forget 'QUERY', or runebook forget --uri URI.",
        )
    given = {
        "query": query,
        "uris": uris or None,
        "target_uri": given_uri(arguments.target_uri),
        "filter": json_text(arguments.filter, "--filter"),
        "limit": arguments.limit,
        "include_conversations": not arguments.no_conversations,
    }
    preview = CommitReceipt.from_dict(declared.ask(arguments, FORGET, given).facts)
    going = [result.uri for result in preview.results if result.action in ("deleted", "updated")]
    if not going:
        return _tell(arguments, preview)
    if arguments.yes and WEAKLY in preview.notes:
        raise InvalidInput(
            f"nothing was deleted: {WEAKLY}.",
            hint="Look without --yes, then name what goes: runebook forget URI --yes.",
        )
    if not arguments.yes:
        # What the tool says of confirming is not how it is done here.
        notes = tuple(note for note in preview.notes if "confirm=" not in note)
        if arguments.json or not sys.stdin.isatty():
            how = "nothing was deleted yet; to delete what is listed, run the same with --yes"
            return _tell(arguments, replace(preview, notes=(how, *notes)))
        _tell(arguments, replace(preview, notes=notes))
        if not _confirmed(f"To delete what is listed, type how many that is ({len(going)}): ", str(len(going))):
            print("Nothing was deleted.", file=sys.stderr)
            return 1
    done = declared.ask(arguments, FORGET, {**given, "uris": going, "confirm": len(going)})
    if commit_id := done.facts["commit_id"]:
        done = done._replace(text=f"{done.text}\nUndo with: runebook undo {commit_id}")
    return declared.say(arguments, FORGET, done)


def purge(arguments: argparse.Namespace) -> int:
    """Erase for good."""
    from memory_core.features.history import history_of
    from memory_core.features.purge import PURGE, PurgeRequest, doomed

    if (arguments.uri is None) is (arguments.commit is None):
        raise InvalidInput("purge takes a URI or --commit.", hint="Name one of the two.")
    uri = None if arguments.uri is None else given_uri(arguments.uri)
    with open_memory_of(arguments, warm=False) as memory:
        with suppress(StorageFailed, StoreBusy):  # or "last" would be another commit
            memory.store.adopt()
        if uri is None:
            commit = history_of(memory).commit(arguments.commit)
            names, what = [str(step.uri) for step in commit.files], commit.commit_id
        else:
            found = doomed(memory, uri)
            names, what = found.names, uri.rstrip("/").rpartition("/")[2]
        if not arguments.yes:
            print(plain("\n".join(["Erased for good, with every earlier version:", *names])), file=sys.stderr)
            if not sys.stdin.isatty() or not _confirmed(f"Type {what} to go on: ", what):
                raise InvalidInput("nothing was erased.", hint="Type the name when asked, or give --yes.")
        return _tell(arguments, memory.run(PURGE, PurgeRequest(uri, commit=what if uri is None else None)))


def _tell(arguments: argparse.Namespace, receipt: CommitReceipt) -> int:
    from server import rendering

    show(arguments, receipt, rendering.receipt_text(receipt))
    return 1 if receipt.status == "rejected" else 0


def _confirmed(question: str, wanted: str) -> bool:
    print(plain(question), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == wanted
