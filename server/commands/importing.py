"""Bringing memories in: exports of Runebook, and the memories and conversations of other programs.

Progress goes to stderr, what was done to stdout; no text of a memory is ever printed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from memory_core.core.progress import Listener, Stage
from memory_core.features.imports import FORMATS
from memory_core.features.redaction import redaction_of
from server.commands.opening import Commands, open_memory_of, show
from server.commands.progress import Progress

if TYPE_CHECKING:
    from memory_core.features.imports.import_run import ImportReport
    from memory_core.runebook import Runebook


_OWN = "runebook"


def register(commands: Commands) -> None:
    """Declare ``import``."""
    into = commands.add(
        "import", "Bring memories in: what runebook export wrote, or those of another program; undoable.", import_path
    )
    into.add_argument("file", metavar="PATH", help="a file, folder or zip; its format is told by its content")
    into.add_argument("--from", dest="format", choices=(_OWN, *FORMATS), help="its format, where it is not recognised")
    into.add_argument("--dry-run", action="store_true", help="show what would change; store nothing")
    into.add_argument("--into", metavar="USER/AGENT", help="put everything into this user and agent space")
    into.add_argument("--project", help="other programs: the project of everything; default what the source tells")
    into.add_argument(
        "--extract", action="store_true", help="other programs: make memories of the conversations now, with the model"
    )
    into.add_argument(
        "--move-originals",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="other programs: rename what came in to *.migrated (default for vibeworker-v1 only)",
    )
    into.add_argument(
        "--on-conflict",
        choices=("keep", "replace", "both"),
        default="keep",
        help="export of Runebook: where a file here differs: keep it (default), replace it, or put the other beside it",
    )
    into.add_argument("--partial", action="store_true", help="export of Runebook: take what is sound of a damaged one")


def import_path(arguments: argparse.Namespace) -> int:
    """Bring in what a path holds."""
    from memory_core.features.imports.import_run import is_export

    path = Path(arguments.file)
    own = arguments.format == _OWN if arguments.format else is_export(path)
    _check_options(arguments, own=own)
    return _import_export(arguments, path) if own else _import_foreign(arguments, path)


def _check_options(arguments: argparse.Namespace, *, own: bool) -> None:
    """Refuse options that would do nothing."""
    from memory_core.core.errors import InvalidInput

    if own:
        given = {
            "--project": arguments.project is not None,
            "--extract": arguments.extract,
            "--move-originals": arguments.move_originals is not None,
        }
    else:
        given = {"--on-conflict": arguments.on_conflict != "keep", "--partial": arguments.partial}
    useless = [name for name, is_given in given.items() if is_given]
    if useless:
        what = "an export of Runebook" if own else "memories of another program"
        raise InvalidInput(f"{', '.join(useless)}: not for {what}.", hint="Leave it out; see runebook import --help.")


def _spaces(arguments: argparse.Namespace) -> tuple[str, str] | None:
    from memory_core.core.errors import InvalidInput

    if arguments.into is None:
        return None
    user, slash, agent = arguments.into.partition("/")
    if not user or not slash or not agent or "/" in agent:
        raise InvalidInput("--into names no spaces.", hint="Write --into USER_SPACE/AGENT_SPACE.")
    return user, agent


def _import_export(arguments: argparse.Namespace, path: Path) -> int:
    from memory_core.features.export import OnConflict, import_archive

    into = _spaces(arguments)
    with open_memory_of(arguments, warm=False) as memory, Progress() as tell:
        memory.expect_writable()
        done = import_archive(
            memory.store,
            memory.registry,
            path,
            user_space=memory.config.user_space,
            agent_space=memory.config.agent_space,
            on_conflict=OnConflict(arguments.on_conflict),
            into=into,
            partial=arguments.partial,
            dry_run=arguments.dry_run,
            discretion=redaction_of(memory.config),
            progress=lambda taken, total: tell(Stage("importing", taken, total, "files")),
        )
        memory.indexer.follow()
    show(arguments, done.as_dict(), "\n".join(done.lines()))
    return 1 if done.problems or done.outcome.refused else 0


def _import_foreign(arguments: argparse.Namespace, path: Path) -> int:
    from memory_core.features.imports.import_run import ImportRequest, import_memories

    into = _spaces(arguments)
    with open_memory_of(arguments, warm=False) as opened, Progress() as tell:
        memory = opened if into is None else opened.view(*into)
        memory.expect_writable()
        _check_model(arguments, memory)
        request = ImportRequest(
            path,
            arguments.format,
            dry_run=arguments.dry_run,
            belonging=memory.projects.belonging(arguments.project, None, None),
            move_originals=arguments.move_originals,
        )
        done = import_memories(memory, request, progress=lambda line: tell(Stage(line)))
        if arguments.extract and not arguments.dry_run:
            _extract(memory, done, tell)
    show(arguments, done.as_dict(), "\n".join(done.lines()))
    return 1 if done.left_out else 0


def _check_model(arguments: argparse.Namespace, memory: Runebook) -> None:
    """Refuse ``--extract`` before anything is stored where there is no model to do it."""
    from memory_core.core.errors import ModelUnavailable

    if arguments.extract and memory.opened.llm is None:
        raise ModelUnavailable(
            "no language model is configured to extract memories with.",
            hint="Set llm.provider to anthropic or openai, or leave --extract out: the conversations wait.",
        )


def _extract(memory: Runebook, done: ImportReport, tell: Listener) -> None:
    """Make memories of the conversations that came in."""
    for number, session_id in enumerate(done.sessions, start=1):
        tell(Stage("extracting", number - 1, len(done.sessions), "conversations"))
        for receipt in memory.extract_waiting(session_id):
            done.commits += [receipt.commit_id] if receipt.commit_id else []
            done.extracted += len(receipt.changed_uris)
