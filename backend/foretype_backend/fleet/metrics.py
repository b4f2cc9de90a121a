"""A pool's figures for `/metrics`: replicas, routes, the directory's agreement with the engines, and what speculation is worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from foretype_backend.fleet.health import ReplicaHealthStatistics, ReplicaStanding
from foretype_backend.fleet.members.member import Phase
from foretype_backend.fleet.members.membership import MembershipStatistics
from foretype_backend.fleet.placement import Agreement
from foretype_backend.fleet.prefill_apart import ApartStatistics
from foretype_backend.fleet.routing.router import RouterStatistics
from foretype_backend.fleet.routing.speculation import SpeculationPolicy
from foretype_backend.fleet.warmups import WarmStatistics


class PoolStatistics(NamedTuple):
    """A consistent snapshot.

    Attributes:
        replicas: by name, which is the URL where a list names them.
        retried: requests that a second replica answered.
        kv_use: of replicas that say.
        prompt_tokens_by_tier: by replica, where their prompt tokens came from.
        membership: of replicas that are announced.
        apart: of prompts that replicas of their own compute.
    """

    replicas: Mapping[str, ReplicaHealthStatistics]
    router: RouterStatistics
    agreement: Agreement
    retried: int
    warm: WarmStatistics
    kv_use: Mapping[str, float]
    prompt_tokens_by_tier: Mapping[str, Mapping[str, int]]
    membership: MembershipStatistics | None = None
    apart: ApartStatistics | None = None


class PoolCollector(Collector):
    """Reads at the time of a scrape. Replicas are named as they are announced, or by their URL, which is configuration and no secret.

    Who is refused is counted by reason alone: what a directory makes up gets no series of its own.
    """

    def __init__(self, pool: Callable[[], PoolStatistics], speculation: Callable[[], SpeculationPolicy | None]) -> None:
        self._pool = pool
        self._speculation = speculation

    def collect(self) -> Iterable[Metric]:
        statistics = self._pool()
        standing = GaugeMetricFamily(
            "foretype_replica_standing", "1 for the standing that a replica has.", labels=["replica", "standing"]
        )
        flying = GaugeMetricFamily("foretype_replica_in_flight", "Requests on a replica.", labels=["replica"])
        outages = CounterMetricFamily("foretype_replica_outages", "Times taken out of service.", labels=["replica"])
        for name, replica in statistics.replicas.items():
            for one in ReplicaStanding:
                standing.add_metric([name, one.value], replica.standing is one)
            flying.add_metric([name], replica.in_flight)
            outages.add_metric([name], replica.outages)
        queued = GaugeMetricFamily(
            "foretype_replica_queued_uncached_tokens", "Prompt tokens waiting to be computed.", labels=["replica"]
        )
        for name, tokens in statistics.router.queued_tokens.items():
            queued.add_metric([name], tokens)
        routes = CounterMetricFamily("foretype_routes", "Requests by why their replica was chosen.", labels=["route"])
        for route, count in statistics.router.routes.items():
            routes.add_metric([route.value], count)
        full = GaugeMetricFamily(
            "foretype_replica_kv_use_ratio",
            "Share of a replica's key-value cache that running requests hold, as it says every 5 s.",
            labels=["replica"],
        )
        for name, use in statistics.kv_use.items():
            full.add_metric([name], use)
        # A gauge, since every worker and every gateway reads the same count, and they must not add up.
        tiers = GaugeMetricFamily(
            "foretype_replica_prompt_tokens",
            "A replica's prompt tokens since its start: `computed`, or cached on the `device`, the `host` or in `redis`.",
            labels=["replica", "tier"],
        )
        for name, counts in statistics.prompt_tokens_by_tier.items():
            for tier, tokens in counts.items():
                tiers.add_metric([name, tier], tokens)
        yield from (standing, flying, outages, queued, routes, full, tiers)
        if statistics.membership is not None:
            yield from _membership(statistics.membership)
        if statistics.apart is not None:
            apart = CounterMetricFamily(
                "foretype_prefills_apart",
                "Prompts computed on a replica for another one to answer.",
                labels=["outcome"],
            )
            apart.add_metric(["handed"], statistics.apart.handed)
            apart.add_metric(["failed"], statistics.apart.failed)
            yield apart
        agreement = statistics.agreement
        yield CounterMetricFamily(
            "foretype_directory_requests", "Requests whose cached tokens an engine told.", value=agreement.requests
        )
        yield CounterMetricFamily(
            "foretype_directory_agreed", "Of these, predicted to within a block.", value=agreement.within_block
        )
        warm = statistics.warm
        yield CounterMetricFamily("foretype_warmed", "Warm-ups sent to a replica.", value=warm.begun)
        yield CounterMetricFamily(
            "foretype_warm_merged",
            "Warm-ups that were not sent, since the prompt was warm or waiting already.",
            value=warm.merged,
        )
        yield CounterMetricFamily("foretype_warm_dropped", "Warm-ups dropped under load.", value=warm.dropped)
        yield from self._speculated()

    def _speculated(self) -> Iterable[Metric]:
        policy = self._speculation()
        if policy is None:
            return
        verdicts = CounterMetricFamily(
            "foretype_speculation_verdicts", "Requests by whether guessing paid, and why not.", labels=["verdict"]
        )
        for verdict, count in policy.verdicts().items():
            verdicts.add_metric([verdict.value], count)
        share = GaugeMetricFamily(
            "foretype_speculation_accepted_share", "Guesses accepted of those made.", labels=["language"]
        )
        for language, one in policy.languages().items():
            if one.accepted_share is not None:
                share.add_metric([language], one.accepted_share)
        by_pattern = GaugeMetricFamily(
            "foretype_speculation_pattern_share",
            "Guesses accepted of those made, by what stands at the cursor: `syntax`, `idiom`, `name`, `logic`, `comment`.",
            labels=["language", "pattern"],
        )
        for (language, pattern), one in policy.patterns().items():
            if one.accepted_share is not None:
                by_pattern.add_metric([language, pattern.value], one.accepted_share)
        yield from (verdicts, share, by_pattern)


def _membership(found: MembershipStatistics) -> Iterable[Metric]:
    phases = GaugeMetricFamily(
        "foretype_membership_replicas", "Announced replicas, by where they stand.", labels=["phase"]
    )
    counts = Counter(found.phases.values())
    for phase in Phase:
        phases.add_metric([phase.value], counts[phase])
    refused = GaugeMetricFamily(
        "foretype_membership_refused", "Announced replicas that are not asked, by reason.", labels=["why"]
    )
    for why, count in found.refusals.items():
        refused.add_metric([why.value], count)
    answers = CounterMetricFamily(
        "foretype_membership_answers", "Questions to the directory of replicas.", labels=["outcome"]
    )
    answers.add_metric(["answered"], found.answers)
    answers.add_metric(["failed"], found.failures)
    yield from (phases, refused, answers)
    yield GaugeMetricFamily(
        "foretype_membership_age_seconds", "Since the directory was last believed.", value=found.answered_s
    )
    yield CounterMetricFamily(
        "foretype_membership_held_back", "Replicas kept since a pool would have shrunk too fast.", value=found.held_back
    )
