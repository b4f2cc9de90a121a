"""The scaling policy as Prometheus rules: promtool finds the number that the policy's function finds, and KEDA is told to use it."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from foretype_backend.fleet.scaling.options import ScalingOptions
from foretype_backend.fleet.scaling.policy import ScalingState, decide
from foretype_backend.fleet.scaling.signals import Signals
from promtool import holds, needs_promtool

pytestmark = pytest.mark.slow  # whole processes

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes" / "scaled"
RULES: dict[str, Any] = yaml.safe_load((FOLDER / "rules.yaml").read_text("utf-8"))["spec"]
SCALED: dict[str, Any] = yaml.safe_load((FOLDER / "scaling.yaml").read_text("utf-8"))["spec"]
OPTIONS = ScalingOptions(min_replicas=0, max_replicas=1_000, warm_max_replicas=2)


def world(serving: int, tokens: float, running: float, kv: float | None, p99_ms: float | None) -> list[dict[str, str]]:
    """Series of two gateways that see the same replicas; constant for half an hour."""
    found: dict[str, str] = {}
    for gateway in "ab":
        for at in range(serving):
            where = f'replica="r{at}",instance="{gateway}"'
            found[f'foretype_replica_standing{{{where},standing="in_service"}}'] = "1x120"
            found[f"foretype_replica_queued_uncached_tokens{{{where}}}"] = f"{tokens / serving / 2}x120"
            found[f"foretype_replica_in_flight{{{where}}}"] = f"{running / serving / 2}x120"
            if kv is not None:
                found[f"foretype_replica_kv_use_ratio{{{where}}}"] = f"{kv}x120"
        name = f'foretype_ttft_seconds_bucket{{class="interactive",instance="{gateway}",le="%s"}}'
        if p99_ms is None:
            found |= {name % le: "5x120" for le in ("0.1", "+Inf")}  # nobody has asked since
        else:  # all of them in a bucket whose 99th of a hundred is this
            edges = [(p99_ms - 0.99) / 1e3, (p99_ms + 0.01) / 1e3]
            found |= {name % edges[0]: "0x120", name % edges[1]: "0+100x120", name % "+Inf": "0+100x120"}
    return [{"series": series, "values": values} for series, values in found.items()]


def check(folder: Path, series: list[dict[str, str]], expected: dict[str, float | None], *, at: str = "29m") -> None:
    rules = folder / "rules.yml"
    rules.write_text(yaml.safe_dump(RULES))
    asked = [
        {"expr": query, "eval_time": at, "exp_samples": [] if value is None else [{"labels": "{}", "value": value}]}
        for query, value in expected.items()
    ]
    holds(folder, rules, "15s", input_series=series, promql_expr_test=asked)


@needs_promtool
@pytest.mark.parametrize(
    ("serving", "tokens", "running", "kv", "p99_ms", "wanted"),
    [
        (2, 0.0, 10.0, 0.2, 40.0, 2),
        (2, 20_000.0, 10.0, 0.2, 40.0, 5),
        (2, 0.0, 50.0, None, 40.0, 6),
        (3, 0.0, 4.0, 0.95, 40.0, 4),
        (3, 0.0, 4.0, 0.2, 170.0, 5),
        (3, 0.0, 4.0, 0.2, 5_000.0, 6),
        (3, 0.0, 4.0, 0.2, 85.0, 3),
        (4, 0.0, 4.0, 0.1, 35.0, 2),
        (1, 0.0, 0.0, 0.0, None, 0),
    ],
)
def test_rules_and_policy_want_the_same(
    tmp_path: Path, serving: int, tokens: float, running: float, kv: float | None, p99_ms: float | None, wanted: int
) -> None:
    signals = Signals(
        queued_uncached_tokens=tokens, running=running, kv_use=kv, predicted_p99_ms=p99_ms, replicas=serving
    )
    decision = decide(signals, ScalingState(), OPTIONS, target=0, now_s=0.0)
    assert decision.replicas == wanted
    # Beside it the rules keep a warm pool, since here the whole load comes at once at the start.
    found = {
        "max(foretype:fleet_needed:replicas)": float(wanted),
        "max(foretype:fleet_wanted:replicas - foretype:fleet_warm:replicas)": float(wanted),
        'foretype:fleet_needed:replicas{by="last_week"}': None,
    }
    check(tmp_path, world(serving, tokens, running, kv, p99_ms), found)


@needs_promtool
def test_where_gateways_say_nothing_nothing_is_wanted_so_that_the_number_stays(tmp_path: Path) -> None:
    check(tmp_path, [], {"foretype:fleet_wanted:replicas": None})
    silent = [one for one in world(2, 0.0, 10.0, 0.9, 900.0) if "in_flight" not in one["series"]]
    check(tmp_path, silent, {"foretype:fleet_wanted:replicas": None})


@needs_promtool
def test_a_rise_keeps_a_warm_pool_and_last_week_is_ready_before_its_hour(tmp_path: Path) -> None:
    """With a week of one day, which promtool has done in a moment: what ten requests are on two replicas, for an hour 40 come."""
    text = yaml.safe_dump(RULES)
    day = 24 * 60
    assert text.count("[1w]") == 1 and text.count(f"offset {7 * day - 20}m") == 1
    (tmp_path / "rules.yml").write_text(text.replace("[1w]", "[1d]").replace(f"{7 * day - 20}m", f"{day - 20}m"))
    series = [
        {"series": 'foretype_replica_standing{replica="r0",standing="in_service"}', "values": f"1x{2 * day}"},
        {"series": 'foretype_replica_in_flight{replica="r0"}', "values": f"10x600 40x60 10x{2 * day}"},
    ]
    last_week, warm = 'foretype:fleet_needed:replicas{by="last_week"}', "foretype:fleet_warm:replicas"
    expected = [(last_week, 600 + day - 30, 2), (last_week, 600 + day - 15, 5), (last_week, 600 + day + 90, 2)]
    expected += [(warm, 590, 0), (warm, 700, 2), (warm, 600 + day + 90, 0)]
    asked = [
        {"expr": query, "eval_time": f"{at}m", "exp_samples": [{"labels": query, "value": float(value)}]}
        for query, at, value in expected
    ]
    holds(tmp_path, tmp_path / "rules.yml", "1m", input_series=series, promql_expr_test=asked)


def test_keda_asks_for_that_number_goes_up_at_once_and_down_as_slowly_as_the_policy() -> None:
    prometheus, *clocks = SCALED["triggers"]
    recorded = {rule["record"] for group in RULES["groups"] for rule in group["rules"]}
    assert prometheus["metadata"]["query"] in recorded
    assert (prometheus["metricType"], prometheus["metadata"]["threshold"]) == ("AverageValue", "1")
    assert prometheus["metadata"]["ignoreNullValues"] == "false", "what nobody knows is no zero"
    assert SCALED["fallback"]["behavior"] == "currentReplicas"
    behavior = SCALED["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleUp"]["stabilizationWindowSeconds"] == 0
    assert behavior["scaleUp"]["policies"][0]["value"] == SCALED["maxReplicaCount"]
    down = behavior["scaleDown"]
    assert down["stabilizationWindowSeconds"] == ScalingOptions().down_after_s
    assert [one["value"] for one in down["policies"]] == [100 * ScalingOptions().down_share]
    assert SCALED["maxReplicaCount"] >= max(int(one["metadata"]["desiredReplicas"]) for one in clocks)
    for one in clocks:
        assert one["type"] == "cron" and len(one["metadata"]["start"].split()) == 5
