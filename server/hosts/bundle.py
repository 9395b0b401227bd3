"""What is published beside the wheel: a bundle that a desktop host installs by a double click, and a registry's entry.

Owns the contents of the ``.mcpb`` file (a zip: manifest, wheel, the lines that have ``uv`` install and start it) and
of ``server.json``, made from templates in ``packaging/`` and the version. The same inputs give the same bytes.
Builds no wheel and publishes nothing.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memory_core.errors import InvalidInput

_ENTRY = "main.py"
_MAIN = '''\
"""Starts the server that this bundle installs."""

import sys

from server.cli import main

sys.exit(main(["serve", *sys.argv[1:]]))
'''
_PYPROJECT = """\
[project]
name = "runebook-bundle"
version = "{version}"
requires-python = ">=3.11"
dependencies = ["runebook=={version}"]

[tool.uv]
package = false

[tool.uv.sources]
runebook = {{ path = "{wheel}" }}
"""
#: No file is older in a zip; a bundle does not depend on the day it is made.
_MOMENT = (1980, 1, 1, 0, 0, 0)
_MODE = 0o644 << 16


def manifest(template: Mapping[str, Any], version: str, tools: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The bundle's manifest.

    Args:
        template: ``packaging/manifest.json``.
        version: The program's version.
        tools: Name and description of each tool; of a description the first sentence is told.
    """
    listed = [{"name": name, "description": _first_sentence(description)} for name, description in tools]
    return {**template, "version": version, "tools": listed}


def registry_entry(template: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The registry's ``server.json``: the version stands in it once for the server and once for each package."""
    packages = [{**package, "version": version} for package in template["packages"]]
    return {**template, "version": version, "packages": packages}


def write_bundle(path: Path, told: Mapping[str, Any], wheel: Path) -> str:
    """Write the bundle.

    Args:
        path: The ``.mcpb`` file to be.
        told: The manifest.
        wheel: The wheel that it installs, of the same version.

    Returns:
        The file's SHA-256, as registries want it.

    Raises:
        InvalidInput: If the wheel is of another version.
    """
    version = told["version"]
    if not wheel.name.startswith(f"runebook-{version}-"):
        raise InvalidInput(f"{wheel.name} is not version {version}.", hint="Build the wheel and the bundle together.")
    contents = {
        "manifest.json": _json(told),
        "pyproject.toml": _PYPROJECT.format(version=version, wheel=wheel.name).encode(),
        _ENTRY: _MAIN.encode(),
        wheel.name: wheel.read_bytes(),
    }
    with zipfile.ZipFile(path, "w") as bundle:
        for name, content in contents.items():
            about = zipfile.ZipInfo(name, _MOMENT)
            about.external_attr = _MODE
            about.compress_type = zipfile.ZIP_STORED if name == wheel.name else zipfile.ZIP_DEFLATED
            bundle.writestr(about, content)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


def _first_sentence(text: str) -> str:
    line = " ".join(text.split())
    return line.partition(". ")[0].rstrip(".") + "."
