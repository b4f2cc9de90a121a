"""The engine's own figure of cached tokens, to calibrate the shadow against."""

from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai
from foretype_backend.engines.embedded.openvino_pipeline import OpenVinoPipeline


def exact_cached_tokens(pipeline: OpenVinoPipeline, ids: list[int]) -> int:
    """The engine's own figure: with echo, only positions that were computed have a log-probability."""
    raw: Any = pipeline._pipeline  # pyright: ignore[reportPrivateUsage]
    g = genai.GenerationConfig()
    g.max_new_tokens, g.logprobs, g.echo, g.ignore_eos = 1, 1, True, True
    handle = raw.add_request(10**9, ov.Tensor(np.array([ids], dtype=np.int64)), g)
    token_ids, logprobs = 0, 0
    while raw.has_non_finished_requests():
        raw.step()
        while handle.can_read():
            for output in handle.read().values():
                token_ids += len(output.generated_ids)
                logprobs += len(output.generated_log_probs)
    assert token_ids == len(ids) + 1
    computed = logprobs - 1
    return 0 if computed == len(ids) else len(ids) - (computed + 1)
