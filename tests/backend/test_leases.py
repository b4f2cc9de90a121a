"""Budgets that gateways share: slices, a ledger that goes away and comes back, and a real Redis."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import pytest
from backend.redis_server import patient_ledger, redis_server
from backend.world import closing
from foretype_backend.admission import redis_leases
from foretype_backend.admission.leases import LeaseRequest, Leases
from foretype_backend.admission.limits import Budget, Budgets, Denied, Reservation
from foretype_backend.admission.redis_leases import RedisLeases
from redis.asyncio import Redis

NAME = "tenant:acme"


@pytest.fixture(autouse=True)
def patient() -> Iterator[None]:
    with patient_ledger():
        yield


class Ledger:
    """A shared bucket in this process, by the rule of the script."""

    def __init__(self, budget: Budget) -> None:
        self.budget, self.level, self.at = budget, budget.burst_tokens, 0.0

    def take(self, asks: list[LeaseRequest], now: float) -> dict[str, float]:
        grants: dict[str, float] = {}
        for ask in asks:
            level, burst = self.level + (now - self.at) * self.budget.tokens_per_s - ask.owed, self.budget.burst_tokens
            self.level, self.at = max(-burst, min(burst, level)), now
            grants[ask.name] = ask.want if ask.want <= 0 else max(0.0, min(ask.want, self.level))
            self.level -= grants[ask.name]
        return grants


class Gateway:
    def __init__(self, budget: Budget, slice_s: float = 1.0) -> None:
        self.budgets = Budgets({NAME: budget})
        self.leases = Leases(self.budgets, slice_s=slice_s, now=0.0)
        self.spent = 0

    def renew(self, ledger: Ledger | None, now: float) -> None:
        asks = self.leases.asks(now)
        if ledger is None:
            self.leases.away(asks, now)
        else:
            self.leases.answered(asks, ledger.take(asks, now), now)

    def spend(self, tokens: int, now: float) -> bool:
        reservation = self.budgets.reserve([NAME], tokens, now)
        if isinstance(reservation, Denied):
            return False
        self.budgets.settle(reservation, tokens, now)
        self.spent += tokens
        return True


def spent_by_two(budget: Budget, *, forgets_at: int | None = None) -> int:
    """In a hundred seconds of two gateways that spend what they get; the ledger begins anew at that tick."""
    ledger, gateways = Ledger(budget), [Gateway(budget), Gateway(budget)]
    for tick in range(2000):
        now = tick / 20
        if tick == forgets_at:
            ledger.level, ledger.at = budget.burst_tokens, now
        for gateway in gateways:
            if tick % 10 == 0:
                gateway.renew(ledger, now)
            gateway.spend(20, now)
    return sum(gateway.spent for gateway in gateways)


def test_two_gateways_together_spend_what_one_may() -> None:
    spent = spent_by_two(Budget(tokens_per_s=100, burst_tokens=200))
    assert 0.95 * 100 * 100 <= spent <= 100 * 100 + 200


def test_a_request_larger_than_a_slice_is_served_from_the_next_one() -> None:
    gateway = Gateway(Budget(tokens_per_s=10, burst_tokens=500))
    ledger = Ledger(gateway.budgets.budget(NAME) or Budget(tokens_per_s=1, burst_tokens=1))
    gateway.renew(ledger, 0.0)
    assert not gateway.spend(400, 0.1)
    gateway.renew(ledger, 0.5)
    assert gateway.spend(400, 0.6)


def test_while_the_ledger_is_away_the_last_lease_goes_on_and_is_owed_afterwards() -> None:
    budget = Budget(tokens_per_s=100, burst_tokens=200)
    ledger, gateway = Ledger(budget), Gateway(budget)
    spent_away, owed_away = 0, 0.0
    for tick in range(4000):
        now = tick / 20
        away = 50 <= now < 100
        before = gateway.spent
        if tick % 10 == 0:
            gateway.renew(None if away else ledger, now)
        gateway.spend(20, now)
        if away:
            spent_away += gateway.spent - before
            owed_away = gateway.leases.statistics(now).owed_tokens
        elif now == 100.0:
            assert ledger.level < 100, "what was spent meanwhile was not taken off"
    # A slice was there already when the ledger went away.
    assert 0.9 * 100 * 50 <= spent_away <= owed_away + 100
    assert gateway.leases.statistics(200.0).owed_tokens == 0
    assert 0.95 * 100 * 200 <= gateway.spent <= 100 * 200 + 200


async def test_after_a_night_without_requests_a_ledger_that_goes_away_locks_nobody_out() -> None:
    """Nothing was asked all night: that is no time in which a budget got little."""
    now = 0.0
    budgets = Budgets({})
    leases = Leases(budgets, slice_s=1.0, now=now)
    with redis_server() as server:
        shared = RedisLeases(server.url, leases, slice_s=1.0, clock=lambda: now)
        async with closing(shared):
            for _ in range(8 * 3600 * 2):
                now += 0.5
                await shared.renew()
            budget = Budget(tokens_per_s=100, burst_tokens=200)
            budgets.set(NAME, budget, now)
            assert await shared.renew()
            server.kill()
            now += 0.5
            reservation = budgets.reserve([NAME], 50, now)
            assert isinstance(reservation, Reservation)
            budgets.settle(reservation, 50, now)
            assert not await shared.renew()
            assert shared.away_s() == 0.5, "the ledger answered half a second ago"
            spent = 0
            for _ in range(20):
                now += 0.5
                while isinstance(reservation := budgets.reserve([NAME], 5, now), Reservation):
                    budgets.settle(reservation, 5, now)
                    spent += 5
                await shared.renew()
            assert spent >= 0.5 * 100 * 10


@pytest.mark.parametrize("slice_s", [0.5, 1.0, 2.0, 5.0, 10.0])
def test_a_ledger_that_never_answered_leaves_a_gateway_the_budgets_rate(slice_s: float) -> None:
    gateway = Gateway(Budget(tokens_per_s=100, burst_tokens=2000), slice_s)
    for half_slice in range(round(400 / slice_s)):
        now = half_slice * slice_s / 2
        gateway.renew(None, now)
        while gateway.spend(5, now):
            pass
    assert gateway.spent == pytest.approx(100 * 200, rel=0.01)
    assert gateway.leases.statistics(200.0).owed_tokens == pytest.approx(gateway.spent, abs=5)


def test_a_ledger_that_forgot_costs_at_most_one_burst() -> None:
    spent = spent_by_two(Budget(tokens_per_s=100, burst_tokens=400), forgets_at=1000)
    assert 100 * 100 + 400 < spent <= 100 * 100 + 2 * 400, "one burst is everybody's, one was forgotten"


def test_what_is_not_used_goes_back() -> None:
    budget = Budget(tokens_per_s=100, burst_tokens=100)
    ledger, idle = Ledger(budget), Gateway(budget)
    idle.renew(ledger, 0.0)
    assert ledger.level == 0
    idle.budgets.set(NAME, Budget(tokens_per_s=10, burst_tokens=100), 0.0)
    idle.renew(ledger, 0.0)
    assert ledger.level == 90


def test_half_a_slice_is_there_before_the_ledger_was_asked_and_is_owed() -> None:
    gateway = Gateway(Budget(tokens_per_s=100, burst_tokens=2000))
    assert gateway.leases.asks(0.0) == [LeaseRequest(NAME, 100, 2000, want=50.0, owed=50.0)]
    assert gateway.leases.statistics(0.0).owed_tokens == 50.0


def test_what_was_spent_before_a_budget_was_leased_is_owed() -> None:
    budget = Budget(tokens_per_s=1, burst_tokens=1000)
    ledger, gateway = Ledger(budget), Gateway(budget)
    assert gateway.spend(900, 0.0)
    gateway.renew(ledger, 0.0)
    assert ledger.level <= 100


def test_what_would_go_back_stays_while_the_ledger_is_away() -> None:
    gateway = Gateway(Budget(tokens_per_s=100, burst_tokens=200))
    gateway.leases.away([LeaseRequest(NAME, 100, 200, -5.0, 0.0)], 1.0)
    assert gateway.leases.statistics(1.0).owed_tokens == 0


def test_a_round_with_nothing_to_ask_says_nothing_against_the_ledger() -> None:
    gateway = Gateway(Budget(tokens_per_s=100, burst_tokens=200))
    gateway.renew(Ledger(Budget(tokens_per_s=100, burst_tokens=200)), 0.1)
    denied = gateway.budgets.reserve([NAME], 150, 0.2)
    assert isinstance(denied, Denied) and gateway.leases.may_have(denied)
    gateway.renew(None, 0.3)
    assert not gateway.leases.may_have(denied)
    gateway.leases.idle(0.4)
    assert gateway.leases.may_have(denied)


@pytest.mark.parametrize(("lacks", "asked"), [(0.5, False), (-0.5, False), (1.0, True), (1.5, True), (-1.0, True)])
def test_the_ledger_is_not_asked_for_less_than_a_token(lacks: float, asked: bool) -> None:
    gateway = Gateway(Budget(tokens_per_s=100, burst_tokens=100))
    gateway.renew(Ledger(Budget(tokens_per_s=100, burst_tokens=100)), 0.0)
    gateway.budgets.grant(NAME, -lacks)
    assert [ask.want for ask in gateway.leases.asks(0.5)] == ([lacks] if asked else [])


def test_an_absent_ledger_is_replaced_by_what_it_gave_on_average() -> None:
    leases = Leases(Budgets({NAME: Budget(tokens_per_s=100, burst_tokens=1000)}), slice_s=1.0, now=0.0)
    leases.asks(0.0)
    ask = LeaseRequest(NAME, 100, 1000, want=100.0, owed=0.0)
    for now, granted, rate in ((1.0, 80.0, 80), (2.0, 0.0, 56), (4.0, 20.0, 42.2)):
        leases.answered([ask], {NAME: granted}, now)
        assert leases.statistics(now + 3.0) == (1, 0.0, 3.0)
        assert leases._rates[NAME] == pytest.approx(rate)
    leases.away([ask], 5.0)
    assert leases.statistics(5.0).owed_tokens == pytest.approx(42.2)


async def spend_all(leases: RedisLeases, budgets: Budgets) -> int:
    await leases.renew()
    spent = 0
    while isinstance(reservation := budgets.reserve([NAME], 10, 0.0), Reservation):
        budgets.settle(reservation, 10, 0.0)
        spent += 10
    return spent


def leased(url: str, budget: Budget, slice_s: float = 1000.0) -> tuple[RedisLeases, Budgets]:
    budgets = Budgets({NAME: budget})
    leases = Leases(budgets, slice_s=slice_s, now=0.0)
    return RedisLeases(url, leases, slice_s=slice_s, clock=lambda: 0.0), budgets


async def test_gateways_share_one_burst_through_a_real_redis() -> None:
    # so slow that the clock of the server adds nothing while the test runs
    budget = Budget(tokens_per_s=0.001, burst_tokens=1000)
    with redis_server() as server:
        first, second = leased(server.url, budget), leased(server.url, budget)
        first[1].set(NAME, budget, 0.0)
        async with closing(first[0], second[0]):
            first[0].leases.asks(0.0)
            assert isinstance(first[1].reserve([NAME], 600, 0.0), Denied)
            assert await first[0].renew()
            assert await second[0].renew()
            reservation = first[1].reserve([NAME], 600, 0.0)
            assert isinstance(reservation, Reservation)
            assert isinstance(second[1].reserve([NAME], 600, 0.0), Denied)


async def test_what_a_gateway_took_in_advance_is_missing_to_the_others_in_a_real_redis() -> None:
    budget = Budget(tokens_per_s=0.001, burst_tokens=1000)
    with redis_server() as server:
        first, second = (leased(server.url, budget, slice_s=1e6) for _ in range(2))
        async with closing(first[0], second[0]):
            assert await spend_all(*first) == 1000  # half of it before the ledger was asked
            assert await spend_all(*second) == 500, "what it took itself; the ledger has nothing left, and is owed that"
            await second[0].renew()
            assert isinstance(second[1].reserve([NAME], 10, 0.0), Denied)


async def test_a_real_redis_keeps_times_to_the_microsecond() -> None:
    """`tostring` in a script ends them at a tenth of a millisecond."""
    budget = Budget(tokens_per_s=1000, burst_tokens=1000)
    with redis_server() as server:
        shared, budgets = leased(server.url, budget)
        budgets.set(NAME, budget, 0.0)
        client = Redis.from_url(server.url)  # pyright: ignore[reportUnknownMemberType]
        try:
            kept: list[str] = []
            for now in range(1, 6):
                budgets.want([(NAME, 100 * now)])
                assert await shared.renew()
                kept.append((await client.hget(f"foretype:budget:{NAME}", "at")).decode())  # type: ignore[misc, union-attr]
        finally:
            await client.aclose()
            await shared.close()
    assert any(len(at.partition(".")[2]) > 4 for at in kept), kept


@pytest.mark.parametrize("options", [(), ("--maxmemory", "2mb", "--maxmemory-policy", "allkeys-random")])
async def test_a_redis_that_is_killed_stops_nothing_and_is_used_again(
    options: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server(*options) as server:
        leases, budgets = leased(server.url, Budget(tokens_per_s=100, burst_tokens=1000))
        async with closing(leases):
            assert await spend_all(leases, budgets) > 0
            server.kill()
            for _ in range(2):
                assert not await leases.renew()
                told = [record.levelname for record in caplog.records if "ledger of budgets" in record.message]
                assert told == ["WARNING"]
            server.start()
            assert await leases.renew()
            assert isinstance(budgets.reserve([NAME], 10, 0.0), Reservation)


async def test_how_long_the_ledger_has_been_away_is_told_while_it_is() -> None:
    now = 100.0
    leases = Leases(Budgets({NAME: Budget(tokens_per_s=100, burst_tokens=1000)}), slice_s=1.0, now=now)
    with redis_server() as server:
        redis = RedisLeases(server.url, leases, slice_s=1.0, clock=lambda: now)
        async with closing(redis):
            now = 101.0
            assert redis.away_s() == 0.0  # nothing was asked yet
            now = 100.0
            assert await redis.renew()
            assert redis.away_s() == 0.0
            server.kill()
            now = 107.0
            leases.asks(now)
            leases._budgets.grant(NAME, -50.0)  # something to ask for
            assert not await redis.renew()
            assert redis.away_s() == 7.0


async def test_who_has_nothing_to_ask_has_no_ledger_that_is_away_and_asks_for_no_more() -> None:
    now = 0.0
    leases = RedisLeases(
        "redis://127.0.0.1:9", Leases(Budgets({}), slice_s=1.0, now=now), slice_s=1.0, clock=lambda: now
    )
    async with closing(leases):
        assert await leases.renew()
        now = 7.0
        assert leases.away_s() == 0.0
        assert not await leases.more(Denied(NAME, 1.0))


async def test_leases_are_renewed_every_half_slice_until_they_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is leased, so nothing is asked: that is no failure."""
    redis = RedisLeases("redis://127.0.0.1:9", Leases(Budgets(), slice_s=3.0, now=0.0), slice_s=3.0, clock=lambda: 0.0)
    renewed: list[bool] = []
    waits: list[float] = []
    enough, renew = asyncio.Event(), redis.renew

    async def counted() -> bool:
        renewed.append(await renew())
        return renewed[-1]

    async def waited(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            enough.set()
        await asyncio.sleep(0)

    monkeypatch.setattr(redis, "renew", counted)
    monkeypatch.setattr(redis, "_rest", waited)
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 5.0)  # a renewal takes no time, on any machine
    redis.start()
    await enough.wait()
    await redis.close()
    assert waits[:3] == [1.5] * 3 and all(renewed)


class AlwaysAsking(Leases):
    def asks(self, now: float) -> list[LeaseRequest]:
        return [LeaseRequest(NAME, 1e6, 1e6, 100.0, 0.0)]

    def answered(self, asks: Sequence[LeaseRequest], grants: Mapping[str, float], now: float) -> None:
        pass


async def test_a_gateway_ends_however_its_ledger_is_being_asked() -> None:
    """On Python 3.11 redis-py loses a cancellation that comes as its command has been sent: seen as a gateway that never ended."""
    clock = asyncio.get_running_loop().time
    with redis_server() as server:
        for after_turns in range(30):
            leases = AlwaysAsking(Budgets(), slice_s=1e-6, now=clock())
            redis = RedisLeases(server.url, leases, slice_s=1e-6, clock=clock)
            redis.start()
            for _ in range(20 + after_turns):
                await asyncio.sleep(0)
            async with asyncio.timeout(60):
                await redis.close()


async def test_a_ledger_that_answers_drop_by_drop_is_one_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer comes within the time of a socket, all of them together do not."""
    monkeypatch.setattr(redis_leases, "_REACH_S", 0.75)
    names = [f"tenant:{number}" for number in range(40)]
    budgets = Budgets({name: Budget(tokens_per_s=100, burst_tokens=1000) for name in names})
    dropped = asyncio.Event()

    async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while asked := await reader.read(65536):
                for _ in range(asked.count(b"EVAL") or 1):
                    await asyncio.sleep(0.05)
                    writer.write(b"$1\r\n5\r\n" if b"EVAL" in asked else b"+OK\r\n")
                    await writer.drain()
        writer.close()
        dropped.set()

    server = await asyncio.start_server(drips, "127.0.0.1", 0)
    url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    redis = RedisLeases(url, Leases(budgets, slice_s=1.0, now=0.0), slice_s=1.0, clock=lambda: 0.0)
    try:
        assert not await redis.renew()
        async with asyncio.timeout(60):
            await dropped.wait()
    finally:
        await redis.close()
        server.close()
