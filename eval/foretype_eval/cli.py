"""`foretype eval` and `foretype bench`. With `--json` standard output carries one JSON object and nothing else."""

from __future__ import annotations

import typer

from foretype_eval.ab.command import ab
from foretype_eval.compare.command import compare
from foretype_eval.fim.cli import fim
from foretype_eval.gate.command import gate
from foretype_eval.latency.cli import latency
from foretype_eval.load.command import load
from foretype_eval.next_edit.command import next_edit
from foretype_eval.replay.command import replay
from foretype_eval.report.command import report

__all__ = ["app", "bench"]

app = typer.Typer(no_args_is_help=True, help="Measure quality: benchmarks, replay, experiments.")
bench = typer.Typer(no_args_is_help=True, help="Measure speed: latency of the whole path on this machine, and load.")

app.command("fim")(fim)
app.command("replay")(replay)
app.command("ab")(ab)
app.command("compare")(compare)
app.command("report")(report)
app.command("gate")(gate)
app.command("next-edit")(next_edit)
bench.command("latency")(latency)
bench.command("load")(load)
