"""The project of a folder: real repositories made by git, and folders without one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from memory_core.core.memory.project import project_at

HOME = Path("/nowhere/home")


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, env=environment)


def repository(folder: Path, origin: str | None = None) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    if origin is not None:
        git(folder, "remote", "add", "origin", origin)
    return folder


@pytest.mark.parametrize(
    "origin",
    [
        "git@GitHub.com:Acme/backend.git",
        "https://github.com/acme/backend",
        "https://token:x@github.com/acme/Backend.git/",
        "ssh://git@github.com:22/acme/backend.git",
        "github.com:acme/backend.git",
    ],
)
def test_every_clone_of_a_repository_is_one_project(tmp_path: Path, origin: str) -> None:
    clone = repository(tmp_path / "my copy", origin)
    inside = clone / "src" / "深处"
    inside.mkdir(parents=True)
    assert project_at(clone, HOME) == project_at(inside, HOME) == "github.com/acme/backend"


def test_no_secret_of_an_address_gets_into_the_name(tmp_path: Path) -> None:
    clone = repository(tmp_path / "a", "https://oauth2:s3cret@git.example.org:8443/team/app.git")
    assert project_at(clone, HOME) == "git.example.org/team/app"


@pytest.mark.parametrize("origin", [None, "/srv/git/shop.git", "../shop", "C:\\git\\shop"])
def test_a_repository_without_a_host_is_named_by_its_folder(tmp_path: Path, origin: str | None) -> None:
    assert project_at(repository(tmp_path / "支付系统", origin), HOME) == "支付系统"


def test_a_worktree_is_the_project_of_its_repository(tmp_path: Path) -> None:
    bare = repository(tmp_path / "backend")
    git(bare, "worktree", "add", "-q", str(tmp_path / "feature"))
    assert project_at(tmp_path / "feature", HOME) == "backend"
    git(bare, "remote", "add", "origin", "git@gitlab.com:acme/backend.git")
    assert project_at(tmp_path / "feature", HOME) == "gitlab.com/acme/backend"


def test_a_submodule_is_its_own_project(tmp_path: Path) -> None:
    library = repository(tmp_path / "library")
    main = repository(tmp_path / "main", "git@github.com:acme/main.git")
    git(main, "submodule", "add", "-q", str(library), "vendor/lib")
    assert project_at(main / "vendor" / "lib", HOME) == "lib"
    git(main / "vendor" / "lib", "remote", "set-url", "origin", "https://github.com/acme/library.git")
    assert project_at(main / "vendor" / "lib", HOME) == "github.com/acme/library"
    assert project_at(main / "vendor", HOME) == "github.com/acme/main"


def test_a_marked_folder_counts_where_there_is_no_repository_around_it(tmp_path: Path) -> None:
    package = tmp_path / "shop" / "packages" / "cart"
    package.mkdir(parents=True)
    (package / "package.json").write_text("{}", encoding="utf-8")
    assert project_at(package / "src", HOME) == "cart"
    git(tmp_path / "shop", "init", "-q")
    assert project_at(package / "src", HOME) == "shop"


def test_home_a_plain_folder_and_the_root_are_no_projects(tmp_path: Path) -> None:
    home = repository(tmp_path / "home", "git@github.com:me/dotfiles.git")
    (home / "Documents").mkdir()
    assert project_at(home, home) is None
    assert project_at(home / "Documents", home) is None
    assert project_at(Path("/"), HOME) is None
    assert project_at(tmp_path / "absent", HOME) is None


@pytest.mark.parametrize(
    "pointer", ["", "nonsense", "gitdir: ../nowhere", "gitdir: \x00", "gitdir:", "gitdir: /dev/zero"]
)
def test_a_broken_repository_has_the_name_of_its_folder_or_none(tmp_path: Path, pointer: str) -> None:
    place = tmp_path / "broken"
    place.mkdir()
    (place / ".git").write_text(pointer, encoding="utf-8")
    assert project_at(place, HOME) in ("broken", "nowhere", None, "zero")


def test_a_pipe_in_place_of_a_config_does_not_block(tmp_path: Path) -> None:
    place = tmp_path / "piped"
    (place / ".git").mkdir(parents=True)
    os.mkfifo(place / ".git" / "config")
    assert project_at(place, HOME) == "piped"


@pytest.mark.parametrize(
    "config", ['[remote "origin"]\n\turl = git@github.com:' + "x" * 100_000, "[remote", "\xff" * 50]
)
def test_an_unsound_config_is_no_address(tmp_path: Path, config: str) -> None:
    place = tmp_path / "app"
    (place / ".git").mkdir(parents=True)
    (place / ".git" / "config").write_text(config, encoding="latin-1")
    assert project_at(place, HOME) == "app"


def test_a_quoted_address_with_a_comment_is_read_as_git_reads_it(tmp_path: Path) -> None:
    place = tmp_path / "app"
    (place / ".git").mkdir(parents=True)
    text = '[Remote "upstream"]\n url = https://a.example/x/y\n[remote "origin"] url = "https://b.example/x/y" ; ours\n'
    (place / ".git" / "config").write_text(text, encoding="utf-8")
    assert project_at(place, HOME) == "b.example/x/y"
