"""A ledger that came from elsewhere, in a backup: refused unless it is sound, and never used by its own rules.

A SQLite file may hold what runs when it is checked, read or changed, and rows that would fail every later start.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import tempfile
from pathlib import Path

from memory_core.core.errors import InvalidInput, InvalidUri
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store import atomic
from memory_core.core.store.files import LEDGER_NAME
from memory_core.core.store.ledger import Ledger, migrations
from memory_core.core.store.sqlite import damage, open_frozen

#: What a table of ours never has; the words may stand for something else, too.
_EXPRESSION = re.compile(r"\b(?:VIRTUAL|CHECK)\b", re.IGNORECASE)
#: No ledger comes to so many commits.
_SEQ_MOST = 2**53


def expect_sound(ledger: Path) -> None:
    """Refuse a ledger that runs something of its own, is damaged, or has rows that fail what reads them.

    Args:
        ledger: The file, which nobody writes to.

    Raises:
        InvalidInput: If it is none of this program's, or damaged.
    """
    _expect_own_rules(ledger)
    problem = damage(ledger) or _misfit(ledger)
    if problem is not None:
        raise _damaged(problem)


def bring_into_own_tables(ledger: Path) -> None:
    """Put the rows of a ledger into tables of our own: a rule in a table of the backup could undo what is settled here.

    Raises:
        InvalidInput: If a row does not fit.
    """
    with tempfile.TemporaryDirectory(prefix=atomic.RESTORING_PREFIX, dir=ledger.parent) as scratch:
        own = Path(scratch) / LEDGER_NAME
        Ledger(own).close()
        with contextlib.closing(sqlite3.connect(own, isolation_level=None)) as connection:
            connection.execute("PRAGMA trusted_schema=OFF")
            connection.execute("ATTACH ? AS backup", (str(ledger),))
            connection.execute("BEGIN IMMEDIATE")
            triggers = connection.execute("SELECT name, sql FROM main.sqlite_master WHERE type = 'trigger'").fetchall()
            for name, _ in triggers:
                connection.execute(f"DROP TRIGGER main.{name}")
            try:
                for (table,) in connection.execute(
                    "SELECT name FROM main.sqlite_master WHERE type = 'table' ORDER BY name = 'sqlite_sequence'"
                ).fetchall():
                    columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA main.table_info({table})"))
                    connection.execute(f"DELETE FROM main.{table}")
                    connection.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM backup.{table}")
            except sqlite3.Error as error:
                raise InvalidInput(
                    f"the backup's ledger is none of this program's: {error}.", hint="Restore another backup."
                ) from error
            for _, sql in triggers:
                connection.execute(sql)
            connection.execute("COMMIT")
            connection.execute("DETACH backup")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        own.replace(ledger)


def _damaged(how: str) -> InvalidInput:
    return InvalidInput(f"the backup's ledger is damaged: {how}.", hint="Use another backup.")


def _expect_own_rules(ledger: Path) -> None:
    """Refuse a ledger that computes something of its own: to check, read or migrate it might never end.

    That is a view, a column or an index that is an expression, or a trigger on the way to this version. Triggers of a
    ledger of this version never run, see ``bring_into_own_tables``.

    Raises:
        InvalidInput: If it has any, is of a newer program, or is no ledger.
    """
    steps = migrations()
    newest = len(steps)
    with contextlib.closing(open_frozen(ledger)) as found:
        try:
            (version,) = found.execute("PRAGMA user_version").fetchone()
            if version > newest:
                raise InvalidInput(
                    f"the backup's ledger has schema version {version}; this program knows {newest}.",
                    hint="Upgrade Runebook: the backup was made by a newer version.",
                )
            rules = found.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master").fetchall()
            foreign = [rule for rule in rules if not any(rule[2] in step for step in steps)]
            refused = [rule for rule in foreign if _computes(found, *rule, is_current=version == newest)]
        except sqlite3.DatabaseError as error:
            raise _damaged(str(error)) from error
    for kind, name, _ in refused:
        raise InvalidInput(
            f"the backup's ledger is none of this program's: it has the {kind} {name!r}.",
            hint="Restore another backup.",
        )


def _computes(found: sqlite3.Connection, kind: str, name: str, sql: str, *, is_current: bool) -> bool:
    """Whether something in a ledger that no step of ours made may compute when the ledger is used."""
    if kind != "table":
        return not (kind == "trigger" and is_current)
    if _EXPRESSION.search(sql):
        return True
    asked = "SELECT 1 FROM pragma_table_xinfo(?) WHERE hidden <> 0 OR instr(dflt_value, '(')"
    return found.execute(asked, (name,)).fetchone() is not None


def _misfit(ledger: Path) -> str | None:
    """What is wrong with the rows that every start, commit, or look at history reads; None for nothing."""
    with contextlib.closing(open_frozen(ledger)) as found:
        found.row_factory = sqlite3.Row
        try:
            for row in found.execute("SELECT * FROM commits"):
                if not all(isinstance(value, str | int | None) for value in row):
                    return f"commit {row['seq']} holds what is no text"
                if row["seq"] > _SEQ_MOST:
                    return f"it counts to {row['seq']}"
                if not isinstance(json.loads(row["receipt"]), dict):
                    return f"the receipt of commit {row['seq']} is none"
            for (newest,) in found.execute("SELECT seq FROM sqlite_sequence WHERE NOT seq <= ?", (_SEQ_MOST,)):
                return f"it counts to {newest}"
            unsettled = "SELECT DISTINCT uri FROM changes WHERE seq IN (SELECT seq FROM commits WHERE settled = 0)"
            for (uri,) in found.execute(unsettled):
                MemoryUri.parse(uri)
        except (sqlite3.DatabaseError, ValueError, TypeError, RecursionError) as error:
            return f"{type(error).__name__}: {error}"
        except InvalidUri as error:
            return error.message
    return None
