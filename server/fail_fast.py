"""Types that refuse a value at its first faults, so that a wrong value costs no more than one that is right.

pydantic keeps each fault with what was given, and describes all of them before the first can be read.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Union, cast, get_args, get_origin

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

#: More unknown members than are ever named.
_UNKNOWN_KEPT = 5


class _FailFast:
    """Mark of a list or an object that is read up to the first item that is wrong."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = cast("dict[str, Any]", handler(source))
        return cast("CoreSchema", {**schema, "fail_fast": True})


FAIL_FAST = _FailFast()


def fail_fast_type(kind: Any) -> Any:
    """A type whose lists and objects, where it says what they hold, are read up to the first item that is wrong."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return Union.__getitem__(tuple(map(fail_fast_type, inner)))
    if origin in (list, Sequence):
        return Annotated[types.GenericAlias(list, inner), FAIL_FAST]
    if origin in (dict, Mapping):
        return Annotated[types.GenericAlias(dict, inner), FAIL_FAST]
    return kind


def with_few_unknown(given: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The members that are known, and so many of the others as show that there are others."""
    kept = set(islice((name for name in given if name not in known), _UNKNOWN_KEPT))
    return {name: value for name, value in given.items() if name in known or name in kept}
