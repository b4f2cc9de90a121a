"""What a checkout adds to `foretype bench` and `foretype eval`; `foretype models` has `model_commands`.

`lab/pyproject.toml` registers the groups beside those of foretype itself, which `foretype` then shows as one.
"""

from __future__ import annotations

from typing import Final

from foretype_eval.late_group import late_group

__all__ = ["bench", "evaluate"]

_REMEDY: Final = "pip install -e lab"

evaluate = late_group(
    "Measure quality: what the laboratory adds.",
    {
        "retrieval": "foretype_lab.retrieval.commands:retrieval",
        "crossfile": "foretype_lab.retrieval.commands:crossfile",
        "results": "foretype_lab.results.command:results",
        "adaptive": "foretype_lab.adaptive.command:adaptive",
    },
    _REMEDY,
)
bench = late_group(
    "Measure speed: what the laboratory adds.",
    {
        "all": "foretype_lab.all_rows.command:all_rows",
        "rows-page": "foretype_lab.all_rows.command:rows_page",
        "footprint": "foretype_lab.editor_side.command:footprint",
        "large-file": "foretype_lab.editor_side.command:large_file",
        "index": "foretype_lab.retrieval.commands:index",
        "large-repository": "foretype_lab.retrieval.commands:large_repository",
        "prefill": "foretype_lab.prefill.command:prefill",
        "context": "foretype_lab.keystroke_cost.command:context",
        "events": "foretype_lab.telemetry_events.command:events",
        "report": "foretype_lab.telemetry_events.month:report",
        "counters": "foretype_lab.cache_counters.command:counters",
        "engine": "foretype_lab.engine_bench.command:engine_bench",
        "peer": "foretype_lab.peer.command:peer",
        "peer-page": "foretype_lab.peer.command:peer_page",
        "peer-load": "foretype_lab.other_gateways.command:peer_load",
        "routing": "foretype_lab.fleet.command:routing",
        "growth": "foretype_lab.fleet.command:growth",
        "fleet": "foretype_lab.fleet_ways.command:fleet",
        "prefix-cache": "foretype_lab.fleet.command:prefix_cache",
        "resume": "foretype_lab.served.command:resume",
        "apart": "foretype_lab.served.command:prefill_apart",
    },
    _REMEDY,
)
