"""Every quantity of a plan as a function whose parameters are inputs or other quantities of its name.

One source for two places: :mod:`foretype_plan.sheet` evaluates these, and the page runs the same text as JavaScript
(:mod:`foretype_plan.page`). So a function here is plain arithmetic: no default, no import but `math`, nothing that a translation
could take for something else. Units stand in the first line of each docstring: s, bytes, tokens, requests; shares are 0 to 1.

Sources that are named more than once:

- roofline: Williams, Waterman, Patterson, "Roofline", CACM 2009; for transformers Pope et al., "Efficiently Scaling Transformer
  Inference", 2022: prefill is bound by arithmetic, decoding by what is read from memory
- Little: L = λ W, Little 1961
- Pollaczek-Khinchine: mean wait of M/G/1
"""

from __future__ import annotations

from math import ceil, exp
from typing import Final

HELPERS: Final = ("replicas_of_hour",)
"""Functions that are no quantities, besides those whose names begin with an underscore."""


def _beyond(
    t: float,
    warm_share: float,
    warm: float,
    partial_share: float,
    partial: float,
    cold: float,
    busy: float,
    wait: float,
) -> float:
    """Share of requests whose first token takes longer than `t`: three kinds of request, each behind an exponential queue."""
    late = 0.0
    if t < warm:
        late = late + warm_share
    else:
        late = late + warm_share * busy * exp(-(t - warm) / wait)
    if t < partial:
        late = late + partial_share
    else:
        late = late + partial_share * busy * exp(-(t - partial) / wait)
    cold_share = 1 - warm_share - partial_share
    if t < cold:
        late = late + cold_share
    else:
        late = late + cold_share * busy * exp(-(t - cold) / wait)
    return late


def _quantile(
    q: float,
    warm_share: float,
    warm: float,
    partial_share: float,
    partial: float,
    cold: float,
    busy: float,
    wait: float,
) -> float:
    """s: the time that a share `q` of requests is answered within."""
    low = 0.0
    high = cold + partial + warm + wait * 50
    for _ in range(60):
        middle = (low + high) / 2
        if _beyond(middle, warm_share, warm, partial_share, partial, cold, busy, wait) > 1 - q:
            low = middle
        else:
            high = middle
    return high


def replicas_of_hour(
    active_share: float,
    developers: float,
    requests_per_developer_s: float,
    headroom: float,
    most_per_replica: float,
    regions: float,
) -> float:
    """replicas: of one hour, with what is kept warm above its need; one in each region at least."""
    rate = developers * active_share * requests_per_developer_s
    return max(regions, ceil(rate * (1 + headroom) / most_per_replica))


# --- memory


def weights_bytes(parameters: float, weight_bits: float) -> float:
    """bytes: parameters times their width."""
    return parameters * weight_bits / 8


def kv_bytes_per_token(layers: float, kv_heads: float, head_dim: float, kv_bits: float) -> float:
    """bytes: a key and a value for each layer and head (Kwon et al., "PagedAttention", 2023)."""
    return 2 * layers * kv_heads * head_dim * kv_bits / 8


def kv_room_bytes(
    gpus_per_replica: float, gpu_memory_bytes: float, memory_share: float, weights_bytes: float, reserved_bytes: float
) -> float:
    """bytes: what of a replica's memory is left for keys and values; reserved_bytes is of one GPU."""
    return gpus_per_replica * (gpu_memory_bytes * memory_share - reserved_bytes) - weights_bytes


def session_tokens(prompt_tokens: float, output_tokens: float) -> float:
    """tokens: of one session, when its answer is whole."""
    return prompt_tokens + output_tokens


def kv_bytes_per_session(session_tokens: float, kv_bytes_per_token: float) -> float:
    """bytes: keys and values of one session."""
    return session_tokens * kv_bytes_per_token


def sessions_per_gpu(kv_room_bytes: float, kv_bytes_per_session: float, gpus_per_replica: float) -> float:
    """sessions: that lie in the memory of one GPU at once."""
    return kv_room_bytes / kv_bytes_per_session / gpus_per_replica


def remembered_per_replica(
    kv_room_bytes: float, host_bytes_per_gpu: float, gpus_per_replica: float, kv_bytes_per_session: float
) -> float:
    """sessions: in GPU memory and in the host's, which a replica still knows."""
    return (kv_room_bytes + host_bytes_per_gpu * gpus_per_replica) / kv_bytes_per_session


# --- time of one request


def flop_per_token(
    active_parameters: float, layers: float, heads: float, head_dim: float, prompt_tokens: float
) -> float:
    """FLOP: two for each active weight, and attention to half of the prompt on average (Kaplan et al., 2020, section 2.1)."""
    return 2 * active_parameters + 2 * layers * heads * head_dim * prompt_tokens


def prefill_tokens_per_s(
    gpus_per_replica: float, gpu_flops: float, prefill_efficiency: float, flop_per_token: float
) -> float:
    """tokens/s: that a replica can take in; arithmetic binds (roofline)."""
    return gpus_per_replica * gpu_flops * prefill_efficiency / flop_per_token


def read_bytes(weights_bytes: float, active_parameters: float, parameters: float, batch: float) -> float:
    """bytes: weights that one step reads; of a mixture of experts no more than its batch can touch."""
    return weights_bytes * min(1, active_parameters * batch / parameters)


def step_s(
    read_bytes: float,
    batch: float,
    kv_bytes_per_session: float,
    gpus_per_replica: float,
    gpu_bandwidth: float,
    decode_efficiency: float,
    flop_per_token: float,
    gpu_flops: float,
    prefill_efficiency: float,
    step_overhead_s: float,
) -> float:
    """s: one decoding step of a whole batch; reading weights and caches binds, or arithmetic where the batch is large (roofline)."""
    reading = (read_bytes + batch * kv_bytes_per_session) / (gpus_per_replica * gpu_bandwidth * decode_efficiency)
    reckoning = batch * flop_per_token / (gpus_per_replica * gpu_flops * prefill_efficiency)
    return max(reading, reckoning) + step_overhead_s


def tokens_per_step(draft_tokens: float, draft_acceptance: float) -> float:
    """tokens: that a step yields when each drafted one is taken with the same chance (Leviathan et al., 2023, equation 1)."""
    if draft_acceptance >= 1:
        return draft_tokens + 1
    return (1 - draft_acceptance ** (draft_tokens + 1)) / (1 - draft_acceptance)


def tpot_s(step_s: float, tokens_per_step: float, draft_tokens: float, draft_step_share: float) -> float:
    """s: per token of an answer; a drafted token costs `draft_step_share` of a step."""
    return step_s * (1 + draft_tokens * draft_step_share) / tokens_per_step


def warm_tokens(new_tokens: float, prompt_tokens: float) -> float:
    """tokens: computed where the session's prefix is still there."""
    return min(new_tokens, prompt_tokens)


def partial_tokens(prompt_tokens: float, shared_tokens: float, warm_tokens: float) -> float:
    """tokens: computed where only what a repository shares is there."""
    return max(prompt_tokens - shared_tokens, warm_tokens)


def partial_share(warm_share: float, shared_share: float) -> float:
    """share: of requests that find what a repository shares, and no more."""
    return (1 - warm_share) * shared_share


def computed_tokens(
    warm_share: float, warm_tokens: float, partial_share: float, partial_tokens: float, prompt_tokens: float
) -> float:
    """tokens: computed for one request on average."""
    return warm_share * warm_tokens + partial_share * partial_tokens + (1 - warm_share - partial_share) * prompt_tokens


def warm_s(
    network_s: float, overhead_s: float, warm_tokens: float, prefill_tokens_per_s: float, step_s: float
) -> float:
    """s: first token where the session's prefix is there and nobody waits; the step that computes its last token yields it."""
    return network_s + overhead_s + max(warm_tokens / prefill_tokens_per_s, step_s)


def partial_s(
    network_s: float, overhead_s: float, partial_tokens: float, prefill_tokens_per_s: float, step_s: float
) -> float:
    """s: first token where only the shared part is there and nobody waits."""
    return network_s + overhead_s + max(partial_tokens / prefill_tokens_per_s, step_s)


def cold_s(
    network_s: float, overhead_s: float, prompt_tokens: float, prefill_tokens_per_s: float, step_s: float
) -> float:
    """s: first token where nothing is there and nobody waits."""
    return network_s + overhead_s + max(prompt_tokens / prefill_tokens_per_s, step_s)


# --- prompts beside answers, or on servers of their own


def ridge_tokens(
    read_bytes: float,
    gpus_per_replica: float,
    gpu_bandwidth: float,
    decode_efficiency: float,
    prefill_tokens_per_s: float,
) -> float:
    """tokens: of a step whose arithmetic takes as long as reading the weights (roofline); in smaller steps prompts cost more."""
    return read_bytes / (gpus_per_replica * gpu_bandwidth * decode_efficiency) * prefill_tokens_per_s


def chunk_tokens_most(pause_objective_s: float, step_s: float, prefill_tokens_per_s: float) -> float:
    """tokens: of a prompt in one step, at most, so that no answer beside it pauses too long (Agrawal et al., "Sarathi-Serve", 2024)."""
    return max(0, pause_objective_s - step_s) * prefill_tokens_per_s


def hand_over_s(prompt_tokens: float, kv_bytes_per_token: float, hand_over_bytes_per_s: float) -> float:
    """s: that a whole prompt's keys and values are under way to another server."""
    return prompt_tokens * kv_bytes_per_token / hand_over_bytes_per_s


def split_could_pay(
    chunk_tokens_most: float, ridge_tokens: float, cold_s: float, hand_over_s: float, objective_s: float
) -> float:
    """1 or 0: whether steps short enough for answers waste arithmetic, and a prompt still comes over in time (Zhong et al., "DistServe", 2024)."""
    wasteful = chunk_tokens_most > 0 and chunk_tokens_most < ridge_tokens
    return 1.0 if wasteful and cold_s + hand_over_s <= objective_s else 0.0


# --- what a replica can do


def prefill_busy_s(computed_tokens: float, prefill_tokens_per_s: float) -> float:
    """s: of a replica, for one request's prompt."""
    return computed_tokens / prefill_tokens_per_s


def decode_busy_s(output_tokens: float, tpot_s: float, batch: float) -> float:
    """s: of a replica, for one request's answer, when its batch is full."""
    return output_tokens * tpot_s / batch


def busy_s(prefill_busy_s: float, decode_busy_s: float) -> float:
    """s: of a replica, for one request."""
    return prefill_busy_s + decode_busy_s


def queue_s(
    computed_tokens: float,
    warm_share: float,
    warm_tokens: float,
    partial_share: float,
    partial_tokens: float,
    prompt_tokens: float,
    prefill_tokens_per_s: float,
    step_s: float,
) -> float:
    """s: mean residual of the prompt that is being computed when another comes: E[S²] / 2 E[S] (Pollaczek-Khinchine), and of a step."""
    square = (
        warm_share * warm_tokens**2
        + partial_share * partial_tokens**2
        + (1 - warm_share - partial_share) * prompt_tokens**2
    )
    return square / (2 * computed_tokens) / prefill_tokens_per_s + step_s / 2


def reachable(
    objective_s: float,
    objective_share: float,
    warm_share: float,
    warm_s: float,
    partial_share: float,
    partial_s: float,
    cold_s: float,
) -> float:
    """1 or 0: whether `objective_share` of first tokens come in time where nobody ever waits."""
    late = 0.0
    if warm_s > objective_s:
        late = late + warm_share
    if partial_s > objective_s:
        late = late + partial_share
    if cold_s > objective_s:
        late = late + 1 - warm_share - partial_share
    return 1.0 if late <= 1 - objective_share else 0.0


def utilisation(
    objective_s: float,
    objective_share: float,
    most_utilisation: float,
    reachable: float,
    warm_share: float,
    warm_s: float,
    partial_share: float,
    partial_s: float,
    cold_s: float,
    queue_s: float,
) -> float:
    """share: of its time that a replica may be busy, so that queues leave `objective_share` in time (where that can be at all)."""
    low = 0.0
    high = most_utilisation
    if reachable < 1:
        low = most_utilisation
    for _ in range(40):
        middle = (low + high) / 2
        wait = queue_s / (1 - middle)
        late = _beyond(objective_s, warm_share, warm_s, partial_share, partial_s, cold_s, middle, wait)
        if late > 1 - objective_share:
            high = middle
        else:
            low = middle
    return max(low, 0.001)


def residence_s(
    warm_share: float,
    warm_s: float,
    partial_share: float,
    partial_s: float,
    cold_s: float,
    network_s: float,
    output_tokens: float,
    tpot_s: float,
) -> float:
    """s: of a request in a replica, without its way."""
    first = warm_share * warm_s + partial_share * partial_s + (1 - warm_share - partial_share) * cold_s - network_s
    return first + output_tokens * tpot_s


def most_by_time(utilisation: float, busy_s: float) -> float:
    """requests/s: of one replica, by its time."""
    return utilisation / busy_s


def most_by_memory(kv_room_bytes: float, kv_bytes_per_session: float, residence_s: float) -> float:
    """requests/s: of one replica, by the sessions that its memory holds while they run (Little)."""
    return kv_room_bytes / kv_bytes_per_session / residence_s


def most_by_residence(
    remembered_per_replica: float, requests_per_developer_s: float, remembered_per_developer: float
) -> float:
    """requests/s: of one replica, by the developers whose prefix it remembers; nobody need be remembered where that is 0."""
    if remembered_per_developer <= 0:
        return 1e12
    return remembered_per_replica / remembered_per_developer * requests_per_developer_s


def most_per_replica(most_by_time: float, most_by_memory: float, most_by_residence: float) -> float:
    """requests/s: of one replica, by the wall that binds."""
    return min(most_by_time, most_by_memory, most_by_residence)


def wall(
    reachable: float,
    network_s: float,
    objective_s: float,
    most_by_time: float,
    most_by_memory: float,
    most_by_residence: float,
    utilisation: float,
    most_utilisation: float,
    prefill_busy_s: float,
    decode_busy_s: float,
) -> float:
    """number: of the wall that binds: 0 compute, 1 bandwidth, 2 memory, 3 queue, 4 network."""
    late = 4.0 if network_s > objective_s / 2 else 0.0
    busy = 0.0 if prefill_busy_s > decode_busy_s else 1.0
    idle = 3.0 if utilisation < most_utilisation * 0.99 else busy
    met = 2.0 if min(most_by_memory, most_by_residence) < most_by_time else idle
    return met if reachable >= 1 else late


# --- demand and fleet


def requests_per_developer_s(keys_per_hour: float, requests_per_key: float) -> float:
    """requests/s: of one developer who is typing."""
    return keys_per_hour * requests_per_key / 3600


def peak_rate(developers: float, peak_active_share: float, requests_per_developer_s: float) -> float:
    """requests/s: in the busiest hour."""
    return developers * peak_active_share * requests_per_developer_s


def mean_rate(developers: float, mean_active_share: float, requests_per_developer_s: float) -> float:
    """requests/s: over the day."""
    return developers * mean_active_share * requests_per_developer_s


def requests_per_day(mean_rate: float) -> float:
    """requests: of a working day."""
    return mean_rate * 86400


def in_flight(peak_rate: float, residence_s: float) -> float:
    """requests: under way in the busiest hour (Little)."""
    return peak_rate * residence_s


def replicas_peak(peak_rate: float, most_per_replica: float, regions: float) -> float:
    """replicas: for the busiest hour, one in each region at least."""
    return max(regions, ceil(peak_rate / most_per_replica))


def gpus_peak(replicas_peak: float, gpus_per_replica: float) -> float:
    """GPUs: for the busiest hour."""
    return replicas_peak * gpus_per_replica


def gpus_mean(mean_rate: float, most_per_replica: float, gpus_per_replica: float, regions: float) -> float:
    """GPUs: that the day's mean needs, one replica in each region at least."""
    return max(regions, ceil(mean_rate / most_per_replica)) * gpus_per_replica


def gpus_with_failure(replicas_peak: float, gpus_per_replica: float, gpus_per_node: float, regions: float) -> float:
    """GPUs: for the busiest hour, with one node down in each region."""
    lost = max(1, min(ceil(replicas_peak / regions), ceil(gpus_per_node / gpus_per_replica)))
    return (replicas_peak + lost * regions) * gpus_per_replica


def load(peak_rate: float, replicas_peak: float, busy_s: float) -> float:
    """share: of its time that a replica is busy in the busiest hour."""
    return min(0.999, peak_rate / replicas_peak * busy_s)


def ttft_p50_s(
    warm_share: float, warm_s: float, partial_share: float, partial_s: float, cold_s: float, load: float, queue_s: float
) -> float:
    """s: first token in the busiest hour, half of requests."""
    return _quantile(0.5, warm_share, warm_s, partial_share, partial_s, cold_s, load, queue_s / (1 - load))


def ttft_p95_s(
    warm_share: float, warm_s: float, partial_share: float, partial_s: float, cold_s: float, load: float, queue_s: float
) -> float:
    """s: first token in the busiest hour, 95 % of requests."""
    return _quantile(0.95, warm_share, warm_s, partial_share, partial_s, cold_s, load, queue_s / (1 - load))


def ttft_p99_s(
    warm_share: float, warm_s: float, partial_share: float, partial_s: float, cold_s: float, load: float, queue_s: float
) -> float:
    """s: first token in the busiest hour, 99 % of requests."""
    return _quantile(0.99, warm_share, warm_s, partial_share, partial_s, cold_s, load, queue_s / (1 - load))


# --- money


def cost_month_fixed(gpus_with_failure: float, gpu_price_per_hour: float) -> float:
    """money: of a month (730 hours) with the busiest hour's fleet all the time."""
    return gpus_with_failure * gpu_price_per_hour * 730


def cost_month(gpus_with_failure: float, gpu_price_per_hour: float, billed_share: float) -> float:
    """money: of a month whose fleet follows the day; `billed_share` is the mean fleet by the greatest."""
    return gpus_with_failure * gpu_price_per_hour * 730 * billed_share


def accepted_per_month(
    requests_per_day: float, working_days: float, shown_share: float, acceptance: float, output_tokens: float
) -> float:
    """tokens: accepted in a month."""
    return requests_per_day * working_days * shown_share * acceptance * output_tokens


def cost_per_1k_accepted(cost_month: float, accepted_per_month: float) -> float:
    """money: by a thousand accepted tokens."""
    return cost_month / accepted_per_month * 1000
