"""One recording through both clients, one after the other, and what came of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from foretype_eval.errors import RecordingError
from foretype_eval.replay.virtual import VirtualLoop
from foretype_eval.statistics import percentiles
from foretype_models.artifacts import digest_file
from foretype_wire.messages import RequestClass

from foretype_lab.peer.assistants import ForetypeAssistant, RequestRow
from foretype_lab.peer.clocks import Clock, WallLoop
from foretype_lab.peer.llama_server import find_llama_server
from foretype_lab.peer.options import PeerOptions
from foretype_lab.peer.recorded_typist import RecordedTypist, TypistTally
from foretype_lab.peer.steps import Step, steps_of
from foretype_lab.peer.systems import SERVER_ARGUMENTS, Processor, made
from foretype_lab.prefill.typed_commits import recording_of

SYSTEMS: Final = ("llama_vim", "llama_vscode", "continue", "foretype_network", "foretype")

Progress = Callable[[str, int, int], None]


def run_peer(options: PeerOptions, *, progress: Progress = lambda _step, _done, _total: None) -> dict[str, Any]:
    """Type the recording once per system.

    Raises:
        LlamaServerError: the peer is not built, or failed; the message says what to do.
        ProfileError: the weights have no such layout.
        RecordingError, RepositoryError, GatewayGoneError, OSError: with what is wrong.
    """
    if any(not name.startswith("foretype") for name in options.systems):
        find_llama_server()
    recording = recording_of(
        options.source, options.commits, suffixes=options.suffixes, seed=options.seed, progress=progress
    )
    steps = _part(steps_of(recording), options)
    if not any(step.asks for step in steps):
        raise RecordingError(
            f"{recording.name}: nothing was typed in this part; choose another --from-minute, --minutes"
        )
    rows: dict[str, dict[str, Any]] = {}
    peer = ""
    for number, system in enumerate(options.systems):
        progress("systems", number, len(options.systems))
        rows[system], version = _typed(system, steps, options)
        peer = version or peer
    progress("systems", len(options.systems), len(options.systems))
    return {
        "recording": recording.name,
        "from_minute": options.from_minute,
        "minutes": round((steps[-1].time_s - steps[0].time_s) / 60, 1),
        "live": options.live,
        "keys": sum(bool(step.edits) for step in steps),
        "model": options.model.name,
        "model_sha256": digest_file(options.model),
        "peer": peer,
        "peer_arguments": list(SERVER_ARGUMENTS),
        "threads": options.threads,
        "accept_rule": str(options.rule),
        "decide_ms": options.decide_ms,
        "debounce_ms": options.debounce_ms,
        "with": list(options.with_),
        "seed": options.seed,
        "systems": rows,
    }


def _part(steps: Sequence[Step], options: PeerOptions) -> list[Step]:
    """The chosen minutes; files are read at the beginning as the steps before left them."""
    if not steps:
        return []
    first_s = steps[0].time_s + options.from_minute * 60
    last_s = float("inf") if options.minutes is None else first_s + options.minutes * 60
    texts: dict[str, str] = {}
    carets: dict[str, int] = {}
    number = 0
    while number < len(steps) and (
        steps[number].time_s < first_s or (number and steps[number - 1].visit_end >= number)
    ):
        step = steps[number]
        text = texts.get(step.path, "") if step.loaded is None else step.loaded
        for start, end, new in step.edits:
            text = text[:start] + new + text[end:]
        texts[step.path], carets[step.path] = text, step.caret
        number += 1
    until = number
    while until < len(steps) and steps[until].time_s < last_s:
        until = steps[until].visit_end + 1
    begin_s = steps[number].time_s if number < len(steps) else 0.0
    loaded = [
        Step(time_s=begin_s, path=path, loaded=text, caret=carets[path]) for path, text in texts.items() if number
    ]
    shift = len(loaded) - number
    return [
        *(replace(step, visit_end=at) for at, step in enumerate(loaded)),
        *(replace(step, visit_end=step.visit_end + shift) for step in steps[number:until]),
    ]


def _typed(system: str, steps: Sequence[Step], options: PeerOptions) -> tuple[dict[str, Any], str]:
    """The row of one system, and the version of the peer's server."""
    with asyncio.Runner(loop_factory=WallLoop if options.live else VirtualLoop) as runner:
        loop = runner.get_loop()
        if not isinstance(loop, Clock):
            raise TypeError("the desk needs a loop that can be held")

        async def work() -> tuple[dict[str, Any], str]:
            async with made(system, loop, options) as (assistant, rows, version):
                desk = RecordedTypist(
                    assistant, rule=options.rule, decide_s=options.decide_ms / 1000, rng=random.Random(options.seed)
                )
                processor, began = Processor(), loop.time()
                await desk.run(steps)
                own = _spent(processor.spent_s(), desk.tally)
                if options.live:
                    own["share_of_a_core"] = round(own["processor_s"] / (loop.time() - began), 4)
                if isinstance(assistant, ForetypeAssistant):
                    own |= _own(assistant)
                return _row(desk.tally, rows(), own), version

        return runner.run(work())


def _spent(spent_s: tuple[float, float], tally: TypistTally) -> dict[str, Any]:
    """On the virtual clock ours is an upper bound: what is cancelled there is computed to its end."""
    client_s, servers_s = spent_s
    return {
        "client_s": round(client_s, 2),
        "servers_s": round(servers_s, 2),
        "processor_s": round(client_s + servers_s, 2),
        "processor_s_per_1000_keys": round((client_s + servers_s) / max(tally.keys_without, 1) * 1000, 1),
    }


def _own(assistant: ForetypeAssistant) -> dict[str, Any]:
    """What only our client does: where its suggestions came from, and how often one that was shown was drawn again."""
    return {
        "by_source": dict(sorted(assistant.by_source.items())),
        "redraws_most": max(assistant.redraws.values(), default=0),
        "redraws": assistant.redraws.total(),
        "taken_back": assistant.taken_back,
    }


def _row(tally: TypistTally, rows: Sequence[RequestRow], own: dict[str, Any]) -> dict[str, Any]:
    asked = [row for row in rows if row.kind not in ("warm_up", RequestClass.WARM)]
    # Warm: most of the prompt was in the cache, whatever the reason.
    warm = [row for row in asked if 2 * row.evaluated_tokens <= row.prompt_tokens]
    cold = [row for row in asked if 2 * row.evaluated_tokens > row.prompt_tokens]
    first = {
        name: [row.first_ms for row in some if row.first_ms is not None]
        for name, some in (("warm", warm), ("cold", cold))
    }
    kinds = {kind: sum(row.kind == kind for row in rows) for kind in sorted({row.kind for row in rows})}
    evaluated = sum(row.evaluated_tokens for row in rows)
    return {
        "requests": len(rows),
        "requests_by_kind": kinds,
        "prompt_tokens": sum(row.prompt_tokens for row in rows),
        "evaluated_tokens": evaluated,
        "evaluated_per_key": round(evaluated / tally.keys_without, 2) if tally.keys_without else None,
        "generated_tokens": sum(row.generated_tokens for row in rows),
        "ttft_warm_ms": _spread(first["warm"]),
        "ttft_cold_ms": _spread(first["cold"]),
        "answer_ms": _spread([row.answer_ms for row in asked]),
        "answer_warm_ms": _spread([row.answer_ms for row in warm]),
        "waited_ms": _spread([row.waited_ms for row in asked if row.waited_ms > 0]),
        "overlapping_requests": _overlapping(rows),
        "engine_busy_s": round(sum(row.answer_ms for row in rows) / 1000, 1),
        "shown_ms": _spread(tally.shown_ms),
        "keys_without": tally.keys_without,
        "keys_with": tally.keys_with,
        "ksr": round(1 - tally.keys_with / tally.keys_without, 5) if tally.keys_without else None,
        "saved_percent": round(100 * (1 - tally.keys_with / max(tally.keys_without, 1)), 3),
        "right_percent": round(100 * tally.shown_right / max(tally.shown, 1), 2),
        "asked": tally.asked,
        "shown": tally.shown,
        "shown_right": tally.shown_right,
        "accepts": tally.accepts,
        "accepted_chars": tally.accepted_chars,
        **own,
    }


def _overlapping(rows: Sequence[RequestRow]) -> int:
    """Requests that went out while another of the same client was being answered."""
    busy_s, count = 0.0, 0
    for row in sorted(rows, key=lambda row: row.sent_s):
        count += row.sent_s < busy_s
        busy_s = max(busy_s, row.sent_s + (row.waited_ms + row.answer_ms) / 1000)
    return count


def _spread(values: Sequence[float]) -> dict[str, float | int | None]:
    found = percentiles(values)
    return {"n": found.n, "p50": found.p50, "p95": found.p95}
