"""``runebook chat``: a conversation with the configured model in the terminal, or one question with ``--once``.

Owns what a person types and sees; what a turn is, is decided in ``features.chat``. Ctrl-C while an answer is made
cancels the answer, at the prompt it ends the conversation; what was said by then is stored either way.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_core.core.caller import authored, current_author
from memory_core.core.errors import AccessDenied, InvalidInput, RunebookError
from memory_core.core.memory.requests import CommitRequest
from memory_core.features.chat import Chat, ChatRequest
from memory_core.features.forgetting import FORGET, ForgetRequest
from memory_core.features.history import history_of
from memory_core.features.undo import UNDO, UndoRequest
from server.commands.opening import given_text, here, name_and_value, open_memory_of, open_to_search, show
from server.terminal import plain

if TYPE_CHECKING:
    from memory_core.core.memory.results import CommitReceipt
    from memory_core.features.chat import Reply
    from memory_core.runebook import Runebook


_PROMPT = "you> "
_HELP = Path(__file__).with_name("chat_help.txt").read_text(encoding="utf-8").rstrip()
_WORKING = "…"
_COMMITS_LOOKED_AT = 200


def chat(arguments: argparse.Namespace) -> int:
    """Hold a conversation."""
    if arguments.json and arguments.once is None:
        raise InvalidInput("--json goes with --once.", hint="Write runebook chat --once QUESTION --json.")
    metadata: dict[str, Any] = dict(name_and_value("--meta", each) for each in arguments.meta)
    question = None if arguments.once is None else given_text(arguments.once)
    with open_memory_of(arguments) if question is None else open_to_search(arguments) as memory:
        place = here(memory.config)
        held = Chat(memory, ChatRequest(arguments.session, arguments.system, metadata or None, place))
        with authored(f"chat {held.session_id.removeprefix('chat-')}"):
            if question is None:
                gc.enable()  # cli.main switched it off
                return Terminal(memory, held, place).run()
            reply = held.say(question)
    for note in reply.notes:
        print(plain(f"runebook: {note}"), file=sys.stderr)
    show(arguments, reply.as_dict(), reply.answer)
    return 0


class Terminal:
    """A conversation at a terminal, or over a pipe line by line.

    Args:
        memory: The store.
        chat: The conversation.
        here: The project that the person works in.
    """

    def __init__(self, memory: Runebook, chat: Chat, here: str | None) -> None:
        self._memory = memory
        self._chat = chat
        self._here = here
        self._is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        #: The newest commit before each thing that may have stored something; of an answered turn what was said.
        self._before: list[tuple[int, tuple[str, str] | None]] = []
        self._commands: Mapping[str, Callable[[str], None]] = {
            "/help": lambda _rest: self._tell(_HELP),
            "/memories": lambda _rest: self._show_recalled(),
            "/remember": self._remember,
            "/forget": self._forget,
            "/undo": lambda _rest: self._undo(),
            "/private": self._switch_private,
        }

    def run(self) -> int:
        """Talk until the person ends it."""
        session = self._chat.session_id
        if self._is_terminal:
            _edit_lines()
            kept = "Nothing is kept: private mode." if self._chat.private else "It is remembered."
            self._tell(f"Conversation {session}. {kept} /help lists commands, /quit ends.")
        while (line := self._line(_PROMPT)) is not None:
            words = line.strip()
            if words in ("/quit", "/exit"):
                break
            try:
                if line.startswith("/"):
                    self._obey(words)
                elif words:
                    self._turn(words)
            except RunebookError as error:
                self._tell(f"runebook: {error}", to_error=True)
                if self._chat.said is not None and not line.startswith("/"):
                    self._tell("What you said is stored.", to_error=True)
        if self._is_terminal:
            self._tell(f"Go on with: runebook chat --session {session}")
        return 0

    def _line(self, prompt: str) -> str | None:
        """What is typed next; None at the end."""
        try:
            return input(prompt if self._is_terminal else "")
        except (EOFError, KeyboardInterrupt):
            if self._is_terminal:
                print(flush=True)
            return None
        except UnicodeDecodeError as error:
            raise InvalidInput(f"what was typed is not UTF-8: {error}.", hint="Set the terminal to UTF-8.") from error

    def _turn(self, words: str) -> None:
        """Answer, then remember."""
        self._mark()
        self._working(True)
        try:
            answered = self._chat.answer(words)
        except KeyboardInterrupt:
            self._working(False)
            stored = "What you said is stored." if self._chat.said is not None else "Nothing was stored."
            self._tell(f"Cancelled. {stored}", to_error=True)
            return
        finally:
            self._working(False)
        self._before[-1] = (self._before[-1][0], (words, answered.answer))
        self._tell(answered.answer)
        for note in answered.notes:
            self._tell(f"({note})", to_error=True)
        try:
            self._tell_kept(self._chat.remember(answered))
        except KeyboardInterrupt:
            self._tell("Stored; what was not taken in yet waits for the next commit.", to_error=True)

    def _tell_kept(self, reply: Reply) -> None:
        """What became of the turn beside its being stored."""
        if reply.receipt is None:
            return
        changed = [
            result.uri
            for result in reply.receipt.results
            if result.op != "messages" and result.action in ("created", "updated", "deleted")
        ]
        if changed:
            self._tell("\n".join(f"({uri})" for uri in changed), to_error=True)
        for result in reply.receipt.results:
            if result.action == "rejected":
                self._tell(f"(not remembered: {result.reason})", to_error=True)

    def _obey(self, line: str) -> None:
        """Carry out a slash command."""
        name, _, rest = line.partition(" ")
        command = self._commands.get(name)
        if command is None:
            self._tell(f"{name} is no command. /help lists them; to say it, put a blank before it.", to_error=True)
        else:
            command(rest.strip())

    def _show_recalled(self) -> None:
        last = self._chat.last
        if last is None:
            self._tell("Nothing was asked yet.")
            return
        parts = [part.text for part in last.recalled.parts if part.kind != "directory"]
        texts = parts or ["Memory gave nothing new for the last answer."]
        self._tell("\n".join([*texts, *(f"({note})" for note in last.recalled.notes)]))

    def _remember(self, text: str) -> None:
        if not text:
            self._tell("Write /remember TEXT.", to_error=True)
            return
        self._refuse_in_private()
        self._mark()
        self._tell_receipt(self._memory.commit(CommitRequest(text, here=self._here)))

    def _forget(self, query: str) -> None:
        if not query:
            self._tell("Write /forget QUERY.", to_error=True)
            return
        self._refuse_in_private()
        request = ForgetRequest(query=query, here=self._here)
        preview = self._memory.run(FORGET, request)
        going = [result.uri for result in preview.results if result.action in ("deleted", "updated")]
        if not going:
            self._tell("Nothing matches.")
            return
        self._tell("\n".join(f"{result.uri}  {result.note or ''}".rstrip() for result in preview.results))
        answer = self._line(f"To delete what is listed, type how many that is ({len(going)}): ")
        if (answer or "").strip() != str(len(going)):
            self._tell("Nothing was deleted.")
            return
        self._mark()
        self._tell_receipt(self._memory.run(FORGET, replace(request, uris=going, confirm=len(going))))

    def _undo(self) -> None:
        """Take back all commits of the last thing that stored any."""
        self._refuse_in_private()
        while self._before:
            seq, said = self._before[-1]
            found = history_of(self._memory).commits(limit=_COMMITS_LOOKED_AT, files_most=0)
            own = [commit for commit in found if commit.seq > seq and commit.author == current_author()]
            standing = [commit for commit in own if commit.undoes is None and commit.undone_by is None]
            for commit in standing:
                self._tell_receipt(self._memory.run(UNDO, UndoRequest(commit.commit_id)))
            self._before.pop()  # now that all of it is taken back: after an error the next /undo goes on with it
            if said is not None and standing:
                self._chat.drop(*said)
            if standing:
                return
        self._tell("Nothing is left to take back in this conversation.")

    def _switch_private(self, wish: str) -> None:
        if wish in ("on", "off"):
            self._chat.private = wish == "on"
        elif wish:
            self._tell("Write /private on or /private off.", to_error=True)
            return
        self._tell("Private: nothing of what follows is kept." if self._chat.private else "What follows is remembered.")

    def _refuse_in_private(self) -> None:
        if self._chat.private:
            raise AccessDenied("private mode is on: nothing is stored or deleted.", hint="First: /private off")

    def _mark(self) -> None:
        self._before.append((self._memory.store.ledger.newest_seq(), None))

    def _tell_receipt(self, receipt: CommitReceipt) -> None:
        from server import rendering  # with it the MCP library is loaded

        self._tell(rendering.receipt_text(receipt))

    def _tell(self, text: str, *, to_error: bool = False) -> None:
        print(plain(text), file=sys.stderr if to_error else sys.stdout, flush=True)

    def _working(self, on: bool) -> None:
        """Show that an answer is being made, or clear that."""
        if self._is_terminal:
            print(f"{_WORKING}\r" if on else f"{' ' * len(_WORKING)}\r", end="", flush=True)


def _edit_lines() -> None:
    """Arrow keys, and characters that are wider than one column, where the platform has it."""
    with suppress(ImportError):
        import readline  # noqa: F401 - input() uses it once it is imported
