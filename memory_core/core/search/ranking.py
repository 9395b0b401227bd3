"""From evidence to hits: fusion, the floor, a rank profile, and one place for what says the same.

Every hit says in ``why`` what its score is made of. Pure: time is given, and what the store knows of a memory's
rivals is asked for by a function.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from heapq import nlargest
from itertools import zip_longest
from typing import Any, Literal, get_args

from memory_core.core.frozen import frozen
from memory_core.core.index.catalog import Entry, Voice
from memory_core.core.memory.evidence import USUAL_CONTEST, contest, contested_share, trusted_share
from memory_core.core.memory.metadata import outdoes, read_moment
from memory_core.core.memory.results import Hit, Rival
from memory_core.core.search.candidates import Evidence, Gathered
from memory_core.core.search.fusion import Score, fuse, is_relevant
from memory_core.core.store.usage import Usage
from memory_core.core.text.analysis import distinct_words
from memory_core.core.text.word_table import word_pattern, word_set

Profile = Literal["relevance", "balanced", "decay", "weighted"]

RATE_PER_DAY = 0.05
RECENCY_DAYS = 30.0
SIMILARITY_WEIGHT, RECENCY_WEIGHT, IMPORTANCE_WEIGHT = 0.6, 0.2, 0.2
#: The share of its score that ``balanced`` leaves a memory however old and unimportant it is.
KEPT_SHARE = 0.8


def decay(age_days: float, rate_per_day: float = RATE_PER_DAY) -> float:
    """Retention in (0, 1]: exp(-rate * age); 1.0 at age 0, 0.5 at 13.9 days for the default.

    Args:
        age_days: Days since last access, >= 0.
        rate_per_day: > 0.

    Raises:
        ValueError: If either bound is broken.
    """
    if not (math.isfinite(age_days) and age_days >= 0.0):
        raise ValueError(f"age_days must be finite and >= 0, not {age_days}")
    if not (math.isfinite(rate_per_day) and rate_per_day > 0.0):
        raise ValueError(f"rate_per_day must be finite and > 0, not {rate_per_day}")
    return math.exp(-rate_per_day * age_days)


def rank_score(
    profile: Profile, fused: float, salience: float, age_days: float, rate_per_day: float = RATE_PER_DAY
) -> float:
    """The score a hit is ordered by, in [0, 1].

    - ``relevance``: the match as it is, no decay; right for questions about the past.
    - ``balanced``: match x (0.8 + 0.2 x salience x decay). Time and importance settle near ties, and a match that is
      a quarter better than another always stays before it.
    - ``decay``: the bare product match x salience x decay: what was not used for months all but vanishes, however
      exactly it answers.
    - ``weighted``: 0.6 x match + 0.2 x exp(-age / 30 days) + 0.2 x salience. Match 0.8 at 15 days with salience 0.5
      is 0.7013.

    Args:
        profile: One of the four.
        fused: From ``fusion.fuse``, in [0, 1].
        salience: In [0, 1].
        age_days: Days since last access (``weighted``: since creation if never accessed); a negative age (clocks
            differ) counts as 0.
        rate_per_day: > 0, for ``balanced`` and ``decay``.

    Raises:
        ValueError: If a bound is broken or the profile is unknown.
    """
    for name, value in (("fused", fused), ("salience", salience)):
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} must lie in [0, 1], not {value}")
    age_days = max(0.0, age_days)
    if profile == "relevance":
        return fused
    if profile == "decay":
        return fused * salience * decay(age_days, rate_per_day)
    if profile == "balanced":
        return fused * (KEPT_SHARE + (1.0 - KEPT_SHARE) * salience * decay(age_days, rate_per_day))
    if profile == "weighted":
        recency = decay(age_days, 1.0 / RECENCY_DAYS)
        return SIMILARITY_WEIGHT * fused + RECENCY_WEIGHT * recency + IMPORTANCE_WEIGHT * salience
    raise ValueError(f"unknown rank profile {profile!r}")


RANKS: tuple[str, ...] = get_args(Profile)
_SECONDS_PER_DAY = 86_400.0
_BEST_FEW = 10
#: A hit that scores at most this share of the best one's is noise beside it; by words alone scores lie further apart.
_TAIL_SHARE, _WORDS_TAIL_SHARE = 0.3, 0.1
#: What a memory of the current project gains.
_PROJECT_GAIN = 1.15
#: Places that are kept for phrases and identifiers among the hits.
_EXACT_PLACES = 3
#: So many of the best by match alone are looked at; the rest cannot come among the first by age or importance.
_LEAST_RANKED, _RANKED_TIMES = 40, 3
#: A change comes before what it changed if it scores this share of it, and they share this part of their words.
_NEAR_TIE, _SAME_SUBJECT = 0.5, 0.2
#: How much a cross-encoder's opinion weighs beside the fused score.
_JUDGED_SHARE = 0.7


@frozen
class Ranking:
    """What ``find`` was asked for.

    Attributes:
        rank: How match, age and importance make the score; see ``rank_score``.
        limit: Hits at most.
        score_threshold: Leave out hits below it; None keeps all.
        floor: Whether weak evidence gives no hits.
        project: The project that is preferred, if any.
        time_only: Whether the query asks for a time and nothing else: what is of that time is the answer then.
        rate_per_day: How fast ``balanced`` and ``decay`` forget what is not used.
        past: Whether the query asks what was so before: what was contradicted or changed since answers it.
    """

    rank: Profile
    limit: int
    score_threshold: float | None
    floor: bool
    project: str | None = None
    time_only: bool = False
    rate_per_day: float = RATE_PER_DAY
    past: bool = False


def asks_of_past(query: str) -> bool:
    """Whether a question asks what was so before it changed: "what did I use before", 以前用什么."""
    return word_pattern(__file__, "past").search(query) is not None


@frozen
class Judge:
    """A second opinion on the best few.

    Attributes:
        scores: Maps document ids to how well each answers, in [0, 1]; an empty list if it cannot say.
        candidates: How many documents it is asked about.
    """

    scores: Callable[[Sequence[int]], Sequence[float]]
    candidates: int


@frozen
class Lookup:
    """What ranking asks the store.

    Attributes:
        entries: Documents by id; those that are gone are left out.
        usage: Access statistics by URI.
        voices: Memories that may be rivals, by URI; those that may not be named are left out.
        judge: A reranker's opinion, where there is one.
    """

    entries: Callable[[Sequence[int]], Mapping[int, Entry]]
    usage: Callable[[Sequence[str]], Mapping[str, Usage]]
    voices: Callable[[Sequence[str]], Mapping[str, Voice]]
    judge: Judge | None = None


@dataclass(slots=True)
class _Ranked:
    total: float
    age_days: float
    entry: Entry
    evidence: Evidence
    score: Score
    judged: float | None
    rivals: tuple[Rival, ...] = ()
    also: list[str] = field(default_factory=list)


def rank_hits(gathered: Gathered, lookup: Lookup, ranking: Ranking, now: datetime) -> list[Hit]:
    """Hits in the order of the profile, best first; none when nothing is relevant.

    What holds a phrase or identifier of the query exactly keeps a place whatever the rest scores.

    Args:
        gathered: Candidates, and what the store knows of the query's terms.
        lookup: Answers what else ranking needs to know.
        ranking: Profile and bounds.
        now: Time that ages count from, aware.
    """
    relevant = _relevant(gathered, ranking)
    promising = _promising(relevant, ranking, lookup.judge)
    judged = _judged(relevant, lookup.judge)
    folded = _folded(_ranked(promising, judged, lookup, ranking, now))
    if len(folded) < ranking.limit and len(promising) < len(relevant):
        folded = _folded(_ranked(relevant, judged, lookup, ranking, now))  # the best say the same, or are gone
    return [_hit(found, ranking) for found in _placed(folded, ranking.limit)]


def _ranked(
    relevant: Sequence[tuple[Evidence, Score]],
    judged: Mapping[int, float],
    lookup: Lookup,
    ranking: Ranking,
    now: datetime,
) -> list[_Ranked]:
    """Those that score enough in the profile, best first."""
    entries = lookup.entries([item.document for item, _ in relevant])
    rivals = _rivals(entries.values(), lookup.voices)
    used = lookup.usage([entry.uri for entry in entries.values()])
    ranked: list[_Ranked] = []
    for item, score in relevant:
        entry = entries.get(item.document)
        if entry is None:
            continue
        opinion = judged.get(entry.id)
        contested = rivals.get(entry.uri, ())
        match = score.total
        if judged:
            match += _JUDGED_SHARE * ((opinion or 0.0) - match)
        if contested and not ranking.past:
            match *= contested_share(_weight(entry, contested[0]))
        if ranking.rank != "relevance":
            match = min(1.0, match * trusted_share(entry.confidence, entry.support))
        if ranking.project is not None and entry.project == ranking.project:
            match = min(1.0, match * _PROJECT_GAIN)
        age_days = _age_days(entry, used.get(entry.uri), ranking.rank, now)
        total = rank_score(ranking.rank, match, entry.salience, age_days, ranking.rate_per_day)
        if total >= (ranking.score_threshold or 0.0):
            ranked.append(_Ranked(total, age_days, entry, item, score, opinion, contested))
    if not ranking.past:
        _lift(ranked)
        _lift_changes(ranked)
    return sorted(ranked, key=lambda found: (-found.total, len(found.rivals), found.entry.uri, found.entry.part))


def _weight(entry: Entry, rival: Rival) -> float:
    return contest(rival.strength, entry.confidence, rival.confidence)


def _lift(ranked: Sequence[_Ranked]) -> None:
    """Let a rival that also matches come before what it contests, unless it hardly weighs."""
    places = {found.entry.uri: found for found in ranked}
    for found in sorted(ranked, key=lambda found: found.entry.updated_at or ""):
        for rival in found.rivals:
            above = places.get(rival.uri)
            if above is not None and _weight(found.entry, rival) >= USUAL_CONTEST:
                above.total = max(above.total, found.total)


def _lift_changes(ranked: Sequence[_Ranked]) -> None:
    """Let a memory that tells of a change come before an older one about the same thing.

    What is "no longer" so, or 改成 another way, shares words with what was so before, and the question's words often
    stand more purely in the older one. Only near ties change places.
    """
    memories = sorted(
        (found for found in ranked if found.entry.context_type == "memory"), key=lambda found: -found.total
    )
    several = memories[:_BEST_FEW]
    changes = [found for found in several if word_pattern(__file__, "change").search(found.entry.abstract)]
    for found in changes:
        for older in several:
            if _moment(older) >= _moment(found) or not found.total < older.total <= found.total / _NEAR_TIE:
                continue
            own, others = _content_words(found.entry.abstract), _content_words(older.entry.abstract)
            if len(own & others) >= _SAME_SUBJECT * min(len(own), len(others)) > 0:
                found.total = math.nextafter(older.total, math.inf)


def _moment(found: _Ranked) -> tuple[str, int]:
    """When a memory was last changed; of one second, which was indexed later."""
    return found.entry.updated_at or "", found.entry.id


def _content_words(text: str) -> frozenset[str]:
    return distinct_words(text) - word_set(__file__, "everybody")


def _relevant(gathered: Gathered, ranking: Ranking) -> list[tuple[Evidence, Score]]:
    """Candidates with their scores; without those that are noise, and none when all are."""
    question = gathered.question
    candidates = [item.candidate for item in gathered.evidence]
    scores = fuse(candidates, question, calibration=gathered.calibration)
    found = list(zip(gathered.evidence, scores, strict=True))
    if ranking.time_only and any(item.candidate.names_date for item in gathered.evidence):
        return [(item, score) for item, score in found if item.candidate.names_date]
    if not ranking.floor or not found:
        return found
    best = nlargest(_BEST_FEW, scores, key=lambda score: score.total)
    if not is_relevant(best, question, calibration=gathered.calibration):
        return [(item, score) for item, score in found if item.exact or item.whole]
    by_meaning = best[0].semantic is not None and gathered.calibration.judges
    tail = (_TAIL_SHARE if by_meaning else _WORDS_TAIL_SHARE) * best[0].total
    return [(item, score) for item, score in found if score.total > tail or item.exact or item.whole or item.rare]


def _promising(
    relevant: list[tuple[Evidence, Score]], ranking: Ranking, judge: Judge | None
) -> list[tuple[Evidence, Score]]:
    """All, where time and importance decide; else the best by match.

    Whatever holds a phrase, an identifier or a rare word is among them.
    """
    if ranking.rank not in ("relevance", "balanced"):
        return relevant
    count = max(_LEAST_RANKED, _RANKED_TIMES * ranking.limit, judge.candidates if judge is not None else 0)
    best = nlargest(count, relevant, key=lambda found: found[1].total)
    return best + [found for found in relevant if (found[0].exact or found[0].rare) and found not in best]


def _judged(relevant: Sequence[tuple[Evidence, Score]], judge: Judge | None) -> dict[int, float]:
    """The judge's opinion on the best few, by document id; what it was not asked about counts as no answer."""
    if judge is None or not relevant:
        return {}
    best = nlargest(judge.candidates, relevant, key=lambda found: found[1].total)
    documents = [item.document for item, _ in best]
    scores = judge.scores(documents)
    return dict(zip(documents, scores, strict=True)) if scores else {}


def _rivals(
    entries: Collection[Entry], voices: Callable[[Sequence[str]], Mapping[str, Voice]]
) -> dict[str, tuple[Rival, ...]]:
    """For each memory the ones that say otherwise and were written later, the weightiest first."""
    named: dict[str, list[tuple[str, str, float]]] = {
        entry.uri: json.loads(entry.contested_by) for entry in entries if entry.contested_by != "[]"
    }
    if not named:
        return {}
    known = voices([uri for several in named.values() for uri, _, _ in several])
    rivals: dict[str, tuple[Rival, ...]] = {}
    for entry in entries:
        newer: dict[str, Rival] = {}
        for uri, relation, strength in named.get(entry.uri, ()):
            voice = known.get(uri)
            own = entry.updated_at or ""
            if voice is None or not outdoes(relation, voice.updated_at, voice.confidence, own, entry.confidence):
                continue
            if uri not in newer or strength > newer[uri].strength:
                newer[uri] = Rival(uri, relation, strength, voice.confidence, voice.abstract, voice.updated_at)
        if newer:
            rivals[entry.uri] = tuple(sorted(newer.values(), key=lambda each: (-_weight(entry, each), each.uri)))
    return rivals


def _folded(ranked: Sequence[_Ranked]) -> list[_Ranked]:
    """One place for all that say the same; the best keeps it and names the others."""
    first: dict[str, _Ranked] = {}
    kept: list[_Ranked] = []
    for found in ranked:
        entry = found.entry
        key = f"{entry.context_type} {entry.signature}"
        holder = first.setdefault(key, found) if entry.signature else found
        if holder is found:
            kept.append(found)
        else:
            holder.also.append(_uri(entry))
    return kept


def _placed(ranked: Sequence[_Ranked], limit: int) -> list[_Ranked]:
    """The best ``limit``. The last places are kept for what holds the query's phrases, identifiers or a rare word."""
    chosen, below = list(ranked[:limit]), ranked[limit:]
    entitled = [found for found in below if found.evidence.exact][:_EXACT_PLACES]
    if not any(found.evidence.rare for found in chosen):
        entitled += [found for found in below if found.evidence.rare and found not in entitled][:1]
    for found in entitled:
        places = [at for at, held in enumerate(chosen) if not held.evidence.exact and held not in entitled]
        if places:
            del chosen[places[-1]]
            chosen.append(found)
    return chosen


def interleaved(lists: Sequence[Sequence[Hit]]) -> tuple[Hit, ...]:
    """The first of each list, then the second; each hit once, its better score, and none that another stands for."""
    score: dict[str, float] = {}
    for hit in (hit for hits in lists for hit in hits):
        score[hit.uri] = max(hit.score, score.get(hit.uri, 0.0))
    kept: list[Hit] = []
    stood_for: set[str] = set()
    for hit in (hit for row in zip_longest(*lists) for hit in row if hit is not None):
        if stood_for.isdisjoint((hit.uri, *hit.also)):
            kept.append(replace(hit, score=score[hit.uri]))
            stood_for.update((hit.uri, *hit.also))
    return tuple(kept)


def _hit(found: _Ranked, ranking: Ranking) -> Hit:
    entry = found.entry
    why = {"lexical": found.score.lexical}
    if found.score.semantic is not None:
        why["semantic"] = found.score.semantic
    if found.judged is not None:
        why["rerank"] = found.judged
    if ranking.rank != "relevance":
        rate_per_day = 1.0 / RECENCY_DAYS if ranking.rank == "weighted" else ranking.rate_per_day
        why |= {"recency": decay(found.age_days, rate_per_day), "salience": entry.salience}
    candidate = found.evidence.candidate
    speaks = {
        "exact": float(found.evidence.exact),
        "speaker": float(candidate.names_speaker),
        "date": candidate.names_date,
        "linked": candidate.linked,
        "project": float(ranking.project is not None and entry.project == ranking.project),
    }
    why |= {name: share for name, share in speaks.items() if share}
    if candidate.substance < 1.0:
        why["substance"] = candidate.substance
    shown = {name: round(value, 4) for name, value in why.items()}
    score, also = round(found.total, 4), tuple(found.also)
    return hit_of(entry, score, shown, project=entry.project, also=also, rivals=found.rivals)


def hit_of(entry: Entry, score: float, why: Mapping[str, float], **more: Any) -> Hit:
    """A document as it is shown to whoever searched; ``more`` are further members of the hit."""
    what = (_uri(entry), entry.context_type, entry.memory_type)
    return Hit(*what, score, entry.abstract, entry.updated_at, why, confidence=entry.confidence, **more)


def _uri(entry: Entry) -> str:
    return f"{entry.uri}#{entry.part}" if entry.memory_type in ("message", "daily_logs") else entry.uri


def _age_days(entry: Entry, usage: Usage | None, profile: Profile, now: datetime) -> float:
    """Days since last use, else since the last change (``weighted``: creation); 0 where no time is known."""
    if usage is not None:
        moment = usage.last_accessed_at
    else:
        written = read_moment(entry.created_at if profile == "weighted" else entry.updated_at)
        if written is None:
            return 0.0
        moment = written
    return max(0.0, (now - moment).total_seconds() / _SECONDS_PER_DAY)
