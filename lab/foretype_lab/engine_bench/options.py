"""What a run of `bench engine` measures; it crosses from the command to the process that runs in vLLM's environment."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["BATCH_MAX", "METHODS", "PARTS", "EngineBenchOptions"]

PARTS: Final = ("serving", "cancel", "isolation", "speculation")
BATCH_MAX: Final = 8
"""Requests computed at once by the engine that is measured."""
METHODS: Final = ("ngram", "suffix", "draft_model")


class EngineBenchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Paths are absolute.

    Attributes:
        model: folder with config.json and safetensors.
        draft: such a folder; None leaves `draft_model` out.
        methods: of speculation, beside none; one that cannot run here is reported with the reason.
        texts: folders whose files give prompts for speculation; the language is by the file's ending.
        samples: of each row, or as many as come in `seconds`.
        speculation_tokens: guessed per step.
        batches: requests at once under which speculation is measured, each with prompts of its own.
        edits: prompts for speculation are questions about the next edit, whose answers are nearly all copied.
    """

    model: str
    draft: str | None = None
    texts: tuple[str, ...] = ()
    parts: tuple[str, ...] = PARTS
    methods: tuple[str, ...] = METHODS
    samples: int = 60
    seconds: float = 40.0
    prompt_tokens: tuple[int, ...] = (2000, 6000)
    speculation_tokens: int = 4
    batches: tuple[int, ...] = (1,)
    edits: bool = False
    seed: int = 0
