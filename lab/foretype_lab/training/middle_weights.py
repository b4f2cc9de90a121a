"""Middles count more: the typed part of the line, what was cut out and the token that ends it."""

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


def target_weights(ids: Tensor, targets: Tensor, weight: float, end_weight: float = 1.0) -> Tensor:
    """What each target counts, shaped like both: ``weight`` in a middle, times ``end_weight`` where it ends, 0 where it is -100.

    A tenth of a row is middle, and it is all that is ever generated: a small model spends its few parameters there.
    The token that ends a middle is one target among many, and the one that decides whether a right line is followed by
    an invented one.
    """
    middle = torch.where(targets == END, weight * end_weight, weight)
    return torch.where(is_middle(ids), middle, 1.0) * (targets != -100).float()


class MiddleLoss(nn.Module):
    """Cross-entropy in nats, weighted by :func:`target_weights`."""

    def __init__(self, model: LanguageModel, weight: float, end_weight: float = 1.0) -> None:
        super().__init__()
        self.model, self.weight, self.end_weight = model, weight, end_weight

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Weighted mean over targets that are not -100; both (batch, length)."""
        logits = self.model(ids).flatten(0, 1).float()
        losses = functional.cross_entropy(logits, targets.flatten(), ignore_index=-100, reduction="none")
        weights = target_weights(ids, targets, self.weight, self.end_weight).flatten()
        return (losses * weights).sum() / weights.sum().clamp(min=1)
