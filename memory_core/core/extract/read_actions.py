"""Read actions of the model: ``read``, ``find``, ``ls``, ``tree``, within the user's spaces and a token budget.

A refusal is text for the model, with the next step; nothing here raises for what a model asks. Equal actions are
answered once. Never writes.
"""

from __future__ import annotations

from collections.abc import Sequence

from memory_core.core.errors import RunebookError
from memory_core.core.extract.prompts import canonical, cut_end, fenced, fits
from memory_core.core.extract.store_view import Reading, StoreView
from memory_core.core.memory.message import one_line
from memory_core.core.memory.operations import ReadAction
from memory_core.core.memory.requests import ListRequest, TreeRequest
from memory_core.core.memory.results import Listings
from memory_core.core.text.tokens import count_tokens

ACTIONS_PER_ROUND = 8
_FRAME_TOKENS = 12
_LEAST_TOKENS = 60
_FIND_LIMIT = 10
_FIND_MOST = 20
_ENTRIES = 60
_ABSTRACT_CHARS = 120
_LEVELS = 3
_CHARS_PER_TOKEN = 6


def run(
    view: StoreView, actions: Sequence[ReadAction], budget_tokens: int, answered: frozenset[str] = frozenset()
) -> tuple[list[Reading], list[str]]:
    """Run one round.

    Args:
        view: The store.
        actions: What the model asks for; the first few different ones are run.
        budget_tokens: For all answers together.
        answered: Keys of readings that the model still has before it.

    Returns:
        The readings, and a note for each action that was left out.
    """
    wanted: dict[str, ReadAction] = {}
    for action in actions:
        wanted.setdefault(_key(action), action)
    fresh = [(key, action) for key, action in wanted.items() if key not in answered]
    readings: list[Reading] = []
    left = budget_tokens
    for number, (key, action) in enumerate(fresh[:ACTIONS_PER_ROUND], start=1):
        waiting = min(len(fresh), ACTIONS_PER_ROUND) - number
        reading = _one(view, key, action, left - waiting * _LEAST_TOKENS)
        cost = count_tokens(reading.text)
        if cost > left:
            break
        readings.append(reading)
        left -= cost
    notes: list[str] = []
    if len(wanted) > len(fresh):
        notes.append(f"{len(wanted) - len(fresh)} actions repeated what was shown already")
    if len(fresh) > len(readings):
        notes.append(f"{len(fresh) - len(readings)} of {len(fresh)} read actions were not run: too many for a round")
    return readings, notes


def show(view: StoreView, uris: Sequence[str], budget_tokens: int) -> list[Reading]:
    """Files that the system wants the model to see, as far as they fit."""
    readings: list[Reading] = []
    left = budget_tokens
    for uri in uris:
        shown = view.show(uri, left)
        if shown is None:
            continue
        cost = count_tokens(shown.text)
        if cost > left:
            break
        readings.append(shown)
        left -= cost
    return readings


def _one(view: StoreView, key: str, action: ReadAction, budget: int) -> Reading:
    title = f"## {key}"
    room = max(0, budget - count_tokens(title) - _FRAME_TOKENS)
    try:
        if action.action_type == "read":
            return _read(view, key, action, room)
        text = _search(view, action) if action.action_type == "find" else _list(view, action)
    except RunebookError as error:
        return Reading(f"{title}\n{one_line(cut_end(str(error), room))}", key)
    return Reading(f"{title}\n{fenced(cut_end(text, room))}", key)


def _read(view: StoreView, key: str, action: ReadAction, room: int) -> Reading:
    uri = action.params.uri or ""
    offset = max(0, action.params.offset or 0)
    known = canonical(uri)
    if known is not None and known.endswith(".md") and not offset and action.params.limit is None:
        view.browser.read(known, 0, 1)  # refuses what is absent or out of sight
        shown = view.show(known, room, key)
        if shown is not None:
            return shown
    limit = action.params.limit if action.params.limit and action.params.limit > 0 else -1
    chars = max(1, room * _CHARS_PER_TOKEN)
    found = view.browser.read(uri, offset, limit, chars)
    while not fits(found.content, room) and chars > 1:
        chars //= 2
        found = view.browser.read(uri, offset, limit, chars)
    last = found.total_lines if found.next_offset is None else found.next_offset
    more = "" if found.next_offset is None else f"; go on with offset {found.next_offset}"
    head = f"## {key}: lines {found.first_line} to {last} of {found.total_lines}{more}"
    return Reading(f"{head}\n{fenced(found.content)}", key)


def _search(view: StoreView, action: ReadAction) -> str:
    query = action.params.query or ""
    limit = min(_FIND_MOST, max(1, action.params.limit or _FIND_LIMIT))
    if action.params.uri:
        # Whoever may not see a place may not learn that it is empty either.
        view.browser.ls(ListRequest(action.params.uri, "original", node_limit=1))
    found = view.find(query, action.params.uri or "", limit)
    lines = [f"{hit.uri} ({hit.memory_type}, {hit.score:.2f}): {one_line(hit.abstract)}" for hit in found.hits]
    return "\n".join(lines) or "; ".join(found.notes) or "nothing found"


def _list(view: StoreView, action: ReadAction) -> str:
    uri = action.params.uri or "viking://"
    limit = min(_ENTRIES, max(1, action.params.limit or _ENTRIES))
    levels = 1 if action.action_type == "ls" else _LEVELS
    request = TreeRequest(
        uri, abs_limit=_ABSTRACT_CHARS, node_limit=limit, level_limit=levels, counts_deeper=levels > 1
    )
    found: Listings = view.browser.tree(request)
    lines = [f"{entry.uri}  {one_line(entry.abstract or '')}".rstrip() for entry in found.entries]
    if found.left_out:
        lines.append(f"… and {found.left_out} more; narrow it down with find")
    if found.deeper:
        lines.append("… and files on deeper levels; list a directory below")
    return "\n".join(lines) or "(empty)"


def _key(action: ReadAction) -> str:
    """The action in one line, the same for equal ones."""
    given = action.params
    uri = canonical(given.uri) or (given.uri or "")
    parts = [action.action_type, uri, given.query and f'"{given.query}"']
    parts += [f"{name} {value}" for name, value in (("offset", given.offset), ("limit", given.limit)) if value]
    return one_line(" ".join(str(part) for part in parts if part))[:300]
