"""The documents are read once and understood: sentences of a length, plain words, commands and settings that exist."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_core.core.config import settings
from server.cli import command_line

ROOT = Path(__file__).parent.parent
#: The changelog is a record, and the reference is made from the code.
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if "reference" not in path.parts)]
_WORDS_MOST = 45
_PASSIVES_MOST = 3
#: A picture, a feeling, or a word that only its author reads as meant.
_UNCLEAR = re.compile(
    r"\b(?:vivid\w*|fades?|strays?|"
    r"whisper\w*|dwell\w*|slumber\w*|linger\w*|tapestry|journey of|seamless\w*|effortless\w*|magic\w*|"
    r"leverag\w+|utili[sz]e\w*|delve\w*|hereby|thereof|wherein|whilst|one matter|aforementioned|robustly|powerful|"
    r"simply|obviously|just works|blazing\w*|state of the art|cutting[- ]edge)\b",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_PASSIVE = re.compile(
    r"\b(?:is|are|was|were|be|been|being)\s+(?:not\s+|never\s+|always\s+|only\s+)?"
    r"(?:\w+ed|kept|made|found|told|given|shown|sent|taken|read|written|known|left|held|built|run|done|brought|said)\b"
)
#: Members of code and names of figures that begin like a setting, and ends of files.
_OTHERS = frozenset({"store.lock", "store.files"})
_ENDINGS = (".py", ".json", ".jsonl", ".md", ".sh")
_SPAN = re.compile(r"`([^`\n]+)`")


def prose(text: str) -> Iterator[str]:
    """The sentences of a page, without code, tables, headings and addresses."""
    text = re.sub(r"<!--.*?-->", "", _FENCE.sub("", text), flags=re.DOTALL)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+\.) )", text):
        if paragraph.lstrip().startswith(("|", "#", "<", "![")):
            continue
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", _SPAN.sub("code", " ".join(paragraph.split())))
        yield from re.split(r"(?<=[.!?:;])\s+|(?<=[.!?])\*\*\s+", re.sub(r"^[-*+] |^\d+\. ", "", plain))


def sentences() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for sentence in prose(page.read_text(encoding="utf-8")):
            yield page.relative_to(ROOT).as_posix(), sentence


def _words(sentence: str) -> int:
    """How many words it has; a row of links is none."""
    return 0 if sentence.count(" · ") > 2 else len(re.findall(r"[\w’'-]+", sentence))


def test_no_sentence_is_so_long_that_it_is_read_twice() -> None:
    assert [found for found in sentences() if _words(found[1]) > _WORDS_MOST] == []


def test_no_sentence_is_a_chain_of_passives() -> None:
    assert [found for found in sentences() if len(_PASSIVE.findall(found[1])) >= _PASSIVES_MOST] == []


def test_words_are_plain() -> None:
    assert [(*found, word[0]) for found in sentences() if (word := _UNCLEAR.search(found[1]))] == []


def options() -> dict[str, set[str]]:
    """The long options of each command."""
    parser = command_line().parser
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return {
        name: {option for action in command._actions for option in action.option_strings}
        for name, command in commands.choices.items()
    }


def command_texts(text: str) -> Iterator[str]:
    """Command lines of the program in blocks and spans, without comments."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from (line.partition(" #")[0] for line in block.splitlines())
    yield from _SPAN.findall(_FENCE.sub("", text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_and_options_that_are_written_exist(page: Path) -> None:
    known = options()
    for text in command_texts(page.read_text(encoding="utf-8")):
        for command, rest in re.findall(r"(?:^|[\s/(])runebook ([a-z]+)\b([^|&;)]*)", text):
            assert command in known, text
            written = {option.partition("=")[0] for option in re.findall(r"(?<!\S)--[a-z][a-z-]*", rest)}
            assert written <= known[command], text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_settings_that_are_written_exist(page: Path) -> None:
    known = {name for name, _, _ in settings()}
    if page.name == "metrics.md":  # the figures of an index have names like settings
        known |= set(re.findall(r"`(index\.\w+)`", page.read_text(encoding="utf-8")))
    sections = {name.partition(".")[0] for name in known if "." in name}
    for text in command_texts(page.read_text(encoding="utf-8")):
        for name in re.findall(r"(?<![\w./])([a-z_]+\.[a-z_]+(?:\.[a-z_]+)?)(?![\w./(*])", text):
            if name.partition(".")[0] in sections and name not in _OTHERS and not name.endswith(_ENDINGS):
                assert any(each == name or each.startswith(f"{name}.") for each in known), name
