"""Runs inside `.venv-vllm` and imports nothing of ours: one vLLM engine, asked over JSON lines.

Standard input carries requests, one object a line; standard output one answer a line, in order.

| request | answer |
|---|---|
| `{"op": "open", "model", "block_tokens", "dtype", "context_tokens"}` | `{"vllm": VERSION}` |
| `{"op": "complete", "ids", "max_tokens"}` | `{"cached_tokens", "ids", "logprobs"}`: greedy; what its own prefix cache held |
| `{"op": "score", "ids"}` | `{"logprobs", "first"}`: of each token but the first; the likeliest token there |
| `{"op": "forget"}` | `{}`: empties the prefix cache |

The end of input ends the process, and so does a failure: what it was stands on standard error.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

# vLLM and its libraries print; the answers keep the real standard output to themselves.
_answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
os.dup2(2, 1)

os.environ.update(
    HF_HUB_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
    VLLM_LOGGING_LEVEL="WARNING",
    # One process: it ends when its input ends, whatever happened.
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
)
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")


class Engine:
    """One model in one engine."""

    def __init__(self, request: dict[str, Any]) -> None:
        import vllm

        self._vllm = vllm
        self.version = vllm.__version__
        self._llm = vllm.LLM(
            model=request["model"],
            dtype=request["dtype"],
            block_size=request["block_tokens"],
            max_model_len=request["context_tokens"],
            enforce_eager=True,
            enable_prefix_caching=True,
            skip_tokenizer_init=True,
            disable_log_stats=True,
            max_num_seqs=8,
            seed=0,
        )

    def complete(self, ids: list[int], max_tokens: int) -> dict[str, Any]:
        parameters = self._vllm.SamplingParams(
            temperature=0.0, max_tokens=max_tokens, detokenize=False, ignore_eos=True, logprobs=0
        )
        [output] = self._llm.generate([{"prompt_token_ids": ids}], parameters, use_tqdm=False)
        [made] = output.outputs
        tokens = list(made.token_ids)
        return {
            "cached_tokens": output.num_cached_tokens,
            "ids": tokens,
            "logprobs": [place[token].logprob for place, token in zip(made.logprobs, tokens, strict=True)],
        }

    def score(self, ids: list[int]) -> dict[str, Any]:
        parameters = self._vllm.SamplingParams(temperature=0.0, max_tokens=1, detokenize=False, prompt_logprobs=1)
        [output] = self._llm.generate([{"prompt_token_ids": ids}], parameters, use_tqdm=False)
        places = output.prompt_logprobs[1:]
        return {
            "logprobs": [place[token].logprob for place, token in zip(places, ids[1:], strict=True)],
            "first": [next(token for token, value in place.items() if value.rank == 1) for place in places],
        }

    def forget(self) -> dict[str, Any]:
        if self._llm.reset_prefix_cache() is False:
            raise RuntimeError("the engine kept its prefix cache")
        return {}


def main() -> None:
    engine: Engine | None = None
    for line in sys.stdin:
        request = json.loads(line)
        operation = request.pop("op")
        if operation == "open":
            engine = Engine(request)
            answer: dict[str, Any] = {"vllm": engine.version}
        elif engine is None:
            raise RuntimeError("no model is open")
        else:
            answer = getattr(engine, operation)(**request)
        _answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
