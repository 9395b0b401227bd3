"""Weights are chosen on the others and scored on the conversation left out."""

from __future__ import annotations

from bench.weights import Asked, grid, leave_one_out
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
