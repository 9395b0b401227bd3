"""One score from words and meaning, and when nothing found deserves to be called an answer.

Owns: the normalisation of ``bm25()``, the weights of lexical and semantic evidence, of speaker and date, and the
floor below which a search returns nothing. Pure arithmetic on Python floats.

Promises: scores lie in [0, 1] and mean the same for every question and every store size, because BM25 is divided
by what the question *could* have scored (the idf of its rarest terms), never by the best hit of the day.

Does not: run queries, know a database or a model, or read a clock (``ranking`` ranks by time).

What the caller measures. Rows are stored in one FTS5 table with the columns ``own`` (date, speaker, text) and
``previous`` (the two turns before; empty for a memory); ``-bm25(table, *COLUMN_WEIGHTS)`` is a candidate's ``bm25``.
The rows of ``text.analysis.filler_texts()`` keep SQLite's idf meaningful in a store of one memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import NamedTuple

from memory_core.core.frozen import frozen
from memory_core.core.text.analysis import FILLER_ROWS

#: ``bm25()`` weights of the columns ``own`` and ``previous``.
COLUMN_WEIGHTS = (1.0, 0.5)
#: A document is expected to hold at most so many of a question's terms, its rarest.
DECISIVE_TERMS = 8
#: People speak of a thing for some days after it: "yesterday", "last weekend".
DATE_TOLERANCE = timedelta(days=7)
AFTER_SHARE = 0.75

_LEAST_IDF = 1e-6
#: From this trust on a model may say that nothing bears on a question.
_JUDGES = 0.5
#: The calibrated cosine from which a lone word counts in full.
_BORNE_OUT = 0.25


@frozen
class Weights:
    """Shares of the evidence; the score is divided by those that apply.

    Attributes:
        lexical: Of normalised BM25.
        semantic: Of the calibrated cosine.
        speaker: Added for a turn whose speaker the question names.
        linked: Added for what shares rare words with the best candidate.
        substance: How much less what tells nothing counts.
        date: Added for what was said or happened at a time that the question names.
    """

    lexical: float = 0.4
    semantic: float = 0.6
    speaker: float = 0.2
    date: float = 0.08
    linked: float = 0.1
    substance: float = 0.25

    def __post_init__(self) -> None:
        if (
            min(self.lexical, self.semantic, self.speaker, self.date, self.linked, self.substance) < 0.0
            or self.lexical <= 0.0
        ):
            raise ValueError("weights are >= 0, the lexical one > 0")


@frozen
class Calibration:
    """Maps a model's cosines onto the scale that weights and floors were measured on.

    Attributes:
        zero: The cosine that counts as no similarity. 0.0 for the bundled model; about 0.74 for the E5
            family, whose unrelated texts already score 0.78.
        trust: What share of its weight the model's word has, in [0, 1].
    """

    zero: float = 0.0
    trust: float = 1.0

    def __post_init__(self) -> None:
        if not -1.0 <= self.zero < 1.0 or not 0.0 <= self.trust <= 1.0:
            raise ValueError("zero must lie in [-1, 1), trust in [0, 1]")

    @property
    def judges(self) -> bool:
        """Whether the model is trusted to say that nothing bears on a question."""
        return self.trust >= _JUDGES

    @classmethod
    def from_unrelated(cls, mean_cosine: float) -> Calibration:
        """The calibration that puts a model's mean cosine of unrelated texts where the bundled model has it."""
        mean = min(max(mean_cosine, -0.99), 0.99)
        return cls(max(0.0, (mean - _UNRELATED_COSINE) / (1.0 - _UNRELATED_COSINE)))

    def similarity(self, cosine: float) -> float:
        """The calibrated cosine in [0, 1]."""
        return min(1.0, max(0.0, (cosine - self.zero) / (1.0 - self.zero)))


#: Mean cosine of unrelated texts under the bundled model.
_UNRELATED_COSINE = 0.15


# The floor, below which the best hit is too weak for an answer. What is asked of a hit is a similarity. The more a
# question says, and the more documents there are, the more similar the best of unrelated ones is, so both raise it.

#: The calibrated cosine that an answer has at least, to a question of so many words in a store of so many documents.
_LEAST_SIMILARITY, _TYPICAL_WORDS, _TYPICAL_DOCUMENTS = 0.285, 3.0, 100
#: What each word more or less adds or takes; and up to how many words.
_PER_WORD, _MOST_WORDS = 0.03, 6.0
#: What each factor e of documents adds or takes; and up to how many documents.
_PER_SIZE, _MOST_DOCUMENTS = 0.01, 10_000
#: Taken off when the store holds none of the question's words, as with a question in another language: such an answer
#: cannot have a lexical share.
_UNKNOWN_WORDS = 0.1
#: Added when the question names somebody of whom the store holds nothing: what is said of others is no answer.
_STRANGER = 0.2
#: What a lexical share of 1.0 counts as, in similarity.
_LEXICAL_GAIN = 0.25
#: Least lexical share where there is no cosine, to which twice ``_STRANGER`` is added; and what is taken off when
#: somebody asks about themselves: what is theirs is likely to be stored.
_LEAST_LEXICAL, _OWN = 0.13, 0.06


@frozen
class Question:
    """What a store knows of a question's terms.

    Attributes:
        mass: Sum of the idf of its ``DECISIVE_TERMS`` rarest terms; 0.0 without terms.
        terms: How many terms it has.
        known_terms: How many of them any document holds.
        words: How many words it counts as: a word that no document holds is 1, a common one less, a pair of Chinese
            characters half.
        documents: How many documents were searched, >= 0.
        lone: Whether a sentence says but one word that is no grammar: it then tells half where meaning does not
            bear it out, since "live" stands in "live more healthily" too.
        stranger: Whether it names somebody, and nobody of whom any document speaks.
        own: Whether somebody asks about themselves.
    """

    mass: float
    terms: int
    known_terms: int
    words: float = _TYPICAL_WORDS
    documents: int = _TYPICAL_DOCUMENTS
    lone: bool = False
    stranger: bool = False
    own: bool = False


#: What telling of a topic weighs, as an idf: as much as a word that one memory in fifteen holds.
TOPIC_IDF = 2.7
#: A topic counts as one and a half words.
_TOPIC_WORDS = 1.5
#: What a topic alone is taken to be of a question: words of it stand in much that does not answer.
_LONE_TOPIC_SHARE = 0.6


def with_topics(question: Question, topics: int) -> Question:
    """A question that asks about so many topics beside its terms."""
    if not topics:
        return question
    mass = question.mass + topics * TOPIC_IDF
    if topics == 1 and not question.terms:
        mass /= _LONE_TOPIC_SHARE
    return replace(
        question,
        mass=mass,
        terms=question.terms + topics,
        known_terms=question.known_terms + topics,
        words=question.words + _TOPIC_WORDS * topics,
    )


class Candidate(NamedTuple):
    """Evidence for one document.

    Attributes:
        bm25: ``-bm25()``, >= 0; 0.0 if no word matches.
        cosine: In [-1, 1]; None while its vector, or the model, is not there.
        names_speaker: Whether the question names the one who said it.
        names_date: How well it fits a time that the question names, in [0, 1]; see ``date_share``.
        linked: How much of the best candidate's rare words it shares, in [0, 1].
        substance: How much it tells, in [0, 1].
    """

    bm25: float = 0.0
    cosine: float | None = None
    names_speaker: bool = False
    names_date: float = 0.0
    linked: float = 0.0
    substance: float = 1.0


class Score(NamedTuple):
    """A candidate's score and what it is made of, all in [0, 1].

    ``semantic`` is None where there was no cosine.
    """

    total: float
    lexical: float
    semantic: float | None


def idf(rows: int, matching: int) -> float:
    """FTS5's inverse document frequency, as its ``bm25()`` computes it.

    Args:
        rows: All rows of the table, fillers included, >= ``matching``.
        matching: Rows that hold the term, >= 0.
    """
    return max(_LEAST_IDF, math.log((rows - matching + 0.5) / (matching + 0.5)))


def weigh_question(
    rows: int, matching: Iterable[int], known_terms: int, shares: Iterable[float] | None = None
) -> Question:
    """Sum up a question's terms.

    Args:
        rows: All rows of the FTS table, fillers included.
        matching: For each term of the MATCH expression, the rows that hold it, fillers included.
        known_terms: How many of the terms a document holds.
        shares: For each term, how much of a word it is, in [0, 1]; None means 1.0 each.
    """
    counts = list(matching)
    weights = [idf(rows, count) for count in counts]
    unknown = idf(rows, 0)
    parts = [1.0] * len(counts) if shares is None else list(shares)
    return Question(
        mass=sum(sorted(weights, reverse=True)[:DECISIVE_TERMS]),
        terms=len(counts),
        known_terms=known_terms,
        words=sum(part * weight / unknown for part, weight in zip(parts, weights, strict=True)),
        documents=max(0, rows - FILLER_ROWS),
    )


def date_share(first: date, last: date, start: date, end: date) -> float:
    """How well what was said or happened from ``first`` to ``last`` fits a time that a question names.

    Args:
        first: Earliest day of the document: of a message, the day of sending.
        last: Latest day, >= ``first``; the same where the day is known.
        start: First day of the named time.
        end: Last day of it, included.

    Returns:
        1.0 within it, ``AFTER_SHARE`` up to ``DATE_TOLERANCE`` later, else 0.0.
    """
    if last < start or first - DATE_TOLERANCE > end:
        return 0.0
    return 1.0 if first <= end else AFTER_SHARE


def jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    """Share of all words that both sets hold, in [0, 1]; 0.0 when both are empty."""
    shared = len(left & right)
    union = len(left) + len(right) - shared
    return shared / union if union else 0.0


def lexical_share(bm25: float, question: Question) -> float:
    """BM25 as a share of the question's idf mass, in [0, 1].

    A document of average length that holds each decisive term once has about 1.0; one that holds half of
    them by idf about 0.5.
    """
    if question.mass <= 0.0:
        return 0.0
    return min(1.0, max(0.0, bm25 / question.mass))


def fuse(
    candidates: Sequence[Candidate],
    question: Question,
    weights: Weights = Weights(),
    calibration: Calibration = Calibration(),
) -> list[Score]:
    """Score every candidate; linear in their number, well under a millisecond for 400.

    ``total`` is the weighted sum of lexical share, calibrated cosine, speaker, date and link, divided by the weights
    of the first two and half of the speaker's, at most 1.0, and less for a turn that tells little. If no candidate has
    a cosine, words alone decide. If only some have, the others are given the similarity that their lexical share
    suggests (half of it), so that a memory whose vector is not written yet is neither buried nor favoured.

    Args:
        candidates: In any order.
        question: From ``weigh_question`` for the same expression.
        weights: Shares of the evidence.
        calibration: Of the model that made the cosines.

    Returns:
        Scores in the order of ``candidates``.
    """
    hybrid = any(candidate.cosine is not None for candidate in candidates)
    semantic_weight = weights.semantic * calibration.trust if hybrid else 0.0
    whole = weights.lexical + semantic_weight + 0.5 * weights.speaker
    scores: list[Score] = []
    for bm25, cosine, names_speaker, names_date, linked, substance in candidates:
        lexical = lexical_share(bm25, question)
        semantic = None if cosine is None else calibration.similarity(cosine)
        similarity = 0.5 * lexical if semantic is None else semantic
        if question.lone and semantic is not None:
            lexical *= 0.5 + 0.5 * min(1.0, semantic / _BORNE_OUT)
        total = weights.lexical * lexical + semantic_weight * similarity
        total += weights.speaker * names_speaker
        total += weights.date * names_date
        total += weights.linked * linked
        telling = 1.0 - weights.substance * (1.0 - substance)
        scores.append(Score(telling * min(1.0, total / whole), lexical, semantic))
    return scores


def is_relevant(scores: Iterable[Score], question: Question, calibration: Calibration = Calibration()) -> bool:
    """Whether any score says that the store holds something on the question; if not, return no hits.

    Judged on words and meaning, not on speaker or date: a name alone is no topic.

    Args:
        scores: From ``fuse``; the best few are enough.
        question: As given to ``fuse``.
        calibration: As given to ``fuse``; a model that is hardly trusted does not judge, words do.
    """
    leniency = _leniency(question)
    least = least_similarity(question)
    least_lexical = (_LEAST_LEXICAL + 2.0 * _STRANGER * question.stranger - _OWN * question.own) * leniency
    for score in scores:
        if score.semantic is None or not calibration.judges:
            if score.lexical > 0.0 and score.lexical >= least_lexical:
                return True
        elif score.semantic + _LEXICAL_GAIN * score.lexical >= least:
            return True
    return False


def least_similarity(question: Question) -> float:
    """The similarity that the best hit must reach, its lexical share counted in.

    The floor is for questions. A text of more than ``DECISIVE_TERMS`` terms (messages given as context) is held to
    a floor multiplied by (``DECISIVE_TERMS`` / terms)², since most of its words describe other things.
    """
    size = min(max(question.documents, 1), _MOST_DOCUMENTS) / _TYPICAL_DOCUMENTS
    least = _LEAST_SIMILARITY + _PER_SIZE * math.log(size)
    least += _PER_WORD * (min(question.words, _MOST_WORDS) - _TYPICAL_WORDS)
    if not question.known_terms:
        least -= _UNKNOWN_WORDS
    if question.stranger:
        least += _STRANGER
    return least * _leniency(question)


def _leniency(question: Question) -> float:
    return min(1.0, DECISIVE_TERMS / max(question.terms, 1)) ** 2
