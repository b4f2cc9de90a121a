"""The libraries that compute in the embedded engine's process, by name, and which of them does where none is named."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from foretype_backend.engines.embedded.pipeline import Library
from foretype_backend.errors import LibraryError

LIBRARIES: Final = {
    "openvino": ("openvino_genai", "foretype_backend.engines.embedded.openvino_pipeline:OpenVinoLibrary"),
    "llama.cpp": ("xllamacpp", "foretype_backend.engines.embedded.llama_pipeline:LlamaLibrary"),
}
"""Name of each: the package that it needs, and where it is."""

_X86_64: Final = ("x86_64", "amd64")


def library_here() -> str:
    """Which computes on this machine: OpenVINO on x86-64, else llama.cpp, of those that are installed.

    OpenVINO's continuous batching wants x86-64, or an ARM with SVE, which Apple's have not, though there is a wheel for them.

    Raises:
        LibraryError: none is installed.
    """
    installed = [name for name, (package, _) in LIBRARIES.items() if find_spec(package) is not None]
    if platform.machine().lower() not in _X86_64:
        installed.reverse()
    if not installed:
        raise LibraryError("nothing is installed that computes a model; pip install 'foretype[embedded]'")
    return installed[0]


def load_library(name: str) -> Callable[[], Library]:
    """Import what makes it; `name` is of `LIBRARIES`. Raises LibraryError where its package is not installed."""
    package, where = LIBRARIES[name]
    if find_spec(package) is None:
        extra = "llama-cpp" if name == "llama.cpp" else "embedded"
        raise LibraryError(
            f"{name} computes by the package {package}, which is not installed; pip install 'foretype[{extra}]'"
        )
    module, _, class_name = where.partition(":")
    library: Callable[[], Library] = getattr(import_module(module), class_name)
    return library
