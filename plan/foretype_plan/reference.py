"""Five published case studies, each worked out from its own stated inputs with the formulas of every plan.

The cases: S0 a code assistant, S1 a consumer chat, S2 a Copilot-style backend, S3 inference latency of a code completer, S4 an
inference platform. `remark` says where one contradicts physics, or itself. No input here is ours but where the remark says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from foretype_plan.day import swing
from foretype_plan.sheet import evaluate

TOLERANCE: Final = 0.30
"""The case studies call themselves right to that."""

_GB: Final = 1e9
_H100: Final = {"gpu_flops": 990e12, "gpu_bandwidth": 3.35e12, "gpu_memory_bytes": 80e9, "gpus_per_replica": 1.0}


class _Row(NamedTuple):
    case: str
    quantity: str
    expected: float
    got: float
    remark: str = ""


def reference() -> list[dict[str, Any]]:
    """`case`, `quantity`, `expected`, `got`, `ratio`, `remark` of each."""
    rows = [*_code_assistant(), *_chat(), *_copilot(), *_latency(), *_platform()]
    return [{**row._asdict(), "ratio": row.got / row.expected} for row in rows]


def _of(name: str, **values: float) -> float:
    return evaluate(values, only=name)[name]


def _code_assistant() -> Iterator[_Row]:
    seven = _H100 | {"prefill_efficiency": 0.4, "active_parameters": 7e9, "layers": 0.0, "heads": 0.0, "head_dim": 0.0}
    asked = {"prompt_tokens": 6000.0, "network_s": 0.0, "overhead_s": 0.0, "step_s": 0.0}
    rate = _of("prefill_tokens_per_s", **seven, prompt_tokens=6000.0)
    attention = "attention is left out, as there; with a 7B's 32 layers of 32 heads it adds a tenth"
    yield _Row("S0", "prefill of a 7B at 40 % of an H100, tokens/s", 28000, rate, attention)
    yield _Row("S0", "6,000 cold tokens, 7B, ms", 214, 1000 * _of("cold_s", **seven, **asked))
    thirteen = seven | {"active_parameters": 13e9}
    yield _Row("S0", "6,000 cold tokens, 13B, ms", 430, 1000 * _of("cold_s", **thirteen, **asked))
    warm = _of("warm_s", **seven, **asked | {"step_s": 0.003}, new_tokens=5.0)
    yield _Row("S0", "five new tokens, warm, ms", 3.5, 1000 * warm, "3 to 4; its decoding step of 3 ms is an input")
    life = _of("residence_s", **_life(0.2, network_s=0.0), output_tokens=25.0, tpot_s=0.010)
    in_flight = _of("in_flight", peak_rate=2000.0, residence_s=life)
    yield _Row("S0", "requests in flight at 2,000/s", 900, in_flight)


def _chat() -> Iterator[_Row]:
    life = _of("residence_s", **_life(1.0, network_s=0.0), output_tokens=300.0, tpot_s=0.060)
    yield _Row("S1", "turns in flight at 50,000/s", 950_000, _of("in_flight", peak_rate=50_000.0, residence_s=life))
    seventy = {"layers": 80.0, "kv_heads": 8.0, "head_dim": 128.0}
    each = _of("kv_bytes_per_token", **seventy, kv_bits=16.0)
    yield _Row("S1", "70B, 16 bits, KB a token", 320, each / 1024, "KB of 1,024 bytes")
    session = _of("kv_bytes_per_session", prompt_tokens=4000.0, output_tokens=0.0, kv_bytes_per_token=each)
    yield _Row("S1", "70B, a session of 4,000 tokens, GB", 1.3, session / _GB)
    eight = _of("kv_bytes_per_token", **seventy, kv_bits=8.0)
    yield _Row("S1", "70B, 8 bits, KB a token", 160, eight / 1024)
    scaled = eight * 7 / 70 / 1024
    told = "scaled by parameters, as there; real 7B models have 28 (Qwen2.5) to 256 KB (Llama 2) in 8 bits"
    yield _Row("S1", "7B free tier, 8 bits, KB a token", 16, scaled, told)
    yield _Row("S1", "keys and values of a session, 70B in 16 bits by 7B in 8", 20, each / (scaled * 1024), _TWENTY)
    day = swing(10.0)
    yield _Row("S1", "capacity that is idle off-peak, share", 0.9, (max(day) - min(day)) / max(day))
    mean = sum(day) / 24 / max(day)
    yield _Row(
        "S1",
        "bill when autoscaled, by the peak's",
        0.4,
        mean,
        "a day that is smooth in proportion; spike headroom comes on top",
    )
    tp4 = _H100 | {"gpus_per_replica": 4.0, "prefill_efficiency": 0.4, "active_parameters": 70e9}
    none = {"layers": 0.0, "heads": 0.0, "head_dim": 0.0, "network_s": 0.0, "overhead_s": 0.0, "step_s": 0.0}
    yield _Row(
        "S1",
        "a resumed session's prompt, four H100s, ms",
        350,
        1000 * _of("cold_s", **tp4, **none, prompt_tokens=4000.0),
    )


_TWENTY: Final = "sessions on a GPU grow more: 14 GB of weights leave more room than a third of 140"


def _copilot() -> Iterator[_Row]:
    each = _of("kv_bytes_per_token", layers=32.0, kv_heads=32.0, head_dim=128.0, kv_bits=16.0)
    yield _Row("S2", "7B without grouped heads, MB for 1,000 tokens", 524, each * 1000 / 1e6)
    entries = _of(
        "sessions_per_gpu",
        kv_room_bytes=_of(
            "kv_room_bytes",
            gpus_per_replica=1.0,
            gpu_memory_bytes=80e9,
            memory_share=1.0,
            reserved_bytes=0.0,
            weights_bytes=3.5e9,
        ),
        kv_bytes_per_session=1000.0 * each,
        gpus_per_replica=1.0,
    )
    yield _Row("S2", "entries of 1,000 tokens beside INT4 weights", 150, entries)
    sustained = 1e9 / 86400
    yield _Row("S2", "tokens/s, sustained", 11_500, sustained)
    yield _Row("S2", "tokens/s, burst", 34_500, 3 * sustained)
    written = _of("requests_per_day", mean_rate=50e6 / 86400) * 55 / 86400
    for name, rate, expected in (("sustained", written, 14.5), ("burst", 3 * written, 42.5)):
        yield _Row("S2", f"GPUs at 2,000 to 3,000 tokens/s, {name}", expected, _gpus(rate, 2500.0), _ITSELF)
    day = _of("cost_month_fixed", gpus_with_failure=60.0, gpu_price_per_hour=3.0) / 730 * 24
    yield _Row("S2", "60 H100s, $ a day", 4300, day)
    accepted = _of(
        "accepted_per_month",
        requests_per_day=50e6,
        working_days=1.0,
        shown_share=1.0,
        acceptance=0.3,
        output_tokens=20.0,
    )
    per_1k = _of("cost_per_1k_accepted", cost_month=day, accepted_per_month=accepted)
    yield _Row(
        "S2",
        "$ for 1,000 accepted tokens",
        0.014,
        per_1k,
        "50 million requests of 20 tokens; it also says 200 suggestions for each of a million",
    )


_ITSELF: Final = (
    "50 million requests of 30 to 80 tokens; its 10⁹ tokens a day would be 5 and 14 GPUs: it contradicts itself. And its prompts: "
    "2,000 tokens in 15 to 25 ms are 80,000 to 133,000/s, it also says 10,000 to 15,000/s, and then a GPU that takes in seven cold "
    "prompts a second writes no 2,000 tokens"
)


def _gpus(tokens_per_s: float, each: float) -> float:
    return _of("gpus_peak", gpus_per_replica=1.0, peak_rate=tokens_per_s, most_per_replica=each, regions=1.0)


def _latency() -> Iterator[_Row]:
    drafted = _of("tokens_per_step", draft_tokens=5.0, draft_acceptance=0.82)
    target, draft = 1 / 78, 1 / 800
    each = _of("tpot_s", step_s=target, tokens_per_step=drafted, draft_tokens=5.0, draft_step_share=draft / target)
    yield _Row(
        "S3",
        "tokens/s with a draft of five, 82 % taken",
        165,
        1 / each,
        "it counts 4.1 of 5; equal chances give 3.9 with the one of its own",
    )
    yield _Row(
        "S3",
        "GPUs for 12,000 sessions at three times 3,000 on 8",
        12,
        _gpus(12_000.0, 3000 / 8 * 3),
        "what a request asks of a GPU is not stated",
    )
    four = {"gpus_per_replica": 4.0, "gpu_flops": 624e12, "prefill_efficiency": 0.4, "active_parameters": 13e9}
    shape = {"layers": 40.0, "heads": 40.0, "head_dim": 128.0}
    for name, prompt, way, rest, expected in (
        ("p50", 1024.0, 0.015, 0.002 + 0.008, 52.0),
        ("p95", 2048.0, 0.015, 0.003 + 0.020, 135.0),
    ):
        step = (13e9 / (4 * 1.555e12 * 0.75)) if name == "p50" else 0.035 * 0.69
        first = _of(
            "warm_s",
            **four,
            **shape,
            prompt_tokens=prompt,
            new_tokens=prompt - 200,
            network_s=way,
            overhead_s=rest + step,  # it counts the first step behind the prompt
            step_s=0.0,
        )
        yield _Row("S3", f"first token {name}, ms", expected, 1000 * first, _S3[name])


_S3: Final = {
    "p50": "four A100s to a node in 8 bits, 200 of 1,024 tokens cached, tokenizer and cache as stated; 45 ms of prefill on one A100 would be 592 TFLOP/s of its 312",
    "p95": "2,048 tokens, the first step as stated less the 31 % of 8 bits, no queue; what queue is left it does not say",
}


def _platform() -> Iterator[_Row]:
    each = _of("kv_bytes_per_token", layers=80.0, kv_heads=8.0, head_dim=128.0, kv_bits=16.0)
    yield _Row("S4", "70B, MB a token", 0.3, each / 1e6)
    yield _Row("S4", "a request of 8,000 tokens, GB", 2.5, 8000 * each / _GB)
    room = _of(
        "kv_room_bytes",
        gpus_per_replica=8.0,
        gpu_memory_bytes=80e9,
        memory_share=1.0,
        reserved_bytes=12.5e9,
        weights_bytes=140e9,
    )
    yield _Row("S4", "memory for keys and values on eight H100s, GB", 400, room / _GB)
    many = 8 * _of("sessions_per_gpu", kv_room_bytes=room, kv_bytes_per_session=4000.0 * each, gpus_per_replica=8.0)
    yield _Row("S4", "requests of 4,000 tokens on eight H100s", 300, many)


def _life(first_s: float, **more: float) -> Mapping[str, float]:
    """All requests alike: their first token after `first_s`."""
    return {"warm_share": 1.0, "warm_s": first_s, "partial_share": 0.0, "partial_s": first_s, "cold_s": first_s} | more
