"""``review``: what a model proposed and its owner has yet to decide, from the command line."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from memory_core.features.review import ACCEPT, REJECT, REWORD, DecisionRequest, RewordRequest
from memory_core.features.review import named as named_proposal
from memory_core.features.review import waiting as waiting_proposals
from server.commands.opening import Commands, open_memory_of, show

if TYPE_CHECKING:
    from memory_core.core.memory.results import CommitReceipt
    from memory_core.features.review import Proposal
    from memory_core.runebook import Runebook


def register(commands: Commands) -> None:
    """Declare ``review``."""
    command = commands.add("review", "Decide on what a model proposed to remember (setting review: automatic).", review)
    command.add_argument(
        "what",
        nargs="?",
        default="list",
        choices=("list", "show", "accept", "edit", "reject"),
        help="what to do; default list",
    )
    command.add_argument("names", nargs="*", metavar="ID", help="proposals, by the beginning of their id")
    command.add_argument("--all", action="store_true", help="all that wait: with accept and reject")
    command.add_argument("--text", metavar="TEXT", help="with edit: what is to be stored, instead of opening $EDITOR")
    command.add_argument("--dry-run", action="store_true", help="show what would change; write nothing")


def review(arguments: argparse.Namespace) -> int:
    """List, show, accept, edit or reject."""
    with open_memory_of(arguments) as memory:
        if arguments.what == "list":
            return _list(arguments, memory)
        if arguments.what == "show":
            return _show(arguments, memory)
        if arguments.what == "edit":
            return _edit(arguments, memory)
        names = [each.id for each in waiting_proposals(memory)] if arguments.all else arguments.names
        if arguments.all and not names:
            show(arguments, {"receipts": []}, "Nothing waits for review.")
            return 0
        decide = ACCEPT if arguments.what == "accept" else REJECT
        return _told(arguments, memory.run(decide, DecisionRequest(names, arguments.dry_run)))


def _list(arguments: argparse.Namespace, memory: Runebook) -> int:
    waiting = waiting_proposals(memory)
    lines = [f"{each.id}  {each.title}\n    {_gist(each)}" for each in waiting]
    if waiting:
        lines.append("runebook review show ID | accept ID… | edit ID | reject ID… (or --all)")
    facts = {"waiting": [each.as_dict() for each in waiting]}
    show(arguments, facts, "\n".join(lines) or "Nothing waits for review.")
    return 0


def _gist(proposal: Proposal) -> str:
    from memory_core.core.memory.names import summary_line

    said = " ".join(proposal.texts.values()) or proposal.gone
    whence = f"session {proposal.session}, " if proposal.session else ""
    return f"{summary_line(said, 160) or proposal.target} ({whence}{proposal.at[:10]})"


def _show(arguments: argparse.Namespace, memory: Runebook) -> int:
    from memory_core.features.review import readable

    found = [named_proposal(memory, name) for name in _named(arguments)]
    text = "\n\n".join(f"{readable(each)}\n\nfile: {each.uri}" for each in found)
    show(arguments, {"proposals": [each.as_dict() for each in found]}, text)
    return 0


def _edit(arguments: argparse.Namespace, memory: Runebook) -> int:
    from memory_core.core.errors import InvalidInput
    from memory_core.features.review import texts_shown

    if len(arguments.names) != 1:
        raise InvalidInput("edit takes one proposal.", hint="Give its id, as runebook review prints it.")
    (name,) = arguments.names
    text = arguments.text
    if text is None:
        text = _in_editor(texts_shown(named_proposal(memory, name)))
    return _told(arguments, [memory.run(REWORD, RewordRequest(name, text))])


def _in_editor(text: str) -> str:
    """The text as a person leaves it in their editor.

    Raises:
        InvalidInput: If there is no editor, or it fails.
    """
    from memory_core.core.errors import InvalidInput

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise InvalidInput("no editor is set.", hint="Set $EDITOR, give --text, or edit the file that show names.")
    with tempfile.TemporaryDirectory(prefix="runebook-") as folder:
        path = Path(folder) / "proposal.md"
        path.write_text(f"{text}\n", encoding="utf-8", newline="\n")
        try:
            subprocess.run([*shlex.split(editor), str(path)], check=True)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            raise InvalidInput(f"the editor failed: {error}.", hint="Set $EDITOR, or give --text.") from error
        return path.read_text(encoding="utf-8")


def _named(arguments: argparse.Namespace) -> list[str]:
    from memory_core.core.errors import InvalidInput

    if not arguments.names:
        raise InvalidInput("no proposal is named.", hint="Give its id, as runebook review prints it.")
    return list(arguments.names)


def _told(arguments: argparse.Namespace, receipts: list[CommitReceipt]) -> int:
    from server.rendering import receipt_text

    facts = {"receipts": [receipt.as_dict() for receipt in receipts]}
    show(arguments, facts, "\n".join(receipt_text(receipt) for receipt in receipts))
    return 1 if any(result.reason for receipt in receipts for result in receipt.results) else 0
