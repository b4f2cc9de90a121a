"""What a checkout adds to `foretype bench` and `foretype eval`; `foretype models` has `model_commands`.

`lab/pyproject.toml` registers the groups beside those of foretype itself, which `foretype` then shows as one.
"""

from __future__ import annotations

import typer

from foretype_lab.adaptive.command import adaptive
from foretype_lab.cache_counters.command import counters
from foretype_lab.engine_bench.command import engine_bench
from foretype_lab.fleet.command import prefix_cache, routing
from foretype_lab.keystroke_cost.command import context
from foretype_lab.other_gateways.command import peer_load
from foretype_lab.peer.command import peer, peer_page
from foretype_lab.prefill.command import prefill
from foretype_lab.results.command import results
from foretype_lab.retrieval.commands import crossfile, index, retrieval
from foretype_lab.telemetry_events.command import events
from foretype_lab.telemetry_events.month import report

__all__ = ["bench", "evaluate"]

evaluate = typer.Typer(no_args_is_help=True, help="Measure quality: what the laboratory adds.")
bench = typer.Typer(no_args_is_help=True, help="Measure speed: what the laboratory adds.")

evaluate.command("retrieval")(retrieval)
evaluate.command("crossfile")(crossfile)
evaluate.command("results")(results)
evaluate.command("adaptive")(adaptive)
bench.command("index")(index)
bench.command("prefill")(prefill)
bench.command("context")(context)
bench.command("events")(events)
bench.command("report")(report)
bench.command("counters")(counters)
bench.command("engine")(engine_bench)
bench.command("peer")(peer)
bench.command("peer-page")(peer_page)
bench.command("peer-load")(peer_load)
bench.command("routing")(routing)
bench.command("prefix-cache")(prefix_cache)
