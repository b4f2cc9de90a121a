"""One benchmark run: references checked, completions asked for, executed, graded, written."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec

from foretype_eval.fim.ask import AskOptions, FimAnswer, ask_all
from foretype_eval.fim.baselines import Baseline, baseline
from foretype_eval.fim.grade import GradedRow, execute, grade
from foretype_eval.fim.items import Item, load_items
from foretype_eval.fim.summary import summarise
from foretype_eval.gateway import GatewayOptions, connected
from foretype_eval.sandbox import Isolation, ProgramLimits, Sandbox

Progress = Callable[[str, int, int], None]
"""Told the name of a step, how much is done and how much there is."""

_HASH_BYTES: Final = 16


class FimOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to run.

    Attributes:
        baseline: a row that needs no model, made with the same code.
        limit: only so many items, spread evenly over the file so that they stay representative.
        execute: run the tests; without it only exact match is measured.
        check_references: run the references first, and leave out items whose own reference fails.
        seed: of the bootstrap.
    """

    data: Path
    out: Path | None = None
    limit: int | None = None
    baseline: Baseline | None = None
    layout: str | None = None
    execute: bool = True
    check_references: bool = True
    keep_text: bool = False
    workers: int = 2
    seed: int = 0
    ask: AskOptions = AskOptions()
    gateway: GatewayOptions = GatewayOptions()


async def run_fim(options: FimOptions, *, progress: Progress = lambda _step, _done, _total: None) -> dict[str, Any]:
    """Run a benchmark and return its summary; `--out` also gets `items.jsonl` and `summary.json`.

    Raises:
        EvalError: the data file cannot be read, or programs cannot be executed here.
        GatewayGoneError: the gateway cannot be reached or started.
    """
    items = _spread(load_items(options.data), options.limit)
    started = time.perf_counter()
    sandbox = Sandbox(ProgramLimits(), workers=options.workers) if options.execute else None
    seconds: dict[str, float] = {}
    with sandbox if sandbox is not None else nullcontext():
        dropped: list[str] = []
        if sandbox is not None and options.check_references and options.baseline is not Baseline.REFERENCE:
            items, dropped = await asyncio.to_thread(_checked, sandbox, items, progress)
            seconds["references"] = round(time.perf_counter() - started, 2)
        asked = time.perf_counter()
        answers, system = await _answers(options, items, progress)
        seconds["completions"] = round(time.perf_counter() - asked, 2)
        rows = _graded(items, answers, options)
        executed = time.perf_counter()
        isolation: Isolation | None = None
        if sandbox is not None:
            isolation = sandbox.isolation
            await asyncio.to_thread(_executed, sandbox, items, answers, rows, progress)
            seconds["execution"] = round(time.perf_counter() - executed, 2)
    summary = {
        **summarise(rows, seed=options.seed),
        "system": system,
        "data": {
            "file": options.data.name,
            "blake2b": await asyncio.to_thread(_digest, options.data),
            "stop_rules": sorted({str(item.stop) for item in items}),
            "limit": options.limit,
            "reference_failures": len(dropped),
            "references_checked": options.execute and options.check_references,
        },
        "isolation": None if isolation is None else isolation._asdict(),
        "seconds": seconds,
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "foretype": version("foretype")},
    }
    if options.out is not None:
        await asyncio.to_thread(_write, options.out, rows, summary)
    return summary


def _spread(items: list[Item], limit: int | None) -> list[Item]:
    """Every k-th item: the first `limit` would come from a few problems."""
    if limit is None or limit >= len(items):
        return items
    return [items[(2 * number + 1) * len(items) // (2 * limit)] for number in range(limit)]


def _checked(sandbox: Sandbox, items: Sequence[Item], progress: Progress) -> tuple[list[Item], list[str]]:
    kept: list[Item] = []
    dropped: list[str] = []
    outcomes = execute(sandbox, [(item, item.reference) for item in items])
    for number, (item, (passed, _)) in enumerate(zip(items, outcomes, strict=True), 1):
        if passed is False:
            dropped.append(item.id)
        else:
            kept.append(item)
        progress("references", number, len(items))
    return kept, dropped


async def _answers(
    options: FimOptions, items: Sequence[Item], progress: Progress
) -> tuple[list[FimAnswer], dict[str, Any]]:
    if options.baseline is not None:
        complete = baseline(options.baseline)
        return [FimAnswer(text=complete(item)) for item in items], {"baseline": str(options.baseline)}
    done = 0

    def advanced() -> None:
        nonlocal done
        done += 1
        progress("completions", done, len(items))

    async with connected(options.gateway) as gateway:
        assembler = gateway.assembler(layout=options.layout)
        answers = [
            answer async for answer in ask_all(gateway.session, assembler, items, options.ask, advanced=advanced)
        ]
        profile = gateway.profile
        system = {
            "model": profile.model,
            "grammar": profile.grammar,
            "layout": options.layout or profile.layout,
            "tokenizer": profile.tokenizer_digest,
            "strategy": profile.strategy,
            "variant": profile.variant,
            "decoding": "greedy",
            "max_tokens": options.ask.max_tokens,
            "post_process": options.ask.post_process,
        }
    return answers, system


def _graded(items: Sequence[Item], answers: Sequence[FimAnswer], options: FimOptions) -> list[GradedRow]:
    # A key per run directory would not join runs; a plain hash of a short text could be guessed, but what a model wrote for a
    # public benchmark is no secret.
    rows: list[GradedRow] = []
    for item, answer in zip(items, answers, strict=True):
        digest = blake2b(answer.text.encode("utf-8", "replace"), digest_size=_HASH_BYTES).hexdigest()
        row = grade(item, answer.text, completion_hash=digest, keep_text=options.keep_text)
        row.finish, row.error = answer.finish, answer.error
        row.prompt_tokens, row.cached_tokens = answer.prompt_tokens, answer.cached_tokens
        row.generated_tokens, row.mean_logprob = answer.generated_tokens, answer.mean_logprob
        row.ttft_ms, row.total_ms = answer.ttft_ms, answer.total_ms
        rows.append(row)
    return rows


def _executed(
    sandbox: Sandbox, items: Sequence[Item], answers: Sequence[FimAnswer], rows: Sequence[GradedRow], progress: Progress
) -> None:
    pairs = [(item, answer.text) for item, answer in zip(items, answers, strict=True)]
    for number, (row, outcome) in enumerate(zip(rows, execute(sandbox, pairs), strict=True), 1):
        row.passed, row.outcome = outcome
        progress("execution", number, len(rows))


def _digest(path: Path) -> str:
    return blake2b(path.read_bytes(), digest_size=_HASH_BYTES).hexdigest()


def _write(out: Path, rows: Sequence[GradedRow], summary: dict[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    part = secrets.token_hex(4)
    for name, data in (
        ("items.jsonl", b"".join(msgspec.json.encode(row) + b"\n" for row in rows)),
        ("summary.json", msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"),
    ):
        # Whole or not at all: a run that was interrupted leaves the former one in place.
        temporary = out / f".{name}.{part}"
        temporary.write_bytes(data)
        temporary.replace(out / name)
