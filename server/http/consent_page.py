"""The page on which users of the own authorization server say who they are, and whether a client may come in.

It holds no script and loads nothing. A form of another site cannot send it: its cookie stays at home (``SameSite``),
the form holds the same value as the cookie, and a browser that says where a form comes from has to name this server.
Even so nothing could be borrowed: users type in their token each time. It is shown in no frame.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import b64encode
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.responses import HTMLResponse, RedirectResponse, Response

from memory_core.core.text.word_table import word_table

if TYPE_CHECKING:
    from starlette.requests import Request

    from server.http.authorization_server import Asked, OwnLogin

_FIELDS = ("client_id", "redirect_uri", "explicit", "scope", "code_challenge", "resource", "state")
_COOKIE = "runebook-consent"
_COOKIE_BYTES = 24
_COOKIE_SHAPE = re.compile(r"[A-Za-z0-9_-]{32}")
_TOKEN_CHARS = 256
_STYLE = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
_STYLE_HASH = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


class TooManyGuesses(Exception):
    """A token was tried too often; ``seconds`` says when it may be again."""

    def __init__(self, seconds: int) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Consent:
    """The page.

    Args:
        login: Knows clients and users.
    """

    def __init__(self, login: OwnLogin) -> None:
        self._login = login
        self._secure = login.url.startswith("https://")
        self._cookie = f"__Host-{_COOKIE}" if self._secure else _COOKIE

    async def handle(self, request: Request) -> Response:
        """Show the page, or do what its form says."""
        form = await request.form() if request.method == "POST" else request.query_params
        given = {name: value for name in _FIELDS if isinstance(value := form.get(name), str)}
        asked = await self._login.asked(given)
        if asked is None:
            return message_page(request, "invalid", 400)
        if request.method == "GET":
            return self._shown(request, asked, given)
        kept, sent = request.cookies.get(self._cookie, ""), form.get("once")
        same = (
            isinstance(sent, str)
            and _COOKIE_SHAPE.fullmatch(kept)
            and hmac.compare_digest(kept.encode(), sent.encode())
        )
        if not same or not self._is_own(request):
            return self._shown(request, asked, given, "stale", 403)
        if form.get("answer") == "refuse":
            return _sent(self._login.back(asked, error="access_denied"))
        token = form.get("token")
        return await self._answered(request, asked, given, token.strip() if isinstance(token, str) else "")

    async def _answered(self, request: Request, asked: Asked, given: Mapping[str, str], token: str) -> Response:
        try:
            row = None if len(token) > _TOKEN_CHARS else await self._login.user(token)
        except TooManyGuesses as error:
            answer = self._shown(request, asked, given, "often", 429, error.seconds)
            answer.headers["retry-after"] = str(error.seconds)
            return answer
        if row is None:
            return self._shown(request, asked, given, "wrong", 403)
        return _sent(await self._login.grant(asked, row))

    def _is_own(self, request: Request) -> bool:
        """Whether a form was sent by this page, as far as the browser says."""
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
        return origin in (None, self._login.url) and site in (None, "same-origin")

    def _shown(
        self,
        request: Request,
        asked: Asked,
        given: Mapping[str, str],
        problem: str = "",
        status: int = 200,
        wait_seconds: int = 0,
    ) -> Response:
        """The page; with a problem, by its name in the words, and how long one has to wait."""
        words = _words(request)
        kept = request.cookies.get(self._cookie, "")
        once = kept if _COOKIE_SHAPE.fullmatch(kept) else secrets.token_urlsafe(_COOKIE_BYTES)
        client, place = asked.client, _place(str(asked.redirect_uri))
        named = client.client_id.startswith("https://")
        about = (
            words["document"].format(client=f"<code>{escape(client.client_id)}</code>") if named else words["itself"]
        )
        rights = [
            words[name]
            for name, scope in zip(("read", "write"), self._login.scopes, strict=True)
            if scope in asked.scopes
        ]
        hidden = "".join(_hidden(name, value) for name, value in {**given, "once": once}.items())
        name = " ".join("".join(each if each.isprintable() else " " for each in client.client_name or "").split())
        parts = [
            f"<h1>{words['wants'].format(client=f'“{escape(name or place)}”')}</h1>",
            f"<p>{about}</p><ul>{''.join(f'<li>{right}</li>' for right in rights)}</ul>",
            f"<p>{words['back'].format(place=f'<code>{escape(place)}</code>')} {words['careful']}</p>",
            f'<p class="wrong" role="alert">{escape(words[problem].format(seconds=wait_seconds))}</p>'
            if problem
            else "",
            f'<form method="post" action="/consent">{hidden}<label>{words["token"]}'
            '<input name="token" type="password" autocomplete="current-password" required autofocus></label>'
            f"<button>{words['allow']}</button></form>",
            f'<form method="post" action="/consent">{hidden}{_hidden("answer", "refuse")}'
            f"<button>{words['refuse']}</button></form>",
        ]
        answer = _page(words, "".join(parts), status, _form_target(str(asked.redirect_uri)))
        answer.set_cookie(self._cookie, once, path="/", httponly=True, samesite="strict", secure=self._secure)
        return answer


def message_page(request: Request, message: str, status: int) -> Response:
    """A page with one sentence, by its name."""
    words = _words(request)
    return _page(words, f'<h1>{words["title"]}</h1><p>{words[message]}</p><p><a href="/">Runebook</a></p>', status)


def _words(request: Request) -> Mapping[str, str]:
    words: Mapping[str, str] = word_table(__file__)[_language(request.headers.get("accept-language", ""))]
    return words


def _page(words: Mapping[str, str], body: str, status: int, target: str = "") -> Response:
    policy = (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'{target}; "
        "base-uri 'none'; frame-ancestors 'none'"
    )
    html = (
        f'<!doctype html><html lang="{words["language"]}"><head><meta charset="utf-8"><title>{words["title"]}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body>{body}</body></html>"
    )
    headers = {
        "content-security-policy": policy,
        "x-frame-options": "DENY",
        "referrer-policy": "same-origin",  # without any a browser would not say where the form comes from
        "cross-origin-opener-policy": "same-origin",
        "content-language": words["language"],
    }
    return HTMLResponse(html, status, headers)


def _sent(address: str) -> Response:
    return RedirectResponse(address, 303, headers={"referrer-policy": "no-referrer"})


def _hidden(name: str, value: str) -> str:
    return f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'


def _place(redirect_uri: str) -> str:
    """Whom an address belongs to: a host, or the scheme of an app."""
    parts = urlsplit(redirect_uri)
    return parts.netloc if parts.scheme in {"http", "https"} else f"{parts.scheme}:"


def _form_target(redirect_uri: str) -> str:
    """What the page's forms may lead to beside this server; browsers look at redirects, too."""
    parts = urlsplit(redirect_uri)
    target = f"{parts.scheme}://{parts.netloc}" if parts.scheme in {"http", "https"} else f"{parts.scheme}:"
    return f" {target}" if re.fullmatch(r"[A-Za-z0-9+.:/\[\]_-]+", target) else ""


def _language(accepted: str) -> str:
    """The first language of ``Accept-Language`` in which there are words."""
    named = (each.strip().lower()[:2] for each in accepted.split(","))
    return next((language for language in named if language in ("zh", "en")), "en")
