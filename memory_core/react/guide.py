"""How memory types are described to a model: where they live, their fields, what belongs into them.

Owns the wording of the type list, one line a type and one a field, and its levels of detail: the richest that
fits a token budget is taken, so that a user's fifty types still leave room for the conversation. Fields that
nobody should write (averages, and counts that the system keeps) are left out.
"""

from __future__ import annotations

import re
from enum import IntEnum

from memory_core.model.schema import MemoryField, MemoryType, MergeOp
from memory_core.model.uri import MemoryUri
from memory_core.react.fencing import one_line
from memory_core.react.prompts import PromptLibrary
from memory_core.registry import MemoryTypeRegistry
from memory_core.scoring.tokens import count_tokens

_EXAMPLES = re.compile(r"\s*(?:Examples?:|For example|例[:：]).*", re.DOTALL)
_SENTENCE = re.compile(r"[.。!！?？](?:\s|$)|(?<=[。！？])")


class Detail(IntEnum):
    """How much is said of each type."""

    NAMES = 0
    SENTENCE = 1
    DESCRIPTION = 2
    FIELDS = 3
    EXAMPLES = 4


class TypeGuide:
    """Describes the types of one registry for one user and agent.

    Args:
        registry: The types.
        prompts: May replace descriptions.
        user_space: What ``{user_space}`` stands for; likewise ``agent_space``.
    """

    def __init__(
        self,
        registry: MemoryTypeRegistry,
        prompts: PromptLibrary,
        user_space: str = "default",
        agent_space: str = "default",
    ) -> None:
        self.registry = registry
        self._prompts = prompts
        self._user_space = user_space
        self._agent_space = agent_space

    def directory(self, memory_type: MemoryType) -> str:
        """The URI of the directory of a type's memories, without a slash at the end."""
        text = memory_type.directory.replace("{user_space}", self._user_space)
        return str(MemoryUri.parse(text.replace("{agent_space}", self._agent_space)))

    def directories(self) -> list[str]:
        """The directories of all types, each once, the user's first."""
        found = dict.fromkeys(self.directory(memory_type) for memory_type in self.registry.list_all())
        return sorted(found, key=lambda uri: (uri.startswith("viking://agent"), uri))

    def text(self, budget_tokens: int) -> str:
        """All types in the richest detail that fits; the barest one where none does.

        For example ``- preferences (viking://…): fields topic [immutable], content [patch]. What the user …``,
        and below it ``  - topic: What the preference is about.``
        """
        for detail in reversed(Detail):
            text = "\n".join(self._entry(memory_type, detail) for memory_type in self.registry.list_all())
            if count_tokens(text) <= budget_tokens:
                break
        return text

    def _entry(self, memory_type: MemoryType, detail: Detail) -> str:
        fields = writable_fields(memory_type)
        names = ", ".join(f"{field.name} [{field.merge_op}]" for field in fields)
        head = f"- {memory_type.name} ({self.directory(memory_type)}): fields {names}."
        if detail is Detail.NAMES:
            return head
        told = self._prompts.type_description(memory_type.name)
        description = one_line(memory_type.description if told is None else told)
        if detail is Detail.SENTENCE and told is None:
            description = _first_sentence(description)
        lines = [f"{head} {description}".rstrip()]
        if detail >= Detail.DESCRIPTION:
            keys = memory_type.key_fields
            told_of = [field for field in fields if detail >= Detail.FIELDS or field.name in keys]
            lines += [_field_line(field, detail is Detail.EXAMPLES or field.name in keys) for field in told_of]
        return "\n".join(line for line in lines if line)


def writable_fields(memory_type: MemoryType) -> list[MemoryField]:
    """The fields that a model may write: no averages, and no counts of a type that the system counts."""
    unwritable = {MergeOp.AVG, MergeOp.SUM} if memory_type.template_mode else {MergeOp.AVG}
    return [field for field in memory_type.fields if field.merge_op not in unwritable]


def counted_fields(memory_type: MemoryType) -> frozenset[str]:
    """Names of the fields that the system derives or counts by itself."""
    writable = {field.name for field in writable_fields(memory_type)}
    return frozenset(field.name for field in memory_type.fields) - writable


def _field_line(field: MemoryField, examples: bool) -> str:
    text = one_line(field.description if examples else _EXAMPLES.sub("", field.description))
    return f"  - {field.name}: {text}" if text else ""


def _first_sentence(text: str) -> str:
    found = _SENTENCE.search(text)
    return text if found is None else text[: found.end()].strip()
