"""Where the engines are, and by which password they are asked, is the operator's alone."""

import base64
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from backend.identity_world import NOW_MS, added_key, identity_of, salts
from backend.replica import Replica
from backend.running_replicas import replicas
from backend.test_gateway_process import refused, serving
from backend.world import TOKENIZER_PATH, gateway
from foretype_backend.admission.degradation import RUNGS, Ladder, Service
from foretype_backend.config.fleet import FastConfig
from foretype_backend.engines.openai.events import OpenAIConfig
from foretype_backend.errors import ConfigError
from foretype_backend.identity.directory import Scope, Tenant

PASSWORD = "hunter2"
SERVE = (sys.executable, "-m", "foretype_backend", "serve", "--port", "0", "--no-telemetry", "--log-level", "debug")


class Low(Ladder):
    """Two tenants are served less."""

    @property
    def below(self) -> dict[str, Service]:
        return {"acme": RUNGS[1], "rival": RUNGS[1]}


def profile_of(folder: Path, kind: str, one: Replica) -> Path:
    url = f"http://ann:{PASSWORD}@127.0.0.1:{one.port}/v1"
    fast = (
        f'[engine]\nname = "openai"\nmodel = "{url}"'
        if kind == "openai"
        else f'[pool.fast]\nreplicas = ["{url}"]\ncheck_every_s = 0.5'
    )
    path = folder / "team.toml"
    tables = [fast, f'[model]\ntokenizer = "{TOKENIZER_PATH}"', f'[pool.quality]\nurl = "{url}"']
    path.write_text("\n".join([*tables, "[limits]\nretry_wait_ms = 100"]))
    return path


@pytest.mark.parametrize("kind", [pytest.param("openai", marks=pytest.mark.slow), "replicas"])
async def test_no_client_hears_where_an_engine_is_and_nobody_its_password(tmp_path: Path, kind: str) -> None:
    async with replicas(1) as (one,):
        profile = profile_of(tmp_path, kind, one)
        arguments = ("--profile", str(profile), "--state-dir", str(tmp_path))
        async with (
            serving(*arguments, command=SERVE) as (_, url),
            httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as http,
        ):

            async def asked() -> list[httpx.Response]:
                chat = {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 2}
                return [
                    await http.post("/v1/completions", json={"prompt": "x = ", "max_tokens": 2}),
                    await http.post("/v1/chat/completions", json=chat),
                ]

            assert [answer.status_code for answer in await asked()] == [200, 200]
            sent = "Basic " + base64.b64encode(f"ann:{PASSWORD}".encode()).decode()
            assert {headers.get("authorization") for headers in one.headers} == {sent}
            answers: list[httpx.Response] = []
            for behaviour in ("error", "busy", "garbage", "dies"):
                one.behaviour = behaviour
                answers += await asked()
            one.behaviour = "ok"
            await one.stop()
            answers += await asked()
            assert {answer.status_code for answer in answers} <= {200, 500, 503}
            assert sum(answer.status_code == 503 for answer in answers) >= 6
            for answer in answers:
                assert str(one.port) not in answer.text and "127.0.0.1" not in answer.text, answer.text
            shown = [await http.get(path) for path in ("/metrics", "/admin/status", "/admin/prefix", "/readyz")]
            assert not any(PASSWORD in answer.text for answer in (*answers, *shown))


async def test_a_start_that_fails_tells_no_password(tmp_path: Path) -> None:
    async with replicas(1) as (one,):
        profile = profile_of(tmp_path, "openai", one)
    said = await refused("--profile", str(profile), "--state-dir", str(tmp_path), command=SERVE)
    assert str(one.port) in said and PASSWORD not in said


def test_what_is_wrong_with_a_url_is_said_without_its_password() -> None:
    bad = f"htp://ann:{PASSWORD}@engine:8000/v1"
    with pytest.raises(TypeError) as told:
        OpenAIConfig.of(url=bad)
    with pytest.raises(ConfigError) as also:
        FastConfig(replicas=(bad,)).check()
    with pytest.raises(TypeError, match="one of them"):
        OpenAIConfig.of(url=f"http://ann:{PASSWORD}@engine/v1", api_key="k")
    good = OpenAIConfig.of(url=f"http://ann:{PASSWORD}@engine:8000/v1")
    assert good.url == "http://engine:8000/v1"
    assert not any(PASSWORD in text for text in (str(told.value), str(also.value), repr(good)))


async def test_a_tenants_administrator_sees_no_other_tenants_name(tmp_path: Path) -> None:
    async with identity_of(tmp_path / "i.db") as (identity, store):
        await store.add_tenant(Tenant(name="rival"), NOW_MS)
        key = await added_key(store, scopes=frozenset({Scope.ADMIN}))
        await identity.watch.look()
        headers = {"Authorization": f"Bearer {key.text}"}
        async with gateway(identity=identity, salts=salts()) as world, world.http(headers=headers) as http:
            world.service.ladder = Low()
            world.gateway.chat.templates.asked("rivals-own", "")
            answer = await http.get("/admin/status")
            report: dict[str, Any] = answer.json()
            assert "rival" not in answer.text
            assert (list(report["rungs"]), report["other_rungs"]) == (["acme"], 1)
