"""LoCoMo: are the turns found that answer a question?

Commits every conversation through the MCP tool over stdio, a fresh store each, then asks each question through the
library that the server uses, with shipped defaults; beside it in the same run words only, BM25 only and encoder only.
Each store is also asked questions of the next conversations, which should come back empty.

    python -m bench.locomo --data locomo10.json

Categories: 1 multi-hop, 2 temporal, 3 open-domain, 4 single-hop, 5 adversarial (unanswerable: reported apart).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.contest import Contest, strange_questions
from bench.corpora import locomo
from bench.report import print_floor, print_recall
from memory_core.core.index.encoder import BundledEmbedder

GOALS = {"recall_5": 0.68, "recall_10": 0.77}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a file in LoCoMo's own format")
    corpora = locomo.read(parser.parse_args().data)
    contest, embedder = Contest(), BundledEmbedder()
    for at, corpus in enumerate(corpora):
        contest.run(corpus, embedder, strange_questions(corpora, at))
        print(
            f"{corpus.name}: {len(corpus.passages)} turns, {len(corpus.questions)} questions "
            f"({corpus.skipped} without evidence left out)",
            flush=True,
        )
    print_recall(contest, "conversation", GOALS)
    print_floor(contest)


if __name__ == "__main__":
    main()
