"""Differences and merges by lines: nothing lost, nothing forged."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.text.text_diff import edits, merge3, side_by_side, split_lines, unified, visible

LINES = st.lists(st.sampled_from(["a\n", "b\n", "中文\n", "\n", "@@ -1 +1 @@\n", "```\n", "x\r\n"]), max_size=12)
TEXTS = st.builds(lambda lines, end: "".join(lines) + end, LINES, st.sampled_from(["", "尾", "end"]))


@given(TEXTS, TEXTS)
def test_edits_make_the_one_text_of_the_other(before: str, after: str) -> None:
    lines = split_lines(before)
    assert "".join(lines) == before
    for edit in reversed(edits(lines, split_lines(after))):
        lines[edit.start : edit.end] = edit.lines
    assert "".join(lines) == after


@given(TEXTS, TEXTS)
def test_a_side_that_changed_nothing_gives_way_to_the_other(base: str, other: str) -> None:
    assert merge3(base, base, other) == other
    assert merge3(base, other, base) == other
    assert merge3(base, other, other) == other


def test_changes_in_different_lines_are_both_kept_and_of_one_line_refused() -> None:
    assert merge3("一\n二\n三\n", "一\n二\nthree\n", "one\n二\n三\n") == "one\n二\nthree\n"
    assert merge3("a\nb\n", "a\nb\nc\n", "a\n") == "a\nc\n"
    assert merge3("a\nb", "a\nb\nc", "z\nb") == "z\nb\nc"  # a last line without end never runs into the next
    assert merge3("a\nb\n", "a\nc\n", "a\nd\n") is None
    assert merge3("a\n", "a\nmine\n", "a\nyours\n") is None


@given(TEXTS, TEXTS, TEXTS)
def test_a_merge_is_the_same_from_either_side(base: str, ours: str, theirs: str) -> None:
    assert merge3(base, ours, theirs) == merge3(base, theirs, ours)


def test_a_diff_shows_what_was_removed_and_added_with_its_place() -> None:
    assert unified("同\n", "同\n") == ()
    assert unified("1\n2\n3\n", "1\n二\n3\n") == ("@@ -1,3 +1,3 @@", " 1", "-2", "+二", " 3")
    assert unified("", "new\n") == ("@@ -0,0 +1,1 @@", "+new")
    assert unified("a", "a\n") == ("@@ -1,1 +1,1 @@", "-a", "\\ no line feed at the end", "+a")


@given(TEXTS, TEXTS)
def test_every_line_of_a_diff_begins_with_a_mark_that_the_text_cannot_write(before: str, after: str) -> None:
    for line in unified(before, after):
        assert line[0] in "@ -+\\"
        assert len(line.splitlines()) == 1


def test_characters_that_move_a_cursor_or_end_a_line_are_shown_as_pictures() -> None:
    shown = "".join(unified("", "safe\r@@ -1 +1 @@\x1b[2J\u2028x\u202ey\n"))
    assert not set(shown) & set("\r\x1b\u2028\u202e")
    assert "␛" in shown


@given(TEXTS, TEXTS)
def test_each_column_holds_its_text_whole(before: str, after: str) -> None:
    rows = side_by_side(before, after, context=1_000)
    shown = [[visible(line.removesuffix("\n")) for line in split_lines(text)] for text in (before, after)]
    columns = [[side for row in rows if (side := getattr(row, name)) is not None] for name in ("left", "right")]
    if before == after:
        assert rows == ()
        return
    for lines, column in zip(shown, columns, strict=True):
        assert [side.line for side in column] == list(range(1, len(lines) + 1))
        assert [side.text.removesuffix(" \\ no line feed at the end") for side in column] == lines


@given(TEXTS, TEXTS)
def test_rows_and_what_they_skip_are_all_lines(before: str, after: str) -> None:
    rows = side_by_side(before, after, context=1)
    skipped = sum(row.count for row in rows)
    for name, text in (("left", before), ("right", after)):
        if rows:
            assert skipped + sum(getattr(row, name) is not None for row in rows) == len(split_lines(text))


def test_words_that_differ_are_marked_in_lines_that_have_something_in_common() -> None:
    assert [row.kind for row in side_by_side("abc def\n", "完全不同\n")] == ["removed", "added"]
    (row,) = side_by_side("用户喜欢用空格缩进\n", "用户喜欢用制表符缩进\n")
    assert row.left is not None
    assert row.left.parts == (("用户喜欢用", False), ("空格", True), ("缩进", False))
    (row,) = side_by_side("The user drinks tea.\n", "The user drinks coffee.\n")
    assert row.right is not None
    assert [part for part in row.right.parts if part[1]] == [("coffee", True)]


def test_thousands_of_differing_lines_are_compared_at_once() -> None:
    before = "".join(f"line {number}\n" for number in range(20_000))
    after = before.replace("line", "row")
    assert merge3(before, after, before) == after
    assert len(unified(before, after)) == 40_001
    assert len(side_by_side(before, after)) == 40_000


def test_of_a_long_difference_the_first_rows_are_shown_and_the_lines_of_the_others_counted() -> None:
    before = "".join(f"line {number}\n" for number in range(1_000))
    after = before.replace("line 5", "row 5")
    rows = side_by_side(before, after, most=10)
    assert rows[:10] == side_by_side(before, after)[:10]
    left = max(row.left.line for row in rows if row.left is not None)
    assert (len(rows), rows[10].kind, rows[10].count) == (11, "skipped", 1_000 - left)
    assert [row.count for row in side_by_side(before, after, most=0)] == [1_000]
    assert [row.count for row in side_by_side(before, before.replace("line 100", "row 100"), most=1)] == [1_000]
    assert side_by_side(before, before, most=0) == ()
    assert [row.kind for row in side_by_side("b\nc\n", "a\nb\nc\n", 0)] == ["added", "skipped"]


def test_of_rows_with_very_many_characters_few_are_shown_and_of_a_long_line_its_beginning() -> None:
    before, after = "a\n" * 100, "".join(f"{number} {'z' * 900}\n" for number in range(100))
    rows = side_by_side(before, after, most_chars=10_000)
    assert rows[:-1] == side_by_side(before, after)[: len(rows) - 1]
    assert 8_000 < sum(row.chars for row in rows) <= 10_000
    assert (rows[-1].kind, rows[-1].count) == ("skipped", 100 - sum(row.right is not None for row in rows))
    (row,) = side_by_side("", "\x7f" * 1_000_000, most_chars=10)
    assert row.right is not None
    assert row.right.text == "<U+007F>" * 100_000 + " … 900,000 more characters"
    assert [row.count for row in side_by_side(before, after, most_chars=0)] == [100]


def test_lines_that_are_everywhere_do_not_make_a_comparison_take_minutes() -> None:
    before, after = "q\n" + "a\n" * 1_480 + "z", "r\n" + "a\nb\n" * 740 + "y"
    began = time.process_time()
    rows = side_by_side(before, after)
    merged = merge3(before, after, before + "\nend")
    assert time.process_time() - began < 30.0  # it took a minute
    assert [row.left.text for row in rows if row.left is not None] == before.split("\n")
    assert [row.right.text for row in rows if row.right is not None] == after.split("\n")
    assert merged is None
