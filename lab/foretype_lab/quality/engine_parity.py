"""Does an engine say of a model file what transformers says in fp32 on the file's own, de-quantised weights?

Teacher-forced: every engine gets the same token ids and is asked what comes next. Compared are the log-probabilities that it
gives, and its first choices.

| engine | log-probabilities | first choices |
|---|---|---|
| `openvino` | of every prompt token but the first (`echo`) | of 16 tokens continued greedily after each prompt |
| `llamacpp` | of every prompt token but the first, where it is among the server's 64 likeliest | at every position |
| `vllm` | of every prompt token but the first (`prompt_logprobs`) | at every position |
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from foretype_lab.model_files import gguf_file
from foretype_lab.model_files.export import write_safetensors
from foretype_lab.quality.parity import Floats, OpenVino, log_softmax, transformers_logits

__all__ = ["LOGPROB_DIFFERENCE_MAX", "TOP1_AGREEMENT_MIN", "Engine", "Opinion", "Score", "compare", "opened", "verdict"]

TOP1_AGREEMENT_MIN: Final = 0.98
LOGPROB_DIFFERENCE_MAX: Final = 0.05
_LIKELIEST: Final = 64
_CONTINUED: Final = 16


class Engine(StrEnum):
    OPENVINO = "openvino"
    LLAMACPP = "llamacpp"
    VLLM = "vllm"


class Opinion(NamedTuple):
    """What an engine says of one prompt.

    Attributes:
        ids: the prompt, and what the engine added where it was let continue.
        logprobs: of `ids[1:]`, NaN where it does not tell.
        first: token that it holds likeliest at `ids[1:]`, -1 where it does not tell.
    """

    ids: list[int]
    logprobs: Floats
    first: list[int]


class Score(Protocol):
    """Asks one engine about one prompt."""

    def __call__(self, ids: Sequence[int]) -> Opinion: ...


@contextmanager
def opened(engine: Engine, model: Path, tokenizer: Path, *, threads: int = 2) -> Iterator[tuple[Score, str]]:
    """An engine with the file `model`, and what it calls its version.

    Raises:
        LlamaServerError, VllmError: the engine is not there; the message names the make target.
    """
    if engine is Engine.OPENVINO:
        import openvino_genai

        yield _openvino(OpenVino(model)), f"openvino-genai {openvino_genai.__version__}"
    elif engine is Engine.LLAMACPP:
        from foretype_lab.other_engines.llama_server import LlamaServer

        with LlamaServer(model, threads=threads, arguments=("--ctx-size", "4096", "--parallel", "1")) as server:
            yield _llamacpp(server), server.version
    else:
        from foretype_lab.other_engines.vllm_engine import VllmProcess

        with tempfile.TemporaryDirectory(prefix="foretype-parity-") as folder:
            config = gguf_file.read_config(model)
            weights, grammar_id = gguf_file.read_weights(model, config), gguf_file.read_grammar(model)
            write_safetensors(weights, config, tokenizer, Path(folder) / "model", grammar_id=grammar_id)
            with VllmProcess(Path(folder) / "model") as vllm:
                yield _vllm(vllm), f"vllm {vllm.version}, float32"


def compare(score: Score, model: Path, prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Asks the engine about every prompt, and transformers about the same.

    Returns:
        Plain data. `logprob_share` is the share of positions whose log-probability the engine told.
    """
    config = gguf_file.read_config(model)
    weights = gguf_file.read_weights(model, config)
    gaps: list[Floats] = []
    equal = told = positions = 0
    for ids in prompts:
        opinion = score(ids)
        reference = transformers_logits(weights, config, opinion.ids)[:-1]
        right = np.asarray(opinion.ids[1:])
        wanted = log_softmax(reference)[np.arange(len(right)), right]
        gap = np.abs(opinion.logprobs - wanted)
        gaps.append(gap[~np.isnan(gap)])
        first = np.asarray(opinion.first)
        here = first >= 0
        equal += int((reference.argmax(-1) == first)[here].sum())
        told += int(here.sum())
        positions += len(right)
    every = np.concatenate(gaps)
    return {
        "prompts": len(prompts),
        "positions": positions,
        "logprob_share": round(len(every) / positions, 4),
        "mean_abs_logprob": round(float(every.mean()), 5),
        "max_abs_logprob": round(float(every.max()), 4),
        "top1_positions": told,
        "top1_agreement": round(equal / told, 5),
    }


def verdict(result: dict[str, Any]) -> bool:
    """Whether the engine reads the file well enough to be measured with it."""
    return result["top1_agreement"] >= TOP1_AGREEMENT_MIN and result["mean_abs_logprob"] <= LOGPROB_DIFFERENCE_MAX


def _openvino(engine: OpenVino) -> Score:
    def score(ids: Sequence[int]) -> Opinion:
        told, generated = engine.run(ids, _CONTINUED)
        whole = [*ids, *generated]
        silent = np.full(len(generated), np.nan)
        return Opinion(whole, np.concatenate([told, silent]), [-1] * (len(ids) - 1) + generated)

    return score


def _llamacpp(server: Any) -> Score:
    def score(ids: Sequence[int]) -> Opinion:
        logprobs: list[float] = []
        first: list[int] = []
        for end in range(1, len(ids)):
            body = {
                "prompt": list(ids[:end]),
                "n_predict": 1,
                "n_probs": _LIKELIEST,
                "temperature": 0.0,
                "samplers": ["temperature"],
                # An end token would end the answer before it tells anything; probabilities are those before sampling.
                "ignore_eos": True,
                "cache_prompt": True,
                "id_slot": 0,
                "response_fields": ["completion_probabilities"],
            }
            [place] = server.post("/completion", body)["completion_probabilities"]
            told = {one["id"]: one["logprob"] for one in place["top_logprobs"]}
            logprobs.append(told.get(int(ids[end]), np.nan))
            first.append(max(told, key=told.__getitem__))
        return Opinion(list(ids), np.array(logprobs), first)

    return score


def _vllm(engine: Any) -> Score:
    def score(ids: Sequence[int]) -> Opinion:
        told = engine.score(ids)
        return Opinion(list(ids), np.array(told.logprobs), told.first)

    return score
