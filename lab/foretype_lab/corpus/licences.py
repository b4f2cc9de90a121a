"""Licence decisions from package metadata: only what is known to be permissive passes."""

from __future__ import annotations

import re
from email.message import Message

PERMISSIVE = frozenset(
    {
        "MIT",
        "MIT-0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "Apache-2.0",
        "ISC",
        "PSF-2.0",
        "Python-2.0",
        "Zlib",
        "Unlicense",
        "0BSD",
        "CC0-1.0",
    }
)
"""SPDX identifiers that pass. MPL, LGPL and GPL are left out on purpose, and so is whatever is not named here."""

_CLASSIFIERS = {
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "Python Software Foundation License": "PSF-2.0",
    "zlib/libpng License": "Zlib",
    "The Unlicense (Unlicense)": "Unlicense",
    "Zero-Clause BSD (0BSD)": "0BSD",
    "CC0 1.0 Universal (CC0 1.0) Public Domain Dedication": "CC0-1.0",
}

# Free text of the old License field. Matched on the whole (normalised) field, never by search: "not under MIT" or a
# full GPL text that mentions BSD must not pass.
_FREE_TEXT = {
    "mit": "MIT",
    "mit license": "MIT",
    "the mit license": "MIT",
    "the mit license (mit)": "MIT",
    "expat": "MIT",
    "bsd": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "new bsd": "BSD-3-Clause",
    "new bsd license": "BSD-3-Clause",
    "modified bsd license": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "3-clause bsd": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "bsd-2-clause": "BSD-2-Clause",
    "bsd 2-clause": "BSD-2-Clause",
    "simplified bsd": "BSD-2-Clause",
    "apache": "Apache-2.0",
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache-2.0": "Apache-2.0",
    "apache2": "Apache-2.0",
    "apache license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache license version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache software license 2.0": "Apache-2.0",
    "isc": "ISC",
    "isc license": "ISC",
    "psf": "PSF-2.0",
    "psf-2.0": "PSF-2.0",
    "python software foundation license": "PSF-2.0",
    "zlib": "Zlib",
    "unlicense": "Unlicense",
    "the unlicense": "Unlicense",
    "0bsd": "0BSD",
    "cc0": "CC0-1.0",
    "cc0-1.0": "CC0-1.0",
}


_ATOM = re.compile(r"(?<![^\s()])(?!(?:AND|OR)(?![^\s()]))[^\s()]+(?:\s+WITH\s+[^\s()]+)?", re.IGNORECASE)
_INNER = re.compile(r"\(([^()]*)\)")


def permissive_expression(expression: str) -> bool:
    """Says whether an SPDX expression allows use under permissive terms alone.

    ``OR`` needs one permissive side, ``AND`` needs both; ``WITH`` an exception never passes (the exceptions in use
    soften copyleft licences, which do not pass in the first place).
    """
    known, text = _ATOM.sub(lambda found: " 1 " if found[0] in PERMISSIVE else " 0 ", f"({expression})"), ""
    while known != text:  # from the innermost brackets outwards
        text = known
        known = _INNER.sub(lambda found: f" {_either(found[1])} ", text)
    return known.strip() == "1"


def _either(inside: str) -> str:
    """Of an expression without brackets whether one side of it passes; what is none stays a word that nobody knows."""
    sides = [[atom.strip() for atom in re.split(r"\bAND\b", side)] for side in re.split(r"\bOR\b", inside.upper())]
    if not all(atom in ("0", "1") for side in sides for atom in side):
        return "?"
    return "1" if any("0" not in side for side in sides) else "0"


def decide(metadata: Message) -> tuple[str, bool]:
    """Reads a package's core metadata.

    The fields are asked in their order of precision: ``License-Expression``, then the classifiers, then the free
    ``License`` text. The first that says anything decides, so an unclear one is not outvoted by a vaguer one.

    Returns:
        The licence as found (an SPDX expression, or ``unknown: …``) and whether it may be trained on.
    """
    expression = str(metadata.get("License-Expression") or "").strip()
    if expression:
        return expression, permissive_expression(expression)
    classifiers = [
        str(line).rpartition("::")[2].strip()
        for line in metadata.get_all("Classifier") or []
        if str(line).startswith("License ::")
    ]
    classifiers = [name for name in classifiers if name != "OSI Approved"]
    if classifiers:
        known = [_CLASSIFIERS.get(name) for name in classifiers]
        if all(known):
            # Several classifiers mean a choice or a mixture; metadata does not say which, so all have to pass.
            return " AND ".join(sorted({name for name in known if name})), True
        return "unknown: " + "; ".join(classifiers), False
    text = re.sub(r"\s+", " ", str(metadata.get("License") or "")).strip()
    known_text = _FREE_TEXT.get(text.lower().rstrip("."))
    if known_text:
        return known_text, True
    if text and permissive_expression(text):
        return text, True
    return "unknown: " + (text[:60] or "nothing stated"), False
