"""The settings file of a store: where it is, and changing members of it while all else stays."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memory_core.core.config import CONFIG_NAME
from memory_core.core.store.atomic import make_folder, replace


def settings_path(arguments: argparse.Namespace, root: Path) -> Path:
    """The file that a command line means.

    Args:
        arguments: The command line.
        root: The store's folder.
    """
    named = arguments.config or os.environ.get("RUNEBOOK_CONFIG")
    return Path(named).expanduser() if named else root / CONFIG_NAME


def change_settings(path: Path, changes: Mapping[str, Any]) -> None:
    """Change settings of a section in the file, which was read before and so is JSON.

    Args:
        path: The file; it is made where it is missing.
        changes: Values by name (``llm.provider``); None takes a setting out.

    Raises:
        StorageFailed: If it cannot be written.
    """
    values = json.loads(path.read_text(encoding="utf-8-sig")) if path.is_file() else {}
    for name, value in changes.items():
        section, _, member = name.partition(".")
        members = {**values.get(section, {}), member: value}
        values[section] = {key: each for key, each in members.items() if each is not None}
    kept = {name: value for name, value in values.items() if value != {}}
    make_folder(path.parent)
    replace(path.resolve(), json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
