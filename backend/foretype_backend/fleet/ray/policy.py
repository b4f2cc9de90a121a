"""The scaling policy behind Ray Serve's policy interface.

Ray makes one of these in its controller and calls it ten times a second, so a call only reads what threads have fetched: one asks each
gateway for `/v1/fleet/signals`, one writes what was learned of the week to a file. Of a gateway that has been silent for `stale_s` nothing
is known, and none goes because of it; after `forget_s` it counts as gone. With every gateway silent the number stays.

Ray's own delays and factors come on top of what a policy wants, so :func:`autoscaling_config` switches them off.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import httpx
import msgspec
from foretype_wire.credentials import without_credentials

from foretype_backend.fleet.scaling.history import History
from foretype_backend.fleet.scaling.options import ScalingOptions
from foretype_backend.fleet.scaling.policy import Decision, ScalingState, decide
from foretype_backend.fleet.scaling.signals import Signals, merged, read_signals

_log = logging.getLogger("foretype.fleet")
_KEEP_S: Final = 60.0
_TIMEOUT_S: Final = 2.0


class ScalingContext(Protocol):
    """Of what Ray Serve hands to a policy, what is read here."""

    @property
    def current_num_replicas(self) -> int: ...

    @property
    def target_num_replicas(self) -> int: ...


def autoscaling_config(pool: str, gateways: Sequence[str], options: ScalingOptions, **more: Any) -> dict[str, Any]:
    """`autoscaling_config` of a Ray Serve deployment that is scaled by :class:`FleetPolicy`.

    Args:
        more: further arguments of it, such as `token_file`.
    """
    lowest = min([options.min_replicas, *(hours.replicas for hours in options.schedule)])
    return {
        "min_replicas": lowest,
        "initial_replicas": max(lowest, options.min_replicas),
        "max_replicas": options.max_replicas,
        "upscale_delay_s": 0.0,
        "downscale_delay_s": 0.0,
        "upscaling_factor": 1.0,
        "downscaling_factor": 1.0,
        "policy": {
            "policy_function": f"{__name__}:{FleetPolicy.__name__}",
            "policy_kwargs": {
                "pool": pool,
                "gateways": list(gateways),
                "options": msgspec.to_builtins(options),
                **more,
            },
        },
    }


class FleetPolicy:
    """See the module. Threads begin with the first call, and end with the policy.

    Args:
        gateways: base URLs.
        options: fields of :class:`ScalingOptions`.
        token_file: holds a key that may read signals; read at every request, since keys are renewed.
        history_file: where the learned week is kept over restarts of Ray's controller.
        clock, wall: seconds, for the age of answers; Unix seconds, for decisions.

    Raises:
        msgspec.ValidationError: options that cannot be; the setting is named.
    """

    def __init__(
        self,
        pool: str,
        gateways: Sequence[str],
        options: Mapping[str, Any],
        token_file: str | None = None,
        history_file: str | None = None,
        poll_s: float = 0.5,
        stale_s: float = 5.0,
        forget_s: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = lambda: time.time_ns() / 1e9,
    ) -> None:
        self.pool = pool
        self.options = msgspec.convert(dict(options), ScalingOptions)
        self.last: Decision | None = None
        self._poll_s, self._stale_s, self._forget_s = poll_s, stale_s, forget_s
        self._clock, self._wall = clock, wall
        self._token_file = Path(token_file) if token_file else None
        self._history_file = Path(history_file) if history_file else None
        self._gateways = tuple(url.rstrip("/") for url in gateways)
        self._heard: dict[str, tuple[float, Signals]] = {}
        self._began_s: float | None = None
        self._state = ScalingState(history=self._kept_history())

    def __call__(self, context: ScalingContext) -> tuple[int, dict[str, Any]]:
        now_s = self._clock()
        if self._began_s is None:
            self._began_s = now_s
            self._begin()
        before = self.last
        self.last = decide(
            self._signals(now_s),
            self._state,
            self.options,
            target=context.target_num_replicas,
            now_s=self._wall(),
        )
        self._state = self.last.state
        if self.last.replicas != context.target_num_replicas and (
            before is None or before.replicas != self.last.replicas
        ):
            _log.info(
                "pool %s: %d replicas, not %d: %s",
                self.pool,
                self.last.replicas,
                context.target_num_replicas,
                self.last.reason,
            )
        return self.last.replicas, {}

    def _signals(self, now_s: float) -> Signals | None:
        fresh: list[Signals] = []
        complete = True
        for gateway in self._gateways:
            at_s, signals = self._heard.get(gateway, (self._began_s or now_s, None))
            if signals is not None and now_s - at_s <= self._stale_s:
                fresh.append(signals)
            elif now_s - at_s <= self._forget_s:
                complete = False
        return merged(fresh, complete=complete)

    def poll(self, gateway: str, client: httpx.Client) -> None:
        """Ask one gateway, once. What it does not say in time grows old, from the moment of the question."""
        asked_s = self._clock()
        try:
            headers = {} if self._token_file is None else {"authorization": f"Bearer {_token(self._token_file)}"}
            answer = client.get(f"{gateway}/v1/fleet/signals", headers=headers)
            answer.raise_for_status()
            signals = read_signals(msgspec.json.decode(answer.content), self.pool)
        except (httpx.HTTPError, httpx.InvalidURL, msgspec.DecodeError, OSError, ValueError) as error:
            _log.debug("no signals of %s: %s", without_credentials(gateway), type(error).__name__)
            return
        if signals is not None:
            self._heard[gateway] = (asked_s, signals)

    def keep(self) -> None:
        """Write what was learned."""
        if self._history_file is None:
            return
        fresh = self._history_file.with_name(self._history_file.name + ".new")
        try:
            self._history_file.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(msgspec.json.encode(self._state.history))
            fresh.replace(self._history_file)
        except OSError as error:
            _log.warning("what was learned of the week cannot be kept in %s: %s", self._history_file, error)

    def _kept_history(self) -> History:
        if self._history_file is None:
            return History()
        try:
            return msgspec.json.decode(self._history_file.read_bytes(), type=History)
        except FileNotFoundError:
            return History()
        except (OSError, msgspec.DecodeError) as error:
            _log.warning("%s cannot be read (%s): the week is learned anew", self._history_file, error)
            return History()

    def _begin(self) -> None:
        policy = weakref.ref(self)
        for gateway in self._gateways:
            _thread(_poll_on, policy, gateway, self._poll_s)
        if self._history_file is not None:
            _thread(_keep_on, policy)


def _thread(work: Callable[..., None], *args: Any) -> None:
    threading.Thread(target=work, args=args, name="foretype scaling", daemon=True).start()


def _poll_on(policy: weakref.ref[FleetPolicy], gateway: str, poll_s: float) -> None:
    with httpx.Client(timeout=_TIMEOUT_S, trust_env=False) as client:
        while (one := policy()) is not None:
            one.poll(gateway, client)
            del one  # or it would live as long as this thread
            time.sleep(poll_s)


def _keep_on(policy: weakref.ref[FleetPolicy]) -> None:
    while True:
        time.sleep(_KEEP_S)
        one = policy()
        if one is None:
            return
        one.keep()
        del one


def _token(path: Path) -> str:
    return path.read_text("utf-8").strip()
