"""Memories in and out: export, import, backup and restore.

Progress goes to stderr, what was done to stdout; only an export to ``-`` prints the text of memories.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from memory_core.core.errors import InvalidInput, NeedsFolder, NotFound
from memory_core.core.memory.uri import SCHEME
from memory_core.features.imports import FORMATS
from server.commands.opening import given_uri, open_memory_of, settings_file_of, settings_of, show
from server.commands.progress_bars import Progress

if TYPE_CHECKING:
    from memory_core.features.export import Selection

_OWN = "runebook"
FORMAT_NAMES = (_OWN, *FORMATS)


def import_path(arguments: argparse.Namespace) -> int:
    """Bring in what a path holds."""
    from memory_core.features.imports.import_run import is_export

    path = Path(arguments.file)
    own = arguments.format == _OWN if arguments.format else is_export(path)
    _check_options(arguments, own=own)
    return _import_export(arguments, path) if own else _import_foreign(arguments, path)


def _check_options(arguments: argparse.Namespace, *, own: bool) -> None:
    """Refuse options that would do nothing."""
    if own:
        given = {
            "--project": arguments.project is not None,
            "--extract": arguments.extract,
            "--move-originals": arguments.move_originals is not None,
        }
    else:
        given = {"--on-conflict": arguments.on_conflict != "keep", "--partial": arguments.partial}
    inapplicable = [name for name, is_given in given.items() if is_given]
    if inapplicable:
        what = "an export of Runebook" if own else "memories of another program"
        raise InvalidInput(
            f"{', '.join(inapplicable)}: not for {what}.", hint="Leave it out; see runebook import --help."
        )


def _spaces(arguments: argparse.Namespace) -> tuple[str, str] | None:
    if arguments.into is None:
        return None
    user, slash, agent = arguments.into.partition("/")
    if not user or not slash or not agent or "/" in agent:
        raise InvalidInput("--into names no spaces.", hint="Write --into USER_SPACE/AGENT_SPACE.")
    return user, agent


def _import_export(arguments: argparse.Namespace, path: Path) -> int:
    from memory_core.features.import_export import OnConflict, import_export

    into = _spaces(arguments)
    with open_memory_of(arguments, warm=False) as memory, Progress():
        memory.expect_writable()
        policy = OnConflict(arguments.on_conflict)
        done = import_export(
            memory, path, on_conflict=policy, into=into, partial=arguments.partial, dry_run=arguments.dry_run
        )
    show(arguments, done, "\n".join(done.lines()))
    return 1 if done.refused else 0


def _import_foreign(arguments: argparse.Namespace, path: Path) -> int:
    from memory_core.features.imports.import_run import ImportRequest, check_model, extract_imported, import_memories

    into = _spaces(arguments)
    with open_memory_of(arguments, warm=False) as opened, Progress():
        memory = opened if into is None else opened.view(*into)
        memory.expect_writable()
        if arguments.extract:
            check_model(memory)
        request = ImportRequest(
            path,
            arguments.format,
            dry_run=arguments.dry_run,
            assignment=memory.projects.assignment(arguments.project, None, None),
            move_originals=arguments.move_originals,
        )
        done = import_memories(memory, request)
        if arguments.extract and not arguments.dry_run:
            extract_imported(memory, done)
    show(arguments, done, "\n".join(done.lines()))
    return 1 if done.left_out else 0


def export(arguments: argparse.Namespace) -> int:
    """Write an export."""
    from memory_core.core.memory.uri import MemoryUri
    from memory_core.features.export import Selection
    from memory_core.features.export import export as write

    selection = Selection(
        MemoryUri.parse(given_uri(arguments.target_uri)),
        arguments.project,
        arguments.memory_type,
        sessions=not arguments.no_sessions,
        history=arguments.history,
        messages=arguments.messages,
    )
    name = arguments.file
    if name != "-" and Path(name).suffix.lower() not in (".zip", ".jsonl"):
        raise InvalidInput(f"{name!r} is no kind of export.", hint="Name a file that ends in .zip or .jsonl, or '-'.")
    _check_type(arguments, selection)
    with open_memory_of(arguments, warm=False) as memory, Progress():
        if name == "-":
            done = write(memory, sys.stdout.buffer, selection)
        else:
            done = write(memory, Path(name), selection, force=arguments.force)
    counts = done.counts
    text = (
        f"{counts['files']:,} files ({counts['memories']:,} memories, {counts['sessions']:,} conversations) and "
        f"{counts['commits']:,} commits in {done.path}"
    )
    lost = [f"left out: {line}" for line in done.left_out_lines]
    if name == "-":  # standard output is the export
        print(*lost, sep="\n", end="\n" * bool(lost), file=sys.stderr)
        return 1 if lost else 0
    show(arguments, done, "\n".join([text, *lost]))
    return 1 if lost else 0


def backup(arguments: argparse.Namespace) -> int:
    """Back everything up."""
    from memory_core.features.backup import back_up

    with open_memory_of(arguments, warm=False) as memory, Progress():
        done = back_up(
            memory.store,
            Path(arguments.destination),
            settings_file=settings_file_of(arguments).path,
            keep=arguments.keep,
            with_index=arguments.with_index,
        )
    lines = [f"{done.counts['files']:,} files up to commit {done.seq} in {done.path}, read back and verified."]
    lines += done.note_lines
    lines += [f"left out: {name} ({_why_left_out(name)})" for name in done.left_out]
    lines += [f"removed {name}" for name in done.removed]
    show(arguments, done, "\n".join(lines))
    return 1 if done.left_out else 0


def _why_left_out(name: str) -> str:
    """Why a backup lacks a memory, named by its address, or a file of the user's, named by its path."""
    if name.startswith(SCHEME):
        return "its text is neither on disk nor in the history"
    return "other systems take no such name: rename it, then back up again"


def move(arguments: argparse.Namespace) -> int:
    """Copy the store to a database, or from there to a folder."""
    from memory_core.move import move as move_store

    with Progress():
        done = move_store(settings_of(arguments), arguments.to)
    lines = [
        f"{done.files:,} texts with {done.commits:,} commits and {done.tokens:,} tokens are in {done.to}, verified.",
        "What they were moved from stays as it is: have no server write to it any more.",
    ]
    lines += (
        [f"{done.tokens_left} tokens were left: they are of other users, or others have their labels there."]
        if done.tokens_left
        else []
    )
    show(arguments, done, "\n".join(lines))
    return 0


def restore(arguments: argparse.Namespace) -> int:
    """Bring a backup, or vanished files, back."""
    from memory_core.features.backup import restore as bring_back

    wanted = (arguments.backup is not None, arguments.missing, arguments.forget_missing)
    if wanted.count(True) != 1:
        raise InvalidInput("restore what?", hint="Name a backup, or give --missing or --forget-missing.")
    if arguments.backup is None:
        return _restore_missing(arguments)
    config = settings_of(arguments)
    if config.store.url:  # else a folder would be filled that nothing reads
        raise NeedsFolder("restoring a backup")
    home = config.root
    with Progress():
        count, aside = bring_back(Path(arguments.backup), home, force=arguments.force)
    lines = [f"{count:,} files restored to {home} and verified."]
    lines += [] if aside is None else [f"What was there is now {aside}."]
    lines.append("Its settings and tokens are those of the backup: runebook config, runebook token list.")
    facts = {"home": str(home), "files": count, "aside": None if aside is None else str(aside)}
    show(arguments, facts, "\n".join(lines))
    return 0


def _restore_missing(arguments: argparse.Namespace) -> int:
    with open_memory_of(arguments, warm=False) as memory:
        if arguments.missing:
            uris = memory.store.bring_back_vanished()
            done = "written anew from the history"
            left = [str(uri) for uri in memory.store.vanished()]
        else:
            uris = memory.store.forget_vanished()
            done = "recorded as deleted"
            left = []
        memory.indexer.follow()
    lines = [f"{len(uris):,} files {done}."]
    lines += [f"still missing: {uri} (it was not UTF-8, and history has only what could be read of it)" for uri in left]
    if left:
        lines.append(
            "Put these back from a copy, or confirm that they were deleted: runebook restore --forget-missing."
        )
    show(arguments, {"files": [str(uri) for uri in uris], "left": left}, "\n".join(lines))
    return 1 if left else 0


def _check_type(arguments: argparse.Namespace, selection: Selection) -> None:
    """Refuse a type that no memory can have, rather than export nothing."""
    if selection.memory_type is None:
        return
    from memory_core.open_store import load_registry

    names = [found.name for found in load_registry(settings_of(arguments)).list_all()]
    if selection.memory_type not in names:
        raise NotFound(f"there is no memory type {selection.memory_type!r}.", hint=f"Use one of: {', '.join(names)}.")
