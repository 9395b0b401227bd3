"""One server for all random requests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.site import Site, served


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with served(tmp_path_factory.mktemp("site")) as site:
        yield site
