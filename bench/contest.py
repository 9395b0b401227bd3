"""Every contestant asked the same questions about the same passages, in one run.

Ours with shipped defaults, ours by words only, ours without the floor, BM25 alone and cosine alone. Each of ours opens
its own copy of the filled store, so that what one search leaves behind (usage) never moves another's ranking.

A floor is worth what it keeps out and costs what it keeps out wrongly: a store is also asked questions of other
conversations, which should come back empty.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.baselines import EncoderBaseline, LexicalBaseline
from bench.corpus import Corpus, Question
from bench.recall import LIMIT, Found, Outcome
from bench.stores import Search, ask, asking, commit_over_stdio, opened
from memory_core.core.index.encoder import Embedder

OURS, WORDS, LEXICAL, ENCODER = "shipped defaults", "ours, words only", "BM25 only", "encoder only"
UNFLOORED = "ours, floor off"
#: Conversations after a store's own that strange questions are drawn from, and how many for each store.
_NEXT, _STRANGE = 2, 100


@dataclass(slots=True)
class Contest:
    """Outcomes of every contestant.

    Attributes:
        outcomes: By contestant, in the order of the questions.
        strange: Ours, asked what another conversation holds.
    """

    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)
    strange: list[Outcome] = field(default_factory=list)

    def add(self, contestant: str, outcomes: Sequence[Outcome]) -> None:
        """Keep a contestant's outcomes beside its earlier ones."""
        self.outcomes.setdefault(contestant, []).extend(outcomes)

    def run(self, corpus: Corpus, embedder: Embedder, strange: Sequence[Question] = ()) -> None:
        """Fill a store over stdio and let every contestant answer the corpus's questions.

        Args:
            corpus: What is stored and asked.
            embedder: Of the encoder's baseline.
            strange: Questions that nothing in the corpus answers.
        """
        with tempfile.TemporaryDirectory(prefix="runebook-recall-") as folder:
            home = Path(folder) / "store"
            ids = commit_over_stdio(home, corpus)
            with opened(home):
                pass  # embeds everything once, for all copies
            with copied(home) as copy, opened(copy) as memory:
                search = asking(memory, ids)
                self.add(OURS, ask(search, corpus))
                self.strange += ask(search, corpus, strange)
            with copied(home) as copy, opened(copy, provider="none") as memory:
                self.add(WORDS, ask(asking(memory, ids), corpus))
            with LexicalBaseline(corpus.passages) as lexical:
                self.add(LEXICAL, ask(_plain(lexical), corpus))
            self.add(ENCODER, ask(_plain(EncoderBaseline(corpus.passages, embedder)), corpus))
            with copied(home) as copy, opened(copy, floor=False) as memory:
                self.add(UNFLOORED, ask(asking(memory, ids), corpus))


def strange_questions(corpora: Sequence[Corpus], at: int) -> list[Question]:
    """A fixed sample of what the next conversations are asked and can answer; none where there is no other."""
    others = [corpora[(at + step) % len(corpora)] for step in range(1, min(_NEXT, len(corpora) - 1) + 1)]
    questions = [question for corpus in others for question in corpus.questions if question.scored]
    return random.Random(at).sample(questions, min(_STRANGE, len(questions)))


def _plain(baseline: LexicalBaseline | EncoderBaseline) -> Search:
    return lambda question: [Found(name) for name in baseline.search(question.text, LIMIT)]


@contextmanager
def copied(home: Path) -> Iterator[Path]:
    """A copy of a store that lasts as long as the block."""
    copy = home.with_name("copy")
    shutil.copytree(home, copy)
    try:
        yield copy
    finally:
        shutil.rmtree(copy)
