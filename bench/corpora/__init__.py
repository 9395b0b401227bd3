"""Readers of public data sets: each turns files in the set's own format into ``bench.corpus`` values.

No data is shipped; every file is the user's own copy.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.corpora import beam, locomo, madial, memdaily, realtalk
from bench.corpus import Corpus

_EACH = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """An option for each data set; those that are given are read."""
    for name, what in (("locomo", "LoCoMo"), ("realtalk", "REALTALK"), ("beam", "BEAM"), ("memdaily", "MemDaily")):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=f"a file in {what}'s own format")
    parser.add_argument("--madial", type=Path, nargs=2, metavar="FILE", help="MADial-Bench's memories and dialogues")
    parser.add_argument(
        "--each", type=int, default=_EACH, help="trajectories of each scenario of MemDaily (%(default)s)"
    )


def chosen(arguments: argparse.Namespace) -> dict[str, list[Corpus]]:
    """The corpora of each data set that was named, by its name.

    Raises:
        SystemExit: If none was.
    """
    found: dict[str, list[Corpus]] = {}
    if arguments.locomo:
        found["LoCoMo"] = locomo.read(arguments.locomo)
    if arguments.realtalk:
        found["REALTALK"] = realtalk.read(arguments.realtalk)
    if arguments.beam:
        found["BEAM"] = beam.read(arguments.beam)
    if arguments.memdaily:
        pairs = memdaily.read(arguments.memdaily, arguments.each)
        found |= {"MemDaily, a chat": [chat for chat, _ in pairs], "MemDaily, memories": [kept for _, kept in pairs]}
    if arguments.madial:
        found["MADial"] = [madial.read(*arguments.madial)]
    if not found:
        raise SystemExit("name at least one data set, e.g. --locomo locomo10.json")
    return found
