"""A store to move, and moving it, for the tests of export and import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memory_core.core.config import Config, EmbeddingConfig
from memory_core.features.export import Selection, export
from memory_core.features.import_export import Import, OnConflict, import_export
from memory_core.runebook import Runebook, open_memory
from tests.kept import kept_files

PAYMENTS = "viking://user/default/memories/entities/支付系统.md"


def opened(home: Path, **settings: Any) -> Runebook:
    return open_memory(Config(home=home, embedding=EmbeddingConfig(provider="none"), **settings))


def files(home: Path) -> dict[str, bytes]:
    return kept_files(home)


def imported(memory: Runebook, path: Path, policy: str = "keep", **options: Any) -> Import:
    return import_export(memory, path, on_conflict=OnConflict(policy), **options)


def exported(memory: Runebook, path: Path, **selection: Any) -> Path:
    export(memory, path, Selection(**selection))
    return path
