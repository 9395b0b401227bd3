"""A store to move, and moving it, for the tests of export and import."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from memory_core.features.export import Selection, export
from memory_core.features.import_export import Import, OnConflict, import_export
from memory_core.runebook import Runebook, open_memory
from tests.fork_server import starter
from tests.stores import words_only

PAYMENTS = "viking://user/default/memories/entities/支付系统.md"


def opened(home: Path, **settings: Any) -> Runebook:
    return open_memory(words_only(home, **settings))


def imported(memory: Runebook, path: Path, policy: str = "keep", **options: Any) -> Import:
    return import_export(memory, path, on_conflict=OnConflict(policy), **options)


def exported(memory: Runebook, path: Path, **selection: Any) -> Path:
    export(memory, path, Selection(**selection))
    return path


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """``runebook *arguments`` for that folder, without a model."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RUNEBOOK_")}
    environment["RUNEBOOK_EMBEDDING_PROVIDER"] = "none"
    return starter().call(*arguments, "--home", str(home), env=environment)
