"""The OpenAPI document of the gateway's HTTP face: it is the committed one, every door keeps it, and who may read it."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from backend.identity_world import added_key, identity_of, salts
from backend.test_chat import Upstream, pool_of
from backend.test_fleet_gateway import fleet
from backend.test_gateway_process import serving
from backend.world import TOKEN, TOKENIZER, World, closing, gateway
from foretype_backend.config.config import Config
from foretype_backend.config.settings import ModelConfig, TelemetryConfig
from foretype_backend.doors.documentation import page
from foretype_backend.identity.directory import Scope
from foretype_backend.start.openapi import document
from foretype_backend.telemetry.store import Store
from foretype_backend.transport.server import running
from msgspec.structs import replace
from starlette.routing import Route, WebSocketRoute

COMMITTED = Path(__file__).parents[2] / "docs/openapi.json"
EXAMPLES = 5
"""Of each operation and phase."""
RULES = """
# What JSON Schema cannot say: the last message is the user's, ids are of the vocabulary, a prompt without a suffix is not empty, what is
# sent fits the model, a file's name is one line, a cursor stands in its window, an edit in its text. That a 400 names the field of it is for the tests of these doors.
[[operations]]
include-name = ["POST /v1/completions", "POST /v1/chat/completions", "POST /infill", "POST /v1/next_edit",
    "POST /playground/next_edit"]
checks.positive_data_acceptance.enabled = false

# A text too long for its field can be too long for a body as well.
[[operations]]
include-tag = ["completions", "playground", "operators"]
checks.negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 409, 413, 429]

[[operations]]
include-name = "GET /v1/tokenizers/{{digest}}"
parameters = {{ "path.digest" = "{digest}" }}

[[operations]]
include-name = "GET /v1/models/{{model}}"
parameters = {{ "path.model" = "foretype" }}

"""


def test_the_committed_document_is_what_the_application_says() -> None:
    said = msgspec.json.format(msgspec.json.encode(document(TOKENIZER)), indent=2) + b"\n"
    assert COMMITTED.read_bytes() == said, "make openapi"


async def test_every_door_of_every_gateway_is_in_the_document(tmp_path: Path) -> None:
    operations = {(path, method.upper()) for path, found in document(TOKENIZER)["paths"].items() for method in found}
    async with fleet(tmp_path, count=1) as (world, _):
        routes = [route for route in world.app.routes if isinstance(route, Route)]
        doors = {
            (getattr(route, "path_format", route.path), method) for route in routes for method in route.methods or ()
        }
        assert {one for one in doors if one[1] != "HEAD"} == operations
        others = [route for route in world.app.routes if not isinstance(route, Route)]
        assert [(type(route), getattr(route, "path", "")) for route in others] == [(WebSocketRoute, "/v1/stream")]


def test_every_operation_says_what_it_is_what_it_answers_and_what_it_asks_for() -> None:
    found = document(TOKENIZER)
    tags = {tag["name"] for tag in found["tags"]}
    open_paths = {"/livez", "/readyz", "/healthz", "/health", "/playground", "/playground/login"}
    open_paths |= {"/playground/app.js", "/playground/style.css", "/admin", "/admin/app.js", "/admin/style.css"}
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"] and set(operation["tags"]) <= tags, path
            assert ("security" in operation) == (path not in open_paths), path
            assert method == "get" or path == "/playground/code" or "requestBody" in operation, path
            errors = {"401", "403", "413", "429", "503"} if "security" in operation else {"403", "413"}
            assert errors <= operation["responses"].keys(), path
            for status, answer in operation["responses"].items():
                schemas = [one for one in answer.get("content", {}).values() if one.get("schema") != {}]
                assert schemas or status == "200", (path, status)
    assert "/v1/stream" in found["info"]["description"]


@pytest.mark.slow
async def test_doors_keep_what_the_document_promises(tmp_path: Path) -> None:
    upstream = Upstream()
    config = replace(Config(), gateway=replace(Config().gateway, port=0))
    async with running(upstream.app, config) as (host, port):
        pool = pool_of(f"http://{host}:{port}/v1")
        await pool.start()
        async with closing(pool):
            # Reports are of a store that is there, and not of whoever runs the tests.
            events = str(tmp_path / "events.db")
            await (await Store.open(events)).close()
            sections = {"model": ModelConfig(next_edit="sweep-next-edit"), "telemetry": TelemetryConfig(url=events)}
            async with fleet(tmp_path, token=TOKEN, quality=pool, sections=sections) as (world, _):
                status, said = await _schemathesis(world, tmp_path)
    assert status == 0, said
    assert "Tested: 35" in said and "No failures" not in said.partition("SUMMARY")[0], said


async def _schemathesis(world: World, folder: Path) -> tuple[int, str]:
    rules = folder / "schemathesis.toml"
    rules.write_text(RULES.format(digest=TOKENIZER.digest))
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(rules), "--no-color", "run", str(COMMITTED)),
        *("--url", world.url, "-H", f"Authorization: Bearer {TOKEN}", "--phases", "coverage,fuzzing"),
        *("--max-examples", str(EXAMPLES), "--seed", "1", "--no-shrink", "--generation-database", "none"),
    ]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdout=pipe, stderr=asyncio.subprocess.STDOUT, cwd=folder, env=os.environ | {"NO_PROXY": "*"}
    )
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return process.returncode, out.decode("utf-8", "replace")


async def test_a_private_gateway_shows_its_document_to_anybody_on_loopback(tmp_path: Path) -> None:
    async with serving("--private", "--state-dir", str(tmp_path)) as (process, url):
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            answer = await http.get(f"{url}/openapi.json")
            assert answer.status_code == 200 and answer.json()["info"]["title"] == "Foretype gateway"
            docs = await http.get(f"{url}/docs")
            assert docs.status_code == 200 and "/v1/completions" in docs.text
            assert (await http.get(f"{url}/v1/models")).status_code == 401
            assert (await http.get(f"{url}/docs", headers={"Host": "rebound.example"})).status_code == 403
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_a_teams_document_needs_the_admin_scope(tmp_path: Path) -> None:
    async with identity_of(tmp_path / "i.db") as (identity, store):
        admin = await added_key(store, scopes=frozenset({Scope.ADMIN}))
        user = await added_key(store)
        await identity.watch.look()
        async with gateway(identity=identity, salts=salts()) as world, world.http() as http:
            for path in ("/openapi.json", "/docs"):
                told = [
                    (await http.get(path, headers=headers)).status_code
                    for headers in (
                        {},
                        {"Authorization": f"Bearer {user.text}"},
                        {"Authorization": f"Bearer {admin.text}"},
                    )
                ]
                assert told == [401, 403, 200], path


async def test_a_gateway_with_a_token_of_its_own_asks_for_it() -> None:
    async with gateway(token=TOKEN) as world, world.http() as http:
        assert (await http.get("/openapi.json", headers={"Authorization": ""})).status_code == 401


async def test_the_page_loads_nothing_and_runs_nothing() -> None:
    async with gateway() as world, world.http() as http:
        answer = await http.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "script-src" not in policy
    assert "<script" not in answer.text and "http://" not in answer.text and "https://" not in answer.text
    links = {part.partition('"')[0] for part in answer.text.split('href="#')[1:]}
    assert links and all(f'id="{name}"' in answer.text for name in links)


def test_the_page_escapes_what_it_shows() -> None:
    found: dict[str, Any] = document(TOKENIZER)
    found["info"]["description"] = "<script>alert(1)</script>"
    assert "<script" not in page(found)


async def test_what_has_no_door_is_told_in_the_form_of_every_error() -> None:
    async with gateway() as world, world.http() as http:
        for answer in (await http.get("/nowhere"), await http.delete("/v1/models")):
            assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
        assert answer.status_code == 405 and "GET" in answer.headers["allow"]
        assert (await http.head("/livez")).status_code == 200
