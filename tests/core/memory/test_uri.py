"""URIs: what is accepted means one place inside the store; everything else is refused."""

from __future__ import annotations

import tracemalloc
import unicodedata
from urllib.parse import unquote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memory_core.core.errors import InvalidUri
from memory_core.core.memory.uri import PART_LIMIT_BYTES, SCHEME, URI_LIMIT_BYTES, MemoryUri, Scope, is_device_name

HOSTILE_PIECES = st.sampled_from(
    [
        *("..", ".", "/", "\\", "%2e", "%2E%2e", "%2f", "%5c", "%00", "\x00", "．", "．．", "‥", "․", "／"),
        *("＼", "%25", ":", "C:", "nul", "COM1", "con.md", "LPT¹", " ", "~", "\u202e", "\u2028", "\x85"),
        *("\x7f", "�", "\u200d", "*", "user", "viking://", "a", "支付", "é", "é", "😀", ".abstract.md"),
        *(".git", "%EF%BC%8E", "%c0%ae", "%e2%80%a5"),
    ]
)
HOSTILE = st.lists(HOSTILE_PIECES | st.text(max_size=2), max_size=8).map("".join)
PLAIN_PARTS = st.sampled_from(
    ["memories", "支付系统.md", "Python code style.md", "[Problem] → [Solution].md", "100%.md"]
)


def is_safe(part: str) -> bool:
    """What every part must be, said independently of the implementation."""
    decoded = {part, unquote(part)}
    return (
        part not in ("", ".", "..")
        and unicodedata.is_normalized("NFC", part)
        and not set(part) & set('<>:"/\\|?*')
        and all(ord(char) >= 32 and unicodedata.category(char) not in ("Cc", "Cs") for form in decoded for char in form)
        and not any("/" in form or "\\" in form or form in (".", "..") for form in decoded)
        and (not part.startswith(".") or part in (".abstract.md", ".overview.md"))
        and not part.endswith((".", " "))
        and not part.startswith(" ")
        and len(part.encode("utf-8")) <= 255
    )


@given(HOSTILE | st.text(st.sampled_from("./\\%2eEfF5cC．／‥:~ \x00aA"), max_size=40))
@example("../../../etc/passwd")
@example("user/../../etc/passwd")
@example("user/default/%2e%2e/%2e%2e/x")
@example("user/default/．．/x")
@example("user/default/‥/x")
@example("session/x/..%5c..")
@settings(max_examples=300)
def test_hostile_uri_is_refused_or_harmless(path: str) -> None:
    for text in (path, SCHEME + path, SCHEME + "user/" + path, SCHEME + "user/default/memories/" + path):
        try:
            uri = MemoryUri.parse(text)
        except InvalidUri:
            continue
        assert all(is_safe(part) for part in uri.parts)
        assert not uri.parts or uri.parts[0] in list(Scope)
        assert MemoryUri.parse(str(uri)) == uri


@given(st.lists(PLAIN_PARTS | HOSTILE, min_size=1, max_size=4))
def test_child_is_refused_or_reads_back(names: list[str]) -> None:
    uri = MemoryUri(("user", "default"))
    for name in names:
        try:
            child = uri.child(name)
        except InvalidUri:
            continue
        assert child.parent == uri
        assert uri.contains(child)
        assert not child.contains(uri)
        assert MemoryUri.parse(str(child)) == child
        uri = child


@pytest.mark.parametrize(
    "text",
    [
        "viking://user/default/memories/支付系统.md",
        "viking://agent/default/memories/cases/Band not recognized → Request details.md",
        "viking://session/default/2023-05-08-1a2b3c4d/messages.jsonl",
        "viking://archive/user/default/memories/old.md",
        "viking://user/default/memories/.abstract.md",
        "viking://user/default/memories/100% sure.md",
        "viking://user/default/memories/v1..2.md",
        "viking://user/default/memories/😀👨‍👩‍👧.md",
        "viking://",
    ],
)
def test_ordinary_uri_reads_back(text: str) -> None:
    assert str(MemoryUri.parse(text)) == text


def test_trailing_slash_and_unicode_form_do_not_matter() -> None:
    composed = MemoryUri.parse("viking://user/default/caf\u00e9")
    assert MemoryUri.parse("viking://user/default/cafe\u0301/") == composed
    assert MemoryUri.parse("viking:///") == MemoryUri()


@pytest.mark.parametrize(
    "part",
    [
        *("..", ".", "", "a\\b", ".ssh", ".env.md", "NUL", "nul.md", "com1.txt", "LPT².md", "aux .md", "CON"),
        *("a:b", "C:", "x.", " x", "x ", "a*", "a?", "a|b", "a<b", 'a"b', "a\0b", "a\nb", "a\x7f", "a\x85", "a\ud800"),
        *(
            "%2e%2e",
            "%2E.",
            ".%2e",
            "..%2f",
            "a%2Fb",
            "a%5cb",
            "%00",
            "a%0a",
            "．．",
            "．.",
            "‥",
            "․․",
            "a＼b",
            "%EF%BC%8E.",
        ),
        *("a\u2028b", "a\u2029b", "字" * 86, "x" * 256),
    ],
)
def test_unsafe_part_is_refused_wherever_it_stands(part: str) -> None:
    for text in (f"viking://user/default/{part}/deep", f"viking://user/{part}/deep"):
        with pytest.raises(InvalidUri):
            MemoryUri.parse(text)
    with pytest.raises(InvalidUri):
        MemoryUri(("user", "default")).child(part)


@pytest.mark.parametrize(
    "text", ["", "/etc/passwd", "file:///x", "VIKING://user", "viking:/user", " viking://user", "user/x"]
)
def test_other_schemes_are_refused(text: str) -> None:
    with pytest.raises(InvalidUri, match="start with viking://"):
        MemoryUri.parse(text)


@pytest.mark.parametrize("text", ["viking://etc/x", "viking://USER/x", "viking://memories", "viking://user//x"])
def test_unknown_scope_or_empty_part_is_refused(text: str) -> None:
    with pytest.raises(InvalidUri):
        MemoryUri.parse(text)


@given(HOSTILE)
def test_refusal_can_be_sent_and_says_what_to_do(path: str) -> None:
    with pytest.raises(InvalidUri) as caught:
        MemoryUri.parse(f"viking://user/{path}/../x")
    assert caught.value.hint
    assert str(caught.value).encode("utf-8")


def test_what_is_not_text_is_refused() -> None:
    for value in (None, 5, b"viking://user", ["viking://user"]):
        with pytest.raises(InvalidUri):
            MemoryUri.parse(value)  # type: ignore[arg-type] # a client may send anything


def test_root_has_only_scopes_as_children() -> None:
    assert MemoryUri().child("user").scope is Scope.USER
    with pytest.raises(InvalidUri, match="scope"):
        MemoryUri().child("etc")


def test_limits_count_bytes() -> None:
    longest = "字" * 84 + ".md"
    assert len(longest.encode()) == PART_LIMIT_BYTES
    uri = MemoryUri(("user", "default")).child(longest)
    assert MemoryUri.parse(str(uri)) == uri
    with pytest.raises(InvalidUri, match="bytes"):
        uri.parent.child(longest + "x")
    with pytest.raises(InvalidUri, match=str(URI_LIMIT_BYTES)):
        MemoryUri.parse("viking://user" + "/x" * URI_LIMIT_BYTES)


def test_path_grown_by_children_stays_within_the_limit() -> None:
    uri = MemoryUri(("user", "default"))
    for _ in range(8):
        uri = uri.child("字" * 80)
    with pytest.raises(InvalidUri, match="limit"):
        uri.child("字" * 80)
    assert MemoryUri.parse(str(uri)) == uri


def test_composition_that_grows_is_measured_after_it() -> None:
    text = "viking://user/" + "/".join(["\u0958" * 40] * 14)  # its NFC form is twice as long
    with pytest.raises(InvalidUri, match="limit"):
        MemoryUri.parse(text)


def test_parts_tell_scope_space_name_and_parent() -> None:
    uri = MemoryUri.parse("viking://user/default/memories/支付系统.md")
    assert (uri.scope, uri.space, uri.name) == (Scope.USER, "user/default", "支付系统.md")
    assert str(uri.parent) == "viking://user/default/memories"
    assert MemoryUri().parent == MemoryUri()
    assert MemoryUri().scope is None
    assert not MemoryUri.parse("viking://user/def").contains(MemoryUri.parse("viking://user/default"))


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("nul", True),
        ("Com9.tar.gz", True),
        ("con .md", True),
        ("CONIN$", True),
        ("console.md", False),
        ("com10", False),
        ("nullable", False),
        ("辅助", False),
        ("", False),
    ],
)
def test_device_names_are_recognised(name: str, device: bool) -> None:
    assert is_device_name(name) is device


def test_a_part_that_is_far_too_long_is_not_remembered() -> None:
    sessions = MemoryUri.parse("viking://session/default")
    tracemalloc.start()
    try:
        for number in range(8):
            with pytest.raises(InvalidUri, match="over 255 bytes"):
                sessions.child(f"{number}😀" + "a" * 1_000_000)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 4_000_000
    composed = "가" * (PART_LIMIT_BYTES // 3)
    assert sessions.child(unicodedata.normalize("NFD", composed)).name == composed
