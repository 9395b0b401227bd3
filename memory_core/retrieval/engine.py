"""The context engine of one store: arguments as a caller gives them, in; a context pack, out.

Checks what was asked, binds the search to the project at hand, and notes the retrieval once, not each search of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from memory_core.config import Config
from memory_core.errors import InvalidInput
from memory_core.model.conversation import parse_messages
from memory_core.model.hits import ContextPack, FindResult
from memory_core.model.project import ProjectScope
from memory_core.model.uri import MemoryUri
from memory_core.registry import MemoryTypeRegistry
from memory_core.retrieval.browse import Browser
from memory_core.retrieval.context import ContextBuilder, ContextRequest, Fit
from memory_core.retrieval.insight import Insight
from memory_core.retrieval.intent import is_small_talk
from memory_core.retrieval.pieces import Spaces
from memory_core.retrieval.retriever import Retriever
from memory_core.storage.ledger import Ledger
from memory_core.storage.tables.injections import InjectionTable

LEAST_TOKENS, MOST_TOKENS = 200, 10_000
_TOOLS_LIMIT = 100
_NAME_CHARS = 200


class ContextEngine:
    """Retrieves context from one store.

    Args:
        config: Settings.
        ledger: Names, counts, and what sessions were given.
        registry: Memory types.
        browser: Reads files.
        retriever: Searches.
        insight: Keeps the trail, and knows the memories used most.
        traces: Whether it is kept what sessions are given.
    """

    def __init__(
        self,
        config: Config,
        ledger: Ledger,
        registry: MemoryTypeRegistry,
        browser: Browser,
        retriever: Retriever,
        insight: Insight,
        *,
        traces: bool = True,
    ) -> None:
        self._config = config
        self._retriever = retriever
        self._insight = insight
        spaces = Spaces(config.user_space, config.agent_space)
        self._sessions = spaces.sessions
        self._builder = ContextBuilder(
            browser,
            ledger,
            registry,
            _Given(ledger.injections, config.user_space, kept=traces),
            config.retrieve,
            spaces,
            is_small_talk,
        )

    def retrieve(
        self,
        query: str | None = None,
        *,
        messages: Sequence[Any] | None = None,
        session_id: str | None = None,
        tool: str | Sequence[str] | None = None,
        skill: str | None = None,
        token_budget: int | None = None,
        format: str = "blocks",
        fresh: bool = False,
        project: ProjectScope,
        now: datetime | None = None,
        fit: Fit = lambda _pack, _budget: None,
    ) -> ContextPack:
        """Context for an agent's next step, inside a token budget; see ``Memory.retrieve``."""
        started = time.perf_counter()
        moment = now or datetime.now().astimezone()  # days of logs are those of the clock on the wall
        request = ContextRequest(
            now=moment,
            query=query if query and query.strip() else None,
            said=_said(messages),
            session_id=None if session_id is None else self._session(session_id),
            tools=_names(tool),
            skill=None if skill is None else _name(skill, "skill"),
            token_budget=_budget(self._config.retrieve.token_budget if token_budget is None else token_budget),
            form=format,
            fresh=fresh,
            project=project,
        )

        def find(query: str, *, limit: int, filter: Mapping[str, Any] | None) -> FindResult:
            return self._retriever.find(query, limit=limit, filter=filter, now=now, project=project)

        def hot(limit: int) -> list[str]:
            return [memory.uri for memory in self._insight.hot(None, project)][:limit]

        def holding(limit: int) -> list[str]:
            return self._insight.standing(limit, project, now)

        pack = self._builder.build(request, find, hot, holding, fit)
        self._insight.note(
            "retrieve",
            next(iter(request.questions(self._config.retrieve.query_messages)), ""),
            [(item.uri, item.score or 0.0) for part in pack.parts if part.kind != "directory" for item in part.items],
            milliseconds=1_000 * (time.perf_counter() - started),
            session_id=request.session_id,
            project=project.current,
            now=now,
        )
        return pack

    def _session(self, session_id: str) -> str:
        """The session's folder name."""
        if "/" in session_id or not session_id.strip():
            raise InvalidInput(f"session_id {session_id!r} cannot be a folder name.", hint="Use letters, digits, '-'.")
        self._insight.check_name("session_id", session_id)
        return MemoryUri.parse(f"{self._sessions}/{session_id}").name


class _Given:
    """What one user's sessions were given before; another user's of the same name are other sessions.

    Args:
        table: Where it is kept.
        user_space: Whose sessions.
        kept: Whether anything is added to it.
    """

    def __init__(self, table: InjectionTable, user_space: str, *, kept: bool) -> None:
        self._table = table
        self._space = user_space
        self._kept = kept

    def seen(self, session: str) -> dict[str, str]:
        """What a session was given, while that was kept."""
        return self._table.seen(f"{self._space}/{session}")

    def record(self, session: str, items: Mapping[str, str], at: str) -> None:
        """Note what it is given now."""
        if self._kept:
            self._table.record(f"{self._space}/{session}", items, at)

    def forget(self, session: str) -> None:
        """Let everything be given again."""
        if self._kept:
            self._table.forget(f"{self._space}/{session}")


def _said(messages: Sequence[Any] | None) -> tuple[str, ...]:
    if not messages:
        return ()
    return tuple(message.text for message in parse_messages(messages) if message.role == "user")


def _names(tool: str | Sequence[str] | None) -> tuple[str, ...]:
    given = [tool] if isinstance(tool, str) else list(tool or ())
    if len(given) > _TOOLS_LIMIT:
        raise InvalidInput(f"{len(given)} tools are too many.", hint=f"Name the {_TOOLS_LIMIT} that matter.")
    return tuple(dict.fromkeys(_name(name, "tool") for name in given))


def _name(name: str, argument: str) -> str:
    if not name.strip() or len(name) > _NAME_CHARS or "\x00" in name:
        raise InvalidInput(f"{argument} is no name.", hint=f"Give a name of 1 to {_NAME_CHARS} characters.")
    return name.strip()


def _budget(tokens: int) -> int:
    if not LEAST_TOKENS <= tokens <= MOST_TOKENS:
        raise InvalidInput(
            f"token_budget {tokens} is out of range.", hint=f"Use {LEAST_TOKENS} to {MOST_TOKENS:,} tokens."
        )
    return tokens
