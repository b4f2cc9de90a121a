"""Configuration of the embedded engine."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from foretype_backend.engines.embedded.libraries import LIBRARIES

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedConfig:
    """How the embedded engine runs.

    Attributes:
        model: a GGUF file (llama, qwen2 or qwen3 shape).
        library: what computes: `openvino` or `llama.cpp`. Unset: OpenVINO on x86-64, else llama.cpp, of those that are installed.
        device: where it computes, by OpenVINO's names: `CPU`, `GPU`, `GPU.1`. Where another than the CPU cannot open the model the CPU
            does, and the engine's notes say so. `AUTO`: the first GPU that the library names; the CPU where it names none.
        cache_bytes: most memory of the key-value cache; it grows up to it with use.
        chunk_tokens: prefill tokens in one step: a cancel waits for at most one step.
        max_sequences: requests computed at once.
        max_overtakes: how often short requests may get ahead of a long one.
        head_start_tokens: tokens that such a short request produces before the long one goes on.
        threads: inference threads. Unset: half of the cores, since the editor needs the others.
        nice: added to the niceness of the process.
        prompt_lookup_tokens: tokens drafted from the prompt itself per step; 0 switches it off.
        prepared_dir: where models are kept as OpenVINO made them out of their files, for a start in less time and memory, and exact
            copies of files that it would read as another model. Unset: `engine` in the user's cache directory.
        start_timeout_s: a model that is not loaded by then failed to start.
        hang_s: silence, with requests running, after which the process is ended and started again.
        restart_wait_s: how long a request waits for an engine that is starting again.
        rest_after_s: without a request for so long the process ends and gives its memory back; the next request starts it. 0: never.
        restart_first_s, restart_most_s: back-off between attempts to start again, doubled each time.
        healthy_after_s: a process that lived this long starts the back-off afresh.
    """

    model: Path
    library: str = ""
    device: str = "CPU"
    cache_bytes: int = 256 * _MIB
    chunk_tokens: int = 128
    max_sequences: int = 8
    max_overtakes: int = 6
    head_start_tokens: int = 16
    threads: int | None = None
    nice: int = 0
    prompt_lookup_tokens: int = 0
    prepared_dir: Path | None = None
    start_timeout_s: float = 120.0
    hang_s: float = 60.0
    restart_wait_s: float = 5.0
    rest_after_s: float = 600.0
    restart_first_s: float = 0.05
    restart_most_s: float = 10.0
    healthy_after_s: float = 30.0

    def __post_init__(self) -> None:
        if re.fullmatch(r"AUTO|CPU|GPU(\.\d{1,2})?", self.device) is None:
            raise ValueError(f"device is {self.device!r}; it is AUTO, CPU, GPU, or GPU.1 for a second one")
        if self.library not in ("", *LIBRARIES):
            raise ValueError(f"library is {self.library!r}; it is {' or '.join(LIBRARIES)}")
        for name, least in (
            ("cache_bytes", _MIB),
            ("chunk_tokens", 32),
            ("max_sequences", 1),
            ("head_start_tokens", 1),
            ("rest_after_s", 0),
        ):
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"{name} is {value}; it must be at least {least}")

    @classmethod
    def of(cls, **config: Any) -> EmbeddedConfig:
        """From plain values; raises TypeError that names an option which does not exist, or `model` when missing."""
        known = {f.name for f in fields(cls)}
        for name in config:
            if name not in known:
                raise TypeError(f"the embedded engine has no option {name!r}; it has {', '.join(sorted(known))}")
        if not config.get("model"):
            raise TypeError("the embedded engine needs the option 'model': the path of a .gguf file")
        options: dict[str, Any] = {**config, "model": Path(config["model"])}
        if config.get("prepared_dir") is not None:
            options["prepared_dir"] = Path(config["prepared_dir"])
        return cls(**options)

    def back_off_s(self, failures: int) -> float:
        return min(self.restart_first_s * 2 ** min(failures, 20), self.restart_most_s)
