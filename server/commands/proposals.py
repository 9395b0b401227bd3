"""``review``: what a model proposed and its owner has yet to decide, from the command line."""

from __future__ import annotations

import argparse

from memory_core.core.errors import InvalidInput
from server.commands import declared
from server.commands.editing import edited_copy
from server.commands.opening import open_memory_of, show


def review(arguments: argparse.Namespace) -> int:
    """List, show, accept, edit or reject."""
    from memory_core.features.review import ACCEPT, REJECT, REVIEW, SHOW

    if arguments.what == "list":
        return declared.run(arguments, REVIEW, {})
    if arguments.what == "show":
        return declared.run(arguments, SHOW, {"names": arguments.names})
    if arguments.what == "edit":
        return _edit(arguments)
    names = arguments.names
    if arguments.all:
        names = [each["id"] for each in declared.ask(arguments, REVIEW, {}).facts["waiting"]]
        if not names:
            show(arguments, {"receipts": []}, "Nothing waits for review.")
            return 0
    decide = ACCEPT if arguments.what == "accept" else REJECT
    return declared.run(arguments, decide, {"names": names, "dry_run": arguments.dry_run})


def _edit(arguments: argparse.Namespace) -> int:
    """Word one proposal as the command line gives it, or as a person leaves it in their editor."""
    from memory_core.features.review import EDIT, named, target_seen, texts_shown

    if arguments.dry_run:
        raise InvalidInput("edit has no --dry-run.", hint="It goes with accept and reject.")
    if len(arguments.names) != 1:
        raise InvalidInput("edit takes one proposal.", hint="Give its id, as runebook review prints it.")
    (name,) = arguments.names
    if arguments.text is not None:
        return declared.run(arguments, EDIT, {"name": name, "text": arguments.text})
    with open_memory_of(arguments, warm=False) as memory:
        proposal = named(memory, name)
        seen = target_seen(proposal, memory.store.text)
    if not proposal.proposed:
        raise InvalidInput(f"proposal {proposal.id} stores no text.", hint="Accept or reject it.")
    hint = "Set $EDITOR, give --text, or edit the file that show names."
    with edited_copy("proposal.md", f"{texts_shown(proposal)}\n", hint) as text:
        expected = {str(proposal.uri): proposal.sha256}
        return declared.run(arguments, EDIT, {"name": name, "text": text, "expected": expected, "seen": seen})
