"""The scripted engine's time: slots that do not disturb each other."""

from foretype_plan.simulation.engine import Ended, First, Work
from foretype_plan.simulation.slot_engine import SlotEngine, SlotSpec


def played(engine):
    seen = []
    while engine.due is not None:
        now = engine.due
        seen += [(round(now, 6), one) for one in engine.advance(now)]
    return seen


def test_each_slot_for_itself_and_the_next_when_one_is_free():
    engine = SlotEngine(SlotSpec(batch=2, token_s=0.001, decode_s=0.01))
    for name in "abc":
        engine.submit(Work(name, (), 100, 5), 0.0)
    assert (engine.running, engine.waiting) == (2, 1)
    assert played(engine) == [
        (0.11, First("a", 0)),
        (0.11, First("b", 0)),
        (0.16, Ended("a")),
        (0.16, Ended("b")),
        (0.27, First("c", 0)),
        (0.32, Ended("c")),
    ]


def test_who_is_given_up_lets_go_at_once():
    engine = SlotEngine(SlotSpec(batch=1, token_s=0.001, decode_s=0.01))
    for name in "abc":
        engine.submit(Work(name, (), 100, 5), 0.0)
    assert engine.cancel("c", 0.01) and not engine.cancel("a", 0.02)
    assert engine.due == 0.02 and engine.advance(0.02) == [Ended("a")]
    assert [one.key for _, one in played(engine)] == ["b", "b"]


def test_what_is_lost_is_named():
    engine = SlotEngine(SlotSpec(batch=1, decode_s=0.01))
    for name in "ab":
        engine.submit(Work(name, (), 1, 1), 0.0)
    assert engine.lose() == ["a", "b"] and engine.due is None and engine.running == 0
