"""The language of a conversation follows what its users write; small talk asks for no memories, all else might."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.memory.message import Message, language_of
from memory_core.core.text import language
from memory_core.core.text.language import (
    UNDECIDED,
    is_small_talk,
    other_person,
    prose,
    sentences,
    without_machine_text,
)
from memory_core.core.text.word_table import word_pattern

TRACEBACK = (
    'Traceback (most recent call last):\n  File "the/of/is.py", line 3, in to\nValueError: it is not the one to do'
)
LANGUAGES = {
    "English": "Fix the failing test in the parser|thanks!|How do I say 我明天要去北京开会 in Chinese?"
    "|What does Привет mean in English please?",
    "Chinese": "你好|OK 好的|fix 一下 CI 的 build error in GitHub Actions",
    "Chinese (Simplified)": "请帮我写一个测试|帮我看下这个 Python traceback|优の良品很好吃"
    f"|帮我看下这个报错：\n```\n{TRACEBACK}\n```|帮我看下这个报错：\n{TRACEBACK}",
    "Chinese (Traditional)": "請幫我寫一個測試",
    "Japanese": "今日は天気がいいですね|テストを直してください",
    "Korean": "한국어로 답해 주세요",
    "Russian": "Привет, помоги мне",
    "Ukrainian": "Привіт, допоможи мені, її немає",
    "Arabic": "مرحبا كيف حالك",
    "Persian": "سلام، چطور کمک می‌کنی",
    "Hebrew": "שלום מה שלומך",
    "Greek": "Γειά σου, τι κάνεις",
    "Thai": "สวัสดีครับ",
    "Hindi": "नमस्ते आप कैसे हैं",
    "Spanish": "¿Puedes ayudarme con este código?",
    "French": "Peux-tu m'aider avec ce code ?",
    "German": "Kannst du mir bitte mit dem Code helfen?",
    "Portuguese": "Você pode me ajudar com este código?",
    "Italian": "Puoi aiutarmi con questo codice?",
    UNDECIDED: "Jak se máte, potřebuji pomoc s kódem|deploy staging|https://example.com/the/of/and/to?is=it"
    "|`the is of to`|👍👍|",
}


@pytest.mark.parametrize(
    ("text", "language"), [(text, language) for language, texts in LANGUAGES.items() for text in texts.split("|")]
)
def test_a_message_has_its_language(text: str, language: str) -> None:
    assert language_of([Message("user", text)]) == language


def test_the_users_messages_decide_not_the_answers_or_tools() -> None:
    talk = [
        Message("system", "You are the helper of the user. " * 20),
        Message("user", "帮我查一下天气"),
        Message("assistant", "Sure, here is the weather of the day. " * 5),
        Message("tool", "the weather is fine and it will be so"),
    ]
    assert language_of(talk) == "Chinese (Simplified)"


def test_most_of_the_users_talk_decides() -> None:
    talk = [Message("user", text) for text in ("What is the plan?", "And who is on the team?", "好的")]
    assert language_of(talk) == "English"


def test_where_users_do_not_tell_everyone_does_but_prompts_and_tools() -> None:
    assert language_of([Message("user", "ok"), Message("assistant", "文件已经保存。")]) == "Chinese (Simplified)"
    assert language_of([Message("tool", "文件已经保存。"), Message("system", "请用中文")]) == UNDECIDED
    assert language_of([]) == UNDECIDED


def test_a_long_conversation_is_not_read_whole_for_its_language() -> None:
    beginning = [Message("user", "We go to the market in the morning.")] * 500
    assert language_of([*beginning, *[Message("user", "我们早上去市场买菜。")] * 2_000]) == "English"


def test_a_long_paste_does_not_outweigh_the_question_around_it() -> None:
    pasted = "The quick brown fox jumps over the lazy dog. " * 200
    asked = "请帮我总结下面的文章，用三句话说明它的主要观点和结论。" * 3
    assert language_of([Message("user", f"{asked}\n{pasted}\n{asked}")]) == "Chinese (Simplified)"


def test_prose_is_without_code_quotations_and_logs() -> None:
    text = (
        "看这里 `code` 和 https://a.b/c 以及 /usr/local/bin/x：\n```py\nx = 1\n```\n> quoted\n    indented\n"
        "2026-05-11 10:00 log\n他说“不要”。<b>bold</b>"
    )
    assert prose(text).split() == ["看这里", "和", "以及", "：", "他说", "。"]


TAGS = [
    "<a>",
    "</a>",
    '<b x="1">',
    "</b>",
    "<ns:c>",
    "</ns:c>",
    "<a\n>",
    "<br/>",
    "<!--",
    "-->",
    "<",
    ">",
    "</",
    "x y",
    "\n",
    "-",
]


@given(st.lists(st.sampled_from([*TAGS, "z" * 700, "z" * 1_300]), max_size=14).map("".join))
def test_markup_goes_with_what_is_in_its_elements_when_they_end_soon(text: str) -> None:
    element = r"(?s)<([A-Za-z][\w:-]{0,60})\b[^<>]{0,500}>.{0,2000}?</\1>"
    markup = rf"{element}|<!--.{{0,2000}}?-->|</?[A-Za-z][^<>\n]{{0,500}}>"
    assert without_machine_text(text) == word_pattern(language.__file__, "log_line").sub(
        "\n", re.sub(markup, "\n", text)
    )


def test_spoken_text_keeps_what_is_inside_a_sentence() -> None:
    assert without_machine_text("Use `uv`, not \"pip\".\n```\nx\n```\n- [ ] 写文档").split() == [
        "Use", "`uv`,", "not", '"pip".', "-", "[", "]", "写文档",
    ]  # fmt: skip


def test_sentences_end_at_marks_and_line_breaks() -> None:
    assert sentences("It is v1.2 here! 你好。“真的？”好\nnext… e.g. this") == [
        "It is v1.2 here!", "你好。", "“真的？”", "好", "next…", "e.g. this",
    ]  # fmt: skip


@given(st.text(max_size=500))
def test_sentences_lose_nothing_but_space(text: str) -> None:
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


@given(st.lists(st.builds(Message, st.sampled_from(["user", "assistant"]), st.text(max_size=80)), max_size=5))
def test_any_conversation_has_an_answer(talk: list[Message]) -> None:
    assert language_of(talk)


def listed(block: str) -> list[str]:
    """The entries of a block, parted by bars and line ends."""
    return block.replace("\n", "|").split("|")


SMALL = listed("""\
hi|Hello there!|Good morning everyone|how are you?|what’s up?|thanks|Thanks a lot 😊|ok|okkkk|OK, sounds good 👍
got it, thanks again and bye|hahaha that's great|hmm|see you tomorrow!|👍|:)|🎉🎉|你好|在吗？|好的|谢谢！|謝謝你
嗯嗯|辛苦了|哈哈哈哈|好的，谢谢，再见～|嗯嗯好的谢谢啦|晚安🌙|ok 谢谢""")
SERIOUS = listed("""\
thanks, and what was the server's IP?|ok do it|go on|again|yes|no|yes please|ok?|really?|?|hi Lin
thanks for the recipe|great, book it|ok 3|+1|666|ok and|nice server|help|stop|好的，那我的航班呢|继续|可以|是的
好的，明天九点|谢谢你帮我订机票|谢谢小明|好吗？|你呢|在哪|再来一次|一|спасибо, где мой ключ""")


@pytest.mark.parametrize("text", SMALL)
def test_greetings_thanks_and_the_like_are_small_talk(text: str) -> None:
    assert is_small_talk(text)


@pytest.mark.parametrize("text", [*SERIOUS, "", " "])
def test_a_message_with_anything_else_in_it_is_not(text: str) -> None:
    assert not is_small_talk(text)


@given(st.sampled_from([text for text in SMALL if "?" not in text and "？" not in text]), st.sampled_from(SMALL))
def test_two_pieces_of_small_talk_are_small_talk(first: str, second: str) -> None:
    assert is_small_talk(f"{first} {second}")


@given(
    st.sampled_from(SMALL),
    st.sampled_from(["Caroline", "Kyoto", "flight", "航班", "小明", "42", "book", "why", "为什么", "redis", "Zürich"]),
    st.booleans(),
)
def test_one_content_word_beside_small_talk_makes_it_serious(text: str, word: str, first: bool) -> None:
    assert not is_small_talk(f"{word} {text}" if first else f"{text} {word}")


@given(st.text())
def test_any_text_is_judged(text: str) -> None:
    assert not is_small_talk(f"{text} what did Caroline say")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Where do I live?", "Where do the user live?"),
        ("what's my wife's name", "what's the user's wife's name"),
        ("What is the user's wife called?", "What is my wife called?"),
        ("我们的数据库是哪个", "用户的数据库是哪个"),
        ("用户住在哪里", "我住在哪里"),
        *((query, None) for query in ("Who is the president of the US?", "美国在哪里", "my " * 100, "")),
    ],
)
def test_short_question_is_put_in_the_other_person(query: str, expected: str | None) -> None:
    assert other_person(query) == expected


def test_a_long_row_of_abbreviations_is_one_sentence_and_is_read_once() -> None:
    assert len(sentences("I. " * 200_000)) == 1  # read again with every piece, this would take hours
