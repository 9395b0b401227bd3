"""Texts grouped by topic: by the cosines of their vectors, or by the words they share. Pure.

Every text ends up in one group; texts that nothing is near join the group that is nearest all the same, so that each
group has the least number of members. Order decides ties, so that the same texts are grouped alike every time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence

#: How alike one text is to each of some others, by their places.
Similarity = Callable[[int, Sequence[int]], Sequence[float]]


def batches(lengths: Sequence[int], similarity: Similarity, size: int, room: int, least: int) -> list[list[int]]:
    """Cut many texts into batches of bounded size, near ones together.

    Args:
        lengths: Of each text, in characters.
        similarity: Of one of them to others, the higher the nearer.
        size: Texts of a batch; the last may have up to ``least - 1`` more, so that none is left alone.
        room: Characters of a batch; a single longer text is a batch of its own.
        least: Fewest of a batch, where there are as many.

    Returns:
        Places of the texts, ascending in each batch.
    """
    left = list(range(len(lengths)))
    found: list[list[int]] = []
    while len(left) >= size + least or sum(lengths[place] for place in left) > room:
        first, others = left[0], left[1:]
        near = zip(similarity(first, others), others, strict=True)
        batch, free = [first], room - lengths[first]
        for _, place in heapq.nsmallest(size - 1, near, key=lambda each: (-each[0], each[1])):
            if lengths[place] <= free:
                batch.append(place)
                free -= lengths[place]
        found.append(sorted(batch))
        taken = set(batch)
        left = [place for place in left if place not in taken]
    return [*found, left] if left else found


def topics(places: Sequence[int], similarity: Similarity, alike: float, most: int, least: int) -> list[list[int]]:
    """Group the texts of a batch.

    Args:
        places: Of the texts.
        similarity: As for ``batches``.
        alike: From this similarity to a group's first text on, a text joins it.
        most: Groups at most.
        least: Fewest texts of a group, where there are as many.

    Returns:
        Places of each group, ascending, in the order of their first texts.
    """
    table = {place: dict(zip(places, similarity(place, places), strict=True)) for place in places}
    groups: list[list[int]] = []
    for place in places:
        near = max(groups, key=lambda group: table[group[0]][place], default=None)
        if near is not None and table[near[0]][place] >= alike:
            near.append(place)
        else:
            groups.append([place])
    while len(groups) > 1:
        small = min(groups, key=lambda group: (len(group), -group[0]))
        if len(groups) <= most and len(small) >= least:
            break
        groups.remove(small)
        _nearest(groups, small, table).extend(small)
    return sorted((sorted(group) for group in groups), key=lambda group: group[0])


def packed(places: Sequence[int], lengths: Sequence[int], size: int, room: int) -> list[list[int]]:
    """The texts of a group in parcels that have room for them, each in the first that has.

    Args:
        places: Of the texts, in order.
        lengths: As for ``batches``.
        size: Texts of a parcel at most.
        room: Characters of a parcel at most.
    """
    parcels: list[list[int]] = []
    used: list[int] = []
    for place in places:
        fitting = (at for at, parcel in enumerate(parcels) if used[at] + lengths[place] <= room and len(parcel) < size)
        at = next(fitting, None)
        if at is None:
            parcels.append([place])
            used.append(lengths[place])
        else:
            parcels[at].append(place)
            used[at] += lengths[place]
    return parcels


def _nearest(groups: Sequence[list[int]], small: Sequence[int], table: Mapping[int, Mapping[int, float]]) -> list[int]:
    def mean(group: Sequence[int]) -> float:
        return sum(table[one][other] for one in group for other in small) / (len(group) * len(small))

    return max(groups, key=mean)
