"""Nothing tells clients of changes, so none is promised: a client that wants to be told is refused at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp.client.subscriptions import ListenNotSupportedError
from mcp.shared.exceptions import MCPError
from mcp.types import (
    METHOD_NOT_FOUND,
    EmptyResult,
    Request,
    SubscribeRequest,
    SubscribeRequestParams,
    SubscriptionFilter,
    SubscriptionsListenRequest,
    SubscriptionsListenRequestParams,
    UnsubscribeRequest,
    UnsubscribeRequestParams,
)

from tests.server.local.conftest import SHARED, kept_clean
from tests.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.server.conftest import Caller, Connect, HttpServer

ROUTES = [(transport, era) for transport in ("stdio", "shared", "mcp", "sse") for era in ("legacy", "auto")]
NOTES = "viking://user/default/memories/notes"
WANTED = SubscriptionFilter(tools_list_changed=True, resource_subscriptions=[NOTES])
REQUESTS: list[Request[Any, Any]] = [
    SubscriptionsListenRequest(params=SubscriptionsListenRequestParams(notifications=WANTED)),
    SubscribeRequest(params=SubscribeRequestParams(uri=NOTES)),
    UnsubscribeRequest(params=UnsubscribeRequestParams(uri=NOTES)),
]


@pytest.fixture(scope="module", params=ROUTES, ids=[f"{transport} {era}" for transport, era in ROUTES])
def caller(
    request: pytest.FixtureRequest,
    connect: Connect,
    http_server: HttpServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Caller]:
    transport, era = request.param
    if transport in ("mcp", "sse"):
        with connect(f"{http_server.origin}/{transport}", era) as caller:
            yield caller
    else:
        options = SHARED if transport == "shared" else ()
        with kept_clean(tmp_path_factory.mktemp(transport) / "home") as home, connect(home, era, *options) as caller:
            yield caller


def test_no_changes_are_announced(caller: Caller) -> None:
    offered = caller.client.server_capabilities
    assert offered is not None
    assert offered.resources is not None
    assert not offered.resources.subscribe
    for lists in (offered.tools, offered.resources, offered.prompts):
        assert lists is not None
        assert not lists.list_changed


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.method)
def test_who_subscribes_is_refused_at_once(caller: Caller, request_: Request[Any, Any]) -> None:
    with pytest.raises(MCPError) as refused:
        caller.portal.call(caller.client.session.send_request, request_, EmptyResult, PATIENCE_SECONDS)
    assert refused.value.error.code == METHOD_NOT_FOUND
    assert caller.facts("ls", uri="viking://")


def test_the_clients_own_listener_is_refused_at_once(caller: Caller) -> None:
    async def listen() -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            async with caller.client.listen(tools_list_changed=True, resource_subscriptions=[NOTES]):
                pass

    modern = caller.client.protocol_version == "2026-07-28"
    with pytest.raises(MCPError if modern else ListenNotSupportedError) as refused:
        caller.portal.call(listen)
    if isinstance(refused.value, MCPError):
        assert refused.value.error.code == METHOD_NOT_FOUND
