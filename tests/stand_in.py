"""The network that ships is made on the user's machine, of 90 MB that no test downloads. A tiny random one of its form stands in for it."""

import json
import os
import tempfile
from pathlib import Path

import numpy as np
from foretype_models import artifacts
from foretype_models.fetch import place
from models.networks import CONTROLS, TINY, Form, write_adapter, write_base, write_wheel

__all__ = ["SHOWN", "data_with_a_network", "make_network", "real_models"]

SHOWN = "[model.line_chance]\nleast = 0\n"
"""Of a gateway's file: what a random network says is shown too, though it is never likely."""

_REAL = "FORETYPE_TESTS_REAL_DATA"
"""Of the environment: the folder that was replaced. A test's own processes and pytest's workers have it too."""


def make_network(root: Path, form: Form = TINY) -> artifacts.Artifact:
    """A random network under ``root``, by the name and in the grammar of the one that ships."""
    shipped = artifacts.available()[0]
    with tempfile.TemporaryDirectory() as scratch:
        base = write_base(Path(scratch) / "base.gguf", form=form)
        wheel, described = write_wheel(Path(scratch), base)
        silent = np.zeros((len(CONTROLS), form.width))  # it says text alone, and does not end by itself
        adapter = write_adapter(
            Path(scratch) / "a.gguf",
            base,
            general__name=shipped.name,
            foretype__grammar=shipped.grammar,
            more={"token_embd.weight.rows": silent},
            seed=4,
            form=form,
        )
        return place.make(adapter, described, root, wheel).artifact


def data_with_a_network(data: Path) -> None:
    """Makes `data` the user's data folder: what lies in the real one, by link, but with the tiny network as the one that ships.

    Processes that a test starts have it too, by XDG_DATA_HOME. Where the model that ships is whole, there is nothing to stand in for.
    """
    adapter = artifacts.locate_adapter()
    if adapter is None:
        return
    real = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    os.environ.setdefault(_REAL, str(real))
    for entry in real.iterdir() if real.is_dir() else ():
        if entry.name != "foretype":
            (data / entry.name).symlink_to(entry)
    origin = make_network(data / "foretype" / "models").path.with_name("origin.json")
    said = json.loads(origin.read_text("utf-8"))
    origin.write_text(json.dumps(said | {"adapter_sha256": artifacts.digest_file(adapter)}), "utf-8")
    os.environ["XDG_DATA_HOME"] = str(data)


def real_models() -> Path:
    """Where `foretype models fetch` puts models of this user, who runs the tests."""
    return Path(os.environ[_REAL]) / "foretype" / "models"
