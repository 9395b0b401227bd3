"""Limits that servers on one database share."""

from __future__ import annotations

import logging

import pytest

from memory_core.core.errors import StoreBusy
from memory_core.open_postgres import shared_rates
from server.http.rate_limits import RequestRates, Sharing
from tests.contract.conftest import Place

psycopg = pytest.importorskip("psycopg")


class Server:
    """The limits of one server, whose clock stands still: what comes back does so by the database's clock alone."""

    def __init__(self, rows: Place, per_minute: int) -> None:
        self.rates = RequestRates(per_minute, lambda: 0.0)
        self.rates.is_shared = True
        self.sharing = Sharing(self.rates, shared_rates(rows.open().opened.tokens()))

    def passed(self, client: str, tries: int) -> int:
        return sum(self.rates.take(client) == 0 for _ in range(tries))


def test_what_a_client_took_on_one_server_it_has_not_on_another(rows: Place) -> None:
    one, other = Server(rows, 4), Server(rows, 4)
    assert one.passed("token anna", 2) == 2
    one.sharing.once()
    assert other.passed("token anna", 1) == 1  # it has not been told yet
    other.sharing.once()
    assert other.passed("token anna", 4) in (1, 2)  # of three; one comes back in 15 s
    assert other.passed("token bob", 4) == 4
    other.sharing.once()
    assert one.passed("token bob", 1) == 1
    assert one.passed("token anna", 1) == 1
    one.sharing.once()
    assert (one.passed("token bob", 4), one.passed("token anna", 1)) == (0, 0)


def test_a_full_bucket_leaves_no_row_and_rows_say_nobody(rows: Place) -> None:
    one = Server(rows, 1_000_000)
    one.passed("203.0.113.9", 1)
    one.sharing.once()
    with psycopg.connect(rows.url, autocommit=True) as admin:
        stored = admin.execute("SELECT client, tenant FROM runebook_ledger.rates").fetchall()
        assert [(len(client), tenant) for client, tenant in stored] == [(64, "_tokens")]
        admin.execute("UPDATE runebook_ledger.rates SET full_at = full_at - 60")
        one.passed("token anna", 1)
        one.sharing.once()
        assert admin.execute("SELECT count(*) FROM runebook_ledger.rates").fetchone() == (1,)


def test_without_the_database_each_server_counts_for_itself(rows: Place, caplog: pytest.LogCaptureFixture) -> None:
    one = Server(rows, 60)
    real, away = one.sharing._exchange, StoreBusy("the database does not answer.", hint="")

    def refuse(_taken: object) -> dict[str, float]:
        raise away

    one.sharing._exchange = refuse
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert one.passed("token anna", 20) == 20
            one.sharing.once()
    assert len(caplog.records) == 1
    assert one.passed("token anna", 1) == 0
    one.sharing._exchange = real
    one.sharing.once()
    assert one.passed("token anna", 1) == 0
    assert one.passed("token bob", 1) == 1
