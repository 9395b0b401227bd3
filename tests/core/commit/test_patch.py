"""Patches: where a block fits, what it may touch, and when it must be refused."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from memory_core.core.commit.patch import apply_patch as apply
from memory_core.core.commit.patch import is_patch, opens_as_patch
from memory_core.core.errors import PatchRejected
from memory_core.core.memory.operations import SearchReplace

PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            ["a", "b", " ", "\t", "\n", "\r\n", "支付", "系统", "😀", "-->", '"', "“", "，", ",", "=======\n"]
        ),
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3),
    ),
    max_size=30,
).map("".join)


def one(search: str, replace: str, start_line: int | None = None) -> list[SearchReplace]:
    return [SearchReplace(search=search, replace=replace, start_line=start_line)]


def block(search: str, replace: str, head: str = "") -> str:
    lines = ["<<<<<<< SEARCH", *([head] if head else []), search, "=======", replace, ">>>>>>> REPLACE"]
    return "\n".join(lines)


def refused(original: str, patch: str | list[SearchReplace]) -> PatchRejected:
    with pytest.raises(PatchRejected) as caught:
        apply(original, patch)
    assert caught.value.hint
    assert len(caught.value.hint) <= 700
    return caught.value


# --- the forms of a patch


def test_plain_text_replaces_the_whole_field() -> None:
    assert apply("旧的内容", "new text\n=======\nunder a heading") == "new text\n=======\nunder a heading"
    assert apply("old", "") == ""


def test_block_replaces_only_what_search_matches() -> None:
    original = "# 支付系统\n- 使用 Redis 缓存\n- owner: Ann\n"
    assert apply(original, block("- 使用 Redis 缓存", "- 使用 Valkey 缓存")) == (
        "# 支付系统\n- 使用 Valkey 缓存\n- owner: Ann\n"
    )


def test_block_of_the_documented_form_with_start_line_and_rule_is_applied() -> None:
    patch = "<<<<<<< SEARCH\n:start_line:3\n-------\nsame\n=======\nthird\n>>>>>>> REPLACE\n"
    assert apply("same\nx\nsame\n", patch) == "same\nx\nthird\n"


def test_several_blocks_in_a_code_fence_are_applied_together() -> None:
    patch = f"```\n{block('one', '1')}\n\n{block('three', '3')}\n```\n"
    assert apply("one\ntwo\nthree", patch) == "1\ntwo\n3"


def test_marker_lines_may_have_trailing_blanks_and_crlf() -> None:
    patch = "<<<<<<< SEARCH  \r\nold\r\n======= \t\r\nnew\r\n>>>>>>> REPLACE\r\n"
    assert apply("an old hat", patch) == "an new hat"


def test_list_form_is_applied_verbatim() -> None:
    patch = [*one("b", "<<<<<<< SEARCH\n=======\n"), *one("c", "C")]
    assert apply("a b c", patch) == "a <<<<<<< SEARCH\n=======\n C"


@pytest.mark.parametrize(
    "patch",
    [
        "<<<<<<< SEARCH\nold\n=======\nnew",
        "<<<<<<< SEARCH\nold\n>>>>>>> REPLACE",
        "old\n=======\nnew\n>>>>>>> REPLACE",
        "<<<<<<< SEARCH\nold",
        ">>>>>>> REPLACE",
        "<<<<<<< SEARCH\nold\n=======\n<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE",
        "<<<<<<< SEARCH\n:start_line:two\nold\n=======\nnew\n>>>>>>> REPLACE",
        "Here is the patch:\n<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE",
        "<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE\n>>>>>>> REPLACE",
    ],
)
def test_malformed_patch_is_rejected_and_never_becomes_content(patch: str) -> None:
    assert is_patch(patch)
    assert "malformed" in refused("old", patch).message


def test_block_with_very_many_dividing_lines_is_refused_before_it_is_read_in_each_way() -> None:
    patch = "<<<<<<< SEARCH\n" + "=======\n" * 200_000 + ">>>>>>> REPLACE"
    assert "more than 20 lines that could divide it" in refused("a", patch).message


def test_markdown_and_git_conflict_lines_are_no_patch() -> None:
    assert not is_patch("Title\n=======\n-------\n")
    assert not is_patch("<<<<<<< HEAD\nours\n=======\ntheirs\n>>>>>>> main\n")
    assert not is_patch("the line `<<<<<<< SEARCH` opens a block")
    assert not is_patch("  <<<<<<< SEARCH")
    assert not is_patch("")


def test_prose_that_quotes_a_block_does_not_open_as_patch() -> None:
    quoted = block("a", "b")
    assert opens_as_patch(quoted)
    assert opens_as_patch(f"\n```diff\n{quoted}\n```")
    assert not opens_as_patch(f"补丁的格式：\n{quoted}")
    assert is_patch(f"补丁的格式：\n{quoted}")


# --- conflict marks inside the texts of a block


def test_replace_text_may_hold_a_heading_underline() -> None:
    patch = "<<<<<<< SEARCH\nTitle\n=======\nTitle\n=======\nbody\n>>>>>>> REPLACE"
    assert apply("Title", patch) == "Title\n=======\nbody"


def test_search_with_a_heading_underline_needs_the_list_form() -> None:
    original = "标题\n\n标题\n=======\n正文"
    assert apply(original, one("标题\n=======\n正文", "x")) == "标题\n\nx"
    refused(original, block("标题\n=======\n正文", "x"))


def test_block_that_divides_in_two_fitting_ways_is_rejected() -> None:
    original = "Title\n=======\nbody"
    patch = "<<<<<<< SEARCH\nTitle\n=======\nbody\n=======\nnew\n>>>>>>> REPLACE"
    assert "more than one way" in refused(original, patch).message


def test_replace_text_may_hold_git_conflict_marks() -> None:
    conflict = "<<<<<<< HEAD\nours\n=======\ntheirs\n>>>>>>> main"
    assert apply("x\ntodo\ny", block("todo", conflict)) == f"x\n{conflict}\ny"


def test_rule_that_is_a_line_of_the_text_is_matched_or_else_read_as_format() -> None:
    patch = "<<<<<<< SEARCH\n-------\nold\n=======\nnew\n>>>>>>> REPLACE"
    assert apply("a\nold\nb", patch) == "a\nnew\nb"
    refused("a\n-------\nold\nb", patch)


# --- which occurrence


def test_search_matching_twice_is_rejected_and_the_places_are_named() -> None:
    error = refused("苹果\n香蕉\n苹果\n", block("苹果", "梨"))
    assert "2 places" in error.message
    assert "1: 苹果" in error.hint
    assert "3: 苹果" in error.hint


def test_overlapping_occurrences_are_ambiguous() -> None:
    assert "2 places" in refused("aaa", one("aa", "b")).message


@pytest.mark.parametrize(("line", "expected"), [(1, "y\nb\nx\nd\n"), (3, "x\nb\ny\nd\n"), (9, "x\nb\ny\nd\n")])
def test_start_line_decides_exactly_or_by_the_nearest(line: int, expected: str) -> None:
    assert apply("x\nb\nx\nd\n", one("x", "y", line)) == expected


def test_start_line_as_near_to_two_occurrences_is_rejected() -> None:
    refused("x\nb\nx\n", one("x", "y", 2))


def test_two_occurrences_on_the_start_line_are_rejected() -> None:
    refused("x x\nb\nx\n", one("x", "y", 1))


def test_wrong_start_line_does_no_harm_to_a_unique_match() -> None:
    assert apply("a\nb\nc", one("b", "B", 99)) == "a\nB\nc"


def test_every_block_is_located_in_the_original() -> None:
    assert apply("a b", [*one("a", "b"), *one("b", "c")]) == "b c"


def test_line_numbers_count_from_the_original_whatever_other_blocks_insert() -> None:
    patch = [*one("top", "top\n1\n2\n3"), *one("x", "y", 4)]
    assert apply("top\nx\nm\nx", patch) == "top\n1\n2\n3\nx\nm\ny"


def test_overlapping_blocks_are_rejected() -> None:
    assert "same text" in refused("abcdef", [*one("abcd", "1"), *one("cdef", "2")]).message
    refused("abc", [*one("abc", "1"), *one("abc", "1")])


def test_touching_blocks_are_both_applied() -> None:
    assert apply("上海北京", [*one("北京", "2"), *one("上海", "1")]) == "12"


# --- failures known from an earlier system


def test_exact_and_tolerant_block_together_touch_only_their_spans() -> None:
    original = "intro  keeps   its blanks \nHe said “yes” today.\n\n  indented\t\n结尾，不变。  "
    patch = "\n".join([block("indented", "INDENTED"), block('said "yes"', 'said "no"')])
    assert apply(original, patch) == ('intro  keeps   its blanks \nHe said "no" today.\n\n  INDENTED\t\n结尾，不变。  ')


def test_one_unmatched_block_rejects_the_whole_patch() -> None:
    error = refused("one\ntwo", [*one("one", "1"), *one("three", "3")])
    assert error.message.startswith("Block 2 of 2")


def test_tolerant_match_of_a_line_prefix_keeps_the_rest_of_the_line() -> None:
    assert apply("- likes   green tea, and cake", one("- likes green tea", "- likes oolong")) == (
        "- likes oolong, and cake"
    )


def test_tolerant_match_in_two_places_is_rejected_even_with_a_start_line() -> None:
    original = "say  “hi”\nsay   “hi”\n"
    for start_line in (None, 1):
        assert "resembles 2 places" in refused(original, one('say "hi"', "bye", start_line)).message


@pytest.mark.parametrize("replace", ["", " \t", "\n"])
def test_near_miss_never_deletes(replace: str) -> None:
    error = refused("keep “this” line\n", one('keep "this" line', replace))
    assert "1: keep “this” line" in error.hint


def test_so_many_blocks_that_fit_nearly_are_refused_that_others_need_not_wait_for_them() -> None:
    original = "".join(f"k{number:05} “q”\n" for number in range(1_000))
    near = [SearchReplace(search=f'k{number:05} "q"', replace=f"K{number}") for number in range(1_000)]
    assert apply(original, near[:10]).startswith("K0\nK1\n")
    assert "too many blocks" in refused(original, near).message
    exact = [SearchReplace(search=f"k{number:05} “q”", replace=f"K{number}") for number in range(1_000)]
    assert apply(original, exact[:500]).startswith("K0\nK1\n")
    assert "too many blocks" in refused(original, exact).message


def test_many_long_blocks_that_fit_nearly_are_applied() -> None:
    original = "".join(f"k{number:02} " + "“q” " * 450 + "\n" for number in range(30))
    near = [SearchReplace(search=f"k{number:02} " + '"q" ' * 450, replace=f"K{number}") for number in range(30)]
    assert apply(original, near) == "".join(f"K{number}\n" for number in range(30))


def test_long_search_that_stands_in_many_places_costs_as_much_as_it_is_long() -> None:
    original = "a\n" * 10_999 + "b" * 200_000
    assert "too many blocks" in refused(original, one("a\n" * 10_000, "x", 1) * 146).message


def test_ambiguous_exact_match_is_not_settled_by_a_tolerant_one() -> None:
    refused("a b\na b\na  b", one("a b", "c"))


# --- tolerance


@pytest.mark.parametrize(
    ("original", "search", "expected"),
    [
        ("x\ta  \t b y", "a b", "x\tNEW y"),
        ("a \nb", "a\nb", "NEW"),
        ("a\nb", "a  \nb", "NEW"),
        ("it’s “ok”", 'it\'s "ok"', "NEW"),
        ("他说「好」。", "他说“好”。", "NEW"),
        ("价格:100元,不含税(9%)", "价格：100元，不含税（9%）", "NEW"),
        ("名称　值", "名称 值", "NEW"),
        ("end of line\nnext", "end of line  ", "NEW\nnext"),
        ("if x:\n\treturn 1\n", "if x:\n    return 1", "NEW\n"),
    ],
)
def test_blanks_quotes_and_width_are_tolerated(original: str, search: str, expected: str) -> None:
    assert apply(original, one(search, "NEW")) == expected


@pytest.mark.parametrize(
    ("original", "search"),
    [("ab", "a b"), ("Tea", "tea"), ("支付系统", "支付 系统"), ("a-b", "a_b"), ("résumé", "resume"), ("a", " ")],
)
def test_other_differences_are_not_tolerated(original: str, search: str) -> None:
    refused(original, one(search, "NEW"))


def test_tolerant_match_keeps_the_indentation_both_texts_share() -> None:
    assert apply("a:\n\t- “x”\n", one('    - "x"', "    - y")) == "a:\n\t- y\n"


def test_pattern_characters_in_search_are_literal() -> None:
    assert apply("cost  (a.b)* = [1]", one("cost (a.b)* = [1]", r"\1 \g<0>")) == r"\1 \g<0>"
    refused("cost  (axb)", one("cost (a.b)", "y"))


# --- line endings


def test_crlf_outside_the_span_stays_and_new_lines_follow_it() -> None:
    assert apply("a\r\nb\r\nc\r\n", one("a\nb", "1\n2")) == "1\r\n2\r\nc\r\n"
    assert apply("a\r\nb\r\n", one("\nb", "\nB")) == "a\r\nB\r\n"


def test_tolerant_match_in_crlf_text_writes_crlf_and_takes_the_pair_whole() -> None:
    assert apply("a  “b”\r\nc", one('a "b"', "1\n2")) == "1\r\n2\r\nc"
    assert apply("a\r\nb  c\r\n", one("\nb c", "|b c")) == "a|b c\r\n"


def test_crlf_patch_on_lf_text_leaves_lf() -> None:
    assert apply("一\n二\n三", block("一\r\n二", "1\r\n2")) == "1\n2\n三"


def test_mixed_line_endings_outside_the_span_stay() -> None:
    assert apply("a\r\nb\nc\r\nd", one("b\nc", "B\nC")) == "a\r\nB\nC\r\nd"
    assert apply("a\r\nb\nc", one("a\nb", "x")) == "x\nc"


# --- insertion and deletion


def test_empty_search_fills_an_empty_field_and_adds_below_a_text() -> None:
    added = block("", "第一行").replace("SEARCH\n\n", "SEARCH\n")
    assert apply("", added) == "第一行"
    assert apply("text", added) == "text\n第一行"
    assert apply("a\r\n", one("", "more")) == "a\r\nmore\r\n"
    assert "start_line" in refused("text", one("", "more", 4)).hint
    refused("text", one("", ""))


@pytest.mark.parametrize(
    ("original", "line", "expected"),
    [
        ("a\nb\n", 1, "N\na\nb\n"),
        ("a\nb\n", 2, "a\nN\nb\n"),
        ("a\nb\n", 3, "a\nb\nN\n"),
        ("a\nb", 3, "a\nb\nN"),
        ("a\r\nb", 2, "a\r\nN\r\nb"),
    ],
)
def test_empty_search_with_start_line_inserts_before_that_line(original: str, line: int, expected: str) -> None:
    assert apply(original, one("", "N", line)) == expected
    assert apply(original, f"<<<<<<< SEARCH\n:start_line:{line}\n=======\nN\n>>>>>>> REPLACE") == expected


@pytest.mark.parametrize("line", [-1, 0, 4])
def test_insertion_outside_the_text_is_rejected(line: int) -> None:
    refused("a\nb\n", one("", "N", line))


def test_block_with_no_replace_line_removes_whole_lines_and_leaves_none_empty() -> None:
    patch = "<<<<<<< SEARCH\n- b\n=======\n>>>>>>> REPLACE"
    assert apply("- a\n- b\n- c\n", patch) == "- a\n- c\n"
    assert apply("- a\n- b", patch) == "- a\n"
    assert apply("- a\n- b\n- c\n", patch.replace("\n", "\r\n")) == "- a\n- c\n"
    assert apply("1 - b 2", patch) == "1  2"
    assert apply("1 - b\n2", patch) == "1 \n2"
    two = "\n".join([patch, patch.replace("b", "c")])
    assert apply("- a\n- b\n- c\n", two) == "- a\n"


def test_list_form_deletes_exactly_its_search() -> None:
    assert apply("a\nb\nc", one("b", "")) == "a\n\nc"


# --- hints


def test_miss_names_the_closest_lines_with_numbers() -> None:
    original = "# 项目\n部署使用 Docker 和 Kubernetes\n负责人：王芳\n"
    error = refused(original, block("部署使用 Docker 与 Swarm", "x"))
    assert "2: 部署使用 Docker 和 Kubernetes" in error.hint
    assert "负责人" not in error.hint


def test_hint_is_found_whatever_the_number_of_lines_that_do_stand_in_the_text() -> None:
    lines = [f"line {number} of the deployment" for number in range(300)]
    error = refused("\n".join(lines), one("\n".join([*lines[:250], "line 251 of the deployments"]), "x"))
    assert "252: line 251 of the deployment" in error.hint
    assert "is not in the field" in refused("a" * 200_000 + "zb", one("zb\n" * 1_000_000 + "q", "x")).message


def test_hint_shows_the_resembling_part_of_a_very_long_line() -> None:
    original = "甲" * 3_000 + "数据库是 PostgreSQL 十六" + "乙" * 3_000
    assert "数据库是 PostgreSQL 十六" in refused(original, one("数据库是 PostgreSQL 十五", "x")).hint


def test_miss_in_an_empty_field_asks_for_plain_text() -> None:
    assert "plain string" in refused("", one("a", "b")).hint


# --- properties


@given(prefix=PIECES, middle=PIECES, suffix=PIECES, replace=PIECES)
@example(prefix="a\r\n", middle="-->", suffix="\r\n", replace="😀")
@example(prefix="", middle="支付系统", suffix="", replace="")
def test_unique_exact_substring_changes_only_its_span(prefix: str, middle: str, suffix: str, replace: str) -> None:
    original = prefix + middle + suffix
    assume(middle)
    assume(original.find(middle) == original.rfind(middle) == len(prefix))
    # A span that ends between the halves of CRLF, or line endings that are adapted, have tests of their own.
    assume("\r" not in original + replace)
    assert apply(original, one(middle, replace)) == prefix + replace + suffix


@given(lines=st.lists(st.sampled_from(["a", "支付", "", "  x", "“q”", "-->"]), min_size=1, max_size=8), data=st.data())
def test_crlf_text_stays_crlf_whatever_one_line_becomes(lines: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(lines) - 1))
    lines[at] = "unique 独一"
    replace = data.draw(st.lists(st.sampled_from(["n", "新", ""]), min_size=1, max_size=3))
    result = apply("\r\n".join(lines), one("unique 独一", "\n".join(replace)))
    # A text of one line has no line ending to follow.
    eol = "\r\n" if len(lines) > 1 else "\n"
    assert result == eol.join([*lines[:at], eol.join(replace), *lines[at + 1 :]])


BLANK = "[ \\t\\u00a0\\u2000-\\u200a\\u202f\\u3000]"
TWINS = ('"“”', ",，")


def near_pattern(search: str) -> str:
    """What fits ``search`` nearly, written as one pattern."""
    parts = []
    for token in re.finditer(rf"(?s)(?P<line>{BLANK}*\r?\n)|(?P<blank>{BLANK}+)|.", search):
        first, last = token.start() == 0, token.end() == len(search)
        if token.lastgroup == "line":
            parts.append(r"(?<!\r)\r?\n" if first else rf"{BLANK}*\r?\n")
        elif token.lastgroup == "blank":
            blanks = rf"(?<!{BLANK}){BLANK}+" if first else f"{BLANK}+"
            parts.append(rf"(?:{blanks}|(?=\r?(?:\n|\Z)))" if last else blanks)
        else:
            parts.append(next((f"[{twins}]" for twins in TWINS if token[0] in twins), re.escape(token[0])))
    return f"(?=({''.join(parts)}))"


ROUGH = st.lists(
    st.sampled_from(["a", "b", " ", "  ", "\t", "\u3000", "\n", " \n", "\r\n", '"', "“", ",", "，"]), max_size=25
).map("".join)


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # most blocks fit exactly
@given(data=st.data(), original=ROUGH)
def test_a_block_fits_nearly_exactly_where_its_pattern_does(data: st.DataObject, original: str) -> None:
    start = data.draw(st.integers(0, len(original)))
    search = original[start : start + data.draw(st.integers(1, 9))].strip("\r")
    for old, new in data.draw(
        # each may double the blanks, and a block of more than 2,000 characters fits exactly only
        st.lists(st.sampled_from([(" ", "  "), ("  ", " "), ('"', "“"), (",", "，"), (" ", "\t")]), max_size=7)
    ):
        search = search.replace(old, new)
    search += data.draw(st.sampled_from(["", " "]))
    assume(search.strip() and search.replace("\r\n", "\n") not in original.replace("\r\n", "\n"))
    spans = [match.span(1) for match in re.finditer(near_pattern(search), original)]
    if len(spans) == 1:
        begin, end = spans[0]
        assert apply(original, one(search, MARK)) == original[:begin] + MARK + original[end:]
    else:
        assert ("resembles" if spans else "is not in the field") in refused(original, one(search, MARK)).message


MARK = "\ue000new\ue000"
QUOTES = str.maketrans(
    {**dict.fromkeys("“”「」『』«»„‟〝〞｢｣", '"'), **dict.fromkeys("‘’‚‛", "'"), "。": ".", "｡": "."}
)


def folded(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).translate(QUOTES).split())


@given(data=st.data(), original=PIECES, line=st.none() | st.integers(-1, 40))
def test_whatever_is_replaced_is_one_span_that_says_what_search_says(
    data: st.DataObject, original: str, line: int | None
) -> None:
    start = data.draw(st.integers(0, len(original)))
    search = original[start : start + data.draw(st.integers(1, 8))]
    for old, new in data.draw(
        st.lists(st.sampled_from([(" ", "  "), ('"', "“"), (",", "，"), ("\r\n", "\n"), ("a", "b")]))
    ):
        search = search.replace(old, new)
    assume(search)
    try:
        result = apply(original, one(search, MARK, line))
    except PatchRejected:
        return
    before, found, after = result.partition(MARK)
    assert found
    assert original.startswith(before)
    assert original.endswith(after)
    span = original[len(before) : len(original) - len(after)]
    assert folded(span) == folded(search)


@given(original=PIECES, blocks=st.lists(st.tuples(PIECES, PIECES), max_size=3))
def test_block_with_a_foreign_search_rejects_whatever_else_fits(original: str, blocks: list[tuple[str, str]]) -> None:
    patch = [SearchReplace(search=search, replace=replace) for search, replace in blocks]
    with pytest.raises(PatchRejected):
        apply(original, [*patch, SearchReplace(search="\ue000不在\ue000", replace="x")])


@given(text=PIECES)
def test_any_text_without_marker_lines_replaces_the_field(text: str) -> None:
    assume(not is_patch(text))
    assert apply("old", text) == text
