"""A store to move, and moving it, for the tests of export and import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memory_core.core.config import Config, EmbeddingConfig
from memory_core.features.export import Import, OnConflict, export_lines, export_zip, import_archive
from memory_core.features.export_file import Selection
from memory_core.runebook import Runebook, open_memory
from tests.kept import kept_files

PAYMENTS = "viking://user/default/memories/entities/支付系统.md"


def opened(home: Path, **settings: Any) -> Runebook:
    return open_memory(Config(home=home, embedding=EmbeddingConfig(provider="none"), **settings))


def files(home: Path) -> dict[str, bytes]:
    return kept_files(home)


def imported(memory: Runebook, path: Path, policy: str = "keep", **options: Any) -> Import:
    done = import_archive(
        memory.store,
        memory.registry,
        path,
        user_space=memory.config.user_space,
        agent_space=memory.config.agent_space,
        on_conflict=OnConflict(policy),
        **options,
    )
    memory.indexer.follow()
    return done


def exported(memory: Runebook, path: Path, **selection: Any) -> Path:
    write = export_zip if path.suffix == ".zip" else export_lines
    write(memory.store, memory.registry, path, Selection(**selection))
    return path
