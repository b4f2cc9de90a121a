"""Answers count more, their end included, and nothing else says where they end."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretype_lab.training.model import LanguageModel
from foretype_lab.training.tokenizer import SPECIAL_IDS

BEGIN = SPECIAL_IDS["<|fim_middle|>"]
END = SPECIAL_IDS["<|end_of_middle|>"]


def is_middle(ids: Tensor) -> Tensor:
    """Which positions predict a token of a middle, its end included; bool, shaped like ``ids`` (batch, length)."""
    opened = (ids == BEGIN).cumsum(1) - (ids == END).cumsum(1)
    return opened > 0


def is_answer(ids: Tensor, typed: Tensor) -> Tensor:
    """Which positions predict what was cut out, or its end: those of a middle whose target was not typed; shaped like both."""
    return is_middle(ids) & ~typed


def target_weights(targets: Tensor, answer: Tensor, weight: float, end_weight: float = 1.0) -> Tensor:
    """What each target counts, shaped like both: ``weight`` in an answer, times ``end_weight`` where it ends, 0 where it is -100.

    A tenth of a row is answer, and it is all that is ever generated: a small model spends its few parameters there.
    The token that ends an answer is one target among many, and the one that decides whether a right line is followed by
    an invented one.
    """
    weights = torch.where(targets == END, weight * end_weight, weight)
    return torch.where(answer, weights, 1.0) * (targets != -100).float()


def where_it_can_end(logits: Tensor, answer: Tensor) -> Tensor:
    """Takes the token that ends a middle out of the choice everywhere but in answers: nowhere else is it ever chosen.

    In the layouts that grow, up to twenty typed lines stand between the token that begins a middle and the cursor, and
    nothing says where the cursor is. A small model that is told at each of their line ends, and at each of the prompt's,
    that no middle ends there learns that one hardly ever does: after 11 million tokens one line in nine was ended.

    Args:
        logits: (targets, vocabulary).
        answer: bool, (targets,): :func:`is_answer`.

    Returns:
        Shaped like ``logits``; finite, so that a share of nothing times it is nothing.
    """
    ends = torch.arange(logits.shape[-1], device=logits.device) == END
    return logits.masked_fill(~answer[:, None] & ends, -1e9)


class MiddleLoss(nn.Module):
    """Cross-entropy in nats, weighted by :func:`target_weights`, over :func:`where_it_can_end`."""

    def __init__(self, model: LanguageModel, weight: float = 1.0, end_weight: float = 1.0) -> None:
        super().__init__()
        self.model, self.weight, self.end_weight = model, weight, end_weight

    def forward(self, ids: Tensor, targets: Tensor, typed: Tensor) -> Tensor:
        """Weighted mean over targets that are not -100; all (batch, length), ``typed`` says which targets were typed."""
        answer = is_answer(ids, typed)
        logits = where_it_can_end(self.model(ids).flatten(0, 1).float(), answer.flatten())
        losses = functional.cross_entropy(logits, targets.flatten(), ignore_index=-100, reduction="none")
        weights = target_weights(targets, answer, self.weight, self.end_weight).flatten()
        return (losses * weights).sum() / weights.sum().clamp(min=1)
