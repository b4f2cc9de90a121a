"""`foretype eval` and `foretype bench`. With `--json` standard output carries one JSON object and nothing else."""

from __future__ import annotations

from typing import Final

from foretype_eval.late_group import late_group

_REMEDY: Final = "pip install 'foretype[eval]'"

app = late_group(
    "Measure quality: benchmarks, replay, experiments.",
    {
        "fim": "foretype_eval.fim.cli:fim",
        "replay": "foretype_eval.replay.command:replay",
        "ab": "foretype_eval.ab.command:ab",
        "compare": "foretype_eval.compare.command:compare",
        "report": "foretype_eval.report.command:report",
        "gate": "foretype_eval.gate.command:gate",
        "next-edit": "foretype_eval.next_edit.command:next_edit",
    },
    _REMEDY,
)
bench = late_group(
    "Measure speed: latency of the whole path on this machine, and load.",
    {"latency": "foretype_eval.latency.cli:latency", "load": "foretype_eval.load.command:load"},
    _REMEDY,
)
