"""Does an exported file say what the trained weights say? Teacher-forced, against transformers in fp32.

The reference is transformers on the weights read back *from the GGUF file*, so the comparison is about reading the file
(permutation, tokenizer ids, rotary base, quantised arithmetic), and the loss of Q8_0 itself is reported apart, against
the checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foretype_lab.model_files.export import Weights, hugging_face_config
from foretype_lab.model_files.gguf_file import read_weights

Floats = npt.NDArray[np.float64]


def transformers_logits(weights: Weights, config: dict[str, Any], ids: Sequence[int]) -> npt.NDArray[np.float32]:
    """Logits (length, vocabulary) of ``LlamaForCausalLM`` in fp32."""
    import torch

    model = _llama(weights, config)
    with torch.no_grad():
        return model(torch.tensor([list(ids)])).logits[0].float().numpy()


_models: dict[int, Any] = {}


def _llama(weights: Weights, config: dict[str, Any]) -> Any:
    if id(weights) not in _models:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        model = LlamaForCausalLM(LlamaConfig(**hugging_face_config(config)))
        state = {name: torch.from_numpy(np.array(value)) for name, value in weights.items()}
        missing, unexpected = model.load_state_dict(state, strict=False)
        if unexpected or set(missing) - {"lm_head.weight"}:
            raise ValueError(f"transformers wants {missing} and does not know {unexpected}")
        model.tie_weights()
        _models[id(weights)] = model.eval()
    return _models[id(weights)]


def own_logits(weights: Weights, config: dict[str, Any], ids: Sequence[int]) -> npt.NDArray[np.float32]:
    """Logits (length, vocabulary) of the training code's own model in fp32."""
    import torch

    from foretype_lab.training.model import LanguageModel, ModelConfig

    model = LanguageModel(ModelConfig(**config))
    model.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in weights.items()})
    with torch.no_grad():
        return model.eval()(torch.tensor([list(ids)]))[0].float().numpy()


def log_softmax(logits: npt.NDArray[np.float32]) -> Floats:
    """Log-probabilities along the last axis."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def chosen(log_probabilities: Floats, ids: Sequence[int]) -> Floats:
    """Log-probability of each token given those before it: shape (length - 1,)."""
    return log_probabilities[np.arange(len(ids) - 1), np.asarray(ids[1:])]


class OpenVino:
    """The GGUF file in OpenVINO GenAI, fed with ids (its own tokenizer is not used)."""

    def __init__(self, path: Path) -> None:
        import openvino_genai

        self._genai = openvino_genai
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = 1
        scheduler.enable_prefix_caching = False
        scheduler.max_num_batched_tokens = 4096
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(str(path), scheduler, "CPU", {})
        self._number = 0

    def run(self, ids: Sequence[int], new_tokens: int) -> tuple[Floats, list[int]]:
        """Scores a prompt and continues it greedily.

        Returns:
            Log-probabilities of the prompt's tokens but the first, and the generated ids.
        """
        import openvino

        options = self._genai.GenerationConfig()
        options.max_new_tokens = new_tokens
        options.do_sample = False
        options.echo = True
        options.logprobs = 1
        options.ignore_eos = True
        self._number += 1
        tensor = openvino.Tensor(np.array([list(ids)], dtype=np.int64))
        handle = self._pipeline.add_request(self._number, tensor, options)
        tokens: list[int] = []
        scores: list[float] = []
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            while handle.can_read():
                for part in handle.read().values():
                    tokens += list(part.generated_ids)
                    scores += list(part.generated_log_probs)
        generated = tokens[len(ids) :]
        prompt_scores = scores[: len(scores) - len(generated)]
        return np.array(prompt_scores[-(len(ids) - 1) :]), generated


def compare(
    gguf_path: Path, config: dict[str, Any], checkpoint: Weights, prompts: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """Compares the file in OpenVINO, transformers on the same weights, our own code, and the checkpoint before Q8_0.

    Returns:
        Plain data: mean and largest absolute difference of log-probabilities, and the share of equal first choices.
    """
    weights = read_weights(gguf_path, config)
    engine = OpenVino(gguf_path)
    engine_gaps: list[Floats] = []
    own_gaps: list[float] = []
    quantisation: list[Floats] = []
    equal = positions = 0
    for ids in prompts:
        scores, generated = engine.run(ids, 16)
        whole = [*ids, *generated]
        reference = transformers_logits(weights, config, whole)
        log_probabilities = log_softmax(reference)
        engine_gaps.append(np.abs(scores - chosen(log_probabilities[: len(ids)], ids)))
        first_choice = reference[len(ids) - 1 : -1].argmax(-1)
        equal += int((first_choice == np.array(generated)).sum())
        positions += len(generated)
        own_gaps.append(float(np.abs(own_logits(weights, config, ids) - reference[: len(ids)]).max()))
        before = log_softmax(transformers_logits(checkpoint, config, ids))
        quantisation.append(chosen(log_probabilities[: len(ids)], ids) - chosen(before, ids))
    gaps, shift = np.concatenate(engine_gaps), np.concatenate(quantisation)
    return {
        "prompts": len(prompts),
        "positions": len(gaps),
        "openvino_mean_abs_logprob": round(float(gaps.mean()), 5),
        "openvino_max_abs_logprob": round(float(gaps.max()), 4),
        "openvino_greedy_positions": positions,
        "openvino_greedy_agreement": round(equal / positions, 4),
        "own_max_abs_logit": round(max(own_gaps), 5),
        "q8_mean_logprob_change": round(float(shift.mean()), 5),
        "q8_mean_abs_logprob_change": round(float(np.abs(shift).mean()), 5),
    }
