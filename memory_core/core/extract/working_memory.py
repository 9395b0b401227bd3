"""What must stay in a context that is about to be compressed: open tasks from the store, and a short summary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from memory_core.core.caches import tallied
from memory_core.core.commit.working_copy import PlanContext
from memory_core.core.errors import RunebookError
from memory_core.core.memory.memory import Memory, parse
from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.memory.message import Message, language_of, parse_lines
from memory_core.core.memory.names import key_of, summary_line
from memory_core.core.memory.results import CommitReceipt
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.files import Entry
from memory_core.core.store.local import Store
from memory_core.core.text.language import in_language, sentences, without_machine_text
from memory_core.core.text.tokens import count_tokens
from memory_core.core.text.word_table import word_pattern, word_table

#: URI, title, state and due date (``YYYY-MM-DD``, or None) of a stored task.
Task: TypeAlias = tuple[str, str, str, str | None]

_OPEN_STATES = frozenset({"open", "in_progress"})
_DONE_STATES = frozenset({"completed", "complete", "done", "cancelled", "canceled", "deleted"})
_BEGINNING_MESSAGES, _END_MESSAGES = 100, 1_000
_TASKS_SHARE = 0.5
_TASK_LIMIT_CHARS = 160
_DECISIONS_LIMIT = 4
_SENTENCES_LIMIT = 2

_CHECKBOX = re.compile(r"^[ \t]*(?:[-*+]|\d+[.)])[ \t]+\[([ xX])\][ \t]+(\S.*)$", re.MULTILINE)
_TODO = re.compile(r"^[ \t>*#-]*(?:[Tt][Oo]-?[Dd][Oo]|待办(?:事项)?)[ \t]*[:：][ \t]*(\S.*)$", re.MULTILINE)
#: Chinese sentences follow each other without a space.
_WIDE_MARK = re.compile(r"(?<=[。！？…”」]) ")


@dataclass(frozen=True, slots=True)
class WorkingMemory:
    """What a compressed context has to keep.

    Attributes:
        open_tasks: One line each, soonest due first.
        summary: A few lines; empty when there is nothing to tell.
    """

    open_tasks: tuple[str, ...] = ()
    summary: str = ""

    def as_dict(self) -> dict[str, Any]:
        """JSON form, as a receipt holds it; empty when there is nothing to keep."""
        if not self.open_tasks and not self.summary:
            return {}
        return {"open_tasks": list(self.open_tasks), "summary": self.summary}

    def text(self) -> str:
        """Tasks as a list, then the summary."""
        return "\n".join([*(f"- [ ] {task}" for task in self.open_tasks), *([self.summary] if self.summary else [])])


def working_memory(
    messages: Sequence[Message], tasks: Sequence[Task], summary: str | None, token_budget: int = 600
) -> WorkingMemory:
    """What of a conversation and of the stored tasks must stay.

    Args:
        messages: The conversation; of a long one its beginning and its end tell.
        tasks: Stored tasks in any order and state; only ``open`` and ``in_progress`` ones are kept.
        summary: The model's, or None: then sentences are extracted.
        token_budget: Most tokens of ``text()`` by ``count_tokens``. Tasks may take half of it, more where the
            summary leaves room; what is due last leaves first.
    """
    messages = _telling(messages)
    labels = in_language(word_table(__file__)["labels"], language_of(messages))
    lines = _open_tasks(messages, tasks, labels)
    kept = _within((), lines, int(token_budget * _TASKS_SHARE))
    left = token_budget - count_tokens(WorkingMemory(kept).text())
    told = _extract(messages, labels, left) if summary is None or not summary.strip() else _cut(summary.strip(), left)
    spent = count_tokens(told)
    return WorkingMemory(_within(kept, lines[len(kept) :], token_budget - spent), told)


def _telling(messages: Sequence[Message]) -> Sequence[Message]:
    """The beginning and the end of a conversation; the end begins alike for many messages, so few are read anew."""
    start = (len(messages) - _END_MESSAGES) // _END_MESSAGES * _END_MESSAGES
    return messages if start <= _BEGINNING_MESSAGES else [*messages[:_BEGINNING_MESSAGES], *messages[start:]]


def _open_tasks(messages: Sequence[Message], tasks: Sequence[Task], labels: Mapping[str, str]) -> list[str]:
    stored = sorted((task for task in tasks if task[2] in _OPEN_STATES), key=lambda task: (not task[3], task[3] or ""))
    lines: dict[str, str] = {}
    for uri, title, state, due in stored:
        facts = [labels["in_progress"]] if state == "in_progress" else []
        facts += [labels["due"].format(day=due)] if due else []
        name = summary_line(title, _TASK_LIMIT_CHARS)
        lines.setdefault(_key(title), f"{name} ({', '.join([*facts, uri])})")
    settled = {_key(task[1]) for task in tasks if task[2] not in _OPEN_STATES}
    for item in tallied(_SaidTasks, messages).unfinished():
        if _key(item) not in settled:
            lines.setdefault(_key(item), summary_line(item, _TASK_LIMIT_CHARS))
    return list(lines.values())


class _SaidTasks:
    """The tasks of a conversation: the last list that a tool was given, and what the text names."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}
        self._listed: list[tuple[str, bool]] = []

    def add(self, message: Message) -> None:
        for call in message.tool_calls:
            self._listed = _todo_list(call.arguments) or self._listed
        if message.role not in ("user", "assistant"):
            return
        text = without_machine_text(message.text)
        for mark, item in _CHECKBOX.findall(text):
            if mark == " ":
                self._said[_key(item)] = item.strip()
            else:
                self._said.pop(_key(item), None)
        self._said |= {_key(item): item.strip() for item in _TODO.findall(text)}

    def copy(self) -> _SaidTasks:
        twin = _SaidTasks()
        twin._said, twin._listed = self._said.copy(), self._listed
        return twin

    def unfinished(self) -> list[str]:
        """Open items of the list, then those in the text that nobody ticked off."""
        finished = {_key(item) for item, is_open in self._listed if not is_open}
        said = (item for key, item in self._said.items() if key not in finished)
        return [*(item for item, is_open in self._listed if is_open), *said]


def _todo_list(arguments: Any) -> list[tuple[str, bool]]:
    """Items of a to-do list in a call's arguments, with whether each is open; empty where there is none."""
    given = arguments if isinstance(arguments, Mapping) else {}
    entries = next((given[key] for key in ("todos", "plan") if key in given), None)
    found: list[tuple[str, bool]] = []
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping):
            text = next((entry[key] for key in ("content", "step", "title", "text") if key in entry), None)
            if isinstance(text, str) and text.strip():
                found.append((text, str(entry.get("status", "")).casefold() not in _DONE_STATES))
    return found


def _extract(messages: Sequence[Message], labels: Mapping[str, str], budget: int) -> str:
    """Labelled sentences: first and last request, decisions, last answer, as far as the budget goes."""
    told = tallied(_Highlights, messages)
    # In order of need: a small budget keeps what the work is about before how it was answered.
    pieces = {"first": told.first, "last": told.last, "decided": told.decided, "answered": told.answered}
    chosen: dict[str, list[str]] = {name: [] for name in ("first", "decided", "last", "answered")}
    for name, picked in pieces.items():
        for sentence in picked:
            chosen[name].append(sentence)
            if count_tokens(_shown(chosen, labels)) > budget:
                chosen[name].pop()
    return _shown(chosen, labels)


class _Highlights:
    """The sentences that tell most of a conversation, a few of each kind."""

    def __init__(self) -> None:
        self.first: Sequence[str] = ()
        self.last: Sequence[str] = ()
        self.decided: Sequence[str] = ()
        self.answered: Sequence[str] = ()

    def add(self, message: Message) -> None:
        said = _sentences(message.text) if message.role in ("user", "assistant") else ()
        if not said:
            return
        if message.name:  # of several people one must not get the words of another
            said = tuple(f"{message.name}: {sentence}" for sentence in said)
        decided = [sentence for sentence in said if word_pattern(__file__, "decided").search(sentence)]
        self.decided = (*self.decided, *decided)[-_DECISIONS_LIMIT:]
        if message.role == "assistant":
            self.answered = said[:_SENTENCES_LIMIT]
        elif not self.first:
            self.first = said[:_SENTENCES_LIMIT]
        else:
            self.last = said[:_SENTENCES_LIMIT]

    def copy(self) -> _Highlights:
        return copy(self)


def _shown(chosen: Mapping[str, Sequence[str]], labels: Mapping[str, str]) -> str:
    lines = [f"{labels[name]}{_joined(found)}" for name, found in chosen.items() if found]
    return "\n".join([labels["extract"], *lines]) if lines else ""


def _joined(said: Iterable[str]) -> str:
    return _WIDE_MARK.sub("", " ".join(said))


def _sentences(text: str) -> tuple[str, ...]:
    """What was said, a sentence an item, without tasks; list items and headings without their marks."""
    said = _TODO.sub("", _CHECKBOX.sub("", without_machine_text(text)))
    lines = (" ".join(sentence.split()).lstrip("-*+#• ") for sentence in sentences(said))
    return tuple(line for line in lines if any(char.isalnum() for char in line))


def _within(kept: tuple[str, ...], more: Iterable[str], budget: int) -> tuple[str, ...]:
    """``kept`` and as many further lines, in order, as the budget holds."""
    lines = list(kept)
    for line in more:
        if count_tokens(WorkingMemory((*lines, line)).text()) > budget:
            break
        lines.append(line)
    return tuple(lines)


def _cut(text: str, budget: int) -> str:
    """The text, or as many of its sentences from the first as the budget holds."""
    if count_tokens(text) <= budget:
        return text
    kept: list[str] = []
    for sentence in sentences(text):
        if count_tokens(_joined([*kept, sentence, "…"])) > budget:
            break
        kept.append(sentence)
    return _joined([*kept, "…"]) if kept else ""


def _key(text: str) -> str:
    return key_of({"title": text.strip(" .。")}, ("title",))


_TASKS = "tasks"
#: Files of tasks that are opened, the last changed first.
_TASKS_READ = 200


class Compactor:
    """Adds working memory to receipts of conversations.

    Args:
        store: Holds logs and tasks.
        registry: Knows the type ``tasks``, if there is one.
        context: Names its directory.
    """

    def __init__(self, store: Store, registry: MemoryTypeRegistry, context: PlanContext) -> None:
        self._store = store
        self._registry = registry
        self._context = context
        #: Tasks by their files as they looked; replaced as a whole, never changed.
        self._read: dict[Entry, Memory | None] = {}

    def completed(self, receipt: CommitReceipt) -> CommitReceipt:
        """The receipt of a conversation with what its context must keep; a model's summary comes first."""
        log = next((result.uri for result in receipt.results if result.op == "messages"), None)
        if log is None:
            return receipt
        kept = self.kept(MemoryUri.parse(log), (receipt.working_memory or {}).get("summary"))
        return replace(receipt, working_memory=kept.as_dict() or None)

    def kept(self, log: MemoryUri, summary: str | None = None) -> WorkingMemory:
        """What must stay of a stored conversation; ``summary`` is a model's."""
        messages, _ = parse_lines(self._store.text(log) or "")
        project = messages[-1].project if messages else None
        return working_memory(messages, list(self._tasks(project)), summary)

    def _tasks(self, project: str | None) -> Iterator[Task]:
        """Stored tasks of a project and of none, as (uri, title, state, due date)."""
        memory_type = self._registry.find(_TASKS)
        if memory_type is None:
            return
        directory = self._context.directory(memory_type)
        if not self._store.files.is_dir(directory):
            return
        entries = [
            entry
            for entry in self._store.files.entries(directory)
            if not entry.is_dir and not entry.uri.name.startswith(".") and entry.uri.name.endswith(".md")
        ]
        newest = sorted(entries, key=lambda entry: -entry.stat.mtime_ns)[:_TASKS_READ]
        read = {entry: self._read.get(entry) or self._memory(entry.uri) for entry in newest}
        self._read = read
        for entry, memory in read.items():
            if memory is None or memory.project not in (None, project):
                continue
            fields = memory.fields
            due = fields.get("due_date")
            title = str(fields.get("title") or entry.uri.name.removesuffix(".md"))
            state = str(fields.get("state") or "open")
            yield str(entry.uri), title, state.strip().casefold(), str(due) if due else None

    def _memory(self, uri: MemoryUri) -> Memory | None:
        try:
            text = self._store.text(uri)
        except RunebookError:
            return None
        return None if text is None else parse(uri, text, self._registry)
