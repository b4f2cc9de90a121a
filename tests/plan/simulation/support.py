"""Small cells."""

from random import Random

from foretype_plan.scenario import Tier
from foretype_plan.simulation.cell import Cell
from foretype_plan.simulation.cell_options import CellOptions, Tenant
from foretype_plan.simulation.engine import spec_of
from foretype_plan.simulation.people import Arrival, Arrivals
from foretype_wire.messages import RequestClass


def arrivals(stretches=8, requests=60, gap_s=0.5, seed=1):
    rng, made = Random(seed), []
    for _ in range(stretches):
        tokens = rng.randrange(400, 1000)
        rows = [Arrival(0.0, RequestClass.INTERACTIVE, tokens, 0)]
        for _ in range(requests - 1):
            tokens += 3
            class_ = RequestClass.BLOCK if rng.random() < 0.1 else RequestClass.INTERACTIVE
            rows.append(Arrival(rng.expovariate(1 / gap_s), class_, tokens, tokens - 6))
        made.append(tuple(rows))
    seconds = sum(row.gap_s for rows in made for row in rows)
    return Arrivals(tuple(made), stretches * requests / seconds)


SPEC = spec_of(Tier(gpu="l4", model="qwen2.5-coder-1.5b"))


def options(developers=60, **more):
    plain = {
        "specs": (SPEC,),
        "tenants": (Tenant(developers=developers, rate=0.5),),
        "arrivals": arrivals(),
        "replicas": 2,
        "seconds": 20.0,
        "warm_up_s": 5.0,
    }
    return CellOptions(**(plain | more))


def ran(**more):
    cell = Cell(options(**more))
    cell.run()
    return cell
