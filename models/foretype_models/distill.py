"""Distillation: a draft learns the target's distribution, not only the text."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretype_models import gguf_file
from foretype_models.export import read_checkpoint
from foretype_models.model import LanguageModel, ModelConfig


def best_device() -> str:
    """``cuda`` where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def open_model(path: Path, device: str = "cpu") -> LanguageModel:
    """Opens a shipped GGUF file or a checkpoint, for inference.

    Raises:
        ExportError: neither of the two, or another architecture.
    """
    if path.suffix == ".gguf":
        config = gguf_file.read_config(path)
        weights = gguf_file.read_weights(path, config)
    else:
        state = read_checkpoint(path)
        config, weights = state.config, state.weights
    model = LanguageModel(ModelConfig(**config))
    model.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in weights.items()})
    return model.to(device).eval().requires_grad_(False)


class DistilledLoss(nn.Module):
    """``weight`` · KL(teacher ‖ student) + (1 - ``weight``) · cross-entropy, both in nats per target."""

    def __init__(self, student: LanguageModel, teacher: LanguageModel, weight: float) -> None:
        super().__init__()
        if student.config.vocabulary != teacher.config.vocabulary:
            raise ValueError(
                f"the teacher has {teacher.config.vocabulary} entries, the student {student.config.vocabulary}: "
                "a draft needs its target's tokenizer"
            )
        self.student, self.teacher, self.weight = student, teacher, weight

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Mean over targets that are not -100; both (batch, length)."""
        with torch.no_grad():
            wanted = self.teacher(ids).flatten(0, 1).float().log_softmax(-1)
        said = self.student(ids).flatten(0, 1).float().log_softmax(-1)
        flat = targets.flatten()
        counts = (flat != -100).float()
        divergence = (wanted.exp() * (wanted - said)).sum(-1)
        mean = (divergence * counts).sum() / counts.sum().clamp(min=1)
        return self.weight * mean + (1 - self.weight) * functional.nll_loss(said, flat, ignore_index=-100)
