"""What `vllm serve` says of itself at `/metrics`: the size of its cache, its process, what speculation was worth. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

LOOK_EVERY_S: Final = 5.0
"""How old a figure may be that scaling goes by."""


class VllmMetrics(NamedTuple):
    """A scrape; zero or None where the server does not say.

    Attributes:
        block_tokens, cache_blocks: of the prefix cache.
        started_s: start of the process, seconds since 1970: another value is another process, whose cache is empty.
        drafts, draft_tokens, accepted_tokens: of speculative decoding, since the start: steps in which something was guessed, guesses,
            accepted ones.
        generated_tokens, first_tokens: since the start; first ones come out of the prefill.
        running, waiting: requests.
        kv_use: share of the cache that running requests hold, 0 to 1; of data-parallel ranks the fullest one's.
        prompt_tokens_by_tier: since the start, by where they came from: `computed`, or a tier of the cache: `device`, `host`, `redis` (what
            vLLM calls external_unspecified: the one store beyond the host that we give it), `disk`, `p2p`.
    """

    block_tokens: int = 0
    cache_blocks: int = 0
    started_s: float | None = None
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    generated_tokens: int = 0
    first_tokens: int = 0
    running: int = 0
    waiting: int = 0
    kv_use: float | None = None
    prompt_tokens_by_tier: Mapping[str, int] = MappingProxyType({})

    @property
    def guesses(self) -> float:
        """Tokens guessed per decode step in the mean; 0 where nothing is. A method that looks its guesses up makes none in many steps."""
        steps = self.generated_tokens - self.first_tokens - self.accepted_tokens
        return self.draft_tokens / max(steps, self.drafts) if self.drafts else 0.0


_TIERS = {"external_unspecified": "redis"}

_COUNTS = {
    "vllm:spec_decode_num_drafts_total": "drafts",
    "vllm:spec_decode_num_draft_tokens_total": "draft_tokens",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted_tokens",
    "vllm:generation_tokens_total": "generated_tokens",
    "vllm:time_to_first_token_seconds_count": "first_tokens",
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
}


def read_metrics(text: str) -> VllmMetrics:
    """Raises ValueError where the text is no Prometheus exposition. Counts of data-parallel ranks are summed."""
    counts = dict.fromkeys(_COUNTS.values(), 0)
    block_tokens = cache_blocks = 0
    started_s: float | None = None
    kv_use: float | None = None
    tiers = Counter[str]()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in _COUNTS:
                counts[_COUNTS[sample.name]] += int(sample.value)
            elif sample.name == "vllm:cache_config_info":
                block_tokens = _whole(sample.labels.get("block_size"))
                cache_blocks += _whole(sample.labels.get("num_gpu_blocks"))
            elif sample.name == "vllm:kv_cache_usage_perc":  # a share, whatever its name says
                kv_use = max(kv_use or 0.0, sample.value)
            elif sample.name == "vllm:prompt_tokens_cached_by_source_total":
                source = sample.labels.get("source", "")
                tiers[_TIERS.get(source, source)] += int(sample.value)
            elif sample.name == "vllm:prompt_tokens_by_source_total" and sample.labels.get("source") == "local_compute":
                tiers["computed"] += int(sample.value)
            elif sample.name == "process_start_time_seconds":
                started_s = sample.value
    own = {"block_tokens": block_tokens, "cache_blocks": cache_blocks, "started_s": started_s, "kv_use": kv_use}
    return VllmMetrics(**own, **counts, prompt_tokens_by_tier=dict(tiers))


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isdigit() else 0
