"""Who may do what over the API: spaces of tokens, rights, other sites, sizes, and what a refusal says."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from memory_core.core.config import Config
from memory_core.core.feature import Features
from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.memory.requests import CommitRequest
from memory_core.features import doctor
from server.foreign_json import MOST_VALUES
from tests.server.http.conftest import OWNER_KEY, Page, desk_at

if TYPE_CHECKING:
    from pathlib import Path

    from memory_core.features.doctor import Report
    from tests.server.http.conftest import Desk


PLACE = re.compile(r"/(?:tmp|work|home|usr|var)/|site-packages|Traceback|\.py\b")


@pytest.fixture(scope="module")
def annas(desk: Desk) -> dict[str, str]:
    """What anna has: a memory, its commit, a conversation, something archived, a summary."""
    path = desk.anna.keep("Anna's secret garden 安娜的秘密花园.", fields={"title": "Garden"})
    gone = desk.anna.keep("Anna's old garden 旧花园.", fields={"title": "Old garden"})
    uri = f"viking://{gone.replace('%20', ' ')}"
    desk.anna.facts("POST", "/archive", {"uris": [uri]})
    desk.anna.facts("PUT", "/rolling-summary", {"text": "Anna gardens."})
    view = desk.store.memory().view("anna", "anna")
    view.commit(CommitRequest(messages=[{"role": "user", "content": "garden 花园 talk"}], session_id="garden-talk"))
    commits = desk.anna.facts("GET", f"/history?uri=viking://{path}")["commits"]
    desk.anna.facts("POST", "/search", {"query": "garden 花园"})
    return {"path": path, "uri": f"viking://{path}", "archived": uri, "commit": commits[0]["commit_id"]}


def test_bearer_of_another_space_sees_nothing_of_it(desk: Desk, annas: dict[str, str]) -> None:
    bob = desk.bob
    answers: dict[str, Any] = {
        path: bob.ask("GET", path)
        for path in (
            f"/entries/{annas['path']}",
            f"/versions/{annas['path']}",
            f"/commits/{annas['commit']}",
            f"/history?uri={annas['uri']}",
            f"/trail?uri={annas['uri']}",
            "/tree?uri=viking://user/anna",
            "/sessions/garden-talk",
            "/entries/session/anna/garden-talk/messages.jsonl",
        )
    }
    assert {path: answer.status_code for path, answer in answers.items()} == dict.fromkeys(answers, 404)
    lists = ("history", "sessions", "queue", "archive", "heat", "trail", "review", "procedural", "stats", "about")
    found = ("rolling-summary", "entries?words=garden", "tree?depth=9")
    asked = [bob.ask("GET", f"/{path}") for path in (*lists, *found)]
    said = "".join(answer.text for answer in (*asked, bob.ask("POST", "/search", {"query": "garden 花园"})))
    assert "arden" not in said
    assert "花园" not in said
    assert "anna" not in said


def test_bearer_of_another_space_changes_nothing_of_it(desk: Desk, annas: dict[str, str]) -> None:
    bob = desk.bob
    before = desk.anna.entry(annas["path"])
    tries = [
        bob.ask("PATCH", f"/entries/{annas['path']}", {"content": "Bob was here."}, etag=before["sha256"]),
        bob.ask("DELETE", f"/entries/{annas['path']}"),
        bob.ask("POST", f"/commits/{annas['commit']}/undo", {}),
        bob.ask("POST", "/archive", {"uris": [annas["uri"]]}),
        bob.ask("POST", "/archive/restore", {"uris": [annas["archived"]]}),
        bob.ask("POST", "/consolidate", {"session_id": "garden-talk"}),
    ]
    assert [answer.status_code for answer in tries] == [404, 404, 404, 409, 409, 503]
    assert desk.anna.entry(annas["path"])["text"] == before["text"]
    assert [each["original"] for each in desk.anna.facts("GET", "/archive")["archived"]] == [annas["archived"]]


MUTATIONS: list[tuple[str, str, Any]] = [
    ("POST", "/entries", {"content": "x"}),
    ("POST", "/entries", {"content": "x", "dry_run": True}),
    ("PATCH", "/entries/{path}", {"content": "x"}),
    ("DELETE", "/entries/{path}", None),
    ("POST", "/commits/{commit}/undo", {}),
    ("POST", "/consolidate", {}),
    ("POST", "/bulk", {"uris": ["viking://user/anna/memories/notes/Garden.md"], "pinned": True}),
    ("POST", "/relations", {"uri": "viking://user/anna/memories/notes/Garden.md", "other": "viking://x/y"}),
    ("POST", "/archive", {"uris": ["{uri}"]}),
    ("POST", "/archive", {}),
    ("POST", "/archive/restore", {"uris": ["{archived}"]}),
    ("PUT", "/rolling-summary", {"text": "x"}),
    ("DELETE", "/rolling-summary", None),
    ("POST", "/health/repair", {}),
    ("POST", "/review/any/accept", {}),
    ("POST", "/review/any/reject", {}),
]


@pytest.mark.parametrize(("method", "path", "body"), MUTATIONS)
def test_token_that_reads_changes_nothing(desk: Desk, annas: dict[str, str], method: str, path: str, body: Any) -> None:
    answer = desk.reader.ask(method, path.format(**annas), body, etag='"x"')
    assert answer.status_code == 403
    assert set(answer.json()) == {"error", "hint"}


def test_every_mutation_of_the_description_is_tried_with_a_reading_token(desk: Desk) -> None:
    described = {
        (method.upper(), re.sub(r"\{[a-z_]+\}", "{}", path.removeprefix("/api/memory")))
        for path, item in desk.owner.facts("GET", "/api/openapi.json")["paths"].items()
        for method, told in item.items()
        if method != "get" and told["tags"] != ["owner"]  # the owner's alone: no token reaches them
    }
    tried = {
        (method, re.sub(r"\{[a-z_]+\}|/any/", lambda found: "/{}/" if "any" in found[0] else "{}", path))
        for method, path, _ in MUTATIONS
    }
    assert described - tried == {("POST", "/search"), ("POST", "/preview")}


def test_token_that_reads_leaves_no_trace(desk: Desk, annas: dict[str, str]) -> None:
    before = desk.anna.facts("GET", "/trail")["trail"]
    assert desk.reader.entry(annas["path"])["editable"] is False
    desk.reader.facts("POST", "/search", {"query": "garden traceless"})
    assert desk.reader.facts("GET", "/about")["writable"] is False
    assert desk.anna.facts("GET", "/trail")["trail"] == before


def test_answers_at_the_same_time_are_each_bearers_own(desk: Desk, annas: dict[str, str]) -> None:
    desk.bob.keep("Bob's boat 鲍勃的船.", fields={"title": "Boat"})

    def spaces(page: Page) -> set[str]:
        listed = page.facts("GET", "/entries")["entries"]
        return {entry["uri"].split("/")[3] for entry in listed} | {page.facts("GET", "/about")["user_space"]}

    with ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(spaces, [desk.anna, desk.bob] * 12))
    assert seen == [{"anna"}, {"bob"}] * 12
    assert annas["path"].startswith("user/anna/")


def test_history_names_the_bearer_and_the_page(desk: Desk) -> None:
    desk.anna.keep("Who wrote this?", fields={"title": "Author"})
    desk.owner.keep("And this?", fields={"title": "Author"})
    assert desk.anna.facts("GET", "/history?limit=1")["commits"][0]["author"] == "anna"
    assert desk.owner.facts("GET", "/history?limit=1")["commits"][0]["author"] == "page"


def test_last_commit_of_a_bearer_is_its_own(desk: Desk) -> None:
    path = desk.anna.keep("Mine.", fields={"title": "Last"})
    desk.store.memory().view("anna", "anna").commit(CommitRequest("By somebody else."))
    desk.anna.facts("POST", "/commits/last/undo", {})
    assert desk.anna.ask("GET", f"/entries/{path}").status_code == 404


def test_private_mode_stores_nothing_and_finds_all_the_same(tmp_path: Path) -> None:
    with desk_at(tmp_path, settings={"private_mode": True}) as private:
        refused = private.owner.ask("POST", "/entries", {"content": "x"})
        assert refused.status_code == 403
        assert "private mode" in refused.json()["error"]
        assert private.owner.facts("GET", "/about")["private_mode"] is True
        assert private.owner.facts("POST", "/search", {"query": "tea"})["total"] == 0
        assert private.owner.facts("GET", "/trail")["trail"] == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/settings", None),
        ("PUT", "/settings/search.rank", {"value": "decay"}),
        ("GET", "/clients", None),
        ("GET", "/tokens", None),
        ("POST", "/tokens", {"label": "mine"}),
        ("DELETE", "/tokens/anna", None),
        ("POST", "/transfers", {"name": "a.md"}),
        ("GET", "/transfers/0", None),
        ("POST", "/transfers/0/import", {}),
        ("POST", "/transfers/0/restore", {}),
        ("POST", "/exports", {}),
        ("POST", "/backups", {}),
    ],
)
def test_nobody_but_the_owner_may(desk: Desk, method: str, path: str, body: object) -> None:
    assert desk.anna.ask(method, path, body).status_code == 403
    assert desk.reader.ask(method, path, body).json()["hint"]
    assert desk.owner.ask(method, path, body, origin="https://chat.example.com").status_code == 403


def test_key_opens_everything_and_a_wrong_one_nothing(desk: Desk) -> None:
    about = desk.owner.facts("GET", "/about")
    assert (about["owner"], about["user_space"]) == (True, "default")
    for wrong in ("", OWNER_KEY[:-1], OWNER_KEY.upper(), f"{OWNER_KEY} ", f"{OWNER_KEY}x", "锁"):
        headers = {b"authorization": f"Bearer {wrong}".encode()}
        status = desk.client.get("/api/memory/about", headers=headers).status_code
        assert status == (200 if wrong.strip() == OWNER_KEY else 401)


@pytest.mark.parametrize("path", ["/", "/api/", "/api/page.css", "/api/page.js", "/ui/js/api.js"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_files_of_the_pages_need_no_token_and_load_nothing_from_elsewhere(desk: Desk, method: str, path: str) -> None:
    answer = desk.client.request(method, path)
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert (answer.content == b"") is (method == "HEAD")
    assert int(answer.headers["content-length"]) == len(desk.client.get(path).content)


@pytest.mark.parametrize("path", ["/ui/../api/memory/about", "/ui/%2e%2e/api/memory/about", "/ui//api/memory/about"])
def test_no_way_leads_from_the_files_to_the_memories(desk: Desk, path: str) -> None:
    assert desk.client.get(path).status_code in (401, 404)
    assert desk.client.post(path, json={}).status_code == 401


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_page_of_another_site_changes_nothing(desk: Desk, site: str) -> None:
    refused = desk.owner.ask("POST", "/entries", {"content": "Forged."}, sec_fetch_site=site)
    assert refused.status_code == 403
    assert desk.owner.facts("GET", "/entries?words=Forged")["total"] == 0


def test_page_that_the_owner_allows_may_change(desk: Desk) -> None:
    headers = {"sec_fetch_site": "cross-site", "origin": "https://chat.example.com"}
    answer = desk.owner.ask("POST", "/entries", {"content": "Allowed."}, **headers)
    assert answer.status_code == 201
    asked = {"origin": "https://chat.example.com", "access-control-request-method": "PATCH"}
    preflight = desk.client.options("/api/memory/entries/x", headers=asked)
    assert "PATCH" in preflight.headers["access-control-allow-methods"]


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_form_changes_nothing(desk: Desk, content_type: str) -> None:
    headers = {**desk.owner.headers, "content-type": content_type}
    answer = desk.client.post("/api/memory/entries", content=b'{"content": "Formed."}', headers=headers)
    assert answer.status_code == 415
    assert desk.owner.facts("GET", "/entries?words=Formed")["total"] == 0


@pytest.mark.parametrize(
    "body",
    [b"{", b"[" * 60_000, b'{"content": "\\ud800"}', b'{"content": 1}', b'{"nonsense": 1}', b"\xff\xfe", b"null", b""],
    ids=range(8),
)
def test_broken_body_is_refused_in_words(desk: Desk, body: bytes) -> None:
    headers = {**desk.owner.headers, "content-type": "application/json"}
    answer = desk.client.post("/api/memory/entries", content=body, headers=headers)
    assert answer.status_code in (400, 409, 422)
    assert {"error", "hint"} <= set(answer.json()) <= {"error", "hint", "receipt"}
    assert not PLACE.search(answer.text)


def test_body_beyond_the_limit_is_refused(desk: Desk) -> None:
    answer = desk.owner.ask("POST", "/preview", {"markdown": "x" * 5_000_000})
    assert answer.status_code == 413


def test_body_of_very_many_values_is_refused_and_many_signs_in_a_text_are_not(desk: Desk) -> None:
    refused = desk.owner.ask("POST", "/search", {"query": "tea", "filter": {"or": [1] * MOST_VALUES}})
    assert refused.status_code == 413
    assert refused.json()["error"] == f"the body has more than {MOST_VALUES:,} values."
    assert desk.owner.ask("POST", "/preview", {"markdown": "a, b; " * (MOST_VALUES - 10_000)}).status_code == 200


def test_of_many_unknown_members_the_first_are_named(desk: Desk) -> None:
    refused = desk.owner.ask("POST", "/search", {"query": "tea", **{f"m{number}": 1 for number in range(1_000)}})
    assert refused.status_code == 422
    assert refused.json()["error"].startswith("m0: Extra inputs are not permitted; m1: ")


PATHS = [
    "/entries/..%2f..%2fetc%2fpasswd",
    "/entries/user/default/../../../etc/passwd",
    "/entries/user/default/.state/ledger.sqlite3",
    "/entries/.state",
    "/entries/%00",
    "/entries/user%00",
    "/entries//etc/passwd",
    "/entries/C:%5CWindows",
    "/entries/user/default/memories",
    "/entries/user",
    "/entries/" + "a" * 5_000,
    "/versions/%ed%a0%80",
    "/commits/%25",
    "/sessions/..",
    "/sessions/a%2fb",
    "/history?before=nothing",
    "/history?uri=file:///etc/passwd",
    "/tree?uri=viking://user/default/memories/none",
    "/nothing",
    "/review/x/accept",
]


@pytest.mark.parametrize("path", PATHS)
def test_path_that_is_none_is_refused_in_words(desk: Desk, path: str) -> None:
    answer = desk.owner.ask("GET", path)
    assert 400 <= answer.status_code < 500
    assert set(answer.json()) == {"error", "hint"}
    assert "root:" not in answer.text
    assert not PLACE.search(answer.text.replace("/etc/passwd", ""))


def test_list_looks_for_a_bounded_number_of_words(desk: Desk) -> None:
    path = desk.owner.keep("Zebra zebra 斑马.", fields={"title": "Zebra"})
    asked = desk.owner.facts("GET", f"/entries?words={'zebra%20ZEBRA%20' * 30}斑马")
    assert [entry["path"] for entry in asked["entries"]] == [path]
    many = "%20".join(f"w{number}" for number in range(100))
    refused = desk.owner.ask("GET", f"/entries?words={many}")
    assert refused.status_code == 400
    assert "words" in refused.json()["error"]


def test_store_that_cannot_be_opened_is_told_without_its_place(tmp_path: Path) -> None:
    (tmp_path / "in the way").write_text("no folder", encoding="utf-8")
    with desk_at(tmp_path / "tokens", root=tmp_path / "in the way") as desk:
        answers = [desk.owner.ask("GET", "/about"), desk.owner.ask("POST", "/entries", {"content": "Kept?"})]
    for answer in answers:
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert set(answer.json()) == {"error", "hint"}
        assert not PLACE.search(answer.text)
        assert str(tmp_path) not in answer.text


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_page_of_another_site_asks_nothing(desk: Desk, method: str, site: str) -> None:
    path = desk.owner.keep("Foreign pages count no use.", fields={"title": f"Foreign {method} {site}"})
    assert desk.owner.ask(method, f"/entries/{path}", sec_fetch_site=site).status_code == 403
    desk.store.memory().store.usage.flush()
    (listed,) = desk.owner.facts("GET", f"/entries?words=Foreign%20{method}%20{site}")["entries"]
    assert listed["accesses"] == 0
    allowed = desk.owner.ask("GET", "/about", sec_fetch_site=site, origin="https://chat.example.com")
    assert allowed.status_code == 200
    assert desk.owner.ask("GET", "/about", sec_fetch_site="same-origin").status_code == 200


def test_page_of_another_port_is_foreign_where_the_browser_does_not_say_so(desk: Desk) -> None:
    foreign = {"host": "127.0.0.1:8849", "origin": "http://127.0.0.1:9999"}
    assert desk.owner.ask("POST", "/entries", {"content": "Forged by a port."}, **foreign).status_code == 403
    own = {"host": "127.0.0.1:8849", "origin": "http://127.0.0.1:8849"}
    assert desk.owner.ask("POST", "/entries", {"content": "By the page.", "dry_run": True}, **own).status_code == 200


def test_examinations_asked_for_at_once_are_one(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[float] = []
    go_on = threading.Event()

    def slow(config: Config, registry: MemoryTypeRegistry, features: Features) -> Report:
        begun.append(0.0)
        assert go_on.wait(30.0)
        return examine(config, registry, features)

    examine = doctor.examine
    monkeypatch.setattr(doctor, "examine", slow)
    with ThreadPoolExecutor(9) as pool:
        asked = [pool.submit(desk.owner.ask, "GET", "/health") for _ in range(8)]
        assert desk.owner.ask("GET", "/about").status_code == 200
        go_on.set()
        assert {answer.result().status_code for answer in asked} == {200}
    assert 1 <= len(begun) < 8
