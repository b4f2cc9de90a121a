"""The few names of vLLM that the in-process engine uses, loaded when it starts; the rest of the gateway does without vLLM.

Read in vLLM 0.32 and 0.33. Prompts are handed over rendered (`tokens_input`), since a plain mapping takes a turn through a
thread pool; requests give their tokens as they come (`DELTA`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple

_ENVIRONMENT: Final = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
"""Read by vLLM when it is imported. Its logs of requests stay off: they would carry token ids."""


class StepCounts(NamedTuple):
    """What the scheduler says after a step; `guessed` and `accepted` are speculated tokens of that step alone."""

    running: int
    waiting: int
    kv_use: float
    guessed: int = 0
    accepted: int = 0


class Library(NamedTuple):
    """What :func:`load_library` found.

    Attributes:
        cpu: this is the build for CPUs.
        start: `start(arguments, on_counts)` makes an `AsyncLLM`; `on_counts` is called after engine steps.
        sampling: `sampling(**arguments)` makes `SamplingParams`.
        prompt: `prompt(ids, cache_salt=…)` makes a prompt.
        refused: what vLLM raises for a request that it will never take.
    """

    version: str
    cpu: bool
    start: Callable[[dict[str, Any], Callable[[StepCounts], None]], Any]
    sampling: Callable[..., Any]
    prompt: Callable[..., Any]
    refused: type[Exception]


def load_library() -> Library:
    """Import vLLM. Raises ImportError where it is not installed, or not of a version that is known here."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    vllm: Any = import_module("vllm")
    try:
        arguments_type: Any = import_module("vllm.engine.arg_utils").AsyncEngineArgs
        engine_type: Any = import_module("vllm.v1.engine.async_llm").AsyncLLM
        logger_base: Any = import_module("vllm.v1.metrics.loggers").StatLoggerBase
        sampling_module: Any = import_module("vllm.sampling_params")
        kind, sampling_type = sampling_module.RequestOutputKind.DELTA, sampling_module.SamplingParams
        prompt: Any = import_module("vllm.inputs.engine").tokens_input
        refused: Any = import_module("vllm.exceptions").VLLMClientError
        cpu = bool(import_module("vllm.platforms").current_platform.is_cpu())
    except AttributeError as error:
        raise ImportError(f"vLLM {vllm.__version__} is not one of 0.32 and 0.33: {error}") from error

    def start(arguments: dict[str, Any], on_counts: Callable[[StepCounts], None]) -> Any:
        counts = _counts_logger(logger_base, on_counts)
        return engine_type.from_engine_args(arguments_type(**arguments), stat_loggers=[counts])

    def sampling(**given: Any) -> Any:
        return sampling_type(output_kind=kind, **given)

    return Library(str(vllm.__version__), cpu, start, sampling, prompt, refused)


def _counts_logger(base: Any, on_counts: Callable[[StepCounts], None]) -> Any:
    def record(_self: Any, scheduler_stats: Any = None, *_: Any, **__: Any) -> None:
        if scheduler_stats is not None:
            stats, drafts = scheduler_stats, scheduler_stats.spec_decoding_stats
            guessed, accepted = (0, 0) if drafts is None else (drafts.num_draft_tokens, drafts.num_accepted_tokens)
            on_counts(
                StepCounts(stats.num_running_reqs, stats.num_waiting_reqs, stats.kv_cache_usage, guessed, accepted)
            )

    def nothing(*_: Any, **__: Any) -> None: ...

    return type("Counts", (base,), {"__init__": nothing, "record": record, "log_engine_initialized": nothing})
