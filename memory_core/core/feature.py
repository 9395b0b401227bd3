"""Features: slices that add to a store without the core knowing them.

A feature is a module with a ``Feature`` in it. What it adds is listed there: commands, kinds of files that are no
memories, steps of a commit, parts of a context, passes of upkeep. Which features there are is given to whoever opens
a store, as slices: a name, the module, and what it adds by name, so that a module is imported when something of it is
needed and not before. Without a slice everything else works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

from memory_core.core.command import Argument, Command
from memory_core.core.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """What a feature adds.

    Attributes:
        commands: What can be asked of it.
        commit_arguments: By name, what answers an argument of a commit: given the open store, the ``CommitRequest``
            and the value.
        hooks: What the core asks it for, by the hook's name.
    """

    commands: tuple[Command[Any, Any], ...] = ()
    commit_arguments: Mapping[str, Callable[[Any, Any, Any], Any]] = field(default_factory=dict)
    hooks: Mapping[str, Any] = field(default_factory=dict)


class Slice(NamedTuple):
    """A feature that may be taken out.

    Attributes:
        name: Of the feature.
        module: Holds ``FEATURE``.
        words: First words of its commands.
        adds: Names of its hooks.
        arguments: Of a commit that it answers, in the place of storing something.
    """

    name: str
    module: str
    words: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()
    arguments: tuple[Argument, ...] = ()


class Features:
    """The features of an open store; a module is imported when it is first needed.

    Args:
        slices: Which there are.
    """

    def __init__(self, slices: Sequence[Slice] = ()) -> None:
        self._slices = tuple(slices)
        self._hooks: dict[str, tuple[Any, ...]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Which features there are."""
        return tuple(each.name for each in self._slices)

    def without(self, name: str) -> Features:
        """All but one."""
        return Features([each for each in self._slices if each.name != name])

    def hooks(self, name: str) -> tuple[Any, ...]:
        """What the features add under a hook's name, in their order."""
        if name not in self._hooks:
            modules = (each for each in self._slices if name in each.adds)
            self._hooks[name] = tuple(_feature(each).hooks[name] for each in modules)
        return self._hooks[name]

    @property
    def commit_arguments(self) -> tuple[Argument, ...]:
        """Arguments of a commit that features answer."""
        return tuple(argument for each in self._slices for argument in each.arguments)

    def answer(self, memory: Any, commit: Any, name: str, value: Any) -> Any:
        """What a feature makes of an argument of a commit.

        Raises:
            InvalidInput: If there is no such argument.
        """
        for each in self._slices:
            if any(argument.name == name for argument in each.arguments):
                return _feature(each).commit_arguments[name](memory, commit, value)
        raise InvalidInput(f"'{name}' is not an argument.", hint="Leave it out.")

    def commands(self, word: str | None = None) -> Iterator[Command[Any, Any]]:
        """Commands that begin with a word; all of them without one."""
        for each in self._slices:
            if each.words and (word is None or word in each.words):
                for command in _feature(each).commands:
                    if word is None or command.name.split()[0] == word:
                        yield command


def _feature(each: Slice) -> Feature:
    found: Feature = import_module(each.module).FEATURE
    return found
