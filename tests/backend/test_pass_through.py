"""A fleet's own router behind the gateway: one address, many replicas, none of them ours to choose."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from backend.replica import Replica
from backend.test_pool import PROMPT, origin
from backend.world import TOKENIZER, until
from foretype_backend.config.fleet import FastConfig
from foretype_backend.engines.port import EngineFinish, GenerationParams, GenerationRequest
from foretype_backend.engines.text_prompts import TextPrompts
from foretype_backend.errors import EngineUnavailableError
from foretype_backend.fleet.build import make_pool
from foretype_backend.fleet.health import ReplicaStanding
from foretype_backend.fleet.pool import ReplicaPool
from starlette.requests import Request
from starlette.responses import JSONResponse


class FleetRouter(Replica):
    """Stands for a router: each answer is another replica's, and every `bad_every`th of them is broken.

    Attributes:
        takes_ids: whether prompts may be token ids.
        endless: whether an answer ends only when it is cancelled.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(vocabulary=TOKENIZER.vocabulary_tokens, **options)
        self.takes_ids = True
        self.bad_every = 0
        self.endless = False
        self.asked = 0

    def _app(self) -> Any:
        app = super()._app()
        route = next(one for one in app.routes if getattr(one, "path", "") == "/v1/completions")
        inner: Any = route.endpoint  # type: ignore[attr-defined]

        async def completions(request: Request) -> Any:
            body = await request.json()
            if not self.takes_ids and isinstance(body["prompt"], list):
                return JSONResponse({"error": {"message": "prompt must be text"}}, 400)
            self.asked += 1
            bad = self.bad_every and self.asked % self.bad_every == 0
            self.behaviour = "garbage" if bad else "endless" if self.endless else "ok"
            return await inner(request)

        from starlette.routing import Route

        app.router.routes = [
            Route("/v1/completions", completions, methods=["POST"]) if one is route else one for one in app.routes
        ]
        return app


@contextlib.asynccontextmanager
async def behind(router: FleetRouter, **settings: Any) -> AsyncGenerator[ReplicaPool]:
    await router.start()
    fast = FastConfig(replicas=(f"{router.url}/v1",), routing="pass_through", **settings)
    pool = make_pool(fast, vocabulary_tokens=TOKENIZER.vocabulary_tokens, text=TextPrompts(TOKENIZER).text)
    await pool.start()
    try:
        yield pool
    finally:
        await pool.close()
        await router.stop()


async def ask(pool: ReplicaPool, name: str, session: str = "a") -> EngineFinish | None:
    asked = GenerationRequest(
        name,
        TOKENIZER.encode("def add(a, b):\n    return"),
        GenerationParams(max_tokens=3),
        salt="s",
        origin=origin(session),
    )
    chunks = [chunk async for chunk in pool.generate(asked)]
    assert any(chunk.token_ids or chunk.text for chunk in chunks)
    return chunks[-1].finish


async def test_a_session_is_named_to_the_router_by_a_name_of_its_own() -> None:
    router = FleetRouter()
    async with behind(router) as pool:
        for name, session in (("1", "secret one"), ("2", "secret one"), ("3", "two")):
            await ask(pool, name, session)
        names = [headers["x-session-id"] for headers in router.headers[-3:]]
        assert names[0] == names[1] != names[2]
        assert "secret" not in "".join(names)
    async with behind(FleetRouter(), session_header="") as pool:
        await ask(pool, "1")


async def test_where_ids_are_refused_or_not_returned_texts_go() -> None:
    for takes_ids, ids in ((False, True), (False, False), (True, False)):
        router = FleetRouter(ids=ids)
        router.takes_ids = takes_ids
        async with behind(router) as pool:
            assert not pool.capabilities().token_ids
            assert await ask(pool, "1") is EngineFinish.LENGTH
            if not takes_ids:
                assert bytes(router.bodies[-1]["prompt"]) == b"def add(a, b):\n    return"
            await pool.in_service()[0].check()


async def test_one_replicas_bad_answers_take_the_fleet_from_nobody() -> None:
    router = FleetRouter()
    async with behind(router) as pool:
        router.bad_every = 3
        for at in range(12):
            assert await ask(pool, f"{at}") is EngineFinish.LENGTH
        (health,) = pool.pool_statistics().replicas.values()
        assert health.standing is not ReplicaStanding.OUT and not health.outages
        assert pool.pool_statistics().retried >= 3
        await router.stop()
        with pytest.raises(EngineUnavailableError):
            await ask(pool, "gone")
        await until(lambda: not pool.in_service())  # the router itself is checked, and is away
        await router.start()
        router.bad_every = 0
        await until(lambda: bool(pool.in_service()))


async def test_a_cancel_closes_the_stream_and_asks_no_endpoint() -> None:
    router = FleetRouter()
    async with behind(router) as pool:
        router.endless = True
        asked = GenerationRequest("long", PROMPT, GenerationParams(max_tokens=1000), salt="s", origin=origin())
        stream = pool.generate(asked)
        assert (await anext(stream)).token_ids
        pool.abort("long")
        async with asyncio.timeout(120):
            rest = [chunk async for chunk in stream]
        assert rest[-1].finish is EngineFinish.ABORTED
        await until(lambda: not router._live)  # pyright: ignore[reportPrivateUsage]
        assert not router.aborted
