"""The two sides of a gate: what the command line names for each, and the run that each side is measured by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from foretype_models.artifacts import digest_file, locate

from foretype_eval.compare.runs import Run, load_run
from foretype_eval.errors import EvalError
from foretype_eval.fim.ask import AskOptions
from foretype_eval.fim.run import FimOptions, run_fim
from foretype_eval.gateway import GatewayOptions
from foretype_eval.replay.run import ReplayOptions, run_replay

SHIPPED: Final = "shipped"
"""The weights of this installation, in the layout that they are served in."""

_SYSTEMS: Final = ("network", "unfiltered", "model")

Progress = Callable[[str, int, int], None]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One side: a run that was made before, or the gateway that makes one.

    Attributes:
        option: the option that named it, for messages.
        named: as the user wrote it.
    """

    option: str
    named: str
    run: Run | None = None
    gateway: GatewayOptions | None = None
    layout: str | None = None

    def sha256(self) -> str | None:
        """Digest of the side's weights; None where the side names none."""
        if self.named == SHIPPED:
            shipped = locate()
            return digest_file(shipped.adapter or shipped.path)
        model = None if self.gateway is None else self.gateway.model
        return None if model is None else digest_file(model)


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """What sides without a run are measured on.

    Attributes:
        system: of a replay. `network` is the model alone and unfiltered: text that a profile's least confidence hides could not be compared.
    """

    fim: Path | None = None
    limit: int | None = None
    execute: bool = True
    max_tokens: int = 192
    parallel: int = 2
    replay: Path | None = None
    commits: str | int = 20
    system: str = "network"
    latency_trace: Path | None = None
    seed: int = 0


def side_of(
    option: str, named: str, *, layout: str | None = None, token: str | None = None, clear: bool = False
) -> Side:
    """What `named` is: a gateway's URL, weights, a profile, a run of `eval fim` or `eval replay`, or `shipped`.

    Raises:
        EvalError: none of these, or a run that cannot be read.
    """
    if named.startswith(("ws://", "wss://")):
        gateway = GatewayOptions(url=named, token=token, token_in_clear=clear)
        return Side(option=option, named=named, gateway=gateway, layout=layout)
    if named == SHIPPED:
        return Side(option=option, named=named, gateway=GatewayOptions(), layout=layout)
    path = Path(named)
    if not path.exists():
        raise EvalError(
            f"{option}: {path} does not exist; name weights (.gguf), a profile (.toml), a ws:// URL, a run, or shipped"
        )
    if path.suffix == ".gguf" and path.is_file():
        return Side(option=option, named=named, gateway=GatewayOptions(model=path), layout=layout)
    if path.suffix == ".toml" and path.is_file():
        return Side(option=option, named=named, gateway=GatewayOptions(profile=path), layout=layout)
    if path.is_dir() or path.suffix == ".jsonl":
        if path.is_dir() and (any(path.glob("*.safetensors")) or (path / "config.json").is_file()):
            raise EvalError(
                f"{option}: {path} holds safetensors, which no private gateway serves; name the GGUF, or a gateway's URL"
            )
        if layout is not None:
            raise EvalError(f"{option}-layout: {path} is a run that was made; a layout belongs to weights or a gateway")
        return Side(option=option, named=named, run=load_run(path))
    raise EvalError(f"{option}: {path} is no .gguf, no .toml, no run (.jsonl or folder) and no ws:// URL")


def fim_run(side: Side, data: Data, out: Path, *, progress: Progress) -> Run:
    """The benchmark run of a side; made here if the side has none."""
    if side.run is not None:
        if not side.run.fim:
            raise EvalError(f"{side.option}: {side.named} is a run of `eval replay`; --fim needs one of `eval fim`")
        return side.run
    if side.gateway is None or data.fim is None:
        raise EvalError(f"{side.option}: {side.named} is not measured yet; give --fim FILE")
    options = FimOptions(
        data=data.fim,
        out=out,
        limit=data.limit,
        layout=side.layout,
        execute=data.execute,
        seed=data.seed,
        ask=AskOptions(max_tokens=data.max_tokens, parallel=data.parallel),
        gateway=side.gateway,
    )
    asyncio.run(run_fim(options, progress=lambda step, done, total: progress(f"{side.option[2:]} {step}", done, total)))
    return load_run(out)


def replay_run(side: Side, data: Data, out: Path, *, progress: Progress) -> Run:
    """The replay of a side; made here if the side has none."""
    if side.run is not None:
        if not side.run.replay:
            raise EvalError(f"{side.option}: {side.named} is a run of `eval fim`; --replay needs one of `eval replay`")
        return side.run
    if side.gateway is None or data.replay is None:
        raise EvalError(f"{side.option}: {side.named} is not measured yet; give --replay REPO")
    options = ReplayOptions(
        repo=data.replay,
        commits=data.commits,
        systems=(data.system,),
        layout=side.layout,
        latency_trace=data.latency_trace,
        seed=data.seed,
        out=out,
        gateway=side.gateway,
    )
    run_replay(options, progress=lambda step, done, total: progress(f"{side.option[2:]} {step}", done, total))
    return load_run(out)


def system_of(baseline: Run, candidate: Run, wanted: str | None) -> str:
    """The system that is compared: the one that was asked for, or the barest that both replays have."""
    both = [name for name in baseline.systems() if name in candidate.systems()]
    if wanted is not None and wanted not in both:
        raise EvalError(f"--system: {wanted} is not in both replays; {', '.join(both) or 'none'} is")
    found = wanted or next((name for name in _SYSTEMS if name in both), None)
    if found is None:
        raise EvalError(f"--system: name one that both replays have, of {', '.join(both) or 'none'}")
    return found
