"""Every error Runebook raises on purpose; nothing else may cross a public boundary.

The tree::

    RunebookError
    ├── InvalidInput        the caller's argument is wrong
    │   ├── InvalidUri      a URI that is malformed or leaves its space
    │   ├── InvalidFilter   a search filter that does not parse
    │   ├── TooLarge        over a documented size limit
    │   ├── NeedsFolder     it works on a folder of files, and the store is in a database
    │   └── ContentRejected blank text, NUL characters
    ├── AccessDenied        the caller may read, but not write
    ├── NotFound            the URI or memory type does not exist
    ├── PatchRejected       SEARCH text missing or ambiguous
    ├── FieldRejected       a field value that its type or merge op refuses
    ├── MemoryChanged       a file is no longer what the author of an operation saw
    ├── SchemaInvalid       a memory type's YAML is broken
    ├── ConfigInvalid       a setting is unknown or out of range
    ├── StoreBusy           a lock was not free in time, or the database does not answer
    ├── StorageFailed       the disk or the database refused a write or read
    ├── EmbeddingFailed     the embedding model could not be loaded or run
    └── ModelFailed         a language model gave no answer that can be used
        ├── ModelUnavailable    unreachable, overloaded, out of time, or not configured
        ├── ModelRefused        it declined to answer
        ├── AnswerCut           the answer ended at the token limit
        └── AnswerUnusable      no JSON of the asked shape in it

Some have kinds that are declared beside what raises them, such as ``Overtaken`` (a ``StoreBusy``), ``DatabaseDamaged``,
``DatabaseNewer`` and ``ServerFailed`` (each a ``StorageFailed``), and ``features.migrate.Refused``.

Each carries ``hint``: the caller's next step, in one sentence.
"""

from __future__ import annotations


class RunebookError(Exception):
    """Base of the tree.

    Attributes:
        message: What failed and why.
        hint: What to do next; never empty.
    """

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} Next: {self.hint}"


class InvalidInput(RunebookError):
    """An argument the caller can correct."""


class NeedsFolder(InvalidInput):
    """Something that works on a folder of files was asked of a store that is kept in a database."""

    def __init__(self, doing: str) -> None:
        super().__init__(
            f"{doing} works on a folder of files; this store is kept in the database of store.url.",
            hint="Use the database's own tools, such as pg_dump; runebook export takes out the memories of a user.",
        )


class InvalidUri(InvalidInput):
    """A ``viking://`` URI that is malformed or would leave its space."""


class InvalidFilter(InvalidInput):
    """A search filter that names an unknown field, operator or shape."""


class TooLarge(InvalidInput):
    """Content, a message list or a file beyond a documented limit."""


class ContentRejected(InvalidInput):
    """Text that cannot be a memory: blank, or holding NUL characters."""


class AccessDenied(RunebookError):
    """A write by somebody who may only read, or in private mode."""


class NotFound(RunebookError):
    """The named memory, directory or type does not exist."""


class PatchRejected(RunebookError):
    """A SEARCH/REPLACE patch that does not fit; the field stays as it was."""


class FieldRejected(RunebookError):
    """A field value that its declared type or merge op does not allow."""


class MemoryChanged(RunebookError):
    """A file is no longer what the author of an operation saw; it stays as it is. ``uri`` names it."""

    def __init__(self, message: str, *, hint: str, uri: str) -> None:
        super().__init__(message, hint=hint)
        self.uri = uri


class SchemaInvalid(RunebookError):
    """A memory type's YAML that cannot be used; names the file and line."""


class ConfigInvalid(RunebookError):
    """A setting that is unknown, malformed or out of range."""


class StoreBusy(RunebookError):
    """Another process held a lock longer than the caller may wait, or the database does not answer."""


class StorageFailed(RunebookError):
    """The operating system or the database refused a read or a write."""


class EmbeddingFailed(RunebookError):
    """The embedding model could not be loaded, verified or run."""


class ModelFailed(RunebookError):
    """A language model gave no answer that can be used; the conversation waits in the queue."""


class ModelUnavailable(ModelFailed):
    """The model could not be asked: unreachable, overloaded, out of time, or not configured."""


class ModelRefused(ModelFailed):
    """The model declined to answer."""


class AnswerCut(ModelFailed):
    """The answer ended at the token limit; nothing of it is applied."""


class AnswerUnusable(ModelFailed):
    """The answer holds no JSON of the shape that was asked for."""
