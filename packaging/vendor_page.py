"""Fetches the libraries of the page from npm, as files served as they are: ``python packaging/vendor_page.py``.

What is fetched stands in ``WANTED``; what came stands in ``server/page/vendor/vendored.json``: version, licence, the
registry's own hash of the package and ours of the file. A test compares the files with it. Needs npm and the network;
users need neither.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

VENDOR = Path(__file__).parents[1] / "server" / "page" / "vendor"
RECORD = "vendored.json"


class Wanted(NamedTuple):
    """One library: its exact version, the file of the package that is served, and as what."""

    package: str
    version: str
    file: str
    served: str


WANTED = (Wanted("cytoscape", "3.34.4", "dist/cytoscape.esm.min.mjs", "cytoscape.js"),)


def main() -> None:
    """Fetch all of them, and write down what came."""
    VENDOR.mkdir(exist_ok=True)
    record = [_fetched(each) for each in WANTED]
    (VENDOR / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _fetched(wanted: Wanted) -> dict[str, str]:
    name = f"{wanted.package}@{wanted.version}"
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(
            ["npm", "pack", name, "--json", "--pack-destination", folder], check=True, capture_output=True
        )
        told = json.loads(packed.stdout)[0]
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as package:
            served = _member(package, wanted.file)
            licence = _member(package, "LICENSE")
            facts = json.loads(_member(package, "package.json"))
    (VENDOR / wanted.served).write_bytes(served)
    (VENDOR / f"{wanted.package}.LICENSE.txt").write_bytes(licence)
    return {
        "package": wanted.package,
        "version": wanted.version,
        "license": facts["license"],
        "integrity": told["integrity"],
        "file": wanted.served,
        "from": wanted.file,
        "sha256": hashlib.sha256(served).hexdigest(),
    }


def _member(package: tarfile.TarFile, name: str) -> bytes:
    found = package.extractfile(f"package/{name}")
    assert found is not None, f"the package has no {name}"
    return found.read()


if __name__ == "__main__":
    main()
