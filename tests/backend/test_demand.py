"""Who asks more than its part, of what can be served."""

from foretype_backend.admission.tenant_demand import Demand, TenantLoad, heavy
from hypothesis import given
from hypothesis import strategies as st


def load(tokens: int, *, shed_tokens: int = 0, weight: float = 1.0) -> TenantLoad:
    found = TenantLoad(weight)
    found.tokens, found.shed_tokens = tokens, shed_tokens
    return found


def test_a_flood_is_heavy_and_who_asks_its_part_is_not() -> None:
    assert heavy({"quiet": load(100), "flood": load(2000, shed_tokens=1100)}) == {"flood"}
    assert heavy({"quiet": load(100), "flood": load(2000)}) == {"flood"}, "nothing is shed yet"


def test_where_all_ask_too_much_all_are_heavy() -> None:
    assert heavy({name: load(asked, shed_tokens=60) for name, asked in (("a", 90), ("b", 100), ("c", 110))}) == set(
        "abc"
    )
    assert heavy({"alone": load(1)}) == {"alone"}


def test_a_weight_is_a_larger_part() -> None:
    loads = {"small": load(300, shed_tokens=150), "large": load(300, weight=3.0)}
    assert heavy(loads) == {"small"}


def test_a_tenant_without_weight_is_one_with_hardly_any() -> None:
    demand = Demand()
    demand.turn(1.0)
    for tenant, weight in (("a", 0.0), ("b", 1.0)):
        demand.decided(tenant, weight=weight, tokens=10, interactive=True, shed=False)
    assert heavy(demand.loads()) == {"a"}


LOADS = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.tuples(st.integers(0, 10_000), st.floats(0, 1), st.floats(0.1, 10)).map(
        lambda drawn: load(drawn[0], shed_tokens=int(drawn[0] * drawn[1]), weight=drawn[2])
    ),
)


@given(LOADS)
def test_parts_are_max_min_fair(loads: dict[str, TenantLoad]) -> None:
    found = heavy(loads)
    asked = sum(one.tokens for one in loads.values())
    served = min(asked - sum(one.shed_tokens for one in loads.values()), 0.75 * asked)
    assert bool(found) == (asked > 0), "who eases the load must be somebody"
    if not found:
        return
    left = served - sum(one.tokens for name, one in loads.items() if name not in found)
    level = left / sum(loads[name].weight for name in found)
    assert left >= -1e-6, "those within their parts are served in full"
    for name, one in loads.items():
        need = one.tokens / one.weight
        assert (need > level - 1e-6) if name in found else (need <= level + 1e-6)


@given(LOADS, st.sampled_from("abcdefgh"), st.integers(1, 100_000))
def test_who_asks_more_never_makes_another_heavy(loads: dict[str, TenantLoad], who: str, more: int) -> None:
    """More of what is served; what is refused is not known to be served to anybody."""
    for one in loads.values():
        one.shed_tokens = 0
    before = heavy(loads)
    loads.setdefault(who, load(0)).tokens += more
    if who in before:
        assert heavy(loads) <= before


def test_what_was_asked_is_forgotten_after_three_seconds() -> None:
    demand = Demand()
    demand.turn(10.0)
    demand.decided("a", weight=1.0, tokens=5, interactive=True, shed=True)
    demand.decided("a", weight=1.0, tokens=7, interactive=False, shed=True)
    demand.turn(12.9)
    a = demand.loads()["a"]
    assert (a.tokens, a.shed_tokens, a.asked, a.shed, demand.any_shed) == (5, 5, 1, 1, True)
    demand.turn(13.0)
    assert (demand.loads(), demand.any_shed) == ({}, False)


def test_who_has_just_begun_has_shed_nobody() -> None:
    assert not Demand().any_shed
