"""Engines by name. Nothing heavy is imported until an engine that needs it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from foretype_backend.engines.port import Engine
from foretype_backend.errors import UnknownEngineError

ENGINES: Final = {
    "embedded": "foretype_backend.engines.embedded.engine:EmbeddedEngine.from_config",
    "llama-cpp": "foretype_backend.engines.llama_cpp:LlamaCppEngine.from_config",
    "lm-studio": "foretype_backend.engines.openai.lm_studio:LmStudioEngine.from_config",
    "ollama": "foretype_backend.engines.ollama:OllamaEngine.from_config",
    "openai": "foretype_backend.engines.openai.engine:OpenAIEngine.from_config",
    "vllm-server": "foretype_backend.engines.vllm.server:VllmServerEngine.from_config",
    "scripted": "foretype_backend.engines.scripted:ScriptedEngine",
    "vllm": "foretype_backend.engines.vllm.engine:VllmEngine.from_config",
}
"""Name of each engine and where its factory is."""


def load_engine(name: str, **config: Any) -> Engine:
    """Make an engine, not started yet.

    Args:
        name: one of `ENGINES`.
        config: passed to its factory; an option that it does not have raises TypeError with its name.

    Raises:
        UnknownEngineError: no engine has this name.
        EngineUnavailableError: what the engine needs is not installed; the message says how to install it.
    """
    target = ENGINES.get(name)
    if target is None:
        raise UnknownEngineError(f"engine {name!r} is unknown; choose one of {', '.join(sorted(ENGINES))}")
    module_name, _, path = target.partition(":")
    factory: Any = import_module(module_name)
    for part in path.split("."):
        factory = getattr(factory, part)
    make: Callable[..., Engine] = factory
    return make(**config)
