"""MCP Apps as clients of both eras see them: named to those that show them, invisible to all others."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from mcp.client.extension import advertise

from server.protocol.views import VIEWS, document
from tests.server.conftest import ERAS, Caller, Connect, Era, HttpServer

UI = "io.modelcontextprotocol/ui"
MIME = "text/html;profile=mcp-app"
SHOWS = [advertise(UI, {"mimeTypes": [MIME]})]
SEARCH, MEMORY = "ui://runebook/search", "ui://runebook/memory"


def lists(caller: Caller) -> dict[str, Any]:
    """Everything that a client lists."""

    async def asked() -> dict[str, Any]:
        client = caller.client
        answers = {
            "tools": await client.list_tools(),
            "resources": await client.list_resources(),
            "templates": await client.list_resource_templates(),
            "prompts": await client.list_prompts(),
        }
        return {name: answer.model_dump(by_alias=True, exclude_none=True) for name, answer in answers.items()}

    return caller.portal.call(asked)


def views_of(listed: dict[str, Any]) -> dict[str, str]:
    return {tool["name"]: tool["_meta"]["ui"]["resourceUri"] for tool in listed["tools"]["tools"] if "_meta" in tool}


@ERAS
def test_a_host_of_apps_is_told_of_the_views_and_everybody_else_sees_what_was_there_before(
    connect: Connect, tmp_path: Path, era: Era
) -> None:
    with connect(tmp_path / "home", era, extensions=SHOWS) as shows, connect(tmp_path / "home", era) as plain:
        told, untold = lists(shows), lists(plain)
        assert views_of(told) == {"find": SEARCH, "read": MEMORY}
        assert [entry["uri"] for entry in told["resources"]["resources"]] == [SEARCH, MEMORY]
        assert untold["resources"]["resources"] == []
        assert "ui" not in json.dumps([tool.get("_meta") for tool in untold["tools"]["tools"]])
        for tool in told["tools"]["tools"]:
            meta = tool.pop("_meta", None)
            assert meta is None or meta["ui/resourceUri"] == meta["ui"]["resourceUri"]  # hosts from before the standard
        assert told["tools"] == untold["tools"]
        made = shows.facts("commit_memory", memory_content="绿茶 green tea", memory_type="notes")["results"][0]["uri"]
        one, other = (caller.call("read", uri=made).model_dump() for caller in (shows, plain))
        assert one == other


def test_modern_hosts_learn_that_the_server_has_apps(connect: Connect, tmp_path: Path) -> None:
    for declared, advertised in ((SHOWS, {UI: {}}), (None, None)):
        with connect(tmp_path / "home", extensions=declared) as caller:
            capabilities = caller.client.server_capabilities
            assert capabilities is not None
            assert capabilities.extensions == advertised


@pytest.mark.parametrize("declared", [{}, {"mimeTypes": ["text/html"]}])
def test_a_host_of_another_kind_of_view_is_told_of_none(
    connect: Connect, tmp_path: Path, declared: dict[str, Any]
) -> None:
    with connect(tmp_path / "home", "legacy", extensions=[advertise(UI, declared)]) as caller:
        assert views_of(lists(caller)) == {}


def test_hosts_over_http_are_told_apart_on_one_server(connect: Connect, http_server: HttpServer) -> None:
    address = f"{http_server.origin}/mcp"
    with connect(address, extensions=SHOWS) as shows, connect(address) as plain:
        for _ in range(2):  # neither spoils the other's list
            assert set(views_of(lists(shows))) == {"find", "read"}
            assert views_of(lists(plain)) == {}


@ERAS
def test_a_view_is_read_with_its_type_and_what_it_may_reach(connect: Connect, tmp_path: Path, era: Era) -> None:
    with connect(tmp_path / "home", era, extensions=SHOWS) as caller:
        for view in VIEWS:
            content = caller.resource(view.uri)
            assert content.mime_type == MIME
            assert content.text == document(view.name)
            assert (content.meta or {})["ui"] == {
                "csp": {"connectDomains": [], "resourceDomains": []},
                "prefersBorder": True,
            }


@pytest.mark.parametrize("name", [view.name for view in VIEWS])
def test_a_document_runs_its_own_script_and_nothing_else(name: str) -> None:
    html = document(name)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; ")
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert (len(scripts), f"script-src 'sha256-{digest}'" in policy[1]) == (1, True)
    assert not re.search(r"<(?:link|img|iframe|object|base)\b|@import|url\(|\bsrc=", html)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", html)


def test_both_languages_say_everything() -> None:
    folder = files("server") / "page" / "views"
    texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    assert set(texts["en"]) == set(texts["zh"])
    assert not [key for key, said in texts["zh"].items() if re.search(r"[A-Za-z]{3}", re.sub(r"\{\w+\}", "", said))]
    used: set[str] = set()
    for entry in folder.iterdir():
        if entry.name.endswith(".js"):
            used |= set(re.findall(r'\bt\("([\w.]+)"', entry.read_text(encoding="utf-8")))
    assert len(used) > 10
    assert used <= set(texts["en"])
