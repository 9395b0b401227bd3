"""Records: frozen groups of named values, checked against their annotations as they are made.

The part of pydantic that settings and memory types need, under its names and with its messages: importing pydantic
takes longer than all the rest of a command. A value of another type is read as pydantic reads it (``"5"`` is a number,
``"yes"`` is true); an annotation is evaluated when a value for it is given.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, Union, dataclass_transform, get_args, get_origin

from memory_core.core.memory.results import as_json

Location = tuple[str | int, ...]
_TRUE = frozenset({"1", "true", "on", "yes", "y", "t"})
_FALSE = frozenset({"0", "false", "off", "no", "n", "f"})


class Fault(NamedTuple):
    """What is wrong with one value.

    Attributes:
        location: Names and list places that lead to it.
        kind: ``missing``, ``extra_forbidden``, ``value_error``, or ``type``.
        message: About it.
        given: The value.
    """

    location: Location
    kind: str
    message: str
    given: Any = None


class RecordInvalid(ValueError):
    """Values that make no record; ``faults`` says why, one at least."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, each.location))}: {each.message}" for each in faults))
        self.faults = faults


class Within(NamedTuple):
    """Bounds of a number, for ``Annotated``: at least, at most, more than."""

    least: float | None = None
    most: float | None = None
    above: float | None = None

    def problem(self, value: Any) -> str | None:
        """What is wrong with a value, or None."""
        if self.least is not None and not value >= self.least:
            return f"Input should be greater than or equal to {self.least:.10g}"
        if self.above is not None and not value > self.above:
            return f"Input should be greater than {self.above:.10g}"
        if self.most is not None and not value <= self.most:
            return f"Input should be less than or equal to {self.most:.10g}"
        return None


class Shaped(NamedTuple):
    """The form of a text, for ``Annotated``: a pattern that is found in it, its most characters, and both in words."""

    pattern: str = ""
    most_chars: int | None = None
    words: str = ""

    def problem(self, value: Any) -> str | None:
        """What is wrong with a value, or None."""
        if self.most_chars is not None and len(value) > self.most_chars:
            return f"String should have at most {self.most_chars} characters"
        if re.search(self.pattern, value) is None:
            return f"String should match pattern '{self.pattern}'"
        return None


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record:
    """A group of values; its annotations say which, a default on the class what is not given.

    Raises:
        RecordInvalid: If a value is unknown, missing, or not what its annotation says.
    """

    def __init__(self, /, **given: Any) -> None:
        faults: list[Fault] = []
        self._fill(given, (), faults)
        if faults:
            raise RecordInvalid(faults)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of its values, in the order of their declaration."""
        return tuple(cls.__annotations__)

    @classmethod
    def model_validate(cls, given: Mapping[str, Any]) -> Self:
        """The record that a mapping describes.

        Raises:
            RecordInvalid: If it describes none.
        """
        return cls(**given)

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """The same with other values, which are not checked."""
        made = object.__new__(type(self))
        made.__dict__.update(self._values(), **update)
        return made

    def as_dict(self) -> dict[str, Any]:
        """Its JSON form, without what is None."""
        return {name: as_json(value) for name, value in self._values().items() if value is not None}

    def problem(self) -> tuple[str, str] | None:
        """What is wrong with the values together: the name of one of them or nothing, and a message; None is well."""
        return None

    def _values(self) -> dict[str, Any]:
        """What it was given, without what was worked out from it and is kept beside."""
        return {name: self.__dict__[name] for name in self.names()}

    def _fill(self, given: Mapping[str, Any], place: Location, faults: list[Fault]) -> None:
        kind: Any = type(self)
        known, before = self.names(), len(faults)
        for name in known:
            if name in given:
                self.__dict__[name] = _read(given[name], hint_of(kind, name), (*place, name), faults)
            elif hasattr(kind, name):
                self.__dict__[name] = getattr(kind, name)
            else:
                faults.append(Fault((*place, name), "missing", "Field required", given))
        for name in given:
            if name not in known:
                message = "Extra inputs are not permitted"
                faults.append(Fault((*place, name), "extra_forbidden", message, given[name]))
        if len(faults) == before and (found := self.problem()) is not None:
            name, message = found
            where = (*place, name) if name else place
            faults.append(Fault(where, "value_error", message, given.get(name)))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and type(other) is type(self) and other._values() == self._values()

    def __hash__(self) -> int:
        return hash(tuple(self._values().values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._values().items())})"


@cache
def hint_of(record: Any, name: str) -> Any:
    """What the annotation of a value of a record says."""
    return eval(record.__annotations__[name], vars(sys.modules[record.__module__]))  # our own annotation


def _read(value: Any, hint: Any, place: Location, faults: list[Fault]) -> Any:
    """The value as its annotation says; where it cannot be, a fault is added."""
    if get_origin(hint) is Annotated:
        hint, *marks = get_args(hint)
        before, value = len(faults), _read(value, hint, place, faults)
        problems = () if len(faults) > before else (mark.problem(value) for mark in marks)
        faults += [Fault(place, "type", problem, value) for problem in problems if problem is not None]
        return value
    if get_origin(hint) in (Union, types.UnionType):
        (other,) = (each for each in get_args(hint) if each is not types.NoneType)
        return None if value is None else _read(value, other, place, faults)
    try:
        if get_origin(hint) is tuple:
            items = enumerate(_expect(value, list | tuple, "a valid tuple"))
            return tuple(_read(item, get_args(hint)[0], (*place, index), faults) for index, item in items)
        if not (isinstance(hint, type) and issubclass(hint, Record)):
            return _scalar(value, hint)
        if isinstance(value, hint):
            return value
        made = object.__new__(hint)
        wanted = f"a valid dictionary or instance of {hint.__name__}"
        made._fill(_expect(value, Mapping, wanted), place, faults)
        return made
    except ValueError as error:
        faults.append(Fault(place, "type", str(error), value))
        return None


def _scalar(value: Any, hint: Any) -> Any:
    if hint in _READERS:
        return _READERS[hint](value)
    choices = get_args(hint) or tuple(each.value for each in hint)
    if value not in choices:
        *others, last = map(repr, choices)
        raise ValueError(f"Input should be {', '.join(others)} or {last}")
    return value if get_origin(hint) is Literal else hint(value)


def _expect(value: Any, kind: Any, wanted: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"Input should be {wanted}")
    return value


def _flag(value: Any) -> bool:
    text = str(_expect(value, str | int | float, "a valid boolean")).casefold()
    if text not in _TRUE | _FALSE:
        raise ValueError("Input should be a valid boolean, unable to interpret input")
    return text in _TRUE


def _number(value: Any) -> float:
    try:
        return float(_expect(value, str | int | float, "a valid number"))
    except (ValueError, OverflowError) as error:
        unread = "Input should be a valid number, unable to parse string as a number"
        raise ValueError(unread if isinstance(value, str) else str(error)) from None


def _whole(value: Any) -> int:
    try:
        number = int(_expect(value, str | int | float, "a valid integer"))
    except (ValueError, OverflowError) as error:
        unread = "Input should be a valid integer, unable to parse string as an integer"
        raise ValueError(unread if isinstance(value, str) else str(error)) from None
    if number != value and not isinstance(value, str):
        raise ValueError("Input should be a valid integer, got a number with a fractional part")
    return number


_READERS: Mapping[Any, Any] = {
    str: lambda value: _expect(value, str, "a valid string"),
    bool: _flag,
    float: _number,
    int: _whole,
    Path: lambda value: Path(_expect(value, str | Path, "a valid path")),
}
