"""Routes of the API for the owner of the store: settings, tokens, and which clients call.

Nobody else may ask: a bearer of a token sees their own memories, and not how the server is run. Where whoever is on
this machine comes in without a token (``http.without_token``), nobody is known as the owner. Pages of other origins
that ``http.allowed_origins`` lets in are no owner either: a setting decides more than a memory.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request

from memory_core.core.memory.results import as_json
from memory_core.core.settings_file import SettingsFile
from memory_core.core.store.issued_tokens import IssuedToken, IssuedTokens, SharedSpace, issue
from server.http.api import Reader, Refusal, route
from server.http.api_answers import NewToken, SettingValue
from server.http.authentication import identity
from server.http.transfers import ForOwner

owners = APIRouter(tags=["owner"])


def expect_owner(request: Request) -> ForOwner:
    """What the owner of the store reaches; nobody else goes on.

    Raises:
        Refusal: For anybody else.
    """
    state = request.app.state
    found: ForOwner | None = state.owner
    if found is None or identity() is not None or request.headers.get("origin") in state.allowed_origins:
        raise Refusal(403, "this is for the owner of the store.", "Ask the owner: runebook ui, on the server itself.")
    return found


Owner = Annotated[ForOwner, Depends(expect_owner)]
OWNER_ALONE = [Depends(expect_owner)]


def _settings(request: Request) -> SettingsFile:
    found: SettingsFile | None = request.app.state.store.settings
    if found is None:
        raise Refusal(503, "this server was given its settings by a program.", "Change them there.")
    return found


def _tokens(owner: Owner) -> IssuedTokens:
    if owner.tokens is None:
        raise Refusal(503, "this server has no table of tokens.", "Use runebook token on the command line.")
    return owner.tokens


Settings = Annotated[SettingsFile, Depends(_settings)]
Tokens = Annotated[IssuedTokens, Depends(_tokens)]


@route(owners, "GET", "/settings", "SettingsAnswer", nulls=True, dependencies=OWNER_ALONE)
def list_settings(settings: Settings) -> Any:
    """Every setting with its value, what it means and where it comes from. For the owner."""
    return {"settings": settings.settings()}


@route(owners, "PUT", "/settings/{name}", "SettingAnswer", nulls=True, dependencies=OWNER_ALONE)
def change_setting(
    settings: Settings,
    name: Annotated[str, Path(max_length=100, examples=["search.rank"])],
    asked: SettingValue,
) -> Any:
    """Write a setting into the settings file, or take it out; followed at once where possible. For the owner."""
    settings.change(name, asked.value)
    return {"setting": next(each for each in settings.settings() if each.name == name)}


@route(owners, "GET", "/clients", "ClientsAnswer", nulls=True, dependencies=OWNER_ALONE)
def clients(memory: Reader) -> Any:
    """Which clients called a tool, and when last. For the owner."""
    memory.store.usage.flush()
    return {"clients": [{"name": name, "at": as_json(at)} for name, at in memory.store.ledger.usage_table.clients()]}


@route(owners, "GET", "/tokens", "TokensAnswer", nulls=True, dependencies=OWNER_ALONE)
def list_tokens(tokens: Tokens) -> Any:
    """The tokens that are not revoked, without their secrets. For the owner."""
    return {"tokens": [_token_facts(row) for row in tokens.rows()]}


@route(owners, "POST", "/tokens", "IssuedAnswer", nulls=True, status_code=201, dependencies=OWNER_ALONE)
def issue_token(memory: Reader, tokens: Tokens, asked: NewToken) -> Any:
    """Issue a token; its text is in this answer and never again. For the owner."""
    token, row = issue(
        tokens,
        memory.config,
        asked.label,
        user_space=asked.user_space,
        agent_space=asked.agent_space,
        read_only=asked.read_only,
        expires_days=asked.expires_days,
        shared=[SharedSpace.parse(text) for text in asked.shared],
    )
    return {"token": token, "issued": _token_facts(row)}


@route(owners, "DELETE", "/tokens/{token_id}", "TokenAnswer", 404, nulls=True, dependencies=OWNER_ALONE)
def revoke_token(tokens: Tokens, token_id: Annotated[str, Path(max_length=64, description="Its id.")]) -> Any:
    """Refuse a token from the next request on. For the owner."""
    return _token_facts(tokens.revoke(token_id))


def _token_facts(row: IssuedToken) -> dict[str, Any]:
    return {**as_json(row), "live": row.is_live(datetime.now(UTC))}


ROUTERS = (owners,)
