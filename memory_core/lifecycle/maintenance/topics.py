"""Texts grouped by topic: by the cosines of their vectors, or by the words they share. Pure.

Every text ends up in one group; texts that nothing is near join the group that is nearest all the same, so that each
group has the least number of members. Order decides ties, so that the same texts are grouped alike every time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: How alike two texts are, by their places.
Similarity = Callable[[int, int], float]


def batches(count: int, similarity: Similarity, size: int, least: int) -> list[list[int]]:
    """Cut many texts into batches of bounded size, near ones together.

    Args:
        count: How many texts.
        similarity: Of two of them, the higher the nearer.
        size: Of a batch; the last may have up to ``least - 1`` more, so that none is left alone.
        least: Fewest of a batch, where there are as many.

    Returns:
        Places of the texts, ascending in each batch.
    """
    left = list(range(count))
    found: list[list[int]] = []
    while len(left) >= size + least:
        first = left[0]
        near = sorted(left[1:], key=lambda other: (-similarity(first, other), other))[: size - 1]
        found.append(sorted([first, *near]))
        taken = {first, *near}
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
    groups: list[list[int]] = []
    for place in places:
        near = max(groups, key=lambda group: similarity(group[0], place), default=None)
        if near is not None and similarity(near[0], place) >= alike:
            near.append(place)
        else:
            groups.append([place])
    while len(groups) > 1:
        small = min(groups, key=lambda group: (len(group), -group[0]))
        if len(groups) <= most and len(small) >= least:
            break
        groups.remove(small)
        _nearest(groups, small, similarity).extend(small)
    return sorted((sorted(group) for group in groups), key=lambda group: group[0])


def _nearest(groups: Sequence[list[int]], small: Sequence[int], similarity: Similarity) -> list[int]:
    def mean(group: Sequence[int]) -> float:
        return sum(similarity(one, other) for one in group for other in small) / (len(group) * len(small))

    return max(groups, key=mean)
