"""Prints what a contest measured, the same way for every data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.contest import OURS, UNFLOORED, Contest
from bench.recall import Interval, Outcome, bootstrap, cluster_bootstrap, mean, percentile

_MEASURES = (
    "recall_5",
    "recall_10",
    "reciprocal_rank",
    "sessions_5",
    "sessions_10",
    "any_session_5",
    "any_session_10",
)
_HEADS = ("R@5", "R@10", "MRR", "ses@5", "ses@10", "any@5", "any@10")
_WIDTH = 28
_GOAL_EMPTY, _GOAL_COST = 0.60, 1.0

LEGEND = """
R: share of gold passages among the first k hits. ses: share of gold sessions among those of the first k hits.
any: whether one gold session is among them. ms: in process, model loaded.""".lstrip()


def print_recall(contest: Contest, cluster: str, goals: Mapping[str, float]) -> None:
    """Tables of every contestant, by category for ours, and intervals.

    Args:
        contest: What was measured.
        cluster: What ``Question.cluster`` is here, e.g. "conversation".
        goals: Least values of measures of ours, without unanswerable questions.
    """
    scored = {name: [item for item in held if item.question.scored] for name, held in contest.outcomes.items()}
    print(f"\n{LEGEND}")
    _table("questions with an answer", scored)
    if len(scored[OURS]) < len(contest.outcomes[OURS]):
        _table("adversarial questions too", contest.outcomes)
    _categories(contest.outcomes[OURS])
    _intervals(scored, cluster)
    ours = scored[OURS]
    folded = mean(ours, "recall_10_folded")
    print(f"\nfolded passages counted at their hit's place (not above): R@10 {folded:.3f}")
    for measure, goal in goals.items():
        print(f"goal {_HEADS[_MEASURES.index(measure)]} >= {goal:.2f}: {mean(ours, measure):.3f}")


def print_floor(contest: Contest) -> None:
    """What the floor keeps out of other conversations' questions, and what it costs its own."""
    if contest.strange:
        empty = [float(item.empty) for item in contest.strange]
        share = sum(empty) / len(empty)
        interval = bootstrap(empty)
        print(
            f"\nquestions of other conversations left empty: {share:.1%} of {len(empty)} "
            f"[{interval.low:.1%}, {interval.high:.1%}] (goal >= {_GOAL_EMPTY:.0%})"
        )
    kept, free = ([item for item in contest.outcomes[name] if item.question.scored] for name in (OURS, UNFLOORED))
    costs = [100 * (mean(free, measure) - mean(kept, measure)) for measure in ("recall_5", "recall_10")]
    refused = sum(item.empty for item in kept)
    print(
        f"cost of the floor: {costs[0]:+.2f} points of R@5, {costs[1]:+.2f} of R@10 (goal <= {_GOAL_COST:.0f}); "
        f"{refused} of {len(kept)} questions with an answer left empty"
    )


def print_line(label: str, outcomes: Sequence[Outcome]) -> None:
    """One row of the table."""
    times = [item.seconds * 1e3 for item in outcomes]
    cells = "".join(f"{mean(outcomes, measure):>8.3f}" for measure in _MEASURES)
    print(f"  {label:<{_WIDTH}}{len(outcomes):>6}{cells}{percentile(times, 0.5):>8.1f}{percentile(times, 0.95):>8.1f}")


def print_heads(title: str) -> None:
    """The heads of the table."""
    heads = "".join(f"{head:>8}" for head in (*_HEADS, "p50 ms", "p95 ms"))
    print(f"\n{title}\n  {'':<{_WIDTH}}{'n':>6}{heads}")


def _table(title: str, outcomes: Mapping[str, Sequence[Outcome]]) -> None:
    print_heads(title)
    for name, held in outcomes.items():
        print_line(name, held)


def _categories(outcomes: Sequence[Outcome]) -> None:
    categories = sorted({item.question.category for item in outcomes})
    if len(categories) > 1:
        print_heads(f"{OURS}, by category")
        for category in categories:
            print_line(category, [item for item in outcomes if item.question.category == category])


def _intervals(outcomes: Mapping[str, Sequence[Outcome]], cluster: str) -> None:
    clusters = [item.question.cluster for item in next(iter(outcomes.values()))]
    clustered = 4 <= len(set(clusters)) < len(clusters)
    kind = f"questions resampled; below it, whole {cluster}s resampled" if clustered else "questions resampled"
    print(f"\n95 % intervals, {kind}\n  {'':<{_WIDTH}}{'R@5':>16}{'R@10':>16}{'MRR':>16}")
    for name, held in outcomes.items():
        values = [[getattr(item, measure) for item in held] for measure in _MEASURES[:3]]
        print(f"  {name:<{_WIDTH}}" + "".join(_span(bootstrap(column)) for column in values))
        if clustered:
            print(f"  {'':<{_WIDTH}}" + "".join(_span(cluster_bootstrap(column, clusters)) for column in values))


def _span(interval: Interval | None) -> str:
    return f"{'':>16}" if interval is None else f"{f'{interval.low:.3f}-{interval.high:.3f}':>16}"
