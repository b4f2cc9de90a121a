"""The scaling policy behind Ray Serve's interface: fed by gateways over sockets, called by Ray's own wrapper of policies."""

import gc
import importlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from foretype_backend.fleet.ray.policy import FleetPolicy, autoscaling_config
from foretype_backend.fleet.scaling.history import History
from foretype_backend.fleet.scaling.options import ScalingOptions
from foretype_backend.fleet.scaling.policy import ScalingState
from json_server import QuietHandler, listening

OPTIONS = ScalingOptions(min_replicas=1, max_replicas=6, down_after_s=0.0, warm_max_replicas=0)
ALL: dict[str, Any] = msgspec.to_builtins(OPTIONS)


@dataclass
class Gateway:
    """Answers `/v1/fleet/signals`; counts who asked with the right key."""

    pool: dict[str, Any] = field(default_factory=dict[str, Any])
    text: bytes | None = None
    silent: threading.Event = field(default_factory=threading.Event)
    asked: list[str] = field(default_factory=list[str])
    url: str = ""


@pytest.fixture
def gateways() -> Iterator[Callable[[], Gateway]]:
    servers = ExitStack()

    def begin() -> Gateway:
        one = Gateway()

        class Handler(QuietHandler):
            def do_GET(self) -> None:
                assert self.path == "/v1/fleet/signals"
                one.asked.append(self.headers.get("authorization", ""))
                if one.silent.is_set():
                    self.send_error(503)
                else:
                    self.say(200, one.text or {"fast": one.pool})

        one.url = f"http://127.0.0.1:{servers.enter_context(listening(Handler)).server_port}"
        return one

    with servers:
        yield begin


@dataclass
class Context:
    target_num_replicas: int
    current_num_replicas: int


def until(policy: FleetPolicy, context: Context, wanted: int) -> None:
    """Call as Ray does until it is so."""
    got = -1
    for _ in range(12_000):
        got, state = policy(context)
        assert state == {}
        if got == wanted:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{got}, not {wanted}: {policy.last and policy.last.reason}")


def load(tokens: float = 0.0, running: float = 1.0, replicas: int = 2) -> dict[str, Any]:
    return {"queued_uncached_tokens": tokens, "running": running, "replicas": replicas}


def test_gateways_are_asked_with_the_key_and_their_requests_add_up(
    gateways: Callable[[], Gateway], tmp_path: Path
) -> None:
    one, two = gateways(), gateways()
    one.pool, two.pool = load(9_000), load(9_000)
    key = tmp_path / "key"
    key.write_text("secret\n")
    policy = FleetPolicy("fast", [one.url, two.url + "/"], ALL, token_file=str(key), poll_s=0.01)
    until(policy, Context(2, 2), 5)  # 18,000 tokens of 4,000 each, less a tenth
    assert set(one.asked) == set(two.asked) == {"Bearer secret"}


def test_a_silent_gateway_lets_none_go_until_it_is_forgotten(gateways: Callable[[], Gateway]) -> None:
    one, two = gateways(), gateways()
    one.pool, two.pool = load(running=20.0, replicas=4), load(running=20.0, replicas=4)
    now = [0.0]
    policy = FleetPolicy("fast", [one.url, two.url], ALL, poll_s=0.01, clock=lambda: now[0])
    until(policy, Context(4, 4), 5)
    two.silent.set()
    one.pool = load(running=2.0, replicas=4)
    now[0] = 6.0
    for _ in range(30):
        heard = len(one.asked)
        while len(one.asked) == heard:
            threading.Event().wait(0.005)
        assert policy(Context(4, 4))[0] == 4
    now[0] = 700.0
    until(policy, Context(4, 4), 3)
    one.silent.set()
    now[0] = 5_000.0
    until(policy, Context(4, 4), 4)
    assert policy.last is not None and policy.last.reason.startswith("nobody says")


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"fast": 1}', b'{"other": {"running": 100}}', b"\xff" * 100])
def test_an_answer_that_cannot_be_read_keeps_the_number(gateways: Callable[[], Gateway], text: bytes) -> None:
    one = gateways()
    one.text = text or b"no"
    policy = FleetPolicy("fast", [one.url, "http://127.0.0.1:1", "no url"], ALL, poll_s=0.001)
    while len(one.asked) < 3:
        assert policy(Context(3, 3)) == (3, {})
        threading.Event().wait(0.001)


def test_a_call_waits_for_nobody_and_threads_end_with_the_policy(gateways: Callable[[], Gateway]) -> None:
    one = gateways()
    one.pool = load()
    policy = FleetPolicy("fast", [one.url], ALL, poll_s=0.001)
    until(policy, Context(2, 2), 1)
    mine = {thread for thread in threading.enumerate() if thread.name == "foretype scaling"}
    assert mine and all(thread.daemon for thread in mine)
    del policy
    gc.collect()
    for thread in mine:
        thread.join(120)
        assert not thread.is_alive()


def test_what_was_learned_is_kept_over_a_restart_and_a_broken_file_is_learned_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "kept" / "week.json"
    policy = FleetPolicy("fast", [], ALL, history_file=str(path))
    history = History(starts_s=(44.0,), rises=((739_000, 2.5),))
    policy._state = ScalingState(history=history)  # pyright: ignore[reportPrivateUsage]
    policy.keep()
    again = FleetPolicy("fast", [], ALL, history_file=str(path))
    assert again._state.history == history  # pyright: ignore[reportPrivateUsage]
    path.write_text("{")
    assert FleetPolicy("fast", [], ALL, history_file=str(path))._state.history == History()  # pyright: ignore[reportPrivateUsage]
    assert "learned anew" in caplog.text


def test_options_that_cannot_be_are_told_where_the_policy_is_made() -> None:
    with pytest.raises(msgspec.ValidationError, match="min_replicas 9 is above"):
        FleetPolicy("fast", [], {"min_replicas": 9})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_ray_makes_it_from_the_generated_configuration_and_hands_its_number_on(
    gateways: Callable[[], Gateway],
) -> None:
    pytest.importorskip("ray")
    inside: Any = importlib.import_module("ray.serve._private.autoscaling_state")
    wrap: Any = importlib.import_module("ray.serve.autoscaling_policy")
    shapes: Any = importlib.import_module("ray.serve.config")

    one = gateways()
    one.pool = load(9_000)
    options = msgspec.structs.replace(OPTIONS, min_replicas=2)
    made = json.loads(json.dumps(autoscaling_config("fast", [one.url], options, poll_s=0.01)))
    config = shapes.AutoscalingConfig(**made)
    assert (config.min_replicas, config.initial_replicas, config.max_replicas) == (2, 2, 6)
    policy = inside._resolve_policy_callable(config.policy)
    assert type(policy) is FleetPolicy
    wrapped = wrap._apply_autoscaling_config(policy)
    state: dict[str, Any] = {}

    def call(target: int) -> int:
        nonlocal state
        context = shapes.AutoscalingContext(
            deployment_id=None,
            deployment_name="Fast",
            app_name="fast",
            current_num_replicas=2,
            target_num_replicas=target,
            running_replicas=[],
            total_num_requests=0,
            total_queued_requests=0,
            aggregated_metrics=None,
            raw_metrics=None,
            capacity_adjusted_min_replicas=2,
            capacity_adjusted_max_replicas=6,
            policy_state=state,
            last_scale_up_time=None,
            last_scale_down_time=None,
            current_time=time.monotonic(),
            config=config,
        )
        number, state = wrapped(context)
        return number

    target = 2
    while target != 3:
        target = call(target)
        threading.Event().wait(0.005)
    one.pool = load(0, replicas=3)
    heard = len(one.asked)
    while len(one.asked) < heard + 2:
        threading.Event().wait(0.005)
    while target != 2:
        target = call(target)
        threading.Event().wait(0.005)
