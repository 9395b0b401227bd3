"""Projects from commit to search: whose a memory is, and that nothing private is told elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import Config, EmbeddingConfig, ExtractionConfig, ProjectConfig
from memory_core.core.errors import InvalidInput
from memory_core.core.llm.client import LLMRequest, Scripted, ScriptedLLM
from memory_core.core.memory.requests import (
    CommitRequest,
    FindRequest,
    ListRequest,
    ReadRequest,
    RetrieveRequest,
    TreeRequest,
)
from memory_core.core.memory.results import Action, CommitReceipt, OperationResult, as_json
from memory_core.core.memory.trailer import join
from memory_core.features.organize import ORGANIZE, OrganizeRequest
from memory_core.runebook import Runebook, open_memory
from tests.stores import added, body, by_hand, edit, edited_by_hand, handed_in, only, remember, said, trailer, write

P, Q = "github.com/acme/backend", "支付系统"
USER, AGENT = "viking://user/default/memories", "viking://agent/default/memories"
SECRET = "绝密代号 zebrafish"


def opened(home: Path, llm: ScriptedLLM | None = None, **project: Any) -> Runebook:
    embedding = EmbeddingConfig(provider="none")
    at_once = ExtractionConfig(every_exchanges=0, idle_minutes=0)
    config = Config(home=home, embedding=embedding, project=ProjectConfig(**project), extraction=at_once)
    return open_memory(config, llm=llm)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Runebook]:
    with opened(tmp_path) as store:
        yield store


def case(memory: Runebook, name: str, content: str, **arguments: Any) -> OperationResult:
    return only(
        memory.commit(CommitRequest(memory_type="cases", fields={"case_name": name, "content": content}, **arguments))
    )


def tell(memory: Runebook, text: str, session_id: str, **arguments: Any) -> CommitReceipt:
    return said(memory, text, session_id=session_id, **arguments)


def answer(*writes: dict[str, Any], **more: Any) -> str:
    operations = {"write_operations": list(writes), **more}
    return json.dumps({"reasoning": "worth keeping", "operations": operations}, ensure_ascii=False)


def everything_told(memory: Runebook, here: str | None) -> str:
    """All that a client in a project is told unasked, or by a search."""
    found = [
        as_json(memory.find(FindRequest(query, here=here, limit=50)))
        for query in ("zebrafish 绝密代号", "deploy 部署 helm")
    ]
    listings = [as_json(memory.tree(TreeRequest(level_limit=9, here=here)))]
    pages = []
    for entry in memory.tree(TreeRequest(level_limit=9, show_all_hidden=True, here=here)).entries:
        if entry.name in (".abstract.md", ".overview.md"):
            pages.append(memory.read(ReadRequest(entry.uri)).content)
    abstracts = [entry["abstract"] for listing in listings for entry in listing["entries"]]
    return json.dumps([found, abstracts, pages], ensure_ascii=False)


# Whose a memory is


def test_cases_and_patterns_belong_to_the_current_project_and_the_rest_to_nobody(memory: Runebook) -> None:
    ours = case(memory, "Port taken → Kill it", "lsof -i", here=P)
    pattern = only(memory.commit(CommitRequest("先跑测试", memory_type="patterns", here=Q)))
    taste = only(memory.commit(CommitRequest("Prefers tabs", memory_type="preferences", here=P)))
    tool = only(memory.commit(CommitRequest(memory_type="tools", fields={"tool_name": "web_search"}, here=P)))
    assert trailer(memory, ours.uri)["project"] == P
    assert trailer(memory, pattern.uri)["project"] == Q
    assert "project" not in trailer(memory, taste.uri)
    assert "project" not in trailer(memory, tool.uri)


def test_a_named_project_takes_memories_of_every_type_but_the_profile(memory: Runebook) -> None:
    taste = only(memory.commit(CommitRequest("用两个空格缩进", memory_type="preferences", project=Q)))
    profile = only(memory.commit(CommitRequest("A developer in Chengdu.", memory_type="profile", project=Q)))
    assert trailer(memory, taste.uri)["project"] == Q
    assert "project" not in trailer(memory, profile.uri)
    assert "belong to no project" in (profile.note or "")


@pytest.mark.parametrize("nobody", ["", "global", " Global "])
def test_a_case_can_be_kept_out_of_the_project(memory: Runebook, nobody: str) -> None:
    assert "project" not in trailer(memory, case(memory, "a → b", "c", here=P, project=nobody).uri)


def test_the_setting_comes_before_the_folder_and_the_argument_before_both(tmp_path: Path) -> None:
    with opened(tmp_path, name="git@GitHub.com:Acme/set.git") as memory:
        assert trailer(memory, case(memory, "a → b", "c", here=P).uri)["project"] == "github.com/acme/set"
        assert trailer(memory, case(memory, "a → b", "c", here=P, project=Q).uri)["project"] == Q
        assert trailer(memory, case(memory, "d → e", "c", here=P, project=".").uri)["project"] == "github.com/acme/set"


@pytest.mark.parametrize("forged", ["a\nb", "x" * 300, "a\x1fb", "\u202e"])
def test_a_forged_name_is_refused_and_nothing_is_stored(memory: Runebook, forged: str) -> None:
    given: list[dict[str, Any]] = [{"memory_content": "x"}, {"messages": [{"role": "user", "content": "x"}]}]
    for arguments in given:
        with pytest.raises(InvalidInput) as caught:
            memory.commit(CommitRequest(**arguments, project=forged))
        assert "characters on one line" in caught.value.hint
    with pytest.raises(InvalidInput):
        memory.find(FindRequest("x", project=forged))
    assert memory.tree(TreeRequest()).entries == ()


def test_private_needs_a_project(memory: Runebook) -> None:
    places: list[dict[str, Any]] = [{}, {"project": "global"}]
    for arguments in places:
        with pytest.raises(InvalidInput) as caught:
            memory.commit(CommitRequest("x", private=True, **arguments))
        assert "project" in caught.value.hint
    with pytest.raises(InvalidInput):
        memory.find(FindRequest("x", project="."))


# Keys


def test_two_projects_keep_a_memory_each_under_one_name(memory: Runebook) -> None:
    first = case(memory, "Build fails → Clean", "make clean", here=P)
    second = case(memory, "Build fails → Clean", "清空缓存", here=Q)
    common = case(memory, "Build fails → Clean", "reboot", project="global")
    assert {first.action, second.action, common.action} == {Action.CREATED}
    assert len({first.uri, second.uri, common.uri}) == 3
    again = [
        case(memory, "build FAILS → clean", "make distclean", here=P),
        case(memory, "Build fails → Clean", "重建镜像", here=Q),
        case(memory, "Build fails → Clean", "restart", project="global"),
    ]
    assert [(result.uri, result.action) for result in again] == [
        (uri, Action.UPDATED) for uri in (first.uri, second.uri, common.uri)
    ]
    assert [body(memory, result.uri) for result in again] == [
        "make clean\n\nmake distclean",
        "清空缓存\n重建镜像",
        "reboot\n\nrestart",
    ]


def test_without_one_of_its_own_a_project_renews_the_common_memory(memory: Runebook) -> None:
    common = case(memory, "Build fails → Clean", "reboot", project="global")
    assert case(memory, "Build fails → Clean", "restart", here=P).uri == common.uri
    assert "project" not in trailer(memory, common.uri)
    named = case(memory, "Build fails → Clean", "make clean", project=P)
    assert (named.action, named.uri == common.uri) == (Action.CREATED, False)
    assert case(memory, "Build fails → Clean", "make all", here=P).uri == named.uri
    assert body(memory, common.uri) == "reboot\n\nrestart"


def test_a_handwritten_file_belongs_to_the_project_in_its_trailer(tmp_path: Path) -> None:
    fields = {"case_name": "a → b", "memory_type": "cases", "project": Q, "private": True}
    by_hand(tmp_path, "agent/default/memories/cases/mine.md", join(SECRET, fields))
    with opened(tmp_path) as memory:
        assert case(memory, "a → b", "other", here=P).action is Action.CREATED
        assert case(memory, "a → b", SECRET + "!", here=Q).uri == f"{AGENT}/cases/mine.md"
        assert "zebrafish" not in everything_told(memory, P)


def test_a_file_given_to_another_project_by_hand_is_not_overwritten(memory: Runebook) -> None:
    common = case(memory, "a → b", "common", project="global")
    edited_by_hand(memory, common.uri, '"memory_type"', f'"project": "{Q}",\n  "memory_type"')
    ours = case(memory, "a → b", "new", here=P)
    assert (ours.action, ours.uri == common.uri) == (Action.CREATED, False)
    assert body(memory, common.uri) == "common"


def test_a_write_by_uri_does_not_replace_another_projects_memory(memory: Runebook) -> None:
    theirs = case(memory, "a → b", "theirs", here=Q)
    data = {"memory_type": "cases", "fields": {"case_name": "a → b", "content": "ours"}}
    places: list[dict[str, Any]] = [{"here": P}, {"project": P}, {"project": "global"}]
    for arguments in places:
        receipt = memory.commit(
            CommitRequest(operations={"write_operations": [{"uri": theirs.uri, "memory_data": data}]}, **arguments)
        )
        assert only(receipt).action is Action.REJECTED
        assert only(receipt).hint
    assert body(memory, theirs.uri) == "theirs"


def test_no_profile_is_made_twice_by_a_trailer_with_a_project(memory: Runebook) -> None:
    uri = only(added(memory, "profile", "Lives in Chengdu.")).uri
    edited_by_hand(memory, uri, '"memory_type"', f'"project": "{Q}",\n  "memory_type"')
    assert only(memory.commit(CommitRequest("Lives in Osaka.", memory_type="profile", here=P))).uri == uri


# Privacy


def test_what_is_private_is_told_in_its_project_only(memory: Runebook) -> None:
    secret = case(memory, SECRET, f"{SECRET}: deploy with helm", here=Q, private=True)
    case(memory, "Deploy → Use helm", "open knowledge of 支付", here=Q)
    tell(memory, f"我们的{SECRET}下周上线", "s-secret", here=Q, private=True)
    assert trailer(memory, secret.uri)["private"] is True
    for elsewhere in (P, None):
        assert "zebrafish" not in everything_told(memory, elsewhere)
        assert "open knowledge" in everything_told(memory, elsewhere)
    assert "zebrafish" in everything_told(memory, Q)
    assert memory.find(FindRequest("zebrafish", project=Q)).total >= 2
    (line,) = [
        entry.abstract for entry in memory.ls(ListRequest(f"{AGENT}/cases", here=P)).entries if "zebra" in entry.name
    ]
    assert line == "private to another project"


def test_a_private_memory_is_nobody_elses_neighbour(memory: Runebook) -> None:
    case(memory, SECRET, f"{SECRET} deploy helm chart rollback plan", here=Q, private=True)
    text = f"{SECRET} deploy helm chart rollback plan too"
    assert (
        memory.commit(CommitRequest(memory_type="cases", fields={"case_name": "x", "content": text}, here=P)).similar
        == ()
    )
    assert (
        memory.commit(CommitRequest(memory_type="cases", fields={"case_name": "y", "content": text}, here=Q)).similar
        != ()
    )


def test_summaries_count_private_memories_and_do_not_name_them(memory: Runebook) -> None:
    case(memory, "Open → Known", "shared", here=Q)
    for number in range(3):
        case(memory, f"{SECRET} {number}", "x", here=Q, private=True)
    page = memory.read(ReadRequest(f"{AGENT}/cases/.overview.md")).content
    line = memory.read(ReadRequest(f"{AGENT}/cases/.abstract.md")).content
    assert "cases (4)" in page
    assert "cases (4)" in line
    assert "3 private to a project" in page
    assert "zebrafish" not in page + line
    case(memory, f"{SECRET} 1", "x", here=Q, private=False)
    assert "2 private to a project" in memory.read(ReadRequest(f"{AGENT}/cases/.overview.md")).content
    assert "zebrafish 1" in memory.read(ReadRequest(f"{AGENT}/cases/.overview.md")).content
    case(memory, f"{SECRET} 1", "x", here=Q, private=True)
    gone = (
        memory.read(ReadRequest(f"{AGENT}/cases/.overview.md")).content
        + memory.read(ReadRequest(f"{AGENT}/cases/.abstract.md")).content
    )
    assert "3 private to a project" in gone
    assert "zebrafish" not in gone


def test_a_private_memory_is_not_named_by_the_links_of_others(memory: Runebook) -> None:
    common = case(memory, "Common → Known", "all see it", project="global")
    secret = case(memory, SECRET, "x", here=Q, private=True)
    handed_in(memory, edit=[{"uri": secret.uri, "patches": {}, "links": [{"uri": common.uri}]}])
    handed_in(memory, edit=[{"uri": common.uri, "patches": {}, "links": [{"uri": secret.uri}]}])
    assert "zebrafish" not in memory.read(ReadRequest(common.uri)).content
    assert trailer(memory, secret.uri)["links"][0]["uri"] == common.uri
    deletion = {"uri": secret.uri, "replacement_uri": common.uri}
    handed_in(memory, delete=[deletion])
    assert "zebrafish" not in memory.read(ReadRequest(common.uri)).content


def test_a_private_commit_puts_nothing_where_others_see_it(memory: Runebook) -> None:
    common = case(memory, "Common → Known", "all see it", project="global")
    profile = only(memory.commit(CommitRequest(SECRET, memory_type="profile", here=Q, private=True)))
    overview = {"directory_uri": f"{AGENT}/cases", "overview": SECRET, "abstract": SECRET}
    receipt = handed_in(memory, edit=[edit(common.uri, content=SECRET)], overview=[overview], here=Q, private=True)
    assert {result.action for result in (profile, *receipt.results)} == {Action.REJECTED}
    assert all(result.hint for result in receipt.results)
    mine = case(memory, "Common → Known", SECRET, here=Q, private=True)
    assert (mine.action, mine.uri == common.uri) == (Action.CREATED, False)
    assert "zebrafish" not in everything_told(memory, P)


def test_memories_of_a_project_can_be_private_by_default(tmp_path: Path) -> None:
    with opened(tmp_path, private=True) as memory:
        assert trailer(memory, case(memory, SECRET, "x", here=Q).uri)["private"] is True
        assert "private" not in trailer(memory, case(memory, "open", "x", here=Q, private=False).uri)
        taste = only(memory.commit(CommitRequest("Prefers tabs", memory_type="preferences", here=Q)))
        assert "private" not in trailer(memory, taste.uri)
        assert "zebrafish" not in everything_told(memory, P)


# Conversations


def test_a_conversation_keeps_its_project_whoever_sends_it_again(memory: Runebook) -> None:
    first = {"role": "user", "content": "我们用 helm 部署支付系统，命名空间是 pay。"}
    second = {"role": "user", "content": "And the staging cluster is called blue."}
    memory.commit(CommitRequest(messages=[first], session_id="s", here=Q))
    memory.commit(CommitRequest(messages=[first, second], session_id="s", here=P))
    memory.commit(CommitRequest(messages=[first, second], session_id="s", here=P))
    log = memory.read(ReadRequest("viking://session/default/s/messages.jsonl")).content
    assert [json.loads(line).get("project") for line in log.splitlines()] == [Q, Q]
    assert memory.find(FindRequest("staging cluster blue", project=Q)).resources
    assert not memory.find(FindRequest("staging cluster blue", project=P)).resources


def test_lines_of_a_log_sent_again_bring_no_project_with_them(memory: Runebook) -> None:
    tell(memory, "The vault door opens at noon every Tuesday.", "s", here=Q, private=True)
    (line,) = memory.read(ReadRequest("viking://session/default/s/messages.jsonl")).content.splitlines()
    memory.commit(CommitRequest(messages=[json.loads(line)], session_id="t", here=P))
    assert trailer_of_line(memory, "t") == {"project": P, "private": None}


def trailer_of_line(memory: Runebook, session: str) -> dict[str, Any]:
    record = json.loads(
        memory.read(ReadRequest(f"viking://session/default/{session}/messages.jsonl")).content.splitlines()[0]
    )
    return {name: record.get(name) for name in ("project", "private")}


def test_memories_of_a_conversation_inherit_its_project(tmp_path: Path) -> None:
    llm = ScriptedLLM([answer(write("cases", case_name="a → b", content="c"), write("facts", topic="T", content="t"))])
    with opened(tmp_path, llm) as memory:
        tell(memory, "Remember how we fixed it.", "s", here=P)
        assert trailer(memory, f"{AGENT}/cases/a → b.md")["project"] == P
        assert "project" not in trailer(memory, f"{USER}/facts/T.md")


def test_what_a_private_conversation_teaches_stays_in_its_project(tmp_path: Path) -> None:
    overview = {"directory_uri": f"{AGENT}/cases", "overview": SECRET}
    answers: list[Scripted] = [
        answer(write("facts", topic="Code name", content=SECRET), overview_operations=[overview]),
        answer(write("facts", topic="Code name", content=SECRET)),
    ]
    with opened(tmp_path, ScriptedLLM(answers)) as memory:
        case(memory, "a → b", "c", project="global")
        tell(memory, f"Our code name is {SECRET}.", "s", here=Q, private=True)
        assert trailer(memory, f"{USER}/facts/Code name.md")["private"] is True
        assert "zebrafish" not in everything_told(memory, P)
        assert "zebrafish" in everything_told(memory, Q)


def prompts(requests: Sequence[LLMRequest]) -> str:
    return "\n".join(turn.text for request in requests for turn in request.turns)


LOOKS = {
    "tree": [{"action_type": "tree", "params": {"uri": "viking://"}}],
    "ls": [{"action_type": "ls", "params": {"uri": f"{AGENT}/cases"}}],
    "find": [{"action_type": "find", "params": {"query": "helm deploy"}}],
    "read": [{"action_type": "read", "params": {"uri": f"{AGENT}/cases/guessed.md"}}],
    "lines": [{"action_type": "read", "params": {"uri": f"{AGENT}/cases/guessed.md", "offset": 0, "limit": 9}}],
    "log": [{"action_type": "read", "params": {"uri": "viking://session/default/secret/messages.jsonl"}}],
    "message": [{"action_type": "read", "params": {"uri": "viking://session/default/secret/messages.jsonl#0"}}],
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_model_that_extracts_for_one_project_sees_nothing_private_of_another(tmp_path: Path, look: str) -> None:
    with opened(tmp_path) as memory:
        case(memory, f"{SECRET} → helm", f"{SECRET} deploy helm", here=Q, private=True)
        case(memory, "guessed", f"{SECRET} deploy helm", here=Q, private=True)
        tell(memory, f"{SECRET} deploy helm", "secret", here=Q, private=True)
        case(memory, "open → known", "deploy helm", here=Q)
    looking = json.dumps({"reasoning": "look", "actions": LOOKS[look]})
    nothing = json.dumps({"reasoning": "nothing new"})
    for project, seen in ((P, False), (Q, True)):
        llm = ScriptedLLM([looking, nothing, nothing, nothing])
        with opened(tmp_path, llm) as memory:
            receipt = tell(memory, f"How do we deploy with helm? {project}", f"open {len(project)}", here=project)
            said = prompts(llm.requests) + json.dumps(as_json(receipt), ensure_ascii=False)
            assert len(llm.requests) >= 2
            assert ("zebrafish" in said) is seen


def test_a_commit_takes_up_no_conversation_that_is_private_to_another_project(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        tell(memory, f"{SECRET} is our name", "secret", here=Q, private=True)
        tell(memory, "我住在成都", "open", here=Q)
        assert "zebrafish" not in memory.extractor.brief(project=P)
        assert "我住在成都" in memory.extractor.brief(project=P)
        assert "zebrafish" in memory.extractor.brief(project=Q)
    nothing = json.dumps({"reasoning": "nothing new"})
    llm = ScriptedLLM([nothing] * 9)
    with opened(tmp_path, llm) as memory:
        receipt = tell(memory, "Hello from the backend", "mine", here=P)
        assert "secret" not in json.dumps(as_json(receipt))
        assert "zebrafish" not in prompts(llm.requests)
        assert "我住在成都" in prompts(llm.requests)
        assert [row.log.parent.name for row in memory.extractor.waiting()] == ["secret"]


def test_two_waiting_conversations_of_two_projects_stay_apart_in_one_call(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        tell(memory, "In the shop we restart the queue.", "shop", here=Q)
    by_session = {"shop": "restart the queue", "backend": "prune the cache"}

    def decide(request: LLMRequest) -> str:
        said = request.turns[0].text
        name = next(session for session, words in by_session.items() if words in said.rpartition("[1]")[2])
        return answer(write("cases", case_name="Stuck → Fixed", content=by_session[name]))

    with opened(tmp_path, ScriptedLLM([decide, decide, decide, decide])) as memory:
        tell(memory, "In the backend we prune the cache.", "backend", here=P)
        cases = [entry.uri for entry in memory.ls(ListRequest(f"{AGENT}/cases")).entries]
        assert {trailer(memory, uri)["project"]: body(memory, uri) for uri in cases} == {
            P: "prune the cache",
            Q: "restart the queue",
        }


def test_parts_of_a_conversation_in_two_projects_are_extracted_apart(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        tell(memory, "In the backend we prune the cache.", "s", here=P)
    said = (("Cache full → Prune", "Prune the cache."), ("队列卡住 → 重启", "重启队列。"))
    llm = ScriptedLLM([answer(write("cases", case_name=name, content=content)) for name, content in said])
    with opened(tmp_path, llm) as memory:
        both = [{"role": "user", "content": f"{SECRET}: we restart the queue."}]
        memory.commit(CommitRequest(messages=both, session_id="s", project=Q, private=True))
        cases = [trailer(memory, entry.uri) for entry in memory.ls(ListRequest(f"{AGENT}/cases")).entries]
        assert [(found["project"], found.get("private")) for found in cases] == [(P, None), (Q, True)]
        assert "zebrafish" not in prompts(llm.requests[:1])
        assert "prune the cache" in prompts(llm.requests[1:])


def test_a_model_cannot_change_a_private_memory_whose_name_it_guesses(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        uri = case(memory, "guessed", SECRET, here=Q, private=True).uri
    llm = ScriptedLLM([answer(edit_operations=[edit(uri, content="x")])] * 5)
    with opened(tmp_path, llm) as memory:
        receipt = tell(memory, "Forget what guessed says.", "s", here=P)
        assert body(memory, uri) == SECRET
        assert "zebrafish" not in prompts(llm.requests) + json.dumps(as_json(receipt), ensure_ascii=False)


def test_a_brief_is_answered_in_the_project_of_its_conversation(memory: Runebook) -> None:
    brief = tell(memory, f"Our {SECRET} needs care.", "s", here=Q, private=True, brief=True)
    assert brief.brief
    receipt = handed_in(memory, write=[write("facts", topic="Care", content=SECRET)], session_id="s", here=P)
    assert trailer(memory, only(receipt).uri)["project"] == Q
    assert "zebrafish" not in everything_told(memory, P)


def test_open_tasks_of_another_project_are_not_put_into_a_context(memory: Runebook) -> None:
    tasks: dict[str, dict[str, Any]] = {"Rotate zebrafish keys": {"project": Q, "private": True}, "Pay rent": {}}
    for title, arguments in tasks.items():
        memory.commit(CommitRequest(memory_type="tasks", fields={"title": title, "state": "open"}, **arguments))
    told = json.dumps(as_json(tell(memory, "Let us go on.", "s", here=P)))
    assert "Pay rent" in told
    assert "zebrafish" not in told


def test_counts_of_tools_stay_common_to_all_projects(memory: Runebook) -> None:
    for number, project in enumerate((P, Q)):
        call = {"type": "tool_use", "id": f"c{number}", "name": "web_search", "input": {"query": "x"}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "y"}
        messages = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        memory.commit(CommitRequest(messages=messages, session_id=f"s{number}", here=project))
    assert trailer(memory, f"{AGENT}/tools/web_search.md")["total_calls"] == 2


@pytest.mark.parametrize("form", ["blocks", "text"])
def test_a_context_tells_nothing_private_of_another_project(memory: Runebook, form: str) -> None:
    case(memory, f"{SECRET} → helm", f"{SECRET} deploy with helm", here=Q, private=True)
    ours = {"recommendation": SECRET, "project": Q, "private": True}
    remember(memory, None, "skills", skill_name="deploy", **ours)
    remember(memory, None, "tools", tool_name="helm", **ours)
    tell(memory, f"{SECRET} deploy with helm", "secret", here=Q, private=True)
    case(memory, "open → known", "deploy with helm 公开", here=Q)

    def told(here: str | None) -> str:
        packs = [
            memory.retrieve(RetrieveRequest("deploy with helm", format=form, here=here, tool="helm", skill="deploy")),
            memory.retrieve(RetrieveRequest(format=form, here=here)),
            memory.retrieve(
                RetrieveRequest(
                    messages=[{"role": "user", "content": "how to deploy with helm?"}], format=form, here=here
                )
            ),
        ]
        return json.dumps([as_json(pack) for pack in packs], ensure_ascii=False)

    for elsewhere in (P, None):
        assert "公开" in told(elsewhere)
        assert "zebrafish" not in told(elsewhere)
    assert "zebrafish" in told(Q)


def test_a_name_that_a_memory_of_another_project_holds_is_not_taken_from_it(memory: Runebook) -> None:
    case(memory, "Login fails", "Of a.", project="a")
    moved = case(memory, "Login fails", "How b was solved.", project="b")
    memory.run(ORGANIZE, OrganizeRequest([moved.uri], project="c"))
    again = case(memory, "Login fails", "Another of b.", project="b")
    assert again.action is Action.CREATED
    assert again.uri != moved.uri
    assert [body(memory, each.uri) for each in (moved, again)] == ["How b was solved.", "Another of b."]
