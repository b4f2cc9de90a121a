"""Text of clients, folders and models as a terminal may have it: shown, never obeyed.

A terminal acts on what is printed: a name with an escape sequence in it sets its title, moves its cursor, or fills in what is
typed next; characters that turn the direction of writing make a line read as another one. Each is replaced by one visible
character. :mod:`foretype_context.terminal` prints; this module costs nothing to import.
"""

from __future__ import annotations

import logging
import re
from typing import Final

# C0 without tab and line feed, DEL, C1, directions of writing, line and paragraph separators, half characters, tags.
ACTS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
_LINES: Final = str.maketrans({"\n": "\u240a", "\t": "\u2409"})


def plain(text: str) -> str:
    """`text` with a visible character in place of each that a terminal would act on; lines and tabs stay."""
    return ACTS.sub(_picture, text)


def one_line(text: str) -> str:
    """As `plain`, for a name in a line: it cannot begin another line."""
    return plain(text).translate(_LINES)


class PlainFormatter(logging.Formatter):
    """Log lines for a terminal; what others sent stands in some."""

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record))


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"
