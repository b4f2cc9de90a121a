"""A program of ours that belongs to no package, as a module."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

__all__ = ["loaded"]


def loaded(path: Path, name: str) -> ModuleType:
    """The file, run as a module of this name."""
    loader = SourceFileLoader(name, str(path))
    spec = spec_from_loader(name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module
