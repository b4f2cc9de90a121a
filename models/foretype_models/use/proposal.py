"""Which model suits a machine, and how fast it will be: pure, from figures that somebody published (see the catalogue)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from foretype_models.errors import UseError
from foretype_models.use.catalogue import Catalogue, Entry, Speed
from foretype_models.use.machine import Machine

CACHE_BYTES: Final = 256 << 20
"""Of the embedded engine's key-value cache, its own default."""
_RUNTIME_BYTES: Final = 500_000_000
"""The engine's libraries and its working memory."""
_SHARE: Final = 0.5
"""Of a machine's memory that a proposed model may take: editors, browsers and compilers want the rest."""
_FEW_CORES: Final = 4
_SMALL_PARAMETERS, _MIDDLE_PARAMETERS = 1e9, 2e9
_SMALL_PROMPT, _MIDDLE_PROMPT, _GPU_PROMPT = 600, 800, 2000
_WARM_TOKENS: Final = 40
"""New prompt tokens of a key in a document that was asked about before."""
_LINE_TOKENS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What is to be expected, scaled from a published measurement."""

    decode_tokens_s: float
    warm_ms: float
    line_ms: float
    source: str

    def __str__(self) -> str:
        return (
            f"about {self.decode_tokens_s:.0f} tokens/s, a line after a key in {self.line_ms / 1e3:.1f} s "
            "(scaled from a published figure; measured after the download)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One model for one machine.

    Attributes:
        entry: None where no model of the catalogue suits; `why` says why.
        device: OpenVINO's name of what computes.
        prompt_tokens: budget of a prompt, so that a cold one does not take for ever.
        notes: what else should be known, each a sentence.
    """

    entry: Entry | None
    why: str
    device: str = "CPU"
    prompt_tokens: int = _SMALL_PROMPT
    expected: Expected | None = None
    notes: tuple[str, ...] = ()


def needed_bytes(size: int) -> int:
    """Memory that a model takes when it is served."""
    return size + CACHE_BYTES + _RUNTIME_BYTES


def check_memory(machine: Machine, size: int, name: str) -> None:
    """Refuse a model that does not fit. Raises UseError."""
    need = needed_bytes(size)
    if need > machine.memory_bytes:
        raise UseError(
            f"{name} needs {need / 1e9:.1f} GB and this machine has {machine.memory_bytes / 1e9:.1f}; take a smaller one: "
            "`foretype use --list`"
        )
    if need > machine.available_bytes:
        raise UseError(
            f"{name} needs {need / 1e9:.1f} GB and {machine.available_bytes / 1e9:.1f} are free; close something, or take a smaller "
            "one: `foretype use --list`"
        )


def plan_for(machine: Machine) -> tuple[str, int]:
    """Device and prompt budget for a model on this machine."""
    if (gpu := machine.gpu("intel")) is not None:
        return gpu.device, _GPU_PROMPT
    return "CPU", _SMALL_PROMPT if machine.cores <= _FEW_CORES else _MIDDLE_PROMPT


def expected(entry: Entry, machine: Machine, catalogue: Catalogue) -> Expected | None:
    """How fast a model should be here, or None where nobody measured anything like it."""
    kind = "intel-gpu" if machine.gpu("intel") is not None else "cpu"
    found = next((speed for speed in catalogue.speed if speed.machine == kind), None)
    if found is None or entry.bytes is None:
        return None
    share = min(1.0, machine.cores / 2 / found.cores) if found.cores else 1.0  # the engine takes half of the cores
    decode, prefill = _scaled(entry.bytes, entry.parameters, found, share)
    warm_ms = 1e3 * _WARM_TOKENS / prefill
    return Expected(
        decode_tokens_s=decode,
        warm_ms=warm_ms,
        line_ms=warm_ms + 1e3 * _LINE_TOKENS / decode,
        source=found.source,
    )


def _scaled(size: int, parameters: int, speed: Speed, share: float) -> tuple[float, float]:
    """Writing reads every weight once per token; reading a prompt multiplies by every weight."""
    decode = speed.decode_tokens_s * speed.model_bytes / size
    prefill = speed.prefill_tokens_s * speed.parameters / parameters * share
    return decode * max(share, 0.5) if share < 1 else decode, prefill


def propose(machine: Machine, catalogue: Catalogue) -> Proposal:
    """The model for this machine, among those that may be proposed to anybody."""
    notes = _notes(machine)
    may = sorted((entry for entry in catalogue.models if entry.proposable), key=lambda entry: entry.parameters)
    if not machine.embedded:
        return Proposal(entry=None, why=_elsewhere(may), notes=notes)
    fits = [
        one
        for one in may
        if needed_bytes(one.bytes or 0) <= min(_SHARE * machine.memory_bytes, machine.available_bytes)
    ]
    if not fits:
        least = f"; the smallest takes {needed_bytes(may[0].bytes or 0) / 1e9:.1f} GB" if may else ""
        return Proposal(
            entry=None,
            why=f"no model of the catalogue fits into half of this machine's memory{least}: the shipped model stays",
            notes=notes,
        )
    device, prompt_tokens = plan_for(machine)
    cores = f"{machine.cores} core{'s' if machine.cores != 1 else ''}"
    few = device == "CPU" and machine.cores <= _FEW_CORES
    most = _SMALL_PARAMETERS if few else _MIDDLE_PARAMETERS
    reason = f"the largest that answers before you have typed on, with {cores if device == 'CPU' else 'these graphics'}"
    right = [one for one in fits if one.parameters <= most] or fits[:1]
    entry = right[-1]
    return Proposal(
        entry=entry,
        why=reason,
        device=device,
        prompt_tokens=prompt_tokens,
        expected=expected(entry, machine, catalogue),
        notes=notes,
    )


def _elsewhere(may: list[Entry]) -> str:
    fitting = [one for one in may if one.parameters <= 2e9]
    example = f"`llama-server -hf {fitting[-1].repository} --port 8012`, then " if fitting else ""
    return (
        "the embedded engine is not expected to run on this processor; start llama.cpp's server, which does: "
        f"{example}`foretype use http://127.0.0.1:8012/v1`"
    )


def _notes(machine: Machine) -> tuple[str, ...]:
    notes: list[str] = []
    if machine.system != "Linux":
        notes.append(f"nobody has tried Foretype on {'macOS' if machine.system == 'Darwin' else machine.system} yet")
    if (gpu := machine.gpu("nvidia")) is not None:
        notes.append(
            f"the embedded engine does not use the {gpu.name}: a llama-server or vLLM on it is faster; "
            "`foretype use http://host:port/v1` joins it"
        )
    return tuple(notes)
