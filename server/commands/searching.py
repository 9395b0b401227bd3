"""Finding: search, context, looking around, and what became of it all."""

from __future__ import annotations

import argparse
import json
import sys

from memory_core.core.memory.requests import FindRequest, ReadRequest, RetrieveRequest, TreeRequest
from memory_core.features.recall_trail import HOT, SIMILAR, TRAIL, HotRequest, SimilarRequest, TrailRequest
from server import rendering
from server.commands.opening import Commands, here, json_file, json_text, open_memory_of, open_to_search, show


def register(commands: Commands) -> None:
    """Declare what reads."""
    _add_search(commands)
    _add_listings(commands)
    _add_insight(commands)


def _add_search(commands: Commands) -> None:
    find_command = commands.add("find", "Search memories and past conversations.", find)
    find_command.add_argument("query")
    find_command.add_argument("--target-uri", default="", help="only below this directory")
    find_command.add_argument("--limit", type=int, default=10, help="hits at most (default 10)")
    find_command.add_argument("--score-threshold", type=float, help="leave out hits that score less (0 to 1)")
    find_command.add_argument("--filter", help='JSON, e.g. {"memory_type": "facts"}')
    find_command.add_argument(
        "--rank", choices=("relevance", "balanced", "decay", "weighted"), help="default: search.rank"
    )
    find_command.add_argument(
        "--project", help='only this project; "." is the one you are in (default: all, that one first)'
    )
    retrieve_command = commands.add("retrieve", "Print context for a task, packed into a token budget.", retrieve)
    retrieve_command.add_argument("query", nargs="?")
    retrieve_command.add_argument(
        "--messages", metavar="FILE", help="JSON messages; the user's last five are the query"
    )
    retrieve_command.add_argument("--token-budget", type=int, help="default: retrieve.token_budget")
    retrieve_command.add_argument("--project", help='only this project; "." is the one you are in (default: all)')
    retrieve_command.add_argument("--session-id", help="what this session was given before is not repeated")
    retrieve_command.add_argument(
        "--tool", action="append", help="a tool at hand; repeatable: adds what is known of it"
    )
    retrieve_command.add_argument("--skill", help="the skill at hand: adds what is known of it")
    retrieve_command.add_argument(
        "--fresh", action="store_true", help="the session's context was lost: repeat everything"
    )
    retrieve_command.add_argument(
        "--format",
        choices=("blocks", "text", "system", "messages-anthropic", "messages-openai"),
        default="text",
        help="default text; messages-… prints JSON to insert after the user's message",
    )


def _add_listings(commands: Commands) -> None:
    read_command = commands.add("read", "Read a memory file.", read)
    read_command.add_argument("uri")
    read_command.add_argument("--offset", type=int, default=0, help="first line, from 0")
    read_command.add_argument("--limit", type=int, default=-1, help="lines; -1 is all")
    ls_command = commands.add("ls", "List a directory.", listing)
    ls_command.set_defaults(level_limit=1)
    tree_command = commands.add("tree", "List everything below a URI.", listing)
    tree_command.add_argument("--level-limit", type=int, default=3, help="depth (default 3)")
    for command in (ls_command, tree_command):
        command.add_argument("uri", nargs="?", default="viking://")
        command.add_argument("--output", choices=("agent", "original"), default="agent", help="agent adds abstracts")
        command.add_argument("--abs-limit", type=int, default=256, help="characters of an abstract")
        command.add_argument("--show-all-hidden", action="store_true", help="also .abstract.md and .overview.md")
        command.add_argument("--node-limit", type=int, default=1000, help="entries at most")


def _add_insight(commands: Commands) -> None:
    similar_command = commands.add("similar", "Find memories that say nearly the same; nothing is merged.", similar)
    similar_command.add_argument("text_or_uri", metavar="TEXT|URI", help="a text, or the URI of a memory")
    similar_command.add_argument("--threshold", type=float, default=0.9, help="least similarity (default 0.9)")
    similar_command.add_argument("--limit", type=int, default=5, help="memories at most (default 5)")
    trail_command = commands.add("trail", "Show which query retrieved what, newest first.", trail)
    trail_command.add_argument("--uri", help="only what returned this memory, session or directory")
    trail_command.add_argument("--limit", type=int, default=20, help="retrievals at most (default 20)")
    hot_command = commands.add("hot", "Show the memories used most.", hot)
    hot_command.add_argument("--limit", type=int, help="memories at most (default: search.hot_limit)")


def find(arguments: argparse.Namespace) -> int:
    """Search."""
    from server import rendering

    with open_to_search(arguments) as memory:
        found = memory.find(
            FindRequest(
                arguments.query,
                arguments.target_uri,
                arguments.limit,
                score_threshold=arguments.score_threshold,
                filter=json_text(arguments.filter, "--filter"),
                rank=arguments.rank,
                project=arguments.project,
                here=here(memory.config),
            )
        )
    show(arguments, found.as_dict(), rendering.find_text(found))
    return 0


def read(arguments: argparse.Namespace) -> int:
    """Print a file, and below it the memories that it relates to."""
    from server.rendering import links_text

    with open_memory_of(arguments) as memory:
        page = memory.read(ReadRequest(arguments.uri, arguments.offset, arguments.limit, here=here(memory.config)))
    links = links_text(page)
    show(arguments, page.as_dict(), page.content.removesuffix("\n") + (f"\n\n{links}" if links else ""))
    return 0


def listing(arguments: argparse.Namespace) -> int:
    """Print a directory, or everything below it."""
    from server import rendering

    with open_memory_of(arguments) as memory:
        listings = memory.tree(
            TreeRequest(
                arguments.uri,
                arguments.output,
                arguments.abs_limit,
                arguments.show_all_hidden,
                arguments.node_limit,
                level_limit=arguments.level_limit,
            )
        )
    show(arguments, listings.as_dict(), rendering.listings_text(listings))
    return 0


def retrieve(arguments: argparse.Namespace) -> int:
    """Print context for a task."""
    with open_to_search(arguments) as memory:
        pack = memory.retrieve(
            RetrieveRequest(
                arguments.query,
                messages=json_file(arguments.messages),
                session_id=arguments.session_id,
                tool=arguments.tool,
                skill=arguments.skill,
                token_budget=arguments.token_budget,
                format=arguments.format,
                fresh=arguments.fresh,
                project=arguments.project,
                here=here(memory.config),
            )
        )
    if not pack.parts:
        print("runebook: nothing stored fits this yet.", file=sys.stderr)
    inserted = pack.messages is not None
    show(arguments, pack.as_dict(), json.dumps(pack.messages, ensure_ascii=False) if inserted else pack.text)
    return 0


def similar(arguments: argparse.Namespace) -> int:
    """Print memories that say nearly the same."""
    with open_memory_of(arguments) as memory:
        found = memory.run(
            SIMILAR, SimilarRequest(arguments.text_or_uri, arguments.threshold, arguments.limit, here(memory.config))
        )
    show(arguments, found.as_dict(), rendering.similar_text(found))
    return 0


def trail(arguments: argparse.Namespace) -> int:
    """Print which query retrieved what."""
    with open_memory_of(arguments, warm=False) as memory:
        rows = memory.run(TRAIL, TrailRequest(arguments.limit, arguments.uri))
    show(arguments, {"trail": [row.as_dict() for row in rows]}, rendering.trail_text(rows))
    return 0


def hot(arguments: argparse.Namespace) -> int:
    """Print the memories used most."""
    with open_memory_of(arguments, warm=False) as memory:
        memories = memory.run(HOT, HotRequest(arguments.limit, here=here(memory.config)))
    show(arguments, {"memories": [found.as_dict() for found in memories]}, rendering.hot_text(memories))
    return 0
