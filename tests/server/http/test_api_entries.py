"""Memories over the API: listing, reading, keeping, changing, deleting, and two tabs at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memory_core.core.memory.requests import CommitRequest
from memory_core.core.memory.uri import MemoryUri
from tests.server.http.conftest import desk_at

if TYPE_CHECKING:
    from pathlib import Path

    from tests.server.http.conftest import Desk


CELLO = "Lin plays the cello.\n\nOn **Sundays**."
CHA = "用户早上喝绿茶，晚上喝普洱。"


def test_what_is_kept_is_listed_read_and_rendered(desk: Desk) -> None:
    path = desk.owner.keep(CHA, "preferences", fields={"topic": "茶"}, salience=0.8, category="drinks")
    entry = desk.owner.entry(path)
    assert entry["body"] == CHA
    assert entry["html"] == f"<p>{CHA}</p>\n"
    assert entry["text"].startswith(CHA)
    assert "MEMORY_FIELDS" in entry["text"]
    assert {field["name"]: field.get("value") for field in entry["fields"]}["topic"] == "茶"
    assert (entry["salience"], entry["editable"], entry["version"]) == (0.8, True, 1)
    listed = desk.owner.facts("GET", "/entries?words=普洱")
    assert [each["uri"] for each in listed["entries"]] == [entry["uri"]]
    assert listed["total"] == 1


def test_etag_is_the_hash_of_the_file(desk: Desk) -> None:
    path = desk.owner.keep("Etags are hashes.")
    answer = desk.owner.ask("GET", f"/entries/{path}")
    assert answer.headers["etag"] == f'"{answer.json()["sha256"]}"'
    assert desk.owner.ask("HEAD", f"/entries/{path}").content == b""


def test_change_with_the_etag_is_stored_and_answered_with_the_new_one(desk: Desk) -> None:
    path = desk.owner.keep(CELLO, fields={"title": "Cello"})
    before = desk.owner.entry(path)
    change = {"content": "Lin plays the viola.", "tags": ["music", "音乐"], "pinned": True, "salience": 0.9}
    answer = desk.owner.ask("PATCH", f"/entries/{path}", change, etag=f'"{before["sha256"]}"')
    assert answer.status_code == 200, answer.text
    now = answer.json()["entry"]
    assert answer.headers["etag"] == f'"{now["sha256"]}"' != f'"{before["sha256"]}"'
    assert (now["body"], now["tags"], now["pinned"], now["salience"]) == (
        "Lin plays the viola.",
        ["music", "音乐"],
        True,
        0.9,
    )
    assert desk.owner.entry(path)["sha256"] == now["sha256"]


def test_two_tabs_lose_nothing(desk: Desk) -> None:
    path = desk.owner.keep("First.", fields={"title": "Two tabs"})
    etag = f'"{desk.owner.entry(path)["sha256"]}"'
    assert desk.owner.ask("PATCH", f"/entries/{path}", {"content": "Of the first tab."}, etag=etag).status_code == 200
    late = desk.owner.ask("PATCH", f"/entries/{path}", {"content": "Of the second tab."}, etag=etag)
    assert late.status_code == 412
    assert late.json()["current"]["body"] == "Of the first tab."
    assert late.json()["hint"]
    again = desk.owner.ask(
        "PATCH", f"/entries/{path}", {"content": "Both."}, etag=f'"{late.json()["current"]["sha256"]}"'
    )
    assert again.status_code == 200
    replaced = [
        row["left"]["text"]
        for version in desk.owner.facts("GET", f"/versions/{path}")["versions"]
        for row in version["rows"]
        if "left" in row and row["kind"] != "same"
    ]
    assert "Of the first tab." in replaced


def test_hand_edit_between_two_saves_is_a_conflict(desk: Desk) -> None:
    path = desk.owner.keep("By machine.", fields={"title": "By hand"})
    seen = desk.owner.entry(path)
    file = desk.store.memory().store.files.path_for(MemoryUri.parse(seen["uri"]))
    file.write_text(file.read_text(encoding="utf-8").replace("By machine.", "By hand."), encoding="utf-8", newline="\n")
    late = desk.owner.ask("PATCH", f"/entries/{path}", {"content": "Over it."}, etag=seen["sha256"])
    assert (late.status_code, late.json()["current"]["body"]) == (412, "By hand.")


@pytest.mark.parametrize(("etag", "status"), [(None, 428), ('"wrong"', 412), ("a, b", 400), ("*", 200), ('W/"x"', 400)])
def test_change_needs_the_etag(desk: Desk, etag: str | None, status: int) -> None:
    path = desk.owner.keep("Needs an etag.", fields={"title": f"Etag {status} {len(etag or '')}"})
    answer = desk.owner.ask("PATCH", f"/entries/{path}", {"content": "Changed."}, etag=etag)
    assert answer.status_code == status
    assert (desk.owner.entry(path)["body"] == "Changed.") is (status == 200)


def test_dry_run_shows_what_would_be_and_stores_nothing(desk: Desk) -> None:
    path = desk.owner.keep("Old line.\n\nStays.", fields={"title": "Preview"})
    seen = desk.owner.entry(path)
    change = {"content": "New line.\n\nStays.", "dry_run": True}
    answer = desk.owner.facts("PATCH", f"/entries/{path}", change, etag=seen["sha256"])
    assert answer["receipt"]["status"] == "dry_run"
    assert answer["preview"]["html"] == "<p>New line.</p>\n<p>Stays.</p>\n"
    changed = [row for row in answer["preview"]["rows"] if row["kind"] == "changed"]
    assert changed[0]["left"]["parts"] == [["Old", True], [" line.", False]]
    assert desk.owner.entry(path)["sha256"] == seen["sha256"]


def test_text_that_quotes_a_patch_is_stored_as_it_is(desk: Desk) -> None:
    quoted = "How to patch:\n<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE\nend"
    path = desk.owner.keep("About patches.", fields={"title": "Quoted"})
    etag = desk.owner.entry(path)["sha256"]
    answer = desk.owner.facts("PATCH", f"/entries/{path}", {"content": quoted}, etag=etag)
    assert answer["entry"]["body"] == quoted


def test_count_takes_its_new_value(desk: Desk) -> None:
    made = desk.owner.facts(
        "POST",
        "/entries",
        {"memory_type": "tools", "fields": {"tool_name": "web_search", "total_calls": 100, "success_count": 92}},
    )
    path = made["results"][0]["uri"].removeprefix("viking://")
    etag = desk.owner.entry(path)["sha256"]
    now = desk.owner.facts("PATCH", f"/entries/{path}", {"fields": {"total_calls": 200}}, etag=etag)["entry"]
    values = {field["name"]: field.get("value") for field in now["fields"]}
    assert (values["total_calls"], values["success_count"], values["success_rate"]) == (200, 92, 46.0)
    figures = desk.owner.facts("GET", "/procedural")["tools"][0]["figures"]
    assert figures["success_rate"] == 46.0


def test_a_text_made_of_fields_says_whether_it_was_edited_by_hand_and_what_it_shows(desk: Desk) -> None:
    tool = {"tool_name": "query", "total_calls": 3, "best_for": "Counting rows", "recommendation": "Log in first."}
    made = desk.owner.facts("POST", "/entries", {"memory_type": "tools", "fields": tool})
    path = made["results"][0]["uri"].removeprefix("viking://")
    seen = desk.owner.entry(path)
    assert "hand_edited" not in seen
    assert all(field["in_text"] for field in seen["fields"] if field["name"] in tool)
    file = desk.store.memory().store.files.path_for(MemoryUri.parse(seen["uri"]))
    text = file.read_text(encoding="utf-8").replace("Recommendation: Log", "Recommendation: NEVER log", 1)
    file.write_text(text, encoding="utf-8", newline="\n")
    edited = desk.owner.entry(path)
    assert edited["hand_edited"] is True
    assert "NEVER log" in edited["html"]
    change = {"fields": {"recommendation": "Ask first."}}
    now = desk.owner.facts("PATCH", f"/entries/{path}", change, etag=edited["sha256"])["entry"]
    shown = {field["name"]: field["in_text"] for field in now["fields"]}
    assert (shown["recommendation"], shown["best_for"], shown["total_calls"]) == (False, True, True)
    assert "NEVER log" in now["html"]


def test_immutable_field_is_refused_with_the_receipt(desk: Desk) -> None:
    path = desk.owner.keep("Named once.", fields={"title": "Fixed"})
    etag = desk.owner.entry(path)["sha256"]
    answer = desk.owner.ask("PATCH", f"/entries/{path}", {"fields": {"title": "Other"}}, etag=etag)
    assert answer.status_code == 409
    assert answer.json()["receipt"]["status"] == "rejected"
    assert "immutable" in answer.json()["error"]


def test_deleted_memory_comes_back_by_undo(desk: Desk) -> None:
    path = desk.owner.keep("Goes and comes back. 去了又来。", fields={"title": "Boomerang"})
    body = desk.owner.entry(path)["text"]
    receipt = desk.owner.facts("DELETE", f"/entries/{path}")
    assert desk.owner.ask("GET", f"/entries/{path}").status_code == 404
    undone = desk.owner.facts("POST", f"/commits/{receipt['commit_id']}/undo", {})
    assert undone["status"] == "committed"
    assert desk.owner.entry(path)["text"] == body


def test_delete_with_an_old_etag_is_refused(desk: Desk) -> None:
    path = desk.owner.keep("Stays.", fields={"title": "Old etag"})
    assert desk.owner.ask("DELETE", f"/entries/{path}", etag='"old"').status_code == 412
    assert desk.owner.entry(path)["body"] == "Stays."


def test_retry_with_a_request_id_adds_nothing(desk: Desk) -> None:
    body = {"content": "Once. 一次。", "request_id": "r-1"}
    first, second = (desk.owner.ask("POST", "/entries", body) for _ in range(2))
    assert first.json()["commit_id"] == second.json()["commit_id"]


def test_secret_is_not_stored(desk: Desk) -> None:
    path = desk.owner.keep("The key is sk-ant-api03-" + "Ab1" * 32, fields={"title": "Key"})
    assert "Ab1Ab1" not in desk.owner.ask("GET", f"/entries/{path}").text


def test_daily_log_takes_an_entry(desk: Desk) -> None:
    receipt = desk.owner.facts("POST", "/entries", {"content": "修好了登录表单", "to": "daily_log"})
    uri = receipt["results"][0]["uri"]
    assert "/logs/" in uri
    entry = desk.owner.entry(uri.removeprefix("viking://").partition("#")[0])
    assert "修好了登录表单" in entry["body"]
    assert entry["editable"] is False


def test_filters_and_orders_of_the_list(desk: Desk) -> None:
    for number, (name, salience) in enumerate([("Alpha", 0.2), ("beta", 0.9), ("Gamma", 0.5)]):
        desk.bob.keep(f"Text {number} zebra", "facts", fields={"topic": name}, salience=salience, pinned=number == 2)
    bob = desk.bob

    def names(query: str) -> list[str]:
        return [entry["name"] for entry in bob.facts("GET", f"/entries?{query}")["entries"]]

    assert names("sort=name") == ["Alpha", "beta", "Gamma"]
    assert names("sort=importance") == ["beta", "Gamma", "Alpha"]
    assert names("importance_min=0.4&sort=name") == ["beta", "Gamma"]
    assert names("pinned=true") == ["Gamma"]
    assert names("words=zebra%20ALPHA") == ["Alpha"]
    assert names("memory_type=tasks") == []
    assert names("updated_after=2999-01-01") == []
    assert len(names("updated_before=2999-01-01")) == 3
    page = bob.facts("GET", "/entries?sort=name&limit=2")
    assert (page["total"], page["next_offset"]) == (3, 2)
    assert names("sort=name&limit=2&offset=2") == ["Gamma"]


def test_opening_a_memory_counts_as_a_use_and_orders_the_list(desk: Desk) -> None:
    first, second = (desk.anna.keep(f"Used {n}.", fields={"title": f"Used {n}"}) for n in "ab")
    desk.anna.entry(second)
    desk.store.memory().store.usage.flush()
    listed = desk.anna.facts("GET", "/entries?sort=accesses")["entries"]
    assert [(each["path"], each["accesses"]) for each in listed if each["name"].startswith("Used")] == [
        (second.replace("%20", " "), 1),
        (first.replace("%20", " "), 0),
    ]


def test_put_to_rest_leaves_the_active_ones(desk: Desk) -> None:
    path = desk.owner.keep("Sleeps.", fields={"title": "Rest"})
    etag = desk.owner.entry(path)["sha256"]
    desk.owner.facts("PATCH", f"/entries/{path}", {"active": False}, etag=etag)
    listed = desk.owner.facts("GET", "/entries?active=true&words=Sleeps")
    assert listed["total"] == 0
    assert desk.owner.facts("GET", "/entries?active=false&words=Sleeps")["total"] == 1


def test_memory_from_a_conversation_shows_the_lines_it_came_from(desk: Desk) -> None:
    memory = desk.store.memory()
    messages = [
        {"role": "user", "content": "Good morning!"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "name": "Lin", "content": "我五月搬到成都，住在锦江区。"},
    ]
    memory.commit(CommitRequest(messages=messages, session_id="move-1"))
    receipt = memory.commit(CommitRequest("Lin 五月搬到成都锦江区。", session_id="move-1"))
    entry = desk.owner.entry(receipt.results[0].uri.removeprefix("viking://"))
    assert [(page["line"], page["speaker"]) for page in entry["source_pages"]] == [(2, "Lin")]
    assert entry["source"]["session_id"] == "move-1"


def test_many_are_changed_in_one_commit_and_filtered_by_their_tags(tmp_path: Path) -> None:
    with desk_at(tmp_path) as desk:
        paths = [desk.anna.keep(f"Note {title}.", fields={"title": title}) for title in ("One", "Two", "三")]
        uris = [desk.anna.entry(path)["uri"] for path in paths]
        desk.anna.facts("POST", "/bulk", {"uris": uris[:2], "tags": ["a", "b"]})
        tagged = desk.anna.facts("POST", "/bulk", {"uris": uris[1:], "tags": ["b"], "pinned": True})
        assert tagged["status"] == "committed"
        listed = desk.anna.facts("GET", "/entries?tags=a&tags=b&sort=name")["entries"]
        assert [entry["name"] for entry in listed] == ["One", "Two"]
        assert desk.anna.facts("GET", "/labels")["tags"] == {"b": 3, "a": 2}
        assert desk.bob.facts("GET", "/labels") == {"tags": {}, "projects": {}}
        for action in ("archive", "delete"):
            receipt = desk.anna.facts("POST", "/bulk", {"uris": uris, "action": action})
            assert desk.anna.facts("GET", "/entries")["total"] == 0
            desk.anna.facts("POST", f"/commits/{receipt['commit_id']}/undo", {})
            assert desk.anna.facts("GET", "/entries")["total"] == 3
        assert desk.anna.ask("POST", "/bulk", {"uris": uris, "action": "delete", "tags": ["x"]}).status_code == 400
        assert desk.anna.ask("POST", "/bulk", {"uris": uris}).status_code == 400
        assert desk.bob.ask("POST", "/bulk", {"uris": uris, "pinned": True}).status_code == 409
        assert desk.reader.ask("POST", "/bulk", {"uris": uris, "pinned": True}).status_code == 403
