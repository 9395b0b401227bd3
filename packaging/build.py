"""Build what is published: the wheel, the bundle for desktop hosts, the registry's entry.

    python packaging/build.py [--out DIR] [--wheel FILE]

Writes ``runebook-VERSION-py3-none-any.whl``, ``runebook-VERSION.mcpb`` and ``server.json`` into DIR (default ``dist``),
and prints each with its SHA-256. Needs an environment with Runebook's dependencies and pip; reaches the network only as
far as pip does for the build's own requirement. Publishes nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from server.hosts.host_setup import manifest, registry_entry, write_bundle

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))  # the sources beside this script are what is built, installed or not


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
    shown = json.dumps(registry_entry(template("server.json"), version), ensure_ascii=False, indent=2)
    entry.write_text(f"{shown}\n", encoding="utf-8", newline="\n")
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


async def tools() -> list[tuple[str, str]]:
    """Name and description of each tool, as a client is told."""
    from server.protocol.app import build_server

    def opener() -> Any:
        raise AssertionError("listing tools opens no store")

    return [(tool.name, tool.description or "") for tool in await build_server(opener).list_tools()]


if __name__ == "__main__":
    sys.exit(main())
