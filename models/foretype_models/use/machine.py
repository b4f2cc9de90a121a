"""What this machine has for a model: cores, memory, graphics. Nothing here is of one system alone; what cannot be told is left out."""

from __future__ import annotations

import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_GB: Final = 1e9
_NVIDIA: Final = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A graphics device.

    Attributes:
        kind: `intel` (OpenVINO names it), `nvidia` or `apple`.
        device: OpenVINO's name for it, else empty.
    """

    kind: str
    name: str
    device: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What there is.

    Attributes:
        system: `Linux`, `Darwin` or `Windows`.
        architecture: `x86_64` or `arm64`, whatever the system calls it.
        cores: that this process may use, hyper-threads not counted where that can be told.
        available_bytes: of memory, without swapping.
        embedded: whether the embedded engine is expected to run here.
    """

    system: str
    architecture: str
    cores: int
    memory_bytes: int
    available_bytes: int
    gpus: tuple[Gpu, ...] = ()
    embedded: bool = True

    def gpu(self, kind: str) -> Gpu | None:
        """The first device of a kind."""
        return next((gpu for gpu in self.gpus if gpu.kind == kind), None)

    def __str__(self) -> str:
        cores = f"{self.cores} core{'s' if self.cores != 1 else ''}"
        memory = f"{self.memory_bytes / _GB:.1f} GB memory, {self.available_bytes / _GB:.1f} free"
        graphics = ", ".join(gpu.name for gpu in self.gpus) or "no GPU that can be used"
        return f"{cores}, {memory}, {graphics}"


def look() -> Machine:
    """This machine, as it is now. Takes some 0.2 s: OpenVINO is asked for its devices, without its part that sends statistics."""
    import psutil

    memory: Any = psutil.virtual_memory()
    architecture = {"AMD64": "x86_64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    system = platform.system()
    allowed = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    gpus = (*_intel(), *_nvidia())
    if system == "Darwin" and architecture == "arm64":
        gpus = (*gpus, Gpu("apple", "Apple graphics"))
    return Machine(
        system=system,
        architecture=architecture,
        cores=min(allowed, psutil.cpu_count(logical=False) or allowed),
        memory_bytes=int(memory.total),
        available_bytes=int(memory.available),
        gpus=gpus,
        # By OpenVINO on x86-64 and by llama.cpp elsewhere; there is a wheel of neither for Windows on ARM.
        embedded=architecture == "x86_64" or (architecture == "arm64" and system != "Windows"),
    )


def _intel() -> tuple[Gpu, ...]:
    # The converter of models, which the package does without where it is missing: its import sends statistics of use (`openvino_telemetry`).
    sys.modules.setdefault("openvino.tools.ovc", None)  # pyright: ignore[reportArgumentType]
    try:
        import openvino

        core: Any = openvino.Core()
        devices = [str(device) for device in core.available_devices if str(device).startswith("GPU")]
        named = [(device, str(core.get_property(device, "FULL_DEVICE_NAME"))) for device in devices]
    except (ImportError, RuntimeError):  # not installed, or a driver that fails
        return ()
    return tuple(Gpu("intel", re.sub(r"\((R|TM)\)", "", name), device) for device, name in named)


def _nvidia() -> tuple[Gpu, ...]:
    """By what the driver says of itself on Linux; no program is started for it."""
    try:
        return tuple(Gpu("nvidia", _model_name(folder)) for folder in sorted(_NVIDIA.iterdir()))
    except OSError:
        return ()


def _model_name(folder: Path) -> str:
    try:
        found = re.search(r"^Model:\s*(.+)$", (folder / "information").read_text("utf-8", "replace"), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else "NVIDIA GPU"
