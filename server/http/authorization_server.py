"""Runebook's own authorization server (OAuth 2.1), for those who have no identity provider.

The SDK's handlers read requests and write answers; here is what they decide by. Clients register themselves, or are
named by the address of a document; all are public clients, which prove by PKCE that it was they who asked: a secret
that anybody is given by registering would prove nothing. Users prove who they are on the consent page, with the token
that ``runebook token`` gave them, and what they grant ends with it. What is kept is ``core.store.logins``'.

Promises: codes go to addresses only that a client registered (on loopback at any port), are exchanged once, and by
whoever has the verifier; a code or refresh token that comes a second time ends its grant. Guesses are counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode, urlsplit

from mcp.server.auth.handlers.authorize import AuthorizationHandler
from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.handlers.token import TokenHandler
from mcp.server.auth.middleware.client_auth import AuthenticationError, ClientAuthenticator
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    RegistrationError,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp.shared.auth import (
    InvalidRedirectUriError,
    InvalidScopeError,
    OAuthClientInformationFull,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, TypeAdapter, ValidationError
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, request_response

from memory_core.core.frozen import frozen
from memory_core.core.store.logins import Held, Kind, Lifetimes
from server.http.authentication import Bearer, bearer_of
from server.http.client_documents import ClientDocuments, is_document_url
from server.http.consent_page import Consent, TooManyGuesses, message_page
from server.http.login import SESSION_LIFE, Login
from server.http.page_login import BACK, challenge_of
from server.http.rate_limits import RequestRates

if TYPE_CHECKING:
    from memory_core.core.config import OAuthConfig
    from memory_core.core.store.issued_tokens import IssuedToken, IssuedTokens

T = TypeVar("T")
METADATA = "/.well-known/oauth-authorization-server"
#: The page itself, which nobody registers.
PAGE_CLIENT = "page"
_BODY_BYTES = 65_536
_METADATA_CHARS = 8_192
_REDIRECTS = 20
_FORM, _JSON = "application/x-www-form-urlencoded", "application/json"
_NAME_CHARS = 100
#: Guesses at one token in a minute.
_GUESSES = 10
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
#: Schemes that a browser itself does something with.
_NO_APP = frozenset(
    {"about", "blob", "chrome", "data", "feed", "file", "filesystem", "ftp", "http", "javascript", "mailto", "tel"}
    | {"vbscript", "view-source", "ws", "wss"}
)
_URL: TypeAdapter[AnyUrl] = TypeAdapter(AnyUrl)


class Client(OAuthClientInformationFull):
    """A client as this server knows it.

    Attributes:
        known_scopes: All that this server has: what a client said of scopes when it registered does not bind it.
    """

    known_scopes: tuple[str, ...] = ()

    def validate_redirect_uri(self, redirect_uri: AnyUrl | None) -> AnyUrl:
        """The address, if the client registered it; on loopback the port is the client's choice (RFC 8252)."""
        if redirect_uri is not None and self.redirect_uris and str(redirect_uri) not in map(str, self.redirect_uris):
            portless = _without_port(str(redirect_uri))
            if portless is not None and portless in [_without_port(str(each)) for each in self.redirect_uris]:
                return redirect_uri
        return super().validate_redirect_uri(redirect_uri)

    def validate_scope(self, requested_scope: str | None) -> list[str] | None:
        """The scopes, if this server has them."""
        if requested_scope is None:
            return None
        asked = requested_scope.split()
        for scope in asked:
            if scope not in self.known_scopes:
                raise InvalidScopeError(f"There is no scope {scope!r}")
        return list(dict.fromkeys(asked))


@frozen
class Asked:
    """A request to log in that was found right: what the consent page shows, and a code stands for.

    Attributes:
        client: Who asks.
        redirect_uri: Where the user goes afterwards.
        explicit: Whether the request named it.
        scopes: What for.
        challenge: PKCE's, S256.
        resource: Which resource; None is any of this server's.
        state: The client's own, given back.
    """

    client: Client
    redirect_uri: AnyUrl
    explicit: bool
    scopes: tuple[str, ...]
    challenge: str
    resource: str | None
    state: str | None


class OwnLogin(Login):
    """Access tokens of this server's own.

    Args:
        config: ``issuer`` is ``own``.
        url: Where clients reach the server, without a path.
        tokens: By which users prove who they are.
    """

    def __init__(self, config: OAuthConfig, url: str, tokens: IssuedTokens) -> None:
        super().__init__(config, url, url, tokens)
        self._tokens = tokens
        self.server = server = AuthorizationServer(self, config, ClientDocuments() if config.client_documents else None)
        # Whoever holds something was let in, and is in the store: tokens wait for nobody's document.
        let_in = AuthorizationServer(self, config, None)
        authenticator = ClientAuthenticator(let_in)
        options = ClientRegistrationOptions(enabled=True, valid_scopes=[*self.scopes], default_scopes=[*self.scopes])
        consent = Consent(self)
        self.routes += [
            Route(METADATA, self._server_metadata, methods=["GET"]),
            _route("/authorize", partial(self._authorize, AuthorizationHandler(server)), "GET", "POST"),
            _route("/token", TokenHandler(let_in, authenticator).handle, "POST"),
            _route("/revoke", partial(_revoked, let_in, authenticator), "POST"),
            _route("/consent", consent.handle, "GET", "POST"),
        ]
        if config.registration:
            self.routes.append(_route("/register", RegistrationHandler(server, options).handle, "POST", kind=_JSON))
        self._guesses = RequestRates(_GUESSES)

    async def sign_in(self, state: str, challenge: str) -> str:
        """See ``Login``."""
        return f"{self.url}/authorize?{urlencode(self._sign_in_request(PAGE_CLIENT, state, challenge))}"

    async def begin_session(self, code: str, verifier: str) -> str | None:
        """See ``Login``."""
        held = await self.look("code", code)
        if held is None or held.client != PAGE_CLIENT or held.details["challenge"] != challenge_of(verifier):
            return None
        details = {"scopes": held.details["scopes"]}
        return await self.write(partial(self._logins.begin_session, details, SESSION_LIFE, code))

    async def _granted(self, token: str) -> Bearer | None:
        if not token.startswith("ra_"):
            return None
        held = await self._look(partial(self._logins.held, "access", token))
        return None if held is None else self._of_session(held)

    def _of_session(self, held: Held) -> Bearer | None:
        if held.token is None:
            return None
        rights = self.rights(frozenset(held.details["scopes"]), read_only=held.token.read_only)
        return bearer_of(held.token, **rights)

    async def user(self, token: str) -> IssuedToken | None:
        """Whom a token of ``runebook token`` stands for; None for one that does not hold.

        Raises:
            TooManyGuesses: If the same one was tried too often.
        """
        guessed = token[:15]  # up to its id: nobody can use up the guesses at another's
        wait_seconds = self._guesses.take(guessed, count=False)
        if wait_seconds:
            raise TooManyGuesses(wait_seconds)
        row = await self._look(partial(self._tokens.verify, token))
        if row is None:
            self._guesses.take(guessed)
        else:
            await self.write(partial(self._tokens.note_use, row))
        return row

    async def grant(self, asked: Asked, row: IssuedToken) -> str:
        """Let a client in; the address that its user is sent to, with the code."""
        allowed = [scope for scope in asked.scopes if not (row.read_only and scope == self.scopes[1])]
        details = {
            "scopes": allowed,
            "redirect_uri": str(asked.redirect_uri),
            "explicit": asked.explicit,
            "challenge": asked.challenge,
            "resource": asked.resource,
        }
        client = asked.client.client_id
        if is_document_url(client):  # its tokens go on while its document cannot be read
            await self.write(partial(self._logins.register, client, _kept(asked.client)))
        code = await self.write(partial(self._logins.grant, client, row, details))
        return self.back(asked, code=code)

    def back(self, asked: Asked, **answer: str) -> str:
        """The address that a user is sent to with an answer."""
        return construct_redirect_uri(str(asked.redirect_uri), **answer, state=asked.state, iss=self.url)

    async def asked(self, given: Mapping[str, str]) -> Asked | None:
        """The request that these parameters make; None if they make none that may be answered."""
        client = await self.server.get_client(given.get("client_id", ""))
        if client is None:
            return None
        try:
            named = given.get("redirect_uri")
            redirect_uri = client.validate_redirect_uri(None if named is None else _URL.validate_python(named))
            scopes = client.validate_scope(given.get("scope"))
        except (InvalidRedirectUriError, InvalidScopeError, ValidationError):
            return None
        challenge, resource = given.get("code_challenge", ""), given.get("resource")
        if _CHALLENGE.fullmatch(challenge) is None or (resource is not None and resource not in self.resources):
            return None
        wanted = tuple(scopes or self.scopes)
        return Asked(
            client, redirect_uri, given.get("explicit") == "1", wanted, challenge, resource, given.get("state")
        )

    async def write(self, change: Callable[[], T]) -> T:
        """What a change of the store answers."""
        return await self._look(change, writes=True)

    async def look(self, kind: Kind, text: str) -> Held | None:
        """What a secret stands for, which may end its grant."""
        return await self.write(partial(self._logins.held, kind, text))

    async def exchange(self, kind: Kind, text: str, lives: Lifetimes, details: Mapping[str, Any]) -> OAuthToken:
        """The tokens that a code, or a refresh token, is exchanged for.

        Raises:
            TokenError: If it does not hold.
        """
        given = await self.write(partial(self._logins.exchange, kind, text, lives, details))
        if given is None:
            raise TokenError("invalid_grant", "it was used before, or does not hold")
        access, refresh = given
        return OAuthToken(
            access_token=access,
            expires_in=int(lives.access.total_seconds()),
            scope=" ".join(details["scopes"]),
            refresh_token=refresh,
        )

    async def end(self, kind: Kind, text: str) -> None:
        """End the grant of a secret."""
        held = await self.look(kind, text)
        if held is not None:
            await self.write(partial(self._logins.revoke, held.grant))

    async def _authorize(self, handler: AuthorizationHandler, request: Request) -> Response:
        """Begin; errors lead off this machine, or to an app, only if somebody let the client in: anybody registers."""
        answer = await handler.handle(request)
        place = answer.headers.get("location", "")
        if not place or place.startswith(f"{self.url}/") or _without_port(place) is not None:
            return answer
        given = await request.form() if request.method == "POST" else request.query_params
        known = await self._look(partial(self._logins.is_let_in, str(given.get("client_id"))))
        return answer if known else message_page(request, "invalid", 400)

    async def register(self, client: str, metadata: Mapping[str, Any]) -> None:
        """Keep a client."""
        await self.write(partial(self._logins.register, client, metadata))

    async def client(self, client: str) -> Mapping[str, Any] | None:
        """What is kept of a client."""
        return await self._look(partial(self._logins.client, client))

    async def _server_metadata(self, _request: Request) -> Response:
        """RFC 8414."""
        found = OAuthMetadata.model_validate(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "revocation_endpoint": f"{self.url}/revoke",
                **({"registration_endpoint": f"{self.url}/register"} if self._config.registration else {}),
                "scopes_supported": [*self.scopes],
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "token_endpoint_auth_methods_supported": ["none"],
                "revocation_endpoint_auth_methods_supported": ["none"],
                "code_challenge_methods_supported": ["S256"],
                "client_id_metadata_document_supported": self._config.client_documents,
                "authorization_response_iss_parameter_supported": True,
            }
        )
        return Response(found.model_dump_json(exclude_none=True), media_type="application/json")


class AuthorizationServer(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """What the SDK's handlers ask.

    Args:
        login: Knows the store.
        config: Settings.
        documents: Fetches what clients say of themselves; None fetches nothing.
    """

    def __init__(self, login: OwnLogin, config: OAuthConfig, documents: ClientDocuments | None) -> None:
        self._login = login
        self._lives = Lifetimes(timedelta(minutes=config.access_minutes), timedelta(days=config.refresh_days))
        self.documents = documents

    async def get_client(self, client_id: str) -> Client | None:
        """A client that is known, or whose document says what it has to."""
        metadata: Mapping[str, Any] | None = None
        if client_id == PAGE_CLIENT:
            metadata = {"redirect_uris": [f"{self._login.url}{BACK}"], "client_name": "Runebook"}
        elif is_document_url(client_id):
            found = None if self.documents is None else await self.documents.get(client_id)
            metadata = None if found is None else _of_document(found)
        if metadata is None and client_id:
            metadata = await self._login.client(client_id)
        if metadata is None:
            return None
        given = {**metadata, "client_id": client_id, "token_endpoint_auth_method": "none"}
        return Client.model_validate({**given, "known_scopes": self._login.scopes})

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Keep a client that registers itself; it is given no secret.

        Raises:
            RegistrationError: If codes would not be safe with it.
        """
        problem = redirects_problem([str(each) for each in client_info.redirect_uris or ()])
        if problem:
            raise RegistrationError("invalid_redirect_uri", problem)
        metadata = _kept(client_info)
        if len(str(metadata)) > _METADATA_CHARS:
            raise RegistrationError("invalid_client_metadata", "it is too long")
        client_info.client_secret = client_info.client_secret_expires_at = None
        client_info.token_endpoint_auth_method = "none"
        client_info.grant_types = metadata["grant_types"]
        await self._login.register(client_info.client_id, metadata)

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        """The consent page for a request that is right.

        Raises:
            AuthorizeError: If it is for another server, or without a challenge that proves something.
        """
        if _CHALLENGE.fullmatch(params.code_challenge) is None:
            raise AuthorizeError("invalid_request", "code_challenge must be a SHA-256 hash in base64url")
        if params.resource is not None and params.resource not in self._login.resources:
            raise AuthorizeError("invalid_target", "resource is not one of this server's")
        asked = {
            "client_id": client.client_id,
            "redirect_uri": str(params.redirect_uri),
            "explicit": "1" if params.redirect_uri_provided_explicitly else "0",
            "code_challenge": params.code_challenge,
            "scope": " ".join(params.scopes or self._login.scopes),
        }
        asked |= {} if params.state is None else {"state": params.state}
        asked |= {} if params.resource is None else {"resource": params.resource}
        return f"{self._login.url}/consent?{urlencode(asked)}"

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        """What a code stands for, one of the page for nothing here; one that was exchanged before ends what it gave."""
        held = await self._login.look("code", authorization_code)
        if held is None or held.client != client.client_id or held.client == PAGE_CLIENT:
            return None
        return AuthorizationCode(
            code=authorization_code,
            scopes=held.details["scopes"],
            expires_at=held.expires_at.timestamp(),
            client_id=held.client,
            code_challenge=held.details["challenge"],
            redirect_uri=held.details["redirect_uri"],
            redirect_uri_provided_explicitly=held.details["explicit"],
            resource=held.details["resource"],
        )

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        """The first tokens of a grant."""
        assert authorization_code.client_id == client.client_id
        details = {"scopes": authorization_code.scopes, "resource": authorization_code.resource}
        return await self._login.exchange("code", authorization_code.code, self._lives, details)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        """What a refresh token stands for; one that was exchanged before ends its grant."""
        held = await self._login.look("refresh", refresh_token)
        if held is None or held.client != client.client_id:
            return None
        return RefreshToken(token=refresh_token, client_id=held.client, scopes=held.details["scopes"])

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        """The next tokens of a grant."""
        assert refresh_token.client_id == client.client_id
        details = {"scopes": scopes, "resource": refresh_token.resource}
        return await self._login.exchange("refresh", refresh_token.token, self._lives, details)

    async def load_access_token(self, token: str) -> AccessToken | None:
        """What an access token stands for."""
        held = await self._login.look("access", token)
        return None if held is None else AccessToken(token=token, client_id=held.client, scopes=held.details["scopes"])

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        """End the grant of a token."""
        await self._login.end("access" if isinstance(token, AccessToken) else "refresh", token.token)


async def _revoked(server: AuthorizationServer, authenticator: ClientAuthenticator, request: Request) -> Response:
    """RFC 7009; the SDK's own handler wants a secret, which public clients do not have."""
    form = await request.form()
    text = form.get("token")
    try:
        client = await authenticator.authenticate_request(request)
    except AuthenticationError as error:
        return JSONResponse({"error": "invalid_client", "error_description": error.message}, 401)
    if not isinstance(text, str):
        return JSONResponse({"error": "invalid_request", "error_description": "token is missing"}, 400)
    token = await server.load_access_token(text) or await server.load_refresh_token(client, text)
    if token is not None and token.client_id == client.client_id:
        await server.revoke_token(token)
    return Response()


def redirects_problem(redirect_uris: list[str]) -> str:
    """Why codes would not be safe at these addresses; empty if they are."""
    if not 0 < len(redirect_uris) <= _REDIRECTS:
        return f"name 1 to {_REDIRECTS} redirect_uris"
    for redirect_uri in redirect_uris:
        try:
            parts = urlsplit(redirect_uri)
        except ValueError:
            return "a redirect URI is none"
        local = parts.scheme == "http" and _without_port(redirect_uri) is not None
        web = parts.scheme == "https" and parts.hostname and parts.username is None
        app = parts.scheme not in _NO_APP and parts.scheme != "https"
        if "#" in redirect_uri or not (local or web or app):
            return "a redirect URI is https, http on loopback, or an app's own scheme, and has no fragment"
    return ""


def _without_port(redirect_uri: str) -> str | None:
    """An address on loopback without its port; None for any other."""
    found = re.fullmatch(r"http://(127\.0\.0\.1|\[::1\]|localhost)(?::[0-9]+)?([/?].*)?", redirect_uri)
    return None if found is None else f"{found[1]}{found[2] or '/'}"


def _kept(client: OAuthClientInformationFull) -> dict[str, Any]:
    """What is kept of what a client says of itself."""
    grants = [name for name in client.grant_types if name in {"authorization_code", "refresh_token"}]
    return {
        "redirect_uris": [str(each) for each in client.redirect_uris or ()],
        "client_name": (client.client_name or "")[:_NAME_CHARS],
        "grant_types": grants,
    }


def _of_document(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """The same of a document; None for one that is no public client's, or would not be safe."""
    if found.get("token_endpoint_auth_method", "none") != "none" or "client_secret" in found:
        return None
    try:
        client = OAuthClientInformationFull.model_validate(dict(found))
    except ValidationError:
        return None
    listed = [str(each) for each in client.redirect_uris or ()]
    return None if redirects_problem(listed) else _kept(client)


def _route(path: str, handle: Callable[[Request], Any], *methods: str, kind: str = _FORM) -> Route:
    """A route that takes bodies of one kind and of bounded size."""

    async def answered(request: Request) -> Response:
        given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if request.method == "POST" and given != kind:
            # Forms of other kinds could be written in an encoding of their sender's, and hold files.
            problem = {"error": "invalid_request", "error_description": f"send the body as {kind}"}
            return JSONResponse(problem, 400)
        try:
            await request.form()  # the request keeps it; without one it is empty
        except MultiPartException as error:
            return JSONResponse({"error": "invalid_request", "error_description": error.message}, 400)
        answer: Response = await handle(request)
        return answer

    limited = RequestBodyLimitMiddleware(request_response(answered), _BODY_BYTES)
    return Route(path, limited, methods=list(methods))
