"""Keeping a store in shape, and saying how it is set up."""

from __future__ import annotations

import argparse
from functools import reduce
from typing import Any

from memory_core.features.migrate import MIGRATE, MigrateRequest
from server.commands.opening import Commands, here, open_memory_of, settings_of, show
from server.commands.progress import Progress, passages


def register(commands: Commands) -> None:
    """Declare ``embed``, ``migrate``, ``types`` and ``config``."""
    commands.add("embed", "Compute the vectors that are missing, e.g. after a change of the embedding model.", embed)
    migrate_command = commands.add(
        "migrate", "Give the files of an older store semantic names and our trailer.", migrate
    )
    migrate_command.add_argument("--dry-run", action="store_true", help="show what would change; write nothing")
    commands.add("types", "List memory types, their fields and any broken YAML.", types)
    commands.add("config", "Show all settings and where each can be set.", settings_in_force)


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
    with open_memory_of(arguments) as memory, Progress():
        migration = memory.run(MIGRATE, MigrateRequest(dry_run=arguments.dry_run))
    show(arguments, migration.as_dict(), "\n".join(migration.lines()))
    return 0


def types(arguments: argparse.Namespace) -> int:
    """Print the memory types."""
    from memory_core.open_store import load_registry
    from server.protocol.app import type_line

    registry = load_registry(settings_of(arguments))
    facts = {
        "types": [memory_type.model_dump(mode="json", exclude_none=True) for memory_type in registry.list_all()],
        "problems": [str(problem) for problem in registry.problems],
    }
    lines = [type_line(memory_type) for memory_type in registry.list_all()]
    show(arguments, facts, "\n".join([*lines, *(f"broken: {problem}" for problem in registry.problems)]))
    return 1 if registry.problems else 0


def settings_in_force(arguments: argparse.Namespace) -> int:
    """Print all settings."""
    from memory_core.core.config import Config, environment_name, settings
    from memory_core.core.memory.project import ProjectChoice

    config = settings_of(arguments)
    values, defaults = config.model_dump(mode="json"), Config().model_dump(mode="json")
    facts: dict[str, Any] = {}
    lines: list[str] = []
    for dotted, _, description in settings():
        value, default = (reduce(dict.__getitem__, dotted.split("."), tree) for tree in (values, defaults))
        facts[dotted] = {"value": value, "environment": environment_name(dotted), "description": description}
        mark = "" if value == default else "  (changed)"
        lines.append(f"{dotted} = {value}{mark}\n    {description} [{environment_name(dotted)}]")
    project = ProjectChoice(config.project).current(here(config))
    facts["current_project"] = {"value": project, "description": "The project of this folder."}
    lines.append(f"current project: {project or 'none'}")
    show(arguments, facts, "\n".join(lines))
    return 0
