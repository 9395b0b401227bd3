"""``review``: what a model proposed and its owner has yet to decide, from the command line."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from memory_core.core.errors import InvalidInput
from server.commands import declared
from server.commands.editing import open_editor
from server.commands.opening import open_memory_of, show


def review(arguments: argparse.Namespace) -> int:
    """List, show, accept, edit or reject."""
    from memory_core.features.review import ACCEPT, EDIT, REJECT, REVIEW, SHOW

    if arguments.what == "list":
        return declared.run(arguments, REVIEW, {})
    if arguments.what == "show":
        return declared.run(arguments, SHOW, {"names": arguments.names})
    if arguments.what == "edit":
        return declared.run(arguments, EDIT, _edited(arguments))
    names = arguments.names
    if arguments.all:
        names = [each["id"] for each in declared.ask(arguments, REVIEW, {}).facts["waiting"]]
        if not names:
            show(arguments, {"receipts": []}, "Nothing waits for review.")
            return 0
    decide = ACCEPT if arguments.what == "accept" else REJECT
    return declared.run(arguments, decide, {"names": names, "dry_run": arguments.dry_run})


def _edited(arguments: argparse.Namespace) -> dict[str, str]:
    """The one proposal that is named, and its text as it is given, or as a person leaves it in their editor."""
    from memory_core.features.review import named, texts_shown

    if len(arguments.names) != 1:
        raise InvalidInput("edit takes one proposal.", hint="Give its id, as runebook review prints it.")
    (name,) = arguments.names
    text = arguments.text
    if text is None:
        with open_memory_of(arguments, warm=False) as memory:
            before = texts_shown(named(memory, name))
        text = _in_editor(before)
    return {"name": name, "text": text}


def _in_editor(text: str) -> str:
    """The text as a person leaves it in their editor.

    Raises:
        InvalidInput: If there is no editor, or it fails.
    """
    with tempfile.TemporaryDirectory(prefix="runebook-") as folder:
        path = Path(folder) / "proposal.md"
        path.write_text(f"{text}\n", encoding="utf-8", newline="\n")
        open_editor(path, "Set $EDITOR, give --text, or edit the file that show names.")
        return path.read_text(encoding="utf-8")
