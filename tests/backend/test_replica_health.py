"""Whether a replica is in service: the state machine alone, in virtual time."""

import pytest
from foretype_backend.errors import Fault
from foretype_backend.fleet.health import HealthMonitor, HealthOptions, ReplicaStanding
from hypothesis import given
from hypothesis import strategies as st


def in_service(now: float = 0.0, **options: float) -> HealthMonitor:
    health = HealthMonitor(HealthOptions(**options), now)
    assert not health.in_service
    assert health.due(now)
    assert health.passed(now)
    return health


def test_a_broken_connection_takes_it_out_and_a_check_brings_it_back() -> None:
    health = in_service()
    assert health.fault(Fault.LOST, "reset by peer", 10.0)
    assert (health.in_service, health.reason) == (False, "reset by peer")
    assert not health.fault(Fault.LOST, "another request of the same moment", 10.1)
    assert not health.due(10.4)
    assert health.due(10.5)
    assert not health.due(10.6)  # one check at a time
    assert health.passed(11.0)
    assert health.in_service
    assert health.statistics().outages == 1


@pytest.mark.parametrize("fault", [Fault.ERROR, Fault.SILENT])
def test_a_failure_it_reports_makes_it_suspect_and_the_check_decides(fault: Fault) -> None:
    health = in_service()
    assert not health.fault(fault, "500", 1.0)
    assert health.in_service
    assert health.statistics().standing is ReplicaStanding.SUSPECT
    assert health.due(1.0)
    assert not health.passed(1.1)  # it was in service all the time
    assert health.statistics().standing is ReplicaStanding.IN_SERVICE
    health.fault(fault, "500", 2.0)
    assert health.due(2.0)
    assert health.failed("no answer", 3.0)
    assert not health.in_service


def test_being_busy_is_no_fault() -> None:
    health = in_service()
    assert not health.fault(Fault.BUSY, "503", 1.0)
    assert health.statistics().standing is ReplicaStanding.IN_SERVICE
    assert not health.due(1.0)


def test_silence_counts_while_a_request_waits_and_not_before() -> None:
    health = in_service(silence_s=3.0, idle_s=100.0)
    assert not health.due(50.0)
    health.began(60.0)
    assert not health.due(62.9)
    health.heard(62.9)
    assert not health.due(65.8)
    assert health.due(65.9)
    assert "says nothing" in health.reason
    health.passed(66.0)
    health.ended(served=True)
    assert not health.due(80.0)


def test_an_idle_replica_is_looked_at() -> None:
    health = in_service(idle_s=5.0)
    assert not health.due(4.9)
    assert health.due(5.0)
    assert not health.passed(5.1)
    assert not health.due(10.0)
    assert health.due(10.1)


def test_pauses_double_and_begin_anew_only_after_it_served_somebody() -> None:
    health = in_service(first_pause_s=1.0, longest_pause_s=4.0)
    now = 0.0
    health.fault(Fault.GARBAGE, "x", now)
    for pause in (1.0, 2.0, 4.0, 4.0):
        assert not health.due(now + pause - 0.01)
        now += pause
        assert health.due(now)
        assert not health.failed("x", now)
    assert health.due(now + 4.0)
    health.passed(now + 4.0)
    health.fault(Fault.GARBAGE, "passes checks and breaks streams", now + 4.1)
    assert not health.due(now + 8.0)  # the long pause stands
    assert health.due(now + 8.1)
    health.passed(now + 8.1)
    health.began(now + 8.2)
    health.ended(served=True)
    health.fault(Fault.LOST, "x", now + 9.0)
    assert health.due(now + 10.0)


def test_a_replica_that_starts_for_minutes_is_back_soon_after() -> None:
    health, now = in_service(idle_s=5.0), 0.0
    health.fault(Fault.LOST, "killed", now)
    while now < 100.0:
        while not health.due(now):
            now += 0.25
        health.failed("refused", now)
    assert health.due(now + 5.0)
    health.passed(now + 5.0)
    health.fault(Fault.GARBAGE, "breaks what it is asked", now + 6.0)
    assert not health.due(now + 35.0)
    assert health.due(now + 36.0)


def test_options_that_cannot_be_meant() -> None:
    with pytest.raises(ValueError, match="silence_s"):
        HealthOptions(silence_s=0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["lost", "error", "busy", "due", "pass", "fail", "began", "ended"]), st.floats(0, 40)
        ),
        max_size=60,
    )
)
def test_whatever_happens_a_replica_that_passes_checks_comes_back(events: list[tuple[str, float]]) -> None:
    health, now, checking = HealthMonitor(HealthOptions(), 0.0), 0.0, False
    for kind, step in events:
        now += step
        if kind in ("lost", "error", "busy"):
            health.fault(Fault(kind), kind, now)
        elif kind == "due":
            asked = health.due(now)
            assert not (asked and checking)
            checking = checking or asked
        elif kind in ("pass", "fail") and checking:
            checking = False
            if kind == "pass":
                health.passed(now)
            else:
                health.failed("x", now)
        elif kind == "began":
            health.began(now)
        elif kind == "ended":
            health.ended(served=False)
        assert health.statistics().in_flight >= 0
    if checking:
        health.failed("x", now)
    assert health.due(now + 30.0 + 0.01)
    health.passed(now + 31.0)
    assert health.in_service
