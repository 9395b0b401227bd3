"""LongMemEval: are the turns found that answer a question about months of chats with an assistant?

Takes the set's own file (``longmemeval_s.json``, ``_m`` or ``_oracle``; not shipped). Each question has its own
history, so each gets its own store, filled over stdio, and is asked as of its date. Questions with nothing to find
(ids ending in ``_abs``) are reported apart: how many come back empty.

    python -m bench.longmemeval --data longmemeval_s.json --limit 50
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.contest import OURS, Contest
from bench.corpora import longmemeval
from bench.report import print_floor, print_recall
from memory_core.core.index.encoder import BundledEmbedder


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a file in LongMemEval's own format")
    parser.add_argument("--limit", type=int, default=None, help="the first so many questions only")
    arguments = parser.parse_args()
    answered, abstaining, embedder = Contest(), Contest(), BundledEmbedder()
    turns = skipped = 0
    for corpus in longmemeval.read(arguments.data, arguments.limit):
        skipped += corpus.skipped
        for question in corpus.questions:
            (answered if question.scored else abstaining).run(corpus, embedder)
            turns += len(corpus.passages)
            print(f"{corpus.name}: {len(corpus.passages)} turns", flush=True)
    asked = len(answered.outcomes.get(OURS, ())) + len(abstaining.outcomes.get(OURS, ()))
    print(f"\n{asked} questions, {turns} turns in all; {skipped} without a marked turn left out")
    if answered.outcomes:
        print_recall(answered, "question", {})
        print_floor(answered)
    if abstaining.outcomes:
        left = [item.empty for item in abstaining.outcomes[OURS]]
        print(f"\nabstention questions left empty: {sum(left)} of {len(left)}")


if __name__ == "__main__":
    main()
