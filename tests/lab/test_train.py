import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken
from foretype_lab.training import data

pytest.importorskip("torch")
pytestmark = pytest.mark.train

import torch
from foretype_lab.quality import evaluate
from foretype_lab.training import distill, middle_weights, optimizers, train
from foretype_lab.training.model import LanguageModel, ModelConfig, causal_attention
from foretype_lab.training.row_loader import RowLoader

SMALL = ModelConfig(width=64, layers=2, heads=2, kv_heads=1, head_width=32, feed_forward=96, max_position=512)


def settings(**changes: Any) -> train.TrainConfig:
    values: dict[str, Any] = {
        "seed": 1, "length": 64, "micro_rows": 2, "batch_tokens": 128, "late_batch_tokens": 128, "long_length": 128,
        "long_micro_rows": 1, "long_share": 0.0, "context_share": 0.5, "warmup_steps": 2, "decay_from": 0.5,
        "muon_rate": 0.01, "adamw_rate": 0.003, "weight_decay": 0.1, "clip": 1.0, "checkpoint_seconds": 1e9,
        "evaluate_seconds": 1e9,
    }  # fmt: skip
    return train.TrainConfig(**{**values, **changes})


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for split in ("train", "validation"):
        text = "\n".join(f"def f_{n}(value):\n    return value + {n}\n" for n in range(120))
        documents = [{"repo": split, "path": f"{split}/m{n}.py", "text": text} for n in range(4)]
        data.build_store(documents, tmp_path / split)
    return tmp_path


@pytest.fixture
def make(store: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def as_it_is(function: Any, **_options: Any) -> Any:
        return function

    monkeypatch.setattr(torch, "compile", as_it_is)

    def run(
        name: str, teacher: Path | None = None, begin_from: Path | None = None, **changes: Any
    ) -> train.TrainingRun:
        parts = (SMALL, settings(**changes), store, tokenizer_path, store / name)
        return train.TrainingRun(*parts, begin_from=begin_from, teacher=teacher)

    return run


def test_a_resumed_run_is_the_run_that_was_not_interrupted(make: Any) -> None:
    whole = make("whole")
    losses = [whole.step(0.1) for _ in range(6)]
    first = make("parts")
    parts = [first.step(0.1) for _ in range(3)]
    first.save()
    second = make("parts")
    assert second.progress.step == 3
    parts += [second.step(0.1) for _ in range(3)]
    assert parts == pytest.approx(losses, abs=1e-6)
    assert second.progress == whole.progress
    for one, two in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.allclose(one, two, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_loss_falls(make: Any, optimizer: str) -> None:
    run = make(optimizer, optimizer=optimizer)
    losses = [run.step(0.1) for _ in range(40)]
    assert losses[0] == pytest.approx(math.log(16_384), abs=0.5)
    assert np.mean(losses[-5:]) < losses[0] - 2


def test_an_interrupted_save_leaves_the_checkpoint_before_it(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make("broken")
    run.step(0.1)
    run.save()

    def full(_state: Any, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    run.step(0.1)
    with pytest.raises(OSError, match="No space"):
        run.save()
    assert make("broken").progress.step == 1


def test_the_last_part_uses_long_rows(make: Any) -> None:
    run = make("long", long_share=0.3)
    run.step(0.5)
    assert (run.progress.rows, run.progress.long_rows) == (2, 0)
    run.step(0.8)
    assert (run.progress.rows, run.progress.long_rows) == (2, 1)
    assert run.progress.tokens == 256


def test_a_run_ends_with_its_tokens_and_leaves_a_log_and_a_checkpoint(make: Any, store: Path) -> None:
    run = make("counted", evaluate_seconds=0.0)
    run.train(1_000)
    lines = [json.loads(line) for line in (store / "counted" / "log.jsonl").read_text().splitlines()]
    assert any({"held_out", "held_out_middles"} <= set(line) for line in lines)
    assert (store / "counted" / "last.pt").exists()
    assert run.progress.tokens == 1_024, "steps of 128 tokens: the first that reaches the budget is the last"
    make("counted").train(1_000)
    assert make("counted").progress == run.progress, "a finished run has no tokens left"


def test_a_pause_costs_nothing(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: dict[str, list[float]] = {"whole": [], "paused": []}
    for name, seen in shares.items():
        run = make(name)
        step, now = run.step, [0.0]
        monkeypatch.setattr(train.time, "monotonic", lambda now=now: now[0])

        def slow(share: float, step: Any = step, now: Any = now, seen: Any = seen, name: str = name) -> float:
            seen.append(share)
            now[0] += 3600.0 if name == "paused" and len(seen) == 2 else 1.0
            return step(share)

        run.step = slow
        run.train(600)
    assert shares["paused"] == shares["whole"] == [128 * at / 600 for at in range(5)]


def test_muon_in_fp32_steps_as_pytorchs_own_does(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = torch.Generator().manual_seed(3)
    for shape in ((96, 64), (64, 96), (64, 64)):
        start = torch.randn(shape, generator=drawn)
        gradients = [torch.randn(shape, generator=drawn) for _ in range(4)]
        ended = []
        for native in (True, False):
            monkeypatch.setattr(optimizers, "multiplies_bfloat16", lambda _device, native=native: native)
            matrix = torch.nn.Parameter(start.clone())
            optimizer = optimizers.Muon([matrix], 0.01, 0.1)
            for gradient in gradients:
                matrix.grad = gradient.clone()
                optimizer.step()
            ended.append(matrix.detach() - start)
        # They differ by what bfloat16 rounds off.
        assert float((ended[0] - ended[1]).norm() / ended[0].norm()) < 0.02


def test_a_step_leaves_singular_values_near_one() -> None:
    wide = optimizers.orthogonal(
        torch.randn(32, 96, generator=torch.Generator().manual_seed(1)), (3.4445, -4.775, 2.0315), 5, 1e-7
    )
    values = torch.linalg.svdvals(wide)
    assert wide.shape == (32, 96)
    assert 0.5 < float(values.min()) and float(values.max()) < 1.5


def test_the_rate_warms_up_stays_and_falls_to_zero() -> None:
    config = settings(warmup_steps=10, decay_from=0.4)
    assert train.rate_share(config, 0, 0.0) == pytest.approx(0.1)
    assert train.rate_share(config, 50, 0.4) == 1.0
    assert train.rate_share(config, 50, 0.7) == pytest.approx(0.5)
    assert train.rate_share(config, 50, 1.0) == 0.0
    assert train.rate_share(config, 50, 1.2) == 0.0


def test_padding_is_no_target_and_everything_else_is(encoding: tiktoken.Encoding) -> None:
    row = np.array([5, 6 | data.TYPED, 7, data.PAD, data.PAD], dtype=np.uint16)
    ids, targets, typed = train.to_batch(torch.from_numpy(row[None].astype(np.int64)), "cpu")
    assert ids.tolist() == [[5, 6, 7, data.PAD]]
    assert targets.tolist() == [[6, 7, -100, -100]]
    assert typed.tolist() == [[True, False, False, False]]


def test_the_model_looks_back_only() -> None:
    torch.manual_seed(0)
    model = LanguageModel(SMALL).eval()
    ids = torch.randint(0, 16_384, (1, 32))
    changed = ids.clone()
    changed[0, 20] += 1
    with torch.no_grad():
        before, after = model(ids), model(changed)
    assert torch.equal(before[0, :20], after[0, :20])
    assert not torch.equal(before[0, 20:], after[0, 20:])


@pytest.mark.parametrize("length", [1, 63, 64, 65, 512, 1100])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_attention_in_pieces_is_attention(length: int, kv_heads: int) -> None:
    torch.manual_seed(length)
    query, key, value = (
        torch.randn(2, heads, length, 16, dtype=torch.float64, requires_grad=True) for heads in (4, kv_heads, kv_heads)
    )
    along = torch.randn(2, 4, length, 16, dtype=torch.float64)
    ours = causal_attention(query, key, value)
    wanted = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    found, asked = (torch.autograd.grad((one * along).sum(), (query, key, value)) for one in (ours, wanted))
    for one, other in zip((ours, *found), (wanted, *asked), strict=True):
        assert torch.allclose(one, other, atol=1e-5)  # the softmax is in single precision


def test_dimensions_that_q8_cannot_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="width=100"):
        ModelConfig(width=100)
    with pytest.raises(ValueError, match="heads=4"):
        ModelConfig(heads=4, kv_heads=3)


def test_an_unknown_setting_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[model]\nwdth = 64\n[train]\n")
    with pytest.raises(ValueError, match=r"c\.toml: \[model\] has unknown keys \['wdth'\]"):
        train.load_config(tmp_path / "c.toml")


def test_our_model_and_transformers_agree() -> None:
    pytest.importorskip("transformers")
    from foretype_lab.quality import parity

    torch.manual_seed(0)
    model = LanguageModel(SMALL)
    weights = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    ids = list(range(100, 160))
    ours = parity.own_logits(weights, SMALL.as_json(), ids)
    theirs = parity.transformers_logits(weights, SMALL.as_json(), ids)
    assert np.abs(ours - theirs).max() < 1e-4


def test_the_exported_folder_opens_in_transformers(tmp_path: Path, tokenizer_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from foretype_lab.model_files import export
    from foretype_lab.quality import parity

    torch.manual_seed(0)
    # Not the default base of the rotary frequencies: the folder's configuration has to carry it.
    model = LanguageModel(ModelConfig(**{**SMALL.as_json(), "rope_base": 50_000.0}))
    weights = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    folder = tmp_path / "hf"
    export.write_safetensors(weights, model.config.as_json(), tokenizer_path, folder)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = list(range(100, 300))
    with torch.no_grad():
        theirs = loaded(torch.tensor([ids])).logits[0].numpy()
    assert np.abs(parity.own_logits(weights, model.config.as_json(), ids) - theirs).max() < 1e-4
    served = transformers.AutoTokenizer.from_pretrained(folder)
    text = "def f(x):\n\treturn 'é😀'\r\n"
    assert served.decode(served(text)["input_ids"]) == text
    assert served.eos_token_id == loaded.config.eos_token_id == 16_375
    assert {path.name for path in tmp_path.iterdir()} == {"hf"}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_feed_gives_the_rows_in_order_whoever_makes_them(
    store: Path, encoding: tiktoken.Encoding, workers: int
) -> None:
    sampler = data.Sampler(data.Store(store / "train"), encoding, data.Shape(64), 1)
    feed = RowLoader(sampler, 5, 2, workers)
    for block in range(3):
        expected = np.stack([sampler.marked_row(5 + 2 * block + at) for at in range(2)])
        assert np.array_equal(feed.next().numpy(), expected)


def test_a_draft_learns_what_its_target_says(make: Any, tmp_path: Path) -> None:
    target = make("target")
    for _ in range(3):
        target.step(0.1)
    target.save()
    draft = make("draft", teacher=target.out / "last.pt", teacher_weight=1.0)
    losses = [draft.step(0.1) for _ in range(12)]
    assert sum(losses[-3:]) < sum(losses[:3]) / 2
    ids = train.to_batch(draft.check_short[:2], "cpu").ids
    teacher = distill.open_model(target.out / "last.pt")
    with torch.no_grad():
        itself = distill.DistilledLoss(teacher, teacher, 1.0)(ids, ids, ids > 99)
    assert float(itself) == pytest.approx(0, abs=1e-5), "no divergence from oneself"


def test_a_draft_begins_with_its_targets_vocabulary() -> None:
    narrow = ModelConfig(
        width=32, layers=1, heads=1, head_width=32, feed_forward=32, vocabulary=SMALL.vocabulary, max_position=512
    )
    target, draft = LanguageModel(SMALL), LanguageModel(narrow)
    learned, own = target.model.embed_tokens.weight, draft.model.embed_tokens.weight
    with (
        torch.no_grad()
    ):  # a vocabulary that lies in few directions, as a trained one nearly does, and far from the origin
        learned.copy_(torch.randn(SMALL.vocabulary, 8) @ torch.randn(8, SMALL.width) + 3.0)
    distill.begin_draft(draft, target)
    centred = learned - learned.mean(0)
    torch.testing.assert_close(own @ own.T, centred @ centred.T, atol=1e-2, rtol=1e-3)
    with pytest.raises(ValueError, match="gives none of"):
        distill.begin_draft(target, draft)


def test_a_drafts_loss_weights_the_end_of_a_middle() -> None:
    student, teacher = LanguageModel(SMALL), LanguageModel(SMALL)
    ids = torch.tensor([[5, middle_weights.BEGIN, 7, 8, middle_weights.END]])
    targets = torch.tensor([[-100, -100, -100, middle_weights.END, -100]])
    none = torch.zeros_like(ids, dtype=torch.bool)
    torch.testing.assert_close(  # one target alone: a weighted mean is that target's loss, whatever it counts
        distill.DistilledLoss(student, teacher, 0.5, 3.0, 3.0)(ids, targets, none),
        distill.DistilledLoss(student, teacher, 0.5)(ids, targets, none),
    )
    both = torch.tensor([[-100, -100, 8, middle_weights.END, -100]])
    alone = [
        distill.DistilledLoss(student, teacher, 0.0)(ids, torch.where(torch.arange(5) == at, both, -100), none)
        for at in (2, 3)
    ]
    weighted = distill.DistilledLoss(student, teacher, 0.0, 3.0, 3.0)(ids, both, none)
    torch.testing.assert_close(weighted, (3 * alone[0] + 9 * alone[1]) / 12)


def test_a_draft_of_another_tokenizer_is_refused() -> None:
    small = ModelConfig(width=64, layers=1, heads=2, head_width=32, feed_forward=96, vocabulary=320, max_position=512)
    with pytest.raises(ValueError, match="needs its target's tokenizer"):
        distill.DistilledLoss(LanguageModel(SMALL), LanguageModel(small), 0.5)


def test_a_run_goes_on_from_a_shipped_file(make: Any, tokenizer_path: Path, tmp_path: Path) -> None:
    from foretype_lab.model_files import export

    before = make("before")
    before.step(0.1)
    weights = {name: value.detach().numpy() for name, value in before.model.state_dict().items()}
    export.write_gguf(weights, SMALL.as_json(), tokenizer_path, "m", "1", tmp_path / "m.gguf")
    after = make("after", begin_from=tmp_path / "m.gguf")
    for name, value in after.model.state_dict().items():
        assert torch.allclose(value, before.model.state_dict()[name], atol=2e-3), name


def test_a_call_can_end_before_the_budget(make: Any) -> None:
    run = make("call")
    run.train(1_000_000, call_minutes=0)
    assert run.progress.step == 1
    assert (run.out / "last.pt").exists()


def test_targets_of_a_middle_count_as_often_as_is_said() -> None:
    torch.manual_seed(0)
    model = LanguageModel(SMALL).eval()
    ids = torch.tensor([[5, middle_weights.BEGIN, 7, 8, middle_weights.END, 9, 10]])
    targets = torch.tensor([[middle_weights.BEGIN, 7, 8, middle_weights.END, 9, 10, -100]])
    assert middle_weights.is_middle(ids).tolist() == [[False, True, True, True, False, False, False]]
    none = torch.zeros_like(ids, dtype=torch.bool)
    with torch.no_grad():
        logits = model(ids)[0, :6].double()
        logits[[0, 4, 5], middle_weights.END] = -math.inf  # outside of the middle it is no choice
        each = torch.nn.functional.cross_entropy(logits, targets[0, :6], reduction="none")
        weights = torch.tensor([1.0, 3.0, 3.0, 3.0, 1.0, 1.0])
        assert middle_weights.MiddleLoss(model, 3.0)(ids, targets, none) == pytest.approx(
            float((each * weights).sum() / 12)
        )
        assert middle_weights.MiddleLoss(model)(ids, targets, none) == pytest.approx(float(each.mean()))
        weights[3] = 15.0  # the end of the middle, five times a target of a middle
        assert middle_weights.MiddleLoss(model, 3.0, 5.0)(ids, targets, none) == pytest.approx(
            float((each * weights).sum() / 24)
        )


def test_only_answers_say_where_a_middle_ends() -> None:
    torch.manual_seed(0)
    model = LanguageModel(SMALL)
    ids = torch.tensor([[5, middle_weights.BEGIN, 7, 8]])
    targets = torch.tensor([[6, 7, 8, -100]])  # one of the prompt, two that were typed
    typed = torch.tensor([[False, True, True, False]])
    with torch.no_grad():
        logits = model(ids)[0, :3].double()
        logits[:, middle_weights.END] = -math.inf  # each is certain not to be the end
        wanted = torch.nn.functional.cross_entropy(logits, targets[0, :3])
    loss = middle_weights.MiddleLoss(model, 2.0)(ids, targets, typed)
    assert float(loss.detach()) == pytest.approx(float(wanted), rel=1e-5)
    loss.backward()
    told = model.model.embed_tokens.weight.grad
    assert told is not None and not told[middle_weights.END].any()
    same = distill.DistilledLoss(model, model, 1.0)(ids, targets, typed)
    assert float(same.detach()) == pytest.approx(0, abs=1e-5)


def test_the_cards_losses_are_those_that_training_measures(make: Any) -> None:
    run = make("card")
    rows = run.check_long
    assert (rows == middle_weights.END).any(), "rows with answers, so that an end is a choice in some places alone"
    with torch.no_grad():
        run.model.model.embed_tokens.weight[middle_weights.END] *= 50
    losses = np.concatenate([evaluate.token_losses(run.model, row.tolist()) for row in rows])
    assert losses.mean() == pytest.approx(run.held_out_loss(rows, 1), rel=1e-4)


def test_rows_mark_what_was_typed(store: Path, encoding: tiktoken.Encoding) -> None:
    sampler = data.Sampler(data.Store(store / "train"), encoding, data.Shape(128), 3)
    begin, end = middle_weights.BEGIN, middle_weights.END
    seen = 0
    for number in range(30):
        row, plain = sampler.marked_row(number).tolist(), sampler.row(number).tolist()
        assert [token & (data.TYPED - 1) for token in row] == plain
        marked = [at for at, token in enumerate(row) if token >= data.TYPED]
        for at in marked:  # between the token that begins a middle and the answer, without a gap
            assert plain[at - 1] == begin or at - 1 in marked
            assert end in plain[at:]
        seen += len(marked)
    assert seen > 100


def test_rows_of_the_sampler_end_every_middle_they_begin(store: Path, encoding: tiktoken.Encoding) -> None:
    rows = RowLoader(data.Sampler(data.Store(store / "train"), encoding, data.Shape(128), 3), 0, 40, 0).next()
    begun, ended = (rows == middle_weights.BEGIN).cumsum(1), (rows == middle_weights.END).cumsum(1)
    assert int(begun.max()) > 0
    assert bool(((begun - ended <= 1) & (begun >= ended)).all()), "else text of the next document counts as a middle"
