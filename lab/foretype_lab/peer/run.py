"""One recording through both clients, one after the other, and what came of it."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
from foretype_client.adaptive.model import AdaptiveModel
from foretype_client.flow.cache import CompletionCache
from foretype_client.flow.flow import CompletionFlow, FlowOptions
from foretype_client.flow.inflight import AnswerRules
from foretype_client.policy.switches import Switches
from foretype_client.policy.trigger import Policy, PolicyOptions
from foretype_eval.errors import RecordingError
from foretype_eval.gateway import GatewayOptions
from foretype_eval.replay.accept import Rule
from foretype_eval.replay.answer_sources import LiveGateway
from foretype_eval.replay.virtual import VirtualLoop
from foretype_eval.statistics import percentiles
from foretype_models.artifacts import digest_file, locate

from foretype_lab.peer.assistants import CountingGateway, ForetypeAssistant, LlamaVimAssistant, RequestRow
from foretype_lab.peer.llama_server import LlamaServer, find_llama_server
from foretype_lab.peer.recorded_typist import RecordedTypist, TypistTally
from foretype_lab.peer.steps import Step, steps_of
from foretype_lab.prefill.typed_commits import recording_of

SYSTEMS: Final = ("llama_vim", "foretype_network", "foretype")
SERVER_ARGUMENTS: Final = ("--batch-size", "1024", "--ubatch-size", "1024", "--ctx-size", "0", "--cache-reuse", "256")
"""What `llama-server --fim-qwen-1.5b-default` sets, the plugin's own recipe for small models."""

Progress = Callable[[str, int, int], None]


class PeerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to type, and through what.

    Attributes:
        source: a recording, or a repository whose `commits` are typed.
        gguf: the model of all systems; None for the shipped one.
        from_minute, minutes: the part of the recording that is typed; what stood before is read at its beginning.
        systems: of `llama_vim`, `foretype` (the product) and `foretype_network` (the product without its local candidate).
        layout: of our prompts, in place of what the gateway says.
        threads: of llama.cpp; 0 for as many as the embedded engine takes by itself, half of the cores.
    """

    source: Path
    gguf: Path | None = None
    commits: int | str = 3
    suffixes: tuple[str, ...] = (".py",)
    from_minute: float = 0.0
    minutes: float | None = None
    systems: tuple[str, ...] = SYSTEMS
    layout: str | None = None
    rule: Rule = Rule.LINE
    decide_ms: float = 200.0
    debounce_ms: float = 75.0
    threads: int = 0
    seed: int = 0


def run_peer(options: PeerOptions, *, progress: Progress = lambda _step, _done, _total: None) -> dict[str, Any]:
    """Type the recording once per system.

    Raises:
        LlamaServerError: the peer is not built, or failed; the message says what to do.
        ProfileError: the weights have no such layout.
        RecordingError, RepositoryError, GatewayGoneError, OSError: with what is wrong.
    """
    binary = find_llama_server() if "llama_vim" in options.systems else None
    shipped = locate()
    model = (options.gguf or shipped.path).resolve()
    recording = recording_of(
        options.source, options.commits, suffixes=options.suffixes, seed=options.seed, progress=progress
    )
    steps = _part(steps_of(recording), options)
    if not any(step.asks for step in steps):
        raise RecordingError(
            f"{recording.name}: nothing was typed in this part; choose another --from-minute, --minutes"
        )
    threads = options.threads or max(1, (os.cpu_count() or 1) // 2)
    rows: dict[str, dict[str, Any]] = {}
    peer = ""
    for number, system in enumerate(options.systems):
        progress("systems", number, len(options.systems))
        if system == "llama_vim":
            with LlamaServer(model, threads=threads, arguments=SERVER_ARGUMENTS, binary=binary) as server:
                rows[system] = _typed(steps, options, lambda loop, server=server: _llama_vim(server, loop, options))
                peer = server.version
        else:
            with LiveGateway(GatewayOptions(model=options.gguf)) as side:
                rows[system] = _typed(
                    steps, options, lambda loop, side=side, system=system: _foretype(side, loop, options, system)
                )
    progress("systems", len(options.systems), len(options.systems))
    return {
        "recording": recording.name,
        "from_minute": options.from_minute,
        "minutes": round((steps[-1].time_s - steps[0].time_s) / 60, 1),
        "keys": sum(bool(step.edits) for step in steps),
        "model": model.name,
        "model_sha256": digest_file(model),
        "peer": peer,
        "peer_arguments": list(SERVER_ARGUMENTS),
        "threads": threads,
        "accept_rule": str(options.rule),
        "decide_ms": options.decide_ms,
        "debounce_ms": options.debounce_ms,
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


Made = tuple[LlamaVimAssistant | ForetypeAssistant, Callable[[], list[RequestRow]]]


def _typed(steps: Sequence[Step], options: PeerOptions, make: Callable[[VirtualLoop], Made]) -> dict[str, Any]:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        if not isinstance(loop, VirtualLoop):
            raise TypeError("the desk needs a virtual loop")

        async def work() -> tuple[TypistTally, list[RequestRow], dict[str, Any]]:
            assistant, rows = make(loop)
            desk = RecordedTypist(
                assistant, rule=options.rule, decide_s=options.decide_ms / 1000, rng=random.Random(options.seed)
            )
            await desk.run(steps)
            return desk.tally, rows(), _own(assistant) if isinstance(assistant, ForetypeAssistant) else {}

        return _row(*runner.run(work()))


def _llama_vim(server: LlamaServer, loop: VirtualLoop, options: PeerOptions) -> Made:
    assistant = LlamaVimAssistant(server, loop, rng=random.Random(options.seed))
    return assistant, lambda: assistant.rows


def _foretype(side: LiveGateway, loop: VirtualLoop, options: PeerOptions, system: str) -> Made:
    gateway = CountingGateway(side.ask, side.profile, loop)
    planner = side.assembler(options.layout)
    flow = CompletionFlow(
        gateway,
        lambda _: planner,
        clock=loop.time,
        # The peers show whatever the model says; what is compared is how.
        policy=Policy(PolicyOptions(debounce_ms=options.debounce_ms, switches=Switches(unsure=True))),
        cache=CompletionCache(),
        local=AdaptiveModel() if system == "foretype" else None,
        rng=random.Random(options.seed),
        # As every editor that is told of growth; llama.vim never redraws.
        options=FlowOptions(answer=AnswerRules.growing()),
    )
    return ForetypeAssistant(flow, loop.time), lambda: gateway.rows


def _own(assistant: ForetypeAssistant) -> dict[str, Any]:
    """What only our client does: where its suggestions came from, and how often one that was shown was drawn again."""
    return {
        "by_source": dict(sorted(assistant.by_source.items())),
        "redraws_most": max(assistant.redraws.values(), default=0),
        "redraws": assistant.redraws.total(),
        "taken_back": assistant.taken_back,
    }


def _row(tally: TypistTally, rows: Sequence[RequestRow], own: dict[str, Any]) -> dict[str, Any]:
    asked = [row for row in rows if row.kind != "warm_up"]
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
