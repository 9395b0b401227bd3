"""What language models were asked for, and what that cost: one row for each space, purpose and model, summed.

Written with the other counts, off the request path (``usage.UsageLog``). Holds no text: neither questions nor answers.
Counts never fall, so that what watches them may take differences.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memory_core.storage.sqlite.database import Database

#: Of a model's name; a provider may answer with anything.
_MODEL_CHARS = 200
SCHEMA = """
CREATE TABLE model_calls (
    space TEXT NOT NULL,
    purpose TEXT NOT NULL,
    model TEXT NOT NULL,
    calls INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    PRIMARY KEY (space, purpose, model)
) WITHOUT ROWID;
"""
_ADD = (
    "INSERT INTO model_calls VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (space, purpose, model) DO UPDATE SET "
    "calls = calls + excluded.calls, failures = failures + excluded.failures, "
    "prompt_tokens = prompt_tokens + excluded.prompt_tokens, "
    "completion_tokens = completion_tokens + excluded.completion_tokens, "
    "cached_tokens = cached_tokens + excluded.cached_tokens"
)


@dataclass(frozen=True, slots=True)
class ModelCalls:
    """Calls of one model for one purpose.

    Attributes:
        space: The user's space that they were made for.
        purpose: extraction, summaries, chat, …
        model: Its name, as the provider gave it; empty where no answer named it.
        calls: How often it was asked, failures included.
        failures: How often there was no answer.
        prompt_tokens: Tokens that it read, as the provider counted them.
        completion_tokens: Tokens that it wrote.
        cached_tokens: Of those it read, the share that came from the provider's cache.
    """

    space: str
    purpose: str
    model: str = ""
    calls: int = 1
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    def as_dict(self) -> dict[str, object]:
        """JSON form, without the space."""
        return {
            "purpose": self.purpose,
            "model": self.model,
            "calls": self.calls,
            "failures": self.failures,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cached_tokens": self.cached_tokens,
        }


class ModelCallTable:
    """Reads and writes ``model_calls``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, calls: Iterable[ModelCalls]) -> None:
        """Add to the sums, in one transaction."""
        rows = [
            (
                made.space,
                made.purpose,
                made.model[:_MODEL_CHARS].encode("utf-8", "replace").decode("utf-8"),
                made.calls,
                made.failures,
                made.prompt_tokens,
                made.completion_tokens,
                made.cached_tokens,
            )
            for made in calls
        ]
        with self._database.writing(synced=False) as connection:
            connection.executemany(_ADD, rows)

    def totals(self, space: str | None = None) -> list[ModelCalls]:
        """The sums of one user's space, or of all; the most asked first."""
        rows = self._database.connection().execute(
            "SELECT space, purpose, model, calls, failures, prompt_tokens, completion_tokens, cached_tokens "
            "FROM model_calls WHERE ? IS NULL OR space = ? ORDER BY calls DESC, space, purpose, model",
            (space, space),
        )
        return [ModelCalls(*row) for row in rows]
