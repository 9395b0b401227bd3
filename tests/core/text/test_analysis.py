"""Everyday words beside the documents: a prior for words, in rows that are all alike."""

from __future__ import annotations

from memory_core.core.text.analysis import FILLER_ROWS, english_stop_words, filler_texts, index_tokens


def rows_with(word: str) -> int:
    return sum(word in text.split() for text in filler_texts())


def test_as_many_rows_as_are_counted_each_about_as_long_as_a_memory() -> None:
    lengths = [len(text.split()) for text in filler_texts()]
    assert len(lengths) == FILLER_ROWS
    assert min(lengths) >= 18
    assert max(lengths) <= 32


def test_a_word_stands_in_its_share_of_rows_and_what_memories_are_about_in_none() -> None:
    shares = {"user": 0.75, "用户": 0.75, "name": 0.25, "喜欢": 0.25, "project": 0.125, "朋友": 0.125}
    assert {word: rows_with(word) / FILLER_ROWS for word in shares} == shares
    assert not any(rows_with(word) for word in ("penicillin", "过敏", "database", "数据"))


def test_no_word_stands_twice_in_a_row() -> None:
    for text in filler_texts():
        words = text.split()
        assert len(words) == len(set(words))


def test_words_are_terms_as_documents_store_and_questions_ask_for_them() -> None:
    for word in {word for text in filler_texts() for word in text.split()}:
        assert index_tokens(word).split()[0] == word
        assert word not in english_stop_words()
