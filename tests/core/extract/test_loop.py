"""The loop: few requests, nothing changed unread, nothing merged by likeness, nothing lost in silence."""

from __future__ import annotations

from typing import Any

import pytest

from memory_core.core.errors import AnswerUnusable, ModelUnavailable
from memory_core.core.extract.prompts import Conversation
from memory_core.core.memory.requests import ReadRequest
from memory_core.core.memory.results import Action, Status
from memory_core.runebook import Runebook
from tests.core.extract.stage import AGENT, NOTHING, USER, Stage, cut, operations, reads, talk
from tests.stores import added, body, edit, handed_in, write

COFFEE = f"{USER}/preferences/Coffee.md"
FAR = f"{USER}/facts/Boiler.md"
SOY = "<<<<<<< SEARCH\noat milk\n=======\nsoy milk\n>>>>>>> REPLACE"
TALK = talk("I take soy milk in my coffee now.", "Noted.", "我最近改喝豆奶了。", "好的。", language="English")


@pytest.fixture
def coffee(memory: Runebook) -> str:
    added(memory, "preferences", "Flat white with oat milk.", topic="Coffee")
    memory.indexer.follow()
    return COFFEE


@pytest.fixture
def far(memory: Runebook) -> str:
    """A memory that no search with the conversation finds."""
    added(memory, "facts", "Serviced by Hartley in spring.", topic="Boiler")
    memory.indexer.follow()
    return FAR


def test_operations_in_the_first_answer_cost_one_request(stage: Stage, coffee: str) -> None:
    outcome = stage.extract(TALK, operations(write("profile", content="Nurse."), edits=[edit(coffee, content=SOY)]))
    assert len(stage.requests) == 1
    assert stage.commit(outcome).status is Status.COMMITTED
    assert body(stage.memory, coffee) == "Flat white with soy milk."
    assert outcome.dropped == ()


@pytest.mark.parametrize(
    ("texts", "language", "made"),
    [
        (("I moved to Leeds on 1 March.", "Good."), "English", write("facts", topic="Home", content="Leeds.")),
        (("我三月一日搬到了成都。", "好的。"), "中文", write("facts", topic="住处", content="住在成都。")),
        (("我用 PostgreSQL, not MySQL.", "ok"), "", write("preferences", topic="数据库", content="用 PostgreSQL")),
    ],
)
def test_a_conversation_in_any_language_becomes_memories(
    stage: Stage, texts: tuple[str, ...], language: str, made: dict[str, Any]
) -> None:
    outcome = stage.extract(talk(*texts, language=language), operations(made))
    assert f"Language of the memories: {language or 'the language that the user writes in'}." in stage.said()
    assert f"[1] [2024-03-05 10:00] user: {texts[0]}" in stage.said()
    receipt = stage.commit(outcome)
    assert [result.action for result in receipt.results] == [Action.CREATED]


def test_a_round_of_reading_costs_one_further_request(stage: Stage, far: str) -> None:
    outcome = stage.extract(TALK, reads(far), operations(edits=[edit(far, content="Serviced by Hartley in 2024-03.")]))
    assert len(stage.requests) == 2
    assert "Serviced by Hartley in spring." in stage.said()
    assert far in outcome.seen
    assert stage.commit(outcome).status is Status.COMMITTED


def test_a_model_that_reads_forever_is_stopped_and_the_conversation_is_not_lost(stage: Stage) -> None:
    asks = [reads(f"{USER}/notes/{number}.md") for number in range(5)]
    with pytest.raises(AnswerUnusable, match="no reading is left"):
        stage.extract(TALK, *asks)
    assert len(stage.requests) == 5
    assert "Give the operations now" in stage.said(3)
    assert "Give the operations now" not in stage.said(2)


def test_actions_beside_operations_are_ignored_and_reported_when_no_reading_is_left(stage: Stage) -> None:
    greedy = {**operations(write("profile", content="护士。")), **reads(f"{USER}/notes/x.md")}
    outcome = stage.extract(TALK, *[reads(f"{USER}/notes/{number}.md") for number in range(3)], greedy)
    assert len(stage.requests) == 4
    assert len(outcome.operations) == 1
    assert any("1 read actions were ignored" in note for note in outcome.dropped)


def test_operations_beside_actions_wait_for_the_reading(stage: Stage, far: str) -> None:
    hasty = {**operations(write("profile", content="Nurse.")), **reads(far)}
    outcome = stage.extract(TALK, hasty, NOTHING)
    assert len(outcome.operations) == 0


def test_a_refusal_for_a_secret_is_told_of_the_operation_that_holds_it(stage: Stage, far: str) -> None:
    secret = {"uri": f"{USER}/notes/ghp_16C7e42F292c6912E7710c838347Ae178B4a.md", **write("notes", content="A key.")}
    known = {"replace": True, **write("facts", topic="Boiler", content="Replaced.")}
    new = write("facts", topic="Roof", content="Mended in May.")
    outcome = stage.extract(
        TALK, operations(secret, known, new), operations(secret, known, new), {"reasoning": "no key", "operations": {}}
    )
    assert "Serviced by Hartley in spring." in stage.said(1)
    problems = stage.said(2)
    assert "its uri holds what looks like a secret" in problems
    assert "Mended in May." not in problems
    assert len(outcome.operations) == 2
    assert far in outcome.seen


def test_an_edit_of_an_unread_memory_is_preceded_by_a_reading(stage: Stage, far: str) -> None:
    blind = operations(edits=[edit(far, content="Serviced by somebody.")])
    seeing = operations(edits=[edit(far, content="<<<<<<< SEARCH\nspring\n=======\nMarch\n>>>>>>> REPLACE")])
    outcome = stage.extract(TALK, blind, seeing)
    assert len(stage.requests) == 2
    assert "Serviced by Hartley in spring." in stage.said()
    assert '"edit_operations"' in stage.requests[1].turns[1].text
    stage.commit(outcome)
    assert body(stage.memory, far) == "Serviced by Hartley in March."


def overview(text: str) -> dict[str, Any]:
    return {"directory_uri": f"{USER}/preferences", "overview": text}


@pytest.mark.parametrize("single_pass", [False, True])
def test_an_overview_that_somebody_wrote_is_replaced_though_the_list_below_it_is_the_systems(
    memory: Runebook, coffee: str, single_pass: bool
) -> None:
    handed_in(memory, overview=[overview("# Tastes\n\nMilk matters.")])
    memory.opened.current_pages()
    stage = Stage(memory, single_pass=single_pass)
    outcome = stage.extract(TALK, operations(overviews=[overview("# Tastes\n\nSoy milk matters.")]))
    assert stage.commit(outcome).status is Status.COMMITTED
    page = memory.read(ReadRequest(f"{USER}/preferences/.overview.md")).content
    assert page.startswith("# Tastes\n\nSoy milk matters.\n")
    assert coffee.rpartition("/")[2] in page


@pytest.mark.usefixtures("coffee")
def test_an_overview_that_had_no_room_is_read_and_then_replaced(memory: Runebook) -> None:
    long = "# Tastes\n\n" + "- An item of taste.\n" * 200
    handed_in(memory, overview=[overview(long)])
    memory.opened.current_pages()
    stage = Stage(memory)
    page = f"{USER}/preferences/.overview.md"
    new = operations(overviews=[overview("# Tastes\n\nSoy milk matters.")])
    outcome = stage.extract(TALK, new, new)
    assert f"{page} (" not in stage.said(0)
    assert stage.commit(outcome).status is Status.COMMITTED
    assert memory.read(ReadRequest(page)).content.startswith("# Tastes\n\nSoy milk matters.\n")


@pytest.mark.parametrize(
    "blind",
    [
        operations(deletes=[{"uri": FAR}]),
        operations(write("facts", topic="boiler", content="Replaced.")),
        operations({"uri": FAR, **write("facts", topic="Boiler", content="Replaced.")}),
    ],
    ids=["deletion", "write of the same key", "write by uri"],
)
@pytest.mark.usefixtures("far")
def test_whatever_would_change_an_unread_memory_is_preceded_by_a_reading(stage: Stage, blind: dict[str, Any]) -> None:
    outcome = stage.extract(TALK, blind, NOTHING)
    assert "Serviced by Hartley in spring." in stage.said()
    assert len(stage.requests) == 2
    assert len(outcome.operations) == 0


def test_without_rounds_left_the_unread_memory_is_shown_in_the_repair_round(memory: Runebook, far: str) -> None:
    stage = Stage(memory, max_iterations=0)
    outcome = stage.extract(
        TALK,
        operations(edits=[edit(far, content="Gone.")]),
        operations(edits=[edit(far, content="Serviced by Hartley, 2024.")]),
    )
    assert len(stage.requests) == 2
    assert "was not read whole" in stage.said()
    assert "Serviced by Hartley in spring." in stage.said()
    assert stage.commit(outcome).status is Status.COMMITTED


def test_without_any_request_left_an_operation_on_an_unread_memory_is_dropped_and_reported(
    memory: Runebook, far: str
) -> None:
    stage = Stage(memory, max_iterations=0)
    blind = operations(write("profile", content="Nurse."), edits=[edit(far, content="Gone.")])
    outcome = stage.extract(TALK, "not json at all", blind)
    assert [op.memory_data.memory_type for op in outcome.operations.write_operations] == ["profile"]
    assert outcome.operations.edit_operations == []
    assert any(far in note and "not read whole" in note for note in outcome.dropped)


def test_counts_of_tools_are_left_to_the_system(stage: Stage) -> None:
    added(stage.memory, "tools", tool_name="grep", total_calls=3, best_for="text")
    outcome = stage.extract(
        TALK,
        operations(
            write("tools", tool_name="curl", total_calls=4, success_count=4, best_for="下载文件"),
            write("tools", tool_name="sed", total_calls=2),
            edits=[edit(f"{AGENT}/tools/grep.md", total_calls=5)],
        ),
    )
    assert len(stage.requests) == 1
    (kept,) = outcome.operations.write_operations
    assert kept.memory_data.fields == {"tool_name": "curl", "best_for": "下载文件"}
    assert outcome.operations.edit_operations == []
    assert len([note for note in outcome.dropped if "the system counts" in note]) == 3


def test_a_refused_operation_is_repaired_once_and_the_sound_ones_are_kept(stage: Stage, coffee: str) -> None:
    wrong = "<<<<<<< SEARCH\nalmond milk\n=======\nsoy milk\n>>>>>>> REPLACE"
    outcome = stage.extract(
        TALK,
        operations(
            write("profile", content="Nurse."), write("no_such_type", a="b"), edits=[edit(coffee, content=wrong)]
        ),
        operations(write("notes", title="x", content="b"), edits=[edit(coffee, content=SOY)]),
    )
    assert len(stage.requests) == 2
    problems = stage.said()
    assert "no_such_type" in problems
    assert "Hint:" in problems
    assert "Flat white with oat milk." in problems
    assert '"profile"' not in problems
    receipt = stage.commit(outcome)
    assert receipt.status is Status.COMMITTED
    assert len(receipt.results) == 3
    assert body(stage.memory, coffee) == "Flat white with soy milk."


def test_what_is_still_refused_after_the_repair_stays_in_for_the_receipt(stage: Stage, coffee: str) -> None:
    wrong = edit(coffee, content="<<<<<<< SEARCH\nalmond\n=======\nsoy\n>>>>>>> REPLACE")
    outcome = stage.extract(TALK, operations(edits=[wrong]), operations(edits=[wrong]))
    assert len(stage.requests) == 2
    assert stage.commit(outcome).status is Status.REJECTED


def test_sound_operations_that_the_repair_repeats_are_not_done_twice(stage: Stage, coffee: str) -> None:
    good = edit(coffee, content=SOY)
    again = operations(write("notes", title="t", content="b"), edits=[good])
    outcome = stage.extract(TALK, operations(write("nope", a="b"), edits=[good]), again)
    assert len(outcome.operations.edit_operations) == 1
    assert any("write nope" in note and "withdrawn" in note for note in outcome.dropped)


def test_a_repair_that_cannot_be_used_leaves_the_sound_operations(stage: Stage) -> None:
    first = operations(write("profile", content="Nurse."), write("nope", a="b"))
    outcome = stage.extract(TALK, first, "…", "still no json")
    assert len(outcome.operations) == 2
    assert any("not corrected" in note for note in outcome.dropped)
    assert stage.commit(outcome).status is Status.PARTIAL


def test_a_near_memory_that_the_model_has_not_seen_is_shown_before_a_twin_is_made(stage: Stage, far: str) -> None:
    stage.view.near = lambda texts: [[(far, 0.9)] for _ in texts]
    twin = operations(write("facts", topic="Heating", content="The boiler was serviced."))
    outcome = stage.extract(TALK, twin, operations(edits=[edit(far, content="Serviced by Hartley in March 2024.")]))
    assert len(stage.requests) == 2
    assert "Serviced by Hartley in spring." in stage.said()
    assert len(outcome.operations.write_operations) == 0


def test_likeness_alone_never_merges_it_links(stage: Stage, far: str) -> None:
    stage.view.near = lambda texts: [[(far, 0.9), (COFFEE, 0.2)] for _ in texts]
    twin = operations(write("facts", topic="Heating", content="The boiler was serviced."))
    outcome = stage.extract(TALK, twin, twin)
    assert len(stage.requests) == 2
    (made,) = outcome.operations.write_operations
    assert [(link.uri, link.relation, link.strength) for link in made.memory_data.links or []] == [
        (far, "similar", 0.9)
    ]


def test_a_seen_neighbour_costs_no_request_and_keeps_the_models_own_link(stage: Stage, coffee: str) -> None:
    stage.view.near = lambda texts: [[(coffee, 0.95)] for _ in texts]
    made = write("preferences", topic="Tea", content="Green tea.")
    linked = {"memory_data": {**made["memory_data"], "links": [{"uri": coffee, "relation": "contradicts"}]}}
    outcome = stage.extract(TALK, operations(made, linked | {"uri": None}))
    assert len(stage.requests) == 1
    first, second = outcome.operations.write_operations
    assert [link.relation for link in first.memory_data.links or []] == ["similar"]
    assert [link.relation for link in second.memory_data.links or []] == ["contradicts"]


def test_real_neighbours_come_from_the_store(stage: Stage, far: str) -> None:
    made = operations(write("facts", topic="Heating", content="Boiler serviced by Hartley in spring."))
    outcome = stage.extract(TALK, made, made)
    assert far in stage.said()
    assert [link.uri for link in outcome.operations.write_operations[0].memory_data.links or []] == [far]


@pytest.mark.parametrize("bad", ["", "I would rather not answer in JSON.", "{}", cut()], ids=str)
def test_an_unusable_answer_is_asked_for_once_more(stage: Stage, bad: Any) -> None:
    stage.extract(TALK, bad, NOTHING)
    assert len(stage.requests) == 2
    assert "Your last answer could not be used" in stage.said()
    assert len(stage.requests[1].turns) == 1


def test_an_answer_with_very_many_operations_is_asked_for_once_more(stage: Stage) -> None:
    flood = operations(*(write("notes", title=f"n{number}", content=f"Number {number}.") for number in range(501)))
    outcome = stage.extract(TALK, flood, operations(write("profile", content="Nurse.")))
    assert "it gives 501 operations; give at most 500." in stage.said()
    assert len(outcome.operations) == 1
    with pytest.raises(AnswerUnusable, match="501 operations"):
        stage.extract(TALK, flood, flood)


def test_a_repair_with_very_many_operations_leaves_the_sound_ones(stage: Stage) -> None:
    flood = operations(*(write("notes", title=f"n{number}", content=f"Number {number}.") for number in range(501)))
    broken = edit(f"{USER}/profile.md", content="<<<<<<< SEARCH\nnowhere\n=======\nx\n>>>>>>> REPLACE")
    outcome = stage.extract(
        TALK, operations(write("facts", topic="Home", content="Leeds."), edits=[broken]), flood, flood
    )
    assert len(outcome.operations) <= 2
    assert any("501 operations" in note for note in outcome.dropped)


def test_changes_without_operations_are_asked_for_once_more(stage: Stage) -> None:
    plan = {
        "reasoning": "they moved",
        "memory_changes": [{"change_type": "add", "memory_type": "facts", "reason": "new home"}],
    }
    outcome = stage.extract(TALK, plan, plan | operations(write("facts", topic="Home", content="Leeds")))
    assert len(stage.requests) == 2
    assert [change.change_type for change in outcome.decisions] == ["add"]


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_model_that_cannot_be_reached_leaves_the_conversation_waiting(stage: Stage, far: str, before: int) -> None:
    answers: list[Any] = [reads(far), operations(write("nope", a="b"))][:before]
    with pytest.raises(ModelUnavailable):
        stage.extract(TALK, *answers, ModelUnavailable("503", hint="later"))


def test_single_pass_asks_once_reads_nothing_and_repairs_nothing(memory: Runebook, far: str, coffee: str) -> None:
    stage = Stage(memory, single_pass=True)
    made = operations(write("nope", a="b"), edits=[edit(far, content="Gone."), edit(coffee, content=SOY)])
    outcome = stage.extract(TALK, {**made, **reads(far)})
    assert len(stage.requests) == 1
    assert [op.uri for op in outcome.operations.edit_operations] == [coffee]
    assert len(outcome.operations.write_operations) == 1
    with pytest.raises(AnswerUnusable):
        stage.extract(TALK, reads(far))


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_there_are_never_more_requests_than_rounds_and_two(
    memory: Runebook, coffee: str, far: str, rounds: int
) -> None:
    stage = Stage(memory, max_iterations=rounds)
    stage.view.near = lambda texts: [[(far, 0.9)] for _ in texts]
    asked = 0

    def worst(_request: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            return "nonsense"
        wrong = edit(coffee, content=f"<<<<<<< SEARCH\n{asked}\n=======\n\n>>>>>>> REPLACE")
        return operations(
            write("facts", topic=f"T{asked}", content="New."), edits=[wrong, edit(far, content=f"{asked}")]
        )

    stage.drive(stage.loop.extract(TALK, stage.view), always=worst)
    assert asked <= rounds + 2
    assert len(stage.requests) == asked


def test_operations_on_foreign_places_are_refused_like_absent_ones_and_show_nothing(stage: Stage) -> None:
    secret = stage.memory.store.files.root / "user" / "other" / "memories" / "profile.md"
    secret.parent.mkdir(parents=True)
    secret.write_text("Somebody else's secret.", encoding="utf-8")
    foreign = "viking://user/other/memories/profile.md"
    outcome = stage.extract(
        TALK,
        reads(foreign, "viking://user/other/", "viking://session/other/s1/messages.jsonl", "file:///etc/passwd"),
        operations(edits=[edit(foreign, content="x")], deletes=[{"uri": foreign}, {"uri": "../../etc/passwd"}]),
        operations(edits=[edit(foreign, content="x")]),
    )
    assert all("Somebody else" not in turn.text for request in stage.requests for turn in request.turns)
    assert stage.commit(outcome).status is Status.REJECTED


def test_five_hundred_actions_are_bounded(stage: Stage, far: str) -> None:
    actions = [{"action_type": "find", "params": {"query": f"boiler {number % 250}"}} for number in range(500)]
    outcome = stage.extract(TALK, {"reasoning": "look", "actions": actions}, NOTHING)
    assert any("242 of 250 read actions were not run" in note for note in outcome.dropped)
    assert far in stage.said()


def test_the_static_part_is_the_same_for_every_conversation(memory: Runebook) -> None:
    stage = Stage(memory)
    stage.extract(talk("Hello", language="English"), NOTHING)
    first = stage.requests[0].system
    added(memory, "preferences", "Flat white.", topic="Coffee")
    stage.extract(Conversation("other", talk("咖啡", "好").messages, language="中文"), NOTHING)
    assert stage.requests[0].system == first == Stage(memory).loop.system
