"""Check of the vector server, where the settings name one: does it answer, and does it hold what it was sent?"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing

from memory_core.errors import ConfigInvalid
from memory_core.lifecycle.doctor.examination import Subject
from memory_core.lifecycle.doctor.findings import Finding, Severity

_CHECK = "vector server"


def check_server(subject: Subject) -> Iterator[Finding]:
    """Findings on the server; none where vectors are kept in the store alone."""
    if subject.config.index.mode != "http":
        return
    from memory_core.index.vectors.chroma_place import place_of
    from memory_core.index.vectors.chroma_server import ChromaServer
    from memory_core.index.vectors.server_state import look

    try:
        place = place_of(subject.config.index, os.environ)
    except ConfigInvalid as error:
        yield Finding(_CHECK, Severity.ERROR, "index.url", str(error))
        return
    if subject.catalog is None:
        return
    with closing(ChromaServer(place)) as server:
        try:
            state = look(server, subject.catalog)
        except sqlite3.Error:  # a catalog of an older version, or a damaged one: its own check says so
            return
    if state.trouble is not None:
        yield Finding(_CHECK, Severity.WARNING, state.place, f"{state.line()}. {state.hint}")
    elif state.held != state.sent:
        detail = f"it holds {state.held:,} rows where {state.sent:,} were sent; a running server mends that by itself"
        yield Finding(_CHECK, Severity.NOTICE, state.place, detail)
    else:
        detail = f"Chroma {state.version} holds {state.held:,} rows as it was sent; {state.waiting:,} are to be sent"
        yield Finding(_CHECK, Severity.OK, state.place, detail)
