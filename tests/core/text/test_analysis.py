"""Everyday words beside the documents: a prior for words, in rows that are all alike."""

from __future__ import annotations

from memory_core.core.text.analysis import english_stop_words, filler_texts, index_tokens


def test_words_are_terms_as_documents_store_and_questions_ask_for_them() -> None:
    for word in {word for text in filler_texts() for word in text.split()}:
        assert index_tokens(word).split()[0] == word
        assert word not in english_stop_words()
