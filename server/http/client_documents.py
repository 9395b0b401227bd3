"""Clients that are named by the address of a document about them (OAuth Client ID Metadata Documents).

Whoever asks to log in names the address, so fetching it is asking the server to ask somebody else: it is fetched over
TLS, from public addresses alone (each that the name stands for has to be one, and the connection goes to what was
looked at), without redirects, proxy, cookies or credentials; it is small, comes in time, and is JSON. What it says
of itself must be the address that it was fetched from. Answers are kept for a while, also that there was none.

A site that answers slowly keeps nobody else waiting: it is asked for one document at a time, and whoever does not get
a turn in time is told that the client is not known now.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from memory_core.core.caches import RecentCache
from server.foreign_json import json_object

if TYPE_CHECKING:
    import ssl

_logger = logging.getLogger(__name__)
_SECONDS = 5.0
_BYTES = 65_536
_AT_ONCE = 16
#: What of a name is counted as one site: whoever has a domain has all names below it.
_SITE_LABELS = 2
_KEPT = 256
_KEPT_SECONDS = 3_600.0
_REFUSED_SECONDS = 60.0
_URL_CHARS = 512
_HOST = re.compile(r"(?=.{4,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]*[a-z0-9]", re.IGNORECASE)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
#: What was found, and until when it counts.
_Kept = tuple[Mapping[str, Any] | None, float]


def is_public(address: Address) -> bool:
    """Whether an address is one of the internet, and none that leads to another one."""
    if isinstance(address, ipaddress.IPv6Address) and (
        address not in _UNICAST or address.sixtofour is not None or address.teredo is not None
    ):
        return False
    if any(address in network for network in _NOT_PUBLIC if network.version == address.version):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


#: All that IPv6 has given out for the internet. What was once for sites alone (``fec0::/10``), and IPv4 addresses in
#: the form of others (``::ffff:0:0/96``, ``64:ff9b::/96``), lie beside it.
_UNICAST = ipaddress.ip_network("2000::/3")
#: Relays to 6to4, examples in documents, addresses of protocols, and what large clouds answer their machines at: not
#: every Python knows them.
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(each) for each in ("192.88.99.0/24", "192.0.0.0/24", "168.63.129.16/32", "3fff::/20")
)


class ClientDocuments:
    """Fetches documents of clients; belongs to one event loop.

    Args:
        may_ask: Which addresses are asked.
        tls: Whom to trust; None is what this system trusts.
        clock: Seconds, monotonic.
        turn_seconds: How long one waits for others of the same site.
    """

    def __init__(
        self,
        *,
        may_ask: Callable[[Address], bool] = is_public,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.monotonic,
        turn_seconds: float = _SECONDS,
    ) -> None:
        self._turn_seconds = turn_seconds
        self._may_ask = may_ask
        self._tls = tls
        self._clock = clock
        self._kept = RecentCache[str, _Kept](_KEPT)
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._sites: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def get(self, client_id: str) -> Mapping[str, Any] | None:
        """What stands at the address of a client, which says that it is that client's; None for anything else."""
        if not is_document_url(client_id):
            return None
        if (kept := self._known(client_id)) is None:
            try:
                async with self._turn(client_id):
                    if (kept := self._known(client_id)) is None:  # nobody else asked meanwhile
                        kept = self._keep(client_id, await self._fetched(client_id))
            except TimeoutError:
                _logger.info("the document of a client was not read: others of its site are")
                return None
        return kept[0]

    def _known(self, client_id: str) -> _Kept | None:
        kept = self._kept.get(client_id)
        return None if kept is None or kept[1] <= self._clock() else kept

    def _keep(self, client_id: str, found: Mapping[str, Any] | None) -> _Kept:
        kept = (found, self._clock() + (_REFUSED_SECONDS if found is None else _KEPT_SECONDS))
        self._kept.put(client_id, kept)
        return kept

    @asynccontextmanager
    async def _turn(self, client_id: str) -> AsyncIterator[None]:
        """Hold what a site has for the body.

        Raises:
            TimeoutError: If it was not free in time.
        """
        name = ".".join((urlsplit(client_id).hostname or "").split(".")[-_SITE_LABELS:])
        site = self._sites.setdefault(name, asyncio.Lock())
        async with asyncio.timeout(self._turn_seconds):
            await site.acquire()
        try:
            async with asyncio.timeout(self._turn_seconds):
                await self._at_once.acquire()
            try:
                yield
            finally:
                self._at_once.release()
        finally:
            site.release()

    async def _fetched(self, client_id: str) -> Mapping[str, Any] | None:
        import httpx2

        try:
            async with asyncio.timeout(_SECONDS):
                found = await self._document_at(client_id)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            _logger.info("the document of a client was not read: %s", type(error).__name__)
            return None
        if found is None or found.get("client_id") != client_id:
            _logger.info("the document of a client is none, or another client's")
            return None
        return found

    async def _document_at(self, client_id: str) -> Mapping[str, Any] | None:
        """The JSON object there; None for anything else.

        Raises:
            OSError: If the name stands for no address, or for one that is not asked.
        """
        import httpx2

        url = httpx2.URL(client_id)
        address = await self._address(url.host, url.port or 443)
        trusted: Any = True if self._tls is None else self._tls
        async with (
            httpx2.AsyncClient(verify=trusted, trust_env=False, timeout=_SECONDS, follow_redirects=False) as client,
            client.stream(
                "GET",
                url.copy_with(host=str(address)),
                headers={
                    "host": url.netloc.decode("ascii"),
                    "accept": "application/json",
                    "accept-encoding": "identity",
                },
                extensions={"sni_hostname": url.host},
            ) as answer,
        ):
            kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
            if answer.status_code != 200 or not (kind == "application/json" or kind.endswith("+json")):
                return None
            body = b""
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > _BYTES:
                    return None
        return json_object(body)

    async def _address(self, host: str, port: int) -> Address:
        """The address that is asked: all that the name stands for may be."""
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
        if not addresses or not all(map(self._may_ask, addresses)):
            raise OSError("an address that is not asked")
        return addresses[0]


def is_document_url(client_id: str) -> bool:
    """Whether a client id is the address of a document, as the rules for those want it."""
    if len(client_id) > _URL_CHARS or not client_id.startswith("https://") or not client_id.isascii():
        return False
    if re.search(r"[\s\\#@\x00-\x1f\x7f]", client_id):
        return False
    try:
        parts = urlsplit(client_id)
        port = parts.port
    except ValueError:
        return False
    dots = {".", ".."} & set(parts.path.split("/"))
    named = parts.hostname is not None and _HOST.fullmatch(parts.hostname) is not None
    return named and parts.path not in ("", "/") and not dots and port != 0
