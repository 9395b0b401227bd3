"""Login by OAuth 2.1: what the server says of itself as a protected resource, and who an access token stands for.

Owns the metadata of RFC 9728, what ``WWW-Authenticate`` says where a token is missing or lacks a scope, and the way
from a claim to a user space. Who issued a token, and whether it holds, is the business of ``identity_provider``.

Promises: two users of an issuer never share a space, whatever their claims say: a space's name ends with a hash of
issuer and claim, so a claim can neither name nor resemble the space of somebody else, of a token, or of the owner.
Only the owner gives another name (``http.oauth.user_spaces``), and says which groups see which shared space
(``http.oauth.group_spaces``): a claim opens nothing by a name of its own.
"""

from __future__ import annotations

import hashlib
import os
import re
from abc import ABC, abstractmethod
from base64 import b32encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp.shared.auth import ProtectedResourceMetadata
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router

from memory_core.core.config import OWN_ISSUER
from memory_core.core.errors import RunebookError
from memory_core.core.store.issued_tokens import SharedSpace, refuse_twins
from memory_core.core.store.logins import Held, Logins
from memory_core.core.store.users import SeenUsers
from server.http.authentication import Bearer, Lookups, address_of, respond
from server.http.identity_provider import IdentityProvider
from server.http.page_login import BACK, PageLogin

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from memory_core.core.config import OAuthConfig
    from memory_core.core.store.issued_tokens import IssuedTokens
    from server.http.rate_limits import RequestRates

_METADATA = "/.well-known/oauth-protected-resource"
#: What has metadata of its own: the server, and each place that clients are pointed at.
_RESOURCES = ("", "/mcp", "/sse")
_CLAIM_CHARS = 1_024
_LABEL_CHARS = 64
_TOLD_APART_CHARS, _APART = 8, "·"
_SLUG_CHARS = 32
_HASH_CHARS = 26
#: A secret of the environment: of the page, where it is a client that needs one.
CLIENT_SECRET = "RUNEBOOK_HTTP_OAUTH_CLIENT_SECRET"
SESSION = "rs_"
#: How long somebody stays signed in on the page.
SESSION_LIFE = timedelta(hours=8)
_OF_SESSION = ("id", "label", "user_space", "agent_space", "read_only")
#: Half a character, which JSON can write and nothing else.
_SURROGATE = re.compile("[\ud800-\udfff]")
_NO_SLUG = re.compile(r"[^a-z0-9]+")


class Login(ABC):
    """A way to log in to one server.

    Args:
        config: Settings.
        url: Where clients reach the server, without a path.
        issuer: Who issues the access tokens, as their metadata write it.
        tokens: The token table, beside which it keeps what it keeps.
    """

    def __init__(self, config: OAuthConfig, url: str, issuer: str, tokens: IssuedTokens) -> None:
        self.url = url
        self.issuer = issuer
        self._config = config
        self._logins = Logins(tokens.database)
        self._look = Lookups(is_remote=tokens.database.is_remote)
        self.routes: list[BaseRoute] = [
            Route(f"{_METADATA}{path}", self._metadata, methods=["GET"]) for path in _RESOURCES
        ]
        if self.has_page:
            self.routes += PageLogin(self).routes

    @property
    def resources(self) -> list[str]:
        """What tokens may be for; SDKs write an address with a slash where it has no path."""
        return [f"{self.url}/", *(f"{self.url}{path}" for path in _RESOURCES)]

    @property
    def has_page(self) -> bool:
        """Whether people can sign in on the page."""
        return True

    async def bearer(self, token: str, path: str) -> Bearer | None:
        """Whoever a token stands for; None for one that does not hold.

        Args:
            token: An access token, or the secret of a page session, which opens the API alone.
            path: What it is shown for.

        Raises:
            IssuerUnreachable: If that cannot be decided now.
            StoreBusy: Likewise.
        """
        if not token.startswith(SESSION):
            return await self._granted(token)
        if not path.startswith("/api/"):
            return None
        held = await self._look(partial(self._logins.held, "session", token))
        return None if held is None else self._of_session(held)

    def is_costly(self, token: str) -> bool:  # noqa: ARG002 - a look into the store costs little
        """Whether it takes work to say whom a token stands for, which a stranger could ask for again and again."""
        return False

    @abstractmethod
    async def sign_in(self, state: str, challenge: str) -> str:
        """The address at which the page's user signs in.

        Args:
            state: Comes back with the code.
            challenge: PKCE's, S256.

        Raises:
            IssuerUnreachable: If the issuer does not say where.
        """

    @abstractmethod
    async def begin_session(self, code: str, verifier: str) -> str | None:
        """The secret of a page session; None if the code gives none.

        Args:
            code: Of the issuer.
            verifier: To the challenge.

        Raises:
            IssuerUnreachable: If the issuer does not answer.
            StoreBusy: If the store does not.
        """

    def _sign_in_request(self, client_id: str, state: str, challenge: str) -> dict[str, str]:
        """The parameters of ``sign_in``."""
        return {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": f"{self.url}{BACK}",
            "scope": " ".join(self.scopes),
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }

    async def end_session(self, text: str) -> None:
        """End a page session; any other text is none."""
        if text.startswith(SESSION):
            await self._look(partial(self._logins.end, "session", text), writes=True)

    @abstractmethod
    async def _granted(self, token: str) -> Bearer | None:
        """Whoever an access token stands for; see ``bearer``."""

    @abstractmethod
    def _of_session(self, held: Held) -> Bearer | None:
        """Whose session it is."""

    def challenge(self, path: str, *, wrong: bool = False, scope: str = "") -> str:
        """What ``WWW-Authenticate`` says.

        Args:
            path: That was asked for.
            wrong: Whether a token was shown that does not hold.
            scope: What a token that holds lacks; empty where there is none.
        """
        place = next((each for each in _RESOURCES if each and path.startswith(each)), "")
        error = "insufficient_scope" if scope else "invalid_token" if wrong else ""
        parts = [f'error="{error}"'] if error else []
        parts += [f'scope="{scope or " ".join(self.scopes)}"', f'resource_metadata="{self.url}{_METADATA}{place}"']
        return f"Bearer {', '.join(parts)}"

    @property
    def scopes(self) -> tuple[str, str]:
        """All scopes that there are: to read, to write."""
        return self._config.read_scope, self._config.write_scope

    def before(self, app: ASGIApp, rates: RequestRates) -> ASGIApp:
        """An app that answers what logging in takes, which needs no token, and passes on the rest.

        Args:
            app: What is behind it.
            rates: How often one address may ask, here and with wrong tokens together.
        """
        routes = Router(self.routes)  # what they raise is for the server to answer
        paths = frozenset(route.path for route in self.routes if isinstance(route, Route))

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] not in paths:
                await app(scope, receive, send)
            elif wait_seconds := rates.take(address_of(scope)):
                await respond(send, 429, "Too many requests.", [(b"retry-after", str(wait_seconds).encode())])
            else:
                await routes(scope, receive, send)

        return answer

    def rights(self, scopes: frozenset[str], *, read_only: bool = False) -> dict[str, Any]:
        """What scopes allow, as members of ``Bearer``.

        Args:
            scopes: Of a token.
            read_only: Whether no scope would let its bearer write.
        """
        may_read, may_write = self.scopes[0] in scopes, self.scopes[1] in scopes and not read_only
        helps = not may_read or not (may_write or read_only)
        step_up = self.challenge("/mcp", scope=" ".join(self.scopes[: 1 if read_only else 2])) if helps else ""
        return {"may_read": may_read, "read_only": not may_write, "step_up": step_up}

    async def _metadata(self, request: Request) -> Response:
        """RFC 9728."""
        found = ProtectedResourceMetadata.model_validate(
            {
                "resource": f"{self.url}{request.url.path.removeprefix(_METADATA)}",
                "authorization_servers": [self.issuer],
                "scopes_supported": list(self.scopes),
                "resource_name": "Runebook",
            }
        )
        return Response(found.model_dump_json(exclude_none=True), media_type="application/json")


class ProviderLogin(Login):
    """Access tokens of an identity provider.

    Args:
        config: ``issuer`` is its URL.
        url: Where clients reach the server, without a path.
        tokens: The token table.
        spaces: Names of spaces that are in use, besides those of tokens.

    Raises:
        ConfigInvalid: If what it needs is not installed.
        InvalidInput: If a space that the settings name is on some disks the same folder as another.
    """

    def __init__(self, config: OAuthConfig, url: str, tokens: IssuedTokens, spaces: Iterable[str] = ()) -> None:
        super().__init__(config, url, config.issuer, tokens)
        self.provider = IdentityProvider(
            config.issuer, config.audience or self.resources, keys_seconds=config.keys_seconds
        )
        self._users = SeenUsers(tokens.database)
        self._spaces = {claim: space for claim, _, space in (pair.rpartition("=") for pair in config.user_spaces)}
        pairs = [pair.rpartition("=") for pair in config.group_spaces]
        self._groups = [(group, SharedSpace.parse(space)) for group, _, space in pairs]
        known = [space for row in tokens.rows(revoked=True) for space in row.spaces]
        named = [*self._spaces.values(), *(space.name for _, space in self._groups)]
        refuse_twins(named, [*spaces, *known, *named])

    @property
    def has_page(self) -> bool:
        """Whether the page is a client of the identity provider."""
        return bool(self._config.client_id)

    def is_costly(self, token: str) -> bool:
        """See ``Login``."""
        return not token.startswith(SESSION) and not self.provider.remembers(token)

    async def sign_in(self, state: str, challenge: str) -> str:
        """See ``Login``."""
        asked = self._sign_in_request(self._config.client_id, state, challenge)
        return await self.provider.authorization_url(asked | self._resource)

    async def begin_session(self, code: str, verifier: str) -> str | None:
        """See ``Login``."""
        given = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": f"{self.url}{BACK}",
            "client_id": self._config.client_id,
            "code_verifier": verifier,
            **self._resource,
        }
        token = await self.provider.exchanged(given, os.environ.get(CLIENT_SECRET, ""))
        found = None if token is None else await self._granted(token)
        if found is None or not found.may_read:
            return None
        details: dict[str, Any] = {name: getattr(found, name) for name in _OF_SESSION}
        details |= {"shared": [str(space) for space in found.shared], "issuer": self._config.issuer}
        return await self._look(partial(self._logins.begin_session, details, SESSION_LIFE), writes=True)

    @property
    def _resource(self) -> dict[str, str]:
        """For whom tokens are asked for; a provider whose audiences have other names may not know the parameter."""
        return {} if self._config.audience else {"resource": f"{self.url}/mcp"}

    def _of_session(self, held: Held) -> Bearer | None:
        if held.token is not None or held.details.get("issuer") != self._config.issuer:
            return None  # begun before the settings named this issuer
        if not self._still_has(held.details["user_space"], held.details["label"].rpartition(_APART)[2]):
            return None
        given = {str(space) for _, space in self._groups}
        shared = tuple(SharedSpace.parse(space) for space in held.details["shared"] if space in given)
        return Bearer(**{name: held.details[name] for name in _OF_SESSION}, shared=shared)

    def _still_has(self, space: str, told_apart: str) -> bool:
        """Whether the settings still give a user this space: one that they name, else the user's own."""
        named = {_told_apart(space_of(self._config.issuer, claim)): given for claim, given in self._spaces.items()}
        return space == named[told_apart] if told_apart in named else _told_apart(space) == told_apart

    async def _granted(self, token: str) -> Bearer | None:
        claims = await self.provider.claims(token)
        found = None if claims is None else self._bearer(claims)
        for space in () if found is None else (found.user_space, *(shared.name for shared in found.shared)):
            if not self._users.seen_today(space, space):
                with suppress(RunebookError):  # whoever comes again is noted again
                    await self._look(partial(self._users.note, space, space), writes=True)
        return found

    def _bearer(self, claims: Mapping[str, Any]) -> Bearer | None:
        """The user that claims name; None if they name none."""
        name = self._config.user_claim
        value = claims.get(name)
        if not isinstance(value, str) or not value.strip() or len(value) > _CLAIM_CHARS or _SURROGATE.search(value):
            return None
        if name == "email" and claims.get("email_verified") is not True:
            return None  # anybody may write anybody's address into a profile
        own = space_of(self._config.issuer, value)
        space = self._spaces.get(value) or own
        # What somebody wrote is theirs alone, whatever a token, the page or a longer claim is called.
        return Bearer(
            f"oauth {space}",
            f"{value[:_LABEL_CHARS]}{_APART}{_told_apart(own)}",
            space,
            space,
            shared=self._shared(claims),
            **self.rights(granted(claims)),
        )

    def _shared(self, claims: Mapping[str, Any]) -> tuple[SharedSpace, ...]:
        """The spaces of the groups that claims name; where one of several groups may write, the user may."""
        given = claims.get(self._config.groups_claim)
        groups = given if isinstance(given, list) else [given]
        found: dict[str, SharedSpace] = {}
        for group, space in self._groups:
            if group in groups and (space.name not in found or not space.read_only):
                found[space.name] = space
        return tuple(found.values())


def open_login(config: OAuthConfig, url: str, tokens: IssuedTokens, spaces: Iterable[str] = ()) -> Login:
    """The login that settings ask for.

    Args:
        config: ``issuer`` is not empty.
        url: Where clients reach the server, without a path.
        tokens: The token table.
        spaces: See ``ProviderLogin``.

    Raises:
        ConfigInvalid: If what it needs is not installed.
        InvalidInput: See ``ProviderLogin``.
    """
    if config.issuer == OWN_ISSUER:
        from server.http.authorization_server import OwnLogin

        return OwnLogin(config, url, tokens)
    return ProviderLogin(config, url, tokens, spaces)


def granted(claims: Mapping[str, Any]) -> frozenset[str]:
    """The scopes of an access token: ``scope`` (RFC 9068), or ``scp``, words or a list."""
    found: set[str] = set()
    for name in ("scope", "scp"):
        value = claims.get(name)
        words = value.split(" ") if isinstance(value, str) else value if isinstance(value, list) else ()
        found.update(word for word in words if isinstance(word, str))
    return frozenset(found)


def _told_apart(own: str) -> str:
    """What tells a user of an own space from all others."""
    return own.rpartition("-")[2][:_TOLD_APART_CHARS]


def space_of(issuer: str, claim: str) -> str:
    """The user space of a claim: something readable, then a hash that nobody else's has.

    >>> space_of("https://login.example.com", "Anna@example.com")
    'anna-example-com-v4ohxt52acedpi7x7nigyz7umb'
    """
    slug = _NO_SLUG.sub("-", claim.lower())[:_SLUG_CHARS].strip("-") or "user"
    digest = hashlib.sha256(f"{issuer}\n{claim}".encode()).digest()
    return f"{slug}-{b32encode(digest).decode().lower()[:_HASH_CHARS]}"
