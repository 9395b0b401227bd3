"""``runebook db``: the database of ``store.url`` made ready, brought forward, or looked at."""

from __future__ import annotations

import argparse

from server.commands.opening import settings_of, show


def database(arguments: argparse.Namespace) -> int:
    """Make it ready, bring its schema forward, or say how it stands; 1 where something must be put right."""
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
