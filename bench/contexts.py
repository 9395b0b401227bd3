"""Does the context that an agent is given hold the answer?

Commits each corpus through the MCP tool over stdio, a fresh store each, then calls ``retrieve`` with each question,
shipped defaults, no language model, at several budgets. Counted is the share of gold passages whose own words are in
the text of the context, however they were found; of a passage of more than 300 characters any 120 of them in a row.
Beside it in the same run, as a baseline: BM25's best passages, one a line, whole, in the same budget.

    python -m bench.contexts --locomo locomo10.json --beam beam100k.json
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from bench.baselines import LexicalBaseline
from bench.contest import copied
from bench.corpora import add_options, chosen
from bench.corpus import Corpus, Question
from bench.recall import bootstrap, percentile
from bench.stores import commit_over_stdio, opened
from memory_core.core.memory.requests import RetrieveRequest
from memory_core.core.text.tokens import count_tokens

BUDGETS = (1_000, 2_000, 4_000)
OURS, LEXICAL = "shipped defaults", "BM25 only, lines"
#: Least shares at a budget, by set, and of one category.
GOALS: Mapping[str, Mapping[int, float]] = {"LoCoMo": {2_000: 0.88, 4_000: 0.92}, "REALTALK": {2_000: 0.76}}
_MULTI_HOP = ("LoCoMo", "1 multi-hop", 2_000, 0.68)
#: A gold passage of more characters counts where so many of it stand in a row, tried at each step.
_LONG_CHARS, _ROW_CHARS, _STEP_CHARS = 300, 120, 40
#: A speaker's name is no longer, and not part of what was said.
_NAME_CHARS = 40
#: Passages that the baseline may take.
_LEXICAL_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class Given:
    """One context.

    Attributes:
        category: Of the question.
        share: Of its gold passages, those in the text.
        tokens: What the context costs.
        seconds: What it took.
    """

    category: str
    share: float
    tokens: int
    seconds: float


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    for name, corpora in chosen(parser.parse_args()).items():
        given: dict[tuple[str, int], list[Given]] = {}
        for corpus in corpora:
            for key, contexts in chain(ours(corpus), lexical_lines(corpus)):
                given.setdefault(key, []).extend(contexts)
        report(name, given)


def ours(corpus: Corpus) -> Iterator[tuple[tuple[str, int], list[Given]]]:
    """What ``retrieve`` gives at each budget, for each question that has an answer."""
    texts, questions = _asked(corpus)
    with tempfile.TemporaryDirectory(prefix="runebook-contexts-") as folder:
        home = Path(folder) / "store"
        commit_over_stdio(home, corpus)
        with opened(home):
            pass  # embeds everything once, for all copies
        for budget in BUDGETS:
            with copied(home) as copy, opened(copy) as memory:
                contexts = []
                for question in questions:
                    request = RetrieveRequest(question.text, token_budget=budget, now=question.now)
                    started = time.perf_counter()
                    pack = memory.retrieve(request)
                    seconds = time.perf_counter() - started
                    contexts.append(Given(question.category, _share(question, texts, pack.text), pack.tokens, seconds))
            yield (OURS, budget), contexts


def lexical_lines(corpus: Corpus) -> Iterator[tuple[tuple[str, int], list[Given]]]:
    """BM25's best passages in the same budgets."""
    texts, questions = _asked(corpus)
    owns = {passage.id: passage.own for passage in corpus.passages}
    with LexicalBaseline(corpus.passages) as lexical:
        for budget in BUDGETS:
            contexts = []
            for question in questions:
                started = time.perf_counter()
                text = _lines([owns[name] for name in lexical.search(question.text, _LEXICAL_LIMIT)], budget)
                seconds = time.perf_counter() - started
                share = _share(question, texts, text)
                contexts.append(Given(question.category, share, count_tokens(text), seconds))
            yield (LEXICAL, budget), contexts


def _asked(corpus: Corpus) -> tuple[dict[str, str], list[Question]]:
    """What each passage says, and the questions that have an answer."""
    texts = {passage.id: _said(passage.own) for passage in corpus.passages}
    return texts, [question for question in corpus.questions if question.scored]


def report(name: str, given: Mapping[tuple[str, int], Sequence[Given]]) -> None:
    """Print what was measured of one set."""
    count = len(next(iter(given.values())))
    print(f"\n{name}: {count} questions; share of gold passages in the context, 95 % interval of questions resampled")
    print(f"  {'':<24}{'budget':>8}{'share':>8}{'interval':>16}{'tokens':>8}{'p50 ms':>8}{'p95 ms':>8}")
    for (contestant, budget), contexts in sorted(given.items(), key=lambda item: (item[0][0] != OURS, item[0][1])):
        shares = [context.share for context in contexts]
        low, high = bootstrap(shares)
        times = [1e3 * context.seconds for context in contexts]
        tokens = sum(context.tokens for context in contexts) / count
        print(
            f"  {contestant:<24}{budget:>8,}{sum(shares) / count:>8.3f}{f'{low:.3f}-{high:.3f}':>16}{tokens:>8,.0f}"
            f"{percentile(times, 0.5):>8.1f}{percentile(times, 0.95):>8.1f}"
        )
    categories = sorted({context.category for context in given[OURS, BUDGETS[0]]})
    for category in categories if len(categories) > 1 else ():
        shares = [_mean(given[OURS, budget], category) for budget in BUDGETS]
        print(f"  {category:<32}" + "".join(f"{share:>8.3f}" for share in shares))
    for budget, goal in GOALS.get(name, {}).items():
        print(f"  goal at {budget:,} >= {goal:.2f}: {_mean(given[OURS, budget]):.3f}")
    if name == _MULTI_HOP[0]:
        _, category, budget, goal = _MULTI_HOP
        print(
            f"  goal of {category} at {budget:,} >= {goal:.2f}: {_mean(given[OURS, budget], category):.3f}", flush=True
        )


def _mean(contexts: Sequence[Given], category: str | None = None) -> float:
    shares = [context.share for context in contexts if category in (None, context.category)]
    return sum(shares) / len(shares)


def _share(question: Question, texts: Mapping[str, str], context: str) -> float:
    """The share of a question's gold passages whose words are in the context."""
    shown = " ".join(context.split())
    return sum(_stands_in(texts[name], shown) for name in question.gold) / len(question.gold)


def _stands_in(text: str, shown: str) -> bool:
    if text in shown:
        return True
    starts = range(0, len(text) - _ROW_CHARS, _STEP_CHARS) if len(text) > _LONG_CHARS else ()
    return any(text[start : start + _ROW_CHARS] in shown for start in starts)


def _said(own: str) -> str:
    """A passage without its speaker, on one line."""
    _, mark, said = own.partition(": ")
    return " ".join((said if mark and own.index(mark) < _NAME_CHARS else own).split())


def _lines(passages: Sequence[str], budget: int) -> str:
    """The first passages that fit, one a line."""
    lines: list[str] = []
    for passage in passages:
        tokens = count_tokens(passage)
        if tokens <= budget:
            lines.append(" ".join(passage.split()))
            budget -= tokens
    return "\n".join(lines)


if __name__ == "__main__":
    main()
