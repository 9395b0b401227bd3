"""Build what is published: the wheel, the bundle for desktop hosts, the registry's entry.

    python packaging/build.py [--out DIR] [--wheel FILE]

Writes ``runebook-VERSION-py3-none-any.whl``, ``runebook-VERSION.mcpb`` and ``server.json`` into DIR (default ``dist``),
and prints each with its SHA-256, as registries want it. The bundle is a zip that a desktop host installs by a double
click: manifest, wheel, and the lines that have ``uv`` install and start it. The same inputs give the same bytes. Needs
an environment with Runebook's dependencies and pip; reaches the network only as far as pip does for the build's own
requirement. Publishes nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))  # the sources beside this script are what is built, installed or not

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


def main() -> int:
    """Build everything; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="DIR", help="where to (default dist)")
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="bundle this wheel instead of building one")
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    wheel = arguments.wheel or build_wheel(out, version)
    bundle = out / f"runebook-{version}.mcpb"
    write_bundle(bundle, manifest(template("manifest.json"), version, asyncio.run(tools())), wheel)
    entry = out / "server.json"
    entry.write_bytes(as_json(registry_entry(template("server.json"), version)))
    for path in (wheel, bundle, entry):
        sys.stdout.write(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path}\n")
    return 0


def build_wheel(out: Path, version: str) -> Path:
    """The wheel of the sources beside this script, by hatchling through pip."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(out), str(ROOT)], check=True)
    return out / f"runebook-{version}-py3-none-any.whl"


def template(name: str) -> dict[str, Any]:
    """A template beside this script."""
    read: dict[str, Any] = json.loads((HERE / name).read_text(encoding="utf-8"))
    return read


def as_json(value: Mapping[str, Any]) -> bytes:
    """JSON as it is published."""
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


def manifest(template: Mapping[str, Any], version: str, tools: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The bundle's manifest.

    Args:
        template: ``manifest.json``.
        version: The program's version.
        tools: Name and description of each tool; the first sentence of a description is listed.
    """
    listed = [{"name": name, "description": _first_sentence(description)} for name, description in tools]
    return {**template, "version": version, "tools": listed}


def registry_entry(template: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The registry's ``server.json``: the version stands in it once for the server and once for each package."""
    packages = [{**package, "version": version} for package in template["packages"]]
    return {**template, "version": version, "packages": packages}


def write_bundle(path: Path, contents: Mapping[str, Any], wheel: Path) -> None:
    """Write the bundle.

    Args:
        path: The ``.mcpb`` file to be.
        contents: The manifest.
        wheel: The wheel that it installs, of the same version.

    Raises:
        ValueError: If the wheel is of another version.
    """
    version = contents["version"]
    if not wheel.name.startswith(f"runebook-{version}-"):
        raise ValueError(f"{wheel.name} is not version {version}: build the wheel and the bundle together")
    files = {
        "manifest.json": as_json(contents),
        "pyproject.toml": _PYPROJECT.format(version=version, wheel=wheel.name).encode(),
        "main.py": _MAIN.encode(),
        wheel.name: wheel.read_bytes(),
    }
    with zipfile.ZipFile(path, "w") as bundle:
        for name, content in files.items():
            about = zipfile.ZipInfo(name, _MOMENT)
            about.external_attr = _MODE
            about.compress_type = zipfile.ZIP_STORED if name == wheel.name else zipfile.ZIP_DEFLATED
            bundle.writestr(about, content)


def _first_sentence(text: str) -> str:
    line = " ".join(text.split())
    return line.partition(". ")[0].rstrip(".") + "."


async def tools() -> list[tuple[str, str]]:
    """Name and description of each tool, as a client is told."""
    from server.protocol.app import build_server

    def opener() -> Any:
        raise AssertionError("listing tools opens no store")

    return [(tool.name, tool.description or "") for tool in await build_server(opener).list_tools()]


if __name__ == "__main__":
    sys.exit(main())
