"""The doctor: is everything that should be there, and does everything say the same? And, asked to, mends it.

``examine`` makes the checks of ``doctor_checks``; it changes nothing and may run beside servers. ``repair`` mends what
can be mended without losing anything; no memory file is written but to deliver what was acknowledged. Neither needs a
store that opens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from memory_core.core.command import Arg, Command
from memory_core.core.config import Config
from memory_core.core.errors import StorageFailed
from memory_core.core.feature import Feature, Features
from memory_core.core.index.catalog import Catalog
from memory_core.core.index.embedding_queue import await_missing
from memory_core.core.index.encoder import open_embedder
from memory_core.core.index.vectors import prune
from memory_core.core.memory.memory import file_problems, identify
from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.store.files import INDEX_NAME, LEDGER_NAME, STATE_NAME, FileStore
from memory_core.core.store.local import Store
from memory_core.core.store.sqlite import DatabaseDamaged
from memory_core.features import FEATURES
from memory_core.features.doctor_checks import (
    ExaminedStore,
    Finding,
    Severity,
    cut_off_restores,
    examined,
    open_to_others,
    opened_for_reading,
    stale_files,
)
from memory_core.features.rebuild import names_anew, rebuild_names, refill, rescue_ledger

if TYPE_CHECKING:
    from memory_core.core.postgres.examination import ExaminedDatabase
    from memory_core.core.store.ledger import Ledger
    from memory_core.runebook import Runebook

_TO_DO = (Severity.WARNING, Severity.ERROR)


@dataclass(frozen=True, slots=True)
class Report:
    """An examination.

    Attributes:
        findings: In the order of the checks.
        repaired: What was repaired before, one sentence each.
    """

    JSON: ClassVar = "clean repaired findings"

    findings: tuple[Finding, ...]
    repaired: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether nothing is to be done."""
        return not any(finding.severity in _TO_DO for finding in self.findings)

    def of(self, check: str) -> tuple[Finding, ...]:
        """The findings of one check."""
        return tuple(finding for finding in self.findings if finding.check == check)

    def lines(self) -> Iterator[str]:
        """For a person: what was repaired, what was found, the worst last, and the next step."""
        for sentence in self.repaired:
            yield f"repaired  {sentence}"
        for severity in Severity:
            for finding in self.findings:
                if finding.severity is severity:
                    yield f"{severity:<8}  {finding.check}: {finding.subject}: {finding.detail}"
        counts = Counter(finding.severity for finding in self.findings)
        if self.clean:
            yield "The store is sound."
        else:
            yield f"Errors: {counts[Severity.ERROR]}, warnings: {counts[Severity.WARNING]}."
            if any(finding.repair for finding in self.findings if finding.severity in _TO_DO):
                yield "Next: runebook doctor --repair"
            else:
                yield "Nothing of it can be mended by a program; each line says what to do."


def examine(config: Config, registry: MemoryTypeRegistry, features: Features = FEATURES) -> Report:
    """Look at a store from all sides.

    Args:
        config: Its settings.
        registry: The memory types.
        features: Of the store.

    Raises:
        StorageFailed: If there is no folder to look at, or a database may not be read.
        StoreBusy: If a database cannot be reached.
    """
    root = config.root
    if config.store.url:
        with _opened_database(config) as database, database.reading() as (rows, index):
            files = FileStore(root) if database.parts is None else database.parts.files
            subject = ExaminedStore(config, registry, files, rows, index, _fingerprint(config), features, database)
            return Report(tuple(examined(subject)))
    if not root.is_dir():
        hint = "Name it with --home, or begin with a commit."
        if cut_off_restores(root):
            hint = f"A restore was cut off: rename {root.name}.before-restore-… back to {root.name}, or restore again."
        raise StorageFailed(f"there is no memory folder {root}.", hint=hint)
    state = root / STATE_NAME
    with opened_for_reading(state / LEDGER_NAME) as ledger, opened_for_reading(state / INDEX_NAME) as catalog:
        subject = ExaminedStore(config, registry, FileStore(root), ledger, catalog, _fingerprint(config), features)
        return Report(tuple(examined(subject)))


@dataclass(frozen=True, slots=True)
class DoctorRequest:
    """Examine files, history and index from all sides; exit status 1 when something is wrong."""

    repair: Annotated[bool, Arg(help="Mend what can be mended, then look again.")] = False


def doctor(memory: Runebook, request: DoctorRequest) -> Report:
    """Examine the store of an open memory, and mend it if asked to.

    Raises:
        AccessDenied: If it is to be mended and this view only reads.
    """
    if not request.repair:
        return examine(memory.config, memory.registry, memory.features)
    memory.expect_writable()
    return repair(memory.config, memory.registry, memory.features)


DOCTOR = Command("doctor", DoctorRequest, doctor)
FEATURE = Feature(commands=(DOCTOR,))


def repair(config: Config, registry: MemoryTypeRegistry, features: Features = FEATURES) -> Report:
    """Mend what can be mended, and look again.

    Raises:
        StoreBusy: If another writer held the store too long.
        StorageFailed: If the system refuses.
    """
    found = examine(config, registry, features)
    mended = _database_repaired if config.store.url else _repaired
    done = [*mended(config, registry, found, features)]
    again = examine(config, registry, features)
    return Report(again.findings, tuple(done))


def _fingerprint(config: Config) -> str | None:
    """Of the model in use, where that costs no loading."""
    if config.embedding.provider != "bundled":
        return None
    embedder = open_embedder(config.embedding)
    return None if embedder is None else embedder.fingerprint


def _repaired(config: Config, registry: MemoryTypeRegistry, found: Report, features: Features) -> Iterator[str]:
    """What was done, as it is done: each step may rest on the one before."""
    root = config.root
    if any(finding.severity is Severity.ERROR for finding in found.of("ledger")):
        yield from rescue_ledger(root, registry).lines()
    if found.of("names"):
        yield f"the name table was built anew: {rebuild_names(root, registry):,} files"
    yield from _tidied(root)
    with closing(Store(root, partial(identify, registry), examine=partial(file_problems, registry))) as store:
        waiting = len(store.ledger.unsettled())
        taken_in = store.adopt()
        back = store.bring_back_vanished()
        if waiting or found.of("commits"):
            yield "commits that were acknowledged are on the disk"
        if taken_in:
            yield f"{taken_in:,} files changed by hand were recorded in the history"
        if back:
            yield f"{len(back):,} files that had vanished all at once were written anew from the ledger"
        yield from (f"{uri} is gone and was not UTF-8: it was not written anew" for uri in store.vanished())
        yield from _index_repaired(store, registry, found, features)


def _tidied(root: Path) -> Iterator[str]:
    private = 0
    for path in list(open_to_others(root)):
        with suppress(OSError):
            path.chmod(0o700 if path.is_dir() else 0o600)
            private += 1
    if private:
        yield f"{private:,} files and folders were made private to their owner"
    stale = 0
    for path in list(stale_files(root)):
        with suppress(OSError):
            path.unlink(missing_ok=True)
            stale += 1
    if stale:
        yield f"{stale:,} files that cut-off writes left behind were deleted"


def _index_repaired(store: Store, registry: MemoryTypeRegistry, found: Report, features: Features) -> Iterator[str]:
    from memory_core.core.index.vector_scan import unsound

    # Opening moves aside what cannot even be opened.
    with closing(Catalog(store.files.state / INDEX_NAME)) as catalog:
        if any(finding.severity is Severity.ERROR for finding in found.of("index")):
            catalog.file.renew(catalog.file.generation)
            yield f"the damaged index was moved aside, to {STATE_NAME}/{INDEX_NAME}.damaged-…"
        yield from _filled(store.ledger, catalog, registry, found, features, unsound)


def _filled(
    ledger: Ledger,
    catalog: Catalog,
    registry: MemoryTypeRegistry,
    found: Report,
    features: Features,
    unsound: Callable[[Any], list[int]],
) -> Iterator[str]:
    """The index brought up to date, or filled anew where it is wrong, without vectors that are none."""
    wrong = bool(found.of("documents") or found.of("words"))
    try:
        refill(ledger, registry, catalog, emptied=wrong, features=features)
    except DatabaseDamaged:
        catalog.file.renew(catalog.file.generation)
        refill(ledger, registry, catalog, features=features)
    yield f"the index holds {catalog.count():,} documents" + (", built anew" if wrong else "")
    with catalog.writing() as connection:
        rows = unsound(connection)
        prune(connection, rows)
        missing = await_missing(connection)
    if rows or missing:
        yield f"{len(rows):,} damaged vectors were dropped; {missing:,} are computed anew by the next search"


def _opened_database(config: Config) -> AbstractContextManager[ExaminedDatabase]:
    from memory_core.core.postgres import needing_packages

    with needing_packages():
        from memory_core.core.postgres.examination import examined_database
    return examined_database(config.store.url, config.user_space, config.root / STATE_NAME)


def _database_repaired(
    config: Config, registry: MemoryTypeRegistry, found: Report, features: Features
) -> Iterator[str]:
    """What was done to the rows of the user of the settings; of nobody else, and not to the schema."""
    with _opened_database(config) as database:
        if database.parts is None:
            return
        ledger = database.parts.ledger
        if found.of("names"):
            with ledger.database.writing() as connection:
                names = names_anew(connection, registry)
            yield f"the name table was built anew: {names:,} files"
        yield from _filled(ledger, database.parts.catalog, registry, found, features, database.unsound)
