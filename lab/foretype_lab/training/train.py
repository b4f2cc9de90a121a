"""Training to a budget of tokens, on a CPU or a GPU, resumable.

The schedule is a function of the share of the *tokens* that were seen, so that a pause costs nothing and the learning
rate reaches zero with the last token, however fast the machine is. Rows are numbered, so the position in the data is
one integer in the checkpoint.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch

from foretype_lab.training.data import PAD, TYPED, Sampler, Shape, Store
from foretype_lab.training.distill import DistilledLoss, begin_draft, open_model
from foretype_lab.training.middle_weights import MiddleLoss, is_answer, is_middle
from foretype_lab.training.model import LanguageModel, ModelConfig
from foretype_lab.training.optimizers import make_optimizers
from foretype_lab.training.precision import autocast
from foretype_lab.training.row_loader import RowLoader
from foretype_lab.training.tokenizer import to_tiktoken


@dataclass(frozen=True)
class TrainConfig:
    """Hyper-parameters; the meaning of each stands in ``configs/first.toml``."""

    seed: int
    length: int
    micro_rows: int
    batch_tokens: int
    late_batch_tokens: int
    long_length: int
    long_micro_rows: int
    long_share: float
    context_share: float
    warmup_steps: int
    decay_from: float
    muon_rate: float
    adamw_rate: float
    weight_decay: float
    clip: float
    checkpoint_seconds: float
    evaluate_seconds: float
    optimizer: str = "muon"
    teacher_weight: float = 0.7
    middle_weight: float = 1.0
    end_weight: float = 1.0


def load_config(path: Path) -> tuple[ModelConfig, TrainConfig]:
    """Reads a TOML configuration.

    Raises:
        ValueError: an unknown key, with the file and the known ones.
    """
    data = tomllib.loads(path.read_text("utf-8"))
    for section, kind in (("model", ModelConfig), ("train", TrainConfig)):
        known = {item.name for item in fields(kind)}
        if unknown := set(data[section]) - known:
            raise ValueError(f"{path}: [{section}] has unknown keys {sorted(unknown)}; known are {sorted(known)}")
    return ModelConfig(**data["model"]), TrainConfig(**data["train"])


@dataclass
class Progress:
    """What a run is at. ``rows`` and ``long_rows`` are positions in the data of the two parts, ``seconds`` those spent."""

    step: int = 0
    tokens: int = 0
    rows: int = 0
    long_rows: int = 0
    seconds: float = 0.0


def rate_share(config: TrainConfig, step: int, share: float) -> float:
    """Learning rate as a share of its peak: warm-up by steps, then constant, then linear to zero at ``share`` = 1."""
    warm = min(1.0, (step + 1) / config.warmup_steps)
    return warm * min(1.0, max(0.0, (1.0 - share) / (1.0 - config.decay_from)))


class Batch(NamedTuple):
    """Ids, targets and which targets were typed: int64, int64 and bool, each (rows, length); padding is no target."""

    ids: torch.Tensor
    targets: torch.Tensor
    typed: torch.Tensor


def to_batch(block: torch.Tensor, device: str) -> Batch:
    """A block of marked rows, int64, (rows, length + 1), on the device. The prompt has loss like everything else."""
    block = block.to(device, non_blocking=True)
    tokens, typed = block & (TYPED - 1), block[:, 1:] >= TYPED
    targets = tokens[:, 1:].clone()
    targets[targets == PAD] = -100
    return Batch(tokens[:, :-1].contiguous(), targets, typed)


class TrainingRun:
    """One training run in a folder: ``last.pt``, ``log.jsonl``."""

    def __init__(
        self,
        model_config: ModelConfig,
        config: TrainConfig,
        store: Path,
        tokenizer: Path,
        out: Path,
        begin_from: Path | None = None,
        teacher: Path | None = None,
        workers: int = 0,
    ) -> None:
        torch.manual_seed(config.seed)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.config, self.out, self.progress = config, out, Progress()
        self.model = LanguageModel(model_config).to(self.device)
        self.optimizers = make_optimizers(
            self.model,
            muon_rate=config.muon_rate if config.optimizer == "muon" else None,
            adamw_rate=config.adamw_rate,
            weight_decay=config.weight_decay,
        )
        encoding = to_tiktoken(tokenizer)
        text, held_out = Store(store / "train"), Store(store / "validation")
        long = Shape(config.long_length, config.context_share)
        self.short_rows = Sampler(text, encoding, Shape(config.length), config.seed)
        self.long_rows = Sampler(text, encoding, long, config.seed + 1)
        self.check_short = RowLoader(Sampler(held_out, encoding, Shape(config.length), 99), 0, 64, 0).next()
        self.check_long = RowLoader(Sampler(held_out, encoding, long, 99), 0, 8, 0).next()
        self.workers = workers
        loss: Any = MiddleLoss(self.model, config.middle_weight, config.end_weight)
        target = None if teacher is None else open_model(teacher, self.device)
        if target is not None:
            loss = DistilledLoss(self.model, target, config.teacher_weight, config.middle_weight, config.end_weight)
        self.loss = torch.compile(loss, dynamic=False)
        out.mkdir(parents=True, exist_ok=True)
        if (out / "last.pt").exists():
            self.restore()
        elif begin_from is not None:
            self.begin(begin_from)
        elif target is not None:
            begin_draft(self.model, target)
        self.feed: tuple[bool, RowLoader] | None = None

    def rows(self, long: bool, micro: int) -> torch.Tensor:
        """The next rows; the position that is left, in the checkpoint, is where a resumed run goes on."""
        progress = self.progress
        if self.feed is None or self.feed[0] != long:
            sampler, start = (self.long_rows, progress.long_rows) if long else (self.short_rows, progress.rows)
            self.feed = (long, RowLoader(sampler, start, micro, self.workers))
        progress.long_rows += micro * long
        progress.rows += micro * (not long)
        return self.feed[1].next()

    def begin(self, gguf: Path) -> None:
        """Starts from the weights of a shipped file, with fresh optimizers: what one run learned the next one keeps.

        Raises:
            RuntimeError: the file's shapes are not those of the configuration.
        """
        self.model.load_state_dict(open_model(gguf).state_dict())

    def restore(self) -> None:
        """Continues from ``last.pt``."""
        state = torch.load(self.out / "last.pt", map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        torch.set_rng_state(state["rng"].cpu())
        self.progress = Progress(**state["progress"])

    def save(self) -> None:
        """Writes ``last.pt`` beside itself and renames it, so that a kill leaves the one before."""
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "rng": torch.get_rng_state(),
            "progress": dict(self.progress.__dict__),
            "config": self.model.config.as_json(),
            "train": dict(self.config.__dict__),
        }
        temporary = self.out / "last.pt.part"
        torch.save(state, temporary)
        os.replace(temporary, self.out / "last.pt")

    @torch.no_grad()
    def held_out_loss(self, rows: torch.Tensor, micro: int, of: Callable[[Batch], torch.Tensor] | None = None) -> float:
        """Mean loss in nats per token over fixed rows of held-out projects, or over those targets that ``of`` says."""
        loss = MiddleLoss(self.model)
        total = counted = 0.0
        for first in range(0, len(rows), micro):
            batch = to_batch(rows[first : first + micro], self.device)
            targets = batch.targets if of is None else torch.where(of(batch), batch.targets, -100)
            number = int((targets != -100).sum())
            with autocast(self.device):
                total += float(loss(batch.ids, targets, batch.typed)) * number if number else 0.0
            counted += number
        return total / max(counted, 1)

    def log(self, **values: Any) -> None:
        """Appends a line to ``log.jsonl`` and prints it."""
        line = json.dumps({"step": self.progress.step, "tokens": self.progress.tokens, **values})
        with (self.out / "log.jsonl").open("a") as stream:
            stream.write(line + "\n")
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def step(self, share: float) -> float:
        """One optimizer step; returns its loss."""
        config, progress = self.config, self.progress
        long = share >= 1.0 - config.long_share
        length, micro = (config.long_length, config.long_micro_rows) if long else (config.length, config.micro_rows)
        tokens = config.batch_tokens if share < 0.5 else config.late_batch_tokens
        passes = max(1, tokens // (length * micro))
        total = 0.0
        for _ in range(passes):
            batch = to_batch(self.rows(long, micro), self.device)
            with autocast(self.device):
                loss = self.loss(*batch) / passes
            loss.backward()
            total += loss.item()
            progress.tokens += batch.ids.numel()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.clip)
        rate = rate_share(config, progress.step, share)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        progress.step += 1
        return total

    def train(self, tokens: int, call_minutes: float = math.inf) -> None:
        """Trains until ``tokens`` have been seen, those before a resume included.

        ``call_minutes`` ends this call earlier, for machines that lend themselves in pieces. SIGTERM and SIGINT end it after the current step, with a checkpoint.
        """
        stop = False

        def on_signal(_number: int, _frame: FrameType | None) -> None:
            nonlocal stop
            stop = True

        signal.signal(signal.SIGTERM, on_signal)
        signal.signal(signal.SIGINT, on_signal)
        saved = measured = called = at = time.monotonic()
        recent: list[float] = []
        while not stop and (share := self.progress.tokens / tokens) < 1.0:
            recent.append(self.step(share))
            before, at = at, time.monotonic()
            self.progress.seconds += at - before
            if self.progress.step % 20 == 0:
                self.log(loss=round(sum(recent) / len(recent), 4), seconds=round(self.progress.seconds, 1))
                recent.clear()
            if at - saved > self.config.checkpoint_seconds:
                self.save()
                saved = time.monotonic()
            if at - measured > self.config.evaluate_seconds:
                self.measure()
                measured = time.monotonic()
            stop = stop or time.monotonic() - called > 60 * call_minutes
        self.save()
        self.measure()

    def measure(self) -> None:
        """Logs the held-out loss: of all targets, of middles with what was typed of them, of answers alone, of long rows."""
        losses = {
            "held_out": self.held_out_loss(self.check_short, 8),
            "held_out_middles": self.held_out_loss(self.check_short, 8, lambda batch: is_middle(batch.ids)),
            "held_out_answers": self.held_out_loss(
                self.check_short, 8, lambda batch: is_answer(batch.ids, batch.typed)
            ),
            "held_out_long": self.held_out_loss(self.check_long, 2),
        }
        self.log(**{name: round(loss, 4) for name, loss in losses.items()}, seconds=round(self.progress.seconds, 1))


def main() -> None:
    """Command line: ``python -m foretype_lab.training.train CONFIG --store DIR --out DIR --tokens N``."""
    import argparse

    parser = argparse.ArgumentParser(description="Train a completion model to a budget of tokens.")
    parser.add_argument("config", type=Path)
    parser.add_argument("--store", type=Path, required=True, help="folder with train/ and validation/ text stores")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints and the log")
    parser.add_argument("--tokens", type=float, required=True, help="of the whole run, its resumes included: 250e6")
    parser.add_argument(
        "--call-minutes", type=float, default=math.inf, help="stop this call earlier; run again to go on"
    )
    parser.add_argument("--workers", type=int, default=0, help="processes that prepare rows; some 8 for a GPU")
    parser.add_argument("--teacher", type=Path, help="GGUF or checkpoint to distil from, of the same tokenizer")
    parser.add_argument(
        "--from", dest="begin_from", type=Path, metavar="GGUF", help="start from a shipped file's weights"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a [train] number")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model_config, config = load_config(options.config)
    changes = dict(item.split("=", 1) for item in options.set)
    typed = {key: type(getattr(config, key))(value) for key, value in changes.items()}
    config = TrainConfig(**{**config.__dict__, **typed})
    run = TrainingRun(
        *(model_config, config, options.store, options.tokenizer, options.out),
        begin_from=options.begin_from,
        teacher=options.teacher,
        workers=options.workers,
    )
    run.train(int(options.tokens), options.call_minutes)


if __name__ == "__main__":
    main()
