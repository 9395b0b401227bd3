"""Names of projects: one for every form of an address, and nothing that is no name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.errors import InvalidInput
from memory_core.core.memory.memory import Memory
from memory_core.core.memory.message import Message, dump_lines, parse_lines
from memory_core.core.memory.metadata import Metadata
from memory_core.core.memory.names import key_of
from memory_core.core.memory.project import (
    NAME_LIMIT_CHARS,
    ProjectAssignment,
    ProjectScope,
    folder_name,
    project_key,
    project_name,
    remote_name,
)
from memory_core.core.memory.uri import MemoryUri


@pytest.mark.parametrize(
    ("given_name", "stored"),
    [
        ("https://GitHub.com/Acme/Backend.git", "github.com/acme/backend"),
        ("git@github.com:acme/backend", "github.com/acme/backend"),
        ("github.com/Acme/backend", "github.com/acme/backend"),
        ("  Backend ", "Backend"),
        ("支付系统", "支付系统"),
        ("notes: a book", "notes: a book"),
        ("acme/backend", "acme/backend"),
    ],
)
def test_one_project_has_one_name(given_name: str, stored: str) -> None:
    assert project_name(given_name) == stored
    assert project_name(stored) == stored


@pytest.mark.parametrize(
    "forged",
    ["", " ", "a\nb", "a\x1fb", "a\x00b", "x" * (NAME_LIMIT_CHARS + 1), "\u202eb", "a\u200bb", "\ud800", "a\u2028b"],
)
def test_what_is_no_name_is_refused_with_a_hint(forged: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        project_name(forged)
    assert "github.com/acme/backend" in caught.value.hint
    assert folder_name(forged) is None


@given(st.text(max_size=300))
def test_a_name_that_is_taken_stays_as_it_is(text: str) -> None:
    try:
        name = project_name(text)
    except InvalidInput:
        return
    assert project_name(name) == name
    assert len(name) <= NAME_LIMIT_CHARS
    assert name.isprintable() or " " in name or not name.isascii()


@pytest.mark.parametrize("url", ["", "/srv/git/a.git", "../a", "file:///srv/a", "C:\\a\\b", "https://", "x://y/z", "."])
def test_an_address_without_a_host_names_nothing(url: str) -> None:
    assert remote_name(url) is None


@given(st.lists(st.text(max_size=12), min_size=1, max_size=3), st.sampled_from(["a", "b", "github.com/a/b"]))
def test_keys_of_projects_are_nobody_elses(values: list[str], project: str) -> None:
    names = tuple(str(place) for place in range(len(values)))
    key = key_of(dict(zip(names, values, strict=True)), names)
    assert len({key, project_key(project, key), project_key("c", key)}) == 3
    assert project_key(None, key) == key


def test_a_private_memory_is_seen_from_its_own_project_only() -> None:
    assert ProjectScope("a").sees("a", private=True)
    assert not ProjectScope("b").sees("a", private=True)
    assert not ProjectScope().sees("a", private=True)
    assert ProjectScope("b").sees("a", private=False)
    assert ProjectScope().sees(None, private=True)


@pytest.mark.parametrize(
    "meta", [{"private": True}, {"private": "yes", "project": "a"}, {"private": True, "project": 5}]
)
def test_an_odd_trailer_makes_nothing_private(meta: dict[str, object]) -> None:
    assert not Memory(MemoryUri(("user", "default", "x.md")), None, {}, Metadata(meta)).is_private


def test_only_what_is_private_to_a_project_is_confined() -> None:
    assert ProjectAssignment("a", True, True).confined
    assert not ProjectAssignment("a", True, None, by_default=True).confined
    assert not ProjectAssignment(None, True, True).confined


def test_a_line_of_a_log_keeps_the_project() -> None:
    messages = [
        Message("user", "部署用 helm。", project="支付", private=True),
        Message("user", "hi", project="a"),
        Message("user", "x"),
    ]
    assert parse_lines(dump_lines(messages)) == (messages, [])


@pytest.mark.parametrize("line", ['"project": 5', '"project": "a\\nb"', '"private": true', '"private": "no"'])
def test_a_line_with_an_odd_project_is_still_a_message(line: str) -> None:
    (message,), damage = parse_lines(f'{{"role": "user", "content": "hi", {line}}}\n')
    assert (message.project, message.private, damage) == (None, False, [])
