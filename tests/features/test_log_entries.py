"""The log of a day is Markdown that people read and edit, and every entry can be read back."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta, timezone

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memory_core.core.memory.uri import MemoryUri
from memory_core.features.daily_logs import KINDS, LogEntry, added_entry, entries, log_day, log_uri, new_entry, readable

DAY = date(2026, 5, 7)
MOMENT = datetime(2026, 5, 7, 14, 3, 12, tzinfo=timezone(timedelta(hours=8)))

_TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30) | st.sampled_from(
    [
        "- item",
        "# heading",
        "  indented",
        "",
        "<!-- {} -->",
        "-->",
        "14:05 late",
        "日志",
        "* * *",
        "```",
        '  <!-- {"at": 1} -->',
    ]
)
_TEXTS = st.lists(_TEXT, min_size=1, max_size=5).map("\n".join).filter(str.strip)
_LABEL = st.none() | st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=10)


@st.composite
def _entries(draw: st.DrawFn) -> LogEntry:
    return new_entry(
        draw(_TEXTS),
        MOMENT + timedelta(minutes=draw(st.integers(0, 500))),
        kind=draw(st.sampled_from(KINDS)),
        salience=draw(st.floats(0, 1)),
        category=draw(_LABEL),
        tool=draw(_LABEL),
        error=draw(_LABEL),
        project=draw(_LABEL),
        private=draw(st.booleans()),
    )


def with_entry(log: str | None, day: date, entry: LogEntry) -> str:
    """The log with one more entry at its end."""
    return (log or "") + added_entry(log, day, entry)


@given(st.lists(_entries(), min_size=1, max_size=4))
def test_what_was_appended_is_read_back(written: list[LogEntry]) -> None:
    log = added = None
    for entry in written:
        grown = with_entry(log, DAY, entry)
        added = added_entry(added, DAY, entry)
        assert grown == f"{log or ''}{added}"  # the end of a log is enough
        log = grown
    found = entries(log or "")
    assert [replace(entry, line=0, lines=1) for entry in found] == written
    lines = (log or "").split("\n")
    for entry in found:
        assert lines[entry.line].startswith(f"- {entry.time}")
        assert lines[entry.line + entry.lines - 1].startswith("  <!-- ")


@given(st.text(), _entries())
def test_whatever_stands_in_the_file_stays_and_the_new_entry_is_the_last(before: str, entry: LogEntry) -> None:
    assume(before and "\r" not in before)
    log = with_entry(before, DAY, entry)
    assert log.startswith(before)
    assert replace(entries(log)[-1], line=0, lines=1) == entry


def test_a_log_written_by_hand_is_a_log() -> None:
    log = "# Thursday\n\nA quiet day.\nNothing broke.\n\n- 9:05 met Lin\n- bought tea\n"
    log += "* 14:30 下午开会\n  讨论预算\n\n## Evening\nRead."
    found = entries(log)
    assert [(entry.time, entry.text) for entry in found] == [
        (None, "A quiet day.\nNothing broke."),
        ("09:05", "met Lin"),
        (None, "bought tea"),
        ("14:30", "下午开会\n讨论预算"),
        (None, "Read."),
    ]
    assert {entry.kind for entry in found} == {"event"}


def test_a_reader_gets_no_comments_but_what_they_say_of_kind_and_category() -> None:
    log = with_entry(None, DAY, new_entry("Moved it.\nTwice.", MOMENT, kind="reflection", category="工作"))
    log = with_entry(log, DAY, new_entry("秘密", MOMENT))
    assert [readable(entry) for entry in entries(log)] == [
        "- 14:03 [reflection, 工作] Moved it.\n  Twice.",
        "- 14:03 秘密",
    ]


def test_a_label_cannot_end_the_comment() -> None:
    log = with_entry(None, DAY, new_entry("Moved it.", MOMENT, category="--> <b>"))
    assert log.count("-->") == 1
    assert entries(log)[0].category == "--> <b>"


def test_a_line_written_below_an_entry_is_one_of_its_own() -> None:
    log = with_entry(None, DAY, new_entry("Moved it.", MOMENT)) + "又加了一行\n"
    assert [entry.text for entry in entries(log)] == ["Moved it.", "又加了一行"]


def test_a_comment_spoilt_by_hand_costs_its_facts_and_not_the_entry() -> None:
    (broken,) = entries("- 14:03 Moved it.\n  <!-- {broken} -->\n")
    assert broken.text.startswith("Moved it.")
    (odd,) = entries('- 14:03 Moved it.\n  <!-- {"kind": 7, "salience": true, "category": [], "at": "noon"} -->\n')
    assert (odd.text, odd.kind, odd.salience, odd.category, odd.at) == ("Moved it.", "event", 0.5, None, None)


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    for entry in entries(text):
        assert entry.text
        assert entry.lines >= 1


@pytest.mark.parametrize(
    ("uri", "day"),
    [
        ("viking://user/default/logs/2026-05-07.md", DAY),
        ("viking://user/default/logs/2026-02-30.md", None),
        ("viking://user/default/logs/notes.md", None),
        ("viking://user/default/memories/2026-05-07.md", None),
        ("viking://agent/default/logs/2026-05-07.md", None),
        ("viking://archive/user/default/logs/2026-05-07.md", None),
    ],
)
def test_a_log_is_known_by_its_place_and_name(uri: str, day: date | None) -> None:
    assert log_day(MemoryUri.parse(uri)) == day
    if day is not None:
        assert str(log_uri("default", day)) == uri


def test_blank_lines_below_an_entry_are_counted_once() -> None:
    blank = "\n" * 500_000
    (entry,) = entries(f"- 09:05 met Lin{blank}")
    assert (entry.text, entry.line, entry.lines) == ("met Lin", 0, 1)
