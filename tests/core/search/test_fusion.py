"""Fusion against FTS5's own bm25(), and the floor on questions with and without an answer."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.index.tokenizer import query_terms
from memory_core.core.search.fusion import (
    AFTER_SHARE,
    COLUMN_WEIGHTS,
    DATE_TOLERANCE,
    Calibration,
    Candidate,
    Question,
    Score,
    Weights,
    date_share,
    fuse,
    idf,
    is_relevant,
    least_similarity,
    lexical_share,
    weigh_question,
)
from memory_core.core.text.analysis import FILLER_ROWS, filler_texts, index_tokens

SIX_TERMS = Question(mass=20.0, terms=6, known_terms=6)


def store(documents: list[str]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE words USING fts5(own, previous, tokenize = 'porter unicode61 remove_diacritics 2')"
    )
    insert = "INSERT INTO words(rowid, own, previous) VALUES (?, ?, ?)"
    connection.executemany(insert, [(-1 - n, text, "") for n, text in enumerate(filler_texts())])
    connection.executemany(insert, [(n, index_tokens(text), "") for n, text in enumerate(documents)])
    return connection


def search(connection: sqlite3.Connection, query: str) -> tuple[dict[int, float], Question]:
    terms = query_terms(query)
    rows = connection.execute("SELECT count(*) FROM words").fetchone()[0]
    count = "SELECT count(*) FROM words WHERE words MATCH ?"
    matching = [connection.execute(count, (term,)).fetchone()[0] for term in terms]
    question = weigh_question(rows, matching, sum(held > 0 for held in matching))
    weights = f"{COLUMN_WEIGHTS[0]}, {COLUMN_WEIGHTS[1]}"
    sql = f"SELECT rowid, -bm25(words, {weights}) FROM words WHERE words MATCH ? AND rowid >= 0"
    return dict(connection.execute(sql, (" OR ".join(terms),))), question


@pytest.mark.parametrize("others", [0, 3, 300])
@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Deploys run on Fridays from the release branch", "When do deploys run from the release branch?"),
        ("支付系统每周五从发布分支部署", "支付系统从哪个分支部署"),
    ],
)
def test_lexical_share_means_the_same_in_a_store_of_any_size(others: int, text: str, query: str) -> None:
    connection = store([text, *(f"unrelated note number {n} on gardening 园艺笔记 {n}" for n in range(others))])
    bm25, question = search(connection, query)
    connection.close()
    assert 0.5 < lexical_share(bm25[0], question) <= 1.0


def test_half_the_words_give_a_lower_share_than_all_of_them() -> None:
    connection = store(["the red kite flew over the harbour", "a red house on a hill by a road"])
    bm25, question = search(connection, "red kite harbour")
    connection.close()
    assert lexical_share(bm25[1], question) < 0.5 < lexical_share(bm25[0], question)


def test_unknown_words_lower_the_share() -> None:
    connection = store(["the red kite flew over the harbour"])
    known, sure = search(connection, "red kite")
    partly, unsure = search(connection, "red kite zeppelin quarterly")
    connection.close()
    assert unsure.known_terms == 2
    assert lexical_share(partly[0], unsure) < lexical_share(known[0], sure)


def test_idf_is_the_one_bm25_uses() -> None:
    connection = store(["kite"])
    length = connection.execute("SELECT -bm25(words) FROM words WHERE words MATCH 'kite'").fetchone()[0]
    connection.close()
    fillers = sum(len(text.split()) for text in filler_texts())
    average = (fillers + 1) / (FILLER_ROWS + 1)
    assert length == pytest.approx(idf(FILLER_ROWS + 1, 1) * 2.2 / (1 + 1.2 * (0.25 + 0.75 / average)))


def test_worked_example() -> None:
    [score] = fuse([Candidate(bm25=10.0, cosine=0.6, names_speaker=True)], SIX_TERMS)
    assert score.total == pytest.approx((0.4 * 0.5 + 0.6 * 0.6 + 0.2) / 1.1)
    assert score.lexical == pytest.approx(0.5)
    assert score.semantic == pytest.approx(0.6)


def test_score_does_not_depend_on_the_other_candidates() -> None:
    alone = fuse([Candidate(6.0, 0.3)], SIX_TERMS)[0]
    among = fuse([Candidate(19.0, 0.9), Candidate(6.0, 0.3)], SIX_TERMS)[1]
    assert alone == among


def test_named_speaker_breaks_a_tie() -> None:
    named, other = fuse([Candidate(5.0, 0.4, True), Candidate(5.0, 0.4)], SIX_TERMS)
    assert named.total > other.total


def test_named_date_breaks_a_tie_and_keeps_the_scale() -> None:
    dated, other = fuse([Candidate(5.0, 0.4, names_date=1.0), Candidate(5.0, 0.4)], SIX_TERMS)
    assert dated.total - other.total == pytest.approx(0.08 / 1.1)
    [best] = fuse([Candidate(99.0, 1.0, names_speaker=True, names_date=1.0)], SIX_TERMS)
    assert best.total == 1.0


def test_named_date_does_not_outweigh_a_much_better_match() -> None:
    dated, better = fuse([Candidate(5.0, 0.4, names_date=1.0), Candidate(9.0, 0.6)], SIX_TERMS)
    assert better.total > dated.total


MAY_8 = date(2023, 5, 8)


@pytest.mark.parametrize(
    ("days_after", "expected"),
    [(-1, 0.0), (0, 1.0), (1, AFTER_SHARE), (DATE_TOLERANCE.days, AFTER_SHARE), (DATE_TOLERANCE.days + 1, 0.0)],
)
def test_what_was_said_some_days_later_belongs_to_a_day_but_less(days_after: int, expected: float) -> None:
    said = MAY_8 + timedelta(days=days_after)
    assert date_share(said, said, MAY_8, MAY_8) == expected


def test_event_known_to_the_month_belongs_to_each_of_its_days() -> None:
    assert date_share(date(2023, 5, 1), date(2023, 5, 31), MAY_8, MAY_8) == 1.0
    assert date_share(date(2023, 6, 1), date(2023, 6, 30), date(2023, 5, 1), date(2023, 5, 20)) == 0.0


def test_without_any_vector_words_alone_span_the_scale() -> None:
    best, worst = fuse([Candidate(20.0, None, True), Candidate(0.0)], SIX_TERMS)
    assert best.total == pytest.approx(1.0)
    assert worst.total == 0.0
    assert best.semantic is None


def test_what_tells_nothing_counts_less_and_what_is_linked_more() -> None:
    plain, mute, linked = fuse(
        [Candidate(10.0, 0.6), Candidate(10.0, 0.6, substance=0.0), Candidate(10.0, 0.6, linked=0.5)], SIX_TERMS
    )
    assert mute.total == pytest.approx(0.75 * plain.total)
    assert linked.total - plain.total == pytest.approx(0.05 / 1.1)


def test_a_question_that_names_nobody_known_asks_for_more() -> None:
    known, stranger = SIX_WORDS, replace(SIX_WORDS, stranger=True)
    hit = Score(0.4, 0.2, 0.45)
    assert is_relevant([hit], known)
    assert not is_relevant([hit], stranger)
    assert is_relevant([Score(0.9, 0.9, 0.6)], stranger)
    assert is_relevant([Score(0.3, 0.3, None)], known)
    assert not is_relevant([Score(0.3, 0.3, None)], stranger)


def test_vector_not_written_yet_neither_buries_nor_favours() -> None:
    good, fresh, poor = fuse([Candidate(16.0, 0.6), Candidate(16.0, None), Candidate(1.0, 0.2)], SIX_TERMS)
    assert poor.total < fresh.total < good.total
    assert fresh.total == pytest.approx((0.4 * 0.8 + 0.6 * 0.4) / 1.1)


def test_question_without_terms_is_ranked_by_meaning() -> None:
    near, far = fuse([Candidate(0.0, 0.7), Candidate(0.0, 0.1)], Question(0.0, 0, 0))
    assert near.total > far.total
    assert near.lexical == 0.0


def test_calibration_maps_a_narrow_model_onto_the_scale() -> None:
    narrow = Calibration.from_unrelated(0.78)
    assert narrow.similarity(0.78) == pytest.approx(0.15, abs=0.01)
    assert narrow.similarity(1.0) == pytest.approx(1.0)
    assert narrow.similarity(0.2) == 0.0
    assert Calibration.from_unrelated(0.15).similarity(0.4) == pytest.approx(0.4)


@given(
    bm25=st.floats(0, 1e6),
    cosine=st.one_of(st.none(), st.floats(-1.01, 1.01)),
    mass=st.floats(0, 500),
    named=st.booleans(),
)
def test_every_part_stays_in_the_unit_interval(bm25: float, cosine: float | None, mass: float, named: bool) -> None:
    for score in fuse([Candidate(bm25, cosine, named), Candidate()], Question(mass, 3, 3)):
        assert 0.0 <= score.total <= 1.0
        assert 0.0 <= score.lexical <= 1.0
        assert score.semantic is None or 0.0 <= score.semantic <= 1.0


SIX_WORDS = Question(20.0, 6, 6, words=6.0)
ONE_WORD = Question(4.0, 1, 1, words=1.0)
UNKNOWN_WORDS = Question(12.0, 3, 0)
PASSAGE = Question(30.0, 40, 30, words=20.0)


@pytest.mark.parametrize(
    ("score", "question", "expected"),
    [
        (Score(0.3, 0.5, 0.3), SIX_WORDS, True),
        (Score(0.2, 0.05, 0.3), SIX_WORDS, False),
        (Score(0.2, 0.0, 0.41), SIX_WORDS, True),
        (Score(0.2, 0.0, 0.25), ONE_WORD, True),
        (Score(0.2, 0.0, 0.2), ONE_WORD, False),
        (Score(0.4, 1.0, 0.0), ONE_WORD, True),
        (Score(0.2, 0.0, 0.28), UNKNOWN_WORDS, True),
        (Score(0.2, 0.0, 0.28), Question(12.0, 3, 1), False),
        (Score(0.2, 0.05, 0.2), PASSAGE, True),
        (Score(0.0, 0.0, 0.005), PASSAGE, False),
        (Score(0.3, 0.3, None), SIX_WORDS, True),
        (Score(0.3, 0.1, None), SIX_WORDS, False),
        (Score(0.1, 0.12, None), Question(30.0, 12, 12, words=6.0), True),
        (Score(0.1, 0.05, None), Question(30.0, 12, 12, words=6.0), False),
        (Score(0.0, 0.0, None), Question(0.0, 0, 0, 0.0), False),
    ],
)
def test_floor(score: Score, question: Question, expected: bool) -> None:
    assert is_relevant([Score(0.0, 0.0, 0.0), score], question) is expected


def test_more_documents_and_more_words_ask_for_more() -> None:
    def least(words: float, documents: int) -> float:
        return least_similarity(Question(20.0, 6, 6, words, documents))

    assert least(1.0, 100) < least(3.0, 100) < least(6.0, 100) == least(7.0, 100)
    assert least(3.0, 0) == least(3.0, 1) < least(3.0, 100) < least(3.0, 10_000) == least(3.0, 1_000_000)


@pytest.mark.parametrize(
    ("memory", "question", "alien"),
    [
        ("The user is allergic to penicillin.", "user penicillin", "user's lawyer"),
        ("The user drives a grey Skoda.", "what does the user drive?", "does the user ski?"),
        ("用户对花生过敏。", "用户对什么过敏", "用户的鞋码"),
    ],
)
def test_the_word_user_is_no_evidence_in_a_store_of_five(memory: str, question: str, alien: str) -> None:
    others = ["The user lives in Berlin.", "The user has a dog.", "用户住在杭州。", "用户喜欢川菜。"]
    connection = store([memory, *others])
    (found, asked), (noise, unasked) = search(connection, question), search(connection, alien)
    connection.close()
    assert lexical_share(found[0], asked) > 0.4
    assert max(lexical_share(bm25, unasked) for bm25 in noise.values()) < 0.2


def test_common_words_say_less_than_rare_ones() -> None:
    connection = store(["The user has a dog.", "The user has a beagle."])
    _, common = search(connection, "user name")
    _, rare = search(connection, "zeppelin quarterly")
    connection.close()
    assert common.words < 0.9 < rare.words == pytest.approx(2.0)
    assert common.documents == 2


def test_half_a_word_counts_half() -> None:
    assert weigh_question(132, [0, 0], 0, [0.5, 0.5]).words == pytest.approx(1.0)
    with pytest.raises(ValueError, match="zip"):
        weigh_question(132, [0, 0], 0, [0.5])


def test_speaker_alone_does_not_pass_the_floor() -> None:
    assert not is_relevant(fuse([Candidate(1.0, 0.2, True)], SIX_TERMS), SIX_TERMS)


def test_impossible_weights_are_rejected() -> None:
    with pytest.raises(ValueError, match="weights"):
        Weights(lexical=0.0)
    with pytest.raises(ValueError, match="zero"):
        Calibration(1.0)


def test_a_model_that_is_hardly_trusted_counts_for_less_and_does_not_judge() -> None:
    question = Question(mass=10.0, terms=3, known_terms=3)
    words, meaning = Candidate(6.0, 0.1), Candidate(0.5, 0.9)
    trusted, doubted = Calibration(), Calibration(trust=0.2)
    first, second = fuse([words, meaning], question, calibration=trusted)
    assert second.total > first.total
    first, second = fuse([words, meaning], question, calibration=doubted)
    assert first.total > second.total
    assert is_relevant([second], question, calibration=trusted)
    assert not is_relevant([second], question, calibration=doubted)
    assert is_relevant([first], question, calibration=doubted)


def test_a_question_about_oneself_needs_less() -> None:
    question = Question(mass=10.0, terms=3, known_terms=3)
    (weak,) = fuse([Candidate(0.9)], question)
    assert not is_relevant([weak], question)
    assert is_relevant([weak], replace(question, own=True))
