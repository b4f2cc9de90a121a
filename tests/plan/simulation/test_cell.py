"""A cell: the product's own parts decide, and what they decide is seen in its figures."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from foretype_plan.simulation.cell import Cell
from foretype_plan.simulation.cell_options import Tenant
from foretype_plan.simulation.routing import Routing
from plan.simulation.support import SPEC, arrivals, options, ran

SCRIPT = "import json; from plan.simulation.support import ran; print(json.dumps(ran(developers=150).report(), sort_keys=True))"


def test_a_quiet_cell_answers_everybody_in_time():
    cell = ran()
    report = cell.report()
    assert report["requests"] > 300 and report["refused"] == report["lost"] == 0
    assert report["goodput"] > 0.99 and 25 < report["ttft_p50_ms"] < 60
    assert report["cached_share"] > 0.8
    assert cell.scheduler.statistics().running < 20  # nothing piles up


def test_every_request_ends_once():
    cell = ran(developers=900, seconds=10.0)
    tally = cell.tally
    done = sum(map(len, tally.ttft_s.values()))
    ended = done + sum(tally.refused.values()) + sum(tally.silent.values()) + tally.cancelled + tally.lost
    under_way = sum(tally.asked.values()) - ended
    statistics = cell.scheduler.statistics()
    assert 0 <= under_way <= statistics.running + statistics.waiting
    assert sum(cell.fleet.book.router.statistics().in_flight.values()) == statistics.running


@pytest.mark.slow
def test_equal_seeds_give_equal_bytes_whatever_python_hashes_with():
    found = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1 and json.loads(found.pop())["requests"] > 500
    assert ran(seed=1).report() != ran(seed=2).report()


def test_what_is_cached_is_found_by_prefix_and_not_by_turns():
    brief = arrivals(stretches=20, requests=8)
    found = {
        one: ran(arrivals=brief, routing=one, replicas=4, seconds=10.0).report()["cached_share"] for one in Routing
    }
    assert found[Routing.PREFIX] > found[Routing.ROUND_ROBIN] + 0.1
    assert found[Routing.HASH] > found[Routing.ROUND_ROBIN] + 0.1


def test_more_than_can_be_done_is_refused_and_what_is_admitted_is_on_time():
    cell = ran(developers=450, seconds=15.0)
    report = cell.report()
    assert report["refused"] + report["silent"] > 0.1
    assert report["ttft_p50_ms"] < 150
    assert cell.scheduler.pressure.level > 0


@pytest.mark.slow
def test_one_tenant_gone_mad_does_not_take_the_others_along():
    quiet = Tenant(name="quiet", developers=40, rate=0.5)
    mad = Tenant(name="mad", developers=40, rate=10.0)
    cell = ran(tenants=(quiet, mad), seconds=15.0, warm_up_s=10.0)
    tenants = cell.tally.tenants()
    assert tenants["quiet"]["goodput"] > 0.9 > tenants["mad"]["goodput"]
    assert tenants["quiet"]["refused"] < 0.02 < tenants["mad"]["refused"] + tenants["mad"]["silent"]


def test_without_admission_everybody_waits():
    with_, without = (ran(developers=450, shed=shed, seconds=8.0).report()["ttft_p99_ms"] for shed in (True, False))
    assert without > 2 * with_


def test_a_lost_replica_loses_what_ran_on_it_and_the_rest_goes_on():
    cell = Cell(options(developers=250, replicas=3))
    cell.begin()
    cell.until(10.0)
    dead = cell.fleet.replicas.serving()[0]
    cell.fleet.fail(dead)
    assert len(cell.fleet.replicas.serving()) == 2 and cell.tally.lost > 0
    cell.until(25.0)
    assert cell.report()["requests"] > 1000
    assert not dead.engine.running and dead.name not in cell.fleet.book.router.replicas
    assert dead.ended_s == 10.0


def test_nobody_serves_and_then_somebody_does():
    cell = Cell(options(developers=40))
    cell.begin()
    cell.until(6.0)
    for replica in cell.fleet.replicas.serving():
        cell.fleet.fail(replica)
    cell.until(9.0)
    lost = cell.tally.lost
    assert lost > 10
    cell.fleet.add(after_s=1.0)
    cell.until(20.0)
    assert cell.tally.lost < lost + 40
    assert len(cell.fleet.replicas.serving()) == 1


def test_a_drained_replica_ends_what_it_has_and_gets_nothing_new():
    cell = Cell(options(developers=200))
    cell.begin()
    cell.until(8.0)
    leaving = max(cell.fleet.replicas.serving(), key=lambda one: one.engine.running)
    assert leaving.engine.running
    cell.fleet.drain(leaving)
    cell.until(14.0)
    assert not leaving.alive and cell.tally.lost == 0


def test_a_time_of_day_in_front_of_the_prompt_finds_nothing():
    plain, stamped = (
        ran(tenants=(Tenant(developers=60, rate=0.5, stamped=stamped),)).report() for stamped in (False, True)
    )
    assert stamped["cached_share"] == 0 and stamped["ttft_p50_ms"] > plain["ttft_p50_ms"] + 10


def test_guesses_shorten_answers_and_are_counted():
    guessing = msgspec.structs.replace(SPEC, guesses=4, guess_share=0.05)
    plain, guessed = ran(developers=20).report(), ran(developers=20, specs=(guessing,), accepted=0.8).report()
    assert guessed["tpot_p50_ms"] < 0.6 * plain["tpot_p50_ms"]


def test_guessing_by_load_goes_where_it_pays():
    guessing = msgspec.structs.replace(SPEC, guesses=4, guess_share=0.05)
    cell = ran(developers=40, specs=(guessing, SPEC), by_load=True, accepted=0.1, seconds=40.0)
    verdicts = cell.fleet.speculation.verdicts()
    assert verdicts["acceptance"] > 0.5 * sum(verdicts.values())
    guesser, plain = (cell.fleet.replicas.every[name].engine for name in ("r000", "r001"))
    assert plain.computed_tokens > guesser.computed_tokens


def test_developers_ask_as_often_as_they_are_said_to():
    cell = ran(developers=100, seconds=100.0, arrivals=arrivals(stretches=20))
    assert cell.report()["rate"] == pytest.approx(50, rel=0.1)
