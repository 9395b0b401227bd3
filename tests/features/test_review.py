"""Review: what a model proposes waits as a file, and takes effect when its owner says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.caller import Access
from memory_core.core.errors import AccessDenied, ContentRejected, InvalidInput, NotFound
from memory_core.core.llm.client import Scripted, ScriptedLLM
from memory_core.core.memory.requests import CommitRequest, FindRequest, ListRequest, ReadRequest, RetrieveRequest
from memory_core.core.memory.results import Action, CommitReceipt, OperationResult, Status
from memory_core.core.memory.trailer import split
from memory_core.core.memory.uri import MemoryUri
from memory_core.features.forgetting import FORGET, ForgetRequest
from memory_core.features.review import (
    ACCEPT,
    EDIT,
    REJECT,
    DecisionRequest,
    EditRequest,
    Proposal,
    first_waiting,
    parse_proposal,
    render_proposal,
    texts_shown,
)
from memory_core.features.review import waiting as waiting_proposals
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.runebook import Runebook, open_memory
from tests.stores import answer, body, files_below, replaced, scripted, trailer, words_only, write

USER = "viking://user/default/memories"
REVIEW = "viking://user/default/review"
TEA = f"{USER}/preferences/Tea.md"
ENGLISH = [{"role": "user", "content": "I only drink green tea now."}]
CHINESE = [{"role": "user", "content": "我负责支付系统。"}]


TEA_WRITE = write("preferences", topic="Tea", content="Drinks only green tea.")
TEA_ANSWER = answer(TEA_WRITE)
PAYMENTS_WRITE = write("entities", entity_name="支付系统", entity_type="系统", content="用户负责支付系统。")
#: What was said, what the model makes of it, where that would be stored, and words that find it.
PROPOSED = [
    (ENGLISH, TEA_WRITE, TEA, "green tea"),
    (CHINESE, PAYMENTS_WRITE, f"{USER}/entities/支付系统.md", "支付系统"),
]


@contextmanager
def opened(
    home: Path, answers: Sequence[Scripted] | None = (), secrets: str = "redact", **more: Any
) -> Iterator[Runebook]:
    with scripted(home, answers, review="automatic", secrets=secrets, **more) as (memory, _):
        yield memory


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Runebook]:
    """A store in which one proposal waits; the model says the same whenever it is asked."""
    with opened(tmp_path, [TEA_ANSWER] * 3) as opened_memory:
        opened_memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        yield opened_memory


def text(memory: Runebook, uri: str) -> str | None:
    return memory.store.text(MemoryUri.parse(uri))


def queued(receipt: CommitReceipt) -> list[OperationResult]:
    return [result for result in receipt.results if result.action is Action.QUEUED and result.uri.startswith(REVIEW)]


def only(memory: Runebook) -> Proposal:
    (proposal,) = waiting_proposals(memory)
    return proposal


@pytest.mark.parametrize(("said", "proposed", "target", "query"), PROPOSED)
def test_what_a_model_extracts_waits_as_a_readable_file_until_it_is_accepted(
    tmp_path: Path, said: list[dict[str, Any]], proposed: dict[str, Any], target: str, query: str
) -> None:
    with opened(tmp_path, [answer(proposed)]) as memory:
        receipt = memory.commit(CommitRequest(messages=said, session_id="s1"))
        (waits,) = queued(receipt)
        assert "waits for review" in (waits.note or "")
        assert "runebook review accept" in (waits.hint or "")
        assert memory.extractor.waiting() == []
        assert text(memory, target) is None
        assert memory.find(FindRequest(query)).memories == ()
        assert target not in memory.retrieve(RetrieveRequest(query)).text
        proposal = only(memory)
        page = memory.read(ReadRequest(str(proposal.uri))).content
        for told in (target, "session s1", "worth keeping", proposed["memory_data"]["fields"]["content"]):
            assert told in page
        (listed,) = memory.ls(ListRequest(REVIEW)).entries
        assert listed.uri == str(proposal.uri)
        assert (listed.abstract or "").startswith("Would create ")
        assert "MEMORY_FIELDS" not in (listed.abstract or "")

        (done,) = memory.run(ACCEPT, DecisionRequest([proposal.id]))
        assert done.status is Status.COMMITTED
        assert body(memory, target) == proposed["memory_data"]["fields"]["content"]
        assert trailer(memory, target)["source"] == {"kind": "auto_reflection", "session_id": "s1"}
        assert memory.find(FindRequest(query)).memories[0].uri == target
        assert waiting_proposals(memory) == []

        assert memory.run(UNDO, UndoRequest(done.commit_id)).status is Status.COMMITTED
        assert text(memory, target) is None
        assert only(memory).id == proposal.id


def test_without_the_setting_nothing_waits(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path), llm=ScriptedLLM([TEA_ANSWER])) as memory:
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        assert text(memory, TEA) is not None
        assert len(waiting_proposals(memory)) == 0


def test_what_a_person_or_agent_stores_itself_takes_effect_at_once(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.commit(CommitRequest("Tea is green.", memory_type="facts", fields={"topic": "Tea"}))
        memory.commit(
            CommitRequest(operations={"write_operations": [write("facts", topic="Cup", content="The cup is blue.")]})
        )
        assert len(waiting_proposals(memory)) == 0
        assert memory.find(FindRequest("cup blue")).memories != ()


def test_the_answer_to_a_brief_waits_too(tmp_path: Path) -> None:
    with opened(tmp_path, None) as memory:
        assert memory.commit(CommitRequest(messages=ENGLISH, session_id="s1", brief=True)).brief is not None
        receipt = memory.commit(CommitRequest(operations={"write_operations": [TEA_WRITE]}, session_id="s1"))
        assert len(queued(receipt)) == 1
        assert text(memory, TEA) is None
        assert memory.extractor.waiting() == []


def test_a_correction_by_cue_waits_while_tool_calls_are_counted_at_once(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "web_search", "input": {"query": "tea"}}
    told = {"type": "tool_result", "tool_use_id": "c1", "content": "three houses", "status": "completed"}
    conversation: list[dict[str, Any]] = [
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [told]},
        {"role": "user", "content": "From now on, please always answer in English."},
        {"role": "user", "content": "以后不要直接删除文件。"},
    ]
    with opened(tmp_path, None) as memory:
        receipt = memory.commit(CommitRequest(messages=conversation, session_id="s1"))
        assert len(queued(receipt)) == 2
        assert trailer(memory, "viking://agent/default/memories/tools/web_search.md")["total_calls"] == 1
        assert memory.find(FindRequest("answer in English")).memories == ()
        receipts = memory.run(ACCEPT, DecisionRequest([each.id for each in waiting_proposals(memory)]))
        assert [each.status for each in receipts] == [Status.COMMITTED, Status.COMMITTED]
        assert memory.find(FindRequest("以后不要直接删除文件")).memories != ()


def test_a_rejected_proposal_does_not_come_back_from_the_same_messages(memory: Runebook) -> None:
    proposal = only(memory)
    list(memory.extract_waiting("s1"))
    assert only(memory).id == proposal.id  # it waits already
    (gone,) = memory.run(REJECT, DecisionRequest([proposal.id]))
    assert (gone.status, len(waiting_proposals(memory))) == (Status.COMMITTED, 0)
    (again,) = memory.extract_waiting("s1")
    assert len(waiting_proposals(memory)) == 0
    assert any("rejected this already" in (result.note or "") for result in again.results)
    memory.run(UNDO, UndoRequest(gone.commit_id))
    assert only(memory).id == proposal.id


def test_a_proposal_edited_by_hand_stores_what_its_file_says(memory: Runebook) -> None:
    proposal = only(memory)
    path = memory.store.files.path_for(proposal.uri)
    page = path.read_text(encoding="utf-8")
    head, rule, rest = page.partition("\n---\n")
    edited = f"{head}{rule}{rest.replace('Drinks only green tea.', 'Drinks green tea, 但不喝咖啡。', 1)}"
    path.write_text(edited, encoding="utf-8", newline="\n")
    (done,) = memory.run(ACCEPT, DecisionRequest([proposal.id]))
    assert "as edited" in str(done.results[-1].note)
    assert body(memory, TEA) == "Drinks green tea, 但不喝咖啡。"


def test_a_proposal_edited_by_command_stores_that(memory: Runebook) -> None:
    proposal = only(memory)
    assert memory.run(EDIT, EditRequest(proposal.id, "Drinks tea.\n\n---\n\nAny tea.\n"))[0].status is Status.COMMITTED
    assert only(memory).edited
    memory.run(ACCEPT, DecisionRequest([proposal.id]))
    assert body(memory, TEA) == "Drinks tea.\n\n---\n\nAny tea."


SHIP_WRITE = write("cases", case_name="Ship", problem="The anchor is stuck.", solution="Turn the winch back.")


@pytest.fixture
def ship(tmp_path: Path) -> Iterator[Runebook]:
    """A store in which a proposal of several fields waits."""
    with opened(tmp_path, [answer(SHIP_WRITE)]) as opened_memory:
        opened_memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        yield opened_memory


def test_an_edit_without_a_heading_for_each_field_is_refused_and_nothing_is_lost(ship: Runebook) -> None:
    proposal = only(ship)
    for words in ("Oil the winch.", "### solution\n\nOil the winch."):
        with pytest.raises(InvalidInput, match=r"no heading for .*problem") as refused:
            ship.run(EDIT, EditRequest(proposal.id, words))
        assert "### name" in refused.value.hint
    assert only(ship) == proposal
    path = ship.store.files.path_for(proposal.uri)
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace("### problem", "A problem:"), encoding="utf-8", newline="\n")
    (done,) = ship.run(ACCEPT, DecisionRequest([proposal.id]))
    assert done.status is Status.REJECTED
    assert "no heading for problem" in (done.results[0].reason or "")
    ship.run(EDIT, EditRequest(proposal.id, texts_shown(proposal).replace("Turn the winch back.", "Oil the winch.")))
    assert ship.run(ACCEPT, DecisionRequest([proposal.id]))[0].status is Status.COMMITTED
    assert "Oil the winch." in body(ship, proposal.target)


def test_an_edit_stores_no_secret_either(tmp_path: Path) -> None:
    secret = "ghp_" + "aB3dE6gH9j" * 3 + "xYz012"
    for mode in ("redact", "refuse"):
        with opened(tmp_path / mode, [TEA_ANSWER], secrets=mode) as memory:
            memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
            edited = EditRequest(only(memory).id, f"Drinks tea with {secret}.")
            if mode == "refuse":
                with pytest.raises(ContentRejected, match=r"it holds a secret: GitHub token in .*content"):
                    memory.run(EDIT, edited)
                assert not only(memory).edited
            else:
                (receipt,) = memory.run(EDIT, edited)
                assert "GitHub token" in " ".join(receipt.notes)
                assert only(memory).texts == {"content": "Drinks tea with [redacted: GitHub token]."}
            assert not [path for path, text in files_below(memory.config.root) if secret.encode() in text]


def test_what_changed_since_is_not_overwritten_and_the_proposal_still_waits(memory: Runebook) -> None:
    replaced(memory, "preferences", "Drinks only oolong.", topic="Tea")
    proposal = only(memory)
    (refused,) = memory.run(ACCEPT, DecisionRequest([proposal.id]))
    assert refused.status is Status.REJECTED
    assert refused.results[0].conflict
    assert f"runebook review edit {proposal.id}" in (refused.results[0].hint or "")
    assert body(memory, TEA) == "Drinks only oolong."
    memory.run(EDIT, EditRequest(proposal.id, "Drinks oolong and green tea."))
    assert memory.run(ACCEPT, DecisionRequest([proposal.id]))[0].status is Status.COMMITTED
    assert body(memory, TEA) == "Drinks oolong and green tea."


def test_patches_deletions_and_overviews_wait_and_are_accepted_in_one_go(tmp_path: Path) -> None:
    old, gone = f"{USER}/facts/Old.md", f"{USER}/facts/Gone.md"
    patch = "<<<<<<< SEARCH\nblue\n=======\nred\n>>>>>>> REPLACE"
    operations = answer(
        write("tools", tool_name="deploy", best_for="releases", optimal_params="--safe"),
        edit_operations=[{"uri": old, "patches": {"content": patch}}],
        delete_operations=[{"uri": gone, "reason": "no longer true"}],
        overview_operations=[{"directory_uri": f"{USER}/facts", "abstract": "Colours of things."}],
    )
    with opened(tmp_path, [operations] * 3) as memory:  # asked again after it was shown the files it touches
        memory.commit(CommitRequest("The cup is blue.", memory_type="facts", fields={"topic": "Old"}))
        memory.commit(CommitRequest("The pot is green.", memory_type="facts", fields={"topic": "Gone"}))
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        waiting = waiting_proposals(memory)
        assert sorted((each.op, each.action) for each in waiting) == [
            ("delete", "deleted"),
            ("edit", "updated"),
            ("overview", "created"),
            ("write", "created"),
        ]
        shown = {each.op: body(memory, str(each.uri)) for each in waiting}
        assert shown["edit"].endswith("---\n\nThe cup is red.")
        assert "The pot is green." in shown["delete"]
        assert "### best_for\n\nreleases" in shown["write"]
        receipts = memory.run(ACCEPT, DecisionRequest([each.id for each in waiting]))
        assert {each.status for each in receipts} == {Status.COMMITTED}
        assert (body(memory, old), text(memory, gone)) == ("The cup is red.", None)
        assert "releases" in (text(memory, "viking://agent/default/memories/tools/deploy.md") or "")
        assert (text(memory, f"{USER}/facts/.abstract.md") or "").startswith("Colours of things.")


def test_one_answer_shows_as_much_as_a_page_takes_and_says_how_many_more_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(
        tmp_path, [answer(*(write("facts", topic=f"T{number}", content="tea " * 9) for number in range(5)))]
    ) as memory:
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        waiting = waiting_proposals(memory)
        assert first_waiting(memory) == (waiting, 0)
        monkeypatch.setattr("memory_core.features.review._SHOWN_MOST", 3)
        assert first_waiting(memory) == (waiting[:3], 2)
        monkeypatch.setattr("memory_core.features.review._SHOWN_CHARS", 50)
        assert first_waiting(memory) == (waiting[:1], 4)


def test_a_private_conversations_proposal_is_not_shown_from_another_project(tmp_path: Path) -> None:
    case = answer(write("cases", case_name="Merger", content="The merger is on Monday."))
    with opened(tmp_path, [case]) as memory:
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1", project="acme/lab", private=True))
        listed = memory.ls(ListRequest(REVIEW, here="acme/web")).entries[0]
        assert listed.abstract == "private to another project"
        (done,) = memory.run(ACCEPT, DecisionRequest([only(memory).id]))
        meta = split(text(memory, done.results[0].uri) or "").trailer or {}
        assert (meta["project"], meta["private"]) == ("acme/lab", True)


class Announced(list[str]):
    """Names that say when all of them were looked up."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self.looked_up = threading.Event()

    def __iter__(self) -> Iterator[str]:
        yield from super().__iter__()
        self.looked_up.set()


def test_of_two_who_accept_at_once_one_wins_and_the_other_is_told(memory: Runebook, tmp_path: Path) -> None:
    told: list[CommitReceipt] = []
    late: list[threading.Thread] = []
    names = Announced([only(memory).id])

    def meets(step: str) -> None:
        if step == "planned":  # the lock is held
            late.append(threading.Thread(target=lambda: told.extend(memory.run(ACCEPT, DecisionRequest(names)))))
            late[0].start()
            assert names.looked_up.wait(30)

    with opened(tmp_path, step=meets) as first:
        (won,) = first.run(ACCEPT, DecisionRequest([names[0]]))
        late[0].join(60)
        assert won.status is Status.COMMITTED
        assert told[0].status is Status.REJECTED
        assert "no longer waits" in (told[0].results[0].reason or "")
        assert body(first, TEA) == "Drinks only green tea."
        assert len(waiting_proposals(first)) == 0


def test_what_is_no_proposal_is_left_alone_and_unknown_names_are_told(memory: Runebook, tmp_path: Path) -> None:
    note = tmp_path / "user/default/review/shopping list.md"
    note.write_text("milk\n", encoding="utf-8", newline="\n")
    memory.store.adopt()
    proposal = only(memory)
    with pytest.raises(NotFound, match="nothing waits"):
        memory.run(ACCEPT, DecisionRequest(["ffffffff0"]))
    with pytest.raises(InvalidInput, match="no proposal is named"):
        memory.run(REJECT, DecisionRequest([]))
    with pytest.raises(AccessDenied):
        memory.view(access=Access.READ_ONLY).run(ACCEPT, DecisionRequest([proposal.id]))
    assert memory.find(FindRequest("milk")).hits == ()


def test_operations_may_not_touch_what_waits(memory: Runebook) -> None:
    uri = str(only(memory).uri)
    receipt = memory.commit(CommitRequest(operations={"delete_operations": [{"uri": uri}]}))
    assert receipt.status is Status.REJECTED
    assert len(waiting_proposals(memory)) == 1


def test_a_proposals_file_reads_back_as_it_was(tmp_path: Path) -> None:
    tools = write("tools", tool_name="部署", best_for="发布 --> 上线", optimal_params="line one\n\n### other\n")
    forged = "Before.\n\n### recommendation\n\n\\\\### best_for  \nAfter."
    tools["memory_data"]["fields"] |= {"guidelines": forged, "recommendation": "### guidelines"}
    with opened(tmp_path, [answer(write("facts", topic="T", content="a\n---\nb <!-- MEMORY_FIELDS"), tools)]) as memory:
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        for proposal in waiting_proposals(memory):
            assert not proposal.edited
            assert proposal.texts.get("guidelines", forged) == forged
            assert parse_proposal(proposal.uri, render_proposal(proposal)) == proposal


@pytest.mark.parametrize(("said", "proposed", "query"), [(said, made, query) for said, made, _, query in PROPOSED])
def test_forgetting_reaches_what_waits(
    tmp_path: Path, said: list[dict[str, Any]], proposed: dict[str, Any], query: str
) -> None:
    with opened(tmp_path, [answer(proposed)]) as memory:
        memory.commit(CommitRequest(messages=said, session_id="s1"))
        uri = str(only(memory).uri)
        assert memory.run(FORGET, ForgetRequest(query="giraffe")).status is Status.UNCHANGED
        shown = memory.run(FORGET, ForgetRequest(query=query, include_conversations=False))
        assert [result.uri for result in shown.results] == [uri]
        gone = memory.run(FORGET, ForgetRequest(query=query, include_conversations=False, confirm=1))
        assert (gone.status, len(waiting_proposals(memory))) == (Status.COMMITTED, 0)
        memory.run(UNDO, UndoRequest(gone.commit_id))
        assert memory.run(FORGET, ForgetRequest(uris=[uri], confirm=1)).status is Status.COMMITTED
        assert len(waiting_proposals(memory)) == 0


PETER = f"{USER}/facts/Peter.md"
#: What waits, and what of it says what is forgotten: its name, what goes, why, another field, a tag, a patch.
SAYING: dict[str, Any] = {
    "name": write("events", event_name="HIV diagnosis of Peter", event_time="2026-11-20", content="Was told in Leeds."),
    "gone": {"uri": PETER},
    "why": {"uri": PETER, "reason": "Peter no longer has HIV."},
    "field": write("entities", entity_name="Otto", entity_type="Peter's HIV nurse", content="Comes each month."),
    "tag": {"memory_data": {"memory_type": "facts", "fields": {"topic": "Peter", "content": "Tall."}, "tags": ["hiv"]}},
    "tags": {
        "memory_data": {"memory_type": "facts", "fields": {"topic": "Door", "content": "Shut."}, "tags": ["peter-hiv"]}
    },
    "patch": {"uri": PETER, "patches": {"content": "Peter has HIV. He moved to Leeds."}},
    "name in Chinese": write("events", event_name="彼得確診HIV", event_time="2026-11-20", content="在醫院。"),
}


@pytest.mark.parametrize("where", SAYING)
def test_what_waits_goes_whatever_of_it_says_what_is_forgotten(tmp_path: Path, where: str) -> None:
    kind = "delete" if where in ("gone", "why") else "edit" if where == "patch" else "write"
    kept = write("facts", topic="Tea", content="Peter drinks green tea.")
    proposed: dict[str, Any] = {"write_operations": [kept]}
    proposed[f"{kind}_operations"] = [*proposed.get(f"{kind}_operations", []), SAYING[where]]
    query = "彼得确诊HIV" if where == "name in Chinese" else "Peter HIV"
    with opened(tmp_path, [answer(**proposed)] * 2) as memory:
        if kind != "write":
            memory.commit(CommitRequest("Peter is tall, and has HIV.", memory_type="facts", fields={"topic": "Peter"}))
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        saying = [each for each in waiting_proposals(memory) if not each.target.endswith("Tea.md")]
        (place,) = (str(each.uri) for each in saying)
        shown = memory.run(FORGET, ForgetRequest(query))
        assert place in {result.uri for result in shown.results if "waits for review" in str(result.note)}
        gone = memory.run(FORGET, ForgetRequest(query, confirm=len(shown.results)))
        assert place in {result.uri for result in gone.results if result.action is Action.DELETED}
        assert [each.target.rpartition("/")[2] for each in waiting_proposals(memory)] == ["Tea.md"]
        memory.run(UNDO, UndoRequest(gone.commit_id))
        assert len(waiting_proposals(memory)) == 2


def test_the_reason_of_what_waits_counts_and_its_project_is_respected(tmp_path: Path) -> None:
    with opened(tmp_path, [answer(TEA_WRITE, reasoning="Peter has HIV.")]) as memory:
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1", project="acme/lab", private=True))
        assert memory.run(FORGET, ForgetRequest("Peter HIV", here="acme/web")).status is Status.UNCHANGED
        (shown,) = memory.run(FORGET, ForgetRequest("Peter HIV", here="acme/lab")).results
        assert shown.uri == str(only(memory).uri)
