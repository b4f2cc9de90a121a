"""What a network of web text may write and no suggestion may hold: somebody's address, a key, a licence. Pure.

Such text is kept back unless the file holds it already: then it is the user's own. Shapes alone are known, so a secret without a
shape passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_SECRET: Final = re.compile(
    r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{36}\b"
    r"|\bgithub_pat_[A-Za-z0-9_]{50,}"
    r"|\bxox[abprs]-[0-9A-Za-z-]{20,}"
    r"|\bsk-(?:proj-|ant-)?[A-Za-z0-9_-]{32,}\b"
    r"|\bAIza[0-9A-Za-z_-]{35}\b"
    r"|\bglpat-[0-9A-Za-z_-]{20}\b"
    r"|\bsk_live_[0-9A-Za-z]{20,}"
    r"|\beyJ[A-Za-z0-9_-]{20,}\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}"
)
_SECRET_MARKS: Final = (
    *("PRIVATE KEY-----", "AKIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "xox"),
    *("sk-", "AIza", "glpat-", "sk_live_", "eyJ"),
)
"""One of them is in every match: looking for them first takes a fiftieth of the time."""
_ADDRESS: Final = re.compile(
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.(?:com|org|net|edu|gov|int|mil|info|biz|name|io|dev|app|ai|co|me|eu|uk|us|ca|au|nz|in|de|at|ch|nl|be|fr"
    r"|it|es|pt|se|no|fi|dk|pl|cz|ru|ua|jp|cn|kr|tw|sg|br|mx|za)\b(?![\w(\[])"
)
"""With the endings that addresses have: `a@self.weight` multiplies matrices."""
_LICENCE: Final = re.compile(
    r"copyright\s+(?:\(c\)|©|\d{4})[^\n]*|SPDX-License-Identifier:[^\n]*|licensed under the [^\n]*|all rights reserved"
    r"|permission is hereby granted[^\n]*|redistribution and use in source[^\n]*|without warranty of any kind[^\n]*"
    r"|GNU (?:lesser |affero |library )?general public[^\n]*",
    re.IGNORECASE,
)


def secret_in(text: str) -> str | None:
    """The first key-shaped string of `text`."""
    if not any(mark in text for mark in _SECRET_MARKS):
        return None
    found = _SECRET.search(text)
    return None if found is None else found.group()


def _kinds(text: str) -> Iterator[tuple[str, str]]:
    if secret := secret_in(text):
        yield secret, "a key"
    if "@" in text:
        for found in _ADDRESS.finditer(text):
            yield found.group(), "an address"
    for found in _LICENCE.finditer(text):
        yield found.group(), "a licence"


def foreign_text(typed: str, text: str, file: str) -> str | None:
    """What `text` completes or holds that `file` does not, in a word; None where all of it may be shown.

    Args:
        typed: the cursor's line, left of the cursor: an address may begin there.
    """
    return next((kind for said, kind in _kinds(typed + text) if said not in typed and said not in file), None)
