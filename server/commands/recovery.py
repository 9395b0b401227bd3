"""Looking after a store: ``doctor`` and ``rebuild``. Neither needs the store to be sound."""

from __future__ import annotations

import argparse

from memory_core.features.rebuild import REBUILD, RebuildRequest
from server.commands.opening import Commands, open_memory_of, settings_of, show
from server.commands.progress import Progress, passages


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
    from memory_core.features.doctor import examine, repair
    from memory_core.open_store import load_registry

    config = settings_of(arguments)
    report = (repair if arguments.repair else examine)(config, load_registry(config))
    show(arguments, report.as_dict(), "\n".join(report.lines()))
    return 0 if report.clean else 1


def rebuild(arguments: argparse.Namespace) -> int:
    """Build the index anew, with progress on stderr."""
    from memory_core.core.progress import Stage

    with open_memory_of(arguments, warm=False) as memory:
        with Progress() as tell:
            rebuilt = memory.run(
                REBUILD,
                RebuildRequest(
                    reembed=arguments.reembed,
                    report=lambda behind: tell(Stage("indexing", behind.done, behind.total, behind.counted)),
                ),
            )
        computed = 0
        if memory.indexer.embedder is not None:
            before = memory.indexer.vector_count()
            with Progress() as tell:
                memory.indexer.embed_all(lambda now: tell(passages(now)))
            computed = memory.indexer.vector_count() - before
            memory.indexer.send_all()
        trouble = memory.indexer.vectors.trouble
    facts = {
        "files": rebuilt.files,
        "documents": rebuilt.documents,
        "vectors_kept": rebuilt.vectors_kept,
        "vectors_dropped": rebuilt.vectors_dropped,
        "vectors_computed": computed,
        **({} if trouble is None else {"not_sent": trouble}),
    }
    text = (
        f"The index was built anew: {rebuilt.documents:,} documents of {rebuilt.files:,} files; "
        f"{rebuilt.vectors_kept:,} vectors kept, {rebuilt.vectors_dropped:,} dropped, {computed:,} computed."
    )
    if trouble is not None:
        text += f"\nNot sent: {trouble} A running server does that once it can."
    show(arguments, facts, text)
    return 0
