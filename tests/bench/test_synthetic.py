"""Made-up statements are many, different, in two languages, and always the same."""

from __future__ import annotations

from bench.synthetic import conversation, told, write_operation


def test_statements_are_all_different_and_the_same_each_time() -> None:
    texts = [told(number).text for number in range(2_000)]
    assert len(set(texts)) == len(texts)
    assert len({told(number).name for number in range(2_000)}) == len(texts)
    assert texts[:5] == [told(number).text for number in range(5)]


def test_about_a_third_is_chinese() -> None:
    chinese = sum("。" in told(number).text for number in range(1_000))
    assert 250 < chinese < 350


def test_a_question_shares_words_with_its_statement() -> None:
    for number in range(50):
        statement = told(number)
        assert any(word in statement.text for word in statement.question.rstrip("?").split()[-1:]) or "在" in (
            statement.question
        )


def test_memories_are_spread_over_types() -> None:
    types = {write_operation(number)["memory_data"]["memory_type"] for number in range(12)}
    assert len(types) == 6


def test_a_conversation_alternates_and_tells_new_statements() -> None:
    messages = list(conversation(100, 6))
    assert [message["role"] for message in messages] == ["user", "assistant"] * 3
    assert [message["content"] for message in messages[::2]] == [told(number).text for number in (100, 101, 102)]
