"""A revision beside the one that serves: one that is taken back by hand, one by its guardrail, one that passes; a real Ray, gateways that say."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from fleet.support import Fleet, until
from json_server import json_server

POOLS = """
[[pool]]
name = "fast"
revision = "r1"
cpus = 0.5
host = "127.0.0.1"
drain_s = 20
command = {command}
rollout = { step_s = 0, requests_min = 10, evidence_min = 20, keep_s = 5 }

[pool.revisions.r1]
model = "coder"
grammar = "foretype-1"
[pool.revisions.r2]
model = "coder"
grammar = "foretype-1"
"""


class Gateway:
    """Says what a gateway would of its revisions: what a test wants them to have been like."""

    def __init__(self) -> None:
        self.counting, self.failing, self.requests, self.failed = False, False, 0, 0

    def said(self) -> dict[str, Any]:
        self.requests += 400 if self.counting else 0
        self.failed += 300 if self.counting and self.failing else 0
        good = {"shown": self.requests, "accepted": self.requests // 2, "cancelled": 0, "syntax_errors": 0}
        each = {**good, "requests": self.requests, "ttft_ms": {"p50": 10.0, "p99": 30.0}}
        return {"fast": {"revisions": {"r1": {**each, "failed": 0}, "r2": {**each, "failed": self.failed}}}}


@pytest.fixture(scope="module")
def gateway() -> Gateway:
    return Gateway()


@pytest.fixture(scope="module")
def fleet(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with (
        json_server(lambda *_: gateway.said()) as url,
        Fleet(tmp_path_factory.mktemp("rolls"), POOLS, fleet=f'gateways = ["{url}"]').up() as made,
    ):
        yield made


def state(fleet: Fleet) -> tuple[str, str | None]:
    now = fleet.directory("/rollouts")["fast"]
    return now["stable"], now["canary"]


def revisions(fleet: Fleet) -> set[str]:
    return {one["labels"]["revision"] for one in fleet.ready()}


def test_a_roll_out_that_cannot_be_changes_nothing(fleet: Fleet) -> None:
    for words, told in (
        (("--model", "r9", "--without-gate", "x"), "not among the revisions"),
        (("--model", "r1", "--without-gate", "x"), "is the stable revision already"),
        (("--model", "r2"), "needs the quality gate's verdict"),
        (("--model", "r2", "--canary", "half", "--without-gate", "x"), "is no share"),
        (("--back",), "nothing was rolled out"),
    ):
        done = fleet.run("roll", *words)
        assert done.returncode in (1, 2) and told in done.stderr
    assert state(fleet) == ("r1", None) and revisions(fleet) == {"r1"}


def test_a_canary_stands_beside_the_others_and_is_taken_back_by_hand(fleet: Fleet) -> None:
    fleet.ok("roll", "--model", "r2", "--canary", "5%", "--without-gate", "a test")
    assert state(fleet) == ("r1", "r2") and revisions(fleet) == {"r1", "r2"}
    now = fleet.directory("/rollouts")["fast"]
    assert now["share"] == 0.05
    assert fleet.run("roll", "--model", "r2", "--without-gate", "x").returncode == 1  # one at a time
    fleet.kill("ServeReplica:directory")  # nothing of it is forgotten
    assert fleet.directory("/rollouts")["fast"] == now
    began_s = time.monotonic()
    fleet.ok("roll", "--back")
    print(f"roll --back: {time.monotonic() - began_s:.1f} s until the directory says so")
    assert state(fleet) == ("r1", None)
    until(lambda: revisions(fleet) == {"r1"}, what="the canary is taken away")


def test_a_guardrail_takes_a_canary_back(fleet: Fleet, gateway: Gateway) -> None:
    fleet.ok("roll", "--model", "r2", "--canary", "5%", "--without-gate", "a test")
    gateway.failing = True  # first: it must not be seen to do well
    gateway.counting = True
    until(lambda: state(fleet) == ("r1", None), what="it goes back by itself")
    gateway.counting = gateway.failing = False
    assert "failed" in fleet.status()["rolls"]["fast"]
    until(lambda: revisions(fleet) == {"r1"}, what="the canary is taken away")


def test_a_canary_that_passes_becomes_the_stable_revision_and_the_former_goes(fleet: Fleet, gateway: Gateway) -> None:
    gateway.requests = gateway.failed = 0
    fleet.ok("roll", "--model", "r2", "--canary", "5%", "--without-gate", "a test")
    gateway.counting = True
    until(lambda: state(fleet) == ("r2", None), what="everybody is on it")
    until(lambda: revisions(fleet) == {"r2"}, what="the former one is not kept any more")
    assert fleet.ok("down").startswith("tested is down") and fleet.processes() == []
