"""The version of the program that is installed."""

from __future__ import annotations

import os
import re
import sys
from functools import cache

_METADATA = re.compile(r"runebook-([^-]+)\.(?:dist-info|egg-info)", re.IGNORECASE)


@cache
def program_version() -> str:
    """The version of Runebook that was installed when it was first asked for."""
    return installed_version()


def installed_version() -> str:
    """The version of Runebook that is installed now; ``0+unknown`` where it runs without being installed.

    Read from the name of the folder that installers leave: ``importlib.metadata`` costs more than a hook may take.
    """
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208  pathlib would make a path of each name
        except OSError:
            continue
        if found := next(filter(None, map(_METADATA.fullmatch, names)), None):
            return found[1]
    return _recorded()


def _recorded() -> str:
    """Where the package comes from elsewhere than a folder: an archive, or an importer of its own."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("runebook")
    except PackageNotFoundError:
        return "0+unknown"
