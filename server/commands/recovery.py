"""Looking after a store: ``doctor`` and ``rebuild``. Neither needs the store to be sound."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from server.commands.opening import Commands, open_memory_of, settings_of, show

#: How often progress is shown to a person, and to a log.
_SHOW_SECONDS = 0.2
_LOG_SECONDS = 5.0


def register(commands: Commands) -> None:
    """Declare ``doctor`` and ``rebuild``."""
    command = commands.add(
        "doctor", "Examine files, history and index from all sides; exit status 1 when something is wrong.", doctor
    )
    command.add_argument("--repair", action="store_true", help="mend what can be mended without losing anything")
    command = commands.add("rebuild", "Build the search index anew from files and history.", rebuild)
    command.add_argument("--reembed", action="store_true", help="compute every vector anew, too")


def doctor(arguments: argparse.Namespace) -> int:
    """Examine a store, and mend it if asked to."""
    from memory_core.lifecycle.doctor import examine, repair
    from memory_core.wiring import load_registry

    config = settings_of(arguments)
    report = (repair if arguments.repair else examine)(config, load_registry(config))
    show(arguments, report.as_dict(), "\n".join(report.lines()))
    return 0 if report.clean else 1


def rebuild(arguments: argparse.Namespace) -> int:
    """Build the index anew, with a line of progress on stderr."""
    with open_memory_of(arguments, warm=False) as memory:
        with _Progress() as tell:
            rebuilt = memory.rebuild(
                reembed=arguments.reembed,
                report=lambda behind: tell(f"{behind.done:,} of {behind.total:,} {behind.counted} are indexed"),
            )
        computed = 0
        if memory.indexer.embedder is not None:
            before = memory.indexer.vector_count()
            with _Progress() as tell:
                memory.indexer.embed_all(lambda now: tell(f"{now.done:,} of {now.total:,} passages have a vector"))
            computed = memory.indexer.vector_count() - before
    facts = {
        "files": rebuilt.files,
        "documents": rebuilt.documents,
        "vectors_kept": rebuilt.vectors_kept,
        "vectors_dropped": rebuilt.vectors_dropped,
        "vectors_computed": computed,
    }
    text = (
        f"The index was built anew: {rebuilt.documents:,} documents of {rebuilt.files:,} files; "
        f"{rebuilt.vectors_kept:,} vectors kept, {rebuilt.vectors_dropped:,} dropped, {computed:,} computed."
    )
    show(arguments, facts, text)
    return 0


class _Progress:
    """Shows one line on stderr that changes; on a log, a line from time to time."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._shown_at = 0.0

    def __enter__(self) -> Callable[[str], None]:
        return self._tell

    def __exit__(self, *_: object) -> None:
        if self._live and self._shown_at:
            print(file=sys.stderr)

    def _tell(self, line: str) -> None:
        if time.monotonic() >= self._shown_at + (_SHOW_SECONDS if self._live else _LOG_SECONDS):
            self._shown_at = time.monotonic()
            print(f"\r{line}" if self._live else line, end="" if self._live else "\n", file=sys.stderr, flush=True)
