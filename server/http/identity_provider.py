"""Access tokens of an identity provider that the owner names: who issued them, for whom, whether they hold.

Owns the issuer's metadata (OpenID Connect Discovery, RFC 8414), its public keys, and what a JWT must say to be taken:
a signature by a key of the issuer with an algorithm that is meant for that key, the issuer, the audience, and times.
Symmetric keys and ``none`` are never used, so nobody can sign with what everybody may read.

Promises: the issuer is asked when there is need, by one request at a time: for keys that are old, and, no more often
than its settings say, for a key that is not known. Keys that cannot be asked for anew go on to serve for a day, and
whoever has a token of one of them does not wait for an issuer that hangs. What cannot be decided because the issuer
does not answer is ``IssuerUnreachable``, which is no refusal. What is no token of the issuer by its own words is
refused first, which costs little; signatures are verified in threads, few at once, and each once for a key.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

import anyio
import anyio.to_thread

from memory_core.core.errors import ConfigInvalid, RunebookError
from server.foreign_json import json_object
from server.http.authentication import LOOPBACK

if TYPE_CHECKING:
    import jwt

_logger = logging.getLogger(__name__)
#: By the kind of key that they need.
_ALGORITHMS: Mapping[str, frozenset[str]] = {
    "RSA": frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    "EC": frozenset({"ES256", "ES384", "ES512"}),
    "OKP": frozenset({"EdDSA"}),
}
_LEEWAY_SECONDS = 30.0
#: From then on keys are asked for anew, and for so long they serve while nobody answers.
_FRESH_SECONDS = 600.0
_KEPT_SECONDS = 86_400.0
_ANSWER_SECONDS = 5.0
#: How long a token of a known key waits for newer keys, as long as the issuer answers at all.
_PATIENCE_SECONDS = 2.0
_ANSWER_BYTES = 1_048_576
_HEADER_CHARS = 1_024
#: Signatures that are verified at once, and tokens that are remembered.
_VERIFIERS = 2
_REMEMBERED = 4_096


class IssuerUnreachable(RunebookError):
    """The identity provider does not answer, so nobody can say whether a token holds; asking again may help."""

    retry_after_seconds = 5


class IdentityProvider:
    """Checks tokens of one issuer; belongs to one event loop.

    Args:
        issuer: Its URL, as its tokens write it.
        audiences: Whom tokens may be for; one of them is enough.
        keys_seconds: The least time between two questions for a key that is not known.
        clock: Seconds, monotonic.
        patience_seconds: How long a token of a known key waits for newer keys.

    Raises:
        ConfigInvalid: If what it needs is not installed.
    """

    def __init__(
        self,
        issuer: str,
        audiences: Sequence[str],
        *,
        keys_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        self._patience_seconds = patience_seconds
        try:
            import cryptography  # noqa: F401 - without it there are no signatures by public keys
            import jwt
        except ImportError as error:
            raise ConfigInvalid(
                f"http.oauth.issuer needs a package that is not installed: {error.name}.",
                hint="Install it: pip install 'pyjwt[crypto]'.",
            ) from error
        self._jwt = jwt
        self.issuer = issuer
        self._audiences = list(audiences)
        self._keys_seconds = keys_seconds
        self._clock = clock
        self._keys: Sequence[jwt.PyJWK] = ()
        self._metadata: Mapping[str, Any] | None = None
        self._fetched_at = self._asked_at = -_KEPT_SECONDS
        self._failed = False
        self._question: asyncio.Task[None] | None = None
        self._limit = anyio.CapacityLimiter(_VERIFIERS)
        #: The key that each token verified with, by its digest.
        self._verified: OrderedDict[bytes, jwt.PyJWK] = OrderedDict()

    def remembers(self, token: str) -> bool:
        """Whether a token held when it was last shown, so that to look again costs little."""
        return _digest(token) in self._verified

    async def claims(self, token: str) -> Mapping[str, Any] | None:
        """What a token says; None for one that does not hold, whatever is wrong with it.

        Args:
            token: A JWT, or any text.

        Raises:
            IssuerUnreachable: If that needs keys that cannot be had.
        """
        header, found = _read(token)
        algorithm, kid = str(header.get("alg")), header.get("kid")
        # Nobody makes the issuer be asked with what cannot be a token of it.
        known = any(algorithm in names for names in _ALGORITHMS.values()) and isinstance(kid, str | None)
        if not known or "crit" in header or found.get("iss") != self.issuer:
            return None
        key = await self._key(kid, algorithm)
        digest = _digest(token)
        if key is None:
            holds = False
        elif self._verified.get(digest) is key:
            holds = int(found["exp"]) > time.time() - _LEEWAY_SECONDS
        else:
            verify = partial(self._verifies, token, key, algorithm)
            holds = await anyio.to_thread.run_sync(verify, limiter=self._limit)
        self._verified.pop(digest, None)
        if key is None or not holds:
            return None
        self._verified[digest] = key
        if len(self._verified) > _REMEMBERED:
            self._verified.popitem(last=False)
        return found

    def _verifies(self, token: str, key: jwt.PyJWK, algorithm: str) -> bool:
        """Whether a token is signed by a key, for one of the audiences, and holds now; in a thread."""
        try:
            self._jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=self._audiences,
                issuer=self.issuer,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (self._jwt.PyJWTError, ValueError, OverflowError, RecursionError) as error:
            _logger.debug("a token was refused: %s", type(error).__name__)
            return False
        return True

    async def authorization_url(self, asked: Mapping[str, str]) -> str:
        """Where a user signs in, with the parameters of the request.

        Raises:
            IssuerUnreachable: If the issuer does not say where.
        """
        place = str((await self._described()).get("authorization_endpoint") or "")
        self._expect_private(place)
        return f"{place}{'&' if '?' in place else '?'}{urlencode(asked)}"

    async def exchanged(self, given: Mapping[str, str], secret: str) -> str | None:
        """The access token that a code is exchanged for; None if it is refused.

        Args:
            given: The parameters of the request, ``client_id`` among them.
            secret: Of the client; empty for one without.

        Raises:
            IssuerUnreachable: If the issuer does not answer.
        """
        found = await self._described()
        sent, proof = dict(given), None
        if secret:
            methods = found.get("token_endpoint_auth_methods_supported")
            if isinstance(methods, list) and "client_secret_basic" not in methods:
                sent["client_secret"] = secret
            else:
                proof = (quote(given["client_id"], safe=""), quote(secret, safe=""))
        answer = await self._fetched(str(found.get("token_endpoint") or ""), sent, proof, refusals=(400, 401, 403))
        token = answer.get("access_token")
        if not isinstance(token, str):
            _logger.warning("the identity provider refused a code: %.200r", answer.get("error"))
            return None
        return token

    async def _described(self) -> Mapping[str, Any]:
        """What the issuer says of itself.

        Raises:
            IssuerUnreachable: If it does not.
        """
        if self._metadata is None and self._clock() - self._asked_at >= self._keys_seconds:
            await self._wait_for_answer()
        if self._metadata is None:
            raise IssuerUnreachable("the issuer of tokens does not answer.", hint="Ask again in some seconds.")
        return self._metadata

    async def _key(self, kid: Any, algorithm: str) -> jwt.PyJWK | None:
        """The key of a token.

        Raises:
            IssuerUnreachable: If it is not known, and the issuer does not answer.
        """
        if self._is_due(found := self._found(kid, algorithm)):
            patience: float | None = None  # there is nothing to go on with
            if found is not None and self._is_kept:
                patience = 0.0 if self._failed else self._patience_seconds
            await self._wait_for_answer(patience)
            found = self._found(kid, algorithm)
        if self._failed and (found is None or not self._is_kept):
            raise IssuerUnreachable("the issuer of tokens does not answer.", hint="Ask again in some seconds.")
        return found if self._is_kept else None

    @property
    def _is_kept(self) -> bool:
        """Whether the keys at hand may serve."""
        return self._clock() - self._fetched_at < _KEPT_SECONDS

    def _is_due(self, found: jwt.PyJWK | None) -> bool:
        """Whether the issuer is to be asked for its keys."""
        now = self._clock()
        if now - self._asked_at < self._keys_seconds:
            return False
        return found is None or now - self._fetched_at >= _FRESH_SECONDS

    def _found(self, kid: Any, algorithm: str) -> jwt.PyJWK | None:
        fitting = [key for key in self._keys if _fits(key, algorithm)]
        if kid is not None:
            return next((key for key in fitting if key.key_id == kid), None)
        return fitting[0] if len(fitting) == 1 else None

    async def _wait_for_answer(self, patience_seconds: float | None = None) -> None:
        """Wait until the issuer was asked, by whoever began it; None is as long as that takes."""
        if self._question is None or self._question.done():
            self._question = asyncio.create_task(self._ask())
        await asyncio.wait({self._question}, timeout=patience_seconds)

    async def _ask(self) -> None:
        try:
            found = await self._discovered()
            keys = _signing_keys(self._jwt, await self._fetched(str(found.get("jwks_uri") or "")))
        except IssuerUnreachable as error:
            self._failed = True
            _logger.warning("%s", error.message)
        else:
            self._metadata, self._keys, self._fetched_at = found, keys, self._clock()
            self._failed = False
        finally:
            self._asked_at = self._clock()

    async def _discovered(self) -> Mapping[str, Any]:
        parts = urlsplit(self.issuer)
        origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
        places = [
            f"{self.issuer.rstrip('/')}/.well-known/openid-configuration",
            f"{origin}/.well-known/oauth-authorization-server{path}",
            f"{origin}/.well-known/openid-configuration{path}",
        ]
        problem: IssuerUnreachable | None = None
        for place in dict.fromkeys(places):
            try:
                found = await self._fetched(place)
            except IssuerUnreachable as error:
                problem = problem or error
                continue
            if found.get("issuer") != self.issuer:
                raise _unreachable(f"{place} names another issuer, {found.get('issuer')!r}")
            return found
        raise problem or _unreachable(self.issuer)

    def _expect_private(self, url: str) -> bool:
        """Refuse a URL of the issuer that is not reached over TLS, unless both are on this machine; whether they are.

        Raises:
            IssuerUnreachable: If it is such a one.
        """
        try:
            parts = urlsplit(url)
        except ValueError:
            raise _unreachable(f"{url!r} is no address") from None
        local = urlsplit(self.issuer).hostname in LOOPBACK
        if parts.scheme != "https" and not (parts.scheme == "http" and local and parts.hostname in LOOPBACK):
            raise _unreachable(f"{url!r} is no https address")
        return local

    async def _fetched(
        self,
        url: str,
        form: Mapping[str, str] | None = None,
        proof: tuple[str, str] | None = None,
        refusals: tuple[int, ...] = (),
    ) -> Mapping[str, Any]:
        """The JSON object at a URL of the issuer, without redirects.

        Args:
            url: Where.
            form: What is sent; None only asks.
            proof: Name and secret of the client that sends it.
            refusals: Statuses that are answers, too.
        """
        import httpx2

        local = self._expect_private(url)
        method = "GET" if form is None else "POST"
        try:
            async with (
                asyncio.timeout(_ANSWER_SECONDS),
                httpx2.AsyncClient(timeout=_ANSWER_SECONDS, trust_env=not local) as client,
                client.stream(
                    method,
                    url,
                    headers={"accept": "application/json"},
                    data=form,
                    auth=proof or httpx2.USE_CLIENT_DEFAULT,
                ) as answer,
            ):
                body = b""
                async for chunk in answer.aiter_bytes():
                    body += chunk
                    if len(body) > _ANSWER_BYTES:
                        raise _unreachable(f"{url} answers too much")
                if answer.status_code not in (200, *refusals):
                    raise _unreachable(f"{url} answers {answer.status_code}")
                found = json_object(body)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, ImportError) as error:
            raise _unreachable(f"{url}: {error or type(error).__name__}") from error
        if found is None:
            raise _unreachable(f"{url} answers no JSON object")
        return found


def _read(token: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What a token says of itself, and what it claims; nothing where it is none. Proves nothing."""
    parts = token.split(".")
    if len(parts) != 3 or len(parts[0]) > _HEADER_CHARS:
        return {}, {}
    try:
        header, claims = (urlsafe_b64decode(f"{part}{'=' * (-len(part) % 4)}") for part in parts[:2])
    except ValueError:
        return {}, {}
    return json_object(header) or {}, json_object(claims) or {}


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


def _unreachable(why: str) -> IssuerUnreachable:
    return IssuerUnreachable(
        f"the identity provider cannot be used: {why}.", hint="Check http.oauth.issuer, and that it runs."
    )


def _fits(key: jwt.PyJWK, algorithm: str) -> bool:
    """Whether a key may have signed with an algorithm: meant for it where the issuer says so, else of its kind."""
    said = key._jwk_data.get("alg") or algorithm
    return said == algorithm and algorithm in _ALGORITHMS.get(str(key.key_type), ())


def _signing_keys(jwt: Any, found: Mapping[str, Any]) -> Sequence[jwt.PyJWK]:
    """The public keys of a key set that sign; those that nothing is known to do with are left out."""
    keys = []
    listed = found.get("keys")
    for given in listed if isinstance(listed, list) else ():
        if not isinstance(given, dict) or given.get("kty") not in _ALGORITHMS or given.get("use", "sig") != "sig":
            continue
        try:
            keys.append(jwt.PyJWK(given))
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            continue
    return keys
