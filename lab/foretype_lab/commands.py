"""What a checkout adds to `foretype bench` and `foretype eval`; `foretype models` has `model_commands`.

`lab/pyproject.toml` registers the groups beside those of foretype itself, which `foretype` then shows as one.
"""

from __future__ import annotations

from typing import Final

from foretype_eval.late_group import late_group

_REMEDY: Final = "pip install -e lab"

evaluate = late_group(
    "Measure quality: what the laboratory adds.",
    {"retrieval": "foretype_lab.retrieval.commands:retrieval"},
    _REMEDY,
)
bench = late_group(
    "Measure speed: what the laboratory adds.",
    {
        "all": "foretype_lab.all_rows.command:all_rows",
        "rows-page": "foretype_lab.all_rows.command:rows_page",
        "growth": "foretype_lab.growth.command:growth",
        "footprint": "foretype_lab.editor_side.command:footprint",
        "large-file": "foretype_lab.editor_side.command:large_file",
        "index": "foretype_lab.retrieval.commands:index",
        "large-repository": "foretype_lab.retrieval.commands:large_repository",
        "prefill": "foretype_lab.prefill.command:prefill",
        "context": "foretype_lab.editor_side.command:context",
        "speculation": "foretype_lab.speculation.command:speculation",
        "engine": "foretype_lab.fast_tier.command:engine",
        "peer": "foretype_lab.peer.command:peer",
        "first-tokens": "foretype_lab.peer.first_tokens:first_tokens",
        "peer-page": "foretype_lab.peer.command:peer_page",
        "peer-load": "foretype_lab.other_gateways.command:peer_load",
    },
    _REMEDY,
)
