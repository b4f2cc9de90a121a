"""What the network says to a text that the adaptive model proposes: teacher-forced, one short prefill, no decoding."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from foretype_context.text.document import Snapshot

from foretype_lab.quality.held_out_cuts import Encode, HeldOutCut, prompt
from foretype_lab.training.fim import Hole
from foretype_lab.training.tokenizer import SPECIAL_IDS

__all__ = ["NetworkScorer", "Said", "summed_up"]

_END = SPECIAL_IDS["<|end_of_middle|>"]


class Said(NamedTuple):
    """Log-probabilities in nats of a text's tokens behind the text of the file.

    Attributes:
        mean, least: of its tokens.
        end: that it ends there.
        greedy: whether the network would have written it by itself, its end aside.
    """

    mean: float
    least: float
    end: float
    greedy: bool


def summed_up(logprobs: Any, greedy: Any) -> Said:
    """Of the tokens of a text and, last, of its end."""
    return Said(float(logprobs[:-1].mean()), float(logprobs[:-1].min()), float(logprobs[-1]), bool(greedy[:-1].all()))


class NetworkScorer:
    """Scores texts at places of documents.

    Args:
        weights: a GGUF file of ours or a checkpoint.
        encode: of its tokenizer.
        layout: of the prompt.
        prompt_tokens: of the prompt, the text not counted.
    """

    def __init__(self, weights: Path, encode: Encode, *, layout: str, prompt_tokens: int) -> None:
        from foretype_lab.training.distill import open_model

        self._model = open_model(weights)
        self._encode = encode
        self._layout = layout
        self._prompt_tokens = prompt_tokens

    def __call__(self, path: str, snapshot: Snapshot, offset: int, text: str) -> Said:
        import torch

        before, after = snapshot.text[:offset], snapshot.text[offset:]
        # What was cut out of a commit begins with the line that comes next; the cursor's own line ends here.
        whole = before + (after if after[:1] in ("", "\n") else "\n" + after)
        case = HeldOutCut("line_fill", "", path, whole, Hole(offset, offset, "line"))
        ids = prompt(case, self._layout, self._encode, self._prompt_tokens)
        answer = [*self._encode(text), _END]
        length = len(ids) + len(answer) - 1
        model = self._model
        with torch.no_grad():
            tables = model.cosine[:length], model.sine[:length]
            hidden = model.model(torch.tensor([[*ids, *answer[:-1]]]), *tables)
            # Logits where the text is told, not over the whole prompt: the vocabulary is most of the work.
            logits = torch.nn.functional.linear(hidden[0, len(ids) - 1 :], model.model.embed_tokens.weight).float()
            told = torch.log_softmax(logits, -1)[torch.arange(len(answer)), torch.tensor(answer)]
            greedy = logits.argmax(-1) == torch.tensor(answer)
        return summed_up(np.asarray(told.tolist()), np.asarray(greedy.tolist()))
