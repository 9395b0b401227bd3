"""File names: meaning is kept, every platform can hold them, twins are recognised."""

from __future__ import annotations

import subprocess
import sys
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memory_core.core.memory.names import (
    LIMIT_BYTES,
    first_words,
    fit,
    fold,
    key_of,
    render,
    short_hash,
    summary_line,
)
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.text.normalization import simplified

VALUES = st.text(max_size=40) | st.lists(
    st.sampled_from(
        [
            *("../", "..", ".", "/", "\\", "C:", "NUL", "con", "lpt1.", " ", "  ", "支付系统", "😀"),
            *("👨\u200d👩\u200d👧", "é", "ﬁ", "\x00", "\n", "\u2028", "�", "%2f", "%00", "％", "＼", "﹨"),
            *("．．", "‥", "-", "_", ".md", "~", "字" * 60, "x" * 300),
        ]
    ),
    max_size=6,
).map("".join)
TEMPLATES = st.sampled_from(["{a}.md", "{a}_{b}.md", "{a} - {b}.md", "v{a}.md", "log-{a}-{b}-end.md", "profile.md"])
DIRECTORY = MemoryUri(("user", "default", "memories"))


@given(TEMPLATES, VALUES, VALUES)
def test_any_value_gives_a_name_that_a_uri_can_hold(template: str, a: str, b: str) -> None:
    name = render(template, {"a": a, "b": b})
    assert DIRECTORY.child(name).name == name
    assert name.endswith(".md")
    assert not name.startswith((".", " "))
    assert unicodedata.is_normalized("NFC", name)


@given(VALUES)
def test_every_name_leaves_room_for_a_collision_suffix(value: str) -> None:
    name = render("{a}.md", {"a": value})
    twin = fit(name.removesuffix(".md"), ".md", "~" + short_hash(value))
    assert len(name.encode()) <= LIMIT_BYTES
    assert len(twin.encode()) <= LIMIT_BYTES
    assert DIRECTORY.child(twin).name == twin
    assert fold(twin) != fold(name)


@given(VALUES)
def test_rendering_a_name_again_changes_nothing(value: str) -> None:
    name = render("{a}.md", {"a": value})
    assert render("{a}.md", {"a": name.removesuffix(".md")}) == name


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("Python code style", "Python code style.md"),
        ("支付系统", "支付系统.md"),
        ("[Problem] → [Solution]", "[Problem] → [Solution].md"),
        ("  spaced \n out ", "spaced out.md"),
        ("a/b\\c:d*e", "a-b-c-d-e.md"),
        ("../../etc/passwd", "-..-etc-passwd.md"),
        ("NUL", "_NUL.md"),
        ("con.fig", "_con.fig.md"),
        (".hidden.", "hidden.md"),
        ("cafe\u0301", "caf\u00e9.md"),
        ("100% sure", "100% sure.md"),
        ("", "untitled.md"),
        ("...", "untitled.md"),
        (None, "untitled.md"),
        (7, "7.md"),
    ],
)
def test_name_keeps_its_meaning(value: object, name: str) -> None:
    assert render("{a}.md", {"a": value}) == name


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"a": "2026-03-17", "b": "评审"}, "2026-03-17_评审.md"),
        ({"b": "评审"}, "评审.md"),
        ({"a": "2026-03-17"}, "2026-03-17.md"),
        ({"a": None, "b": " . "}, "untitled.md"),
        ({"a": "", "b": "x"}, "x.md"),
    ],
)
def test_empty_part_leaves_with_its_separator(values: dict[str, object], name: str) -> None:
    assert render("{a}_{b}.md", values) == name


def test_middle_part_leaves_one_separator() -> None:
    assert render("{a}_{b}_{c}.md", {"a": "x", "c": "z"}) == "x_z.md"


@pytest.mark.parametrize("char", ["x", "字", "😀", "é"])
def test_long_name_is_cut_by_whole_characters_and_stays_distinct(char: str) -> None:
    names = {render("{a}.md", {"a": char * 400 + end}) for end in ("甲", "乙", "one", "two")}
    assert len(names) == 4
    for name in names:
        assert len(name.encode("utf-8")) <= LIMIT_BYTES
        assert name.startswith(char * (200 // len(char.encode())))
        assert "\ufffd" not in name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Redis", "REDIS"),
        ("Straße", "STRASSE"),
        ("cafe\u0301", "caf\u00e9"),
        ("ＡＢＣ１２", "abc12"),
        ("ﬁle", "FILE"),
        ("ｶﾞｲﾄﾞ", "ガイド"),
        ("\u1e9b\u0323", "\u1e69"),
        ("\u0345α", "ια"),
    ],
)
def test_twins_have_one_folded_form_and_one_key(one: str, other: str) -> None:
    assert fold(one) == fold(other)
    assert key_of({"k": one}, ("k",)) == key_of({"k": f"  {other}\t"}, ("k",))


@pytest.mark.parametrize(
    ("one", "other"),
    [("A B", "AB"), ("a-b", "a_b"), ("甲", "乙"), ("画线", "划线"), ("沈阳", "沉阳"), ("覆写", "复写")],
)
def test_other_wording_is_another_memory(one: str, other: str) -> None:
    assert key_of({"k": one}, ("k",)) != key_of({"k": other}, ("k",))


@pytest.mark.parametrize(
    ("traditional", "simple"),
    [
        ("支付系統", "支付系统"),
        ("臺北的麵店", "台北的面店"),
        ("頭髮與發票", "头发与发票"),
        ("裡外裏", "里外里"),
        ("計畫", "计划"),
        ("專案規畫", "专案规划"),
        ("瞭解藉口", "了解借口"),
        ("回覆與反覆", "回复与反复"),
        ("顯著", "显着"),
        ("項鍊", "项链"),
        ("沈沒成本", "沉没成本"),
        ("傢俱", "家具"),
        ("乾隆", "乾隆"),
        ("薴", "苎"),
        ("Café 預算 2026", "CAFÉ  预算 ２０２６"),
    ],
)
def test_traditional_and_simplified_writing_give_one_key(traditional: str, simple: str) -> None:
    assert key_of({"k": traditional}, ("k",)) == key_of({"k": simple}, ("k",))


def test_a_file_name_keeps_the_writing_it_was_given() -> None:
    assert render("{k}.md", {"k": "支付系統"}) == "支付系統.md"
    assert fold("支付系統") != fold("支付系统")


HAN = st.text(st.sampled_from("計畫规画反覆反復瞭著沈沒船項鍊家傢俱乾干薴苧苎 aＡ\u1e9b支付系統系统"), max_size=12)


@given(HAN | VALUES, HAN | VALUES)
def test_a_key_is_final_and_a_stored_older_key_becomes_the_present_one(a: str, b: str) -> None:
    key = key_of({"a": a, "b": b}, ("a", "b"))
    older = "\x1f".join(" ".join(fold(text).split()) for text in (a, b))
    assert simplified(older) == key
    assert simplified(key) == key
    first, second = key.split("\x1f")
    assert key_of({"a": first, "b": second}, ("a", "b")) == key


@given(HAN, HAN)
def test_a_word_has_one_form_whatever_words_stand_beside_it(a: str, b: str) -> None:
    whole = key_of({"k": f"{a} {b}"}, ("k",))
    assert whole == " ".join(key_of({"k": part}, ("k",)) for part in (a, b) if part.strip())


def test_many_threads_fold_alike_from_the_first_call_on() -> None:
    script = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from memory_core.core.text.normalization import simplified\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    print(len(set(pool.map(simplified, ['支付系統計畫'] * 200))))\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, encoding="utf-8")
    assert run.stdout.strip() == "1"


@given(st.text(st.characters(exclude_characters="\ufdfa\ufdfb"), max_size=20))
def test_folding_ignores_unicode_form_and_case_and_is_final(name: str) -> None:
    folded = fold(name)
    assert fold(folded) == folded
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert fold(unicodedata.normalize(form, name)) == folded
    assert fold(unicodedata.normalize("NFC", name).casefold()) == folded


@given(VALUES, VALUES, VALUES)
def test_fields_cannot_run_into_each_other_in_a_key(a: str, b: str, c: str) -> None:
    assume(" ".join(fold(a).split()) != " ".join(fold(c).split()))
    assert key_of({"a": a, "b": b}, ("a", "b")) != key_of({"a": c, "b": b}, ("a", "b"))
    joined = key_of({"a": a + "\x1f" + b, "b": ""}, ("a", "b"))
    assert joined.count("\x1f") == 1


def test_key_of_a_missing_field_is_the_key_of_an_empty_one() -> None:
    assert key_of({}, ("a",)) == key_of({"a": ""}, ("a",)) == key_of({"a": None}, ("a",))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("My landlord is called Mr. Gruber. He is 60.", "My landlord is called Mr. Gruber"),
        ("Use Python 3.11, e.g. with uv. Never pip.", "Use Python 3.11, e.g. with uv"),
        ("Dr. Ana Ruiz sees the user at 3 p.m. on Mondays.", "Dr. Ana Ruiz sees the user at 3 p.m. on Mondays"),
        ("See No. 5 for that. Then go on.", "See No. 5 for that"),
        ("No. I want tea.", "No"),
        ("房东姓 J. K. 罗，住在楼上。他很老。", "房东姓 J. K. 罗，住在楼上"),
        (
            "I like tea, and coffee when it rains, and cake on every second Sunday.",
            "I like tea, and coffee when it rains…",
        ),
        (
            "The user prefers that all of the answers be written in the style of a letter",
            "The user prefers that all of the answers be written…",
        ),
        (
            "我喜欢苹果、梨、桃子等水果，" * 5 + "真的。",
            "我喜欢苹果、梨、桃子等水果，" * 3 + "我喜欢苹果、梨、桃子等水果…",
        ),
        ("x" * 100, "x" * 59 + "…"),
    ],
)
def test_a_name_made_of_a_text_is_a_whole_phrase(text: str, name: str) -> None:
    assert first_words(text) == name


@given(st.text(max_size=300), st.integers(8, 80))
def test_a_cut_name_says_so_and_keeps_its_limit(text: str, limit: int) -> None:
    for made in (first_words(text, limit), summary_line(text, limit)):
        assert len(made) <= limit
        assert "\n" not in made
    flat = " ".join(text.split())
    assert summary_line(text, limit) == flat if len(flat) <= limit else summary_line(text, limit).endswith("…")
