"""Measurements of vLLM on real GPUs beside what the formulas say, which is where the efficiencies come from.

Published ones, and those of our own half hour on one card. The inputs are what the source states; what it leaves out is in the remark.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from foretype_plan.catalogue import catalogue
from foretype_plan.scenario import Scenario, Tier, values
from foretype_plan.sheet import evaluate


class _Run(NamedTuple):
    source: str
    what: str
    tier: Tier
    measured: float
    quantity: str
    remark: str = ""


ENGINE_S: Final = 0.005
"""s: that an engine takes for a first token beside its arithmetic; of the catalogue's `overhead_s` the rest is the gateway's."""
_ALONE: Final = {"batch": 1.0, "network_s": 0.0, "overhead_s": ENGINE_S, "step_overhead_s": 0.0003, "objective_s": 60.0}
_OURS: Final = "measurements/vllm.md"
_TT: Final = "https://github.com/tenstorrent/tt-inference-server/issues/"
_QWEN3: Final = "https://github.com/vllm-project/vllm/issues/25915"
_SWEEP: Final = "https://johnmusgrave.com/p/vllm-throughput-latency-sweep-on"
_RECIPE: Final = "https://yobitelcomm.github.io/bench/recipes/concurrency-sweep/"


def alone(
    model: str, gpu: str, prompt: float, output: float, *, bits: int = 16, kv_bits: int = 16, gpus: int = 1
) -> Tier:
    """One request in an engine without a gateway or a network; tokens, and bits of weights and of keys and values."""
    inputs = _ALONE | {"prompt_tokens": prompt, "output_tokens": output, "new_tokens": prompt}
    return Tier(model=model, gpu=gpu, gpus_per_replica=gpus, weight_bits=bits, kv_bits=kv_bits, inputs=inputs)


_RUNS: Final = (
    _Run(_RECIPE, "Llama 3.1 8B, 16 bits, H100, vLLM 0.21: ms a token, one stream", alone("llama-3.1-8b", "h100", 200, 200), 6.48, "tpot"),
    _Run(_SWEEP, "Llama 3.1 8B, 16 bits, A100 40 GB, vLLM 0.23: ms a token, one stream", alone("llama-3.1-8b", "a100-40", 1024, 128), 1000 / 75, "tpot"),
    _Run(_TT + "125", "Qwen2.5 7B, 16 bits, RTX 4090: ms a token, one stream", alone("qwen2.5-coder-7b", "rtx4090", 1024, 128), 17.2, "tpot"),
    _Run(_TT + "125", "the same: ms to the first token, 1,024 of prompt", alone("qwen2.5-coder-7b", "rtx4090", 1024, 128), 99.6, "ttft"),
    _Run(_TT + "143", "Qwen2.5 72B, two H100: ms a token, one stream", alone("qwen2.5-72b", "h200", 4096, 128, gpus=2), 31.1, "tpot",
         "reckoned with 16 bits and the H100's bandwidth; 145 GB leave two cards of 80 GB no cache, so the card or the bits are others than told"),
    _Run(_TT + "143", "the same: ms to the first token, 4,096 of prompt", alone("qwen2.5-72b", "h200", 4096, 128, gpus=2), 505.1, "ttft", "the same"),
    _Run(_QWEN3, "Qwen3 8B, 16 bits, H100, vLLM 0.10.2: tokens/s written, 1,024 in, 2,048 out, offline", alone("qwen3-8b", "h100", 1024, 2048), 5408.88, "offline"),
    _Run(_QWEN3, "Qwen3 8B, FP8: the same", alone("qwen3-8b", "h100", 1024, 2048, bits=8), 5304.03, "offline", "hardly faster than 16 bits there, which the reporter asks about"),
    _Run(_OURS, "7B shape, 16 bits, H200, vLLM 0.25: ms to the first token, 2,000 of prompt", alone("qwen2.5-coder-7b", "h200", 2000, 16), 44.1, "ttft"),
    _Run(_OURS, "the same, 6,000 of prompt", alone("qwen2.5-coder-7b", "h200", 6000, 16), 139.5, "ttft"),
    _Run(_OURS, "the same: ms a token, one stream behind 2,000", alone("qwen2.5-coder-7b", "h200", 2000, 128), 4.53, "tpot"),
    _Run(_OURS, "the same in FP8: ms to the first token, 2,000 of prompt", alone("qwen2.5-coder-7b", "h200", 2000, 16, bits=8), 34.0, "ttft"),
    _Run(_OURS, "the same in FP8: ms a token", alone("qwen2.5-coder-7b", "h200", 2000, 128, bits=8), 3.24, "tpot"),
)  # fmt: skip


def measured() -> list[dict[str, Any]]:
    """`source`, `what`, `measured`, `predicted`, `ratio`, `remark` of each."""
    made: list[dict[str, Any]] = []
    for run in _RUNS:
        predicted = _predicted(run)
        made.append(
            {
                "source": run.source,
                "what": run.what,
                "measured": run.measured,
                "predicted": predicted,
                "ratio": predicted / run.measured,
                "remark": run.remark,
            }
        )
    return made


def _predicted(run: _Run) -> float:
    given = values(Scenario(), run.tier)
    if run.tier.model == "qwen2.5-72b":  # two cards of 80 GB cannot hold it: their speed, the room of larger ones
        given["gpu_bandwidth"] = catalogue().hardware["h100"].bandwidth
    if run.quantity == "tpot":
        return 1000 * evaluate(given, only="tpot_s")["tpot_s"]
    if run.quantity == "ttft":
        return 1000 * evaluate(given, only="cold_s")["cold_s"]
    return _offline(given)


def _offline(given: dict[str, float]) -> float:
    """tokens/s: every prompt is there at once, and the batch is what memory holds of half-written answers, 256 at most."""
    half = given["prompt_tokens"] + given["output_tokens"] / 2
    per_token = evaluate(given, only="kv_bytes_per_token")["kv_bytes_per_token"]
    room = evaluate(given, only="kv_room_bytes")["kv_room_bytes"]
    batch = min(256.0, room / per_token / half)
    known = evaluate({**given, "batch": batch, "kv_bytes_per_session": half * per_token}, only="tpot_s")
    prompt = evaluate(given, only="prefill_tokens_per_s")["prefill_tokens_per_s"]
    busy = given["prompt_tokens"] / prompt + given["output_tokens"] * known["tpot_s"] / batch
    return given["output_tokens"] / busy
