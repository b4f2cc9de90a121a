"""How a request ends, on the WebSocket and over HTTP."""

from __future__ import annotations

from foretype_backend.admission.outcomes import CODES, FINISHES, HTTP_STATUS, Reason

from foretype_lab.reference.documented import described


def endings_page() -> str:
    """As Markdown, in the order in which the code has them."""
    said = described(Reason)
    lines = [
        "# How a request ends\n",
        (
            "`reason` is the label of `foretype_requests_total`. A refusal is explicit on the wire and silent in the editor; one that may"
            " come again carries `retry_after_ms`, over HTTP `Retry-After`.\n"
        ),
        "| reason | WebSocket | HTTP | |",
        "|---|---|--:|---|",
    ]
    for reason in Reason:
        told = f"`done`, `{FINISHES[reason]}`" if reason in FINISHES else f"`error`, `{CODES[reason]}`"
        lines.append(f"| `{reason}` | {told} | {HTTP_STATUS.get(reason, 200)} | {said[reason.value]} |")
    return "\n".join(lines) + "\n"
