"""Tokens: shown once, kept as digests, refused alike whatever is wrong with them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory_core.core.errors import InvalidInput, NotFound
from memory_core.core.store.issued_tokens import IssuedToken
from memory_core.core.store.ledger import Ledger

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.fixture
def issue(ledger: Ledger) -> Callable[..., tuple[str, IssuedToken]]:
    def issue(label: str, **options: object) -> tuple[str, IssuedToken]:
        return ledger.tokens.issue(label, user_space="anna", agent_space="coder", now=NOON, **options)  # type: ignore[arg-type]

    return issue


def test_issued_token_opens_its_spaces(ledger: Ledger, issue: Callable[..., tuple[str, IssuedToken]]) -> None:
    token, issued = issue("笔记本 laptop", read_only=True)
    row = ledger.tokens.verify(token, NOON)
    assert row == issued
    assert (row.label, row.user_space, row.agent_space, row.read_only) == ("笔记本 laptop", "anna", "coder", True)
    assert token.startswith(f"rb_{row.id}_")
    assert len(token.rpartition(f"{row.id}_")[2]) == 43  # 256 bits


def test_secret_is_nowhere_on_disk(
    tmp_path: Path, issue: Callable[..., tuple[str, IssuedToken]], ledger: Ledger
) -> None:
    secrets = [issue(f"label {index}")[0].split("_", 2)[2] for index in range(5)]
    ledger.close()
    held = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for secret in secrets:
        assert secret.encode() not in held
        assert hashlib.sha256(secret.encode()).digest() in held


def test_no_two_tokens_share_a_secret_or_an_id(issue: Callable[..., tuple[str, IssuedToken]]) -> None:
    issued = [issue(f"label {index}") for index in range(50)]
    assert len({token.split("_", 2)[2] for token, _ in issued}) == len({row.id for _, row in issued}) == 50


def test_anything_but_the_whole_token_is_refused(ledger: Ledger, issue: Callable[..., tuple[str, IssuedToken]]) -> None:
    token, row = issue("laptop")
    other, _ = issue("phone")
    _, _, secret = token.split("_", 2)
    wrong = [
        "",
        "rb_",
        token[:-1],
        token + "A",
        token + "\n",
        token.upper(),
        token[:-1] + ("A" if token[-1] != "A" else "B"),
        f"rb_{row.id}_",
        f"rb_{row.id}_{'A' * 43}",
        f"rb_000000000000_{secret}",
        f"rb__{secret}",
        f"{token[:16]}{other[16:]}",
        secret,
        "令牌",
        "rb_" + "\ud800" * 12,
        "' OR 1=1 --",
    ]
    assert [ledger.tokens.verify(text, NOON) for text in wrong] == [None] * len(wrong)
    assert ledger.tokens.verify(token, NOON) is not None


def test_revoked_token_is_refused_at_once_in_every_process(
    tmp_path: Path, ledger: Ledger, issue: Callable[..., tuple[str, IssuedToken]]
) -> None:
    by_label, _ = issue("laptop")
    by_id, row = issue("phone")
    elsewhere = Ledger(tmp_path / "ledger.sqlite3")
    try:
        assert elsewhere.tokens.verify(by_label, NOON) is not None
        ledger.tokens.revoke("laptop")
        assert ledger.tokens.revoke(row.id).revoked_at is not None
        for tokens in (ledger.tokens, elsewhere.tokens):
            assert tokens.verify(by_label, NOON) is tokens.verify(by_id, NOON) is None
            assert not tokens.any_live(NOON)
            assert not tokens.any_unrevoked()
    finally:
        elsewhere.close()


def test_expired_token_is_refused_and_still_keeps_the_door_shut(
    ledger: Ledger, issue: Callable[..., tuple[str, IssuedToken]]
) -> None:
    token, row = issue("guest", expires_days=1.5)
    assert row.expires_at == "2026-11-23T00:00:00.000+00:00"
    assert ledger.tokens.verify(token, NOON + timedelta(hours=35)) is not None
    assert ledger.tokens.verify(token, NOON + timedelta(hours=36)) is None
    assert not ledger.tokens.any_live(NOON + timedelta(hours=36))
    assert ledger.tokens.any_unrevoked()


def test_label_is_free_again_after_revocation_only(
    ledger: Ledger, issue: Callable[..., tuple[str, IssuedToken]]
) -> None:
    issue("laptop")
    with pytest.raises(InvalidInput, match="exists"):
        issue("laptop")
    ledger.tokens.revoke("laptop")
    _, second = issue("laptop")
    assert [row.id for row in ledger.tokens.rows()] == [second.id]
    assert len(ledger.tokens.rows(revoked=True)) == 2
    with pytest.raises(NotFound):
        ledger.tokens.revoke("nobody")


@pytest.mark.parametrize("label", ["", " x", "x ", "a\nb", "a\x1b[31m", "x" * 65])
def test_unprintable_labels_are_rejected(issue: Callable[..., tuple[str, IssuedToken]], label: str) -> None:
    with pytest.raises(InvalidInput):
        issue(label)


@pytest.mark.parametrize("space", ["", "a/b", "..", "-x", "_x", "安娜", "x" * 65, "a b", "CON", "nul", "com1", "LPT9"])
def test_spaces_that_are_no_folder_names_are_rejected(ledger: Ledger, space: str) -> None:
    with pytest.raises(InvalidInput):
        ledger.tokens.issue("x", user_space=space, agent_space="a")
    with pytest.raises(InvalidInput):
        ledger.tokens.issue("x", user_space="a", agent_space=space)


def test_space_that_differs_from_another_only_in_case_is_rejected(ledger: Ledger) -> None:
    ledger.tokens.issue("first", user_space="Alice", agent_space="Alice")
    for user_space, agent_space in (("alice", "x"), ("x", "ALICE"), ("y", "Y"), ("owner", "x")):
        with pytest.raises(InvalidInput, match="same folder"):
            ledger.tokens.issue("second", user_space=user_space, agent_space=agent_space, spaces=["Owner"])
    ledger.tokens.revoke("first")
    with pytest.raises(InvalidInput, match="same folder"):  # what it stored is still there
        ledger.tokens.issue("second", user_space="alice", agent_space="x")
    ledger.tokens.issue("second", user_space="Alice", agent_space="Owner", spaces=["Owner"])


@pytest.mark.parametrize("days", [0, -1, float("nan"), float("inf"), 1e9])
def test_impossible_terms_are_rejected(issue: Callable[..., tuple[str, IssuedToken]], days: float) -> None:
    with pytest.raises(InvalidInput):
        issue("x", expires_days=days)


def test_use_is_noted_once_a_minute(ledger: Ledger, issue: Callable[..., tuple[str, IssuedToken]]) -> None:
    token, row = issue("laptop")
    seen = []
    for seconds in (0, 30, 59, 61):
        ledger.tokens.note_use(row, NOON + timedelta(seconds=seconds))
        found = ledger.tokens.verify(token, NOON)
        assert found is not None
        row = found
        seen.append(row.last_used_at)
    assert seen == ["2026-11-21T12:00:00.000+00:00"] * 3 + ["2026-11-21T12:01:01.000+00:00"]
