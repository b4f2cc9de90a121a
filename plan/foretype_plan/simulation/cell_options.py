"""What a cell is made of: its customers, its engines, and what its gateway is set to."""

from __future__ import annotations

import msgspec
from foretype_backend.config.settings import ObjectivesMs

from foretype_plan.simulation.engine import EngineSpec
from foretype_plan.simulation.people import Arrivals
from foretype_plan.simulation.routing import Routing
from foretype_plan.simulation.slot_engine import SlotSpec


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """Developers of one customer.

    Attributes:
        rate: requests a second of each, pauses included.
        weight: of its turns.
        free: it pays nothing, and stands behind those that do.
        begin_s, ramp_s: when the first of them comes, and how much later the last; each then types, or thinks before it.
        end_s: when they stop.
    """

    name: str = "team"
    developers: int = 100
    rate: float = 0.186
    weight: float = 1.0
    free: bool = False
    repositories: int = 4
    begin_s: float = 0.0
    ramp_s: float = 0.0
    end_s: float = 1e12
    stamped: bool = False


class CellOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One cell.

    Attributes:
        specs: of its engines; replica n has number n modulo their number.
        apart: replicas that only compute prompts and hand them on; the others then only decode.
        hand_over_s: of one token's keys and values from one to the other.
        accepted: share of guesses that are taken; only engines with `guesses` guess. `by_load`: the product's policy says for which
            requests, always guessing otherwise.
        output_tokens: mean of an answer.
        most_running: slots of the gateway; 0: those of the replicas at the start.
    """

    specs: tuple[EngineSpec | SlotSpec, ...]
    tenants: tuple[Tenant, ...]
    arrivals: Arrivals
    replicas: int = 4
    racks: int = 2
    routing: Routing = Routing.PREFIX
    apart: int = 0
    hand_over_s: float = 0.0
    accepted: float = 0.6
    by_load: bool = False
    output_tokens: float = 20.0
    repository_tokens: int = 640
    prompt_tokens: int = 2000
    network_s: float = 0.020
    overhead_s: float = 0.008
    objectives_ms: ObjectivesMs = ObjectivesMs()
    most_running: int = 0
    most_waiting: int = 256
    deadline_s: float = 10.0
    shed: bool = True
    seconds: float = 60.0
    warm_up_s: float = 30.0
    seed: int = 0
