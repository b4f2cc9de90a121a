"""Who is in a fleet, by heartbeats and by Ray's push, in virtual time; and what a start's seconds went into."""

import msgspec
from foretype_backend.fleet.ray.engine_process import PHASES, start_phases
from foretype_backend.fleet.ray.register import GONE, Register, ReplicaAnnouncement, exposition

LEASE_S = 5.0


def said(replica: str = "a", state: str = "ready", application: str = "fast.eu.r1") -> ReplicaAnnouncement:
    labels = {"pool": "fast", "region": "eu", "revision": "r1", "model": "coder"}
    return ReplicaAnnouncement(
        replica=replica,
        application=application,
        address="10.0.0.1:80",
        state=state,
        labels=labels,
        phases={"load": 2.0},
    )


def states(register: Register, now_s: float) -> dict[str, str]:
    return {one.replica: one.state for one in register.entries(now_s)}


def test_a_lease_runs_out_after_its_seconds_and_not_before() -> None:
    register = Register(LEASE_S)
    register.announce(said(state="starting"), 10.0)
    assert states(register, 10.0 + LEASE_S) == {"a": "starting"}
    assert states(register, 10.1 + LEASE_S) == {}


def test_who_runs_is_there_without_a_heartbeat() -> None:
    """A directory that was just started hears of everybody at once, and a late heartbeat takes nobody out."""
    register = Register(LEASE_S)
    register.push("fast.eu.r1", {"a": said()}, 0.0)
    assert states(register, 60.0) == {"a": "ready"}


def test_an_actor_that_died_is_asked_no_more_at_once_and_gone_soon() -> None:
    register = Register(LEASE_S)
    register.announce(said(), 0.0)
    register.push("fast.eu.r1", {"a": said()}, 0.1)
    register.push("fast.eu.r1", {}, 1.0)
    assert states(register, 1.0) == {"a": "draining"}
    assert states(register, 4.0) == {}


def test_a_replica_that_drains_stays_while_it_is_heard() -> None:
    """Serve does not run it any more, so it leaves the push first."""
    register = Register(LEASE_S)
    register.push("fast.eu.r1", {"a": said()}, 0.0)
    register.push("fast.eu.r1", {}, 1.0)
    for at_s in (1.2, 2.2, 30.0):
        register.announce(said(state="draining"), at_s)
        assert states(register, at_s + 1.0) == {"a": "draining"}
    register.announce(said(state=GONE), 31.0)
    assert states(register, 31.0) == {}


def test_who_said_goodbye_does_not_come_back_by_an_old_push() -> None:
    register = Register(LEASE_S)
    register.push("fast.eu.r1", {"a": said()}, 0.0)
    register.announce(said(state=GONE), 1.0)
    register.push("fast.eu.r1", {"a": said(), "b": said("b")}, 1.1)
    assert states(register, 1.2) == {"b": "ready"}


def test_the_push_of_one_application_says_nothing_of_another() -> None:
    register = Register(LEASE_S)
    register.push("fast.eu.r1", {"a": said()}, 0.0)
    register.push("fast.eu.r2", {"b": said("b", application="fast.eu.r2")}, 0.0)
    register.push("fast.eu.r1", {}, 1.0)
    assert states(register, 10.0) == {"b": "ready"}


def test_a_thousand_come_and_go_and_nothing_grows() -> None:
    register = Register(LEASE_S)
    for at in range(3000):
        register.announce(said(f"r{at}"), at)
        register.announce(said(f"r{at}", GONE), at + 0.5)
        register.entries(at + 0.6)
    remembered = sum(len(getattr(register, name)) for name in ("_heard", "_running", "_stopped", "_left"))
    assert remembered < 700


def test_a_target_is_what_prometheus_discovers() -> None:
    target = msgspec.json.decode(msgspec.json.encode(said().target()))
    assert target["targets"] == ["10.0.0.1:80"]
    assert target["labels"]["replica"] == "a" and target["labels"]["state"] == "ready"
    assert all(isinstance(value, str) for value in target["labels"].values())


def test_figures_tell_of_states_starts_and_silence() -> None:
    register = Register(LEASE_S)
    register.announce(said(), 0.0)
    text = exposition(register, 2.0).decode()
    assert 'foretype_fleet_replicas{pool="fast",region="eu",revision="r1",state="ready"} 1.0' in text
    assert 'foretype_fleet_start_seconds{phase="load",pool="fast",replica="a"} 2.0' in text
    assert 'foretype_fleet_heartbeat_age_seconds{pool="fast",replica="a"} 2.0' in text


LOG = """
INFO default_loader.py:502] Loading weights took 1.50 seconds
INFO gpu_model_runner.py:5150] Model loading took 14.2 GiB memory and 2.000000 seconds
INFO monitor.py:20] torch.compile took 8.00 s in total
INFO gpu_model_runner.py:6582] Graph capturing finished in 4 secs, took 0.50 GiB
INFO core.py:403] init engine (profile, create kv cache, warmup model) took 15.00 s (compilation: 8.00 s)
"""


def test_the_phases_of_a_start_add_up_to_it() -> None:
    phases = start_phases(LOG, image_s=3.0, engine_s=30.0, warm_s=0.5)
    assert tuple(phases) == PHASES
    assert phases == {
        "image": 3.0, "import": 13.0, "weights": 1.5, "load": 0.5, "compile": 12.0, "init": 3.0, "warm": 0.5,
    }  # fmt: skip
    assert sum(phases.values()) == 33.5


def test_of_several_workers_the_slowest_counts_and_silence_is_no_time() -> None:
    two = "Loading weights took 1.0 seconds\nLoading weights took 3.0 seconds\n"
    assert start_phases(two, image_s=0, engine_s=10, warm_s=0)["weights"] == 3.0
    assert start_phases("", image_s=1, engine_s=10, warm_s=0)["import"] == 10
