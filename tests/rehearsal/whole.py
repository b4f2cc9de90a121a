"""Every service of deploy/compose.yaml but Grafana, with the real vLLM and the model that ships."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
import urllib.parse
from pathlib import Path
from typing import Any

from rehearsal.engine import Engine
from rehearsal.http import completion, get
from rehearsal.images import ROOT, stand_in, vllm
from rehearsal.people import kept_apart
from rehearsal.steps import check, step, told, until
from rehearsal.stories import has_no_rights, memory, started
from rehearsal.team import team

__all__ = ["whole"]


def whole(engine: Engine) -> None:
    with step("the image of vLLM is built, with the model in it"):
        stand_in(engine, "prometheus")
        vllm(engine)
    with team(engine, vllm=True) as one, tempfile.TemporaryDirectory() as folder:
        with step("everything is up, in the order that the file says"):
            started(one)
            one.up("prometheus")
        with step("no process has a right, and no root can be written"):
            for name in ("gateway", "vllm"):
                has_no_rights(one, name)
        with step("two tenants; a completion; another tenant is kept apart"):
            keys = one.key("acme"), one.key("rival")
            check(completion(one.url, keys[0])[0] == 200, "no completion")
            asyncio.run(kept_apart(one.url, keys, Path(folder)))
        for name in ("gateway", "vllm", "postgres", "redis", "prometheus"):
            told(f"     {name}: {memory(one, name):.0f} MB")
        with step("Prometheus scrapes the gateway, every rule and every panel can be asked"):
            shown = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
            address = engine("container", "inspect", "-f", shown, one.container("prometheus"))
            scraped(f"http://{address}:9090/api/v1")
        with step("vLLM is killed and started: the gateway serves again by itself"):
            began = time.monotonic()
            engine("kill", one.container("vllm"))
            engine("start", one.container("vllm"))
            one.name_all()
            until("the gateway serves again", lambda: completion(one.url, keys[0])[0] == 200)
        told(f"     {time.monotonic() - began:.0f} s without an engine")


def scraped(base: str) -> None:
    def asked(path: str, **query: str) -> Any:
        answer = json.loads(get(f"{base}/{path}?{urllib.parse.urlencode(query)}"))
        check(answer["status"] == "success", f"{query}: {answer}")
        return answer["data"]

    def counted() -> bool:
        try:
            return asked("query", query='sum(foretype_requests_total{job="foretype"})')["result"] != []
        except OSError:
            return False

    until("Prometheus has scraped the requests that the gateway counted", counted)
    for group in asked("rules")["groups"]:
        for rule in group["rules"]:
            check(rule["health"] in ("ok", "unknown"), f"{rule['name']}: {rule}")
    for panel in json.loads((ROOT / "deploy/grafana/foretype.json").read_text("utf-8"))["panels"]:
        for target in panel["targets"]:
            asked("query", query=target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*"))
