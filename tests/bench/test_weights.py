"""Weights are chosen on the others and scored on the conversation left out."""

from __future__ import annotations

from pathlib import Path

from bench.corpus import Corpus
from bench.corpus import Question as Sought
from bench.stores import opened
from bench.weights import Asked, collect, grid, leave_one_out
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.search.fusion import Calibration, Candidate, Question, Weights

QUESTION = Question(mass=10.0, terms=3, known_terms=3)
LEXICAL, SEMANTIC = Weights(0.9, 0.1, 0.0, 0.0), Weights(0.1, 0.9, 0.0, 0.0)


def asked(gold: str) -> Asked:
    """Eleven strong by words and eleven strong by meaning; ten fit."""
    by_words = [Candidate(9.0 - at / 100, 0.1, False, False) for at in range(11)]
    by_meaning = [Candidate(1.0, 0.9 - at / 100, False, False) for at in range(11)]
    ids = tuple([f"word{at}" for at in range(11)] + [f"mean{at}" for at in range(11)])
    return Asked(frozenset({gold}), ids, (*by_words, *by_meaning), QUESTION, Calibration())


def test_recall_follows_the_weights() -> None:
    question = asked("word7")
    assert question.recall(LEXICAL) == (1.0, 0.0)
    assert question.recall(SEMANTIC) == (0.0, 0.0)
    assert asked("word4").recall(LEXICAL) == (1.0, 1.0)
    assert asked("mean2").recall(SEMANTIC) == (1.0, 1.0)


def test_a_conversation_has_no_say_in_its_own_weights() -> None:
    folds = leave_one_out(
        {name: [asked(f"{name.split()[-1]}{at}")] for at, name in enumerate(("word", "a word", "mean", "a mean"))},
        [LEXICAL, SEMANTIC],
    )
    chosen = {fold.name: fold.chosen for fold in folds}
    assert chosen == {"word": SEMANTIC, "a word": SEMANTIC, "mean": LEXICAL, "a mean": LEXICAL}
    assert [fold.held_out[0] for fold in folds] == [(0.0, 0.0)] * 4


def test_the_shipped_weights_stand_beside_and_are_in_the_grid() -> None:
    assert Weights() in grid()
    (fold, _) = leave_one_out({"a": [asked("word0")], "b": [asked("word0")]}, [LEXICAL])
    assert fold.shipped == (asked("word0").recall(Weights()),)


def test_a_data_set_has_no_say_in_its_own_weights_in_whichever_way_it_is_read() -> None:
    folds = leave_one_out(
        {"Notes, a chat": [asked("word1")], "Notes, memories": [asked("word2")], "Talks": [asked("mean0")]},
        [LEXICAL, SEMANTIC],
    )
    assert [fold.chosen for fold in folds] == [SEMANTIC, SEMANTIC, LEXICAL]


def test_only_what_was_sought_for_a_question_as_one_is_its_evidence(tmp_path: Path) -> None:
    gold = frozenset({"tea"})
    texts = ("Where is the tea?", "Hello there!", "Where is the tea and who bought the coffee?")
    corpus = Corpus("talk", (), (), tuple(Sought(text, gold, gold, "1", "talk") for text in texts))
    with opened(tmp_path, provider="none") as memory:
        memory.commit(CommitRequest("The tea is on the upper shelf."))
        memory.commit(CommitRequest("Mira bought the coffee in Porto."))
        assert len(list(collect(memory, corpus, {}))) == 1
