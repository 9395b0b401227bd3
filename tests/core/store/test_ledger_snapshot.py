"""A history that is put into a ledger: whole, or refused for what it is."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.errors import InvalidInput
from memory_core.core.store.ledger import Ledger
from memory_core.core.store.ledger_snapshot import LedgerSnapshot, insert_history
from tests.core.store.test_store import URI, open_store, set_text


@pytest.mark.parametrize("value", [["a"], {"a": 1}, 2**70])
def test_a_value_that_no_column_takes_is_a_malformed_history_and_no_full_disk(tmp_path: Path, value: Any) -> None:
    store = open_store(tmp_path / "one")
    store.commit(set_text(URI, "猫"))
    with LedgerSnapshot.of(store.ledger) as snapshot:
        (commit,) = snapshot.history()
    store.close()
    with closing(Ledger(tmp_path / "ledger.sqlite3")) as ledger:
        for spoilt in (
            commit | {"request_id": value},
            commit | {"changes": [commit["changes"][0] | {"memory_type": value}]},
        ):
            with pytest.raises(InvalidInput, match="the history is malformed"):
                insert_history(ledger, [spoilt])
            assert ledger.newest_seq() == 0
