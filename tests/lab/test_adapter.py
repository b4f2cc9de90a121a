"""The adapter's recipe: rows, the network, its file, and a training that learns and goes on where it stopped."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from foretype_lab.adapter import adapter_file, base, ends, holes, rows, train
from foretype_lab.adapter.base import CONTROL, PAD
from foretype_lab.adapter.network import MATRICES, Network
from foretype_lab.corpus.store import Store, build_store
from foretype_models.artifacts import digest_file
from foretype_models.fetch.gguf_file import read_file
from models.networks import write_base

pytestmark = pytest.mark.train

LAYOUTS = {"spm": 0.5, "psm_growing": 0.4, "psm_classic": 0.1}
CONFIG = train.Config(
    seed=1,
    rank=32,
    batch_tokens=1024,
    micro_tokens=512,
    lengths={128: 0.5, 256: 0.5},
    layouts=LAYOUTS,
    rate_a=0.003,
    rate_b=0.01,
    rate_rows=0.01,
    warmup_steps=2,
    threads=1,
)


@pytest.fixture(scope="module")
def base_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base") / "base.gguf")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    def source(name: str, count: int) -> str:
        return "\n".join(
            f"def {name}_{n}(self):\n    value = self.{name} + {n}\n    return value\n" for n in range(count)
        )

    folder = tmp_path_factory.mktemp("store")
    files = [("one", f"one/m{n}.py", source(f"a{n}", 20 + 10 * n)) for n in range(6)]
    files += [("two", f"two/m{n}.go", source(f"é{n}", 25)) for n in range(4)]
    build_store(({"repo": repo, "path": path, "text": text} for repo, path, text in files), folder)
    return Store(folder)


@pytest.fixture(scope="module")
def sampler(base_file: Path, store: Store) -> rows.Sampler:
    return rows.Sampler(store, base.tokenizer(base_file), LAYOUTS, "1", context_share=0.5)


@pytest.fixture
def network(base_file: Path) -> Network:
    torch.manual_seed(3)
    return Network(base.weights(base_file), train.shape_of(base_file), CONFIG.rank)


def test_a_row_is_the_same_for_its_number_in_any_order(base_file: Path, store: Store, sampler: rows.Sampler) -> None:
    again = rows.Sampler(store, base.tokenizer(base_file), LAYOUTS, "1", context_share=0.5)
    backwards = [again.row(number, 256) for number in reversed(range(20))][::-1]
    for number, row in enumerate(backwards):
        first = sampler.row(number, 256)
        assert np.array_equal(first.ids, row.ids) and (first.begin, first.end) == (row.begin, row.end)
    other = rows.Sampler(store, base.tokenizer(base_file), LAYOUTS, "2", context_share=0.5)
    assert any(not np.array_equal(other.row(number, 256).ids, row.ids) for number, row in enumerate(backwards))


@pytest.mark.parametrize("length", [128, 512])
def test_an_answer_is_whole_and_ends_with_its_token(
    base_file: Path, store: Store, sampler: rows.Sampler, length: int
) -> None:
    tokenizer = base.tokenizer(base_file)
    texts = [store.text(number) for number in range(len(store))]
    with_others = 0
    for number in range(60):
        row = sampler.row(number, length)
        assert row.ids.shape == (length,) and 0 < row.begin < row.end <= length
        assert row.ids[row.end - 1] == rows.END and np.count_nonzero(row.ids == rows.END) == 1
        assert set(row.ids[row.end :].tolist()) <= {PAD}
        answer = tokenizer.decode(row.ids[row.begin : row.end - 1].tolist())
        assert any(answer in text for text in texts)
        assert np.count_nonzero(row.ids == CONTROL["<|fim_middle|>"]) == 1
        with_others += np.count_nonzero(row.ids == CONTROL["<|file_sep|>"]) > 1
    assert with_others if length >= 384 else not with_others


def test_text_that_looks_like_a_control_token_is_text(base_file: Path) -> None:
    ids = base.tokenizer(base_file).encode("<|endoftext|>", add_special_tokens=False).ids
    assert len(ids) == len("<|endoftext|>") and min(ids) > max(CONTROL.values())


def test_of_pieces_that_do_not_fit_the_longer_gives_first_and_the_answer_never(sampler: rows.Sampler) -> None:
    above, below, answer = "a" * 90, "b" * 20, "c" * 10
    pieces: list[holes.Piece] = [holes.PREFIX, holes.SUFFIX, below, holes.MIDDLE, above, answer, holes.END]
    whole = sampler._fitted(pieces, 124)
    assert whole is not None and sum(map(len, whole)) == 124
    cut = sampler._fitted(pieces, 80)
    assert cut is not None and sum(map(len, cut)) <= 80
    assert [len(part) for part in cut] == [1, 1, 20, 1, 46, 11]
    assert sampler._fitted(pieces, 13) is None


def test_what_stands_near_the_hole_stays(sampler: rows.Sampler, base_file: Path) -> None:
    tokenizer = base.tokenizer(base_file)
    pieces: list[holes.Piece] = [holes.PREFIX, holes.SUFFIX, "456789", holes.MIDDLE, "012345", "x", holes.END]
    cut = sampler._fitted(pieces, 4 + 1 + 6)
    assert cut is not None
    assert [tokenizer.decode(cut[at]) for at in (2, 4)] == ["456", "345"]


def reference(path: Path, ids: list[int]) -> Any:
    """Logits (tokens, vocabulary) of a Llama in float32, computed anew from the file."""
    file, shape = base.weights(path), train.shape_of(path)
    weights = {name: value.numpy() for name, value in file.items()}
    heads, kv_heads, width = shape.heads, shape.kv_heads, shape.head_width

    def norm(x: Any, weight: Any) -> Any:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + shape.epsilon) * weight

    angles = np.arange(len(ids))[:, None] / shape.rope_base ** (np.arange(0, width, 2) / width)
    turn = np.exp(1j * angles)[:, None, :]

    def rotated(x: Any) -> Any:
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * turn
        return np.stack([turned.real, turned.imag], -1).reshape(x.shape)

    x = weights["token_embd.weight"][ids]
    for number in range(shape.layers):
        part = {name: weights[f"blk.{number}.{name}.weight"] for name in (*MATRICES, "attn_norm", "ffn_norm")}
        held = norm(x, part["attn_norm"])
        q = rotated((held @ part["attn_q"].T).reshape(-1, heads, width))
        k = rotated((held @ part["attn_k"].T).reshape(-1, kv_heads, width)).repeat(heads // kv_heads, 1)
        v = (held @ part["attn_v"].T).reshape(-1, kv_heads, width).repeat(heads // kv_heads, 1)
        scores = np.einsum("qhw,khw->hqk", q, k) / np.sqrt(width)
        scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        seen = np.einsum("hqk,khw->qhw", share / share.sum(-1, keepdims=True), v).reshape(len(ids), -1)
        x = x + seen @ part["attn_output"].T
        held = norm(x, part["ffn_norm"])
        gate = held @ part["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (held @ part["ffn_up"].T)) @ part["ffn_down"].T
    return norm(x, weights["output_norm.weight"]) @ weights["token_embd.weight"].T


def test_a_network_that_learnt_nothing_says_what_the_base_says(base_file: Path, network: Network) -> None:
    ids = [7, 40, 12, 99, 3, 250, 8, 61, 16]
    with torch.no_grad():
        states, table = network(torch.tensor([ids]), torch.arange(len(ids)))
        ours = (states @ table.T).float().numpy()
    wanted = reference(base_file, ids)
    assert np.corrcoef(ours.ravel(), wanted.ravel())[0, 1] > 0.999
    assert np.abs(ours - wanted).max() < 0.05 * np.abs(wanted).max()


def test_the_file_is_read_back_and_is_the_one_that_the_package_merges(
    base_file: Path, network: Network, tmp_path: Path
) -> None:
    with torch.no_grad():
        for value in network.parameters():
            value.add_(torch.randn_like(value) * 0.05)
    path = tmp_path / "adapter.gguf"
    said = {"layout": "spm", "base_sha256": digest_file(base_file), "trained_tokens": 4321, "version": "0.3.0"}
    adapter_file.write(network, path, **said)
    back = Network(base.weights(base_file), train.shape_of(base_file), CONFIG.rank)
    assert adapter_file.read_into(back, path) == 4321
    for name, wrote in network.state_dict().items():
        assert float((wrote - back.state_dict()[name]).abs().max()) <= float(wrote.abs().max()) / 127, name
    written = read_file(path)
    assert written.tensors["token_embd.weight.rows"].kind == gguf.GGMLQuantizationType.F16
    fields = gguf.GGUFReader(path).fields
    assert fields["foretype.grammar"].contents() == "foretype-3"
    assert fields["foretype.control.ids"].contents() == list(CONTROL.values())
    again = tmp_path / "again.gguf"
    adapter_file.write(network, again, **said)
    assert again.read_bytes() == path.read_bytes()


def test_a_few_steps_lower_the_loss_of_one_batch(network: Network, sampler: rows.Sampler) -> None:
    class OneBatch:
        def row(self, number: int, length: int) -> rows.Row:
            return sampler.row(number % 4, 128)

    config = replace(CONFIG, lengths={128: 1.0}, batch_tokens=512)
    run = train.Run(config, network, OneBatch(), train.Progress())
    said = [run.step(train.scale_at(run.progress, config, 0.0, None, None))[0] for _ in range(12)]
    assert said[-1] < 0.8 * said[0]
    assert (run.progress.step, run.progress.tokens, run.progress.drawn) == (12, 12 * 512, {128: 48})


def test_the_end_is_a_choice_in_answers_alone() -> None:
    end = CONTROL["<|end_of_middle|>"]
    states, table = torch.ones(2, 4), torch.zeros(end + 1, 4)
    table[end] = 2.0
    answers, before = train.losses(states, table, torch.tensor([1, 1]), 1)
    assert answers > 8 and float(before) == pytest.approx(math.log(end))


@pytest.mark.parametrize("drawing_processes", [0, 2])
def test_a_run_goes_on_where_it_stopped(
    base_file: Path, sampler: rows.Sampler, tmp_path: Path, request: pytest.FixtureRequest, drawing_processes: int
) -> None:
    def begun(processes: int = drawing_processes) -> train.Run:
        torch.manual_seed(3)
        network = Network(base.weights(base_file), train.shape_of(base_file), CONFIG.rank)
        run = train.Run(replace(CONFIG, drawing_processes=processes), network, sampler, train.Progress())
        request.addfinalizer(run.close)
        return run

    whole = begun(0)
    said = [whole.step(1.0) for _ in range(4)]
    halved = begun()
    assert [halved.step(1.0) for _ in range(2)] == said[:2]
    train.save(halved, tmp_path)
    resumed = begun()
    train.load(resumed, tmp_path)
    assert resumed.progress == halved.progress
    assert [resumed.step(1.0) for _ in range(2)] == said[2:]


def test_rates_rise_and_fall_to_nothing_by_the_clock_or_by_tokens() -> None:
    late = train.Progress(step=100, tokens=900)
    assert train.scale_at(train.Progress(), CONFIG, 0.0, None, None) == 0.5
    assert train.scale_at(late, CONFIG, 50.0, 100.0, 200.0) == 1.0
    assert train.scale_at(late, CONFIG, 150.0, 100.0, 200.0) == 0.5
    by_tokens = replace(CONFIG, tokens=1000)
    assert train.scale_at(replace(late, tokens=500), by_tokens, 0.0, None, None) == 1.0
    assert train.scale_at(late, by_tokens, 0.0, None, None) == pytest.approx(1 / 3)


@pytest.mark.parametrize("name", ["adapter-two-cores.toml", "adapter-gpu.toml"])
def test_the_runs_that_are_written_down_can_be_read(name: str) -> None:
    config = train.Config.load(Path(__file__).parents[2] / "lab" / "configs" / name)
    assert sum(config.lengths.values()) == pytest.approx(1) and sum(config.layouts.values()) == pytest.approx(1)
    assert all(config.batch_tokens % length == 0 for length in config.lengths)


def test_ends_that_count_more_are_found_more_often_and_nothing_else_changes(store: Store, base_file: Path) -> None:
    torch.manual_seed(0)
    network = Network(base.weights(base_file), train.shape_of(base_file), 4)
    sampler = rows.Sampler(store, base.tokenizer(base_file), {"spm": 1.0}, "ends", 0.0, 0.5)
    of = ends.together(
        [ends.states(network, [sampler.row(at + n, 320) for n in range(4)], at) for at in range(0, 40, 4)]
    )
    assert len(of.row.unique()) == int(of.end.sum()) == 40
    before = network.rows[ends._ROW].detach().clone()
    plain, heavy = (ends.fit(of, before, weight=weight, pull=0.001) for weight in (1.0, 30.0))
    assert ends.exact(of, plain).ends <= ends.exact(of, heavy).ends
    assert ends.exact(of, heavy).ends > ends.exact(of, before).ends
    # What it says is what the network says: the states, and the rows of ids that a batch pads.
    ids, wanted, targets, *_ = train.batch([sampler.row(0, 320)])
    last, table = network(ids, wanted)
    logits = torch.nn.functional.linear(last, table).float()
    assert torch.allclose(of.last[: len(wanted)] @ before, logits[:, rows.END], atol=0.05)
    first = logits.argmax(-1) == targets
    assert ends.exact(ends.States(*(values[: len(wanted)] for values in of)), before).rows == float(first.all())
