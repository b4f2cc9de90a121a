"""The degradation ladder: how much less a tenant is served while a gateway is loaded, one rung at a time, and up again. Pure.

| rung | what clients do |
|---|---|
| `full` | everything |
| `no_retrieval` | prompts without other files |
| `short_context` | besides, half of the prompt |
| `cache_only` | ask nothing that is typed of this gateway: what is cached and what the local candidate knows |

Each tenant stands on a rung of its own. Shedding (`pressure`) moves those alone that ask more than their part (`demand`): a flood moves
the tenant that floods, an engine that is too small for what all ask moves all. So do refused requests; a tenant within its part moves
by them only when half of its own are refused, which the fair turns of admission should never let happen.

Free customers go first: none that pays goes down a rung before all of the free ones are on the next lower one (or the last), whatever
they ask, and none of those comes up before it. They share a place, the *free tier*'s; one that asks too much has its own besides.

A rung down takes two seconds of trouble, a rung up five seconds of calm, so that profiles do not flutter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from foretype_context.edit_models.question import EditWindow
from foretype_context.prompt.profile import Profile, Service

from foretype_backend.admission.tenant_demand import Demand, TenantLoad, heavy

_LOOK_S: Final = 0.5
_DOWN_S: Final = 2.0
_UP_S: Final = 5.0
_MIN_ASKED: Final = 20
_MANY_REFUSED: Final = 0.1
_MOST_REFUSED: Final = 0.5
RUNGS: Final = tuple(Service)
"""From the full service downwards."""
FREE_TIER: Final = "free tier"
"""What all free tenants share, where tenants are named; no tenant has a blank in its name."""


class _Place:
    """Where one tenant stands, and where it is about to go."""

    __slots__ = ("free", "rung", "since_s", "toward")

    def __init__(self, *, free: bool = False) -> None:
        self.free = free
        self.rung = self.toward = Service.FULL
        self.since_s: float | None = None

    @property
    def idle(self) -> bool:
        return self.rung is Service.FULL and self.since_s is None

    def turn(self, wanted: Service, now: float) -> bool:
        """True when the rung changed."""
        here, there = RUNGS.index(self.rung), RUNGS.index(wanted)
        if here == there:
            self.since_s = None
            return False
        toward = RUNGS[here + (1 if there > here else -1)]
        if self.since_s is None or toward is not self.toward:
            self.toward, self.since_s = toward, now
            return False
        if now - self.since_s < (_DOWN_S if there > here else _UP_S):
            return False
        self.rung, self.since_s = toward, now
        return True


class Ladder:
    """On which rung each tenant is. A tenant on the highest one that asks no more than its part is not remembered."""

    def __init__(self) -> None:
        self._demand = Demand()
        self._places: dict[str, _Place] = {}
        self._looked_s = float("-inf")

    def rung(self, tenant: str, *, free: bool = False) -> Service:
        """Of a tenant; `free`: it pays nothing."""
        own, shared = self._rung_of(tenant), self._rung_of(FREE_TIER)
        return max(own, shared, key=RUNGS.index) if free else own

    def _rung_of(self, name: str) -> Service:
        place = self._places.get(name)
        return Service.FULL if place is None else place.rung

    @property
    def below(self) -> dict[str, Service]:
        """Tenants that are not fully served, and their rungs; all free ones together as `FREE_TIER`."""
        return {name: place.rung for name, place in self._places.items() if place.rung is not Service.FULL}

    @property
    def lowest(self) -> Service:
        """The rung of the tenant that is served least."""
        return max(self.below.values(), key=RUNGS.index, default=Service.FULL)

    @property
    def moving(self) -> bool:
        """Somebody is not fully served, or about not to be: time has to go on."""
        return bool(self._places)

    def decided(
        self, tenant: str, *, weight: float, tokens: int, interactive: bool, shed: bool, free: bool = False
    ) -> None:
        """Admission let a request start, or refused it; `tokens` as in its turns."""
        self._demand.decided(tenant, weight=weight, tokens=tokens, interactive=interactive, shed=shed, free=free)

    def turn(self, *, level: int, highest: int, now: float) -> frozenset[str]:
        """Look at the load; tenants whose rung changed, and `FREE_TIER`. `level` and `highest` are those of shedding (`pressure`).

        Costs O(tenants) twice a second while there is trouble, and O(1) else.
        """
        self._demand.turn(now)
        trouble = level >= highest - 1 or self._demand.any_shed
        if now - self._looked_s < _LOOK_S or not (trouble or self._places):
            return frozenset()
        self._looked_s = now
        loads = self._demand.loads()
        wanted = _wanted(loads, level=level, highest=highest)
        for tenant in wanted:
            self._places.setdefault(tenant, _Place()).free = loads[tenant].free
        changed: set[str] = set()
        if self._turn_free(wanted, about=any(load.free for load in loads.values()), now=now):
            changed.add(FREE_TIER)
        for tenant, place in list(self._places.items()):
            if tenant != FREE_TIER and place.turn(self._not_before_free(place, wanted.get(tenant, Service.FULL)), now):
                changed.add(tenant)
            if place.idle:
                del self._places[tenant]
        return frozenset(changed)

    def _turn_free(self, wanted: Mapping[str, Service], *, about: bool, now: float) -> bool:
        """Move all free tenants to where those that pay want to go, and a rung lower; True when they moved."""
        paid = {name: RUNGS.index(place.rung) for name, place in self._places.items() if not place.free}
        most = max((max(at, RUNGS.index(wanted.get(name, Service.FULL))) for name, at in paid.items()), default=0)
        if FREE_TIER not in self._places and not (about and most):
            return False
        shared = self._places.setdefault(FREE_TIER, _Place(free=True))
        least = _behind(max(paid.values(), default=0))
        if RUNGS.index(shared.rung) < RUNGS.index(least):  # the first free one came when others were degraded already
            shared.rung, shared.since_s = least, None
            return True
        return shared.turn(_behind(most), now)

    def _not_before_free(self, place: _Place, wanted: Service) -> Service:
        """As far down as a tenant may go towards the wanted rung while the free ones are where they are."""
        shared = self._places.get(FREE_TIER)
        if place.free or shared is None or shared.rung is RUNGS[-1]:
            return wanted
        lowest = max(RUNGS.index(place.rung), RUNGS.index(shared.rung) - 1)
        return RUNGS[min(RUNGS.index(wanted), lowest)]


def _behind(paid: int) -> Service:
    """Where free tenants are when one that pays is on that rung, counted from the full service."""
    return RUNGS[min(paid + 1, len(RUNGS) - 1)] if paid else Service.FULL


def _wanted(loads: Mapping[str, TenantLoad], *, level: int, highest: int) -> dict[str, Service]:
    """The rung that each tenant's load asks for, where it is not the full service.

    Interactive work suffers only when everything below it is shed already. A tenant that asked too seldom to tell is judged by all that are
    heavy, or are not, as it is.
    """
    too_much = heavy(loads)
    together = {True: TenantLoad(), False: TenantLoad()}
    for tenant, load in loads.items():
        together[tenant in too_much].add(load)
    found: dict[str, Service] = {}
    for tenant, load in loads.items():
        share = _refused_share([load, together[tenant in too_much]])
        if tenant in too_much:
            rung = _of_heavy(level, highest, share)
        else:
            rung = Service.CACHE_ONLY if share >= _MOST_REFUSED else Service.FULL
        if rung is not Service.FULL:
            found[tenant] = rung
    return found


def _refused_share(loads: Iterable[TenantLoad]) -> float:
    """Of interactive requests those that were shed, by the first of the loads that has enough of them."""
    return next((load.shed / load.asked for load in loads if load.asked >= _MIN_ASKED), 0.0)


def _of_heavy(level: int, highest: int, refused_share: float) -> Service:
    if refused_share >= _MANY_REFUSED:
        return Service.CACHE_ONLY
    if level >= highest:
        return Service.SHORT_CONTEXT
    return Service.NO_RETRIEVAL if level >= highest - 1 else Service.FULL


def profile_at(profile: Profile, rung: Service) -> Profile:
    """The profile that clients get on a rung; `profile` is that of the full service."""
    if rung is Service.FULL:
        return profile
    budgets = msgspec.structs.replace(profile.budgets, context_tokens=0)
    if rung is not Service.NO_RETRIEVAL:
        budgets = msgspec.structs.replace(
            budgets, prompt_tokens=budgets.prompt_tokens // 2, suffix_tokens=budgets.suffix_tokens // 2
        )
    return msgspec.structs.replace(profile, budgets=budgets, service=rung, next_edit=_edits_at(profile.next_edit, rung))


def _edits_at(window: EditWindow | None, rung: Service) -> EditWindow | None:
    if window is None or not rung.asks:
        return None
    less = msgspec.structs.replace(window, related=False)
    if rung is Service.NO_RETRIEVAL:
        return less
    return msgspec.structs.replace(less, around_lines=less.around_lines // 2, edits=(less.edits + 1) // 2)
