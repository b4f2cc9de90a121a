"""The table of families, from the data that serves them: for the terminal, as JSON and for the documentation."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any, Final

from foretype_context.grammars.families import Family, families, unserved
from foretype_context.grammars.grammar import GRAMMARS

_COLUMNS: Final = 80


def rows() -> list[dict[str, Any]]:
    """One entry for each family, those that are known and not served last."""
    served = [_row(one) for one in families()]
    return served + [
        {"family": one.id, "grammar": None, "models": one.models, "source": one.source, "reason": one.reason}
        for one in unserved()
    ]


def _row(one: Family) -> dict[str, Any]:
    proof = one.proof
    return {
        "family": one.id,
        "grammar": one.grammar,
        "layout": GRAMMARS[one.grammar].layouts[0],
        "models": one.models,
        "source": one.source,
        "chat": one.chat,
        "ids": dict(one.ids),
        "proven": one.proven,
        "vocabulary": proof.vocabulary if proof else None,
        "digest": proof.digest if proof else None,
        "encoder": proof.encoder if proof else None,
        "files": proof.files if proof else 0,
        "equal": proof.equal if proof else 0,
        "note": proof.note if proof else "",
    }


def _standing(row: dict[str, Any]) -> str:
    if row["grammar"] is None:
        return f"not served: {row['reason']}"
    if not row["files"]:
        return "unproven"
    word = "proven" if row["proven"] else "wrong"
    note = f"; {row['note']}" if row["note"] else ""
    return f"{word}: {row['equal']} of {row['files']} files as {row['encoder']}, vocabulary {row['digest'][:12]}{note}"


def lines() -> Iterator[str]:
    """For a terminal of 80 columns: of each family its grammar, its models, and whether it is proven."""
    for row in rows():
        layout = f", layout {row['layout']}" if row["grammar"] else ""
        yield f"{row['family']}  (grammar {row['grammar'] or 'none'}{layout})"
        for text in (f"{row['models']}; {row['source']}", _standing(row)):
            yield textwrap.fill(text, _COLUMNS, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


def markdown() -> str:
    """The table of docs/models.md."""
    head = "| family | models | grammar, first layout | ids | proven |\n|---|---|---|---|---|\n"
    body = [
        f"| `{row['family']}` | {row['models']} | {_grammar(row)} | {_ids(row)} | {_standing(row)} |\n"
        for row in rows()
    ]
    return head + "".join(body)


def _grammar(row: dict[str, Any]) -> str:
    return f"`{row['grammar']}`, `{row['layout']}`" if row["grammar"] else "none"


def _ids(row: dict[str, Any]) -> str:
    return f"{len(row['ids'])} known" if row.get("ids") else "not known"
