"""Clients that are named by an address: what is fetched, from where, and what of it counts."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from server.http.client_documents import ClientDocuments, is_document_url, is_public
from tests.server.http.test_authorization_server import BACK, house_at, query
from tests.waiting import PATIENCE_SECONDS, in_a_loop

HOST = "client.example"


class Site:
    """A site of a client on a loopback port, with TLS for ``client.example``."""

    def __init__(self, port: int) -> None:
        self.url = f"https://{HOST}:{port}/oauth/client.json"
        self.asked: list[tuple[str, str | None]] = []
        self.status, self.headers = 200, {"content-type": "application/json"}
        self.document: Any = {
            "client_id": self.url,
            "client_name": "Desk 桌子",
            "redirect_uris": [BACK],
            "token_endpoint_auth_method": "none",
        }

    def body(self) -> bytes:
        return self.document if isinstance(self.document, bytes) else json.dumps(self.document).encode()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for the site, with its key, that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "site.pem"
    kept = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(kept + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def site(certificate: Path) -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append((self.path, self.headers["host"]))
            self.send_response(found.status)
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(found.body())))
            self.end_headers()
            self.wfile.write(found.body())

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # who does not trust the certificate leaves

    with Server(("127.0.0.1", 0), Handler) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        found = Site(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What names stand for, instead of what the network says."""
    known = {HOST: ["127.0.0.1"], "other.example": ["127.0.0.1"], "mixed.example": ["93.184.215.14", "10.0.0.1"]}

    async def getaddrinfo(_loop: Any, host: str, port: int, **_: Any) -> Any:
        if host not in known:
            raise OSError("no such name")
        return [(2, 1, 6, "", (address, port)) for address in known[host]]

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return known


def trusting(certificate: Path, **more: Any) -> ClientDocuments:
    tls = ssl.create_default_context(cafile=str(certificate))
    return ClientDocuments(**{"may_ask": lambda _address: True, "tls": tls, **more})


def got(documents: ClientDocuments, *addresses: str) -> list[Any]:
    async def run() -> list[Any]:
        return [await documents.get(address) for address in addresses]

    return anyio.run(run)


@in_a_loop
async def test_a_document_is_read_once_in_a_while(site: Site, certificate: Path) -> None:
    now = [0.0]
    documents = trusting(certificate, clock=lambda: now[0])
    for _ in range(3):
        assert await documents.get(site.url) == site.document
    assert site.asked == [("/oauth/client.json", site.url.split("/")[2])]
    now[0] += 4_000
    site.status = 404
    assert await documents.get(site.url) is None
    assert await documents.get(site.url) is None
    assert len(site.asked) == 2


@in_a_loop
async def test_a_site_that_hangs_keeps_no_other_waiting(
    site: Site, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = trusting(certificate, turn_seconds=0.05)
    asked, answers, hanging = documents._document_at, asyncio.Event(), []

    async def slowly(client_id: str) -> Any:
        if "slow.example" in client_id:
            hanging.append(client_id)
            await answers.wait()
        return await asked(client_id)

    monkeypatch.setattr(documents, "_document_at", slowly)
    names = [f"https://{name}.slow.example/{number}" for name in "abcdefgh" for number in range(4)]
    begun = [asyncio.create_task(documents.get(name)) for name in (*names, names[0])]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not hanging:
            await asyncio.sleep(0)
        assert await documents.get(site.url) == site.document
        await asyncio.wait(begun[1:])  # they had no turn in time
        assert len(hanging) == 1
        answers.set()
        assert await asyncio.gather(*begun) == [None] * len(begun)
        assert len(site.asked) == 1


@in_a_loop
async def test_of_many_who_ask_for_a_document_at_once_one_fetches_it(site: Site, certificate: Path) -> None:
    documents = trusting(certificate, turn_seconds=PATIENCE_SECONDS)
    found = await asyncio.gather(*(documents.get(site.url) for _ in range(8)))
    assert found == [site.document] * 8
    assert len(site.asked) == 1


def test_only_public_addresses_are_asked(site: Site, certificate: Path, names: dict[str, list[str]]) -> None:
    assert got(trusting(certificate, may_ask=is_public), site.url) == [None]
    names[HOST] = ["127.0.0.1", "93.184.215.14"]
    assert got(trusting(certificate, may_ask=is_public), site.url) == [None]
    assert got(trusting(certificate, may_ask=is_public), "https://mixed.example/c") == [None]
    assert got(trusting(certificate, may_ask=is_public), "https://unknown.example/c") == [None]
    assert site.asked == []


@pytest.mark.parametrize(
    ("address", "public"),
    [
        *((each, True) for each in ("93.184.215.14", "1.1.1.1", "2606:4700:4700::1111", "2a00::1")),
        *((each, False) for each in ("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254")),
        *((each, False) for each in ("100.64.0.1", "0.0.0.0", "224.0.0.1", "240.0.0.1", "255.255.255.255")),
        *((each, False) for each in ("::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:1.1.1.1")),
        *((each, False) for each in ("fec0::1", "3fff::1", "::7f00:1", "192.88.99.1", "168.63.129.16", "4000::1")),
        *((each, False) for each in ("192.0.0.9", "192.0.0.170", "192.0.0.192")),
        *((each, False) for each in ("64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::", "192.0.2.1", "198.18.0.1")),
    ],
)
def test_addresses_of_the_internet_and_all_others(address: str, public: bool) -> None:
    assert is_public(ipaddress.ip_address(address)) is public


@pytest.mark.parametrize(
    "wrong",
    [
        *("http://client.example/c", "https://client.example", "https://client.example/", "https://127.0.0.1/c"),
        *("https://[::1]/c", "https://localhost/c", "https://user@client.example/c", "https://client.example/c#x"),
        *("https://client.example/a/../c", "https://client.example/./c", "https://client.example\\@evil.example/c"),
        *("https://2130706433/c", "https://0x7f.1/c", "https://client.example:x/c", "https://client.example/ c", ""),
        *("https://客户.example/c", f"https://client.example/{'c' * 600}", "HTTPS://client.example/c", "https:///c"),
    ],
)
def test_what_names_no_document_is_not_asked_for(wrong: str) -> None:
    assert is_document_url("https://client.example:8443/c?d=e")
    assert not is_document_url(wrong)


def test_what_is_no_document_of_the_client_does_not_count(site: Site, certificate: Path) -> None:
    good = site.document

    def refused() -> bool:
        return got(trusting(certificate), site.url) == [None]

    assert not refused()
    for document in (
        {**good, "client_id": f"{site.url}x"},
        {},
        [good],
        b"{",
        b"[" * 60_000,
        {**good, "x": "x" * 70_000},
    ):
        site.document = document
        assert refused()
    site.document = good
    for headers in ({"content-type": "text/html"}, {}):
        site.headers = headers
        assert refused()
    site.headers = {"content-type": "application/json", "location": site.url}
    site.status = 302
    assert refused()
    site.status, asked = 200, len(site.asked)
    assert not refused()
    assert len(site.asked) == asked + 1
    assert got(ClientDocuments(may_ask=lambda _address: True), site.url) == [None]  # a certificate that nobody knows
    other = site.url.replace(HOST, "other.example")
    site.document = {**good, "client_id": other}
    assert got(trusting(certificate), other) == [None]  # a certificate of another name


def test_a_client_logs_in_by_the_address_of_its_document(tmp_path: Path, site: Site, certificate: Path) -> None:
    with house_at(tmp_path / "home") as house:
        house.way_in.server.documents = trusting(certificate)
        page = house.page(site.url)
        assert "Desk 桌子" in page.text
        assert site.url in page.text
        assert house.authorize(site.url, redirect_uri="https://evil.example/").status_code == 400
        code = query(house.answer(page, house.anna))["code"]
        given = house.exchange(site.url, code).json()
        assert house.opens(given["access_token"])
        house.way_in.server.documents = trusting(certificate)
        site.status, asked = 500, len(site.asked)  # the site is away: who is in stays in
        renewed = house.refresh(site.url, given["refresh_token"]).json()
        assert house.opens(renewed["access_token"])
        unknown = house.refresh(site.url.replace("client.json", "other.json"), renewed["refresh_token"])
        assert unknown.json()["error"] == "invalid_client"
        assert len(site.asked) == asked  # tokens wait for no document
        assert house.authorize("https://client.example/other.json").status_code == 400


def test_a_document_of_a_client_with_secrets_or_unsafe_addresses_is_refused(
    tmp_path: Path, site: Site, certificate: Path
) -> None:
    good = site.document
    with house_at(tmp_path / "home") as house:
        for wrong in (
            {**good, "token_endpoint_auth_method": "private_key_jwt"},
            {**good, "client_secret": "x"},
            {**good, "redirect_uris": ["http://app.example/"]},
            {**good, "redirect_uris": "x"},
            {**good, "redirect_uris": []},
        ):
            site.document = wrong
            house.way_in.server.documents = trusting(certificate)
            assert house.authorize(site.url).status_code == 400
        site.document = {**good, "client_name": "Half a character \ud83d"}
        house.way_in.server.documents = trusting(certificate)
        assert house.answer(house.page(site.url), house.anna).status_code == 303
