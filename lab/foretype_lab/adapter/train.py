"""Trains the adapter: ``python -m foretype_lab.adapter.train CONFIG --base FILE.gguf --store DIR --out DIR``.

One thread is enough; a run can be stopped at any time (SIGTERM leaves a checkpoint) and goes on when the same command is
given again. ``--minutes`` brings the rates down to nothing by then, so that what is written is a complete result.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import torch
from foretype_models.artifacts import digest_file
from torch import Tensor

from foretype_lab.adapter import adapter_file, base
from foretype_lab.adapter.ahead import Drawer
from foretype_lab.adapter.network import Network, Shape, losses
from foretype_lab.adapter.rows import END, Row, Sampler
from foretype_lab.corpus.store import Store

DECAY_SHARE = 0.3
"""Of a run's tokens or minutes, its last, in which the rates fall."""


_CONTROL = torch.tensor(list(base.CONTROL.values()))


@dataclass(frozen=True)
class Config:
    """A run, as ``lab/configs/adapter-*.toml`` has it.

    Attributes:
        tokens: that it ends at, its rates at nothing; 0 for a run that is ended by the clock or by hand.
        drawing_processes: beside the training, that draw its rows; 0 where it draws them itself.
    """

    seed: int
    rank: int
    batch_tokens: int
    lengths: dict[int, float]
    layouts: dict[str, float]
    rate_a: float
    rate_b: float
    rate_rows: float
    warmup_steps: int
    threads: int
    end_weight: float = 1.0
    rest_share: float = 0.4
    rest_weight: float = 0.25
    context_share: float = 0.2
    python_share: float = 0.5
    evaluate_seconds: float = 900
    checkpoint_seconds: float = 300
    device: str = "cpu"
    micro_tokens: int = 4096
    tokens: int = 0
    drawing_processes: int = 0

    @classmethod
    def load(cls, path: Path) -> Config:
        """Reads a run's file."""
        data = tomllib.loads(path.read_text("utf-8"))
        data["lengths"] = {int(length): float(share) for length, share in data["lengths"].items()}
        return cls(**data)


@dataclass
class Progress:
    """Where a run is."""

    step: int = 0
    tokens: int = 0
    before: int = 0
    drawn: dict[int, int] = field(default_factory=dict[int, int])


def shape_of(path: Path) -> Shape:
    """The shape that a GGUF file's metadata states."""
    fields = gguf.GGUFReader(path).fields

    def said(key: str) -> int | float:
        return fields[f"llama.{key}"].contents()

    heads = int(said("attention.head_count"))
    return Shape(
        layers=int(said("block_count")),
        heads=heads,
        kv_heads=int(said("attention.head_count_kv")),
        head_width=int(said("embedding_length")) // heads,
        rope_base=float(said("rope.freq_base")),
        epsilon=float(said("attention.layer_norm_rms_epsilon")),
        context=int(said("context_length")),
    )


Batch = tuple[Tensor, Tensor, Tensor, Tensor, int]


def batch(rows: list[Row], end_weight: float = 1.0, rest_share: float = 0.0, rest_weight: float = 0.0) -> Batch:
    """Lays rows together.

    An eighth of a row's tokens is answer. What stands before it is code too, and the base has seen more prose: a share of
    these positions counts a little, which steadies a step of a few hundred answers' tokens.

    Returns:
        Ids (rows, length), flat positions that predict, their targets and weights (targets,), and how many of them,
        the first ones, predict answers.
    """
    ids = torch.stack([torch.from_numpy(row.ids) for row in rows])
    length = ids.shape[1]
    wanted = torch.cat([torch.arange(row.begin - 1, row.end - 1) + at * length for at, row in enumerate(rows)])
    answers = len(wanted)
    weights = torch.where(ids.flatten()[wanted + 1] == END, end_weight, 1.0)
    if rest_share:
        before = torch.cat([torch.arange(row.begin - 1) + at * length for at, row in enumerate(rows)])
        before = before[torch.rand(len(before), generator=torch.Generator().manual_seed(answers)) < rest_share]
        # Where a part of the prompt ends is the client's choice: nothing that could be learned.
        before = before[~torch.isin(ids.flatten()[before + 1], _CONTROL)]
        wanted = torch.cat([wanted, before])
        weights = torch.cat([weights, torch.full((len(before),), rest_weight)])
    return ids, wanted, ids.flatten()[wanted + 1], weights, answers


class Run:
    """A training under way; ``step`` is one update."""

    def __init__(self, config: Config, network: Network, sampler: Sampler, progress: Progress) -> None:
        self.config, self.network, self.sampler, self.progress = config, network, sampler, progress
        named = list(network.named_parameters())
        groups = [
            {"params": [value for name, value in named if name.endswith(".a")], "rate": config.rate_a},
            {"params": [value for name, value in named if name.endswith(".b")], "rate": config.rate_b},
            {"params": [network.rows], "rate": config.rate_rows},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
        self._losses = losses
        self._drawer: Drawer | None = None

    def close(self) -> None:
        """Ends the processes that draw rows."""
        if self._drawer is not None:
            self._drawer.close()

    def compile(self) -> None:
        """Compiles a layer and the loss; a minute for each length of row."""
        for block in self.network.blocks:
            block.compile(dynamic=False)
        self._losses = torch.compile(losses, dynamic=True)

    def step(self, scale: float) -> tuple[float, int]:
        """One update at ``scale`` of the rates.

        Returns:
            Loss of the answers in nats a token, tokens of the rows.
        """
        config, progress = self.config, self.progress
        if self._drawer is None:
            self._drawer = Drawer(
                self.sampler, config.lengths, config.batch_tokens, progress.drawn, config.drawing_processes
            )
        length, rows = self._drawer.step()
        count = len(rows)
        micro = max(1, config.micro_tokens // length)
        settings = (config.end_weight, config.rest_share, config.rest_weight)
        parts = [batch(rows[at : at + micro], *settings) for at in range(0, count, micro)]
        mass = sum(float(weights.sum()) for *_, weights, _ in parts)
        for group in self.optimizer.param_groups:
            group["lr"] = group["rate"] * scale
        said, answers = 0.0, 0
        for ids, wanted, targets, weights, of_answers in parts:
            device = config.device
            states, table = self.network(ids.to(device), wanted.to(device))
            values = self._losses(states, table, targets.to(device), of_answers)
            (values * weights.to(device)).sum().div(mass).backward()
            said += float(values.detach()[:of_answers].sum())
            answers += of_answers
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        progress.step += 1
        progress.tokens += count * length
        progress.drawn[length] = progress.drawn.get(length, 0) + count
        return said / answers, count * length


@torch.no_grad()
def held_out(network: Network, parts: dict[str, list[Batch]]) -> dict[str, float]:
    """Mean loss of answers in nats a token by name of the set; ``ends`` is the share of ends that are the first choice."""
    said: dict[str, float] = {}
    right, ends = 0, 0
    for name, batches in parts.items():
        total, count = 0.0, 0
        for ids, wanted, targets, *_ in batches:
            device = network.rows.device
            ids, wanted, targets = ids.to(device), wanted.to(device), targets.to(device)
            states, table = network(ids, wanted)
            values = losses(states, table, targets, len(targets))
            total, count = total + float(values.sum()), count + len(targets)
            last = targets == END
            first_choice = torch.nn.functional.linear(states[last], table).argmax(-1)
            right, ends = right + int((first_choice == END).sum()), ends + int(last.sum())
        said[name] = round(total / count, 4)
    return said | {"ends": round(right / max(1, ends), 3)}


def measured_sets(store: Store, tokenizer: object, rows: int = 96) -> dict[str, list[Batch]]:
    """Held-out rows by layout and language, always the same."""
    sets: dict[str, list[Batch]] = {}
    for layout in ("spm", "psm_growing"):
        for name, share in (("python", 1.0), ("others", 0.0)):
            sampler = Sampler(
                store, tokenizer, {layout: 1.0}, f"held-out/{layout}", context_share=0.0, python_share=share
            )
            drawn = [sampler.row(number, 384) for number in range(rows)]
            sets[f"{layout} {name}"] = [batch(drawn[at : at + 8]) for at in range(0, rows, 8)]
    return sets


def scale_at(
    progress: Progress, config: Config, clock: float, decay_from: float | None, stop_at: float | None
) -> float:
    """Share of the peak rates: up over the first steps, down to nothing between two times of day, or in the last tokens."""
    up = min(1.0, (progress.step + 1) / config.warmup_steps)
    if config.tokens:
        up *= min(1.0, max(0.02, (1 - progress.tokens / config.tokens) / DECAY_SHARE))
    if decay_from is None or stop_at is None or clock <= decay_from:
        return up
    return up * max(0.02, (stop_at - clock) / (stop_at - decay_from))


def save(run: Run, out: Path) -> None:
    """Writes ``last.pt``, from which the same command goes on."""
    state = {
        "network": run.network.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "progress": run.progress,
    }
    torch.save(state, out / "last.tmp")
    (out / "last.tmp").rename(out / "last.pt")


def keep(run: Run, out: Path, base_sha256: str, layout: str, version: str) -> None:
    """A checkpoint, and the adapter as it is, which is of use if the machine goes before the end."""
    save(run, out)
    partial = out / "adapter.part"
    trained = run.progress.before + run.progress.tokens
    adapter_file.write(
        run.network, partial, layout=layout, base_sha256=base_sha256, trained_tokens=trained, version=version
    )
    partial.replace(out / "adapter.gguf")


def load(run: Run, out: Path) -> None:
    """Takes up where :func:`save` left, if it did."""
    if (out / "last.pt").exists():
        state = torch.load(out / "last.pt", map_location=run.config.device, weights_only=False)
        run.network.load_state_dict(state["network"], strict=False)
        run.optimizer.load_state_dict(state["optimizer"])
        run.progress = state["progress"]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Train the adapter.")
    parser.add_argument("config", type=Path)
    parser.add_argument("--base", type=Path, required=True, help="the base's GGUF file")
    parser.add_argument("--store", type=Path, required=True, help="folder with the text stores train/ and validation/")
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints, the log and the adapter")
    parser.add_argument("--from", dest="start", type=Path, help="an adapter to go on from")
    parser.add_argument("--minutes", type=float, help="of training; without it until it is stopped")
    parser.add_argument("--decay", type=float, help="the last minutes, in which the rates fall; else a share of all")
    parser.add_argument("--layout", default="spm", help="the layout that is served, for the adapter's file")
    parser.add_argument("--adapter-version", default="0.3.0")
    options = parser.parse_args()
    config = Config.load(options.config)
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    network = Network(base.weights(options.base), shape_of(options.base), config.rank).to(config.device)
    tokenizer = base.tokenizer(options.base)
    progress = Progress()
    if options.start is not None:
        progress.before = adapter_file.read_into(network, options.start)
    store = Store(options.store / "train")
    sampler = Sampler(
        store, tokenizer, config.layouts, str(config.seed + progress.before), config.context_share, config.python_share
    )
    run = Run(config, network, sampler, progress)
    load(run, options.out)
    sets = measured_sets(Store(options.store / "validation"), tokenizer)
    run.compile()
    digest = digest_file(options.base)

    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    began = measured = saved = time.monotonic()
    stop_at = began + options.minutes * 60 if options.minutes else None
    decay = DECAY_SHARE * (options.minutes or 0.0) if options.decay is None else options.decay
    decay_from = stop_at - decay * 60 if stop_at is not None else None
    with (options.out / "log.jsonl").open("a") as log:

        def say(row: dict[str, object]) -> None:
            log.write(json.dumps(row) + "\n")
            log.flush()

        if run.progress.step == 0:
            say({"step": 0, "tokens": 0, "held_out": held_out(network, sets)})
        while not (stopped or (config.tokens and run.progress.tokens >= config.tokens)):
            if stop_at is not None and time.monotonic() >= stop_at:
                break
            at = time.monotonic()
            scale = scale_at(run.progress, config, at, decay_from, stop_at)
            loss, tokens = run.step(scale)
            now = time.monotonic()
            say(
                {
                    "step": run.progress.step,
                    "tokens": run.progress.tokens,
                    "loss": round(loss, 4),
                    "scale": round(scale, 3),
                    "rate": round(tokens / (now - at)),
                }
            )
            if now - measured > config.evaluate_seconds:
                measured = now
                say({"step": run.progress.step, "tokens": run.progress.tokens, "held_out": held_out(network, sets)})
            if now - saved > config.checkpoint_seconds:
                saved = now
                keep(run, options.out, digest, options.layout, options.adapter_version)
        say({"step": run.progress.step, "tokens": run.progress.tokens, "held_out": held_out(network, sets)})
    keep(run, options.out, digest, options.layout, options.adapter_version)
    run.close()


if __name__ == "__main__":
    main()
