"""Tokens of the HTTP server: issuing, listing, revoking. A running server follows at its next request."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from server.commands.opening import settings_of, show

if TYPE_CHECKING:
    from memory_core.core.config import Config
    from memory_core.core.store.issued_tokens import IssuedToken, IssuedTokens


def tokens(arguments: argparse.Namespace) -> int:
    """Issue, list or revoke."""
    from memory_core.core.errors import InvalidInput

    if arguments.action != "list" and not arguments.label:
        raise InvalidInput(
            f"token {arguments.action} needs a label.", hint=f"Write runebook token {arguments.action} LABEL."
        )
    config = settings_of(arguments)
    with open_tokens(config) as table:
        if arguments.action == "add":
            _add(arguments, config, table)
        elif arguments.action == "revoke":
            row = table.revoke(arguments.label)
            show(arguments, asdict(row), f"Revoked {row.label} ({row.id}). It is refused from the next request on.")
        else:
            rows = table.rows(revoked=arguments.revoked)
            lines = [_line(row) for row in rows] or ["No tokens. Issue one: runebook token add LABEL"]
            show(arguments, [asdict(row) for row in rows], "\n".join(lines))
    return 0


@contextmanager
def open_tokens(config: Config) -> Iterator[IssuedTokens]:
    """The token table of the store that ``config`` names, which may be in use, or not exist yet."""
    if config.store.url:
        from memory_core.open_postgres import issued_tokens

        with issued_tokens(config.store.url) as table:
            yield table
        return
    from memory_core.core.store.files import LEDGER_NAME, FileStore
    from memory_core.core.store.ledger import Ledger

    ledger = Ledger(FileStore(config.root).state / LEDGER_NAME)
    try:
        yield ledger.tokens
    finally:
        ledger.close()


def _add(arguments: argparse.Namespace, config: Config, table: IssuedTokens) -> None:
    from memory_core.core.store.issued_tokens import SharedSpace, issue

    token, row = issue(
        table,
        config,
        arguments.label,
        user_space=arguments.user_space,
        agent_space=arguments.agent_space,
        read_only=arguments.read_only,
        expires_days=arguments.expires,
        shared=[SharedSpace.parse(text) for text in arguments.shared],
    )
    show(
        arguments,
        {"token": token, **asdict(row)},
        f"{token}\n\n{_line(row)}\n"
        "Keep the token now: only its digest is stored, and it is not shown again.\n"
        "Clients send it as the header  Authorization: Bearer TOKEN",
    )


def _line(row: IssuedToken) -> str:
    state = "live" if row.is_live(datetime.now(UTC)) else "revoked" if row.revoked_at else "expired"
    parts = [
        row.label,
        row.id,
        state,
        "read-only" if row.read_only else "read-write",
        f"user {row.user_space}",
        f"agent {row.agent_space}",
        *([f"shared {', '.join(map(str, row.shared))}"] if row.shared else []),
        f"since {row.created_at[:10]}",
        f"expires {row.expires_at[:16]}" if row.expires_at else "no expiry",
        f"last used {row.last_used_at[:16]}" if row.last_used_at else "never used",
    ]
    return "  ".join(parts)
