"""Checks of what hosts' hooks left: failures that were logged, and conversations that are still to be stored."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from memory_core.lifecycle.doctor.examination import Subject
from memory_core.lifecycle.doctor.findings import Finding, Severity

_LOG_NAME = "hooks.log"
_TAIL_BYTES = 4_096
#: Failures that are older say nothing of today.
_FRESH_SECONDS = 7 * 86_400.0
#: A note is followed by the next hook, or the next start of a server.
_PATIENCE_SECONDS = 3_600.0


def check_hooks(subject: Subject) -> Iterator[Finding]:
    """Findings on hooks; none where none ran."""
    log = subject.state / _LOG_NAME
    try:
        if log.stat().st_mtime > time.time() - _FRESH_SECONDS:
            last = log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace").splitlines()[-1]
            yield Finding("hooks", Severity.NOTICE, str(log), f"the last failure of a hook: {last}")
    except (OSError, IndexError):
        pass
    notes = list(_notes(subject.state / "hooks" / "pending"))
    if notes:
        waits = f"{len(notes)} conversations wait to be stored; runebook hook pending does it now"
        yield Finding("hooks", Severity.NOTICE, str(notes[0].parent), waits)


def _notes(folder: Path) -> Iterator[Path]:
    try:
        for path in folder.glob("*.json"):
            if path.stat().st_mtime < time.time() - _PATIENCE_SECONDS:
                yield path
    except OSError:
        return
