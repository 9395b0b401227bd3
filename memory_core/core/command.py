"""Commands: what can be asked of a store, each declared once.

A command has a request, a frozen dataclass, and a function that answers it. The command line, the HTTP API, the
channel between processes and the MCP tools are made from the declaration: the request's docstring is the help, each of
its fields is an argument with a type, a default and an ``Arg``. ``read_request`` is how a surface turns what came in
into a request; nothing below it reads a mapping.

Knows no surface, and, beside errors and ``frozen``, imports only the standard library.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from memory_core.core.errors import InvalidInput
from memory_core.core.frozen import frozen

#: Who may send an argument.
Surface = Literal["mcp", "cli", "api"]
EVERYWHERE: frozenset[Surface] = frozenset({"mcp", "cli", "api"})
NOWHERE: frozenset[Surface] = frozenset()

Q = TypeVar("Q")
A = TypeVar("A", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arg:
    """How an argument is given.

    Attributes:
        help: A line about it.
        cli: The same on the command line, where it reads otherwise there.
        surfaces: Who may send it; nowhere is for callers of the library.
        positional: On the command line, without a flag.
        flag: On the command line, instead of the field's name.
        metavar: What stands for its value there.
        is_file: On the command line the name of a JSON file, or ``-`` for standard input.
        usual: The default on the command line, where that is another.
        repeatable: On the command line it may be given several times.
        least: Smallest number.
        most: Largest number.
        choices: The values there are, where that is not any.
    """

    help: str = ""
    cli: str = ""
    surfaces: frozenset[Surface] = EVERYWHERE
    positional: bool = False
    flag: str = ""
    metavar: str = ""
    is_file: bool = False
    usual: Any = None
    repeatable: bool = False
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()


@frozen
class Argument:
    """One field of a request.

    Attributes:
        name: Of the field.
        type: Its annotation without the ``Arg``.
        arg: How it is given.
        required: Whether it has no default.
        default: What it is where it is not given.
    """

    name: str
    type: Any
    arg: Arg
    required: bool = False
    default: Any = None


@frozen
class Command(Generic[Q, A]):
    """Something that can be asked of a store.

    Attributes:
        name: One or two words: ``undo``, ``archive list``.
        request: The dataclass of its arguments.
        run: Answers a request on an open store; what it returns has a JSON form, ``results.as_json``.
        help: What it does, in a line; default the first one of the request.
        member: Name of what it returns in its JSON form, where that is no object.
        text: What it returns, for people; None is what a surface makes of its type.
        fails: Whether it returned a failure, for an exit status.
        searches: Whether it is of little use without the model, which is then waited for.
        writes: Whether the store may change.
    """

    name: str
    request: type[Q]
    run: Callable[[Any, Q], A]
    help: str = ""
    member: str = ""
    text: Callable[[A], str] | None = None
    fails: Callable[[Any], bool] = lambda _result: False
    searches: bool = False
    writes: bool = False

    @property
    def about(self) -> str:
        """What it does, in a line."""
        return self.help or (inspect.getdoc(self.request) or self.name).split("\n", 1)[0]


@cache
def arguments(request: Any) -> tuple[Argument, ...]:
    """The arguments of a request, in the order of its fields."""
    hints = get_type_hints(request, include_extras=True)
    found: list[Argument] = []
    for field in dataclasses.fields(request):
        hint, arg = hints[field.name], Arg()
        if get_origin(hint) is Annotated:
            hint, *marks = get_args(hint)
            arg = next((mark for mark in marks if isinstance(mark, Arg)), arg)
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        found.append(Argument(field.name, hint, arg, required, None if required else default))
    return tuple(found)


def read_request(request: type[Q], given: Mapping[str, Any], surface: Surface | None = None) -> Q:
    """The request in what a caller sent; None stands for what was left out.

    Args:
        request: The dataclass.
        given: Values by name; JSON values, or those of Python.
        surface: Where they came in; None takes every argument.

    Raises:
        InvalidInput: If a name is unknown, a value is of another type or out of bounds, or one is missing.
    """
    declared: Any = request
    known = {each.name: each for each in arguments(declared) if surface is None or surface in each.arg.surfaces}
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InvalidInput(f"'{unknown[0]}' is not an argument.", hint=f"Arguments are: {', '.join(known)}.")
    values: dict[str, Any] = {}
    for name, argument in known.items():
        if given.get(name) is not None:
            values[name] = read_value(given[name], argument)
        elif argument.required:
            raise InvalidInput(f"'{name}' is missing.", hint=f"Send it: {argument.arg.help or name}")
    return request(**values)


def read_value(value: Any, argument: Argument) -> Any:
    """A value as an argument's type.

    Raises:
        InvalidInput: If it is none of that type, or out of bounds.
    """
    fitting = [found for one in _branches(argument.type) if (found := _as(value, one)) is not _NO]
    if not fitting:
        raise InvalidInput(
            f"'{argument.name}' takes {_described(argument.type)}, not {type(value).__name__}.",
            hint=f"Send it so: {argument.arg.help or argument.name}",
        )
    found, arg = fitting[0], argument.arg
    if arg.choices and found not in arg.choices:
        raise InvalidInput(f"{argument.name} {found!r} is unknown.", hint=f"Use one of: {', '.join(arg.choices)}.")
    if isinstance(found, int | float) and not isinstance(found, bool):
        low, high = arg.least, arg.most
        if (low is not None and found < low) or (high is not None and found > high):
            raise InvalidInput(f"{argument.name} {found} is out of range.", hint=f"Use {_bounds(low, high)}.")
    return found


_NO = object()


def _branches(hint: Any) -> Iterator[Any]:
    """The types of a union; the narrow ones first, so that ``True`` is a flag and ``5`` a number."""
    if get_origin(hint) in (Union, types.UnionType):
        yield from sorted(get_args(hint), key=lambda one: (one is str, one is float))
    else:
        yield hint


def _as(value: Any, hint: Any) -> Any:
    """The value as one type, or ``_NO``."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or (isinstance(hint, type) and hint is not type(None) and _is_plain(hint, value)):
        return value
    if origin is Literal:
        return value if value in inner else _NO
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return _NO
    if hint is datetime and isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            return _NO
    if origin in (list, tuple, Sequence) and isinstance(value, list | tuple):
        items = [next((i for b in _branches(inner[0]) if (i := _as(item, b)) is not _NO), _NO) for item in value]
        return _NO if any(item is _NO for item in items) else tuple(items) if origin is tuple else items
    if origin in (dict, Mapping) and isinstance(value, Mapping):
        return dict(value)
    return _NO


def _is_plain(hint: type, value: Any) -> bool:
    if hint in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, hint)


def _described(hint: Any) -> str:
    names = {str: "text", int: "a whole number", float: "a number", bool: "true or false", datetime: "an ISO time"}
    words = []
    for one in _branches(hint):
        if get_origin(one) is Literal:
            words.append(f"one of {', '.join(map(str, get_args(one)))}")
        elif get_origin(one) in (list, tuple, Sequence):
            words.append("a list")
        elif get_origin(one) in (dict, Mapping):
            words.append("an object")
        elif one in names:
            words.append(names[one])
    return " or ".join(words) or "another value"


def _bounds(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return f"at least {low:.10g}" if low is not None else f"at most {high:.10g}"
    return f"{low:.10g} to {high:.10g}"
