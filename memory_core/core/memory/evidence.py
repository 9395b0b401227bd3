"""What one memory says about another: confidence that evidence moves, and what a contested memory keeps of its rank.

Owns the formulas; relations and their strengths are stored by ``commit.links``. Pure. A memory begins with confidence
1.0 (or what its writer gave it). Evidence moves it a share of the way to 1 or to 0, so that it never leaves [0, 1],
never reaches an end by evidence alone, and the order of two pieces of evidence of one kind does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

#: For or against.
Evidence = Literal["support", "contradiction"]

#: The share of the way to 1 or 0 that evidence of full strength by a memory of full confidence moves.
GAIN = 0.5
#: What a memory keeps of its match when an equally trusted newer one contradicts it with the default strength.
CONTESTED_SHARE = 0.7
#: The weight of that contradiction: strength x confidence of the rival / confidence of both.
USUAL_CONTEST = 0.25
#: The most that support adds to a match, and doubt takes from it.
SUPPORT_GAIN, DOUBT_SHARE = 0.05, 0.1


def weighed(confidence: float, evidence: Evidence, strength: float, witness: float = 1.0) -> float:
    """The confidence of a memory after another one spoke for or against it, in [0, 1].

    With w = GAIN x strength x witness: support c + w (1 - c), contradiction c (1 - w).
    1.0 contradicted with strength 0.5 is 0.75; that supported with 0.5 is 0.8125; a contradiction by a memory that is
    itself only half trusted takes 1.0 to 0.875.

    Args:
        confidence: Before, in [0, 1].
        evidence: For or against.
        strength: Of the link, in [0, 1].
        witness: Confidence of the memory that speaks, in [0, 1].

    Raises:
        ValueError: If a bound is broken.
    """
    weight = _weight(confidence, strength, witness)
    return confidence + weight * (1.0 - confidence) if evidence == "support" else confidence * (1.0 - weight)


def unweighed(confidence: float, evidence: Evidence, strength: float, witness: float = 1.0) -> float:
    """The inverse of ``weighed``, kept in [0, 1]: the confidence as it was before that evidence.

    0.75 without a contradiction of strength 0.5 is 1.0. A confidence that was set to another value since may leave the
    bounds on the way back; it stops there.

    Args:
        confidence: After, in [0, 1].
        evidence: As it was weighed.
        strength: As it was weighed.
        witness: As it was weighed.

    Raises:
        ValueError: If a bound is broken.
    """
    weight = _weight(confidence, strength, witness)
    before = (confidence - weight) / (1.0 - weight) if evidence == "support" else confidence / (1.0 - weight)
    return min(1.0, max(0.0, before))


def taken_back(before: float, after: float, now: float) -> float:
    """A confidence without one earlier step from ``before`` to ``after``, keeping what moved it since; in [0, 1].

    The step is read as the share of the way to 1 or to 0 that it went. 1.0 fell to 0.75 and later to 0.5625: without
    the first step that is 0.75. What a person set to a number since stays within bounds all the same.

    Args:
        before: Before the step, in [0, 1].
        after: After the step, in [0, 1].
        now: In [0, 1].

    Raises:
        ValueError: If a bound is broken.
    """
    _require_unit(before=before, after=after, now=now)
    if after == before:
        return now
    share = (after - before) / (1.0 - before) if after > before else 1.0 - after / before
    if share >= 1.0:  # the step went all the way; nothing of what was before is left to scale
        return before
    return min(1.0, max(0.0, (now - share) / (1.0 - share) if after > before else now / (1.0 - share)))


def merged_confidence(confidences: Sequence[float]) -> float:
    """The confidence of a memory that several were merged into: their mean. Of 1.0 and 0.6 it is 0.8.

    Args:
        confidences: Each in [0, 1]; at least one.

    Raises:
        ValueError: If there is none, or a bound is broken.
    """
    if not confidences:
        raise ValueError("nothing was merged")
    for confidence in confidences:
        _require_unit(confidence=confidence)
    return math.fsum(confidences) / len(confidences)


def contest(strength: float, own: float, rival: float) -> float:
    """How much a contradiction weighs, in [0, 1]: strength x rival / (own + rival).

    Strength 0.5 between equals is 0.25; against a memory that is trusted three times as much it is 0.125.

    Args:
        strength: Of the link, in [0, 1].
        own: Confidence of the memory that is contradicted, in [0, 1].
        rival: Confidence of the one that contradicts it, in [0, 1].

    Raises:
        ValueError: If a bound is broken.
    """
    _require_unit(strength=strength, own=own, rival=rival)
    return 0.0 if rival == 0.0 else strength * rival / (own + rival)


def contested_share(weight: float) -> float:
    """The share of its match that a contested memory keeps, in (0, 1]: CONTESTED_SHARE ^ (weight / USUAL_CONTEST).

    Weight 0.25 keeps 0.7, 0.5 keeps 0.49, 0 keeps all.

    Args:
        weight: From ``contest``, in [0, 1]; of several rivals that of the heaviest.

    Raises:
        ValueError: If the bound is broken.
    """
    _require_unit(weight=weight)
    return float(CONTESTED_SHARE ** (weight / USUAL_CONTEST))


def support_of(strengths: Iterable[float]) -> float:
    """Several memories' support together, in [0, 1]: 1 - product of (1 - strength). Twice 0.5 is 0.75.

    Args:
        strengths: Each in [0, 1].

    Raises:
        ValueError: If a bound is broken.
    """
    left = 1.0
    for strength in strengths:
        _require_unit(strength=strength)
        left *= 1.0 - strength
    return 1.0 - left


def trusted_share(confidence: float, support: float) -> float:
    """What a match is multiplied with for how far the memory is trusted, in [0.9, 1.05].

    1 - DOUBT_SHARE (1 - confidence) + SUPPORT_GAIN x support x confidence. 1.0 without support is 1; 0.5 is 0.95; 1.0
    with support 0.5 is 1.025.

    Args:
        confidence: In [0, 1].
        support: From ``support_of``, in [0, 1].

    Raises:
        ValueError: If a bound is broken.
    """
    _require_unit(confidence=confidence, support=support)
    return 1.0 - DOUBT_SHARE * (1.0 - confidence) + SUPPORT_GAIN * support * confidence


def _weight(confidence: float, strength: float, witness: float) -> float:
    _require_unit(confidence=confidence, strength=strength, witness=witness)
    return GAIN * strength * witness


def _require_unit(**values: float) -> None:
    for name, value in values.items():
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} must lie in [0, 1], not {value}")
