"""The rolling summary from the command line: what every new session begins with."""

from __future__ import annotations

import argparse

from memory_core.core.memory.requests import CommitRequest
from memory_core.features.rolling_summary import NAME, SUMMARY, SUMMARY_CLEAR, SummaryClearRequest, SummaryRequest
from server.commands.opening import Commands, open_memory_of, show, text_file
from server.terminal import plain


def register(commands: Commands) -> None:
    """Declare ``summary``."""
    command = commands.add("summary", "Show, write or clear the page that every new session begins with.", summary)
    change = command.add_mutually_exclusive_group()
    change.add_argument("--write", metavar="TEXT", dest="text", help="write it: maintenance then leaves it alone")
    change.add_argument("--file", metavar="FILE", help="likewise, from a file; '-' reads standard input")
    change.add_argument("--clear", action="store_true", help="remove it: maintenance may make it anew")


def summary(arguments: argparse.Namespace) -> int:
    """Show, write or clear the rolling summary."""
    from server.rendering import receipt_text

    text = arguments.text if arguments.file is None else text_file(arguments.file)
    with open_memory_of(arguments, warm=False) as memory:
        if text is None and not arguments.clear:
            found = memory.run(SUMMARY, SummaryRequest())
            facts = None if found is None else {"text": found.text, "authored": found.authored}
            nothing = "There is no summary yet: runebook maintain makes one, runebook summary --write TEXT writes one."
            show(arguments, {NAME: facts}, nothing if found is None else plain(found.text))
            return 0
        receipt = (
            memory.run(SUMMARY_CLEAR, SummaryClearRequest())
            if text is None
            else memory.commit(CommitRequest(text, memory_type=NAME))
        )
    show(arguments, receipt.as_dict(), receipt_text(receipt))
    return 1 if any(result.reason for result in receipt.results) else 0
