"""How the weights of the fusion are chosen: on all data sets but one, then scored on that one.

The evidence for every candidate of every question is gathered once, through the retriever of a store that was filled
over stdio. Then ``fusion.fuse`` scores it under every set of weights of a grid; for each data set the weights that are
best on the others (R@10, then R@5, each set counting the same) are scored on it, beside the shipped ones. By match
alone: no floor, no time. Of one data set its conversations are left out one by one.

    python -m bench.weights --locomo locomo10.json --realtalk realtalk.json
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from bench.corpora import add_options, chosen
from bench.corpus import Corpus
from bench.recall import bootstrap
from bench.stores import commit_over_stdio, opened
from memory_core.core.memory.requests import FindRequest
from memory_core.core.search.candidates import CandidateSearch, Gathered, Sought
from memory_core.core.search.fusion import Calibration, Candidate, Question, Weights, fuse
from memory_core.runebook import Runebook

_LEXICAL = (0.3, 0.4, 0.5)
_SPEAKER = (0.1, 0.2, 0.3)
_DATE = (0.0, 0.08)
_LINKED = (0.0, 0.1, 0.2)
_SUBSTANCE = (0.0, 0.25, 0.4)
_NEAR = 10


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and what was found for it, not yet judged.

    Attributes:
        gold: Ids of the passages that answer it.
        ids: Of the candidates.
        candidates: Their evidence.
        question: What the store knows of its terms.
        calibration: Of the model.
    """

    gold: frozenset[str]
    ids: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    question: Question
    calibration: Calibration

    def recall(self, weights: Weights) -> tuple[float, float]:
        """R@10 and R@5 when candidates are ranked by ``fuse`` with these weights."""
        scores = fuse(self.candidates, self.question, weights, self.calibration)
        ranked = sorted(zip(scores, self.ids, strict=True), key=lambda pair: (-pair[0].total, pair[1]))
        best = [name for _, name in ranked[:_NEAR]]
        return _share(self.gold, best), _share(self.gold, best[:5])


@dataclass(frozen=True, slots=True)
class Fold:
    """One data set or conversation, scored with weights chosen on the others.

    Attributes:
        name: Of what was left out.
        chosen: Best on the others.
        held_out: R@10 and R@5 of each of its questions with them.
        shipped: The same with the shipped weights.
    """

    name: str
    chosen: Weights
    held_out: tuple[tuple[float, float], ...]
    shipped: tuple[tuple[float, float], ...]


def grid() -> list[Weights]:
    """All sets of weights that are tried; lexical and semantic add up to one."""
    return [
        Weights(lexical, round(1.0 - lexical, 2), *others)
        for lexical, *others in product(_LEXICAL, _SPEAKER, _DATE, _LINKED, _SUBSTANCE)
    ]


def leave_one_out(asked: dict[str, list[Asked]], choices: Sequence[Weights]) -> list[Fold]:
    """A fold for each name.

    Args:
        asked: Questions by data set or conversation, at least two. "MemDaily, a chat" and "MemDaily, memories" are
            one data set, read in two ways: neither has a say in the other's weights.
        choices: Sets of weights to choose from; the first of equals is chosen.
    """
    results = {
        name: [[question.recall(weights) for question in questions] for weights in choices]
        for name, questions in asked.items()
    }
    folds = []
    for name, questions in asked.items():
        others = [other for other in asked if _data_set(other) != _data_set(name)]

        def quality(choice: int, others: Sequence[str] = others) -> tuple[float, float]:
            return _means([_means(results[other][choice]) for other in others])

        best = max(range(len(choices)), key=quality)
        shipped = tuple(question.recall(Weights()) for question in questions)
        folds.append(Fold(name, choices[best], tuple(results[name][best]), shipped))
    return folds


def _data_set(name: str) -> str:
    return name.partition(",")[0]


class _Tap(CandidateSearch):
    """Passes a search on and keeps what was gathered."""

    def __init__(self, inner: CandidateSearch) -> None:
        self._inner = inner
        self.gathered: list[Gathered] = []

    def gather(self, sought: Sought) -> Gathered:
        found = self._inner.gather(sought)
        self.gathered.append(found)
        return found


def collect(memory: Runebook, corpus: Corpus, ids: dict[str, str]) -> Iterator[Asked]:
    """Evidence for every question that has an answer and is sought as one."""
    tap = memory.retriever._candidates = _Tap(memory.retriever._candidates)
    for question in corpus.questions:
        if not question.scored:
            continue
        tap.gathered.clear()
        memory.find(FindRequest(question.text, now=question.now))
        if len(tap.gathered) != 1:  # small talk, for which nothing is sought, or several questions in one
            continue
        (gathered,) = tap.gathered
        entries = memory.indexer.catalog.entries([item.document for item in gathered.evidence])
        held = [item for item in gathered.evidence if item.document in entries]
        places = [entries[item.document] for item in held]
        found = (ids.get(f"{place.uri}#{place.part}") or ids.get(place.uri, place.uri) for place in places)
        yield Asked(
            question.gold,
            tuple(found),
            tuple(item.candidate for item in held),
            gathered.question,
            gathered.calibration,
        )


def main() -> None:
    """Collect, choose, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    sets = chosen(parser.parse_args())
    asked: dict[str, list[Asked]] = {}
    for name, corpora in sets.items():
        for corpus in corpora:
            with tempfile.TemporaryDirectory(prefix="runebook-weights-") as folder:
                ids = commit_over_stdio(Path(folder), corpus)
                with opened(Path(folder)) as memory:
                    found = asked.setdefault(name if len(sets) > 1 else corpus.name, [])
                    found += collect(memory, corpus, ids)
    for name, questions in asked.items():
        print(f"{name}: {len(questions)} questions", flush=True)
    if len({_data_set(name) for name in asked}) < 2:
        raise SystemExit("one conversation cannot be left out: name another data set, or one with several")
    report(leave_one_out(asked, grid()))


def report(folds: Sequence[Fold]) -> None:
    """Fold by fold, then all questions."""
    print(f"\n{len(grid())} sets of weights; shipped: {_named(Weights())}")
    print(f"  {'held out':<30}{'n':>5}{'R@10':>8}{'R@5':>8}{'shipped':>10}{'R@5':>8}   chosen on the others")
    for fold in folds:
        _row(fold.name, fold.held_out, fold.shipped, _named(fold.chosen))
    held_out = [pair for fold in folds for pair in fold.held_out]
    shipped = [pair for fold in folds for pair in fold.shipped]
    _row("all", held_out, shipped, "")
    for label, pairs in (("chosen", held_out), ("shipped", shipped)):
        interval = bootstrap([pair[0] for pair in pairs])
        print(f"  95 % interval of R@10, questions resampled, {label}: {interval.low:.3f}-{interval.high:.3f}")


def _row(
    name: str, held_out: Sequence[tuple[float, float]], shipped: Sequence[tuple[float, float]], weights: str
) -> None:
    (ten, five), (ten_shipped, five_shipped) = _means(held_out), _means(shipped)
    print(f"  {name:<30}{len(held_out):>5}{ten:>8.3f}{five:>8.3f}{ten_shipped:>10.3f}{five_shipped:>8.3f}   {weights}")


def _means(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return statistics.fmean(pair[0] for pair in pairs), statistics.fmean(pair[1] for pair in pairs)


def _named(weights: Weights) -> str:
    return ", ".join(
        f"{name} {getattr(weights, name):g}"
        for name in ("lexical", "semantic", "speaker", "date", "linked", "substance")
    )


def _share(wanted: frozenset[str], found: Sequence[str]) -> float:
    return len(wanted & set(found)) / len(wanted)


if __name__ == "__main__":
    main()
