"""`foretype eval` and `foretype bench`. With `--json` standard output carries one JSON object and nothing else."""

from __future__ import annotations

import typer

from foretype_eval.ab.command import ab
from foretype_eval.adaptive.command import adaptive
from foretype_eval.assembly.command import context
from foretype_eval.compare.command import compare
from foretype_eval.counters.command import counters
from foretype_eval.engine.command import engine_bench
from foretype_eval.events.command import events
from foretype_eval.fim.cli import fim
from foretype_eval.fleet.command import prefix_cache, routing
from foretype_eval.latency.cli import latency
from foretype_eval.load.command import load
from foretype_eval.peer.command import peer, peer_page
from foretype_eval.prefill.command import prefill
from foretype_eval.replay.command import replay
from foretype_eval.report.command import report
from foretype_eval.results.command import results
from foretype_eval.retrieval.commands import crossfile, index, retrieval

__all__ = ["app", "bench"]

app = typer.Typer(no_args_is_help=True, help="Measure quality: benchmarks, replay, experiments.")
bench = typer.Typer(no_args_is_help=True, help="Measure speed.")

app.command("fim")(fim)
app.command("replay")(replay)
app.command("retrieval")(retrieval)
app.command("crossfile")(crossfile)
app.command("ab")(ab)
app.command("compare")(compare)
app.command("report")(report)
app.command("results")(results)
app.command("adaptive")(adaptive)
bench.command("latency")(latency)
bench.command("index")(index)
bench.command("prefill")(prefill)
bench.command("context")(context)
bench.command("load")(load)
bench.command("events")(events)
bench.command("counters")(counters)
bench.command("engine")(engine_bench)
bench.command("peer")(peer)
bench.command("peer-page")(peer_page)
bench.command("routing")(routing)
bench.command("prefix-cache")(prefix_cache)


@app.callback()
def _eval() -> None:  # pyright: ignore[reportUnusedFunction] - keeps `fim` a sub-command while it is the only one
    """Measure quality: benchmarks, replay, experiments."""


@bench.callback()
def _bench() -> None:  # pyright: ignore[reportUnusedFunction]
    """Measure speed: latency of the whole path on this machine."""
