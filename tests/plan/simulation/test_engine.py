"""The model of an engine: the formulas' times, batches, chunks, memory, guesses, and what is given up."""

import pytest
from foretype_plan.errors import PlanError
from foretype_plan.scenario import Scenario, Tier, values
from foretype_plan.sheet import evaluate
from foretype_plan.simulation.engine import BLOCK_TOKENS, Ended, Engine, EngineSpec, First, Work, spec_of

PLAIN = EngineSpec(batch=4, chunk_tokens=512, blocks=1000, token_s=1e-4, weights_s=0.01, context_s=0.0, overhead_s=0.0)


def blocks(name, count):
    return tuple(f"{name}{at}".encode() for at in range(count))


def work(key, tokens=128, steps=0, name=None, **more):
    return Work(key, blocks(name or key, tokens // BLOCK_TOKENS), tokens, steps, **more)


def played(engine, until=1e9):
    """Everything that happens, with its time."""
    seen = []
    while engine.due is not None and engine.due <= until:
        now = engine.due
        seen += [(now, one) for one in engine.advance(now)]
    return seen


def times(seen, kind):
    return {one.key: pytest.approx(now) for now, one in seen if isinstance(one, kind)}


def test_alone_it_takes_what_the_formulas_say():
    tier = Tier(gpu="h100", inputs={"batch": 1.0})
    spec = spec_of(tier, chunk_tokens=1 << 20)
    known = evaluate(values(Scenario(), tier, "fast"), only="step_s")
    engine = Engine(spec)
    engine.submit(Work("a", (), 2000, 10), 0.0)
    seen = played(engine)
    first, last = seen[0][0], seen[1][0]
    prefill_s = 2000 * spec.token_s + spec.overhead_s
    assert first == pytest.approx(max(prefill_s, spec.weights_s + spec.overhead_s))
    # The plan counts an answer's tokens into what is read; the model what was there at the first.
    assert last - first == pytest.approx(10 * known["step_s"], rel=0.01)


def test_a_long_prompt_comes_in_chunks_beside_those_who_decode():
    engine = Engine(PLAIN)
    engine.submit(work("talks", 64, 40), 0.0)
    engine.advance(engine.due)
    began = engine.due - 0.01 * 40
    engine.submit(work("reads", 1024), began + 0.001)
    seen = played(engine)
    # The step that runs, two of 511 tokens beside one that decodes, and one for the two that are left.
    assert times(seen, First) == {"reads": began + 0.01 + 2 * 0.0512 + 0.01}
    assert times(seen, Ended)["talks"] == began + 2 * 0.0512 + 38 * 0.01


def test_steps_taken_at_once_are_those_taken_one_by_one():
    """Looking in at every step, as somebody who comes and goes at once does, changes no time."""
    at_once, stepwise = Engine(PLAIN), Engine(PLAIN)
    for engine in (at_once, stepwise):
        engine.submit(work("a", 256, 20), 0.0)
        engine.submit(work("b", 256, 7), 0.0)
    seen = []
    while stepwise.due is not None:
        stepwise.submit(work("x", 64, 1), stepwise.due - 0.0001)
        stepwise.cancel("x", stepwise.due - 0.0001)
        now = stepwise.due
        seen += [(now, one) for one in stepwise.advance(now)]
    plain = played(at_once)
    assert times(seen, Ended) == {key: at.expected for key, at in times(plain, Ended).items()}
    assert stepwise.busy_s == pytest.approx(at_once.busy_s)


def test_no_more_than_a_batch_runs_and_the_highest_class_goes_first():
    engine = Engine(PLAIN)
    for name in "abcd":
        engine.submit(work(name, 64, 5), 0.0)
    engine.submit(work("low", 64, priority=2), 0.0)
    engine.submit(work("high", 64, priority=0), 0.0)
    assert engine.running + engine.waiting == 6 and engine.running <= 4
    firsts = [one.key for _, one in played(engine) if isinstance(one, First)]
    assert firsts.index("high") < firsts.index("low")


def test_a_prefix_is_computed_once_and_one_token_always():
    engine = Engine(PLAIN)
    engine.submit(work("a", 128, name="same"), 0.0)
    played(engine)
    engine.submit(work("b", 128, name="same"), 1.0)
    (first,) = [one for _, one in played(engine) if isinstance(one, First)]
    assert first.cached_tokens == BLOCK_TOKENS  # the second block is computed for its last token


def test_two_at_once_both_compute():
    engine = Engine(PLAIN)
    engine.submit(work("a", 1024, name="same"), 0.0)
    engine.submit(work("b", 1024, name="same"), 0.0)
    assert [one.cached_tokens for _, one in played(engine) if isinstance(one, First)] == [0, 0]


def test_memory_holds_back_who_does_not_fit():
    engine = Engine(EngineSpec(batch=4, blocks=20, token_s=1e-4, weights_s=0.01, context_s=0.0, overhead_s=0.0))
    engine.submit(work("a", 15 * 64, 20), 0.0)
    engine.submit(work("b", 15 * 64, 20), 0.0)
    assert (engine.running, engine.waiting) == (1, 1)
    seen = played(engine)
    assert times(seen, First)["b"].expected > times(seen, Ended)["a"].expected
    with pytest.raises(PlanError, match="prompt_tokens"):
        engine.submit(work("c", 64 * 64), 9.0)


def test_a_prefix_on_the_host_is_loaded_not_computed():
    spec = EngineSpec(
        batch=1, blocks=20, host_blocks=100, token_s=1e-3, weights_s=0.01, context_s=0.0, overhead_s=0.0, load_s=1e-5
    )
    engine = Engine(spec)
    for name in ("a", "b", "a"):
        engine.submit(work(f"{name}{engine.computed_tokens}", 15 * 64, name=name), 10.0)
        seen = played(engine)
    (first,) = [one for _, one in seen if isinstance(one, First)]
    assert first.cached_tokens == 14 * 64
    assert seen[0][0] == pytest.approx(10 + 10 * 64 * 1e-5 + 64e-3, abs=0.01)


def test_who_is_given_up_leaves_after_the_step_and_frees_its_blocks():
    engine = Engine(PLAIN)
    engine.submit(work("a", 128, 100), 0.0)
    engine.advance(engine.due)
    now = engine.due - 100 * 0.01 + 0.025
    assert not engine.cancel("a", now)
    ((ended, one),) = played(engine)
    assert one == Ended("a") and ended == pytest.approx(now + 0.005)
    assert engine.cache.pinned == 0 and engine.due is None


def test_who_waits_and_is_given_up_leaves_at_once():
    engine = Engine(PLAIN)
    for name in "abcde":
        engine.submit(work(name, 64, 5), 0.0)
    waiting = engine.waiting
    assert waiting and engine.cancel("e", 0.0) and engine.waiting == waiting - 1


def test_a_gpu_that_throttles_takes_longer():
    usual, slow = Engine(PLAIN), Engine(PLAIN)
    slow.slowness = 3.0
    for engine in (usual, slow):
        engine.submit(work("a", 128, 10), 0.0)
    assert played(slow)[-1][0] == pytest.approx(3 * played(usual)[-1][0])


def test_what_is_lost_is_named_and_the_cache_is_empty():
    engine = Engine(PLAIN)
    for name in "abcde":
        engine.submit(work(name, 64, 5), 0.0)
    assert sorted(engine.lose()) == list("abcde")
    assert engine.due is None and engine.cache.pinned == 0
    engine.submit(work("f", 64), 5.0)
    assert engine.due is not None


@pytest.mark.parametrize(
    ("tier", "field"),
    [
        (Tier(gpu="l4", model="qwen2.5-72b"), "gpus_per_replica"),
        (Tier(inputs={"batch": 0.0}), "batch"),
        (
            Tier(
                gpu="l4", model="starcoder2-15b", weight_bits=8, inputs={"prompt_tokens": 30_000.0, "objective_s": 60.0}
            ),
            "gpus_per_replica",
        ),
    ],
)
def test_an_engine_that_cannot_be_is_a_sentence(tier, field):
    with pytest.raises(PlanError, match=field):
        spec_of(tier)


def test_each_request_of_a_step_adds_what_it_takes_beside_its_token():
    spec = EngineSpec(
        batch=4,
        chunk_tokens=512,
        blocks=1000,
        token_s=1e-4,
        weights_s=0.0,
        context_s=0.0,
        overhead_s=0.004,
        request_s=0.001,
    )
    engine = Engine(spec)
    engine.submit(work("a", 64, 10), 0.0)
    engine.submit(work("b", 64, 10), 0.0)
    seen = played(engine)
    prompt, with_prompt, both, one = 0.0114, 0.0125, 0.0062, 0.0051
    assert times(seen, First) == {"a": prompt, "b": prompt + with_prompt}
    assert times(seen, Ended) == {"a": prompt + with_prompt + 9 * both, "b": prompt + with_prompt + 9 * both + one}
