"""The version of the program that is installed."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def program_version() -> str:
    """The installed version of Runebook; ``0+unknown`` where it runs without being installed."""
    try:
        return version("runebook")
    except PackageNotFoundError:
        return "0+unknown"
