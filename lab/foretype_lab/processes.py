"""Processes of the laboratory's own modules: it need not be installed, and an interpreter of another environment never has it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["environment"]

_LAB: Final = str(Path(__file__).parents[1])


def environment() -> dict[str, str]:
    """This process's environment, in which `python -P -m foretype_lab.…` finds the laboratory."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([_LAB, *filter(None, [os.environ.get("PYTHONPATH")])])}
