"""Distillation: a draft learns the target's distribution, not only the text."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretype_lab.model_files import gguf_file
from foretype_lab.model_files.export import read_checkpoint
from foretype_lab.training.middle_weights import is_answer, target_weights, where_it_can_end
from foretype_lab.training.model import LanguageModel, ModelConfig


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


@torch.no_grad()
def begin_draft(draft: LanguageModel, target: LanguageModel) -> None:
    """Gives the draft the directions of its target's embedding that say most, so that training begins behind the vocabulary.

    Four fifths of a draft are its embedding, and the target has seen every entry already. Rows are centred first: what
    all of them share adds the same to every logit, and the softmax forgets it.

    Raises:
        ValueError: another vocabulary, or a draft that is wider than its target.
    """
    learned = target.model.embed_tokens.weight.float()
    own = draft.model.embed_tokens.weight
    if own.shape[0] != learned.shape[0] or own.shape[1] > learned.shape[1]:
        raise ValueError(f"an embedding of {tuple(learned.shape)} gives none of {tuple(own.shape)}")
    centred = learned - learned.mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    own.copy_(centred @ directions[: own.shape[1]].T)


class DistilledLoss(nn.Module):
    """``weight`` · KL(teacher ‖ student) + (1 - ``weight``) · cross-entropy, both in nats per target.

    Targets of an answer count ``middle_weight`` times, their end ``end_weight`` times that.
    """

    def __init__(
        self,
        student: LanguageModel,
        teacher: LanguageModel,
        weight: float,
        middle_weight: float = 1.0,
        end_weight: float = 1.0,
    ) -> None:
        super().__init__()
        if student.config.vocabulary != teacher.config.vocabulary:
            raise ValueError(
                f"the teacher has {teacher.config.vocabulary} entries, the student {student.config.vocabulary}: "
                "a draft needs its target's tokenizer"
            )
        self.student, self.teacher, self.weight = student, teacher, weight
        self.middle_weight, self.end_weight = middle_weight, end_weight

    def forward(self, ids: Tensor, targets: Tensor, typed: Tensor) -> Tensor:
        """Weighted mean over targets that are not -100; all (batch, length), ``typed`` says which targets were typed."""
        answer = is_answer(ids, typed).flatten()
        with torch.no_grad():
            wanted = where_it_can_end(self.teacher(ids).flatten(0, 1).float(), answer).log_softmax(-1)
        said = where_it_can_end(self.student(ids).flatten(0, 1).float(), answer).log_softmax(-1)
        divergence = (wanted.exp() * (wanted - said)).sum(-1)
        surprise = functional.nll_loss(said, targets.flatten(), ignore_index=-100, reduction="none")
        losses = self.weight * divergence + (1 - self.weight) * surprise
        weights = target_weights(targets.flatten(), answer, self.middle_weight, self.end_weight)
        return (losses * weights).sum() / weights.sum().clamp(min=1)
