"""Who comes in over HTTP: tokens, names, sessions, and what a refusal says."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from memory_core.core.memory.uri import ABSTRACT_NAME, OVERVIEW_NAME
from server.http import authentication
from server.http.rate_limits import OpenRequests, RequestRates
from tests.fork_server import starter
from tests.server.bearers import ASK, OPENING, PATIENCE_SECONDS, issue, ledger_of, revoke, send
from tests.server.conftest import HTTP_ROUTES, Connect, Era, HttpServer, StartHttp
from tests.stores import files_below
from tests.waiting import soon

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

ROUTES = pytest.mark.parametrize(("path", "era"), HTTP_ROUTES)

PAGE = "https://chat.example.com"


class House:
    """A server with tokens: anna's, bob's, and one of anna's that only reads."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.anna = issue(home, "anna")
        self.bob = issue(home, "bob")
        self.reader = issue(home, "reader", user_space="anna", agent_space="anna", read_only=True)
        self.server = HttpServer(home, home.with_name("stderr"), "--set", f"http.allowed_origins={PAGE}")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("house") / "home")
    with made.server:
        yield made


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A house in which nobody but the reader ever reads."""
    made = House(tmp_path_factory.mktemp("library") / "home")
    with made.server:
        yield made


PATHS = ("/mcp", "/sse", "/messages/", "/metrics", "/api/memory/about", "/nothing")


@pytest.mark.parametrize(
    "path",
    [
        *(*PATHS, "/messages/?session_id=x", "/%2e%2e/", "/api/openapi.json"),
        *("/api/memory/entries/x", "/api/x/../memory/about"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
def test_without_a_token_every_path_says_the_same(house: House, method: str, path: str) -> None:
    reply = send(house.server, method, path, OPENING if method == "POST" else None)
    assert reply.status == 401
    assert reply.headers["www-authenticate"] == "Bearer"
    assert reply.body == b"A token is needed."
    assert "no-store" in reply.headers["cache-control"]
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["server"] is None


def test_wrong_tokens_get_the_same_answer_whatever_is_wrong(house: House) -> None:
    issue(house.home, "gone")
    expired = issue(house.home, "late", expires_days=1e-9)
    revoked = issue(house.home, "revoked")
    revoke(house.home, "revoked")
    wrong = [
        "",
        "x",
        "令牌",
        house.anna[:-1],
        house.anna.upper(),
        f"{house.anna} {house.bob}",
        f"rb_000000000000_{house.anna[16:]}",
        f"{house.anna[:16]}{house.bob[16:]}",
        expired,
        revoked,
        "x" * 20_000,
    ]
    answers = [send(house.server, "POST", "/mcp", OPENING, authorization=f"Bearer {text}".encode()) for text in wrong]  # type: ignore[arg-type]
    answers.append(send(house.server, "POST", "/mcp", OPENING, authorization=f"Basic {house.anna}"))
    answers.append(send(house.server, "POST", f"/mcp?token={house.anna}&access_token={house.anna}", OPENING))
    facts = {
        (answer.status, answer.body, tuple(sorted(name for name in answer.headers if name != "date")))
        for answer in answers
    }
    assert len(facts) == 1
    assert answers[0].status == 401


def test_two_authorization_headers_are_refused(house: House) -> None:
    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{house.server.port}\r\nContent-Length: 0\r\n"
    both = f"Authorization: Bearer {house.bob}\r\nAuthorization: Bearer {house.anna}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", house.server.port), PATIENCE_SECONDS) as connection:
        connection.sendall((head + both).encode())
        assert b" 401 " in connection.recv(4096).splitlines()[0]


@ROUTES
def test_each_token_sees_its_own_on_every_transport(connect: Connect, house: House, path: str, era: Era) -> None:
    address = f"{house.server.origin}/{path}"
    with connect(address, era, token=house.anna) as anna, connect(address, era, token=house.bob) as bob:
        uri = anna.facts("commit_memory", memory_content=f"Anna's cello 大提琴 {path} {era}")["results"][0]["uri"]
        assert uri.startswith("viking://user/anna/")
        assert anna.facts("find", query=f"cello 大提琴 {path} {era}")["total"] >= 1
        assert bob.facts("find", query="cello 大提琴")["total"] == 0
        assert bob.call("read", uri=uri).is_error


@ROUTES
def test_token_that_only_reads_writes_nothing_and_leaves_no_trace(
    connect: Connect, library: House, path: str, era: Era
) -> None:
    address = f"{library.server.origin}/{path}"
    with connect(address, era, token=library.anna) as anna:
        said = f"The boat 小船 lies at pier {path} {era}."
        uri = anna.facts("commit_memory", memory_content=said)["results"][0]["uri"]
        anna.facts("commit_memory", messages=[{"role": "user", "content": f"Moored 停泊 {path} {era}"}], session_id=era)
    before = state_of(library.home)
    with connect(address, era, token=library.reader) as reader:
        portal: Any = reader.portal
        assert "commit_memory" in [tool.name for tool in portal.call(reader.client.list_tools).tools]
        assert reader.facts("read", uri=uri)["content"].startswith(said)
        assert uri in [hit["uri"] for hit in reader.facts("find", query="boat 小船 pier", limit=50)["memories"]]
        assert reader.facts("retrieve", query="boat 小船", session_id="s")["parts"]
        portal.call(reader.client.get_prompt, "extract_memories", {})
        portal.call(reader.client.get_prompt, "extract_memories", {"session_id": era})
        for asked in (
            {"memory_content": "x"},
            {"memory_content": "x", "dry_run": True},
            {"messages": [{"role": "user", "content": "x"}]},
            {"operations": {"delete_operations": [{"uri": uri}]}},
        ):
            assert "may only read" in reader.text("commit_memory", **asked)
    assert state_of(library.home) == before


def state_of(home: Path) -> dict[str, Any]:
    """Every file but the views, and every row of the ledger but those that the server moves by itself."""
    kept = ((path, text) for path, text in files_below(home) if ".state" not in path.parts)
    files = {path: text for path, text in kept if path.name not in (ABSTRACT_NAME, OVERVIEW_NAME)}
    with ledger_of(home) as ledger:
        connection = ledger._database.connection()
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        names = sorted(name for (name,) in found if name not in ("tokens", "files", "commits"))
        rows = {name: sorted(map(repr, connection.execute(f"SELECT * FROM {name}"))) for name in names}
        # When a client that may write called last is noted in the background.
        rows["meta"] = [row for row in rows["meta"] if not row.startswith("('client anna")]
        # So is that the server opened the store by its settings.
        rows["seen_users"] = [row for row in rows["seen_users"] if not row.startswith("('default', 'default', 1")]
        rows["commits"] = sorted(map(repr, connection.execute("SELECT seq, commit_id FROM commits")))
    return {"on disk": files, **rows}


def test_session_of_one_token_is_none_to_another(house: House) -> None:
    opened = send(house.server, "POST", "/mcp", OPENING, house.anna)
    session = opened.headers["mcp-session-id"]
    foreign = [
        send(house.server, "POST", "/mcp", ASK, token, mcp_session_id=session) for token in (house.bob, house.reader)
    ]
    absent = send(house.server, "POST", "/mcp", ASK, house.bob, mcp_session_id="0" * 32)
    assert {(reply.status, reply.body) for reply in foreign} == {(absent.status, absent.body)}
    assert absent.status == 404
    assert send(house.server, "GET", "/mcp", None, house.bob, mcp_session_id=session).status == 404
    assert send(house.server, "DELETE", "/mcp", None, house.bob, mcp_session_id=session).status == 404
    assert send(house.server, "POST", "/mcp", ASK, house.anna, mcp_session_id=session).status == 200
    assert send(house.server, "POST", "/mcp", ASK, None, mcp_session_id=session).status == 401


def test_stream_of_one_token_takes_no_messages_of_another(house: House) -> None:
    with socket.create_connection(("127.0.0.1", house.server.port), PATIENCE_SECONDS) as stream:
        head = f"GET /sse HTTP/1.1\r\nHost: 127.0.0.1:{house.server.port}\r\n"
        stream.sendall(f"{head}Authorization: Bearer {house.anna}\r\n\r\n".encode())
        said = b""
        while b"session_id=" not in said:
            said += stream.recv(4096)
        found = re.search(rb"(/messages/\?session_id=[0-9a-f]{32})", said)
        assert found is not None
        path = found[1].decode()
        foreign = send(house.server, "POST", path, OPENING, house.bob)
        absent = send(house.server, "POST", f"/messages/?session_id={'0' * 32}", OPENING, house.bob)
        assert (foreign.status, foreign.body) == (absent.status, absent.body) == (404, b"Could not find session")
        assert send(house.server, "POST", path, OPENING, house.anna).status == 202
        assert send(house.server, "POST", path, OPENING).status == 401


def test_revocation_counts_from_the_next_request_on(house: House) -> None:
    token = issue(house.home, "guest")
    opened = send(house.server, "POST", "/mcp", OPENING, token)
    session = opened.headers["mcp-session-id"]
    assert send(house.server, "POST", "/mcp", ASK, token, mcp_session_id=session).status == 200
    revoke(house.home, "guest")
    assert send(house.server, "POST", "/mcp", ASK, token, mcp_session_id=session).status == 401
    assert send(house.server, "POST", "/mcp", OPENING, token).status == 401


@pytest.mark.parametrize("opened_with_a_token", [True, False])
def test_stream_ends_once_that_by_which_it_was_opened_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened_with_a_token: bool
) -> None:
    monkeypatch.setattr(authentication, "_STREAM_SECONDS", 0.0)
    token = issue(tmp_path, "guest") if opened_with_a_token else ""
    sent: list[bytes] = []

    async def events(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"before", "more_body": True})
        if token:
            revoke(tmp_path, "guest")
        else:
            issue(tmp_path, "first")
        await send({"type": "http.response.body", "body": b"after", "more_body": True})

    async def nothing() -> Message:
        return {"type": "http.disconnect"}

    async def collect(message: Message) -> None:
        if message["type"] == "http.response.body":
            sent.append(message["body"] + (b"+" if message.get("more_body") else b"."))

    with ledger_of(tmp_path) as ledger:
        door = authentication.TokenCheck(
            *(events, ledger.tokens),
            required=bool(token),
            rates=RequestRates(0),
            open_requests=OpenRequests(1),
            open_to_all=True,
        )
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        scope: Scope = {"type": "http", "headers": headers}
        anyio.run(door, scope, nothing, collect)
        door.close()
    assert sent == [b"before+", b"."]


FOREIGN_HOSTS = (
    "evil.example", "127.0.0.1.evil.example:80", "127.0.0.1:evil", "127.0.0.1:1.evil.example",
    "localhost:80@evil.example", "127.0.0.1:",
)  # fmt: skip
FOREIGN_ORIGINS = (
    "https://evil.example", "http://localhost:1.evil.com", "http://127.0.0.1:80.evil.com", "http://localhost:@evil.com",
    "null", f"{PAGE}.evil.example",
)  # fmt: skip


@pytest.mark.parametrize("tokens", [True, False])
def test_foreign_hosts_and_origins_are_refused_on_every_path(
    house: House, http_server: HttpServer, tokens: bool
) -> None:
    server, token = (house.server, house.anna) if tokens else (http_server, None)
    for path in PATHS:
        for host in FOREIGN_HOSTS:
            assert send(server, "GET", path, None, token, host=host).status == 421
        for origin in FOREIGN_ORIGINS:
            assert send(server, "GET", path, None, token, origin=origin).status == 403


def test_only_named_origins_get_cors(house: House) -> None:
    asked = {
        "access_control_request_method": "POST",
        "access_control_request_headers": "authorization, content-type, mcp-session-id",
    }
    allowed = send(house.server, "OPTIONS", "/mcp", None, None, origin=PAGE, **asked)
    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (204, PAGE)
    assert "authorization" in allowed.headers["access-control-allow-headers"]
    answer = send(house.server, "POST", "/mcp", OPENING, house.anna, origin=PAGE)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "mcp-session-id" in answer.headers["access-control-expose-headers"]
    assert send(house.server, "POST", "/mcp", OPENING, None, origin=PAGE).status == 401
    local = send(house.server, "POST", "/mcp", OPENING, house.anna, origin="http://localhost:3000")
    assert (local.status, local.headers["access-control-allow-origin"]) == (200, None)
    assert send(house.server, "OPTIONS", "/mcp", None, None, origin="https://evil.example", **asked).status == 403


def test_nothing_that_a_client_sent_is_in_the_log(house: House) -> None:
    secret = "qa7zx81"
    for body in (b"{", b'{"jsonrpc": "2.0", "id": 1, "method": "%s"}' % secret.encode(), b"\xff" + secret.encode()):
        for path in ("/mcp", f"/messages/?session_id={secret}", f"/{secret}?{secret}"):
            send(house.server, "POST", path, body, house.anna)
            send(house.server, "POST", path, body, secret)
    send(house.server, "GET", f"/{secret}", None, house.anna, host=secret)
    send(house.server, "GET", f"/{secret}", None, house.anna, origin=secret)
    said = house.server.errors.read_text(encoding="utf-8")
    assert secret not in said
    assert house.anna not in said
    assert "Traceback" not in said


def test_use_of_a_token_is_noted(house: House) -> None:
    token = issue(house.home, "noted")
    send(house.server, "POST", "/mcp", OPENING, token)
    with ledger_of(house.home) as ledger:
        assert soon(lambda: (row := ledger.tokens.verify(token)) is not None and row.last_used_at is not None)


# One owner, and the door that closes


def test_without_tokens_loopback_serves_its_owner_until_the_first_token(tmp_path: Path, start_http: StartHttp) -> None:
    server = start_http()
    session = send(server, "POST", "/mcp", OPENING).headers["mcp-session-id"]
    assert send(server, "POST", "/mcp", ASK, None, mcp_session_id=session).status == 200
    token = issue(tmp_path / "home", "first")
    assert send(server, "POST", "/mcp", ASK, None, mcp_session_id=session).status == 401
    # The session is the owner's, not the token's.
    assert send(server, "POST", "/mcp", ASK, token, mcp_session_id=session).status == 404
    assert send(server, "POST", "/mcp", OPENING, token).status == 200
    revoke(tmp_path / "home", "first")
    assert send(server, "POST", "/mcp", OPENING).status == 401, "revoking the last token opened the door"


def test_setting_asks_for_a_token_before_there_is_one(tmp_path: Path, start_http: StartHttp) -> None:
    server = start_http("--set", "http.require_token=true")
    assert send(server, "POST", "/mcp", OPENING).status == 401
    assert send(server, "POST", "/mcp", OPENING, issue(tmp_path / "home", "first")).status == 200


def refusal(home: Path, *options: str) -> str:
    """What ``serve`` says when it does not start."""
    done = starter().call("serve", "--transport", "http", "--port", "0", "--home", str(home), *options)
    said = done.stderr.decode("utf-8")
    assert done.returncode == 1, said
    return said


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "memory.example.com"])
def test_beyond_loopback_a_token_and_a_name_are_needed(tmp_path: Path, host: str) -> None:
    said = refusal(tmp_path, "--host", host)
    assert "runebook token add" in said
    assert "--allowed-host" in said
    assert "TLS" in said
    token = issue(tmp_path, "first")
    assert token
    said = refusal(tmp_path, "--host", host)
    assert "runebook token add" not in said
    assert "--allowed-host" in said
    revoke(tmp_path, "first")
    said = refusal(tmp_path, "--host", host, "--allowed-host", "memory.example.com")
    assert "runebook token add" in said
    assert "--allowed-host" not in said


def test_beyond_loopback_an_issuer_needs_the_public_address(tmp_path: Path) -> None:
    named = ("--host", "0.0.0.0", "--allowed-host", "memory.example.com")
    said = refusal(tmp_path, *named, "--set", "http.oauth.issuer=https://login.example.com")
    assert "would let other machines read" in said
    assert "http.oauth.url" in said
    assert "issue a token" not in said


def run(home: Path, *options: str) -> str:
    done = starter().call("token", *options, "--home", str(home))
    said, errors = (stream.decode("utf-8") for stream in (done.stdout, done.stderr))
    return said if done.returncode == 0 else f"{done.returncode} {errors}"


def test_tokens_are_managed_from_the_command_line(tmp_path: Path) -> None:
    said = run(tmp_path, "add", "laptop", "--user-space", "anna", "--read-only", "--expires", "30")
    token = said.splitlines()[0]
    with ledger_of(tmp_path) as ledger:
        row = ledger.tokens.verify(token)
    assert row is not None
    assert (row.user_space, row.agent_space, row.read_only, row.expires_at is not None) == ("anna", "anna", True, True)
    listed = run(tmp_path, "list")
    assert "laptop" in listed
    assert "read-only" in listed
    assert token not in listed
    assert "exists" in run(tmp_path, "add", "laptop")
    assert "Revoked laptop" in run(tmp_path, "revoke", "laptop")
    assert "No tokens" in run(tmp_path, "list")
    assert "revoked" in run(tmp_path, "list", "--revoked")
    assert run(tmp_path, "revoke", "laptop").startswith("1 ")
    assert run(tmp_path, "add").startswith("1 ")


def test_round_of_one_tokens_sampling_is_not_answered_by_another(tmp_path: Path, start_http: StartHttp) -> None:
    """Since 2026-07-28 a call waits between two requests, which nothing but its sealed state ties together."""
    anna, bob = (issue(tmp_path / "home", name) for name in ("anna", "bob"))
    server = start_http("--set", "llm.provider=sampling")
    arguments = {"messages": [{"role": "user", "content": "My quokka 短尾矮袋鼠 is called Bo."}], "session_id": "s"}
    about = "io.modelcontextprotocol"
    meta = {f"{about}/protocolVersion": "2026-07-28", f"{about}/clientCapabilities": {"sampling": {}}}
    params = {"name": "commit_memory", "arguments": arguments, "_meta": meta}

    def call(token: str, **more: Any) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params | more}
        fields = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "commit_memory"}
        return send(server, "POST", "/mcp", body, token, **fields).message()

    asked = call(anna)["result"]
    assert "quokka" in str(asked["inputRequests"])
    answer = {"role": "assistant", "content": {"type": "text", "text": "{}"}, "model": "m"}
    answers = dict.fromkeys(asked["inputRequests"], answer)
    stolen = call(bob, requestState=asked["requestState"], inputResponses=answers)
    assert stolen["error"]["message"] == "Invalid or expired requestState"
    assert "quokka" not in str(stolen)
    assert "result" in call(anna, requestState=asked["requestState"], inputResponses=answers)


@pytest.mark.parametrize(
    ("host", "called"),
    [("127.0.0.2", "127.0.0.2:8000"), ("127.0.0.2", "localhost:8000"), ("0:0:0:0:0:0:0:1", "[0:0:0:0:0:0:0:1]:8000")],
)
def test_every_address_of_loopback_is_a_name_of_its_server(host: str, called: str) -> None:
    async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
        await authentication.respond(send, 200, "here")

    app = authentication.OriginCheck(answer, authentication.transport_security(host, (), ()), ())
    client = TestClient(app)
    assert client.get("/", headers={"host": called, "origin": f"http://{called}"}).status_code == 200
    assert client.get("/", headers={"host": "evil.example.com"}).status_code == 421
    elsewhere = authentication.OriginCheck(answer, authentication.transport_security("192.0.2.1", (), ()), ())
    assert TestClient(elsewhere).get("/", headers={"host": "192.0.2.1"}).status_code == 421


def test_an_address_of_another_machine_is_told_apart_from_a_port_that_is_taken(tmp_path: Path) -> None:
    issue(tmp_path, "first")
    said = refusal(tmp_path, "--host", "192.0.2.1", "--allowed-host", "memory.example.com")
    assert "Name an address of this machine with --host." in said
