"""Limits that servers share: when the bucket of each client is full again, in a table that a crash may empty.

A level is one number (GCRA): the moment at which the bucket is full if nothing more is taken. Servers add what they
took, and read what all of them took together; the database's clock counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory_core.core.postgres.database import PostgresDatabase

_NOW = "extract(epoch FROM now())::float8"
_ADD = (
    f"INSERT INTO rates AS kept (client, full_at) SELECT client, {_NOW} + seconds "
    "FROM unnest(%s::text[], %s::float8[]) AS taken (client, seconds) ORDER BY client ON CONFLICT (tenant, client) "
    f"DO UPDATE SET full_at = greatest(kept.full_at, {_NOW}) + excluded.full_at - {_NOW} "
    f"RETURNING client, full_at - {_NOW}"
)


def exchange(database: PostgresDatabase, taken: Mapping[str, float]) -> dict[str, float]:
    """Add what this server took, and read what all servers took.

    Args:
        database: The half that holds the ledger, of the tenant that stands for all users.
        taken: By client: in how many seconds what was taken comes back.

    Returns:
        By client: in how many seconds its bucket is full.

    Raises:
        StoreBusy: If the database does not answer.
    """
    names = {hashlib.sha256(client.encode()).hexdigest(): client for client in taken}
    with database.transaction(synced=False) as connection:
        connection.execute(f"DELETE FROM rates WHERE full_at < {_NOW} AND client <> ALL(?)", (list(names),))
        rows = connection.native(_ADD, (list(names), [taken[client] for client in names.values()]))
        return {names[digest]: max(0.0, float(seconds)) for digest, seconds in rows}
