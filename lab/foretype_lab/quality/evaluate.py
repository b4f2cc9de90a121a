"""Measures a shipped file on held-out projects: what the card prints.

Generation runs on the GGUF itself in OpenVINO GenAI, greedily, with the prompt layout that serving uses, so the figures
are those of the file that ships and not of the checkpoint it came from.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foretype_lab.model_files.export import Checkpoint
from foretype_lab.quality import behaviour
from foretype_lab.quality.held_out_cuts import copy_line, draw_cases, prompt
from foretype_lab.training.data import Sampler, Shape, Store
from foretype_lab.training.tokenizer import SPECIAL_IDS, to_tiktoken

PROMPT_TOKENS = 1024
NEW_TOKENS = 48
STOPS = (SPECIAL_IDS["<|end_of_middle|>"], SPECIAL_IDS["<|endoftext|>"], SPECIAL_IDS["<|file_sep|>"])


class Generator:
    """Greedy generation on the GGUF file."""

    def __init__(self, path: Path) -> None:
        import openvino_genai

        self._genai = openvino_genai
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = 1
        scheduler.max_num_batched_tokens = 512
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(str(path), scheduler, "CPU", {})

    def __call__(self, prompts: Sequence[list[int]]) -> list[list[int]]:
        """Continues each prompt until a stop token (which is kept) or ``NEW_TOKENS``."""
        import openvino

        handles: list[Any] = []
        for number, ids in enumerate(prompts):
            options = self._genai.GenerationConfig()
            options.max_new_tokens = NEW_TOKENS
            options.do_sample = False
            options.eos_token_id = STOPS[1]
            options.stop_token_ids = set(STOPS)
            handles.append(
                self._pipeline.add_request(number, openvino.Tensor(np.array([ids], dtype=np.int64)), options)
            )
        results: list[list[int]] = [[] for _ in prompts]
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            for handle, result in zip(handles, results, strict=True):
                while handle.can_read():
                    for part in handle.read().values():
                        result += list(part.generated_ids)
        return results


def fill(gguf_path: Path, tokenizer: Path, store: Store, per_kind: int, layout: str) -> dict[str, Any]:
    """Exact match, stop rate and the two baselines, per kind of case, from prompts of the file alone in ``layout``."""
    encoding = to_tiktoken(tokenizer)
    generate = Generator(gguf_path)
    cases = draw_cases(store, per_kind)
    outputs: list[list[int]] = []
    for first in range(0, len(cases), 8):
        batch = cases[first : first + 8]
        outputs += generate([prompt(case, layout, encoding.encode_ordinary, PROMPT_TOKENS) for case in batch])
    rows: dict[str, dict[str, float]] = {}
    count_errors = behaviour.error_counter()
    for kind in ("next_line", "line_fill"):
        chosen = [(case, ids) for case, ids in zip(cases, outputs, strict=True) if case.kind == kind]
        exact = copied = stopped = at_line_end = first_word = only_model = only_copy = looping = harmful = (
            shown_count
        ) = 0
        for case, ids in chosen:
            stops = bool(ids) and ids[-1] in STOPS
            said = encoding.decode([token for token in ids if token < min(STOPS)])
            shown = said.split("\n")[0]
            right = shown.rstrip() == case.answer.rstrip()
            copy_right = copy_line(case).rstrip() == case.answer.rstrip()
            exact += right
            copied += copy_right
            only_model += right and not copy_right
            only_copy += copy_right and not right
            first_word += bool(shown.split()) and shown.split()[0] == (case.answer.split() or [""])[0]
            stopped += stops and ids[-1] == STOPS[0]
            at_line_end += stops and ids[-1] == STOPS[0] and "\n" not in said
            looping += behaviour.loops(ids)
            if shown.strip() and case.path.endswith(".py"):
                shown_count += 1
                before, after = case.text[: case.hole.start], case.text[case.hole.end :]
                harmful += behaviour.harms(before, shown, after, count_errors)
        count = len(chosen)
        rows[kind] = {
            "cases": count,
            "exact_match": exact / count,
            "copy_line_exact_match": copied / count,
            "only_model_right": only_model,
            "only_copy_line_right": only_copy,
            "p_value": sign_test(only_model, only_copy),
            "empty_exact_match": sum(not case.answer.strip() for case, _ in chosen) / count,
            "first_word_match": first_word / count,
            "end_of_middle_rate": stopped / count,
            "end_in_line_rate": at_line_end / count,
            "loop_rate": looping / count,
            "no_harm_rate": 1 - harmful / max(1, shown_count),
        }
    return {
        "repositories": len({case.repo for case in cases}),
        "prompt_tokens": PROMPT_TOKENS,
        "new_tokens": NEW_TOKENS,
        "layout": layout,
        "rows": rows,
    }


def sign_test(wins: int, losses: int) -> float:
    """Two-sided p-value that wins and losses of a paired comparison are equally likely."""
    count = wins + losses
    tail = sum(math.comb(count, number) for number in range(min(wins, losses) + 1)) / 2**count
    return min(1.0, 2 * tail)


def _model(checkpoint: Checkpoint) -> Any:
    import torch

    from foretype_lab.training.model import LanguageModel, ModelConfig

    model = LanguageModel(ModelConfig(**checkpoint.config))
    model.load_state_dict({name: torch.from_numpy(value) for name, value in checkpoint.weights.items()})
    return model.eval()


def token_losses(model: Any, row: Sequence[int]) -> Any:
    """Nats per target of a marked row, padding left out, over the choices that training gives: an end only in answers.

    What was never trained, because it is never asked for, would count against a model: that no middle ends at a prompt's line.
    """
    import torch

    from foretype_lab.training.middle_weights import is_answer, where_it_can_end
    from foretype_lab.training.train import to_batch

    ids, targets, typed = to_batch(torch.tensor([list(row)]), "cpu")
    with torch.no_grad():
        logits = where_it_can_end(model(ids)[0].float(), is_answer(ids, typed)[0])
        losses = torch.nn.functional.cross_entropy(logits, targets[0], reduction="none")
    return losses[targets[0] != -100].numpy()


def plain_loss(checkpoint: Checkpoint, tokenizer: Path, store: Store, files: int = 24) -> dict[str, Any]:
    """Loss on whole files of held-out projects, their first 2,048 tokens.

    Returns:
        Bits per byte, and nats per token in eight equal parts of the 2,048 positions: where the later parts are worse,
        the model cannot use prompts of that length.
    """
    model, encoding = _model(checkpoint), to_tiktoken(tokenizer)
    nats = total_bytes = 0.0
    parts: list[Any] = []
    draw = random.Random(3)
    for file in draw.sample(range(len(store)), len(store)):
        text = store.text(file)
        ids = [SPECIAL_IDS["<|file_sep|>"], *encoding.encode_ordinary(store.index[file][1] + "\n" + text)][:2049]
        if len(ids) == 2049:
            losses = token_losses(model, ids)
            parts.append(losses)
            nats += float(losses.sum())
            total_bytes += len(encoding.decode_bytes(ids[1:]))
        if len(parts) == files:
            break
    by_position = np.stack(parts).mean(axis=0).reshape(8, -1).mean(axis=1)
    return {
        "files": len(parts),
        "bits_per_byte": nats / total_bytes / math.log(2),
        "nats_by_eighth": [round(float(value), 4) for value in by_position],
        "trained_tokens": int(checkpoint.progress["tokens"]),
    }


def held_out_loss(checkpoint: Checkpoint, tokenizer: Path, store: Store, rows: int = 24) -> dict[str, Any]:
    """Loss on held-out projects in fp32: the training mixture at both lengths, and :func:`plain_loss`."""
    model, encoding = _model(checkpoint), to_tiktoken(tokenizer)

    def mixture(length: int, count: int, context: float) -> float:
        sampler = Sampler(store, encoding, Shape(length, context), 99)
        losses = [token_losses(model, [int(token) for token in sampler.marked_row(number)]) for number in range(count)]
        return float(np.concatenate(losses).mean())

    return {
        "mixture_512_nats": mixture(512, rows, 0.0),
        "mixture_2048_nats": mixture(2048, rows // 3, 0.5),
        "plain": plain_loss(checkpoint, tokenizer, store),
        "trained_tokens": int(checkpoint.progress["tokens"]),
        "trained_steps": int(checkpoint.progress["step"]),
        "trained_seconds": float(checkpoint.progress["seconds"]),
    }


def write(path: Path, result: dict[str, Any]) -> None:
    """Writes a result file for the card, figures rounded so that a re-run on equal input is an equal file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rounded = json.loads(json.dumps(result), parse_float=lambda text: round(float(text), 4))
    path.write_text(json.dumps(rounded, indent=1) + "\n")
