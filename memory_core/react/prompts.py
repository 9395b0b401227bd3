"""Prompt templates: shipped files that a user's folders may override, phase by phase and type by type.

Owns the table of phases and their variables. A template substitutes ``{variable}`` in one pass: nothing inside a
value is expanded, no attribute is read, no code runs. A broken file is refused when the library is opened, by name
and variable, not in the middle of an extraction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from memory_core.errors import ConfigInvalid
from memory_core.model.schema import PLACEHOLDER

SIZE_LIMIT_BYTES = 64 * 1024
TYPES_FOLDER = "types"
_SHIPPED = Path(__file__).parent / "templates"
_IGNORED = frozenset({"README.md", "readme.md"})

_RULES = "The rules of the phase `rules`."
_TYPES = "The memory types: one line each, their fields below."
_LANGUAGE = "Language of the memories."
_CONTEXT = "What is stored: directories, their summaries, and the memories nearest to the conversation."


@dataclass(frozen=True, slots=True)
class Phase:
    """One template: when it is used, what its variables hold, and which of them it must not leave out."""

    purpose: str
    variables: Mapping[str, str] = field(default_factory=dict)
    required: frozenset[str] = frozenset()


PHASES: Mapping[str, Phase] = {
    "rules": Phase("What to remember, how to decide, how operations look; part of `system` and `brief`."),
    "system": Phase(
        "The static part of every request; the same for every conversation, so that providers can cache it.",
        {"rules": _RULES, "types": _TYPES, "rounds": "How many rounds of reading there may be."},
        frozenset({"types"}),
    ),
    "step": Phase(
        "The first turn.",
        {
            "context": _CONTEXT,
            "conversation": "The messages, numbered.",
            "earlier": "Messages before them, for context only; may be empty.",
            "hints": "What the system noticed; may be empty.",
            "language": _LANGUAGE,
        },
        frozenset({"conversation", "context"}),
    ),
    "readings": Phase(
        "What a round of reading brought.",
        {"purpose": "Why these texts are shown.", "readings": "The texts."},
        frozenset({"readings"}),
    ),
    "final": Phase("Added when no more reading is possible."),
    "repair": Phase(
        "Operations that were refused.",
        {"problems": "Each operation with reason and hint.", "files": "Current texts of the files concerned."},
        frozenset({"problems", "files"}),
    ),
    "retry": Phase(
        "After an answer that could not be used.", {"problem": "What was wrong with it."}, frozenset({"problem"})
    ),
    "brief": Phase(
        "The whole task for a client's own model: the prompt `extract_memories` and receipts of commit_memory.",
        {
            "rules": _RULES,
            "types": _TYPES,
            "context": _CONTEXT,
            "conversation": "The stored messages, or empty when the client has them.",
            "hints": "What the system noticed; may be empty.",
            "language": _LANGUAGE,
            "call": "The call that hands the operations in, with the session's id.",
            "nothing": "What to do when nothing is worth remembering.",
            "where": "Which messages are meant.",
            "schema": "JSON schema of the operations.",
        },
        frozenset({"types", "call", "schema", "conversation"}),
    ),
    "chat": Phase(
        "The system prompt of `runebook chat`.",
        {
            "relationship": "What the assistant is to the user; the setting `chat.relationship`.",
            "style": "A hint at the style; the setting `chat.style`, or empty.",
            "instructions": "What `--system` adds; may be empty.",
        },
    ),
    "chat_turn": Phase(
        "One message of the user in `runebook chat`.",
        {
            "recalled": "What memory holds for it, in a fenced block; may be empty.",
            "metadata": "What the caller says about the conversation, in a fenced block; may be empty.",
            "time": "Date and time.",
            "words": "What the user said.",
        },
        frozenset({"recalled", "words"}),
    ),
    "summaries": Phase("Summaries of old memories, logs and conversations, many in one request, during maintenance."),
}


class PromptLibrary:
    """The templates in force.

    Args:
        prompt_dirs: Folders whose files replace shipped ones of the same name; later folders win. A file
            ``types/<memory_type>.md`` replaces the description of that memory type in prompts.

    Raises:
        ConfigInvalid: If a folder or file cannot be read, names no phase, or uses variables wrongly.
    """

    def __init__(self, prompt_dirs: Sequence[Path] = ()) -> None:
        self._templates = {name: _checked(name, _SHIPPED / f"{name}.md") for name in PHASES}
        self._types: dict[str, str] = {}
        for given in prompt_dirs:
            folder = given.expanduser()
            for path in _markdown(folder):
                if path.name in _IGNORED:
                    continue
                if path.stem not in PHASES:
                    raise ConfigInvalid(
                        f"{path} names no prompt.", hint=f"Prompts are: {', '.join(PHASES)}; rename or remove the file."
                    )
                self._templates[path.stem] = _checked(path.stem, path)
            if (folder / TYPES_FOLDER).is_dir():
                self._types |= {path.stem: _read(path).strip() for path in _markdown(folder / TYPES_FOLDER)}

    def render(self, phase: str, values: Mapping[str, str] | None = None) -> str:
        """The text of a phase.

        A line of the template that holds nothing but variables without text is left out.

        Args:
            phase: A key of ``PHASES``.
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


def describe() -> Iterator[tuple[str, Mapping[str, str]]]:
    """Each phase with its variables and what they hold, for documentation."""
    for name, phase in PHASES.items():
        yield name, phase.variables


def _checked(name: str, path: Path) -> str:
    text = _read(path).strip()
    phase = PHASES[name]
    used = set(PLACEHOLDER.findall(text))
    unknown = sorted(used - phase.variables.keys())
    if unknown:
        known = ", ".join(f"{{{variable}}}" for variable in phase.variables) or "none"
        raise ConfigInvalid(
            f"{path} uses the unknown variable {{{unknown[0]}}}.", hint=f"The variables of '{name}' are: {known}."
        )
    missing = sorted(phase.required - used)
    if missing:
        raise ConfigInvalid(
            f"{path} does not use the variable {{{missing[0]}}}.",
            hint=f"Put {{{missing[0]}}} where it should stand: {phase.variables[missing[0]]}",
        )
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
