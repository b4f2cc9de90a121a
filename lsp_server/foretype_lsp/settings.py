"""The options of one server as they are now, and what was wrong with what the editor said."""

from __future__ import annotations

import logging
from typing import Final

from foretype_wire.subscriptions import Subscribers

from foretype_lsp.log import set_level
from foretype_lsp.options import Options, Problem, parse

_log: Final = logging.getLogger(__name__)


class Settings:
    """The one owner of the options.

    Args:
        overrides: options by their camelCase names that win over the editor's (the command line's).

    Attributes:
        changed: told when there are other options, or another problem with them.
    """

    def __init__(self, overrides: dict[str, object] | None = None) -> None:
        self.options = Options()
        self.problems: list[Problem] = []
        self.changed: Subscribers[[]] = Subscribers()
        self._overrides = overrides or {}

    def take(self, raw: object, *, trusted: bool = True) -> None:
        """Take what the editor says; `trusted` is what holds where it says nothing about trust."""
        self.options, self.problems = parse(raw, self._overrides, trusted=trusted)
        _log.info("options: %s", self.options.redacted())
        set_level(self.options.log_level)
        self.changed.tell()

    def add_problem(self, problem: Problem) -> None:
        """Note something about an option that showed only when it was used."""
        self.problems.append(problem)
        self.changed.tell()
