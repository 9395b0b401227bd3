"""LoCoMo in one store: are the right turns found among several people's lives?

All conversations go into one store over stdio, each session under the name of its conversation, and every question
is asked there; nothing but what a question says tells which life it means. The same questions on a store for each
conversation, in the same run, show what pooling costs.

    python -m bench.pooled --data locomo10.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.contest import Contest
from bench.corpora import locomo
from bench.corpus import pool
from bench.recall import mean
from bench.report import print_floor, print_recall
from memory_core.core.index.encoder import BundledEmbedder


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a file in LoCoMo's own format")
    corpora = locomo.read(parser.parse_args().data)
    embedder, together, apart = BundledEmbedder(), Contest(), Contest()
    whole = pool(corpora)
    together.run(whole, embedder)
    print(f"{len(corpora)} conversations in one store: {len(whole.passages)} turns, {len(whole.questions)} questions")
    for corpus in corpora:
        apart.run(corpus, embedder)
    print_recall(together, "conversation", {})
    print_floor(together)
    print("\nwhat pooling costs, in points of R@5 and R@10, questions with an answer")
    for name in together.outcomes:
        alone, pooled = (
            [item for item in contest.outcomes[name] if item.question.scored] for contest in (apart, together)
        )
        costs = [100 * (mean(alone, measure) - mean(pooled, measure)) for measure in ("recall_5", "recall_10")]
        print(f"  {name:<28}{costs[0]:>+8.2f}{costs[1]:>+8.2f}   R@10 {mean(alone, 'recall_10'):.3f} apart")


if __name__ == "__main__":
    main()
