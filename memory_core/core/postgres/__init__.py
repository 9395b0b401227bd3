"""A store whose rows are kept in PostgreSQL: the second form of ledger, catalog and files."""

from collections.abc import Iterator
from contextlib import contextmanager

from memory_core.core.errors import ConfigInvalid


@contextmanager
def needing_packages() -> Iterator[None]:
    """Say which packages are missing, where the body imports them.

    Raises:
        ConfigInvalid: If any is.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigInvalid(
            f"store.url needs packages that are missing: {error}.",
            hint="Install them: pip install 'psycopg[binary,pool]' pgvector.",
        ) from error
