import errno
import json
import tomllib
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_models import artifacts, cli
from foretype_models.errors import PullError
from foretype_models.pull import checkpoint, place, tokens, write
from foretype_models.pull.shapes import read_shape
from pasting import AWKWARD, pasted
from typer.testing import CliRunner

from models import checkpoints

RUN = CliRunner()
SHAPES = [
    ("LlamaForCausalLM", "codellama"),
    ("LlamaForCausalLM", "deepseek-coder"),
    ("Qwen2ForCausalLM", "qwen2.5-coder"),
    ("Qwen3ForCausalLM", "starcoder2"),
]


def test_a_layout_that_is_named_is_served_and_one_that_the_template_lacks_is_refused(tmp_path: Path) -> None:
    source = checkpoints.make(tmp_path / "source", "Qwen2ForCausalLM", "qwen2.5-coder")
    found = place.pull(str(source), tmp_path / "models", name="tiny", layout="psm_growing")
    (model,) = artifacts.verify(found.folder)
    assert model.profile["layout"] == "psm_growing"
    profile = found.folder / "profile.toml"
    assert tomllib.loads(profile.read_text())["model"]["layout"] == "psm_growing"
    with pytest.raises(PullError, match=r"--layout: 'spm' is not one of .*psm_growing.* of qwen2\.5-coder"):
        place.pull(str(source), tmp_path / "models", name="tiny", layout="spm")
    assert artifacts.verify(found.folder) == [model]


@pytest.mark.parametrize(("architecture", "family"), SHAPES)
def test_a_checkpoint_becomes_a_model_that_the_engine_runs(tmp_path: Path, architecture: str, family: str) -> None:
    genai = pytest.importorskip("openvino_genai")
    import openvino

    source = checkpoints.make(tmp_path / "source", architecture, family)
    found = place.pull(str(source), tmp_path / "models", name="tiny")
    assert (found.grammar, found.name) == (family, "tiny")
    (model,) = artifacts.verify(found.folder)
    assert (model.grammar, model.licence, model.parameters) == (family, "apache-2.0", found.parameters)
    profile = tomllib.loads((found.folder / "profile.toml").read_text())
    assert profile["engine"]["model"] == str(model.path)
    assert profile["model"]["context_limit_tokens"] == 2048
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 1
    pipeline = genai.ContinuousBatchingPipeline(str(model.path), scheduler, "CPU", {})
    options = genai.GenerationConfig()
    options.max_new_tokens, options.ignore_eos = 3, True
    ids = load_tokenizer(model.tokenizer_path).encode("def f(x):\n")
    handle = pipeline.add_request(0, openvino.Tensor(np.array([ids], dtype=np.int64)), options)
    while pipeline.has_non_finished_requests():
        pipeline.step()
    assert len(next(iter(handle.read_all())).generated_ids) == 3


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_weights_survive_within_the_step_of_q8_0(tmp_path: Path, kind: str) -> None:
    import gguf

    source = checkpoints.make(tmp_path / "source", kind=kind, shards=3)
    found = place.pull(str(source), tmp_path / "models", name="tiny")
    reader = gguf.GGUFReader(found.folder / "tiny-q8_0.gguf")
    written = {tensor.name: tensor for tensor in reader.tensors}
    shape = read_shape(checkpoints.config(), "config.json")
    for theirs, value in checkpoints.weights(checkpoints.config()).items():
        tensor = written[shape.names()[theirs]]
        back = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(value.shape)
        step = np.abs(value).max() / 127
        assert np.abs(back - value).max() <= step / 2 + np.abs(value).max() / 128, theirs


@pytest.mark.parametrize("family", sorted(checkpoints.CONTROLS))
def test_the_template_is_known_by_the_control_tokens(tmp_path: Path, family: str) -> None:
    source = checkpoints.make(tmp_path, family=family)
    tokenizer, vocabulary = tokens.load(source, 320)
    assert tokens.find_grammar(tokenizer, "m").id == family
    assert len(vocabulary.tokens) == len(vocabulary.types) == 320
    assert vocabulary.pieces == (family in ("codellama", "codestral"))
    for token in checkpoints.CONTROLS[family]:
        assert vocabulary.types[tokenizer.control(token)] == 3


FIRST_STARCODER = (
    "<|endoftext|>",
    "<fim_prefix>",
    "<fim_middle>",
    "<fim_suffix>",
    "<fim_pad>",
    "<filename>",
    "<reponame>",
)


def test_what_fits_two_families_is_pulled_as_the_one_that_is_named(tmp_path: Path) -> None:
    checkpoints.byte_level(FIRST_STARCODER).save(str(tmp_path / "tokenizer.json"))
    tokenizer = tokens.load(tmp_path, 320)[0]
    with pytest.raises(PullError, match="fit mellum and starcoder; say which with --grammar"):
        tokens.find_grammar(tokenizer, "m")
    assert tokens.find_grammar(tokenizer, "m", "mellum").id == "mellum"
    with pytest.raises(PullError, match=r"--grammar: m lacks <file_sep>, <repo_name> of starcoder2"):
        tokens.find_grammar(tokenizer, "m", "starcoder2")
    with pytest.raises(PullError, match="--grammar: no grammar 'latin'"):
        tokens.find_grammar(tokenizer, "m", "latin")


def test_a_model_without_a_template_is_refused_with_what_was_seen(tmp_path: Path) -> None:
    for controls, words in (
        (("<|im_start|>",), "it has no such control tokens"),
        (("<|im_start|>", "<|fim_begin|>"), r"look like it are \['<\|fim_begin\|>'\]"),
    ):
        checkpoints.byte_level(controls).save(str(tmp_path / "tokenizer.json"))
        with pytest.raises(PullError, match=words):
            tokens.find_grammar(tokens.load(tmp_path, 320)[0], "chat")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["Starcoder2ForCausalLM"]}, "architecture Starcoder2ForCausalLM"),
        ({"architectures": ["GraniteForCausalLM"]}, "architecture GraniteForCausalLM"),
        ({"architectures": ["Qwen3MoeForCausalLM"]}, "architecture Qwen3MoeForCausalLM"),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, "rope scaling 'linear'"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5}}, "rope scaling 'llama3'"),
        ({"use_sliding_window": True, "sliding_window": 512}, "sliding window"),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 4096}, "sliding window"),
        ({"architectures": ["LlamaForCausalLM"], "attention_bias": True}, "biases in the attention"),
        ({"mlp_bias": True}, "biases in the feed-forward"),
        ({"hidden_act": "gelu"}, "activation gelu"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised weights"),
        ({"intermediate_size": 100}, "feed_forward is 100"),
        ({"num_key_value_heads": 3}, "key heads"),
        ({"hidden_size": None}, "TypeError"),
        ({"num_hidden_layers": "many"}, "ValueError"),
    ],
)
def test_what_the_engine_would_ignore_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PullError, match=words):
        read_shape({**checkpoints.config(), **changes}, "config.json")


def test_a_scaling_for_long_texts_only_costs_the_long_context() -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
    shape = read_shape(checkpoints.config(rope_scaling=scaling), "config.json")
    assert (shape.context, shape.rope_base) == (1024, 10_000.0)
    assert "yarn" in shape.notes[0]


def spoil(source: Path, how: str) -> None:
    weights = source / "model.safetensors"
    tokenizer = source / "tokenizer.json"
    if how == "truncated":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif how == "short":
        weights.write_bytes(weights.read_bytes()[:5])
    elif how == "longer":
        weights.write_bytes(weights.read_bytes() + b"x")
    elif how == "tampered header":
        raw = bytearray(weights.read_bytes())
        raw[9] = 0xFF
        weights.write_bytes(bytes(raw))
    elif how == "no weights":
        weights.unlink()
    elif how == "pickled":
        weights.rename(source / "pytorch_model.bin")
    elif how == "no config":
        (source / "config.json").unlink()
    elif how == "no tokenizer":
        tokenizer.unlink()
    elif how == "slow tokenizer":
        tokenizer.rename(source / "tokenizer.model")
    elif how == "broken tokenizer":
        tokenizer.write_text("{}")
    elif how == "larger tokenizer":
        data = json.loads(tokenizer.read_text())
        data["added_tokens"].append({**data["added_tokens"][0], "id": 5000, "content": "<|more|>"})
        tokenizer.write_text(json.dumps(data))
    elif how == "other shape":
        settings = checkpoints.config(num_hidden_layers=3)
        (source / "config.json").write_text(json.dumps(settings))
    elif how == "other width":
        checkpoints.save_safetensors(weights, checkpoints.weights(checkpoints.config(intermediate_size=128)))
    elif how == "not finite":
        values = checkpoints.weights(checkpoints.config())
        values["model.layers.1.mlp.up_proj.weight"][0, 0] = np.nan
        checkpoints.save_safetensors(weights, values)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("truncated", "model.safetensors is truncated"),
        ("short", "model.safetensors is truncated"),
        ("longer", "longer than its header says"),
        ("tampered header", "header that cannot be read"),
        ("no weights", "model.safetensors is missing"),
        ("pickled", "pickled .bin files are not read"),
        ("no config", "config.json is missing"),
        ("no tokenizer", "tokenizer.json is missing"),
        ("slow tokenizer", "AutoTokenizer.from_pretrained"),
        ("broken tokenizer", "tokenizer.json"),
        ("larger tokenizer", "does not match the weights"),
        ("other shape", "lacks model.layers.2"),
        ("other width", "has the shape"),
        ("not finite", "not finite"),
    ],
)
def test_a_broken_checkpoint_is_named_and_the_model_before_stays(tmp_path: Path, how: str, words: str) -> None:
    source = checkpoints.make(tmp_path / "source")
    before = place.pull(str(source), tmp_path / "models", name="tiny")
    spoil(source, how)
    done = RUN.invoke(cli.app, ["pull", str(source), "--name", "tiny", "--out", str(tmp_path / "models")])
    assert done.exit_code == 1
    assert words in done.output.replace("\n", ""), done.output
    assert artifacts.verify(before.folder)[0].name == "tiny"
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["tiny"], "nothing half-done is left"


def test_a_full_disk_is_said_before_and_while_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = checkpoints.make(tmp_path / "source")
    before = place.pull(str(source), tmp_path / "models", name="tiny")
    usage = namedtuple("usage", "total used free")
    with monkeypatch.context() as patch:
        patch.setattr(place.shutil, "disk_usage", lambda _: usage(1, 1, 1000))
        with pytest.raises(PullError, match="make room or give --out"):
            place.pull(str(source), tmp_path / "models", name="tiny")

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(write, "write_gguf", full)
    with pytest.raises(PullError, match=r"No space left.*make room"):
        place.pull(str(source), tmp_path / "models", name="tiny")
    assert artifacts.verify(before.folder)[0].name == "tiny"
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["tiny"]


def test_a_folder_that_cannot_be_made_is_said_in_a_sentence(tmp_path: Path) -> None:
    source = checkpoints.make(tmp_path / "source")
    (tmp_path / "file").touch()
    done = RUN.invoke(cli.app, ["pull", str(source), "--name", "tiny", "--out", str(tmp_path / "file" / "models")])
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit)
    assert "could not be written" in done.output and "--out" in done.output


def test_what_is_no_pulled_model_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = checkpoints.make(tmp_path / "tiny")
    files = sorted(path.name for path in source.iterdir())
    monkeypatch.chdir(tmp_path)
    done = RUN.invoke(cli.app, ["pull", "./tiny", "--out", "."])
    assert done.exit_code == 1 and "is no model that was pulled" in done.output.replace("\n", " ")
    assert sorted(path.name for path in source.iterdir()) == files
    (tmp_path / "empty").mkdir()
    place.pull("./tiny", tmp_path, name="empty")
    assert place.pull("./tiny", tmp_path, name="empty").folder == tmp_path / "empty"


def test_a_swap_that_fails_puts_the_old_one_back(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "x").write_text("old")
    with pytest.raises(OSError):
        place.swap(tmp_path / "gone", tmp_path / "tiny")
    assert (tmp_path / "tiny" / "x").read_text() == "old"


def test_the_command_that_serves_a_pulled_model_can_be_pasted(tmp_path: Path) -> None:
    folder = tmp_path / AWKWARD
    text = place._profile(folder, "m.gguf", "m", "qwen", 4096, None)
    shown = text.splitlines()[0].partition("Serve with: ")[2]
    assert shown == place.Pulled("m", folder, "qwen", 1, ()).serve
    assert pasted(shown, tmp_path, "foretype") == [["foretype", "serve", "--profile", str(folder / "profile.toml")]]
    assert tomllib.loads(text)["engine"]["model"] == str(folder / "m.gguf")


def test_the_profile_of_a_model_below_this_folder_names_its_files_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = checkpoints.make(tmp_path / "source")
    monkeypatch.chdir(tmp_path)
    found = place.pull(str(source), Path("models"), name="tiny")
    profile = tomllib.loads((found.folder / "profile.toml").read_text())
    for path in (found.folder, Path(profile["engine"]["model"]), Path(profile["model"]["tokenizer"])):
        assert path.is_absolute() and path.exists()


def test_pulled_models_are_listed_and_verified(tmp_path: Path) -> None:
    source = checkpoints.make(tmp_path / "source")
    root = tmp_path / "models"
    done = RUN.invoke(cli.app, ["pull", str(source), "--name", "tiny", "--out", str(root), "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["grammar"] == "qwen2.5-coder" and said["serve"].endswith("tiny/profile.toml")
    done = RUN.invoke(cli.app, ["list", "--json", "--out", str(root)])
    assert [json.loads(line)["name"] for line in done.stdout.splitlines()][-1] == "tiny"
    assert RUN.invoke(cli.app, ["verify", "--out", str(root)]).exit_code == 0
    file = root / "tiny" / "tiny-q8_0.gguf"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(bytes(raw))
    done = RUN.invoke(cli.app, ["verify", "--out", str(root)])
    assert done.exit_code == 1 and "foretype models pull" in done.output


@pytest.mark.parametrize("model", ["not a model", "gone/folder/deep", ""])
def test_neither_folder_nor_hub_id(tmp_path: Path, model: str) -> None:
    done = RUN.invoke(cli.app, ["pull", model, "--out", str(tmp_path)])
    assert done.exit_code == 1


def test_a_hub_that_cannot_be_reached_says_what_else_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def down(*_: Any, **__: Any) -> str:
        raise ConnectionError("no route to host\nand more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", down)
    with pytest.raises(PullError, match=r"no route to host\); name a folder"):
        place.pull("Qwen/Qwen2.5-Coder-0.5B", tmp_path)
    source = checkpoints.make(tmp_path / "snapshots" / "abc123")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(source))
    found = place.pull("Qwen/Qwen2.5-Coder-0.5B", tmp_path / "models")
    assert (found.name, artifacts.available(found.folder)[0].version) == ("qwen-qwen2.5-coder-0.5b", "abc123")


def test_a_header_is_never_trusted(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    for header in ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, {"a": 1}, {"a": {"dtype": "I8"}}):
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * 4)
        with pytest.raises(PullError, match=r"model\.safetensors"):
            checkpoint.read_header(path)


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"])
def test_the_engine_says_what_transformers_says(tmp_path: Path, architecture: str) -> None:
    """Runs where transformers is installed: the training environment."""
    genai = pytest.importorskip("openvino_genai")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    import openvino

    source = checkpoints.make(tmp_path / "source", architecture, kind="F32")
    found = place.pull(str(source), tmp_path / "models", name="tiny")
    ids = list(range(40, 72))
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 1
    pipeline = genai.ContinuousBatchingPipeline(str(found.folder / "tiny-q8_0.gguf"), scheduler, "CPU", {})
    options = genai.GenerationConfig()
    options.max_new_tokens, options.echo, options.logprobs = 1, True, 1
    handle = pipeline.add_request(0, openvino.Tensor(np.array([ids], dtype=np.int64)), options)
    while pipeline.has_non_finished_requests():
        pipeline.step()
    said = np.array(next(iter(handle.read_all())).generated_log_probs)[1 : len(ids)]
    reference = transformers.AutoModelForCausalLM.from_pretrained(source, torch_dtype=torch.float32)
    with torch.no_grad():
        table = torch.log_softmax(reference(torch.tensor([ids])).logits[0], -1)
    right = table[torch.arange(len(ids) - 1), torch.tensor(ids[1:])].numpy()
    assert np.abs(said - right).mean() < 0.1
