"""Prompts: their templates, and the forms in which texts, memory types and messages stand in them.

Templates are shipped files that a user's folders may override, phase by phase and type by type; the table of phases
and their variables is here. A template substitutes ``{variable}`` in one pass: nothing inside a value is expanded, no
attribute is read, no code runs. A broken file is refused when the library is opened, by name and variable, not in the
middle of an extraction. Texts are fenced, and cut where their tokens end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cache
from pathlib import Path

from memory_core.core.errors import ConfigInvalid, InvalidUri
from memory_core.core.frozen import frozen
from memory_core.core.memory.memory_type import PLACEHOLDER, MemoryField, MemoryType, MemoryTypeRegistry, MergeOp
from memory_core.core.memory.message import Message, one_line, transcript_line
from memory_core.core.memory.operations import MemoryChange, MemoryOperations
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.text.tokens import count_tokens
from memory_core.core.text.word_table import word_table

_BACKTICKS = re.compile(r"`+")
_FENCE_CHARS = 3
#: White space costs no token, but a prompt is not to be filled with it.
_MOST_CHARS_PER_TOKEN = 16
_SPARE_CHARS = 200


def fenced(text: str) -> str:
    """``text`` in a Markdown code fence that nothing inside it can close; no line of it is changed."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(_FENCE_CHARS, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def fits(text: str, tokens: int) -> bool:
    """Whether ``text`` costs at most ``tokens``, and is not mostly white space beyond it."""
    return len(text) <= tokens * _MOST_CHARS_PER_TOKEN + _SPARE_CHARS and count_tokens(text) <= tokens


def cut_end(text: str, tokens: int) -> str:
    """The beginning of ``text`` that fits, ended with ``…`` where something was cut."""
    if fits(text, tokens):
        return text
    return text[: _prefix(text, tokens - 1)].rstrip() + "…" if tokens > 0 else ""


def cut_middle(text: str, tokens: int) -> str:
    """``text`` with its middle replaced by a mark that says how much is gone; both ends stay.

    A mark alone is the least that is left.
    """
    if fits(text, tokens):
        return text
    room = max(0, tokens - count_tokens(_mark(len(text))))
    head = text[: _prefix(text, room - room // 3)].rstrip()
    tail = text[len(text) - _prefix(text[::-1], room // 3) :].lstrip()
    return f"{head} {_mark(len(text) - len(head) - len(tail))} {tail}".strip()


def _mark(gone: int) -> str:
    return f"[… {gone} characters left out …]"


def _prefix(text: str, tokens: int) -> int:
    """Length of the longest beginning that fits, found by halving."""
    low, high = 0, min(len(text), max(0, tokens) * _MOST_CHARS_PER_TOKEN + _SPARE_CHARS)
    if tokens <= 0:
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        if fits(text[:middle], tokens):
            low = middle
        else:
            high = middle - 1
    return low


def canonical(uri: str | None) -> str | None:
    """The URI in the form that the store uses, or None if it is none."""
    try:
        return None if uri is None else str(MemoryUri.parse(uri))
    except InvalidUri:
        return None


_EXAMPLES = re.compile(r"\s*(?:Examples?:|For example|例[:：]).*", re.DOTALL)
_SENTENCE = re.compile(r"[.。!！?？](?:\s|$)|(?<=[。！？])")


class Detail(IntEnum):
    """How much is said of each type."""

    NAMES = 0
    SENTENCE = 1
    DESCRIPTION = 2
    FIELDS = 3
    EXAMPLES = 4


@frozen
class TypeGuide:
    """Describes the types of one registry for one user and agent.

    Attributes:
        registry: The types.
        prompts: May replace descriptions.
        user_space: What ``{user_space}`` stands for; likewise ``agent_space``.
    """

    registry: MemoryTypeRegistry
    prompts: PromptLibrary
    user_space: str = "default"
    agent_space: str = "default"

    def directory(self, memory_type: MemoryType) -> str:
        """The URI of the directory of a type's memories, without a slash at the end."""
        text = memory_type.directory.replace("{user_space}", self.user_space)
        return str(MemoryUri.parse(text.replace("{agent_space}", self.agent_space)))

    def directories(self) -> list[str]:
        """The directories of all types, each once, the user's first."""
        found = dict.fromkeys(self.directory(memory_type) for memory_type in self.registry.list_all())
        return sorted(found, key=lambda uri: (uri.startswith("viking://agent"), uri))

    def text(self, budget_tokens: int) -> str:
        """All types in the richest detail that fits; the barest one where none does.

        For example ``- preferences: fields topic [immutable], content [patch]. What the user …``,
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
        directory = self.directory(memory_type)
        place = "" if directory.endswith(f"/{memory_type.name}") else f" ({directory})"
        head = f"- {memory_type.name}{place}: fields {names}."
        if detail is Detail.NAMES:
            return head
        told = self.prompts.type_description(memory_type.name)
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


#: Share of a conversation's budget that messages before it may take on top.
EARLIER_SHARE = 0.15
#: Share of a prompt's free room that the conversation may take, earlier messages included.
_CONVERSATION_SHARE = 0.5
_OWN_LANGUAGE = "the language that the user writes in"
_USER_SHARE = 0.5
_OTHER_SHARE = 0.25
_TOOL_SHARE = 0.1
_NUMBER_TOKENS = 5
_STAMP_TOKENS = 12
_TIMES = "(A message without a day or time has those of the message above it.)"
#: Less of a text than this is not worth showing.
_LEAST_TOKENS = 24
#: A window ends early, at a user's message, if it is at least so full.
_FULL_ENOUGH = 0.5


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages of one session to extract memories from.

    Attributes:
        session_id: The session.
        messages: What to extract from; message 1 of ``hints`` is the first of these.
        earlier: Messages before them that were extracted already: context only.
        language: Language of the memories, as shown to the model; empty is the one the user writes in.
        hints: What the system noticed, such as "message 12 looks like a correction".
    """

    session_id: str
    messages: tuple[Message, ...]
    earlier: tuple[Message, ...] = ()
    language: str = ""
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the model made of a conversation.

    Attributes:
        operations: To be committed; empty when there is nothing worth remembering, and then ``reasoning`` says why.
        seen: SHA-256 of the text of each file as the model saw it, by URI; for conflicts at the commit.
        reasoning: The model's, in a few sentences.
        summary: The conversation in two or three sentences, if the model gave one.
        dropped: What was left out and why: malformed items, ignored actions, operations on unread files.
        decisions: What the model decided about each candidate.
    """

    operations: MemoryOperations
    seen: Mapping[str, str]
    reasoning: str
    summary: str | None
    dropped: tuple[str, ...]
    decisions: tuple[MemoryChange, ...]


def conversation_budget(available_tokens: int) -> int:
    """Tokens of messages that one extraction takes, of those that a prompt has left beside its static part."""
    return int(available_tokens * _CONVERSATION_SHARE / (1 + EARLIER_SHARE))


def language_line(language: str) -> str:
    """The language of the memories, in words."""
    return one_line(language) or _OWN_LANGUAGE


def hint_lines(hints: Sequence[str], budget_tokens: int) -> str:
    """What the system noticed, one line each; empty without hints."""
    lines = [f"- {one_line(hint)}" for hint in hints]
    return cut_end("\n".join(["Noticed by the system:", *lines]), budget_tokens) if lines else ""


def windows(messages: Sequence[Message], budget_tokens: int) -> list[tuple[int, int]]:
    """Windows ``(start, end)`` that cover all messages in order, each within the budget.

    A window ends before a user's message where that leaves it at least half full, else before a message that is
    no tool's answer. A message longer than its share of the budget is shortened when it is shown, and counts so.

    Args:
        messages: The conversation.
        budget_tokens: As ``conversation_budget`` says.
    """
    windows: list[tuple[int, int]] = []
    frame = count_tokens(_TIMES) + _STAMP_TOKENS
    start, used = 0, frame
    costs = [
        count_tokens(numbered_message(message, 1, budget_tokens, before)) + _NUMBER_TOKENS
        for message, before in zip(messages, _before(messages), strict=True)
    ]
    for index, cost in enumerate(costs):
        if used + cost > budget_tokens and index > start:
            end = _border(messages, costs, start, index)
            windows.append((start, end))
            start, used = end, frame + sum(costs[end:index])
        used += cost
    return [*windows, (start, len(messages))] if start < len(messages) else windows


def _border(messages: Sequence[Message], costs: Sequence[int], start: int, end: int) -> int:
    enough = sum(costs[start:end]) * _FULL_ENOUGH
    for allowed in (("user",), ("user", "assistant")):
        used = sum(costs[start:end])
        for border in range(end, start, -1):
            if used < enough:
                break
            if messages[border].role in allowed:
                return border
            used -= costs[border - 1]
    return end


def numbered_message(message: Message, number: int, budget_tokens: int, before: Message | None = None) -> str:
    """A message as the model sees it: ``[12] [2024-03-05 10:00] Ann: …``, further lines indented.

    Long texts and tool answers lose their middle.

    Args:
        message: The message.
        number: Its number in the conversation, from 1.
        budget_tokens: Of the whole conversation; a user's message may take half of it, others a quarter.
        before: The message above it, whose day, or whose day and minute, is not said again.
    """
    share = _USER_SHARE if message.role == "user" else _OTHER_SHARE
    whole = max(_LEAST_TOKENS, int(budget_tokens * share))
    answer = max(_LEAST_TOKENS, int(budget_tokens * _TOOL_SHARE))
    results = tuple(replace(result, text=cut_middle(result.text, answer)) for result in message.tool_results)
    line = transcript_line(replace(message, text=cut_middle(message.text, whole), tool_results=results), None)
    if before is not None and before.time is not None and message.time is not None:
        day, minute = f"{message.time:%Y-%m-%d}", f"{message.time:%H:%M}"
        if day == f"{before.time:%Y-%m-%d}":
            line = line.removeprefix(f"[{day} {minute}] ")
            line = line if minute == f"{before.time:%H:%M}" else f"[{minute}] {line}"
    return f"[{number}] " + "\n  ".join(cut_middle(line, whole).splitlines())


def transcript(messages: Sequence[Message], budget_tokens: int) -> tuple[str, int]:
    """The messages, numbered from 1, as many of the last as fit.

    Returns:
        The text, and how many of the first messages were left out.
    """
    lines: list[str] = []
    used = count_tokens(_TIMES)
    above = _before(messages)
    for number in range(len(messages), 0, -1):
        line = numbered_message(messages[number - 1], number, budget_tokens, above[number - 1])
        used += count_tokens(line) + 1
        if lines and used + (_STAMP_TOKENS if number > 1 else 0) > budget_tokens:
            break
        lines.append(line)
    left_out = len(messages) - len(lines)
    if lines:
        lines[-1] = numbered_message(messages[left_out], left_out + 1, budget_tokens)
    if len(lines) > 1 and above[-1] is not None:
        lines.append(_TIMES)
    return "\n".join(reversed(lines)), left_out


def _before(messages: Sequence[Message]) -> list[Message | None]:
    """The message above each, where all have a time."""
    if any(message.time is None for message in messages):
        return [None] * len(messages)
    return [None, *messages[:-1]][: len(messages)]


def earlier_talk(messages: Sequence[Message], budget_tokens: int) -> str:
    """Earlier messages for context, the last ones that fit, each short."""
    each = max(_LEAST_TOKENS, budget_tokens // 4)
    lines: list[str] = []
    used = 0
    for message in reversed(messages):
        line = "- " + cut_middle(" ".join(transcript_line(message, None).split()), each)
        used += count_tokens(line) + 1
        if used > budget_tokens:
            break
        lines.append(line)
    return "\n".join(reversed(lines))


SIZE_LIMIT_BYTES = 64 * 1024
TYPES_FOLDER = "types"
_SHIPPED = Path(__file__).parent / "templates"
_IGNORED = frozenset({"README.md", "readme.md"})


@dataclass(frozen=True, slots=True)
class Phase:
    """One template: when it is used, what its variables hold, and which of them it must not leave out."""

    purpose: str
    variables: Mapping[str, str] = field(default_factory=dict)
    required: Sequence[str] = ()


@cache
def phases() -> Mapping[str, Phase]:
    """Every phase by its name, from the table beside this module."""
    return {name: Phase(**phase) for name, phase in word_table(__file__).items()}


class PromptLibrary:
    """The templates in force.

    Args:
        prompt_dirs: Folders whose files replace shipped ones of the same name; later folders win. A file
            ``types/<memory_type>.md`` replaces the description of that memory type in prompts.

    Raises:
        ConfigInvalid: If a folder or file cannot be read, names no phase, or uses variables wrongly.
    """

    def __init__(self, prompt_dirs: Sequence[Path] = ()) -> None:
        self._templates = {name: _checked(name, _SHIPPED / f"{name}.md") for name in phases()}
        self._types: dict[str, str] = {}
        for given in prompt_dirs:
            folder = given.expanduser()
            for path in _markdown(folder):
                if path.name in _IGNORED:
                    continue
                if path.stem not in phases():
                    known = ", ".join(phases())
                    raise ConfigInvalid(
                        f"{path} names no prompt.", hint=f"Prompts are: {known}; rename or remove the file."
                    )
                self._templates[path.stem] = _checked(path.stem, path)
            if (folder / TYPES_FOLDER).is_dir():
                self._types |= {path.stem: _read(path).strip() for path in _markdown(folder / TYPES_FOLDER)}

    def render(self, phase: str, values: Mapping[str, str] | None = None) -> str:
        """The text of a phase.

        A line of the template that holds nothing but variables without text is left out.

        Args:
            phase: A key of ``phases``.
            values: A text for each of its variables; one that is not given is empty.
        """
        given = values or {}
        lines: list[str] = []
        for line in self._templates[phase].split("\n"):
            parts = PLACEHOLDER.split(line)
            filled = "".join(given.get(part, "") if at % 2 else part for at, part in enumerate(parts))
            if filled.strip() or len(parts) == 1:
                lines.append(filled)
        return "\n".join(lines).strip()

    def type_description(self, name: str) -> str | None:
        """The user's own description of a memory type, or None."""
        return self._types.get(name)


def _checked(name: str, path: Path) -> str:
    text = _read(path).strip()
    phase = phases()[name]
    used = set(PLACEHOLDER.findall(text))
    for unknown in sorted(used - phase.variables.keys()):
        known = ", ".join(f"{{{variable}}}" for variable in phase.variables) or "none"
        message = f"{path} uses the unknown variable {{{unknown}}}."
        raise ConfigInvalid(message, hint=f"The variables of '{name}' are: {known}.")
    for missing in sorted(set(phase.required) - used):
        hint = f"Put {{{missing}}} where it should stand: {phase.variables[missing]}"
        raise ConfigInvalid(f"{path} does not use the variable {{{missing}}}.", hint=hint)
    return text


def _markdown(folder: Path) -> list[Path]:
    try:
        found = sorted(folder.iterdir())
    except OSError as error:
        raise ConfigInvalid(
            f"the prompt folder {folder} cannot be listed: {error.strerror}.",
            hint="Create the folder, or take it out of the setting prompt_dirs.",
        ) from error
    return [path for path in found if path.suffix == ".md" and not path.name.startswith(".")]


def _read(path: Path) -> str:
    try:
        if not path.is_file():
            raise ConfigInvalid(f"{path} is not a file.", hint="Remove it from the prompt folder.")
        with path.open("rb") as stream:
            raw = stream.read(SIZE_LIMIT_BYTES + 1)
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        raise ConfigInvalid(f"{path} cannot be read: {error.strerror}.", hint="Mend its permissions.") from error
    except UnicodeDecodeError as error:
        raise ConfigInvalid(f"{path} is not UTF-8 text.", hint="Save the file as UTF-8.") from error
    if len(raw) > SIZE_LIMIT_BYTES:
        raise ConfigInvalid(f"{path} is larger than {SIZE_LIMIT_BYTES // 1024} KiB.", hint="Shorten it.")
    if not text.strip() or "\x00" in text:
        raise ConfigInvalid(f"{path} holds no usable text.", hint="Write the prompt, or remove the file.")
    return text
