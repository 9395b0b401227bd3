"""Errors of a PostgreSQL database as the store's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from memory_core.core.errors import EmbeddingFailed, StorageFailed, StoreBusy, TooLarge

AGAIN = "Send the same request again; give it a request_id so that it is applied once."
UNREACHABLE = "Check store.url and that the database runs; what was acknowledged is safe. Then send it again."
READ_ONLY = (
    "What is stored can be read. After a failover send it again: with several hosts and "
    "target_session_attrs=read-write in store.url the one that takes writes is found."
)
#: What a row is refused with that is no row of its table.
REFUSED_ROWS = (errors.IntegrityError, errors.DataError, errors.ProgrammingError)
_BUSY = (errors.LockNotAvailable, errors.QueryCanceled, errors.SerializationFailure, errors.DeadlockDetected)
_DISK = (errors.DiskFull, errors.IoError)


def said(error: BaseException) -> str:
    """What an error says, on one line."""
    return " ".join(str(error).split()).rstrip(".")


@contextmanager
def store_errors() -> Iterator[None]:
    """Errors of the connection, of locks, of the disk and of sizes as the store's own; others stay."""
    try:
        yield
    except _BUSY as error:
        raise StoreBusy(f"the database is busy: {said(error)}.", hint=AGAIN) from error
    except errors.DataException as error:
        if "dimensions" not in str(error):
            raise
        raise EmbeddingFailed(
            f"the embedding model gives vectors of another size than those that are stored: {said(error)}.",
            hint="Name the model that made them, or compute all anew: runebook rebuild --reembed.",
        ) from error
    except errors.ReadOnlySqlTransaction as error:
        raise StoreBusy(f"the database takes no writes: {said(error)}.", hint=READ_ONLY) from error
    except errors.ProgramLimitExceeded as error:
        raise TooLarge(f"the database does not take it: {said(error)}.", hint="Give it a shorter name.") from error
    except _DISK as error:
        raise StorageFailed(f"the database refuses: {said(error)}.", hint="Check its free space.") from error
    except psycopg.OperationalError as error:
        raise StoreBusy(f"the database does not answer: {said(error)}.", hint=UNREACHABLE) from error
