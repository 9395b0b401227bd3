"""Without tokens the server answers its own user: whose a connection is, the system says."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.http.local_peer import Address, can_tell_users, is_own
from tests.server.bearers import HEADERS, OPENING
from tests.server.conftest import StartHttp
from tests.server.http.test_http_limits import head
from tests.waiting import PATIENCE_SECONDS, soon

pytestmark = pytest.mark.skipif(not can_tell_users(), reason="this system does not tell whose a connection is")

NOBODY = 65_534
#: Posts as another user, who may not import anything any more, and prints the status.
AS_ANOTHER = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
connection = socket.socket()
connection.connect(("127.0.0.1", int(sys.argv[2])))
connection.sendall(sys.argv[3].encode())
print(connection.recv(4096).split()[1].decode())
"""


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection: the caller's and the server's."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        listener = socket.create_server((request.param, 0), family=family)
    except OSError:
        pytest.skip("no such addresses here")
    with listener, socket.create_connection(listener.getsockname()[:2]) as caller:
        accepted, _ = listener.accept()
        with accepted:
            yield caller, accepted


def ends(accepted: socket.socket) -> tuple[Address, Address]:
    return Address(*accepted.getpeername()[:2]), Address(*accepted.getsockname()[:2])


def test_a_connection_of_this_user_is_told_from_anothers(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, here = ends(pair[1])
    assert is_own(peer, here)
    assert not is_own(peer, Address(here.host, here.port % 65_535 + 1))
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    assert not is_own(peer, here)


def test_a_user_by_whose_number_strangers_are_shown_is_nobody(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    number = tmp_path / "overflowuid"
    monkeypatch.setattr("server.http.local_peer._UNKNOWN_USERS", number)
    number.write_text(f"{os.geteuid() + 1}\n")
    assert is_own(*ends(pair[1]))
    number.write_text(f"{os.geteuid()}\n")
    assert not is_own(*ends(pair[1]))
    assert not can_tell_users()


def test_a_caller_that_hung_up_is_nobody(pair: tuple[socket.socket, socket.socket]) -> None:
    caller, accepted = pair
    peer, here = ends(accepted)
    caller.close()  # the system shows such sockets as root's
    assert soon(lambda: not is_own(peer, here))


def test_a_caller_through_an_ipv6_socket_is_known_by_its_ipv4_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        try:
            caller = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
            caller.connect(("::ffff:127.0.0.1", listener.getsockname()[1]))
        except OSError:
            pytest.skip("no such addresses here")
        with caller, listener.accept()[0] as accepted:
            assert is_own(*ends(accepted))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize(("setting", "status"), [("owner", 401), ("anyone", 200)])
def test_another_user_of_the_machine_is_let_in_only_where_the_owner_says_so(
    start_http: StartHttp, setting: str, status: int
) -> None:
    server = start_http("--set", f"http.without_token={setting}")
    said = {}
    body = json.dumps(OPENING)
    fields = HEADERS | {"content-length": str(len(body))}
    lines = [f"{name}: {value}" for name, value in fields.items()]
    request = head(server, "POST /mcp HTTP/1.1", *lines).decode() + body
    for user in (os.geteuid(), NOBODY):
        call = [sys.executable, "-c", AS_ANOTHER, str(user), str(server.port), request]
        done = subprocess.run(call, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
        said[user] = int(done.stdout)
    assert said == {os.geteuid(): 200, NOBODY: status}
    assert ("EVERY USER" in server.errors.read_text(encoding="utf-8")) is (setting == "anyone")
