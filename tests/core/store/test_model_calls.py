"""Calls of language models are summed, whoever counts them and whatever their names hold."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from memory_core.core.store.ledger import Ledger
from memory_core.core.store.usage import ModelCalls, UsageLog

ANSWERED = ModelCalls("default", "chat", "claude", prompt_tokens=10, completion_tokens=5, cached_tokens=4)
FAILED = ModelCalls("default", "chat", "claude", failures=1)


def test_calls_of_one_purpose_and_model_are_one_row_and_other_users_have_their_own(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite3")
    ledger.model_calls.add([ANSWERED, FAILED, ModelCalls("林", "extraction", "模型\ud800")])
    ledger.model_calls.add([ANSWERED])
    whole = ModelCalls("default", "chat", "claude", 3, 1, 20, 10, 8)
    assert ledger.model_calls.totals("default") == [whole]
    assert ledger.model_calls.totals() == [whole, ModelCalls("林", "extraction", "模型?")]
    ledger.close()
    ledger = Ledger(tmp_path / "ledger.sqlite3")
    assert ledger.model_calls.totals("default") == [whole]
    ledger.close()


def test_what_cannot_be_counted_now_is_counted_later(tmp_path: Path, ledger: Ledger) -> None:
    log = UsageLog(ledger.usage_table, ledger.model_calls, lambda: None)
    with sqlite3.connect(tmp_path / "ledger.sqlite3") as other:
        other.execute("ALTER TABLE model_calls RENAME TO away")
    log.asked(ANSWERED)
    log.flush()
    with other:
        other.execute("ALTER TABLE away RENAME TO model_calls")
    other.close()
    log.flush()
    log.flush()
    assert ledger.model_calls.totals() == [ANSWERED]
