"""Follow README and tutorial word by word, as somebody new does, on every Python of this machine.

    python -m tests.newcomer.follow [--python 3.12] [--from clone|wheel] [--keep]

For each Python from 3.11 on that is found, and each way in, it makes a fresh account: a clone of the last commit in
which the README's commands install the program, or an environment into which a built wheel is installed. There the
tutorial's commands are run in one shell, in their order. Prints what it does and one line for each; the exit status is
1 where something stumbled. Needs what pip needs to install the requirements.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
WAYS = ("clone", "wheel")
_OLDEST = 11
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: The README's own tests are not for a newcomer.
_TESTS = "pytest"
#: A page is open when its address is printed; who looked at it ends it.
_HELPERS = """\
set -e
opened() {
  "$@" > opened.log 2>&1 &
  local page=$! tries=0
  until grep -q "http://127.0.0.1" opened.log; do
    tries=$((tries + 1)); [ "$tries" -lt 1200 ] || { cat opened.log; exit 1; }
    sleep 0.1
  done
  kill "$page"; wait "$page" || true
}
"""
_PAGE = re.compile(r"^(\S*runebook ui)\b", re.MULTILINE)


def main() -> int:
    """Follow the pages on each Python and way in."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", action="append", metavar="VERSION", help="only this one, e.g. 3.12; repeatable")
    parser.add_argument("--from", dest="ways", action="append", choices=WAYS, help="only this way in; repeatable")
    parser.add_argument("--keep", action="store_true", help="keep the accounts")
    arguments = parser.parse_args()
    failed = 0
    for version, python in pythons().items():
        if arguments.python and version not in arguments.python:
            continue
        for way in arguments.ways or WAYS:
            folder = Path(tempfile.mkdtemp(prefix=f"newcomer-{version}-{way}-"))
            began = time.monotonic()
            done = subprocess.run(
                ["bash", "-c", script(way, folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                cwd=folder,
                env=account(folder, python),
                check=False,
            )
            failed += done.returncode != 0
            if done.returncode:
                print(done.stdout)
            said = "stumbled" if done.returncode else "done"
            print(f"Python {version}, from a {way}: {said} in {time.monotonic() - began:.0f} s", flush=True)
            if not arguments.keep:
                shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


def pythons() -> dict[str, str]:
    """The interpreters from 3.11 on that are on this machine, one of each version: of the path, and of pyenv."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [*versions.glob("*/bin/python3"), *map(Path, filter(None, map(shutil.which, _names())))]
    found: dict[tuple[int, int], str] = {}
    for python in places:
        asked = subprocess.run(
            [str(python), "-c", "import sys, venv, ensurepip; print(*sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode == 0:
            major, minor = map(int, asked.stdout.split())
            found.setdefault((major, minor), str(python))
    return {f"3.{minor}": python for (major, minor), python in sorted(found.items()) if (major, minor) >= (3, _OLDEST)}


def _names() -> Iterator[str]:
    yield "python3"
    yield from (f"python3.{minor}" for minor in range(_OLDEST, 20))


def account(folder: Path, python: str) -> dict[str, str]:
    """The variables of somebody whose ``python3`` is this one, with a home of their own and no browser."""
    home, programs = folder / "home", folder / "bin"
    home.mkdir()
    programs.mkdir()
    shim = programs / "python3"
    shim.write_text(f'#!/bin/sh\nexec "{python}" "$@"\n', encoding="utf-8")
    shim.chmod(0o700)
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TMPDIR", "PIP_INDEX_URL") if name in os.environ}
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    return {**kept, **pip, "HOME": str(home), "BROWSER": "true", "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin"}


def script(way: str, folder: Path) -> str:
    """The shell's script: how the program comes in, then the tutorial."""
    if way == "clone":
        begin = [f'git clone --quiet "{ROOT}" clone', "cd clone", *blocks("README.md")]
    else:
        begin = [
            f'git clone --quiet "{ROOT}" sources',
            "python3 -m venv .venv",
            f'.venv/bin/pip wheel --quiet --no-deps --wheel-dir "{folder}" ./sources',
            ".venv/bin/pip install --quiet ./runebook-*.whl",
        ]
    steps = [*begin, *blocks("docs/tutorial.md")]
    return _HELPERS + "set -x\n" + "\n".join(_PAGE.sub(r"opened \1", step) for step in steps)


def blocks(page: str) -> list[str]:
    """The shell commands of a page, as they stand there."""
    return [block for block in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8")) if _TESTS not in block]


if __name__ == "__main__":
    sys.exit(main())
