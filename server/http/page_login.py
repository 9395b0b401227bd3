"""Signing in on the page: the authorization-code flow, at whose end the page has a key that holds for a working day.

The page is a client like others: it goes to the issuer with PKCE and a state, both kept in a cookie for
ten minutes, and comes back with a code. What the code stands for becomes a session of the store; its secret is handed
to the page in the part of the address that no browser sends, as ``runebook ui`` hands over its key, and lives in the
tab. So nothing that a browser sends by itself opens anything, and no other site has anything to borrow.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from server.http.consent_page import message_page

if TYPE_CHECKING:
    from starlette.requests import Request

    from server.http.login import Login

START, BACK, END = "/login", "/login/callback", "/login/end"
_COOKIE = "runebook-login"
_COOKIE_SECONDS = 600
_STATE_BYTES = 24
_VERIFIER_BYTES = 48
_KEPT = re.compile(r"([A-Za-z0-9_-]{32})\.([A-Za-z0-9_-]{64})")
_CODE_CHARS = 4_096


class PageLogin:
    """The routes by which the page signs in and out.

    Args:
        login: Leads to the issuer, and knows sessions.
    """

    def __init__(self, login: Login) -> None:
        self._login = login
        self._secure = login.url.startswith("https://")
        # So named, it is taken from this very host alone: a neighbour below the same domain signs nobody in
        self._cookie, self._path = (f"__Host-{_COOKIE}", "/") if self._secure else (_COOKIE, START)

    @property
    def routes(self) -> list[BaseRoute]:
        """For ``Login.routes``."""
        return [
            Route(START, self._start, methods=["GET"]),
            Route(BACK, self._back, methods=["GET"]),
            Route(END, self._end, methods=["POST"]),
        ]

    async def _start(self, _request: Request) -> Response:
        state, verifier = secrets.token_urlsafe(_STATE_BYTES), secrets.token_urlsafe(_VERIFIER_BYTES)
        answer = RedirectResponse(await self._login.sign_in(state, challenge_of(verifier)), 303)
        self._keep(answer, f"{state}.{verifier}", _COOKIE_SECONDS)
        return answer

    async def _back(self, request: Request) -> Response:
        kept = _KEPT.fullmatch(request.cookies.get(self._cookie, ""))
        given = request.query_params
        code, issuer = given.get("code", ""), given.get("iss")
        right = kept is not None and hmac.compare_digest(kept[1].encode(), given.get("state", "").encode())
        session = None
        if kept is not None and right and 0 < len(code) <= _CODE_CHARS and issuer in (None, self._login.issuer):
            session = await self._login.begin_session(code, kept[2])
        if session is None:
            answer = message_page(request, "failed", 403)
        else:
            answer = RedirectResponse(f"/#key={session}", 303, headers={"referrer-policy": "no-referrer"})
        self._keep(answer, "", 0)
        return answer

    async def _end(self, request: Request) -> Response:
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            await self._login.end_session(text.strip())
        return PlainTextResponse("", 204)

    def _keep(self, answer: Response, value: str, seconds: int) -> None:
        answer.set_cookie(
            self._cookie, value, seconds, path=self._path, httponly=True, samesite="lax", secure=self._secure
        )


def challenge_of(verifier: str) -> str:
    """PKCE's challenge, S256."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
