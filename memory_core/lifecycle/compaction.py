"""What must stay in a context that is about to be compressed: open tasks from the store, and a short summary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memory_core.errors import RunebookError
from memory_core.model.changes import CommitReceipt
from memory_core.model.conversation import parse_lines
from memory_core.model.memory_file import parse
from memory_core.model.project import stored_project
from memory_core.model.record import read_record
from memory_core.model.uri import MemoryUri
from memory_core.registry import MemoryTypeRegistry
from memory_core.storage.store import Store
from memory_core.update.bounds import Context
from memory_core.update.working_memory import Task, WorkingMemory, working_memory

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

    def __init__(self, store: Store, registry: MemoryTypeRegistry, context: Context) -> None:
        self._store = store
        self._registry = registry
        self._context = context

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
        memory_type = next((known for known in self._registry.list_all() if known.name == _TASKS), None)
        if memory_type is None:
            return
        directory = self._context.directory(memory_type)
        if not self._store.files.is_dir(directory):
            return
        entries = [entry for entry in self._store.files.entries(directory) if not entry.is_dir]
        newest = sorted(entries, key=lambda entry: -entry.stat.mtime_ns)[:_TASKS_READ]
        for entry in newest:
            if entry.uri.name.startswith(".") or not entry.uri.name.endswith(".md"):
                continue
            try:
                text = self._store.text(entry.uri)
            except RunebookError:
                continue
            if text is None:
                continue
            stem = entry.uri.name.removesuffix(".md")
            record = read_record(memory_type, parse(text), stem)
            if stored_project(memory_type, record.meta) not in (None, project):
                continue
            fields = record.fields
            due = fields.get("due_date")
            title, state = str(fields.get("title") or stem), str(fields.get("state") or "open")
            yield str(entry.uri), title, state.strip().casefold(), str(due) if due else None
