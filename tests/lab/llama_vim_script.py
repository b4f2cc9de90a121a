"""The session that was recorded from the real plugin, and that the re-implementation is held against."""

from typing import Any, Final

FILE: Final = (
    '"""Shapes."""\n\nimport math\n\n\ndef area(radius):\n    return math.pi * radius**2\n\n\n'
    "def diameter(radius):\n    return 2 * radius\n\n\nvalues = [area(1), area(2)]\n"
)
"""14 lines: shorter than a chunk, so that nothing depends on the plugin's random numbers."""

KEYS: Final = (
    (0.2, "7Go"),  # a line is opened under `return math.pi ...`
    (1.0, "d"),
    (1.0, "e"),
    (1.0, "f"),
    (1.0, " "),
    (1.0, "x"),
    (1.0, "<C-o>:silent write<CR>"),  # a chunk is queued
    (6.5, "("),  # the caret rested: the chunk entered the ring and the server was warmed
    (1.0, "r"),
    (1.0, "<Tab>"),  # takes what is offered
    (1.0, "<CR>"),
    (1.0, "<Left>"),
)
"""Pause before, and keys."""

_ANSWERS: Final = {"def ": "circle(r):", "def x(r": "):\n    return r", "": "    pass"}


def answer_to(body: dict[str, Any]) -> str:
    """A fixed function of the request, as a greedy model is."""
    return _ANSWERS.get(body["prompt"], "") if body["n_predict"] else ""
