"""The language of a conversation follows what its users write, not code, logs or a locale."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.memory.message import Message
from memory_core.core.text.language import UNDECIDED, language_of, prose, sentences, spoken

TRACEBACK = (
    'Traceback (most recent call last):\n  File "the/of/is.py", line 3, in to\nValueError: it is not the one to do'
)
LANGUAGES = [
    ("Fix the failing test in the parser", "English"),
    ("thanks!", "English"),
    ("How do I say 我明天要去北京开会 in Chinese?", "English"),
    ("What does Привет mean in English please?", "English"),
    ("你好", "Chinese"),
    ("OK 好的", "Chinese"),
    ("请帮我写一个测试", "Chinese (Simplified)"),
    ("請幫我寫一個測試", "Chinese (Traditional)"),
    ("帮我看下这个 Python traceback", "Chinese (Simplified)"),
    (f"帮我看下这个报错：\n```\n{TRACEBACK}\n```", "Chinese (Simplified)"),
    (f"帮我看下这个报错：\n{TRACEBACK}", "Chinese (Simplified)"),
    ("fix 一下 CI 的 build error in GitHub Actions", "Chinese"),
    ("优の良品很好吃", "Chinese (Simplified)"),
    ("今日は天気がいいですね", "Japanese"),
    ("テストを直してください", "Japanese"),
    ("한국어로 답해 주세요", "Korean"),
    ("Привет, помоги мне", "Russian"),
    ("Привіт, допоможи мені, її немає", "Ukrainian"),
    ("مرحبا كيف حالك", "Arabic"),
    ("سلام، چطور کمک می‌کنی", "Persian"),
    ("שלום מה שלומך", "Hebrew"),
    ("Γειά σου, τι κάνεις", "Greek"),
    ("สวัสดีครับ", "Thai"),
    ("नमस्ते आप कैसे हैं", "Hindi"),
    ("¿Puedes ayudarme con este código?", "Spanish"),
    ("Peux-tu m'aider avec ce code ?", "French"),
    ("Kannst du mir bitte mit dem Code helfen?", "German"),
    ("Você pode me ajudar com este código?", "Portuguese"),
    ("Puoi aiutarmi con questo codice?", "Italian"),
    ("Jak se máte, potřebuji pomoc s kódem", UNDECIDED),
    ("deploy staging", UNDECIDED),
    ("https://example.com/the/of/and/to?is=it", UNDECIDED),
    ("`the is of to`", UNDECIDED),
    ("👍👍", UNDECIDED),
    ("", UNDECIDED),
]


@pytest.mark.parametrize(("text", "language"), LANGUAGES)
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


def test_where_users_do_not_tell_everyone_does() -> None:
    assert language_of([Message("user", "ok"), Message("assistant", "文件已经保存。")]) == "Chinese (Simplified)"
    assert language_of([Message("tool", "文件已经保存。"), Message("system", "请用中文")]) == UNDECIDED
    assert language_of([]) == UNDECIDED


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


def test_spoken_text_keeps_what_is_inside_a_sentence() -> None:
    assert spoken("Use `uv`, not \"pip\".\n```\nx\n```\n- [ ] 写文档").split() == [
        "Use", "`uv`,", "not", '"pip".', "-", "[", "]", "写文档",
    ]  # fmt: skip


def test_sentences_end_at_marks_and_line_breaks() -> None:
    assert sentences("It is v1.2 here! 你好。“真的？”好\nnext… e.g. this") == [
        "It is v1.2 here!", "你好。", "“真的？”", "好", "next…", "e.g.", "this",
    ]  # fmt: skip


@given(st.text(max_size=500))
def test_sentences_lose_nothing_but_space(text: str) -> None:
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


@given(st.lists(st.builds(Message, st.sampled_from(["user", "assistant"]), st.text(max_size=80)), max_size=5))
def test_any_conversation_has_an_answer(talk: list[Message]) -> None:
    assert language_of(talk)
