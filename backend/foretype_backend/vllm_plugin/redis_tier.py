"""vLLM's third tier: a Redis or Valkey that the fleet shares. The scheduler's thread never waits for it.

Every method that vLLM calls only updates counts, hands work to a thread, or takes results. Every failure is a miss: the store is away,
slow or full, a chunk is damaged, too much is in flight. The tier serves only requests that the gateway marks as shared (those of tenants
that opted in), and only where the cost gate finds loading cheaper than computing.

Configuration, in `kv_connector_extra_config.secondary_tiers`::

    {"type": "RedisTier", "module_path": "foretype_backend.vllm_plugin.redis_tier",
     "url": "redis://cache.internal:6379/0", "secret_file": "/etc/foretype/salt", "ttl_s": 3600, "chunk_tokens": 16, "prefill_tokens_per_s": 20000}
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import redis
from vllm.v1.kv_offload.base import (
    LookupResult,
    Medium,
    OffloadKey,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
)
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from foretype_backend.errors import TierRefusedError, TierUnavailableError
from foretype_backend.prefix.redis_chunks import RedisChunks
from foretype_backend.prefix.retire_feed import PurgeNotice, RetireNotice, follow_stream
from foretype_backend.prefix.salt import tier_secret
from foretype_backend.prefix.spans import SpanIndex
from foretype_backend.prefix.tier_policy import CostGate, TierHealth, TierHealthStatistics
from foretype_backend.vllm_plugin import FEED
from foretype_backend.vllm_plugin.requests import placement_in, positions_of

_log = logging.getLogger("foretype.vllm")
T = TypeVar("T")

_KNOWN_MAX = 65_536
_KNOWN_S = 2.0
_ASKED_S = 5.0
"""A look-up without an answer for this long is asked again: no request waits for ever."""

_RETIRED_TTL_S = 60


class TierStatistics(NamedTuple):
    health: TierHealthStatistics
    in_flight: int
    dropped: int
    lookups: int
    hits: int
    gate_closed: int
    damaged: int


class RedisTier(SecondaryTierManager):
    """See the module.

    Args:
        secret_file: a copy of the gateways' `identity.salt_file`: chunks and messages that are not authenticated by it are ignored.
        chunk_tokens: prompt tokens that one chunk stands for.
        prefill_tokens_per_s: what computing costs, as `foretype bench` measured it on this engine; 0 leaves the gate open.
        in_flight_max: most jobs and look-ups at once; beyond it look-ups are misses and stores are dropped.

    Raises:
        TierRefusedError: the server writes to disk, or holds another format.
        ValueError: a setting is out of range.
    """

    medium: ClassVar[Medium | None] = Medium.STORAGE
    cache_hit_source = (
        SecondaryTierManager.cache_hit_source
    )  # else vLLM takes the medium for a disk, and counts its tokens there

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: Any = None,
        *,
        url: str,
        secret_file: str,
        chunk_tokens: int,
        prefill_tokens_per_s: float = 0.0,
        ttl_s: int = 3600,
        timeout_s: float = 0.25,
        workers: int = 4,
        in_flight_max: int = 256,
        compress: bool = False,
        unverified: bool = False,
        locality: str | None = None,
    ) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        if chunk_tokens < 1 or in_flight_max < 1 or workers < 1:
            raise ValueError("chunk_tokens, in_flight_max and workers must each be at least 1")
        self._memory = primary_kv_view.cast("B")
        self._chunk_tokens = chunk_tokens
        self._in_flight_max = in_flight_max
        try:
            self._secret = tier_secret(Path(secret_file).read_bytes())
        except OSError as error:
            message = f"secret_file {secret_file} cannot be read ({error.strerror}); name a copy of the gateways' identity.salt_file"
            raise ValueError(message) from error
        self._chunks = RedisChunks(
            url, secret=self._secret, ttl_s=ttl_s, timeout_s=timeout_s, compress=compress, unverified=unverified
        )
        self._health = TierHealth(time.monotonic())
        try:
            self._chunks.check()
        except TierUnavailableError as error:
            self._down(str(error))
        self._gate = CostGate()
        if prefill_tokens_per_s > 0:
            self._gate.computed(round(prefill_tokens_per_s), 1.0)
        self._spans = SpanIndex()
        self._take_messages = FEED.subscribe()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="foretype-redis")
        self._lock = threading.Lock()
        self._work: set[Future[None]] = set()
        self._finished: list[JobResult] = []
        # (namespace, key) → whether it is there (None: being asked), and when that was found out.
        self._known: OrderedDict[tuple[str, bytes], tuple[bool | None, float]] = OrderedDict()
        self._ask: dict[str, list[bytes]] = {}
        self._dropped = self._lookups = self._hits = self._closed_gate = 0
        self._closing = threading.Event()
        self._listener = threading.Thread(target=self._listen, args=(url,), name="foretype-retire", daemon=True)
        self._listener.start()

    # What vLLM's scheduler calls

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        placement = placement_in(req_context)
        if not placement.shared:
            return LookupResult.MISS
        namespace = placement.namespace
        now = time.monotonic()
        known = self._known.get((namespace, key))
        if known is not None:
            present, since = known
            if present is None and now - since < _ASKED_S:
                return LookupResult.RETRY
            if present is not None and now - since < _KNOWN_S:
                self._hits += present
                return LookupResult.HIT if present else LookupResult.MISS
        self._lookups += 1
        if not self._gate.lets_through(self._chunks.wire_bytes(self.block_size_bytes), self._chunk_tokens):
            self._closed_gate += 1
            return LookupResult.MISS
        if self._full() or not self._health.may_ask(now):
            return LookupResult.MISS
        self._remember(namespace, key, None)
        self._ask.setdefault(namespace, []).append(key)
        return LookupResult.RETRY

    def submit_store(self, job_metadata: TransferJob) -> None:
        placement = placement_in(job_metadata.req_context)
        now = time.monotonic()
        if not placement.shared or self._full() or not self._health.may_ask(now):
            self._dropped += placement.shared
            self._done(JobResult(job_metadata.job_id, success=False))
            return
        keys = list(job_metadata.keys)
        self._spans.note(placement, *positions_of(keys, job_metadata.req_context))
        slots = [int(slot) for slot in job_metadata.chunk_ids]
        self._submit(lambda: self._store(job_metadata.job_id, placement.namespace, keys, slots), job_metadata.job_id)

    def submit_load(self, job_metadata: TransferJob) -> None:
        namespace = placement_in(job_metadata.req_context).namespace
        keys = list(job_metadata.keys)
        slots = [int(slot) for slot in job_metadata.chunk_ids]
        self._submit(lambda: self._load(job_metadata.job_id, namespace, keys, slots), job_metadata.job_id)

    def get_finished_jobs(self) -> Iterable[JobResult]:
        self._flush()
        with self._lock:
            finished, self._finished = self._finished, []
        return finished

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        self._flush()
        for message in self._take_messages():
            self._apply_notice(message)

    def has_pending_work(self) -> bool:
        with self._lock:
            return bool(self._work or self._finished or self._ask)

    def drain_jobs(self) -> None:
        self._flush()
        while True:
            with self._lock:
                work = list(self._work)
            if not work:
                return
            for future in work:
                future.exception()  # waits; a job reports its own failure

    def shutdown(self) -> None:
        self._closing.set()
        self._pool.shutdown(wait=True, cancel_futures=False)
        self._memory.release()  # vLLM unmaps the memory next, which an open view would forbid
        self._chunks.close()

    def statistics(self) -> TierStatistics:
        with self._lock:
            in_flight = len(self._work)
        damaged = self._chunks.statistics().damaged
        health = self._health.statistics(time.monotonic())
        return TierStatistics(health, in_flight, self._dropped, self._lookups, self._hits, self._closed_gate, damaged)

    # In worker threads

    def _store(self, job: int, namespace: str, keys: list[OffloadKey], slots: list[int]) -> None:
        size = self.block_size_bytes
        began = time.monotonic()
        parts = [(bytes(key), self._memory[at * size : (at + 1) * size]) for key, at in zip(keys, slots, strict=True)]
        sent = self._guarded(lambda: self._chunks.store(namespace, parts))
        if sent is not None:
            for key in keys:
                self._remember(namespace, key, True)
        took = time.monotonic() - began
        self._done(JobResult(job, success=sent is not None, transfer_time=took, transfer_bytes=sent))

    def _load(self, job: int, namespace: str, keys: list[OffloadKey], slots: list[int]) -> None:
        size = self.block_size_bytes
        began = time.monotonic()
        found = self._guarded(lambda: self._chunks.load(namespace, keys, size))
        loaded: list[OffloadKey] = []
        for key, slot, payload in zip(keys, slots, found or [None] * len(keys), strict=True):
            if payload is None:
                self._remember(namespace, key, False)
            else:
                self._memory[slot * size : (slot + 1) * size] = payload
                loaded.append(key)
        took = time.monotonic() - began
        if loaded:
            self._gate.loaded(len(loaded) * self._chunks.wire_bytes(size), took)
        everything = len(loaded) == len(keys)
        self._done(
            JobResult(
                job,
                success=everything,
                successful_keys=None if everything else loaded,
                transfer_time=took,
                transfer_bytes=len(loaded) * size,
            )
        )

    def _exist(self, namespace: str, keys: list[bytes]) -> None:
        found: list[bool] | None = None
        try:
            found = self._guarded(lambda: self._chunks.exist(namespace, keys))
        finally:
            for key, present in zip(keys, found or [False] * len(keys), strict=True):
                self._remember(namespace, key, present)

    def _guarded(self, call: Callable[[], T]) -> T | None:
        """The call's answer, or None where the store is away. A store that comes back is checked before the call."""
        try:
            if self._health.reason:
                self._chunks.check()
            answer = call()
        except TierUnavailableError as error:
            self._down(str(error))
            return None
        except TierRefusedError as error:
            self._health.refused(str(error), time.monotonic())
            _log.error("the Redis tier is not used: %s", error)
            return None
        except BaseException as error:
            self._down(type(error).__name__)  # else the health would wait for the end of this probe for ever
            raise
        if self._health.reason:
            _log.info("the Redis tier is back")
        self._health.succeeded()
        return answer

    # Bookkeeping

    def _submit(self, work: Callable[[], None], job: int) -> None:
        def run() -> None:
            try:
                work()
            except Exception:  # noqa: BLE001
                # Whatever the error is, vLLM must learn that the job has ended, or the job's slots stay pinned for ever.
                _log.exception("a job of the Redis tier failed")
                self._done(JobResult(job, success=False))

        self._start(run)

    def _start(self, run: Callable[[], None]) -> None:
        future = self._pool.submit(run)
        with self._lock:
            self._work.add(future)
        future.add_done_callback(self._forget)

    def _forget(self, future: Future[None]) -> None:
        with self._lock:
            self._work.discard(future)

    def _done(self, result: JobResult) -> None:
        with self._lock:
            self._finished.append(result)

    def _full(self) -> bool:
        with self._lock:
            return len(self._work) >= self._in_flight_max

    def _flush(self) -> None:
        """One look-up for all keys that were asked for since the last step."""
        asked, self._ask = self._ask, {}
        for namespace, keys in asked.items():
            self._start(lambda namespace=namespace, keys=keys: self._exist(namespace, keys))

    def _remember(self, namespace: str, key: bytes, present: bool | None) -> None:
        with self._lock:
            self._known[namespace, key] = present, time.monotonic()
            self._known.move_to_end((namespace, key))
            while len(self._known) > _KNOWN_MAX:
                self._known.popitem(last=False)

    def _down(self, reason: str) -> None:
        if not self._health.reason:
            _log.warning("the Redis tier is away (%s); completions go on without it", reason)
        self._health.failed(reason, time.monotonic())

    def _apply_notice(self, message: RetireNotice | PurgeNotice) -> None:
        if isinstance(message, PurgeNotice):
            self._spans.forget_namespace(message.namespace)
            self._start(lambda: self._try(lambda: self._chunks.purge(message.namespace)))
            return
        keys: Collection[bytes] = self._spans.at(message.namespace, message.document, message.first)
        if keys:
            held = list(keys)
            self._start(lambda: self._try(lambda: self._chunks.shorten(message.namespace, held, _RETIRED_TTL_S)))

    def _try(self, call: Callable[[], object]) -> None:
        if self._health.may_ask(time.monotonic()):
            self._guarded(call)

    def _listen(self, url: str) -> None:
        """Publish the gateways' notices in this process, for this tier and for the eviction policy (:mod:`.policy`)."""
        client = redis.Redis.from_url(url, socket_timeout=5.0, protocol=2)
        follow_stream(client, self._secret, FEED.publish, self._closing)
        client.close()
