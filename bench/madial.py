"""MADial-Bench in Chinese: are the memories found that a dialogue should call up?

Every memory of the file is committed over stdio as an event with its date. A question is the user's last three lines
before a turn in which the assistant should remember; one list of ten hits.

    python -m bench.madial --memories memory.jsonl --dialogues dialogue.jsonl
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.contest import Contest
from bench.corpora import madial
from bench.report import print_floor, print_recall
from memory_core.core.index.encoder import BundledEmbedder

GOALS = {"recall_10": 0.65}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=Path, required=True, help="memories, one JSON object a line")
    parser.add_argument("--dialogues", type=Path, required=True, help="dialogues, one JSON object a line")
    arguments = parser.parse_args()
    corpus = madial.read(arguments.memories, arguments.dialogues)
    contest = Contest()
    contest.run(corpus, BundledEmbedder())
    print(f"{len(corpus.passages)} memories, {len(corpus.questions)} questions (a memory counts as its own session)")
    print_recall(contest, "dialogue", GOALS)
    print_floor(contest)


if __name__ == "__main__":
    main()
