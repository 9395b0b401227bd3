"""``runebook stats``: what is stored, how it is used, how fast it is found, and what models cost."""

from __future__ import annotations

import argparse

from memory_core.features.metrics import STATS, StatsRequest
from server import rendering
from server.commands.opening import Commands, open_memory_of, show


def register(commands: Commands) -> None:
    """Declare ``stats``, also under its former name ``metrics``."""
    command = commands.add(
        "stats", "Show what is stored, how it is used and how fast it is found.", stats, aliases=("metrics",)
    )
    command.add_argument("--all", action="store_true", help="of all users' and agents' spaces in this folder")
    command.add_argument(
        "--prometheus", action="store_true", help="in the text format that Prometheus scrapes, e.g. for a textfile"
    )


def stats(arguments: argparse.Namespace) -> int:
    """Print all figures."""
    with open_memory_of(arguments) as memory:
        figures = memory.run(STATS, StatsRequest(whole=arguments.all))
    if arguments.prometheus:
        from memory_core.features.metrics import exposition

        print(exposition(figures), end="")
        return 0
    show(arguments, figures.as_dict(), rendering.metrics_text(figures))
    return 0
