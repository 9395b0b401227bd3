"""Each command runs from the file to the figures; those that fill more than one store only among the slow tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import contexts, every_set, floor, locomo, longmemeval, madial, pooled, weights
from tests.bench import made_up

Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(main: Callable[[], None], *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["bench", *arguments])
        main()
        return capsys.readouterr().out

    return call


def row(output: str, label: str, table: str = "questions with an answer") -> list[float]:
    """The figures of a row: n, R@5, R@10, MRR, sessions at 5 and 10, any-hit at 5 and 10, p50, p95."""
    after = output.split(table, 1)[1]
    line = next(line for line in after.splitlines() if line.strip().startswith(label))
    return [float(cell) for cell in line.replace(label, "", 1).split()]


@pytest.mark.slow
def test_contexts_hold_what_answers_and_stay_in_the_budget(run: Run, tmp_path: Path) -> None:
    output = run(contexts.main, "--locomo", str(made_up.locomo(tmp_path / "locomo.json")))
    for contestant in (contexts.OURS, contexts.LEXICAL):
        rows = [line.split() for line in output.splitlines() if line.strip().startswith(contestant)]
        assert [cells[-6] for cells in rows] == ["1,000", "2,000", "4,000"]
        assert all(float(cells[-3].replace(",", "")) <= float(cells[-6].replace(",", "")) for cells in rows)
    ours = [line.split() for line in output.splitlines() if line.strip().startswith(contexts.OURS)]
    assert [float(cells[-5]) for cells in ours] == [1.0, 1.0, 1.0]


@pytest.mark.slow
def test_locomo_finds_what_was_said_and_leaves_strange_questions_empty(run: Run, tmp_path: Path) -> None:
    output = run(locomo.main, "--data", str(made_up.locomo(tmp_path / "locomo.json")))
    assert row(output, "shipped defaults")[:3] == [4, 1.0, 1.0]
    assert row(output, "shipped defaults", "adversarial questions too")[0] == 5
    for label in ("ours, words only", "BM25 only", "encoder only", "ours, floor off"):
        assert row(output, label)[0] == 4
    assert "conversation2: 3 turns, 2 questions (1 without evidence left out)" in output
    assert "% of 4 [" in output.split("questions of other conversations left empty")[1]
    assert "cost of the floor: +0.00 points of R@5" in output


def test_madial_finds_the_memory_that_a_dialogue_calls_up(run: Run, tmp_path: Path) -> None:
    memories, dialogues = made_up.madial(tmp_path)
    output = run(madial.main, "--memories", str(memories), "--dialogues", str(dialogues))
    assert "3 memories, 2 questions" in output
    assert row(output, "shipped defaults")[:4] == [2, 1.0, 1.0, 1.0]
    assert "goal R@10 >= 0.65: 1.000" in output


@pytest.mark.slow
def test_longmemeval_counts_abstentions_apart(run: Run, tmp_path: Path) -> None:
    output = run(longmemeval.main, "--data", str(made_up.longmemeval(tmp_path / "lme.json")))
    assert row(output, "shipped defaults")[:4] == [1, 1.0, 1.0, 1.0]
    assert "2 questions, 8 turns in all; 1 without a marked turn left out" in output
    assert "abstention questions left empty: 1 of 1" in output


@pytest.mark.slow
def test_pooled_names_the_cost_of_pooling(run: Run, tmp_path: Path) -> None:
    output = run(pooled.main, "--data", str(made_up.locomo(tmp_path / "locomo.json")))
    assert row(output, "shipped defaults")[:3] == [4, 1.0, 1.0]
    cost = output.split("what pooling costs")[1]
    assert "shipped defaults               +0.00   +0.00   R@10 1.000 apart" in cost


@pytest.mark.slow
def test_every_set_names_each_contestant_of_each_set(run: Run, tmp_path: Path) -> None:
    talk, notes = made_up.locomo(tmp_path / "locomo.json"), made_up.memdaily(tmp_path / "notes.json")
    output = run(every_set.main, "--locomo", str(talk), "--memdaily", str(notes))
    for name, count in (("LoCoMo", 4), ("MemDaily, a chat", 2), ("MemDaily, memories", 2)):
        lines = output.split("R@10 with its")[1].splitlines()
        cells = next(line.strip().removeprefix(name).split() for line in lines if line.strip().startswith(name))
        assert cells[:4] == [str(count), "1.000", "[1.000,", "1.000]"]
    assert "LoCoMo" in output.split("questions of other conversations left empty")[1]


@pytest.mark.slow
def test_weights_names_what_each_fold_chose(run: Run, tmp_path: Path) -> None:
    output = run(weights.main, "--locomo", str(made_up.locomo(tmp_path / "locomo.json")))
    assert "conversation1" in output.split("held out")[1]
    assert row(output, "all", "held out")[:5] == [4, 1.0, 1.0, 1.0, 1.0]


@pytest.mark.slow
def test_weights_are_scored_on_memories_too(run: Run, tmp_path: Path) -> None:
    conversations = str(made_up.locomo(tmp_path / "locomo.json"))
    output = run(weights.main, "--locomo", conversations, "--madial", *map(str, made_up.madial(tmp_path)))
    (held_out,) = [line for line in output.split("held out")[1].splitlines() if line.strip().startswith("MADial")]
    assert float(held_out.split()[2]) > 0.0


@pytest.mark.slow
def test_floor_measures_in_process_and_names_goal_and_verdict(run: Run) -> None:
    output = run(floor.main, "--only", "batches by words, a turn", "--markdown")
    rows = [row.split("|") for row in output.splitlines() if row.startswith("| batches")]
    assert [cells[3].split(",")[0].strip() for cells in rows] == ["≤ 1 ms", ""]
    assert float(rows[1][2].split()[0]) > 0


@pytest.mark.slow
def test_floor_measures_over_stdio_beside_the_bare_server(run: Run) -> None:
    output = run(floor.main, "--only", "commit at 1,000 by bare call")
    assert "≤ 3 ×" in output


def test_floor_says_what_cannot_be_had() -> None:
    figure = floor.Figure("a peer's write", "ms", floor.Goal(2), lambda _run: None)
    assert floor.line(figure, None, 1.0, markdown=True) == "| a peer's write | not to be had here | ≤ 2 ms |  |"
    assert floor.line(figure, 2.5, 1.0, markdown=True).endswith("| ≤ 2 ms | **missed** |")


def test_goals_for_times_give_way_on_a_slower_machine_and_others_do_not() -> None:
    slow = floor.Figure("a write", "ms", floor.Goal(2), lambda _run: None)
    assert floor.line(slow, 2.5, 2.0, markdown=True) == "| a write | 2.5 ms | ≤ 2 ms, here 4 | met |"
    assert floor.line(slow, 1.5, 0.5, markdown=True) == "| a write | 1.5 ms | ≤ 2 ms | met |"
    rate = floor.Figure("writes", "/s", floor.Goal(150, least=True), lambda _run: None)
    assert floor.line(rate, 80.0, 2.0, markdown=True) == "| writes | 80 /s | ≥ 150 /s, here 75 | met |"
    ratio = floor.Figure("writes by writes", "×", floor.Goal(3), lambda _run: None)
    assert floor.line(ratio, 4.0, 2.0, markdown=True).endswith("**missed** |")
    assert floor.Goal(150, least=True).met(151)
