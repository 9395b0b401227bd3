"""Commands on a store as a whole: the archive, the rolling summary, what waits, upkeep, examination, settings.

Each has actions, shows progress, or needs no open store; commands that have none of this are made from their
declarations alone (``declared``).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from memory_core.core.errors import InvalidInput
from memory_core.core.progress import Stage
from server.commands import declared
from server.commands.opening import given_uri, here, open_memory_of, settings_file_of, settings_of, show, text_file
from server.commands.progress_bars import Progress, passages
from server.terminal import plain

if TYPE_CHECKING:
    from memory_core.core.memory.results import CommitReceipt
    from memory_core.features.upkeep.passes import Done


def archive(arguments: argparse.Namespace) -> int:
    """List the archive, or move memories into it or out of it."""
    from memory_core.features.upkeep.archive import ARCHIVE, ARCHIVE_LIST, RESTORE

    if arguments.action != "list" and not arguments.names:
        raise InvalidInput("no memory is named.", hint=f"Write runebook archive {arguments.action} URI.")
    if arguments.action == "list":
        answered = declared.ask(arguments, ARCHIVE_LIST, {"words": " ".join(arguments.names)})
        none = "Nothing in the archive holds these words." if arguments.names else "Nothing is archived."
        return declared.say(arguments, ARCHIVE_LIST, answered._replace(text=answered.text or none))
    command = ARCHIVE if arguments.action == "add" else RESTORE
    return declared.run(
        arguments, command, {"uris": [given_uri(name) for name in arguments.names], "dry_run": arguments.dry_run}
    )


def summary(arguments: argparse.Namespace) -> int:
    """Show, write or clear the rolling summary."""
    from memory_core.core.memory.requests import COMMIT
    from memory_core.features.rolling_summary import NAME, SUMMARY, SUMMARY_CLEAR

    text = arguments.text if arguments.file is None else text_file(arguments.file)
    if text is not None:
        written = declared.ask(arguments, COMMIT, {"memory_content": text, "memory_type": NAME})
        refused = any(result.get("reason") for result in written.facts["results"])
        return declared.say(arguments, COMMIT, written._replace(status=int(refused)))
    return declared.run(arguments, SUMMARY_CLEAR if arguments.clear else SUMMARY, {})


def stats(arguments: argparse.Namespace) -> int:
    """Print all figures."""
    from memory_core.features.metrics import STATS, StatsRequest, exposition

    if arguments.prometheus:
        with open_memory_of(arguments) as memory:
            print(exposition(memory.run(STATS, StatsRequest(whole=arguments.all))), end="")
        return 0
    return declared.run(arguments, STATS, {"whole": arguments.all})


def maintain(arguments: argparse.Namespace) -> int:
    """Run maintenance and say what each pass did."""
    from memory_core.features.upkeep.passes import MAINTAIN, MaintainRequest
    from server.rendering import receipt_text

    passes: list[Done] = []
    lines: list[str] = []
    with open_memory_of(arguments) as memory, Progress() as tell:
        for done in memory.run(MAINTAIN, MaintainRequest(dry_run=arguments.dry_run, only=arguments.only)):
            passes.append(done)
            tell(Stage("maintaining", len(passes), None, f"passes, {done.name} last"))
            would = "would change" if arguments.dry_run else "changed"
            nothing = "nothing to do" if done.failure is None else "nothing was done"
            lines.append(f"{done.name}: {f'{would} {done.changed} files' if done.receipts else nothing}")
            lines += [f"  {line}" for receipt in done.receipts for line in receipt_text(receipt).splitlines()]
            if done.failure is not None:
                lines.append(f"  stopped: {done.failure.message} Next: {done.failure.hint}")
    show(arguments, {"dry_run": arguments.dry_run, "passes": passes}, "\n".join(lines))
    return int(any(done.failure is not None for done in passes))


def extract(arguments: argparse.Namespace) -> int:
    """Extract the memories of waiting conversations."""
    from memory_core.core.commit.receipts import still_waits
    from memory_core.core.extract.extractor import ALL_LOGS
    from server.rendering import receipt_text

    with open_memory_of(arguments) as memory:
        if arguments.only_list:
            rows = memory.extractor.waiting(ALL_LOGS)
            lines = [f"{row.session_id}: {row.waiting} messages since {row.since}" for row in rows]
            lines = [line + (f" ({row.reason})" if row.reason else "") for line, row in zip(lines, rows, strict=True)]
            show(arguments, {"waiting": rows}, "\n".join(lines) or "No conversation waits.")
            return 0
        receipts = []
        waiting = 1 if arguments.session_id else len(memory.extractor.waiting(ALL_LOGS))
        for receipt in _shown(memory.extract_waiting(arguments.session_id), waiting):
            receipts.append(receipt)
            if not arguments.json:
                print(plain(receipt_text(receipt)), flush=True)
    waits = any(receipt.status == "rejected" or still_waits(receipt) for receipt in receipts)
    if arguments.json or not receipts:
        show(arguments, {"receipts": receipts}, "No conversation waits.")
    return int(waits)


def _shown(receipts: Iterator[CommitReceipt], waiting: int) -> Iterator[CommitReceipt]:
    """The receipts of conversations, with progress while each is waited for."""
    for number in count():
        with Progress() as tell:  # closed while a receipt is printed
            tell(Stage("extracting", number, max(number, waiting), "conversations"))
            receipt = next(receipts, None)
        if receipt is None:
            return
        yield receipt


def embed(arguments: argparse.Namespace) -> int:
    """Embed what waits, with progress on stderr."""
    with open_memory_of(arguments) as memory:
        with Progress() as tell:
            done, total = memory.indexer.embed_all(lambda now: tell(passages(now)))
        embedder = memory.indexer.embedder
        model = "" if embedder is None else embedder.fingerprint
    text = f"All {total:,} passages have a vector of the model {model}."
    show(arguments, {"done": done, "total": total, "model": model}, text)
    return 0


def migrate(arguments: argparse.Namespace) -> int:
    """Bring an older store's files to semantic names and our trailer."""
    from memory_core.features.migrate import MIGRATE, MigrateRequest

    with open_memory_of(arguments) as memory, Progress():
        migration = memory.run(MIGRATE, MigrateRequest(dry_run=arguments.dry_run))
    show(arguments, migration, "\n".join(migration.lines()))
    return 0


def types(arguments: argparse.Namespace) -> int:
    """Print the memory types."""
    from memory_core.core.memory.memory_type import MergeOp
    from memory_core.open_store import load_registry

    registry = load_registry(settings_of(arguments))
    lines = []
    for each in registry.list_all():
        ops = {field.name: "" if field.merge_op is MergeOp.PATCH else f" [{field.merge_op}]" for field in each.fields}
        fields = [f"{field.name}{ops[field.name]}" for field in each.fields if field.merge_op is not MergeOp.AVG]
        lines.append(f"- {each.name} ({each.directory}): {', '.join(fields)}. {' '.join(each.description.split())}")
    problems = list(map(str, registry.problems))
    text = "\n".join([*lines, *(f"broken: {problem}" for problem in problems)])
    show(arguments, {"types": registry.list_all(), "problems": problems}, text)
    return int(bool(problems))


def settings_in_force(arguments: argparse.Namespace) -> int:
    """Print the settings; where one of them is wrong, what there is with its default, and the error."""
    from memory_core.core import config as declared_settings
    from memory_core.core.errors import ConfigInvalid, NotFound
    from memory_core.core.memory.project import ProjectChoice

    source = settings_file_of(arguments)
    try:
        config = source.load()
    except ConfigInvalid:
        if not arguments.json:
            defaults = (f"{name} = {default}\n    {about}" for name, default, about in declared_settings.settings())
            show(arguments, None, "\n".join(["With their defaults:", *defaults]), is_paged=False)
        raise
    facts: dict[str, Any] = {}
    lines: list[str] = []
    words = [word.casefold() for word in arguments.words]
    for setting in source.settings():
        told = f"{setting.name} {setting.description}".casefold()
        if words and not any(word in told for word in words):
            continue
        shown = ("value", "environment", "description", "origin")
        facts[setting.name] = {name: getattr(setting, name) for name in shown}
        mark = "" if setting.value == setting.default else "  (changed)"
        lines.append(f"{setting.name} = {setting.value}{mark}\n    {setting.description} [{setting.environment}]")
    if words:
        if not facts:
            raise NotFound(f"no setting holds {' '.join(arguments.words)!r}.", hint="All: runebook config.")
        show(arguments, facts, "\n".join(lines))
        return 0
    project = ProjectChoice(config.project).current(here(config))
    facts["current_project"] = {"value": project, "description": "The project of this folder."}
    lines.append(f"current project: {project or 'none'}")
    there = "" if source.path.is_file() else ", which is not there yet"
    lines.append(f"settings file: {source.path}{there}")
    lines.append('To change search.rank: write {"search": {"rank": "decay"}} there, or use the page (runebook ui).')
    lines.append("For one command alone: --set search.rank=decay")
    show(arguments, facts, "\n".join(lines))
    return 0


def doctor(arguments: argparse.Namespace) -> int:
    """Examine a store, which need not be sound, and mend it if asked to; or a host."""
    from memory_core.features.doctor import examine, repair
    from memory_core.features.doctor_checks import asked_command
    from memory_core.open_store import load_registry

    if arguments.host is not None:
        from server.commands.installing import examine_host

        return examine_host(arguments)
    config = settings_of(arguments)
    report = (repair if arguments.repair else examine)(config, load_registry(config))
    report = replace(report, findings=(*report.findings, *asked_command(config)))
    show(arguments, report, "\n".join(report.lines()))
    return 0 if report.clean else 1


def rebuild(arguments: argparse.Namespace) -> int:
    """Build the index anew, with progress on stderr."""
    from memory_core.core.memory.results import as_json
    from memory_core.features.rebuild import REBUILD, RebuildRequest

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
    facts = {**as_json(rebuilt), "vectors_computed": computed}
    text = (
        f"The index was built anew: {rebuilt.documents:,} documents of {rebuilt.files:,} files; "
        f"{rebuilt.vectors_kept:,} vectors kept, {rebuilt.vectors_dropped:,} dropped, {computed:,} computed."
    )
    if trouble is not None:
        facts["not_sent"] = trouble
        text += f"\nNot sent: {trouble} A running server does that once it can."
    show(arguments, facts, text)
    return 0


def database(arguments: argparse.Namespace) -> int:
    """Make the database of ``store.url`` ready, bring its schema forward, or say how it stands.

    The exit status is 1 where something must be put right.
    """
    from memory_core.core.errors import ConfigInvalid, StorageFailed
    from memory_core.open_store import postgres_schema

    url = settings_of(arguments).store.url
    if not url:
        raise ConfigInvalid("no database is set.", hint="Set store.url; the memories of a folder need no such command.")
    schema = postgres_schema()
    before = schema.state(url)
    if arguments.action == "migrate" and before.version == 0:
        raise StorageFailed("the database holds no store yet.", hint="Make it ready: runebook db init")
    if arguments.action != "check":
        schema.ready(url)
    now = schema.state(url)
    done = {"init": "is made ready", "migrate": "was brought forward"}.get(arguments.action)
    if done is None or now.version == before.version:
        done = "is ready" if not now.problems else "must be put right"
    vectors = f"pgvector {now.vectors}" if now.vectors else "no pgvector"
    lines = [
        f"The database {done}: schema version {now.version} (this program works with {now.wanted}), "
        f"PostgreSQL {now.server}, {vectors}.",
        *(f"  {problem}" for problem in now.problems),
    ]
    show(arguments, now._asdict() | {"was": before.version}, "\n".join(lines))
    return int(bool(now.problems))
