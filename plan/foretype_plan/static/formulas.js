// Made of formulas.py by `make plan-page`: do not edit.
'use strict';
const ceil = Math.ceil, exp = Math.exp;
var _pyfunc_op_add = function (a, b) { // nargs: 2
    if (Array.isArray(a) && Array.isArray(b)) {
        return a.concat(b);
    } return a + b;
};
var _pyfunc_op_mult = function (a, b) { // nargs: 2
    if ((typeof a === 'number') + (typeof b === 'number') === 1) {
        if (a.constructor === String) return _pymeth_repeat.call(a, b);
        if (b.constructor === String) return _pymeth_repeat.call(b, a);
        if (Array.isArray(b)) {var t=a; a=b; b=t;}
        if (Array.isArray(a)) {
            var res = []; for (var i=0; i<b; i++) res = res.concat(a);
            return res;
        }
    } return a * b;
};
var _pyfunc_truthy = function (v) {
    if (v === null || typeof v !== "object") {return v;}
    else if (v.length !== undefined) {return v.length ? v : false;}
    else if (v.byteLength !== undefined) {return v.byteLength ? v : false;}
    else if (v.constructor !== Object) {return true;}
    else {return Object.getOwnPropertyNames(v).length ? v : false;}
};
var _pymeth_repeat = function(count) { // nargs: 0
    if (this.repeat) return this.repeat(count);
    if (count < 1) return '';
    var result = '', pattern = this.valueOf();
    while (count > 1) {
        if (count & 1) result += pattern;
        count >>= 1, pattern += pattern;
    }
    return result + pattern;
};
var _beyond, _quantile, accepted_per_month, busy_s, chunk_tokens_most, cold_s, computed_tokens, cost_month, cost_month_fixed, cost_per_1k_accepted, decode_busy_s, flop_per_token, gpus_mean, gpus_peak, gpus_with_failure, hand_over_s, in_flight, kv_bytes_per_session, kv_bytes_per_token, kv_room_bytes, load, mean_rate, most_by_memory, most_by_residence, most_by_time, most_per_replica, partial_s, partial_share, partial_tokens, peak_rate, prefill_busy_s, prefill_tokens_per_s, queue_s, reachable, read_bytes, remembered_per_replica, replicas_of_hour, replicas_peak, requests_per_day, requests_per_developer_s, residence_s, ridge_tokens, session_tokens, sessions_per_gpu, split_could_pay, step_s, tokens_per_step, tpot_s, ttft_p50_s, ttft_p95_s, ttft_p99_s, utilisation, wall, warm_s, warm_tokens, weights_bytes;
_beyond = function flx__beyond (t, warm_share, warm, partial_share, partial, cold, busy, wait) {
    var cold_share, late;
    late = 0.0;
    if ((t < warm)) {
        late = _pyfunc_op_add(late, warm_share);
    } else {
        late = _pyfunc_op_add(late, (_pyfunc_op_mult(_pyfunc_op_mult(warm_share, busy), (exp((-(t - warm)) / wait)))));
    }
    if ((t < partial)) {
        late = _pyfunc_op_add(late, partial_share);
    } else {
        late = _pyfunc_op_add(late, (_pyfunc_op_mult(_pyfunc_op_mult(partial_share, busy), (exp((-(t - partial)) / wait)))));
    }
    cold_share = (1 - warm_share) - partial_share;
    if ((t < cold)) {
        late = _pyfunc_op_add(late, cold_share);
    } else {
        late = _pyfunc_op_add(late, (_pyfunc_op_mult(_pyfunc_op_mult(cold_share, busy), (exp((-(t - cold)) / wait)))));
    }
    return late;
};

_quantile = function flx__quantile (q, warm_share, warm, partial_share, partial, cold, busy, wait) {
    var _, high, low, middle;
    low = 0.0;
    high = _pyfunc_op_add((_pyfunc_op_add(_pyfunc_op_add(cold, partial), warm)), _pyfunc_op_mult(wait, 50));
    for (_ = 0; _ < 60; _ += 1) {
        middle = _pyfunc_op_add(low, high) / 2;
        if ((_beyond(middle, warm_share, warm, partial_share, partial, cold, busy, wait) > (1 - q))) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return high;
};

replicas_of_hour = function flx_replicas_of_hour (active_share, developers, requests_per_developer_s, headroom, most_per_replica, regions) {
    var rate;
    rate = _pyfunc_op_mult(_pyfunc_op_mult(developers, active_share), requests_per_developer_s);
    return Math.max(regions, (ceil((_pyfunc_op_mult(rate, (1 + headroom))) / most_per_replica)));
};

weights_bytes = function flx_weights_bytes (parameters, weight_bits) {
    return _pyfunc_op_mult(parameters, weight_bits) / 8;
};

kv_bytes_per_token = function flx_kv_bytes_per_token (layers, kv_heads, head_dim, kv_bits) {
    return (_pyfunc_op_mult((_pyfunc_op_mult((_pyfunc_op_mult(_pyfunc_op_mult(2, layers), kv_heads)), head_dim)), kv_bits)) / 8;
};

kv_room_bytes = function flx_kv_room_bytes (gpus_per_replica, gpu_memory_bytes, memory_share, weights_bytes, reserved_bytes) {
    return (_pyfunc_op_mult(gpus_per_replica, (_pyfunc_op_mult(gpu_memory_bytes, memory_share) - reserved_bytes))) - weights_bytes;
};

session_tokens = function flx_session_tokens (prompt_tokens, output_tokens) {
    return _pyfunc_op_add(prompt_tokens, output_tokens);
};

kv_bytes_per_session = function flx_kv_bytes_per_session (session_tokens, kv_bytes_per_token) {
    return _pyfunc_op_mult(session_tokens, kv_bytes_per_token);
};

sessions_per_gpu = function flx_sessions_per_gpu (kv_room_bytes, kv_bytes_per_session, gpus_per_replica) {
    return (kv_room_bytes / kv_bytes_per_session) / gpus_per_replica;
};

remembered_per_replica = function flx_remembered_per_replica (kv_room_bytes, host_bytes_per_gpu, gpus_per_replica, kv_bytes_per_session) {
    return (_pyfunc_op_add(kv_room_bytes, _pyfunc_op_mult(host_bytes_per_gpu, gpus_per_replica))) / kv_bytes_per_session;
};

flop_per_token = function flx_flop_per_token (active_parameters, layers, heads, head_dim, prompt_tokens) {
    return _pyfunc_op_add(_pyfunc_op_mult(2, active_parameters), (_pyfunc_op_mult((_pyfunc_op_mult((_pyfunc_op_mult(_pyfunc_op_mult(2, layers), heads)), head_dim)), prompt_tokens)));
};

prefill_tokens_per_s = function flx_prefill_tokens_per_s (gpus_per_replica, gpu_flops, prefill_efficiency, flop_per_token) {
    return (_pyfunc_op_mult(_pyfunc_op_mult(gpus_per_replica, gpu_flops), prefill_efficiency)) / flop_per_token;
};

read_bytes = function flx_read_bytes (weights_bytes, active_parameters, parameters, batch) {
    return _pyfunc_op_mult(weights_bytes, (Math.min(1, (_pyfunc_op_mult(active_parameters, batch) / parameters))));
};

step_s = function flx_step_s (read_bytes, batch, kv_bytes_per_session, gpus_per_replica, gpu_bandwidth, decode_efficiency, flop_per_token, gpu_flops, prefill_efficiency, step_overhead_s) {
    var reading, reckoning;
    reading = (_pyfunc_op_add(read_bytes, _pyfunc_op_mult(batch, kv_bytes_per_session))) / (_pyfunc_op_mult(_pyfunc_op_mult(gpus_per_replica, gpu_bandwidth), decode_efficiency));
    reckoning = _pyfunc_op_mult(batch, flop_per_token) / (_pyfunc_op_mult(_pyfunc_op_mult(gpus_per_replica, gpu_flops), prefill_efficiency));
    return _pyfunc_op_add(Math.max(reading, reckoning), step_overhead_s);
};

tokens_per_step = function flx_tokens_per_step (draft_tokens, draft_acceptance) {
    if ((draft_acceptance >= 1)) {
        return draft_tokens + 1;
    }
    return (1 - (Math.pow(draft_acceptance, (draft_tokens + 1)))) / (1 - draft_acceptance);
};

tpot_s = function flx_tpot_s (step_s, tokens_per_step, draft_tokens, draft_step_share) {
    return (_pyfunc_op_mult(step_s, (1 + _pyfunc_op_mult(draft_tokens, draft_step_share)))) / tokens_per_step;
};

warm_tokens = function flx_warm_tokens (new_tokens, prompt_tokens) {
    return Math.min(new_tokens, prompt_tokens);
};

partial_tokens = function flx_partial_tokens (prompt_tokens, shared_tokens, warm_tokens) {
    return Math.max((prompt_tokens - shared_tokens), warm_tokens);
};

partial_share = function flx_partial_share (warm_share, shared_share) {
    return _pyfunc_op_mult((1 - warm_share), shared_share);
};

computed_tokens = function flx_computed_tokens (warm_share, warm_tokens, partial_share, partial_tokens, prompt_tokens) {
    return _pyfunc_op_add((_pyfunc_op_add(_pyfunc_op_mult(warm_share, warm_tokens), _pyfunc_op_mult(partial_share, partial_tokens))), (_pyfunc_op_mult(((1 - warm_share) - partial_share), prompt_tokens)));
};

warm_s = function flx_warm_s (network_s, overhead_s, warm_tokens, prefill_tokens_per_s, step_s) {
    return _pyfunc_op_add(_pyfunc_op_add(network_s, overhead_s), (Math.max((warm_tokens / prefill_tokens_per_s), step_s)));
};

partial_s = function flx_partial_s (network_s, overhead_s, partial_tokens, prefill_tokens_per_s, step_s) {
    return _pyfunc_op_add(_pyfunc_op_add(network_s, overhead_s), (Math.max((partial_tokens / prefill_tokens_per_s), step_s)));
};

cold_s = function flx_cold_s (network_s, overhead_s, prompt_tokens, prefill_tokens_per_s, step_s) {
    return _pyfunc_op_add(_pyfunc_op_add(network_s, overhead_s), (Math.max((prompt_tokens / prefill_tokens_per_s), step_s)));
};

ridge_tokens = function flx_ridge_tokens (read_bytes, gpus_per_replica, gpu_bandwidth, decode_efficiency, prefill_tokens_per_s) {
    return _pyfunc_op_mult((read_bytes / (_pyfunc_op_mult(_pyfunc_op_mult(gpus_per_replica, gpu_bandwidth), decode_efficiency))), prefill_tokens_per_s);
};

chunk_tokens_most = function flx_chunk_tokens_most (pause_objective_s, step_s, prefill_tokens_per_s) {
    return _pyfunc_op_mult((Math.max(0, (pause_objective_s - step_s))), prefill_tokens_per_s);
};

hand_over_s = function flx_hand_over_s (prompt_tokens, kv_bytes_per_token, hand_over_bytes_per_s) {
    return _pyfunc_op_mult(prompt_tokens, kv_bytes_per_token) / hand_over_bytes_per_s;
};

split_could_pay = function flx_split_could_pay (chunk_tokens_most, ridge_tokens, cold_s, hand_over_s, objective_s) {
    var wasteful;
    wasteful = (chunk_tokens_most > 0) && (chunk_tokens_most < ridge_tokens);
    return ((_pyfunc_truthy(wasteful) && ((_pyfunc_op_add(cold_s, hand_over_s) <= objective_s))))? (1.0) : (0.0);
};

prefill_busy_s = function flx_prefill_busy_s (computed_tokens, prefill_tokens_per_s) {
    return computed_tokens / prefill_tokens_per_s;
};

decode_busy_s = function flx_decode_busy_s (output_tokens, tpot_s, batch) {
    return _pyfunc_op_mult(output_tokens, tpot_s) / batch;
};

busy_s = function flx_busy_s (prefill_busy_s, decode_busy_s) {
    return _pyfunc_op_add(prefill_busy_s, decode_busy_s);
};

queue_s = function flx_queue_s (computed_tokens, warm_share, warm_tokens, partial_share, partial_tokens, prompt_tokens, prefill_tokens_per_s, step_s) {
    var square;
    square = _pyfunc_op_add((_pyfunc_op_add((_pyfunc_op_mult(warm_share, Math.pow(warm_tokens, 2))), (_pyfunc_op_mult(partial_share, Math.pow(partial_tokens, 2))))), (_pyfunc_op_mult(((1 - warm_share) - partial_share), Math.pow(prompt_tokens, 2))));
    return _pyfunc_op_add(((square / _pyfunc_op_mult(2, computed_tokens)) / prefill_tokens_per_s), (step_s / 2));
};

reachable = function flx_reachable (objective_s, objective_share, warm_share, warm_s, partial_share, partial_s, cold_s) {
    var late;
    late = 0.0;
    if ((warm_s > objective_s)) {
        late = _pyfunc_op_add(late, warm_share);
    }
    if ((partial_s > objective_s)) {
        late = _pyfunc_op_add(late, partial_share);
    }
    if ((cold_s > objective_s)) {
        late = ((late + 1) - warm_share) - partial_share;
    }
    return ((late <= (1 - objective_share)))? (1.0) : (0.0);
};

utilisation = function flx_utilisation (objective_s, objective_share, most_utilisation, reachable, warm_share, warm_s, partial_share, partial_s, cold_s, queue_s) {
    var _, high, late, low, middle, wait;
    low = 0.0;
    high = most_utilisation;
    if ((reachable < 1)) {
        low = most_utilisation;
    }
    for (_ = 0; _ < 40; _ += 1) {
        middle = _pyfunc_op_add(low, high) / 2;
        wait = queue_s / (1 - middle);
        late = _beyond(objective_s, warm_share, warm_s, partial_share, partial_s, cold_s, middle, wait);
        if ((late > (1 - objective_share))) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return Math.max(low, 0.001);
};

residence_s = function flx_residence_s (warm_share, warm_s, partial_share, partial_s, cold_s, network_s, output_tokens, tpot_s) {
    var first;
    first = (_pyfunc_op_add((_pyfunc_op_add(_pyfunc_op_mult(warm_share, warm_s), _pyfunc_op_mult(partial_share, partial_s))), (_pyfunc_op_mult(((1 - warm_share) - partial_share), cold_s)))) - network_s;
    return _pyfunc_op_add(first, _pyfunc_op_mult(output_tokens, tpot_s));
};

most_by_time = function flx_most_by_time (utilisation, busy_s) {
    return utilisation / busy_s;
};

most_by_memory = function flx_most_by_memory (kv_room_bytes, kv_bytes_per_session, residence_s) {
    return (kv_room_bytes / kv_bytes_per_session) / residence_s;
};

most_by_residence = function flx_most_by_residence (remembered_per_replica, requests_per_developer_s, remembered_per_developer) {
    if ((remembered_per_developer <= 0)) {
        return 1000000000000.0;
    }
    return _pyfunc_op_mult((remembered_per_replica / remembered_per_developer), requests_per_developer_s);
};

most_per_replica = function flx_most_per_replica (most_by_time, most_by_memory, most_by_residence) {
    return Math.min(most_by_time, most_by_memory, most_by_residence);
};

wall = function flx_wall (reachable, network_s, objective_s, most_by_time, most_by_memory, most_by_residence, utilisation, most_utilisation, prefill_busy_s, decode_busy_s) {
    var busy, idle, late, met;
    late = ((network_s > (objective_s / 2)))? (4.0) : (0.0);
    busy = ((prefill_busy_s > decode_busy_s))? (0.0) : (1.0);
    idle = ((utilisation < _pyfunc_op_mult(most_utilisation, 0.99)))? (3.0) : (busy);
    met = ((Math.min(most_by_memory, most_by_residence) < most_by_time))? (2.0) : (idle);
    return ((reachable >= 1))? (met) : (late);
};

requests_per_developer_s = function flx_requests_per_developer_s (keys_per_hour, requests_per_key) {
    return _pyfunc_op_mult(keys_per_hour, requests_per_key) / 3600;
};

peak_rate = function flx_peak_rate (developers, peak_active_share, requests_per_developer_s) {
    return _pyfunc_op_mult(_pyfunc_op_mult(developers, peak_active_share), requests_per_developer_s);
};

mean_rate = function flx_mean_rate (developers, mean_active_share, requests_per_developer_s) {
    return _pyfunc_op_mult(_pyfunc_op_mult(developers, mean_active_share), requests_per_developer_s);
};

requests_per_day = function flx_requests_per_day (mean_rate) {
    return _pyfunc_op_mult(mean_rate, 86400);
};

in_flight = function flx_in_flight (peak_rate, residence_s) {
    return _pyfunc_op_mult(peak_rate, residence_s);
};

replicas_peak = function flx_replicas_peak (peak_rate, most_per_replica, regions) {
    return Math.max(regions, ceil(peak_rate / most_per_replica));
};

gpus_peak = function flx_gpus_peak (replicas_peak, gpus_per_replica) {
    return _pyfunc_op_mult(replicas_peak, gpus_per_replica);
};

gpus_mean = function flx_gpus_mean (mean_rate, most_per_replica, gpus_per_replica, regions) {
    return _pyfunc_op_mult((Math.max(regions, ceil(mean_rate / most_per_replica))), gpus_per_replica);
};

gpus_with_failure = function flx_gpus_with_failure (replicas_peak, gpus_per_replica, gpus_per_node, regions) {
    var lost;
    lost = Math.max(1, (Math.min(ceil(replicas_peak / regions), ceil(gpus_per_node / gpus_per_replica))));
    return _pyfunc_op_mult((_pyfunc_op_add(replicas_peak, _pyfunc_op_mult(lost, regions))), gpus_per_replica);
};

load = function flx_load (peak_rate, replicas_peak, busy_s) {
    return Math.min(0.999, (_pyfunc_op_mult((peak_rate / replicas_peak), busy_s)));
};

ttft_p50_s = function flx_ttft_p50_s (warm_share, warm_s, partial_share, partial_s, cold_s, load, queue_s) {
    return _quantile(0.5, warm_share, warm_s, partial_share, partial_s, cold_s, load, queue_s / (1 - load));
};

ttft_p95_s = function flx_ttft_p95_s (warm_share, warm_s, partial_share, partial_s, cold_s, load, queue_s) {
    return _quantile(0.95, warm_share, warm_s, partial_share, partial_s, cold_s, load, queue_s / (1 - load));
};

ttft_p99_s = function flx_ttft_p99_s (warm_share, warm_s, partial_share, partial_s, cold_s, load, queue_s) {
    return _quantile(0.99, warm_share, warm_s, partial_share, partial_s, cold_s, load, queue_s / (1 - load));
};

cost_month_fixed = function flx_cost_month_fixed (gpus_with_failure, gpu_price_per_hour) {
    return _pyfunc_op_mult(_pyfunc_op_mult(gpus_with_failure, gpu_price_per_hour), 730);
};

cost_month = function flx_cost_month (gpus_with_failure, gpu_price_per_hour, billed_share) {
    return _pyfunc_op_mult((_pyfunc_op_mult(_pyfunc_op_mult(gpus_with_failure, gpu_price_per_hour), 730)), billed_share);
};

accepted_per_month = function flx_accepted_per_month (requests_per_day, working_days, shown_share, acceptance, output_tokens) {
    return _pyfunc_op_mult((_pyfunc_op_mult((_pyfunc_op_mult(_pyfunc_op_mult(requests_per_day, working_days), shown_share)), acceptance)), output_tokens);
};

cost_per_1k_accepted = function flx_cost_per_1k_accepted (cost_month, accepted_per_month) {
    return _pyfunc_op_mult((cost_month / accepted_per_month), 1000);
};
const FUNCTIONS = {weights_bytes, kv_bytes_per_token, session_tokens, flop_per_token, tokens_per_step, warm_tokens, partial_share, requests_per_developer_s, kv_room_bytes, read_bytes, hand_over_s, kv_bytes_per_session, prefill_tokens_per_s, partial_tokens, peak_rate, mean_rate, sessions_per_gpu, remembered_per_replica, step_s, ridge_tokens, computed_tokens, requests_per_day, most_by_residence, tpot_s, warm_s, partial_s, cold_s, chunk_tokens_most, prefill_busy_s, queue_s, accepted_per_month, decode_busy_s, reachable, residence_s, split_could_pay, busy_s, utilisation, most_by_memory, in_flight, most_by_time, most_per_replica, wall, replicas_peak, gpus_mean, gpus_peak, gpus_with_failure, load, cost_month_fixed, cost_month, ttft_p50_s, ttft_p95_s, ttft_p99_s, cost_per_1k_accepted};
const QUANTITIES = [
["weights_bytes", "bytes", "parameters times their width.", "parameters * weight_bits / 8", ["parameters", "weight_bits"]],
["kv_bytes_per_token", "bytes", "a key and a value for each layer and head (Kwon et al., \"PagedAttention\", 2023).", "2 * layers * kv_heads * head_dim * kv_bits / 8", ["layers", "kv_heads", "head_dim", "kv_bits"]],
["session_tokens", "tokens", "of one session, when its answer is whole.", "prompt_tokens + output_tokens", ["prompt_tokens", "output_tokens"]],
["flop_per_token", "FLOP", "two for each active weight, and attention to half of the prompt on average (Kaplan et al., 2020, section 2.1).", "2 * active_parameters + 2 * layers * heads * head_dim * prompt_tokens", ["active_parameters", "layers", "heads", "head_dim", "prompt_tokens"]],
["tokens_per_step", "tokens", "that a step yields when each drafted one is taken with the same chance (Leviathan et al., 2023, equation 1).", "(1 - draft_acceptance ** (draft_tokens + 1)) / (1 - draft_acceptance)", ["draft_tokens", "draft_acceptance"]],
["warm_tokens", "tokens", "computed where the session's prefix is still there.", "min(new_tokens, prompt_tokens)", ["new_tokens", "prompt_tokens"]],
["partial_share", "share", "of requests that find what a repository shares, and no more.", "(1 - warm_share) * shared_share", ["warm_share", "shared_share"]],
["requests_per_developer_s", "requests/s", "of one developer who is typing.", "keys_per_hour * requests_per_key / 3600", ["keys_per_hour", "requests_per_key"]],
["kv_room_bytes", "bytes", "what of a replica's memory is left for keys and values; reserved_bytes is of one GPU.", "gpus_per_replica * (gpu_memory_bytes * memory_share - reserved_bytes) - weights_bytes", ["gpus_per_replica", "gpu_memory_bytes", "memory_share", "weights_bytes", "reserved_bytes"]],
["read_bytes", "bytes", "weights that one step reads; of a mixture of experts no more than its batch can touch.", "weights_bytes * min(1, active_parameters * batch / parameters)", ["weights_bytes", "active_parameters", "parameters", "batch"]],
["hand_over_s", "s", "that a whole prompt's keys and values are under way to another server.", "prompt_tokens * kv_bytes_per_token / hand_over_bytes_per_s", ["prompt_tokens", "kv_bytes_per_token", "hand_over_bytes_per_s"]],
["kv_bytes_per_session", "bytes", "keys and values of one session.", "session_tokens * kv_bytes_per_token", ["session_tokens", "kv_bytes_per_token"]],
["prefill_tokens_per_s", "tokens/s", "that a replica can take in; arithmetic binds (roofline).", "gpus_per_replica * gpu_flops * prefill_efficiency / flop_per_token", ["gpus_per_replica", "gpu_flops", "prefill_efficiency", "flop_per_token"]],
["partial_tokens", "tokens", "computed where only what a repository shares is there.", "max(prompt_tokens - shared_tokens, warm_tokens)", ["prompt_tokens", "shared_tokens", "warm_tokens"]],
["peak_rate", "requests/s", "in the busiest hour.", "developers * peak_active_share * requests_per_developer_s", ["developers", "peak_active_share", "requests_per_developer_s"]],
["mean_rate", "requests/s", "over the day.", "developers * mean_active_share * requests_per_developer_s", ["developers", "mean_active_share", "requests_per_developer_s"]],
["sessions_per_gpu", "sessions", "that lie in the memory of one GPU at once.", "kv_room_bytes / kv_bytes_per_session / gpus_per_replica", ["kv_room_bytes", "kv_bytes_per_session", "gpus_per_replica"]],
["remembered_per_replica", "sessions", "in GPU memory and in the host's, which a replica still knows.", "(kv_room_bytes + host_bytes_per_gpu * gpus_per_replica) / kv_bytes_per_session", ["kv_room_bytes", "host_bytes_per_gpu", "gpus_per_replica", "kv_bytes_per_session"]],
["step_s", "s", "one decoding step of a whole batch; reading weights and caches binds, or arithmetic where the batch is large (roofline).", "max((read_bytes + batch * kv_bytes_per_session) / (gpus_per_replica * gpu_bandwidth * decode_efficiency), batch * flop_per_token / (gpus_per_replica * gpu_flops * prefill_efficiency)) + step_overhead_s", ["read_bytes", "batch", "kv_bytes_per_session", "gpus_per_replica", "gpu_bandwidth", "decode_efficiency", "flop_per_token", "gpu_flops", "prefill_efficiency", "step_overhead_s"]],
["ridge_tokens", "tokens", "of a step whose arithmetic takes as long as reading the weights (roofline); in smaller steps prompts cost more.", "read_bytes / (gpus_per_replica * gpu_bandwidth * decode_efficiency) * prefill_tokens_per_s", ["read_bytes", "gpus_per_replica", "gpu_bandwidth", "decode_efficiency", "prefill_tokens_per_s"]],
["computed_tokens", "tokens", "computed for one request on average.", "warm_share * warm_tokens + partial_share * partial_tokens + (1 - warm_share - partial_share) * prompt_tokens", ["warm_share", "warm_tokens", "partial_share", "partial_tokens", "prompt_tokens"]],
["requests_per_day", "requests", "of a working day.", "mean_rate * 86400", ["mean_rate"]],
["most_by_residence", "requests/s", "of one replica, by the developers whose prefix it remembers; nobody need be remembered where that is 0.", "remembered_per_replica / remembered_per_developer * requests_per_developer_s", ["remembered_per_replica", "requests_per_developer_s", "remembered_per_developer"]],
["tpot_s", "s", "per token of an answer; a drafted token costs `draft_step_share` of a step.", "step_s * (1 + draft_tokens * draft_step_share) / tokens_per_step", ["step_s", "tokens_per_step", "draft_tokens", "draft_step_share"]],
["warm_s", "s", "first token where the session's prefix is there and nobody waits; the step that computes its last token yields it.", "network_s + overhead_s + max(warm_tokens / prefill_tokens_per_s, step_s)", ["network_s", "overhead_s", "warm_tokens", "prefill_tokens_per_s", "step_s"]],
["partial_s", "s", "first token where only the shared part is there and nobody waits.", "network_s + overhead_s + max(partial_tokens / prefill_tokens_per_s, step_s)", ["network_s", "overhead_s", "partial_tokens", "prefill_tokens_per_s", "step_s"]],
["cold_s", "s", "first token where nothing is there and nobody waits.", "network_s + overhead_s + max(prompt_tokens / prefill_tokens_per_s, step_s)", ["network_s", "overhead_s", "prompt_tokens", "prefill_tokens_per_s", "step_s"]],
["chunk_tokens_most", "tokens", "of a prompt in one step, at most, so that no answer beside it pauses too long (Agrawal et al., \"Sarathi-Serve\", 2024).", "max(0, pause_objective_s - step_s) * prefill_tokens_per_s", ["pause_objective_s", "step_s", "prefill_tokens_per_s"]],
["prefill_busy_s", "s", "of a replica, for one request's prompt.", "computed_tokens / prefill_tokens_per_s", ["computed_tokens", "prefill_tokens_per_s"]],
["queue_s", "s", "mean residual of the prompt that is being computed when another comes: E[S²] / 2 E[S] (Pollaczek-Khinchine), and of a step.", "(warm_share * warm_tokens ** 2 + partial_share * partial_tokens ** 2 + (1 - warm_share - partial_share) * prompt_tokens ** 2) / (2 * computed_tokens) / prefill_tokens_per_s + step_s / 2", ["computed_tokens", "warm_share", "warm_tokens", "partial_share", "partial_tokens", "prompt_tokens", "prefill_tokens_per_s", "step_s"]],
["accepted_per_month", "tokens", "accepted in a month.", "requests_per_day * working_days * shown_share * acceptance * output_tokens", ["requests_per_day", "working_days", "shown_share", "acceptance", "output_tokens"]],
["decode_busy_s", "s", "of a replica, for one request's answer, when its batch is full.", "output_tokens * tpot_s / batch", ["output_tokens", "tpot_s", "batch"]],
["reachable", "1 or 0", "whether `objective_share` of first tokens come in time where nobody ever waits.", "1.0 if 0.0 <= 1 - objective_share else 0.0", ["objective_s", "objective_share", "warm_share", "warm_s", "partial_share", "partial_s", "cold_s"]],
["residence_s", "s", "of a request in a replica, without its way.", "warm_share * warm_s + partial_share * partial_s + (1 - warm_share - partial_share) * cold_s - network_s + output_tokens * tpot_s", ["warm_share", "warm_s", "partial_share", "partial_s", "cold_s", "network_s", "output_tokens", "tpot_s"]],
["split_could_pay", "1 or 0", "whether steps short enough for answers waste arithmetic, and a prompt still comes over in time (Zhong et al., \"DistServe\", 2024).", "1.0 if (chunk_tokens_most > 0 and chunk_tokens_most < ridge_tokens) and cold_s + hand_over_s <= objective_s else 0.0", ["chunk_tokens_most", "ridge_tokens", "cold_s", "hand_over_s", "objective_s"]],
["busy_s", "s", "of a replica, for one request.", "prefill_busy_s + decode_busy_s", ["prefill_busy_s", "decode_busy_s"]],
["utilisation", "share", "of its time that a replica may be busy, so that queues leave `objective_share` in time (where that can be at all).", "the greatest that holds, by halving", ["objective_s", "objective_share", "most_utilisation", "reachable", "warm_share", "warm_s", "partial_share", "partial_s", "cold_s", "queue_s"]],
["most_by_memory", "requests/s", "of one replica, by the sessions that its memory holds while they run (Little).", "kv_room_bytes / kv_bytes_per_session / residence_s", ["kv_room_bytes", "kv_bytes_per_session", "residence_s"]],
["in_flight", "requests", "under way in the busiest hour (Little).", "peak_rate * residence_s", ["peak_rate", "residence_s"]],
["most_by_time", "requests/s", "of one replica, by its time.", "utilisation / busy_s", ["utilisation", "busy_s"]],
["most_per_replica", "requests/s", "of one replica, by the wall that binds.", "min(most_by_time, most_by_memory, most_by_residence)", ["most_by_time", "most_by_memory", "most_by_residence"]],
["wall", "number", "of the wall that binds: 0 compute, 1 bandwidth, 2 memory, 3 queue, 4 network.", "(2.0 if min(most_by_memory, most_by_residence) < most_by_time else idle) if reachable >= 1 else 4.0 if network_s > objective_s / 2 else 0.0", ["reachable", "network_s", "objective_s", "most_by_time", "most_by_memory", "most_by_residence", "utilisation", "most_utilisation", "prefill_busy_s", "decode_busy_s"]],
["replicas_peak", "replicas", "for the busiest hour, one in each region at least.", "max(regions, ceil(peak_rate / most_per_replica))", ["peak_rate", "most_per_replica", "regions"]],
["gpus_mean", "GPUs", "that the day's mean needs, one replica in each region at least.", "max(regions, ceil(mean_rate / most_per_replica)) * gpus_per_replica", ["mean_rate", "most_per_replica", "gpus_per_replica", "regions"]],
["gpus_peak", "GPUs", "for the busiest hour.", "replicas_peak * gpus_per_replica", ["replicas_peak", "gpus_per_replica"]],
["gpus_with_failure", "GPUs", "for the busiest hour, with one node down in each region.", "(replicas_peak + max(1, min(ceil(replicas_peak / regions), ceil(gpus_per_node / gpus_per_replica))) * regions) * gpus_per_replica", ["replicas_peak", "gpus_per_replica", "gpus_per_node", "regions"]],
["load", "share", "of its time that a replica is busy in the busiest hour.", "min(0.999, peak_rate / replicas_peak * busy_s)", ["peak_rate", "replicas_peak", "busy_s"]],
["cost_month_fixed", "money", "of a month (730 hours) with the busiest hour's fleet all the time.", "gpus_with_failure * gpu_price_per_hour * 730", ["gpus_with_failure", "gpu_price_per_hour"]],
["cost_month", "money", "of a month whose fleet follows the day; `billed_share` is the mean fleet by the greatest.", "gpus_with_failure * gpu_price_per_hour * 730 * billed_share", ["gpus_with_failure", "gpu_price_per_hour", "billed_share"]],
["ttft_p50_s", "s", "first token in the busiest hour, half of requests.", "_quantile(0.5, warm_share, warm_s, partial_share, partial_s, cold_s, load, queue_s / (1 - load))", ["warm_share", "warm_s", "partial_share", "partial_s", "cold_s", "load", "queue_s"]],
["ttft_p95_s", "s", "first token in the busiest hour, 95 % of requests.", "_quantile(0.95, warm_share, warm_s, partial_share, partial_s, cold_s, load, queue_s / (1 - load))", ["warm_share", "warm_s", "partial_share", "partial_s", "cold_s", "load", "queue_s"]],
["ttft_p99_s", "s", "first token in the busiest hour, 99 % of requests.", "_quantile(0.99, warm_share, warm_s, partial_share, partial_s, cold_s, load, queue_s / (1 - load))", ["warm_share", "warm_s", "partial_share", "partial_s", "cold_s", "load", "queue_s"]],
["cost_per_1k_accepted", "money", "by a thousand accepted tokens.", "cost_month / accepted_per_month * 1000", ["cost_month", "accepted_per_month"]]
];
