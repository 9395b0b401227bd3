"""Secrets are found in every form they take, and nothing else is."""

from __future__ import annotations

import base64
import json
import random
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from memory_core.core.memory.message import Message, ToolCall
from memory_core.core.memory.operations import DeleteOp, EditOp, MemoryData, MemoryOperations, OverviewOp, WriteOp
from memory_core.features.redaction import Place, Redaction, find_secrets

MIXED = "a1B2c3D4e5F6" * 8
KEY_LINES = "MIIEowIBAAKCAQEAu1SU1LfVLPHCozMxH2Mo4lgOEePzNm0tRgeLezV6ffAt0gun\n" * 3
# Written in two parts, so that no scanner of repositories takes these for secrets.
PEM = "-----BEGIN RSA PRIVATE" + " KEY-----\n"
PEM_END = "-----END RSA PRIVATE" + " KEY-----"

TOKENS = {
    "AWS access key": "AKIA" + "Q3EGRITSPNLWZ7XY",
    "Google API key": "AIza" + MIXED[:35],
    "Google token": "ya29." + MIXED[:40],
    "GitHub token": "ghp_" + MIXED[:36],
    "GitLab token": "glpat-" + MIXED[:20],
    "Slack token": "xoxb-" + "123456789012-" + MIXED[:24],
    "Stripe key": "sk_live_" + MIXED[:24],
    "OpenAI API key": "sk-proj-" + MIXED[:48],
    "Anthropic API key": "sk-ant-" + "api03-" + MIXED[:60],
    "Hugging Face token": "hf_" + MIXED[:34],
    "npm token": "npm_" + MIXED[:36],
    "PyPI token": "pypi-AgE" + MIXED[:60],
    "Telegram bot token": "123456789:AA" + MIXED[:33],
    "Twilio key": "SK" + "0123456789abcdef" * 2,
    "SendGrid key": f"SG.{MIXED[:22]}.{MIXED[:43]}",
    "Runebook token": "rb_0123456789ab_" + MIXED[:43],
    "JSON web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0." + MIXED[:43],
}


def listed(block: str) -> list[str]:
    """The entries of a block, parted by bars and line ends."""
    return block.replace("\n", " | ").split(" | ")


#: What is named a secret, with the secret in brackets.
NAMED = listed(
    r"""my password is ⟦hunter2⟧ | The password of my bank account is: ⟦Tr0ub4dor&3x⟧
The password for the router is '⟦swordfish⟧' | reset my password to ⟦Foo123!⟧
我的密码是⟦hunter2⟧，别告诉别人 | 银行卡密码改成了 ⟦884213⟧ | 口令：⟦芝麻123456⟧ | 密码：“⟦芝麻开门2024⟧”
password=⟦hunter2⟧ | DB_PASSWORD='⟦s3cret!⟧' | api_key: "⟦abcd1234efgh5678⟧"
export DEPLOY_TOKEN=⟦abcdef1234567890abcdef⟧ | {"password": "⟦swordfish⟧"} | "{\"password\": \"⟦hunter2⟧\"}"
<password>⟦hunter2⟧</password> | mysql --password ⟦hunter2⟧ -h db | machine h login me password ⟦hunter2⟧
postgres://u:⟦p⟧@h | redis://:⟦s3cr3t⟧@cache:6379/0 | Authorization: Basic ⟦dXNlcjpwYXNz⟧
Authorization: Bearer ⟦abcdefghij1234567890⟧ | curl -u bob:⟦hunter2⟧ https://h
aws_secret_access_key = ⟦wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzKEY⟧"""
)

NUMBERS = {
    "card number": "4111 1111 1111 1111 | card 4111-1111-1111-1111, thanks | 卡号4111111111111111 "
    " | ４１１１１１１１１１１１１１１１ | 3782 822463 10005 | 5555555555554444",
    "identity number": "身份证11010519491231002X",
    "bank account": "DE89 3704 0044 0532 0130 00 | GB82WEST12345698765432",
}

HARMLESS = [
    *listed(
        """commit 3f786850e387550fdab836ed7e6dc881de23001b | 550e8400-e29b-41d4-a716-446655440000
sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
ISBN 978-3-16-148410-0, ISBN-10 0-306-40615-2 | +86 138 0013 8000, (555) 010-4242, 010-62345678
order 4539 1488 0343 6467 shipped | 订单号：4539148803436467 | the card 4111 1111 1111 1112 fails its checksum
身份证号 110105194912310021 的校验位不对 | password: required | The password must be 12 characters
password = get_password() | self.password = password | api_key=os.environ['OPENAI_API_KEY']
next_page_token: abcdef1234567890abcd | max_tokens: 409600000000
https://user:password@example.com and postgres://user:${DB_PASSWORD}@host
password: ********, token=<your token>
I forgot my password to Netflix in 2023; the password is stored in 1Password
the secret is out, and the pin is 13 on the board | pass: 14 tests; pin: gpio17; pin: D13_OUT
密码是什么？密码是6位数，密码必须包含数字，密码是加密存储的
passwords are hashed with argon2id; password = bcrypt | AKIAIOSFODNN7EXAMPLE is the key of the manual"""
    ),
    "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 20).decode(),
    "api_key: str | None = None",
    "-----BEGIN PRIVATE" + " KEY----- is how such a file begins, and nobody should ever commit one to a repository",
]


SECRETS = [
    *TOKENS.values(),
    *(text.replace("⟦", "").replace("⟧", "") for text in NAMED),
    *listed(" | ".join(NUMBERS.values())),
]


def kinds(text: str) -> list[str]:
    return [secret.kind for secret in find_secrets(text)]


def shown(text: str) -> str:
    return Redaction().text(text)


@pytest.mark.parametrize("kind", TOKENS)
def test_a_token_is_known_by_its_form_wherever_it_stands(kind: str) -> None:
    token = TOKENS[kind]
    for text in (
        token,
        f"use {token}.",
        f'{{"v":"{token}"}}',
        f"密钥在这里（{token}）",
        f"a\n{token}\nb",
        f"https://h/x/{token}",
    ):
        assert kind in kinds(text), text
        assert token not in shown(text)


@pytest.mark.parametrize("marked", NAMED)
def test_what_is_named_a_secret_is_one(marked: str) -> None:
    before, _, rest = marked.partition("⟦")
    secret, _, after = rest.partition("⟧")
    text = f"{before}{secret}{after}"
    assert [text[item.start : item.end] for item in find_secrets(text)] == [secret]


@pytest.mark.parametrize("kind", NUMBERS)
def test_a_number_with_a_checksum_is_known(kind: str) -> None:
    assert [kinds(text) for text in listed(NUMBERS[kind])] == [[kind]] * len(listed(NUMBERS[kind]))


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_a_secret_is_none(text: str) -> None:
    assert kinds(text) == []


def test_a_private_key_is_taken_whole_or_as_far_as_it_goes() -> None:
    for ends in ("\n", "\r\n", "\\n"):
        key = (PEM + KEY_LINES + PEM_END).replace("\n", ends)
        assert shown(f"before {key} after") == "before [redacted: private key] after"
    assert shown(f"{PEM}{KEY_LINES}\nand then prose") == "[redacted: private key]\n\nand then prose"


def test_of_a_card_the_last_four_digits_stay_and_of_all_else_nothing() -> None:
    assert shown("４１１１ １１１１ １１１１ １１１１") == "[redacted: card number ending 1111]"
    assert shown(TOKENS["GitHub token"]) == "[redacted: GitHub token]"


@pytest.mark.parametrize("text", SECRETS)
def test_what_was_redacted_once_stays_as_it_is(text: str) -> None:
    once = shown(text)
    assert once != text
    assert shown(once) == once


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_seen_among_all_parts_of_a_commit(text: str) -> None:
    facts = {"memory_type": "facts", "fields": {"topic": "boat", "content": text}}
    commit = MemoryOperations.model_validate({"write_operations": [{"memory_data": facts}]})
    assert Redaction("refuse").operations(commit).refused
    call = ToolCall("c", "login", {"note": [text]})
    (message,), notes = Redaction().messages([Message("assistant", "on it", tool_calls=(call,))])
    assert notes
    assert text not in str(message)


def test_a_member_named_a_password_is_one_however_deep() -> None:
    places: list[Place] = []
    value = {"a": [{"dbPassword": "swordfish", "user": "me", "max_tokens": "5"}], "clientSecret": "ab12" * 8}
    clean = Redaction().value(value, "arguments", places)
    assert clean["a"] == [{"dbPassword": "[redacted: password]", "user": "me", "max_tokens": "5"}]
    assert clean["clientSecret"] == "[redacted: secret]"
    assert [place.where for place in places] == ["arguments.a[0].dbPassword", "arguments.clientSecret"]


def test_a_number_in_json_is_judged_like_its_text() -> None:
    places: list[Place] = []
    value = {"card": 4111111111111111, "password": 48213377, "max_tokens": 48213377, "ok": True, "at": 1732406400}
    clean = Redaction().value(value, "arguments", places)
    assert clean == {
        **value,
        "card": "[redacted: card number ending 1111]",
        "password": "[redacted: password]",
    }
    assert [place.where for place in places] == ["arguments.card", "arguments.password"]
    assert Redaction().value({"password": 12, "n": [1, 2.5]}, "", places) == {"password": 12, "n": [1, 2.5]}


def test_two_names_that_become_one_mark_keep_both_members() -> None:
    keys = ["ghp_" + MIXED[:36], "ghp_" + MIXED[1:37]]
    clean = Redaction().value({keys[0]: "first", keys[1]: "second"}, "", [])
    assert list(clean.values()) == ["first", "second"]
    edit = EditOp(uri="viking://user/default/memories/notes/a.md", patches=dict.fromkeys(keys, "text"))
    (stored,) = Redaction().operations(MemoryOperations(edit_operations=[edit])).operations.edit_operations
    assert len(stored.patches) == 2
    assert not any(key in str(stored) for key in keys)


def test_a_line_of_a_log_ends_at_a_line_feed_alone() -> None:
    line = (
        '{"role": "assistant", "content": "a\u2028b", "tool_calls": '
        '[{"id": "1", "name": "log_in", "arguments": {"dbPassword": ["swordfish"]}}]}\n'
    )
    clean, _ = Redaction().file(line, "messages.jsonl", log=True)
    assert clean.count("\n") == 1
    assert "swordfish" not in clean


@given(st.text(max_size=300))
def test_spans_are_in_order_and_inside_the_text(text: str) -> None:
    end = 0
    for secret in find_secrets(text):
        assert end <= secret.start < secret.end <= len(text)
        end = secret.end
    assert shown(shown(text)) == shown(text)


@given(st.text(max_size=80), st.sampled_from(sorted(TOKENS.values())), st.text(max_size=80))
def test_a_token_between_any_words_is_found(before: str, token: str, after: str) -> None:
    assert token not in shown(f"{before} {token} {after}")


def test_hashes_ids_and_random_bytes_are_not_secrets() -> None:
    dice = random.Random(7)
    texts = [dice.randbytes(20).hex() for _ in range(2_000)]
    texts += [str(uuid.UUID(bytes=dice.randbytes(16))) for _ in range(2_000)]
    texts += [base64.b64encode(dice.randbytes(300)).decode() for _ in range(500)]
    texts += [f"order {dice.randrange(10**15, 10**16)}" for _ in range(2_000)]
    texts += [f"{dice.randrange(10**12, 2 * 10**12)}" for _ in range(2_000)]
    assert [text for text in texts if find_secrets(text)] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "big",
    [
        "a" * 1_000_000,
        "4111 " * 200_000,
        "password is " * 83_000,
        'password="' * 100_000,
        "密码" * 500_000,
        PEM * 30_000,
        "eyJ-" * 250_000,
        "eyJaaaaaaaa." * 83_000,
        "://a:" * 200_000,
        "token_" * 160_000,
        "aws " * 250_000,
        "curl -u " * 125_000,
        "sk-proj-" * 125_000,
        "\\" * 1_000_000,
    ],
    ids=lambda big: str(big)[:12],
)
def test_a_megabyte_made_to_be_slow_takes_seconds_at_most(big: str) -> None:
    started = time.process_time()
    find_secrets(big)
    assert time.process_time() - started < 10  # a quadratic pattern takes minutes


def test_an_ordinary_memory_costs_little() -> None:
    text = "I prefer dark roast, my office is in Berlin, and the API uses one token per user. 我喜欢深烘咖啡。" * 10
    started = time.process_time()
    for _ in range(100):
        find_secrets(text)
    assert (time.process_time() - started) / 100 < 0.02  # measured: 0.0001 s


ESCAPES: list[Callable[[str], str]] = [
    lambda char: char,
    lambda char: f"\\u{ord(char):04x}",
    lambda char: f"\\\\u{ord(char):04X}",
    lambda char: "".join(f"%{byte:02x}" for byte in char.encode()),
    lambda char: "".join(f"%25{byte:02X}" for byte in char.encode()),
    lambda char: f"&#{ord(char)};",
    lambda char: f"&#x{ord(char):X};",
    lambda char: f"&amp;#{ord(char)};",
    lambda char: f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{{{ord(char):x}}}",
    lambda char: f"\\{ord(char):03o}" if ord(char) < 256 else f"\\U{ord(char):08x}",
]


@given(st.sampled_from([*TOKENS.values(), "我的密码是hunter2x9", "password=hunter2x9!"]), st.data())
def test_a_secret_is_found_behind_every_escape(text: str, data: st.DataObject) -> None:
    escapes = data.draw(st.lists(st.sampled_from(ESCAPES), min_size=len(text), max_size=len(text)))
    told = "see " + "".join(escape(char) for escape, char in zip(escapes, text, strict=True)) + " ok"
    assert find_secrets(text)
    kept = shown(told)
    assert "[redacted: " in kept
    assert kept.startswith("see ")
    assert kept.endswith(" ok")
    assert not find_secrets(kept)


@pytest.mark.parametrize("around", ["x\n{}\ny", "x\t{}", "\r\n{}"])
def test_a_token_in_the_lines_of_json_in_json_is_found(around: str) -> None:
    for token in TOKENS.values():
        once = json.dumps({"stdout": around.format(token)})
        assert find_secrets(once), once
        assert find_secrets(json.dumps(once)), once


def test_a_number_that_html_reads_without_its_semicolon_is_an_escape() -> None:
    assert "[redacted: " in shown("see &#103hp_" + TOKENS["GitHub token"].removeprefix("ghp_"))


@pytest.mark.parametrize(
    "text", ["C:\\users\\x12\\udeadbeef", "100%25 of 5%", "R&D; a &amp; b &nosuch;", "\\u{ffffffff} \\ud800 %ff"]
)
def test_escapes_of_nothing_secret_stay_as_they_are(text: str) -> None:
    assert shown(text) == text


NAMES = {"uri", "replacement_uri", "directory_uri", "links", "memory_type"}


@pytest.mark.parametrize(
    ("group", "model", "base"),
    [
        ("write_operations", MemoryData, {"memory_type": "notes", "fields": {"content": "x"}}),
        ("edit_operations", EditOp, {"uri": "viking://user/default/memories/notes/a.md"}),
        ("delete_operations", DeleteOp, {"uri": "viking://user/default/memories/notes/a.md"}),
        ("overview_operations", OverviewOp, {"directory_uri": "viking://user/default/memories/notes"}),
    ],
)
@pytest.mark.parametrize("mode", ["redact", "refuse"])
def test_a_secret_in_any_member_is_not_stored(group: str, model: Any, base: dict[str, Any], mode: Any) -> None:
    token = TOKENS["GitHub token"]
    tried = 0
    for name in model.model_fields.keys() - NAMES:
        for value in (
            token,
            [token],
            {"x": token},
            {token: "x"},
            [{"search": "a", "replace": token}],
            {"content": [{"search": "a", "replace": token}]},
        ):
            given = base | {name: value}
            sent = {"memory_data": given} if model is MemoryData else given
            try:
                operations = MemoryOperations.model_validate({group: [sent]})
            except ValidationError:
                continue
            tried += 1
            cleared = Redaction(mode).operations(operations)
            assert token not in cleared.operations.model_dump_json()
            assert len(cleared.refused) == (mode == "refuse")
    assert tried


def test_a_secret_in_the_name_of_a_new_file_is_refused() -> None:
    uri = f"viking://user/default/memories/notes/{TOKENS['GitHub token']}.md"
    write = WriteOp(uri=uri, memory_data=MemoryData(memory_type="notes", fields={"content": "x"}))
    cleared = Redaction().operations(MemoryOperations(write_operations=[write]))
    assert not cleared.operations.write_operations
    assert "its uri holds" in (cleared.refused[0].reason or "")
    assert TOKENS["GitHub token"] not in str(cleared.refused)
