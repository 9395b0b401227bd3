"""The doctor: is everything that should be there, and does everything say the same? And, asked to, mends it.

``examine`` looks at files, ledger, catalog, vectors and snapshots, each against its neighbours, in whatever state they
are; it changes nothing and may run beside servers. ``repair`` mends what can be mended without losing anything; no
memory file is written but to deliver what was acknowledged. Neither needs a store that opens.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from memory_core.config import Config
from memory_core.errors import RunebookError, StorageFailed
from memory_core.index.catalog import Catalog
from memory_core.index.encoders.providers import open_embedder
from memory_core.index.vectors.log import prune, unsound
from memory_core.index.vectors.snapshot import Snapshots
from memory_core.index.waiting import await_missing
from memory_core.lifecycle.doctor.checks_folder import check_folder, open_to_others, stale_files
from memory_core.lifecycle.doctor.checks_hooks import check_hooks
from memory_core.lifecycle.doctor.checks_index import check_index
from memory_core.lifecycle.doctor.checks_ledger import check_files, check_ledger
from memory_core.lifecycle.doctor.checks_server import check_server
from memory_core.lifecycle.doctor.examination import Subject, looking_at
from memory_core.lifecycle.doctor.findings import Finding, Report, Severity
from memory_core.lifecycle.doctor.rebuild import refill
from memory_core.lifecycle.doctor.rescue import rebuild_names, rescue_ledger
from memory_core.registry import MemoryTypeRegistry
from memory_core.storage.file_store import INDEX_NAME, LEDGER_NAME, STATE_NAME, FileStore
from memory_core.storage.lock import sealing_lock
from memory_core.storage.sqlite.database import DatabaseDamaged
from memory_core.storage.store import Store
from memory_core.update.handwritten import examine as examine_text
from memory_core.update.updater import identify


def examine(config: Config, registry: MemoryTypeRegistry) -> Report:
    """Look at a store from all sides.

    Args:
        config: Its settings.
        registry: The memory types.

    Raises:
        StorageFailed: If there is no folder to look at.
    """
    root = config.root
    if not root.is_dir():
        raise StorageFailed(f"there is no memory folder {root}.", hint="Name it with --home, or begin with a commit.")
    with looking_at(root / STATE_NAME / LEDGER_NAME) as ledger, looking_at(root / STATE_NAME / INDEX_NAME) as catalog:
        subject = Subject(config, registry, FileStore(root), ledger, catalog, _fingerprint(config))
        return Report(tuple(_findings(subject)))


def repair(config: Config, registry: MemoryTypeRegistry) -> Report:
    """Mend what can be mended, and look again.

    Raises:
        StoreBusy: If another writer held the store too long.
        StorageFailed: If the system refuses.
    """
    found = examine(config, registry)
    done = [*_repaired(config, registry, found)]
    again = examine(config, registry)
    return Report(again.findings, tuple(done))


def _findings(subject: Subject) -> Iterator[Finding]:
    yield from check_folder(subject)
    yield from check_hooks(subject)
    ledger = list(check_ledger(subject))
    yield from ledger
    broken = any(finding.check == "ledger" and finding.severity is Severity.ERROR for finding in ledger)
    if broken:
        subject = Subject(subject.config, subject.registry, subject.files, None, subject.catalog, subject.fingerprint)
    try:
        yield from check_files(subject)
    except (sqlite3.Error, RunebookError) as error:
        yield Finding("files", Severity.ERROR, str(subject.config.root), f"the examination ended early: {error}")
    yield from check_index(subject)
    yield from check_server(subject)


def _fingerprint(config: Config) -> str | None:
    """Of the model in use, where that costs no loading."""
    if config.embedding.provider != "bundled":
        return None
    embedder = open_embedder(config.embedding)
    return None if embedder is None else embedder.fingerprint


def _repaired(config: Config, registry: MemoryTypeRegistry, found: Report) -> Iterator[str]:
    """What was done, as it is done: each step may rest on the one before."""
    root = config.root
    if any(finding.severity is Severity.ERROR for finding in found.of("ledger")):
        yield from rescue_ledger(root, registry).lines()
    if found.of("names"):
        yield f"the name table was built anew: {rebuild_names(root, registry):,} files"
    yield from _tidied(root)
    with closing(Store(root, partial(identify, registry), examine=partial(examine_text, registry))) as store:
        waiting = len(store.ledger.unsettled())
        taken_in = store.adopt()
        back = store.bring_back_vanished()
        if waiting or found.of("commits"):
            yield "commits that were acknowledged are on the disk"
        if taken_in:
            yield f"{taken_in:,} files changed by hand were recorded in the history"
        if back:
            yield f"{len(back):,} files that had vanished all at once were written anew from the ledger"
        yield from _index_repaired(store, registry, found)
    yield from _snapshots_repaired(root / STATE_NAME, found)


def _tidied(root: Path) -> Iterator[str]:
    private = 0
    for path in list(open_to_others(root)):
        with suppress(OSError):
            path.chmod(0o700 if path.is_dir() else 0o600)
            private += 1
    if private:
        yield f"{private:,} files and folders were made private to their owner"
    stale = list(stale_files(root))
    for path in stale:
        path.unlink(missing_ok=True)
    if stale:
        yield f"{len(stale):,} files that cut-off writes left behind were deleted"


def _index_repaired(store: Store, registry: MemoryTypeRegistry, found: Report) -> Iterator[str]:
    # Opening moves aside what cannot even be opened.
    with closing(Catalog(store.files.state / INDEX_NAME)) as catalog:
        if any(finding.severity is Severity.ERROR for finding in found.of("index")):
            catalog.file.renew(catalog.file.generation)
            yield f"the damaged index was moved aside, to {STATE_NAME}/{INDEX_NAME}.damaged-…"
        wrong = bool(found.of("documents") or found.of("words"))
        try:
            refill(store, registry, catalog, emptied=wrong)
        except DatabaseDamaged:
            catalog.file.renew(catalog.file.generation)
            refill(store, registry, catalog)
        yield f"the index holds {catalog.count():,} documents" + (", built anew" if wrong else "")
        rows = unsound(catalog.connection())
        with catalog.writing() as connection:
            prune(connection, rows)
            missing = await_missing(connection)
        if rows or missing:
            yield f"{len(rows):,} damaged vectors were dropped; {missing:,} are computed anew by the next search"


def _snapshots_repaired(state: Path, found: Report) -> Iterator[str]:
    root = state / "chroma"
    for finding in found.of("snapshots"):
        name = finding.subject.removeprefix("chroma/")
        if finding.repair is None or "/" in name:
            continue
        snapshots = Snapshots(root, name)
        with sealing_lock(state).held():
            manifest = snapshots.manifest()
            if manifest is not None and finding.severity is Severity.WARNING:
                snapshots.move_aside(manifest)
                yield f"the snapshot {finding.subject} was moved aside; it is built anew in the background"
            else:
                shutil.rmtree(root / name, ignore_errors=True)
                yield f"the snapshot {finding.subject} was deleted"
