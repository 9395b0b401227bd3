"""MCP Apps as clients of both eras see them: named to those that show them, invisible to all others."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal
from mcp import Client, StdioServerParameters
from mcp.client.extension import advertise
from mcp.server import apps
from mcp.types import TextResourceContents

from server.protocol import views
from server.protocol.views import VIEWS, document
from tests.server.conftest import WORDS_ONLY, Caller, Era, HttpServer, command, environment

UI = "io.modelcontextprotocol/ui"
MIME = "text/html;profile=mcp-app"
SHOWS = {"mimeTypes": [MIME]}
SEARCH, MEMORY = "ui://runebook/search", "ui://runebook/memory"
ERAS: tuple[Era, ...] = ("legacy", "auto")


@contextmanager
def host(portal: BlockingPortal, home: Path | str, era: Era, declared: dict[str, Any] | None) -> Iterator[Caller]:
    """A client that declares the extension with these settings, or does not."""
    extensions = None if declared is None else [advertise(UI, declared)]
    target: Any = home
    if isinstance(home, Path):
        program, *arguments = command(home, *WORDS_ONLY)
        target = StdioServerParameters(command=program, args=arguments, env=environment())
    with portal.wrap_async_context_manager(Client(target, mode=era, extensions=extensions)) as client:
        yield Caller(portal, client)


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


@pytest.mark.parametrize("era", ERAS)
def test_a_host_of_apps_is_told_of_the_views_and_everybody_else_sees_what_was_there_before(
    portal: BlockingPortal, tmp_path: Path, era: Era
) -> None:
    with host(portal, tmp_path / "home", era, SHOWS) as shows, host(portal, tmp_path / "home", era, None) as plain:
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


def test_modern_hosts_learn_that_the_server_has_apps(portal: BlockingPortal, tmp_path: Path) -> None:
    for declared, advertised in ((SHOWS, {UI: {}}), (None, None)):
        with host(portal, tmp_path / "home", "auto", declared) as caller:
            capabilities = caller.client.server_capabilities
            assert capabilities is not None
            assert capabilities.extensions == advertised


@pytest.mark.parametrize("declared", [{}, {"mimeTypes": ["text/html"]}])
def test_a_host_of_another_kind_of_view_is_told_of_none(
    portal: BlockingPortal, tmp_path: Path, declared: dict[str, Any]
) -> None:
    with host(portal, tmp_path / "home", "legacy", declared) as caller:
        assert views_of(lists(caller)) == {}


def test_hosts_over_http_are_told_apart_on_one_server(portal: BlockingPortal, http_server: HttpServer) -> None:
    address = f"{http_server.origin}/mcp"
    with host(portal, address, "auto", SHOWS) as shows, host(portal, address, "auto", None) as plain:
        for _ in range(2):  # neither spoils the other's list
            assert set(views_of(lists(shows))) == {"find", "read"}
            assert views_of(lists(plain)) == {}


@pytest.mark.parametrize("era", ERAS)
def test_a_view_is_read_with_its_type_and_what_it_may_reach(portal: BlockingPortal, tmp_path: Path, era: Era) -> None:
    with host(portal, tmp_path / "home", era, SHOWS) as caller:
        for view in VIEWS:
            (content,) = caller.portal.call(caller.client.read_resource, view.uri).contents
            assert isinstance(content, TextResourceContents)
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


def test_the_names_of_the_extension_are_the_sdks() -> None:
    assert (views.EXTENSION_ID, views.APP_MIME_TYPE) == (apps.EXTENSION_ID, apps.APP_MIME_TYPE)


def test_the_tools_that_have_views_exist(connect: Callable[..., Any], tmp_path: Path) -> None:
    with connect(tmp_path / "home", "legacy", *WORDS_ONLY) as caller:
        assert {view.tool for view in VIEWS} <= {tool["name"] for tool in lists(caller)["tools"]["tools"]}
