"""Settings, tokens and clients over HTTP: the owner changes them, and nobody else sees them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from memory_core.core.config import HttpConfig, load
from memory_core.core.settings_file import SettingsFile
from memory_core.runebook import open_memory
from server.protocol.session import ServedStore
from tests.server.bearers import ledger_of
from tests.server.http.conftest import Desk, client_of, desk_at
from tests.stores import words_only

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def desk(own_desk: Desk) -> Desk:
    return own_desk


def setting(desk: Desk, name: str) -> dict[str, object]:
    found = desk.owner.facts("GET", "/settings")["settings"]
    return next(each for each in found if each["name"] == name)


def test_each_setting_says_what_it_means_and_where_it_comes_from(desk: Desk) -> None:
    assert setting(desk, "search.cached_queries") == {
        "name": "search.cached_queries",
        "value": 8,
        "default": 64,
        "description": "Queries whose candidates each process keeps until something is committed.",
        "environment": "RUNEBOOK_SEARCH_CACHED_QUERIES",
        "origin": "option",
        "kind": "number",
        "least": 0.0,
        "most": 1000.0,
        "locked": "option",
    }
    rank = setting(desk, "search.rank")
    assert (rank["origin"], rank["kind"]) == ("default", "choice")
    assert rank["choices"] == ["relevance", "balanced", "decay", "weighted"]


def test_what_is_changed_stands_in_the_file_counts_at_once_and_is_taken_back(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "home" / "config.json"
    file.write_text('{"owner_names": ["Mei"]}', encoding="utf-8")
    assert desk.owner.facts("PUT", "/settings/search.rank", {"value": "decay"})["setting"]["origin"] == "file"
    assert desk.owner.facts("GET", "/about")["rank"] == "decay"
    assert json.loads(file.read_text(encoding="utf-8")) == {"owner_names": ["Mei"], "search": {"rank": "decay"}}
    assert load(environment={}, flags={"home": str(tmp_path / "home")}).search.rank == "decay"
    desk.owner.facts("PUT", "/settings/search.rank", {"value": None})
    assert desk.owner.facts("GET", "/about")["rank"] == "balanced"
    assert json.loads(file.read_text(encoding="utf-8")) == {"owner_names": ["Mei"]}


def test_private_mode_is_switched_on_for_everybody_and_off_again(desk: Desk) -> None:
    desk.owner.facts("PUT", "/settings/private_mode", {"value": True})
    for page in (desk.owner, desk.anna):
        assert page.ask("POST", "/entries", {"content": "Nothing of this."}).status_code == 403
    desk.owner.facts("PUT", "/settings/private_mode", {"value": False})
    assert desk.anna.keep("All of this.")


def test_other_servers_of_the_store_follow_the_settings_file(desk: Desk, tmp_path: Path) -> None:
    """However it was changed, and also while they run."""
    file = tmp_path / "home" / "config.json"
    with desk_at(tmp_path / "tokens", tmp_path / "home") as other:
        kept = other.anna.keep("Before.")
        desk.owner.facts("PUT", "/settings/private_mode", {"value": True})
        assert other.anna.ask("POST", "/entries", {"content": "Nothing of this."}).status_code == 403
        assert other.anna.entry(kept)["body"] == "Before."
        file.write_text('{"private_mode": fal', encoding="utf-8")  # half written: what was in force stays
        assert other.anna.ask("POST", "/entries", {"content": "Nothing of this either."}).status_code == 403
        file.write_text('{"private_mode": false}', encoding="utf-8")
        assert other.anna.keep("All of this.")


def test_what_does_not_suit_is_refused_and_nothing_is_written(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "here").mkdir(parents=True)
    for name, value, said in (
        ("search.rank", "best", "'relevance', 'balanced', 'decay' or 'weighted'"),
        ("search.hot_limit", 1000, "takes a whole number from 1 up to 100, not 1000."),
        ("search.cached_queries", 9, "cannot be changed here"),
        ("http.without_token", "anyone", "cannot be changed here"),
        ("llm.command", ["sh"], "cannot be changed here"),
        ("llm.base_url", "https://elsewhere.example", "cannot be changed here"),
        ("index.url", "https://elsewhere.example", "cannot be changed here"),
        *((name, "http", "cannot be changed here") for name in ("index.mode", "index.tenant", "index.database")),
        *((name, "carl", "cannot be changed here") for name in ("user_space", "agent_space")),
        *(
            ("embedding.model", folder, "cannot name a folder here")
            for folder in ("/tmp", "./model", "~/model", "a/b/c")
        ),
        ("search.rerank_model", str(tmp_path), "cannot name a folder here"),
        ("search.rerank_model", "models/here", "cannot name a folder here"),
        ("search.nothing", 1, "there is no setting"),
    ):
        refused = desk.owner.ask("PUT", f"/settings/{name}", {"value": value})
        assert refused.status_code == 400
        assert said in refused.json()["error"]
        assert refused.json()["hint"]
    half = desk.client.put(
        "/api/memory/settings/llm.model",
        content=rb'{"value": "m\ud800"}',
        headers={**desk.owner.headers, "content-type": "application/json"},
    )
    assert (half.status_code, "half a character" in half.text) == (400, True)
    assert not (tmp_path / "home" / "config.json").exists()


def test_what_is_kept_until_the_next_start_is_said_and_changes_nothing_now(desk: Desk) -> None:
    assert desk.owner.facts("PUT", "/settings/llm.model", {"value": "acme/fast"})["setting"]["at_start"] is True
    assert (
        desk.owner.facts("PUT", "/settings/embedding.model", {"value": "acme/near-3.1"})["setting"]["origin"] == "file"
    )
    assert desk.owner.facts("GET", "/about")["model"]["llm_model"] == ""


def test_a_token_is_issued_shown_once_used_and_revoked(desk: Desk) -> None:
    asked = {"label": "laptop", "read_only": True, "expires_days": 2}
    answer = desk.owner.facts("POST", "/tokens", asked)
    assert (answer["issued"]["read_only"], answer["issued"]["live"]) == (True, True)
    listed = desk.owner.ask("GET", "/tokens").text
    assert answer["token"] not in listed
    assert {row["label"] for row in json.loads(listed)["tokens"]} == {"anna", "bob", "reader", "laptop"}
    header = {"authorization": f"Bearer {answer['token']}"}
    assert desk.client.get("/api/memory/about", headers=header).status_code == 200
    desk.owner.facts("DELETE", f"/tokens/{answer['issued']['id']}")
    assert desk.client.get("/api/memory/about", headers=header).status_code == 401


def test_a_token_is_issued_with_shared_spaces(desk: Desk) -> None:
    asked = {"label": "carla", "user_space": "carla", "shared": ["team", "handbook:read"]}
    answer = desk.owner.facts("POST", "/tokens", asked)
    assert answer["issued"]["shared"] == [{"name": "team"}, {"name": "handbook", "read_only": True}]
    header = {"authorization": f"Bearer {answer['token']}"}
    about = desk.client.get("/api/memory/about", headers=header).json()
    assert [(each["space"], each["writable"]) for each in about["spaces"][1:]] == [("team", True), ("handbook", False)]
    refused = desk.owner.ask("POST", "/tokens", {"label": "dora", "shared": ["no/space"]})
    assert (refused.status_code, "cannot be a shared space" in refused.json()["error"]) == (400, True)


def test_where_anyone_comes_in_without_a_token_nobody_is_the_owner(tmp_path: Path) -> None:
    config = words_only(tmp_path)
    store = ServedStore(lambda: open_memory(config), settings=lambda: SettingsFile(environment={}))
    with ledger_of(tmp_path) as ledger, client_of(store, ledger.tokens, HttpConfig(without_token="anyone")) as client:
        assert client.get("/api/memory/about").status_code == 200
        assert client.get("/api/memory/settings").status_code == 403
