"""The past, conversations and upkeep over the API."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from memory_core.core.memory.requests import CommitRequest, FindRequest
from tests.server.http.conftest import desk_at, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.http.conftest import Desk


@pytest.fixture(scope="module")
def edited(desk: Desk) -> str:
    """A memory of three versions."""
    path = desk.owner.keep("One\nTwo\nThree", fields={"title": "Three versions"})
    for text in ("One\n二\nThree", "One\n二\nThree\nFour"):
        desk.owner.facts("PATCH", f"/entries/{path}", {"content": text}, etag=desk.owner.entry(path)["sha256"])
    return path


def test_versions_come_newest_first_with_their_rows(desk: Desk, edited: str) -> None:
    versions = desk.owner.facts("GET", f"/versions/{edited}")["versions"]
    assert [version["action"] for version in versions] == ["updated", "updated", "created"]
    added = [row["right"]["text"] for row in versions[0]["rows"] if row["kind"] == "added"]
    assert added == ["Four"]


def test_commit_shows_its_files_side_by_side(desk: Desk, edited: str) -> None:
    commits = desk.owner.facts("GET", f"/history?uri=viking://{edited.replace('%20', ' ')}")["commits"]
    shown = desk.owner.facts("GET", f"/commits/{commits[1]['commit_id']}")
    (file,) = [file for file in shown["files"] if file["uri"].endswith("Three versions.md")]
    rows = [row for row in file["rows"] if row["kind"] in ("removed", "changed", "added")]
    assert ("Two", "二") in [
        (row.get("left", {}).get("text"), (rows[at + 1] if "right" not in row else row)["right"]["text"])
        for at, row in enumerate(rows[:-1])
    ]


def test_a_commit_and_versions_show_so_many_characters(
    desk: Desk, edited: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.http.past_routes.ROWS_CHARS", 1)
    versions = desk.owner.facts("GET", f"/versions/{edited}?context=1000")["versions"]
    shown = desk.owner.facts("GET", f"/commits/{versions[0]['commit']['commit_id']}?context=1000")["files"]
    for diffs in (versions, shown):
        assert [len(diff["rows"]) for diff in diffs] == [2, *[1] * (len(diffs) - 1)]
        assert {diff["rows"][-1]["kind"] for diff in diffs} == {"skipped"}


@pytest.mark.usefixtures("edited")
def test_history_goes_on_where_it_ended(desk: Desk) -> None:
    first = desk.owner.facts("GET", "/history?limit=2")
    assert first["more"] is True
    second = desk.owner.facts("GET", f"/history?limit=2&before={first['commits'][-1]['commit_id']}")
    ids = [commit["commit_id"] for page in (first, second) for commit in page["commits"]]
    assert len(set(ids)) == len(ids) >= 3


def test_undo_that_is_only_planned_changes_nothing(desk: Desk, edited: str) -> None:
    before = desk.owner.entry(edited)["sha256"]
    newest = desk.owner.facts("GET", f"/versions/{edited}")["versions"][0]["commit"]["commit_id"]
    planned = desk.owner.facts("POST", f"/commits/{newest}/undo", {"dry_run": True})
    assert planned["status"] == "dry_run"
    assert desk.owner.entry(edited)["sha256"] == before


@pytest.fixture(scope="module")
def talked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A store with conversations in both languages, one of them long enough for segments."""
    with desk_at(tmp_path_factory.mktemp("talked"), settings={"tiers.short_term_capacity": 2}) as made:
        memory = made.store.memory()
        said = []
        for number in range(8):
            said += [
                {
                    "role": "user",
                    "content": f"第{number}次：我的帆船要修理甲板 {number}",
                    "time": "2026-05-08T13:56:00Z",
                },
                {"role": "assistant", "content": f"Noted, deck repair {number}."},
            ]
        memory.commit(CommitRequest(messages=said, session_id="boat-talk"))
        memory.commit(CommitRequest(messages=[{"role": "user", "content": "Hello."}], session_id="short-talk"))
        memory.opened.background.finish()
        yield made


def test_conversations_are_listed_with_what_waits(talked: Desk) -> None:
    listed = talked.owner.facts("GET", "/sessions")
    found = {session["session_id"]: session for session in listed["sessions"]}
    assert listed["total"] == 2
    assert [session["session_id"] for session in listed["sessions"]] == ["short-talk", "boat-talk"]
    assert found["boat-talk"]["updated_at"] == "2026-05-08T13:56:00+00:00"
    assert (found["boat-talk"]["messages"], found["boat-talk"]["waiting"]) == (16, 16)
    assert found["boat-talk"]["segments"] >= 1
    queue = talked.owner.facts("GET", "/queue")["waiting"]
    assert {(row["session_id"], row["messages"]) for row in queue} == {("boat-talk", 16), ("short-talk", 1)}
    assert (listed["all"], listed["waiting"]) == (2, 2)
    assert talked.owner.facts("GET", "/sessions?waiting=true")["total"] == 2


def test_conversations_are_called_by_their_titles_wherever_they_are_named(talked: Desk) -> None:
    title = {each["session_id"]: each["title"] for each in talked.owner.facts("GET", "/sessions")["sessions"]}
    history = talked.owner.facts("GET", "/history")
    assert history["titles"] == title
    uri = "viking://session/default/short-talk/messages.jsonl"
    (commit,) = (each for each in history["commits"] if any(file["uri"] == uri for file in each["files"]))
    assert talked.owner.facts("GET", f"/commits/{commit['commit_id']}")["titles"] == {"short-talk": title["short-talk"]}
    found = talked.owner.facts("POST", "/search", {"query": "deck repair"})
    assert found["titles"]["boat-talk"] == title["boat-talk"]


def test_conversation_is_read_page_by_page(talked: Desk) -> None:
    page = talked.owner.facts("GET", "/sessions/boat-talk?offset=2&limit=3")
    assert [message["line"] for message in page["messages"]] == [2, 3, 4]
    assert page["messages"][0]["text"] == "第1次：我的帆船要修理甲板 1"
    assert page["total"] == 16
    assert page["updated_at"] == "2026-05-08T13:56:00+00:00"
    assert page["segments"][0]["pages"]


def test_heat_is_shown_with_what_it_is_made_of(talked: Desk) -> None:
    heat = talked.owner.facts("GET", "/heat")
    assert heat["threshold"] == 5.0
    assert heat["lambda"] == 0.05
    (segment, *_) = heat["segments"]
    assert segment["interactions"] >= 1
    assert segment["heat"] >= segment["interactions"]


def test_without_a_model_what_waits_waits_on(talked: Desk) -> None:
    before = talked.owner.facts("GET", "/queue")
    answer = talked.owner.ask("POST", "/consolidate", {})
    assert answer.status_code == 503
    assert "llm.provider" in answer.json()["hint"]
    assert talked.owner.facts("GET", "/queue") == before


def test_all_that_waits_is_in_the_queue(tmp_path: Path) -> None:
    with desk_at(tmp_path) as made:
        for number in range(101):
            said = [{"role": "user", "content": f"Number {number}"}]
            made.store.memory().commit(CommitRequest(messages=said, session_id=f"s{number}"))
        assert len(made.owner.facts("GET", "/queue")["waiting"]) == 101


def test_archived_memory_is_found_and_restored(desk: Desk) -> None:
    path = desk.owner.keep("码头的钥匙 The key of the pier.", fields={"title": "Pier"})
    uri = f"viking://{path}"
    assert desk.owner.facts("POST", "/archive", {"uris": [uri], "dry_run": True})["receipts"][0]["status"] == "dry_run"
    desk.owner.facts("POST", "/archive", {"uris": [uri]})
    assert desk.owner.ask("GET", f"/entries/{path}").status_code == 404
    (archived,) = desk.owner.facts("GET", "/archive?words=码头")["archived"]
    assert archived["original"] == uri
    assert desk.owner.entry(path_of(archived["uri"]))["editable"] is False
    desk.owner.facts("POST", "/archive/restore", {"uris": [uri]})
    assert desk.owner.entry(path)["body"].startswith("码头")


def test_old_logs_are_archived_by_their_age(desk: Desk) -> None:
    memory = desk.store.memory()
    old = datetime.now(UTC) - timedelta(days=20)
    memory.commit(CommitRequest("很久以前 long ago", memory_type="daily_log", now=old))
    assert desk.owner.facts("POST", "/archive", {"dry_run": True})["receipts"] == []
    planned = desk.owner.facts("POST", "/archive", {"days": 7, "dry_run": True})
    assert planned["receipts"]


def test_rolling_summary_is_written_once_seen(desk: Desk) -> None:
    empty = desk.owner.ask("GET", "/rolling-summary")
    assert (empty.json()["text"], empty.json()["written_by"]) == ("", "nobody")
    first = desk.owner.ask("PUT", "/rolling-summary", {"text": "林五月搬家。"}, etag=empty.headers["etag"])
    assert first.json()["summary"]["html"] == "<p>林五月搬家。</p>\n"
    late = desk.owner.ask("PUT", "/rolling-summary", {"text": "Late."}, etag=empty.headers["etag"])
    assert (late.status_code, late.json()["summary"]["text"]) == (412, "林五月搬家。")
    desk.owner.facts("DELETE", "/rolling-summary")
    assert desk.owner.facts("GET", "/rolling-summary")["written_by"] == "nobody"


def test_proposal_is_accepted_or_rejected(tmp_path_factory: pytest.TempPathFactory) -> None:
    with desk_at(tmp_path_factory.mktemp("review"), settings={"review": "automatic"}) as made:
        said = "Never push to main without asking me first. 下次不要这样。"
        made.store.memory().commit(CommitRequest(messages=[{"role": "user", "content": said}], session_id="review-1"))
        waiting = made.owner.facts("GET", "/review")["waiting"]
        assert waiting
        name = waiting[0]["name"]
        for verdict in ("accept", "reject"):
            answered = made.owner.ask("POST", f"/review/{name}/{verdict}", {}, etag=f'"{"0" * 64}"')
            assert answered.status_code == 412
        tag = f'"{waiting[0]["sha256"]}"'
        assert made.owner.facts("POST", f"/review/{name}/accept", {}, etag=tag)["status"] == "committed"
        assert made.owner.ask("POST", f"/review/{name}/reject", {}).status_code == 404


def test_a_search_is_ranked_as_the_owner_set_unless_it_says_how(tmp_path_factory: pytest.TempPathFactory) -> None:
    for setting in ("decay", "relevance"):
        with desk_at(tmp_path_factory.mktemp(setting), settings={"search.rank": setting}) as made:
            made.anna.keep("Trail of tea 茶的踪迹.", fields={"title": "Trail"})
            for more in ({}, {"use_decay": False}, {"rank": "weighted"}):
                made.anna.facts("POST", "/search", {"query": "茶的踪迹", **more})
            trail = made.anna.facts("GET", "/trail")["trail"]
        assert [entry["rank"] for entry in trail] == ["weighted", "relevance", setting]


def test_trail_stats_and_health_are_told(desk: Desk) -> None:
    desk.anna.keep("Trail of tea 茶的踪迹.", fields={"title": "Trail"})
    found = desk.anna.facts("POST", "/search", {"query": "茶的踪迹", "rank": "relevance"})
    assert found["hits"][0]["name"] == "Trail"
    assert found["hits"][0]["why"]
    assert found["milliseconds"] > 0
    trail = desk.anna.facts("GET", "/trail?limit=1")["trail"]
    assert trail[0]["query"] == "茶的踪迹"
    assert desk.owner.facts("GET", "/stats")["memories"] > 0
    assert desk.owner.facts("GET", "/health")["findings"]
    assert desk.anna.ask("GET", "/health").status_code == 403
    foreign = {"origin": "https://chat.example.com"}  # a page that may read and write memories
    assert desk.owner.ask("GET", "/entries", **foreign).status_code == 200
    assert desk.owner.ask("GET", "/health", **foreign).status_code == 403
    assert desk.owner.ask("POST", "/health/repair", {}, **foreign).status_code == 403


@pytest.mark.parametrize(
    ("who", "headers", "said", "uses"),
    [
        ("owner", {}, "Yuzu grows here.", 0),
        ("anna", {"sec_fetch_site": "same-origin"}, "柿子在院子里。", 0),
        ("anna", {}, "Kumquats are sour.", 2),
    ],
)
def test_looking_is_not_using(desk: Desk, who: str, headers: dict[str, str], said: str, uses: int) -> None:
    """By the owner, and on the page whoever it is; a program with a token uses what it finds and reads."""
    page = getattr(desk, who)
    path = page.keep(said, fields={"title": said.split()[0]})
    assert page.ask("POST", "/search", {"query": said}, **headers).json()["hits"]
    assert page.ask("GET", f"/entries/{path}", **headers).status_code == 200
    desk.store.memory().store.usage.flush()
    entry = page.ask("GET", f"/entries/{path}", sec_fetch_site="same-origin").json()
    assert entry["accesses"] == uses
    assert ("last_access" in entry) == bool(uses)


def test_types_and_tree_are_told(desk: Desk) -> None:
    desk.owner.keep("Something is there.")
    types = {known["name"]: known for known in desk.owner.facts("GET", "/types")["types"]}
    assert types["preferences"]["directory"] == "viking://user/default/memories/preferences"
    assert [field["name"] for field in types["preferences"]["fields"] if field["key"]] == ["topic"]
    assert "user" in {entry["path"] for entry in desk.owner.facts("GET", "/tree")["entries"]}


def test_answer_with_many_versions_has_bounded_rows(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.http.past_routes.ROWS_MOST", 5)
    path = desk.owner.keep("0", fields={"title": "Often changed"})
    for text in ("1\n2\n3\n4", "a\nb\nc\nd", "x\ny"):
        desk.owner.facts("PATCH", f"/entries/{path}", {"content": text}, etag="*")
    found = desk.owner.facts("GET", f"/versions/{path}")["versions"]
    kinds = [[row["kind"] for row in version["rows"]] for version in found]
    assert len(kinds) == 4
    assert all(kind[-1] == "skipped" for kind in kinds)
    assert kinds[-1] == ["skipped"]
    assert sum(map(len, kinds)) <= 10


def test_answer_with_long_versions_shows_the_rows_of_few(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.http.past_routes._VERSIONS_CHARS", 2_000)
    path = desk.owner.keep("0", fields={"title": "Long versions"})
    for text in ("a" * 600, "b" * 600, "c" * 600):
        desk.owner.facts("PATCH", f"/entries/{path}", {"content": text}, etag="*")
    found = desk.owner.facts("GET", f"/versions/{path}")["versions"]
    assert [[row["kind"] for row in version["rows"]] == ["skipped"] for version in found] == [False, True, True, True]


def test_a_conversation_has_a_title_is_searched_and_names_its_memories_with_their_lines(tmp_path: Path) -> None:
    with desk_at(tmp_path) as desk:
        said = ["When do we fly to Osaka?", "On 2 May.", "我父亲走路不方便，酒店要靠近车站。", "好的，车站附近的酒店。"]
        messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(said)]
        view = desk.store.memory().view("anna", "anna")
        view.commit(CommitRequest(messages=messages, session_id="trip"))
        written = [
            {"memory_data": {"memory_type": "notes", "fields": {"title": title, "content": text}}}
            for title, text in (("Flight", "Flies to Osaka on 2 May."), ("酒店", "酒店要靠近车站。"))
        ]
        view.commit(CommitRequest(operations={"write_operations": written}, session_id="trip"))
        desk.anna.keep("Osaka is a city.", fields={"title": "Not told there"})
        (listed,) = desk.anna.facts("GET", "/sessions")["sessions"]
        whole = desk.anna.facts("GET", "/sessions/trip")
        assert listed["title"] == whole["title"] == "When do we fly to Osaka?"
        found = desk.anna.facts("GET", "/sessions/trip?words=酒店 車站")
        assert [message["line"] for message in found["messages"]] == [2, 3]
        assert desk.anna.facts("GET", "/sessions/trip?words=nothing")["total"] == 0
        told = {each["name"]: each["lines"] for each in desk.anna.facts("GET", "/sessions/trip/memories")["memories"]}
        assert set(told) == {"Flight", "酒店"}
        assert 0 in told["Flight"]
        assert 2 in told["酒店"]
        assert desk.bob.ask("GET", "/sessions/trip/memories").status_code == 404


def test_the_owner_mends_the_store_and_nobody_else(tmp_path: Path) -> None:
    with desk_at(tmp_path) as desk:
        desk.owner.keep("Green tea.", fields={"title": "Tea"})
        assert desk.owner.facts("GET", "/entries")["total"] == 1  # it is indexed now
        assert desk.owner.facts("GET", "/health")["clean"]
        with closing(sqlite3.connect(tmp_path / ".state" / "index.sqlite3")) as index, index:
            index.execute("DELETE FROM documents WHERE uri LIKE '%/Tea.md'")
        assert not desk.owner.facts("GET", "/health")["clean"]
        assert desk.anna.ask("POST", "/health/repair", {}).status_code == 403
        mended = desk.owner.facts("POST", "/health/repair", {})
        assert mended["clean"]
        assert mended["repaired"]


def test_growth_counts_months_recalls_and_freshness_and_names_nothing(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    with desk_at(tmp_path / "home") as desk:
        memory = desk.store.memory()
        for title, days in (("Boat", 400), ("茶", 400), ("Rose", 20), ("Tea", 0)):
            request = CommitRequest(
                "It is.", memory_type="notes", fields={"title": title}, now=now - timedelta(days=days)
            )
            memory.commit(request)
        memory.recalls.note_read("viking://user/default/memories/notes/Boat.md", now)
        memory.find(FindRequest("tea"))
        found = desk.owner.facts("GET", "/growth")
        assert [each["count"] for each in found["freshness"]] == [2, 0, 1, 1]
        assert sum(each["count"] for each in found["months"]) == 4
        assert found["months"][0] == {"month": (now - timedelta(days=400)).strftime("%Y-%m"), "count": 2}
        assert [each["count"] for each in found["recalls"]] == [1]
        assert "Boat" not in str(found)
        assert desk.bob.facts("GET", "/growth")["months"] == []
