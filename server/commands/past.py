"""The past: history, differences, undoing, forgetting and purging."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_core.features.forgetting import FORGET, ForgetRequest
from memory_core.features.history import history_of
from memory_core.features.purge import PURGE, PurgeRequest, doomed
from memory_core.features.undo import UNDO, UndoRequest
from server.commands.opening import Commands, here, json_text, open_memory_of, open_to_search, show
from server.terminal import plain

if TYPE_CHECKING:
    from memory_core.core.memory.results import CommitReceipt
    from memory_core.features.history import Commit, History
    from memory_core.runebook import Runebook


_COLOURS = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}
_PLAIN = "\x1b[0m"


def register(commands: Commands) -> None:
    """Declare ``history``, ``diff``, ``undo``, ``forget`` and ``purge``."""
    history_command = commands.add("history", "Show what changed, when and by whom.", history)
    history_command.add_argument(
        "uri", nargs="?", help="only this file, also under former names, or what is below this directory"
    )
    history_command.add_argument("--limit", type=int, default=20, help="commits at most (default 20)")
    history_command.add_argument("--before", metavar="COMMIT", help="only older ones than this")
    diff_command = commands.add("diff", "Show what a commit changed, or how a file differs between two.", diff)
    diff_command.add_argument("what", help='a commit (an id, the first characters of one, or "last"), or a URI')
    diff_command.add_argument("--from", dest="earlier", metavar="COMMIT", help="of a file: as this commit left it")
    diff_command.add_argument("--to", dest="later", metavar="COMMIT", help="of a file: as this one left it")
    undo_command = commands.add("undo", "Take a commit back; what changed since is kept.", undo)
    undo_command.add_argument("commit", help='its id, the first characters of it, or "last"')
    undo_command.add_argument("--dry-run", action="store_true", help="show what would change; store nothing")
    forget_command = commands.add("forget", "Delete the memories that a search finds, after a look at them.", forget)
    forget_command.add_argument("query", nargs="?", help="what they are about")
    forget_command.add_argument("--uri", action="append", help="instead of a query: this memory; repeatable")
    forget_command.add_argument("--target-uri", default="", help="only below this directory")
    forget_command.add_argument("--filter", metavar="JSON", help="see runebook find")
    forget_command.add_argument("--limit", type=int, default=10, help="matches at most (default 10)")
    forget_command.add_argument("--conversations", action="store_true", help="messages of conversations, too")
    forget_command.add_argument("--yes", action="store_true", help="do not ask")
    purge_command = commands.add("purge", "Erase a file and all its past for good; nothing brings it back.", purge)
    purge_command.add_argument("uri", nargs="?", help="a file, a conversation or a directory")
    purge_command.add_argument("--commit", metavar="ID", help="instead: undo this commit and erase what it brought")
    purge_command.add_argument("--yes", action="store_true", help="do not ask")


def history(arguments: argparse.Namespace) -> int:
    """List commits."""
    from memory_core.features.history import commit_line

    with _open(arguments) as memory:
        commits = _commits(_past(memory), arguments.uri, arguments.limit, arguments.before)
        facts = {"commits": [commit.as_dict() for commit in commits]}
        show(arguments, facts, "\n".join(commit_line(commit) for commit in commits) or "No commit yet.")
    return 0


def diff(arguments: argparse.Namespace) -> int:
    """Show a commit, or compare two versions of a file."""
    from memory_core.core.errors import InvalidInput
    from memory_core.features.history import commit_line, diff_title

    is_uri = "://" in arguments.what
    if not is_uri and (arguments.earlier or arguments.later):
        raise InvalidInput("--from and --to compare a file.", hint="Name its URI instead of a commit.")
    with _open(arguments) as memory:
        past = _past(memory)
        if is_uri:
            lines = past.compare(arguments.what, arguments.earlier, arguments.later)
            text = "\n".join(lines) or "No difference."
            show(arguments, {"uri": arguments.what, "lines": list(lines)}, text, paint=_coloured)
            return 0
        commit, diffs = past.commit(arguments.what), past.diff(arguments.what)
        told = [commit_line(commit)]
        for step in diffs:
            withheld = [f"[{step.step.withheld}]"] if step.step.withheld else []
            told += ["", diff_title(step), *withheld, *step.lines]
        facts = {"commit": commit.as_dict(), "diffs": [step.as_dict() for step in diffs]}
        show(arguments, facts, "\n".join(told), paint=_coloured)
    return 0


def undo(arguments: argparse.Namespace) -> int:
    """Take a commit back."""
    with _open(arguments) as memory:
        return _tell(arguments, memory.run(UNDO, UndoRequest(arguments.commit, dry_run=arguments.dry_run)))


def forget(arguments: argparse.Namespace) -> int:
    """Delete what a search finds."""
    from memory_core.core.errors import InvalidInput

    if bool((arguments.query or "").strip()) is bool(arguments.uri):
        raise InvalidInput(
            "forget takes a query or --uri, one of the two.",
            hint="Write runebook forget 'QUERY', or runebook forget --uri URI.",
        )
    with open_to_search(arguments) as memory:
        request = {
            "query": arguments.query,
            "uris": arguments.uri,
            "target_uri": arguments.target_uri,
            "filter": json_text(arguments.filter, "--filter"),
            "limit": arguments.limit,
            "include_conversations": arguments.conversations,
        }
        place = here(memory.config)
        preview = memory.run(FORGET, ForgetRequest(**request, here=place))
        going = [result.uri for result in preview.results if result.action == "deleted"]
        if not going:
            return _tell(arguments, preview)
        if not arguments.yes:
            # What the tool says of confirming is not how it is done here.
            notes = tuple(note for note in preview.notes if "confirm=" not in note)
            if not sys.stdin.isatty():
                how = "nothing was deleted yet; to delete what is listed, run the same with --yes"
                return _tell(arguments, replace(preview, notes=(how, *notes)))
            _tell(arguments, replace(preview, notes=notes))
            if not _confirmed(f"To delete what is listed, type how many that is ({len(going)}): ", str(len(going))):
                print("Nothing was deleted.", file=sys.stderr)
                return 1
        return _tell(
            arguments,
            memory.run(FORGET, ForgetRequest(**({**request, "uris": going, "confirm": len(going)}), here=place)),
        )


def purge(arguments: argparse.Namespace) -> int:
    """Erase for good."""
    from memory_core.core.errors import InvalidInput

    if (arguments.uri is None) is (arguments.commit is None):
        raise InvalidInput("purge takes a URI or --commit.", hint="Name one of the two.")
    with _open(arguments) as memory:
        if arguments.uri is None:
            commit = history_of(memory).commit(arguments.commit)
            names, what = [str(step.uri) for step in commit.files], commit.commit_id
        else:
            found = doomed(memory, arguments.uri)
            names, what = (
                [str(uri) for uri in (*found.files, *found.past)],
                arguments.uri.rstrip("/").rpartition("/")[2],
            )
        if not arguments.yes:
            print(plain("\n".join(["Erased for good, with every earlier version:", *names])), file=sys.stderr)
            if not sys.stdin.isatty() or not _confirmed(f"Type {what} to go on: ", what):
                raise InvalidInput("nothing was erased.", hint="Type the name when asked, or give --yes.")
        return _tell(arguments, memory.run(PURGE, PurgeRequest(arguments.uri, commit=arguments.commit)))


def _open(arguments: argparse.Namespace) -> Runebook:
    """The store with what was done by hand until now in its history, or "last" would be another commit."""
    from memory_core.core.errors import StorageFailed, StoreBusy

    memory = open_memory_of(arguments, warm=False)
    with suppress(StorageFailed, StoreBusy):  # the past can be read all the same
        memory.store.adopt()
    return memory


def _commits(past: History, uri: str | None, limit: int, before: str | None) -> list[Commit]:
    """Commits, newest first; those of a file through its renames."""
    from memory_core.core.errors import NotFound
    from memory_core.features.history import LIMIT_COMMITS

    found = past.commits(uri, limit, before)
    if uri is None:
        return found
    try:
        versions = past.versions(uri, LIMIT_COMMITS if before is not None else limit)
    except NotFound:  # a directory
        return found
    newest = None if before is None else past.resolve(before).seq
    commits = [version.commit for version in versions]
    return [commit for commit in commits if newest is None or commit.seq < newest][:limit]


def _past(memory: Runebook) -> History:
    """History as the owner sees it from where the command runs."""
    return history_of(memory).seen_from(memory.projects.current(here(memory.config)))


def _tell(arguments: argparse.Namespace, receipt: CommitReceipt) -> int:
    from server import rendering

    show(arguments, receipt.as_dict(), rendering.receipt_text(receipt))
    return 1 if receipt.status == "rejected" else 0


def _confirmed(question: str, wanted: str) -> bool:
    print(plain(question), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == wanted


def _coloured(text: str) -> str:
    """A diff; in colours where a person looks at it."""
    if not sys.stdout.isatty():
        return text
    lines = text.split("\n")
    return "\n".join(f"{_COLOURS[line[0]]}{line}{_PLAIN}" if line[:1] in _COLOURS else line for line in lines)
