"""An experiment: what is compared, on whom, for how long, and the rules of its life. Pure; times are Unix milliseconds.

draft → running → stopped; what has stopped stays as it is, and a new one begins anew. Every change counts `version` up, and names the version
that it was made from: of two who change at once the second is told.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta

from foretype_backend.errors import VariantError
from foretype_backend.experiments.assign import BLOCK_HOURS, Arm, Design, LeftOut, Person, block_at, variant_of
from foretype_backend.experiments.guardrails import Guardrails
from foretype_backend.experiments.rows import METRICS
from foretype_backend.experiments.variants import Variant, convert
from foretype_backend.experiments.verdict import AbOptions

UNMEASURED_SHARE: Final = 0.25
"""Of blocks in which something was accepted, and no document stood open for five minutes after."""
NAME: Final = r"^[a-z0-9][a-z0-9_-]{0,31}$"


class State(StrEnum):
    DRAFT = "draft"
    RUNNING = "running"
    STOPPED = "stopped"


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is fixed before the first developer sees it.

    Attributes:
        variants: control and treatment.
        salt: what the keyed hash of the assignment is keyed with; of this experiment alone.
        block_hours: how long a developer sees one variant, in a switchback.
        planned_days: with work in them; at their end the experiment stops itself.
        aa: both variants are the same on purpose, so that what is found is an error of the platform.
    """

    variants: tuple[Variant, Variant]
    salt: Annotated[str, Meta(min_length=16, max_length=64)]
    design: Design = Design.SWITCHBACK
    block_hours: int = 1
    metric: str = "rcpo"
    planned_days: Annotated[int, Meta(ge=1, le=365)] = 10
    alpha: Annotated[float, Meta(ge=1e-6, le=0.5)] = 0.05
    guardrails: Guardrails = Guardrails()
    aa: bool = False

    @property
    def names(self) -> tuple[str, str]:
        return self.variants[0].name, self.variants[1].name

    def needs(self) -> frozenset[str]:
        """What a client must know; of both variants, or who is left out would depend on the variant."""
        return self.variants[0].knobs.needs() | self.variants[1].knobs.needs()

    def options(self, *, complete: bool | None = None) -> AbOptions:
        """How it is analysed."""
        control, treatment = self.names
        return AbOptions(
            design=self.design,
            metric=self.metric,
            control=control,
            treatment=treatment,
            planned_days=self.planned_days,
            alpha=self.alpha,
            salt=self.salt,
            block_hours=self.block_hours,
            complete=complete,
            guardrails=self.guardrails,
            unmeasured_share=UNMEASURED_SHARE,
        )


class Experiment(NamedTuple):
    """One row of the store. Tenant "" is everybody's; team "" every team of the tenant.

    Attributes:
        reason: why it stopped, and `by` whose decision that was.
    """

    name: str
    tenant: str
    team: str
    spec: Spec
    state: State = State.DRAFT
    version: int = 1
    created_ms: int = 0
    started_ms: int = 0
    stopped_ms: int = 0
    reason: str = ""
    by: str = ""


def check_spec(spec: Spec) -> Spec:
    """Raises VariantError for what no type says."""
    if spec.block_hours not in BLOCK_HOURS:
        raise VariantError("block_hours", f"{spec.block_hours} is none of {', '.join(map(str, BLOCK_HOURS))}")
    if spec.metric not in METRICS:
        raise VariantError("metric", f"{spec.metric!r} is none of {', '.join(METRICS)}")
    if spec.names[0] == spec.names[1]:
        raise VariantError("variants", f"both are called {spec.names[0]!r}; give them two names")
    same = spec.variants[0].knobs == spec.variants[1].knobs
    if same and not spec.aa:
        raise VariantError(
            "variants", "both change the same; say what the treatment changes, or make an A/A experiment"
        )
    if spec.aa and not same:
        raise VariantError("variants", "an A/A experiment compares a variant with itself; leave the treatment out")
    return spec


def decode_spec(text: str) -> Spec:
    """As the store has it. Raises VariantError where another version of Foretype wrote what this one cannot read."""
    return check_spec(convert(msgspec.json.decode(text), Spec, "experiment"))


def overlapping(one: Experiment, others: Iterable[Experiment]) -> Experiment | None:
    """Another experiment that runs on some of the same people; None where there is none."""
    for other in others:
        tenants = one.tenant == other.tenant or not one.tenant or not other.tenant
        teams = one.team == other.team or not one.team or not other.team
        if other.name != one.name and other.state is State.RUNNING and tenants and teams:
            return other
    return None


def arm_of(running: Iterable[Experiment], person: Person, knows: frozenset[str], wall_ms: int) -> Arm | LeftOut | None:
    """What a client of somebody sees at a moment of the gateway's clock; None where no experiment is about them.

    Args:
        knows: what the client says that it knows.
    """
    for one in running:
        if one.tenant not in ("", person.tenant) or one.team not in ("", person.team):
            continue
        if not person.user:
            return LeftOut(one.name, ("user",))
        missing = one.spec.needs() - knows
        if missing:
            return LeftOut(one.name, tuple(sorted(missing)))
        spec = one.spec
        block = block_at(wall_ms, spec.block_hours)
        name = variant_of(
            person.user, block, salt=spec.salt, design=spec.design, variants=spec.names, hours=spec.block_hours
        )
        variant: Any = spec.variants[spec.names.index(name)]
        return Arm(one.name, name, block, variant.knobs)
    return None
