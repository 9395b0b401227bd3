"""``@frozen``: a dataclass with slots that nobody changes, cheap to declare.

``dataclass(frozen=True, slots=True)`` compiles six methods for each class, which was half of what a command took to
start; here one is compiled, and type checkers see to it that nothing is set afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(declared: type[T]) -> type[T]:
    """The class as a dataclass with ``__init__``, ``__eq__``, ``__hash__`` and ``__repr__``, unless it has its own."""
    made = dataclass(slots=True, eq=False, repr=False)(declared)
    compared = [each.name for each in fields(made) if each.compare]  # type: ignore[arg-type]
    values = attrgetter(*compared) if compared else lambda _self: ()

    def is_equal(self: Any, other: Any) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(values(self))

    for name, method in (("__eq__", is_equal), ("__hash__", hashed), ("__repr__", _shown)):
        if name not in vars(declared):
            setattr(made, name, method)
    return made


def _shown(self: Any) -> str:
    members = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(members)})"
