"""The model card, generated from result files: no figure in it is typed by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretype_context.grammars.grammar import grammar
from foretype_models.artifacts import Artifact, locate

from foretype_lab.errors import CardError
from foretype_lab.quality import progress

OPTIONAL = ("layouts", "draft")
"""Printed where they were measured on the file that ships; left out where they were not."""
RESULTS = ("training", "evaluation", "parity", "thresholds")
OVER_TOKENS = "progress"
"""Rows of checkpoints, of other weights than those that ship."""
DURING = "positions_before"
"""Measured while a run that begins with short rows goes on; a run that continues a model has none."""


def read_results(folder: Path, artifact: Artifact) -> dict[str, Mapping[str, Any]]:
    """Reads the result files of a model.

    Raises:
        CardError: one is missing, or was made from another file than the one that ships, or in another layout than it is
            served in.
        UnknownLayoutError: the model's entry names one that its grammar lacks.
    """
    served = grammar(artifact.grammar).layout(own=artifact.profile.get("layout"))
    results: dict[str, Mapping[str, Any]] = {}
    for name in RESULTS:
        path = folder / f"{name}.json"
        try:
            results[name] = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise CardError(f"{path} cannot be read ({error}); lab/README.md says what makes it") from error
    for name in (*OPTIONAL, OVER_TOKENS, DURING):
        path = folder / f"{name}.json"
        if path.exists():
            results[name] = json.loads(path.read_text("utf-8"))
    for name in ("evaluation", "parity", "thresholds", *(name for name in OPTIONAL if name in results)):
        if results[name]["sha256"] != artifact.sha256:
            raise CardError(f"{folder / name}.json was measured on another file; measure again, see lab/README.md")
        layout = results[name].get("fill", results[name]).get("layout", served)
        if layout != served:
            raise CardError(
                f"{folder / name}.json was measured in {layout}, the model is served in {served}; measure again, see lab/README.md"
            )
    return results


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def _honest(rows: Mapping[str, Mapping[str, float]], thresholds: Mapping[str, float], applied: bool) -> list[str]:
    """Says in words what the figures mean; the words follow from the figures."""
    lines = ["## What it can do, and what it cannot", ""]
    names = {"next_line": "whole next lines", "line_fill": "the rest of a begun line"}
    for kind, row in rows.items():
        against = (
            f"{row['only_model_right']:.0f} cases only it has right, {row['only_copy_line_right']:.0f} only copying has, "
            f"p = {row['p_value']:.2g}"
        )
        if row["p_value"] >= 0.05:
            says = "no measurable difference to copying the most recent line that starts alike"
        elif row["only_model_right"] > row["only_copy_line_right"]:
            says = "more lines exactly right than by copying the most recent line that starts alike"
        else:
            says = "**fewer** lines exactly right than by copying the most recent line that starts alike"
        lines.append(f"- On held-out projects, {names[kind]}: {says} ({against}).")
    best = max(row["exact_match"] for row in rows.values())
    if best < 0.1:
        lines.append(
            f"- Fewer than one line in ten is exactly right (at best {_percent(best)}). It exists so that the whole path "
            "runs on a real model; do not expect useful suggestions from it."
        )
    as_shipped = "as shipped, that threshold is set" if applied else "as shipped, no threshold is set"
    wanted = _percent(thresholds["wanted_precision"])
    if thresholds["show_rate"]:
        lines.append(
            f"- Of the lines with a mean log-probability of {thresholds['min_mean_logprob']} or more, {wanted} are right; those are "
            f"{_percent(thresholds['show_rate'])} of all; {as_shipped}."
        )
    else:
        lines.append(
            f"- At no confidence are {wanted} of its lines right ({thresholds['cases']:,} cases). So with the threshold of `foretype "
            f"models calibrate` its lines are shown only on request; {as_shipped}. The client's own candidate is shown unasked."
        )
    least = min(row["end_of_middle_rate"] for row in rows.values())
    verdict = (
        "stops by itself reliably" if least >= 0.95 else "does not always stop by itself, so stop rules are needed"
    )
    lines.append(f"- It {verdict} (at least {_percent(least)} of the cases of each kind).")
    lines += [
        "- It was trained on Python only, not on other languages, prose or instructions.",
        "- It is a completion model: it does not answer questions, and what it writes can be wrong in every way code can.",
        "- It can repeat text it was trained on; that text is permissively licensed, and the manifest names its sources.",
        "",
    ]
    return lines


def _behaviour(evaluation: Mapping[str, Any], thresholds: Mapping[str, float]) -> list[str]:
    """Rows that older result files lack are left out."""
    rows = evaluation["fill"]["rows"]
    lines: list[str] = []
    if all("loop_rate" in row for row in rows.values()):
        names = {
            "exact_match": "exact match",
            "first_word_match": "first word right",
            "end_of_middle_rate": "ends by itself",
            "end_in_line_rate": "ends in its line",
            "loop_rate": "repetition loops",
            "no_harm_rate": "no harm",
        }
        fills = [evaluation["fill"], *evaluation.get("beside", [])]
        table = [
            (
                f"{kind}, `{fill['layout']}`",
                *(_percent(fill["rows"][kind][key]) if key in fill["rows"][kind] else "" for key in names),
            )
            for kind in rows
            for fill in fills
        ]
        lines += _table(("", *names.values()), table)
        lines += [
            (
                "*No harm*: the file has no more syntax errors with the suggestion than without. *Ends in its line*: the answer "
                "ends by itself before a second line begins; a stop rule cuts the others."
            ),
            "",
        ]
    if "precision_at_30" in thresholds:
        lines += _table(
            ("shown, the surest first", "exactly right"),
            [(f"{percent} %", _percent(thresholds[f"precision_at_{percent}"])) for percent in (30, 50, 70)],
        )
    if previous := evaluation.get("previous"):
        served = f" in `{previous['fill']['layout']}`" if "layout" in previous["fill"] else ""
        lines += [f"Beside `{previous['file']}`, the previous model{served}, on the same cases:", ""]
        head = ("", "exact match", "previous model", "copy-line", "empty")
        before = previous["fill"]["rows"]
        keys = ("copy_line_exact_match", "empty_exact_match")
        table = [
            (
                kind,
                _percent(row["exact_match"]),
                _percent(before[kind]["exact_match"]),
                *(_percent(row[k]) for k in keys),
            )
            for kind, row in rows.items()
        ]
        lines += _table(head, table)
    return lines


def _difference(found: Mapping[str, float]) -> str:
    low, high = (f"{100 * found[key]:+.2f}" for key in ("low_95", "high_95"))
    return f"{100 * found['difference']:+.2f} points ({low} to {high}; {found['cuts']:,} cuts)"


def _layouts(found: Mapping[str, Any]) -> list[str]:
    lines = [
        "## Layouts, context, quantisation",
        "",
        (
            f"Next lines told exactly, their end included, on {found['cuts']:,} cuts of {found['repositories']} held-out projects; paired "
            "differences with 95 % intervals by bootstrap over projects."
        ),
        "",
        *_table(
            ("model and layout", "cuts", "exact"),
            [(key, f"{one['cuts']:,}", _percent(one["exact"])) for key, one in found["rates"].items()],
        ),
    ]
    for layout, one in found["against_classic"].items():
        verdict = "not inferior" if one["non_inferior"] else "**not shown to be non-inferior**"
        lines.append(
            f"- `{layout}` against `psm_classic`: {_difference(one)}: {verdict} by {-100 * found['margin']:.0f} point."
        )
    lines += [
        f"- `{found['layout']}`, in which it is served, against `{other}`: {_difference(one)}."
        for other, one in found["served_against"].items()
    ]
    verdict = "helps" if found["context"]["helps"] else "**no measurable help**"
    lines.append(f"- Other files in front: {_difference(found['context'])}: {verdict}.")
    lines += [f"- Q8_0 against {name}: {_difference(one)}." for name, one in found["beside"].items()]
    return [*lines, ""]


def _draft(found: Mapping[str, Any]) -> list[str]:
    accepted, times, speed = found["acceptance"], found["ms_per_token"], found["speed_up"]
    pays = [name for name, value in speed.items() if value > 1]
    return [
        "## Speculation",
        "",
        (
            f"`{found['draft']}` guesses {accepted['k']} tokens per step of `{found['target']}`: {accepted['tokens_per_step']:.2f} "
            f"tokens per step on {accepted['prompts']} held-out prompts in `{found['layout']}`; prompt lookup {accepted['prompt_lookup_tokens_per_step']:.2f}."
        ),
        "",
        *_table(
            ("decoding, greedy, embedded engine", "ms per token", "speed-up", "same text as plain"),
            [
                ("plain", f"{times['plain']:.2f}", "1.00", ""),
                *((n, f"{times[n]:.2f}", f"{v:.2f}", _percent(found["same_output"][n])) for n, v in speed.items()),
            ],
        ),
        (f"On this machine {' and '.join(pays)} paid" if pays else "On this machine none paid")
        + "; speculation is off in the embedded engine.",
        "",
    ]


def _seen(artifact: Artifact, loss: Mapping[str, Any]) -> str:
    last = f"{loss['trained_tokens']:,} in {loss['trained_steps']:,} steps"
    continued = artifact.trained_tokens > loss["trained_tokens"]
    return f"{artifact.trained_tokens:,}, of them {last} of the last run" if continued else last


def _before_long_rows(found: Mapping[str, Any] | None) -> list[tuple[str, ...]]:
    if found is None:
        return []
    label = f"before the long rows, after {found['trained_tokens']:,} tokens"
    return [(label, ", ".join(f"{v:.2f}" for v in found["nats_by_eighth"]))]


def render(artifact: Artifact, manifest: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]]) -> str:
    """The card as Markdown."""
    training, evaluation, parity, thresholds = (results[name] for name in RESULTS)
    loss, fill, totals = training["held_out"], evaluation["fill"], manifest["totals"]
    config = training["config"]
    splits = totals["splits"]
    lines = [
        f"# {artifact.name} {artifact.version}",
        "",
        "Generated by `foretype models card` from the files in `models/results/`. Do not edit.",
        "",
        (
            f"A Llama-shaped decoder for inline completion of Python: one GGUF file (Q8_0, {artifact.size_bytes / 1e6:.1f} MB), "
            f"grammar `{artifact.grammar}`, served in its layout `{fill['layout']}`, weights under {artifact.licence}."
        ),
        "",
        *_table(
            ("", ""),
            [
                ("parameters", f"{artifact.parameters:,}"),
                (
                    "shape",
                    (
                        f"{config['layers']} layers, width {config['width']}, {config['heads']} query heads and "
                        f"{config['kv_heads']} key/value head of {config['head_width']}, SwiGLU {config['feed_forward']}, "
                        "tied embeddings"
                    ),
                ),
                ("vocabulary", f"{config['vocabulary']:,}, byte-level BPE, Qwen2's pre-tokeniser"),
                ("tokens seen", _seen(artifact, loss)),
                ("time of the last run", f"{loss['trained_seconds'] / 60:.0f} minutes on {training['machine']}"),
                (
                    "context",
                    (
                        f"{config['max_position']:,} positions allowed; trained on rows of "
                        f"{training['train']['length']} and, at the end, {training['train']['long_length']:,} tokens"
                    ),
                ),
            ],
        ),
        "## Loss on held-out projects",
        "",
        *_table(
            ("text", "loss"),
            [
                ("training mixture, 512-token rows", f"{loss['mixture_512_nats']:.3f} nats per token"),
                ("training mixture, 2,048-token rows", f"{loss['mixture_2048_nats']:.3f} nats per token"),
                ("plain files, 2,048 tokens", f"{loss['plain']['bits_per_byte']:.3f} bits per byte"),
                ("the same by eighth of the 2,048", ", ".join(f"{v:.2f}" for v in loss["plain"]["nats_by_eighth"])),
                *_before_long_rows(results.get(DURING)),
            ],
        ),
        "![loss](results/loss.png)",
        "",
        "## Completion on held-out projects",
        "",
        (
            f"The shipped file in OpenVINO GenAI, greedy, layout `{fill['layout']}`, at most {fill['prompt_tokens']:,} prompt "
            f"tokens of the file alone, {fill['new_tokens']} new tokens. Cases are spread evenly over "
            f"{fill['repositories']} projects that were held out whole. *Copy-line* is the rest of the most recent "
            "line above that starts like this one."
        ),
        "",
        *_table(
            ("", "cases", "exact match", "copy-line", "empty", "first word right", "ends by itself"),
            [
                (
                    {"next_line": "next line, after Enter", "line_fill": "rest of a line, any cut"}[kind],
                    f"{row['cases']:,}",
                    _percent(row["exact_match"]),
                    _percent(row["copy_line_exact_match"]),
                    _percent(row["empty_exact_match"]),
                    _percent(row["first_word_match"]),
                    _percent(row["end_of_middle_rate"]),
                )
                for kind, row in fill["rows"].items()
            ],
        ),
        *_behaviour(evaluation, thresholds),
        *(progress.lines(results[OVER_TOKENS]) if OVER_TOKENS in results else []),
        *(_layouts(results["layouts"]) if "layouts" in results else []),
        *(_draft(results["draft"]) if "draft" in results else []),
        *_honest(fill["rows"], thresholds, "min_mean_logprob" in artifact.profile),
        "## Does the engine read the file right?",
        "",
        (
            f"Teacher-forced on {parity['prompts']} held-out prompts ({parity['positions']:,} positions), OpenVINO GenAI against "
            f"transformers in fp32 on the weights of the file: mean |Δ log-probability| {parity['openvino_mean_abs_logprob']}, "
            f"largest {parity['openvino_max_abs_logprob']}; greedy choices agree at "
            f"{_percent(parity['openvino_greedy_agreement'])} of {parity['openvino_greedy_positions']:,} positions. Q8_0 itself "
            f"changes the log-probability of the right token by {parity['q8_mean_logprob_change']} on average."
        ),
        "",
        "## What it was trained on",
        "",
        (
            f"{splits['train']['files']:,} files ({splits['train']['bytes'] / 1e6:.0f} MB) of {splits['train']['projects']} "
            "projects were available; a run uses as much of them as its time allows. Licences were read from the packages' own "
            "metadata; copyleft and unknown ones were left out. Each project with its version, licence and counts is in "
            "[lab/corpus/manifest.json](../lab/corpus/manifest.json)."
        ),
        "",
        *_table(
            ("licence", "MB"),
            [(licence, f"{size / 1e6:.1f}") for licence, size in totals["bytes_by_licence"].items()],
        ),
        *_table(("files left out because", "files"), [(r, f"{n:,}") for r, n in totals["dropped"].items()]),
        (
            "Never trained on: the benchmarks and projects in [lab/corpus/never_train.toml](../lab/corpus/never_train.toml), checked by name, "
            f"by folder and by content ({manifest['never_train']['runs']:,} distinct runs of 50 lexical tokens; "
            f"{len(manifest['never_train']['matched_files'])} files matched and were dropped). Checked by content: the projects "
            f"that are Python packages, and {', '.join(manifest['never_train']['benchmarks_checked'])}. SAFIM is excluded by "
            "name only: its text was not at hand."
        ),
        "",
    ]
    return "\n".join(lines)


def write_card(models_folder: Path, manifest_file: Path) -> Path:
    """Writes ``MODEL_CARD.md`` for the default model.

    Args:
        models_folder: the repository's ``models/``, which holds ``results/``.
        manifest_file: of the corpus that it was trained on.

    Raises:
        CardError: a result file is missing or stale.
    """
    artifact = locate()
    results = read_results(models_folder / "results", artifact)
    manifest = json.loads(manifest_file.read_text("utf-8"))
    target = models_folder / "MODEL_CARD.md"
    target.write_text(render(artifact, manifest, results))
    return target
