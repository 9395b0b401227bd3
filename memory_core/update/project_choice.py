"""Which project is meant: by an argument, else by the setting, else by where the caller works. Pure."""

from __future__ import annotations

from memory_core.config import ProjectConfig
from memory_core.errors import InvalidInput
from memory_core.model.project import GLOBAL, HERE, Belonging, ProjectScope, project_name

_HINT = "Name one, as find prints it, such as github.com/acme/backend; or set project.name."


class ProjectChoice:
    """The rules of one configuration.

    Args:
        settings: Name and defaults.

    Raises:
        InvalidInput: If the setting is no name.
    """

    def __init__(self, settings: ProjectConfig) -> None:
        self._name = project_name(settings.name) if settings.name.strip() else None
        self._by_default = settings.private

    def current(self, found: str | None) -> str | None:
        """The project that the caller works in; ``found`` is what its roots or folder say."""
        return self._name or found

    def scope(self, argument: str | None, found: str | None) -> ProjectScope:
        """What a search is about: a named project alone, or everything with the current one first.

        Args:
            argument: A name, "." for the current project, "" or "global" for what belongs to none, or None.
            found: See ``current``.

        Raises:
            InvalidInput: If it is no name, or there is no current project.
        """
        if argument is None:
            return ProjectScope(self.current(found))
        return ProjectScope(self._named(argument, found), only=True)

    def belonging(self, argument: str | None, private: bool | None, found: str | None) -> Belonging:
        """Whose the memories of a commit are.

        What is said to be private belongs to the current project, as if it had been named.

        Raises:
            InvalidInput: If the argument is no name, or something is to be private to no project.
        """
        project = self.current(found) if argument is None else self._named(argument, found)
        if private and project is None:
            raise InvalidInput("private needs a project to be private to.", hint=f"{_HINT} Or leave private out.")
        return Belonging(project, argument is not None or private is True, private, self._by_default)

    def of_session(self, project: str | None, *, private: bool) -> Belonging:
        """Whose the memories of a conversation are; those of a private one all stay in its project."""
        return Belonging(project, named=private, private=True if private else None, by_default=self._by_default)

    def _named(self, argument: str, found: str | None) -> str | None:
        if argument.strip().casefold() in ("", GLOBAL):
            return None
        if argument.strip() != HERE:
            return project_name(argument)
        if (current := self.current(found)) is None:
            raise InvalidInput("no project is known here.", hint=_HINT)
        return current
