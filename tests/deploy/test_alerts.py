"""Every alert rings in a world where everything is wrong and in none where it is well; burn rates want a long window and a short one."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from promtool import holds, needs_promtool

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCUMENT = Path(__file__).parents[2] / "docs" / "deploy.md"
ALERTS: Path = DEPLOY / "prometheus" / "alerts.yml"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"] for rule in group["rules"] if "alert" in rule
]
MINUTES = 420
LOOKED_AT = "6h30m"

RINGS: dict[str, list[tuple[dict[str, str], str]]] = {
    "ForetypeAvailabilityBurnsFast": [
        ({"class": one}, f"10% of {one} requests got no answer in the last hour") for one in ("chat", "warm")
    ],
    "ForetypeAvailabilityBurnsSlowly": [
        ({"class": one}, f"10% of {one} requests got no answer in the last six hours") for one in ("chat", "warm")
    ],
    # Nobody waits for what is warmed: it has no promise of time.
    "ForetypeObjectiveBurnsFast": [({"class": "chat"}, "First text comes late for 30% of chat requests")],
    "ForetypeObjectiveBurnsSlowly": [({"class": "chat"}, "First text came late for 30% of chat requests in six hours")],
    "ForetypeNoReplica": [({}, "No replica of the fast pool is in service")],
    "ForetypeEngineLost": [({}, "The engine was restarted 10 times in ten minutes")],
    "ForetypeReplicaOut": [({"replica": one}, f"Replica {one} is out of service") for one in "ab"],
    "ForetypeCertificateEnds": [({}, "The gateway's certificate ends in 9d 17h 30m 0s")],
    "ForetypeIdentityStoreAway": [({}, "The store of identities has not answered for 10m 0s")],
    "ForetypeRedisAway": [({}, "The ledger of budgets has not answered for 10m 0s")],
    "ForetypeUsageUnstored": [({}, "500 rows of usage have waited half an hour for their store")],
    "ForetypeKvFull": [
        ({"replica": one}, f"Running requests hold 95% of the key-value cache of {one}") for one in "ab"
    ],
    "ForetypeLoopLagHigh": [({}, "A gateway's event loop is late: p99 29ms")],
    "ForetypeChatSlow": [({"tier": "paid"}, "Chat of tier paid writes a token in 96ms (p99)")],
    "ForetypeGpuHot": [({"Hostname": "node1", "gpu": "0"}, "GPU 0 of node1 is at 91 °C")],
    "ForetypeCancellationHigh": [({}, "60% of requests are cancelled")],
    "ForetypeCacheHitRateLow": [({}, "Only 30% of prompt tokens were cached")],
    "ForetypeAcceptanceLow": [({}, "10% of the suggestions that were read were accepted today")],
    "ForetypeSaturated": [({}, "93.75% of the slots are in use")],
}

pytestmark = needs_promtool


def test_each_alert_has_a_ring_to_expect_and_a_line_what_to_do() -> None:
    document = DOCUMENT.read_text("utf-8")
    assert [rule["alert"] for rule in RULES] == list(RINGS)
    for name in RINGS:
        assert re.search(rf"^\| `{name}` \| .+ \| .+ \|$", document, re.MULTILINE), name


@pytest.mark.slow
def test_in_a_world_where_everything_is_wrong_each_alert_rings(tmp_path: Path) -> None:
    _hold(tmp_path, _world(wrong=True), RINGS)


@pytest.mark.slow
def test_in_a_world_where_everything_is_well_none_rings(tmp_path: Path) -> None:
    _hold(tmp_path, _world(wrong=False), {})


@pytest.mark.slow
def test_a_short_burst_and_one_that_is_over_wake_nobody(tmp_path: Path) -> None:
    # Of 390 minutes one is bad, a sixtieth of the hour at half of the requests; and an hour of failures ended forty minutes ago.
    burst = _promises("interactive", f"0x386 50x{MINUTES - 387}")
    over = _promises("block", f"0x289 0+30x60 1800x{MINUTES - 350}")
    _hold(tmp_path, burst + over, {})


def _promises(class_: str, failed: str) -> list[dict[str, str]]:
    name = f'foretype_objective_total{{class="{class_}",outcome="%s"}}'
    return [{"series": name % "failed", "values": failed}, {"series": name % "met", "values": f"0+100x{MINUTES}"}]


def _world(*, wrong: bool) -> list[dict[str, str]]:
    found: dict[str, str] = {}

    def counter(series: str, a_minute: int) -> None:
        found[series] = f"0+{a_minute}x{MINUTES}"

    def gauge(series: str, bad: float, good: float) -> None:
        found[series] = f"{bad if wrong else good}x{MINUTES}"

    for class_ in ("chat", "warm"):
        for outcome, a_minute in (
            {"met": 70, "late": 20, "failed": 10}.items() if wrong else {"met": 995, "late": 5, "failed": 0}.items()
        ):
            counter(f'foretype_objective_total{{class="{class_}",outcome="{outcome}"}}', a_minute)
    counter("foretype_engine_restarts_total", 1 if wrong else 0)
    for replica in "ab":
        for standing, bad in {"in_service": 0, "suspect": 0, "out": 1}.items():
            good = standing == "in_service"
            gauge(f'foretype_replica_standing{{replica="{replica}",standing="{standing}"}}', bad, int(good))
        gauge(f'foretype_replica_kv_use_ratio{{replica="{replica}"}}', 0.95, 0.6)
    gauge("foretype_tls_certificate_expires_seconds", 10 * 86400, 60 * 86400)
    gauge("foretype_identity_age_seconds", 600, 2)
    gauge("foretype_leases_away_seconds", 600, 0)
    found["foretype_usage_unstored_rows"] = f"500x{MINUTES}" if wrong else "40 0 " * (MINUTES // 2)
    for bound, within in {"0.02": 900 if wrong else 1000, "0.03": 1000, "+Inf": 1000}.items():
        counter(f'foretype_loop_lag_seconds_bucket{{le="{bound}"}}', within)
    for bound, within in {"0.06": 90 if wrong else 100, "0.1": 100, "+Inf": 100}.items():
        counter(f'foretype_chat_tpot_seconds_bucket{{tier="paid",le="{bound}"}}', within)
    counter('foretype_chat_tpot_seconds_count{tier="paid"}', 100)
    gauge('DCGM_FI_DEV_GPU_TEMP{Hostname="node1",gpu="0"}', 91, 64)
    for reason, a_minute in {"end_of_middle": 40 if wrong else 60, "superseded": 60 if wrong else 40}.items():
        counter(f'foretype_requests_total{{class="interactive",reason="{reason}"}}', a_minute)
    counter("foretype_prompt_tokens_total", 100_000)
    counter("foretype_cached_tokens_total", 30_000 if wrong else 90_000)
    for outcome, a_minute in {"accepted": 1 if wrong else 4, "read": 9 if wrong else 6}.items():
        counter(f'foretype_suggestions_total{{outcome="{outcome}"}}', a_minute)
    gauge("foretype_running", 60, 10)
    gauge("foretype_slots", 64, 64)
    return [{"series": series, "values": values} for series, values in found.items()]


def _hold(folder: Path, series: list[dict[str, str]], rings: dict[str, list[tuple[dict[str, str], str]]]) -> None:
    """Let promtool evaluate the rules over this world."""
    expected = [
        {
            "eval_time": LOOKED_AT,
            "alertname": rule["alert"],
            "exp_alerts": [
                {
                    "exp_labels": {"severity": rule["labels"]["severity"]} | labels,
                    "exp_annotations": {"summary": summary, "description": rule["annotations"]["description"]},
                }
                for labels, summary in rings.get(rule["alert"], [])
            ],
        }
        for rule in RULES
    ]
    holds(folder, ALERTS, "1m", input_series=series, alert_rule_test=expected)
