"""Small files of the machine's folder that hooks and servers leave for each other, readable by this user alone.

Imports the standard library only: a host waits for its hooks, and ``memory_core.core.store.atomic`` costs them more to
import than they have.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


def make_private(folder: Path) -> None:
    """The folder and those above it, each private to the user.

    Raises:
        OSError: If the system refuses.
    """
    if not folder.is_dir():
        make_private(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)


def write_json(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all: beside ``path``, then renamed in, whatever is there.

    Raises:
        OSError: If the system refuses; nothing of it is left.
    """
    draft = path.with_name(f"{path.stem}-{os.urandom(4).hex()}.draft")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
            json.dump(value, stream)
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
