"""Every kind of store in one run: what is found among friends' chats, work with an assistant, notes and memories.

Each data set's conversations go into stores of their own over stdio, and each question is asked with shipped defaults,
by words only, of plain BM25 and of the encoder alone. What helps one set and hurts another is no gain.

    python -m bench.every_set --locomo locomo10.json --realtalk realtalk.json --memdaily memdaily.json
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bench.contest import ENCODER, LEXICAL, OURS, UNFLOORED, WORDS, Contest, strange_questions
from bench.corpora import add_options, chosen
from bench.corpus import Corpus
from bench.recall import Outcome, bootstrap, mean
from memory_core.core.index.encoder import BundledEmbedder

_COLUMNS = (OURS, WORDS, LEXICAL, ENCODER)
#: Sets whose conversations differ so much that the questions of one have no answer in another.
_APART = ("LoCoMo", "REALTALK")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    embedder = BundledEmbedder()
    contests: dict[str, Contest] = {}
    for name, corpora in chosen(parser.parse_args()).items():
        contests[name] = _measured(corpora, embedder, apart=name in _APART)
        print(
            f"{name}: {len(corpora)} stores, {sum(len(corpus.questions) for corpus in corpora)} questions", flush=True
        )
    for measure, head in (("recall_10", "R@10"), ("recall_20", "R@20")):
        print(f"\n{head} with its 95 % interval, questions resampled\n  {'':<20}{'n':>5}" + _heads())
        for name, contest in contests.items():
            scored = {column: _scored(contest.outcomes[column]) for column in _COLUMNS}
            cells = "".join(_cell(scored[column], measure) for column in _COLUMNS)
            print(f"  {name:<20}{len(scored[OURS]):>5}{cells}")
    print(f"\n  {'':<20}{'questions of other conversations left empty':>45}{'cost of the floor, points of R@10':>36}")
    for name, contest in contests.items():
        ours, free = (_scored(contest.outcomes[column]) for column in (OURS, UNFLOORED))
        empty = f"{mean(contest.strange, 'empty'):.1%} of {len(contest.strange)}" if contest.strange else "-"
        print(f"  {name:<20}{empty:>45}{100 * (mean(free, 'recall_10') - mean(ours, 'recall_10')):>36.2f}")


def _measured(corpora: Sequence[Corpus], embedder: BundledEmbedder, *, apart: bool) -> Contest:
    contest = Contest()
    for at, corpus in enumerate(corpora):
        contest.run(corpus, embedder, strange_questions(corpora, at) if apart else ())
    return contest


def _scored(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.question.scored]


def _heads() -> str:
    return "".join(f"{column:>24}" for column in _COLUMNS)


def _cell(outcomes: Sequence[Outcome], measure: str) -> str:
    low, high = bootstrap([getattr(outcome, measure) for outcome in outcomes])
    return f"{f'{mean(outcomes, measure):.3f} [{low:.3f}, {high:.3f}]':>24}"


if __name__ == "__main__":
    main()
