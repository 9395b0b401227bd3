"""Two users of one server with the same words: neither finds, reads, lists, counts or moves what is the other's.

``parity`` is the strongest form: whatever bob asks about a URI of anna's that exists, he gets byte for byte what he
gets for one that does not, and for one of a user who does not exist.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from tests.server.bearers import PATIENCE_SECONDS, issue
from tests.server.conftest import HTTP_ROUTES, Caller, Connect, HttpServer

#: Words that only anna's memories hold.
HERS = ("quokka", "短尾矮袋鼠", "Fremantle", "弗里曼特尔")
PRIVATE = re.compile("|".join(HERS), re.IGNORECASE)


def measuring(request: str, thing: str, length: str, call: str) -> list[dict[str, Any]]:
    """A conversation in which a tool was called."""
    used = {"type": "tool_use", "id": call, "name": "ruler", "input": {"of": thing}}
    result = {"type": "tool_result", "tool_use_id": call, "content": length}
    return [
        {"role": "user", "content": request},
        {"role": "assistant", "content": [used]},
        {"role": "user", "content": [result]},
    ]


CALLS = measuring("Measure the quokka 短尾矮袋鼠 in Fremantle.", "quokka", "45 cm", "toolu_shared")
#: The very same call in both users' conversations.
SHARED = measuring("Measure the shelf.", "shelf", "90 cm", "toolu_same")
MEMORIES = {
    "preferences": {"topic": "Travel 旅行", "content": "Likes Fremantle."},
    "facts": {"fact": "Pet 宠物", "content": "A quokka 短尾矮袋鼠, 弗里曼特尔."},
    "cases": {"case_name": "Quokka case", "problem": "quokka", "solution": "Fremantle"},
}
WRITES = [{"memory_data": {"memory_type": kind, "fields": fields}} for kind, fields in MEMORIES.items()]


class Two:
    """One server; anna has stored things through one route, bob asks through each."""

    def __init__(self, home: Path, connect: Connect) -> None:
        self._connect = connect
        self._tokens = {name: issue(home, name) for name in ("anna", "bob")}
        self.server = HttpServer(home, home.with_name("stderr"), "--set", "http.requests_per_minute=0")
        with self.as_user("anna") as anna:
            self.note = anna.facts(
                "commit_memory",
                memory_content="The quokka 短尾矮袋鼠 lives at 7 High Street, Fremantle 弗里曼特尔.",
                fields={"title": "Quokka"},
                request_id="same-request",
            )
            self.uri = self.note["results"][0]["uri"]
            stored = anna.facts("commit_memory", operations={"write_operations": WRITES})["results"]
            self.uris = [self.uri, *[result["uri"] for result in stored if result.get("uri")]]
            anna.facts("commit_memory", messages=CALLS, session_id="same-session")
            anna.facts("commit_memory", messages=CALLS[:1], session_id="her-session")
            anna.facts("commit_memory", messages=SHARED, session_id="measures")
            anna.facts(
                "commit_memory", memory_content="Saw a quokka.", memory_type="daily_logs", fields={"kind": "event"}
            )
            anna.facts("find", query="quokka")
            anna.facts("retrieve", query="quokka Fremantle", session_id="same-chat")
            self.uris.append("viking://session/anna/same-session/messages.jsonl")
            self.before = self.listed(anna)

    def as_user(self, name: str, path: str = "mcp", era: Any = "auto") -> Any:
        return self._connect(f"{self.server.origin}/{path}", era, token=self._tokens[name])

    def listed(self, caller: Caller) -> dict[str, str]:
        """All that a user has, by URI with its text."""
        entries = caller.facts("tree", level_limit=9, show_all_hidden=True, node_limit=10_000)["entries"]
        return {
            entry["uri"]: caller.facts("read", uri=entry["uri"])["content"] for entry in entries if not entry["is_dir"]
        }


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, connect: Connect) -> Iterator[Two]:
    made = Two(tmp_path_factory.mktemp("two") / "home", connect)
    with made.server:
        yield made


@pytest.fixture(scope="module", params=HTTP_ROUTES, ids=[" ".join(route) for route in HTTP_ROUTES])
def bob(two: Two, request: pytest.FixtureRequest) -> Iterator[Caller]:
    path, era = request.param
    with two.as_user("bob", path, era) as bob:
        yield bob


def said(answer: Any) -> str:
    """Everything that an answer says, with ids and times put aside."""
    text = json.dumps(answer if isinstance(answer, str | dict) else answer.model_dump(mode="json"), ensure_ascii=False)
    text = re.sub(r"commit [0-9a-z]+|\b[0-9a-f]{12,32}\b", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)?", "TIME", text)
    return re.sub(r'"io\.modelcontextprotocol/[^"]*": \{[^}]*\}', "", text)


def answered(ask: Callable[..., Any], *arguments: Any) -> str:
    try:
        return said(ask(*arguments))
    except MCPError as error:
        return said({"code": error.error.code, "message": error.error.message})


def asked(caller: Caller, tool: str, arguments: dict[str, Any]) -> str:
    return answered(lambda: caller.call(tool, **arguments))


def resource(caller: Caller, uri: str) -> str:
    return answered(caller.portal.call, caller.client.read_resource, uri)


def prompt(caller: Caller, name: str, **arguments: str) -> str:
    return answered(caller.portal.call, caller.client.get_prompt, name, arguments)


def edit(uri: str) -> dict[str, Any]:
    return {"edit_operations": [{"uri": uri, "patches": {"content": "mine"}}]}


def write(uri: str) -> dict[str, Any]:
    data = {"memory_type": "notes", "fields": {"title": "Mine", "content": "mine"}}
    return {"write_operations": [{"uri": uri, "memory_data": data}]}


def delete(uri: str) -> dict[str, Any]:
    return {"delete_operations": [{"uri": uri}]}


def replaced(uri: str) -> dict[str, Any]:
    own = "viking://user/bob/memories/notes/absent.md"
    return {"delete_operations": [{"uri": own, "replacement_uri": uri}]}


def linked(uri: str) -> dict[str, Any]:
    fields = {"title": "Linked", "content": f"see {uri}", "links": uri}
    return {"write_operations": [{"memory_data": {"memory_type": "notes", "fields": fields, "links": [uri]}}]}


def overview(uri: str) -> dict[str, Any]:
    return {"overview_operations": [{"directory_uri": uri.rpartition("/")[0], "abstract": "mine", "overview": "mine"}]}


COMMITS = {
    f"{operation.__name__}{' dry' * dry}": (operation, dry)
    for operation in (edit, write, delete, replaced, linked, overview)
    for dry in (True, False)
}


def committing(operation: Callable[[str], dict[str, Any]], dry: bool) -> Callable[[Any, str], str]:
    return lambda bob, uri: asked(bob, "commit_memory", {"operations": operation(uri), "dry_run": dry})


QUESTIONS: dict[str, Callable[[Any, str], str]] = {
    "read": lambda bob, uri: asked(bob, "read", {"uri": uri}),
    "read a line": lambda bob, uri: asked(bob, "read", {"uri": f"{uri}#0", "limit": 1}),
    "read beyond the end": lambda bob, uri: asked(bob, "read", {"uri": uri, "offset": 10_000}),
    "ls": lambda bob, uri: asked(bob, "ls", {"uri": uri}),
    "ls its folder": lambda bob, uri: asked(bob, "ls", {"uri": uri.rpartition("/")[0]}),
    "tree": lambda bob, uri: asked(bob, "tree", {"uri": uri}),
    "tree of its folder": lambda bob, uri: asked(bob, "tree", {"uri": uri.rpartition("/")[0], "show_all_hidden": True}),
    "summary": lambda bob, uri: asked(bob, "read", {"uri": f"{uri.rpartition('/')[0]}/.abstract.md"}),
    "archived": lambda bob, uri: asked(bob, "read", {"uri": uri.replace("viking://", "viking://archive/")}),
    "history": lambda bob, uri: asked(bob, "read", {"uri": uri.replace("viking://", "viking://history/")}),
    "list history": lambda bob, uri: asked(bob, "ls", {"uri": uri.replace("viking://", "viking://history/")}),
    "find below": lambda bob, uri: asked(bob, "find", {"query": "quokka", "target_uri": uri}),
    "find in its folder": lambda bob, uri: asked(
        bob, "find", {"query": "quokka", "target_uri": uri.rpartition("/")[0]}
    ),
    "resource": resource,
    "archived resource": lambda bob, uri: resource(bob, uri.replace("viking://", "viking://archive/")),
    **{name: committing(operation, dry) for name, (operation, dry) in COMMITS.items()},
}


#: A route decides whose view answers; these go through all that a view is made of, the others ask one route.
ON_EVERY_ROUTE = ("read", "tree of its folder", "find below", "resource", "edit")
ASKED = [(HTTP_ROUTES[-1], question) for question in QUESTIONS]
ASKED += [(route, question) for route in HTTP_ROUTES[:-1] for question in ON_EVERY_ROUTE]


@pytest.mark.parametrize(
    ("bob", "question"), ASKED, indirect=["bob"], ids=[f"{' '.join(route)} {question}" for route, question in ASKED]
)
def test_foreign_and_absent_get_the_same_answer(two: Two, bob: Caller, question: str) -> None:
    ask = QUESTIONS[question]
    for uri in two.uris:
        folder, _, name = uri.rpartition("/")
        ending = name.rpartition(".")[2]
        absent = f"{folder}/{'x' * (len(name) - len(ending) - 1)}.{ending}"
        if name == "messages.jsonl":
            absent = uri.replace("same-session", "xxxx-xxxxxxx")
        nobody = uri.replace("/anna/", "/nemo/")
        answers = [ask(bob, variant) for variant in (uri, absent, nobody)]
        names = [(uri, folder, name), (absent, absent.rpartition("/")[0], absent.rpartition("/")[2])]
        names.append((nobody, nobody.rpartition("/")[0], name))
        plain = {neutral(answer, *parts) for answer, parts in zip(answers, names, strict=True)}
        assert len(plain) == 1, (uri, plain)


def neutral(answer: str, uri: str, folder: str, name: str) -> str:
    """An answer without the names that bob himself gave, or those that follow from them."""
    for text, stands in ((uri, "URI"), (uri.removeprefix("viking://"), "URI"), (folder, "FOLDER")):
        answer = answer.replace(text, stands)
    answer = answer.replace(folder.removeprefix("viking://"), "FOLDER").replace(name, "NAME")
    return re.sub(r"Linked( \w+)?\.md|\b(created|updated|unchanged)\b|sha256:\w+", "RESULT", answer)


def test_searches_find_nothing_of_the_other(bob: Caller) -> None:
    for query in (*HERS, "quokka Fremantle High Street", "Travel 旅行", "ruler", "45 cm"):
        for rank in ("relevance", "decay", "weighted", "balanced"):
            found = bob.call("find", query=query, limit=100, rank=rank)
            assert not PRIVATE.search(said(found).replace(query, "")), query
            assert "/anna/" not in said(found)
    for condition in (
        {"session_id": "same-session"},
        {"role": "user"},
        {"memory_type": "facts"},
        {"not": {"memory_type": "nothing"}},
        {"created_at": {"gt": "2000-01-01"}},
    ):
        found = bob.call("find", query="quokka", limit=100, filter=condition)
        assert "/anna/" not in said(found)
        assert not PRIVATE.search(said(found).replace("quokka", ""))


def test_contexts_and_prompts_hold_nothing_of_the_other(bob: Caller) -> None:
    for arguments in (
        {"query": "the pet"},
        {"query": "the pet", "session_id": "same-chat"},
        {"session_id": "same-session"},
        {"messages": [{"role": "user", "content": "Where does the pet live? 宠物"}]},
        {"query": "measuring", "tool": "ruler"},
        {"query": "measuring", "skill": "ruler"},
    ):
        text = said(bob.portal.call(bob.client.call_tool, "retrieve", arguments, PATIENCE_SECONDS))
        assert not PRIVATE.search(text), arguments
        assert "anna" not in text
    for text in (prompt(bob, "recall", query="the pet"), prompt(bob, "extract_memories")):
        assert not PRIVATE.search(text)
        assert "anna" not in text
    hers, absent = (prompt(bob, "extract_memories", session_id=name) for name in ("her-session", "no-session"))
    assert hers.replace("her-session", "X") == absent.replace("no-session", "X")


def test_listings_show_only_ones_own_space(bob: Caller) -> None:
    bob.facts("commit_memory", memory_content="Bob's own 自己的", fields={"title": "Own"})
    for uri in ("viking://", "viking://user", "viking://agent", "viking://session", "viking://archive"):
        for tool, arguments in (("ls", {}), ("tree", {"level_limit": 9, "show_all_hidden": True})):
            text = said(bob.call(tool, uri=uri, **arguments))
            assert "anna" not in text, (tool, uri)
            assert not PRIVATE.search(text)


def test_request_id_of_another_is_not_taken_for_a_repeat(two: Two, bob: Caller) -> None:
    receipt = bob.facts("commit_memory", memory_content="Bob's request", request_id="same-request")
    assert receipt["commit_id"] != two.note["commit_id"]
    assert "/anna/" not in said(receipt)


def test_tool_call_that_another_counted_counts_anew(bob: Caller) -> None:
    receipt = bob.facts("commit_memory", messages=SHARED, session_id="same-session")
    assert receipt["usage"]["messages_new"] in (0, 3)
    tools = bob.facts("tree", uri="viking://agent/bob", level_limit=9)["entries"]
    (uri,) = [entry["uri"] for entry in tools if entry["uri"].endswith("ruler.md")]
    assert "Based on 1 historical calls" in bob.facts("read", uri=uri)["content"]


def test_receipts_name_no_similar_memory_of_the_other(bob: Caller) -> None:
    same = "The quokka 短尾矮袋鼠 lives at 7 High Street, Fremantle 弗里曼特尔."
    for dry in (True, False):
        receipt = bob.facts("commit_memory", memory_content=same, fields={"title": "Copy"}, dry_run=dry)
        assert "anna" not in said(receipt)
    uri = receipt["results"][0]["uri"]
    bob.facts("commit_memory", operations=delete(uri))


@pytest.mark.usefixtures("bob")
def test_the_other_has_all_that_was_hers_and_nothing_else(two: Two) -> None:
    """Last: after everything that bob tried."""
    with two.as_user("anna") as anna:
        assert two.listed(anna) == two.before
        again = anna.facts("commit_memory", memory_content="x", request_id="same-request")
        assert again["commit_id"] == two.note["commit_id"]
