"""Extraction says what the texts say, word for word, and leaves out nothing but repetitions while there is room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.text.extractive_summary import condense, joined, keywords, names, numbers, sentences

KETTLE = "The kettle is red. It was bought in Leeds on 2024-03-05 for 35 euro. It is nice. It is rather nice."


def said(texts: list[str], limit: int = 10_000) -> list[str]:
    return [sentence for chosen in condense(texts, limit).chosen for sentence in chosen]


def test_sentences_end_where_english_and_chinese_ones_end() -> None:
    text = "See Dr. Brown, e.g. on v1.2.3! It holds 1.7 l.\n\n用户喜欢喝茶。不喝咖啡！他说：“不要。”然后走了。"
    assert sentences(text) == [
        "See Dr. Brown, e.g. on v1.2.3!",
        "It holds 1.7 l.",
        "用户喜欢喝茶。",
        "不喝咖啡！",
        "他说：“不要。”",
        "然后走了。",
    ]


def test_markdown_is_read_by_its_lines_and_wrapped_prose_by_its_sentences() -> None:
    code = "```py\na = 1\n\nb = 2\n```"
    text = f"# Kettle\n\nIt does\nnot whistle.\n\n- [ ] descale it\n  every month\n* red\n---\n{code}\nEnd."
    assert sentences(text) == ["Kettle", "It does not whistle.", "[ ] descale it every month", "red", code, "End."]
    assert joined([code, "End."]) == f"{code}\nEnd."


def test_texts_that_differ_in_a_number_or_a_name_are_two_facts() -> None:
    texts = [
        "Server A has 16 GB.",
        "Server B has 16 GB.",
        "Server B has 18 GB.",
        "服务器有十六核。",
        "服务器有十八核。",
    ]
    assert said(texts) == texts


def test_what_is_denied_is_not_what_is_affirmed() -> None:
    texts = ["She likes coriander.", "She does not like coriander.", "她喜欢香菜。", "她不喜欢香菜。"]
    assert said(texts) == texts


def test_sentence_said_before_in_another_spelling_is_said_once() -> None:
    condensed = condense(["Server A has 16 GB.", "server a has 16 gb", "服务器有内存。", "服務器有內存"], 1_000)
    assert condensed.chosen == (("Server A has 16 GB.",), (), ("服务器有内存。",), ())
    assert condensed.left_out == 0


def test_short_of_room_each_text_keeps_what_says_most_in_order() -> None:
    condensed = condense([KETTLE, "今天很好。用户不喜欢香菜，订单号是35017。天气很好。"], 70)
    assert condensed.chosen == (
        ("It was bought in Leeds on 2024-03-05 for 35 euro.",),
        ("用户不喜欢香菜，订单号是35017。",),
    )
    assert condensed.left_out == 5


def test_weightier_texts_come_first_where_not_all_have_room() -> None:
    texts = ["The door is green and wide.", "The gate is brown and tall."]
    assert said(texts, 30) == [texts[0]]
    assert condense(texts, 30, [0.1, 0.9]).chosen == ((), (texts[1],))


def test_single_sentence_over_the_bound_is_cut_and_says_so() -> None:
    (cut,) = said(["word " * 50], 40)
    assert len(cut) <= 40
    assert cut.endswith("…")


@given(st.lists(st.text(alphabet="ab 1。.!不n\n-`#", max_size=60), max_size=5), st.integers(5, 200))
def test_nothing_is_invented_or_said_twice_and_the_bound_holds(texts: list[str], limit: int) -> None:
    chosen = said(texts, limit)
    known = [sentence for text in texts for sentence in sentences(text)]
    assert sum(map(len, chosen)) <= limit
    assert len(set(chosen)) == len(chosen)
    assert all(sentence in known or sentence.endswith("…") for sentence in chosen)
    if sum(map(len, known)) <= limit:
        assert set(chosen) <= set(known)
        assert bool(chosen) == bool(known)


def test_numbers_are_found_in_digits_words_and_characters() -> None:
    assert numbers("3,000 rows on 2024-03-05 at 10:30, twice; １２个，十五天，三只猫") == {
        *("3000", "2024-03-05", "10:30", "twice", "12", "十五", "三")
    }


def test_names_are_found_in_both_languages() -> None:
    found = names('Uses PostgreSQL with Bob Miller at ACME. Likes "Blue Door". 小王在北京，李老师说好，孩子名叫安安。')
    assert {"postgresql", "bob", "miller", "acme", "blue door", "小王", "李老师", "安安"} <= found
    assert "uses" not in found
    assert "likes" not in found


def test_a_word_of_hundreds_of_letters_is_no_keyword() -> None:
    assert keywords(f"{'abcd' * 600} lighthouse {'x' * 64} {'y' * 65}") == ("lighthouse", "x" * 64)
