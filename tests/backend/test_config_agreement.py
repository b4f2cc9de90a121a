"""`foretype config check` and `foretype serve` agree: what one refuses the other refuses, with the same words and the same exit code."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from backend.test_faults import certificate
from foretype_backend.__main__ import main
from foretype_backend.operations import logs
from foretype_client.commands.cli import app
from foretype_models.artifacts import locate
from typer.testing import CliRunner

REPLICAS = "[pool.fast]\nreplicas = ['http://127.0.0.1:9/v1']\n"
OPENAI = "[engine]\nname = 'openai'\nmodel = 'http://127.0.0.1:9/v1'\n[model]\ntokenizer = 'tokenizer.json'\n"
SHARED = REPLICAS + "[model]\ntokenizer = 'tokenizer.json'\n[identity]\nsalt_file = 'salt'\n"
TENANTS = SHARED + "enabled = true\n"
OIDC = SHARED + "[identity.oidc]\nissuer = 'https://i.example'\naudience = 'foretype'\n"
QUALITY = OPENAI + "[pool.quality]\nurl = 'http://127.0.0.1:9/v1'\n"
EDITS = "[pool.next_edit]\nurl = 'http://127.0.0.1:9/v1'\nformat = 'sweep-next-edit'\ntokenizer = 'tokenizer.json'\n"

BROKEN = {
    # syntax, names, types
    "no TOML": ("[gateway]\nport = = 3\n", "profile"),
    "a key twice": ("[gateway]\nport = 1\nport = 2\n", "profile"),
    "a table that is none": ("[gatway]\nport = 1\n", "gatway"),
    "a key that is none": ("[limits]\nmax_runing = 3\n", "limits.max_runing"),
    "a key that is none, below": ("[admission.objectives_ms]\nspeed = 3\n", "admission.objectives_ms.speed"),
    "a string for a number": ("[gateway]\nport = 'x'\n", "gateway.port"),
    "no such engine": ("[engine]\nname = 'gpt'\n", "engine.name"),
    "no such routing": (REPLICAS + "routing = 'round_robin'\n", "pool.fast.routing"),
    "a list for a string": ("[model]\ntokenizer = ['a']\n", "model.tokenizer"),
    # the gateway
    "a port that is none": ("[gateway]\nport = 70000\n", "gateway.port"),
    "a host that is none": ("[gateway]\nhost = 'not a host'\n", "gateway.host"),
    "open to the network": ("[gateway]\nhost = '0.0.0.0'\n", "gateway.token_file"),
    "a URL among the hosts": ("[gateway]\nhosts = ['a', 'https://b.example']\n", "gateway.hosts[1]"),
    "a port among the hosts": ("[gateway]\nhosts = ['b.example:443']\n", "gateway.hosts[0]"),
    "any origin": ("[gateway]\norigins = ['*']\n", "gateway.origins[0]"),
    "a negative wait": ("[gateway]\ndrain_s = -1\n", "gateway.drain_s"),
    "no number": ("[limits]\nmax_deadline_ms = nan\n", "limits.max_deadline_ms"),
    "no slots": ("[limits]\nmax_running = 0\n", "limits.max_running"),
    "no workers": ("[gateway]\nworkers = 0\n", "gateway.workers"),
    "workers with the embedded engine": ("[gateway]\nworkers = 2\n", "gateway.workers"),
    "workers with an engine in process": ("[gateway]\nworkers = 2\n[engine]\nname = 'vllm'\n", "gateway.workers"),
    "metrics on the gateway's port": ("[gateway]\nport = 7001\n[metrics]\nport = 7001\n", "metrics.port"),
    "metrics nowhere": ("[metrics]\nhost = 'http://x'\nport = 1\n", "metrics.host"),
    "no token there": ("[gateway]\ntoken_file = 'nothing'\n", "token_file"),
    "a token that is too short": ("[gateway]\ntoken_file = 'short'\n", "token_file"),
    "a folder for a token": ("[gateway]\ntoken_file = 'folder'\n", "token_file"),
    # TLS
    "a certificate without a key": ("[gateway]\ntls_cert_file = 'cert.pem'\n", "gateway.tls_cert_file"),
    "no certificate there": (
        "[gateway]\ntls_cert_file = 'nothing'\ntls_key_file = 'key.pem'\n",
        "gateway.tls_cert_file",
    ),
    "a certificate that is none": (
        "[gateway]\ntls_cert_file = 'short'\ntls_key_file = 'key.pem'\n",
        "gateway.tls_cert_file",
    ),
    "another certificate's key": (
        "[gateway]\nworkers = 2\ntls_cert_file = 'cert.pem'\ntls_key_file = 'other/key.pem'\n" + OPENAI,
        "gateway.tls_cert_file",
    ),
    # the model
    "no model there": ("[engine]\nmodel = 'nothing.gguf'\n", "engine.model"),
    "a folder for a model": ("[engine]\nmodel = 'folder'\n", "engine.model"),
    "a model that is none": ("[engine]\nmodel = 'short'\n[model]\ntokenizer = 'tokenizer.json'\n", "engine.model"),
    "half a model": ("[engine]\nmodel = 'half.gguf'\n[model]\ntokenizer = 'tokenizer.json'\n", "engine.model"),
    "a server for the embedded engine": ("[engine]\nmodel = 'http://127.0.0.1:9/v1'\n", "engine.model"),
    "a file for a server": ("[engine]\nname = 'openai'\nmodel = 'half.gguf'\n", "engine.model"),
    "no server at all": (
        "[engine]\nname = 'openai'\n[model]\ntokenizer = 'tokenizer.json'\n",
        "engine.model",
    ),
    "a folder that vLLM cannot read": (
        "[engine]\nname = 'vllm'\nmodel = 'folder'\n[model]\ntokenizer = 'tokenizer.json'\n",
        "engine.options",
    ),
    "no key of the server": ("[engine]\napi_key_file = 'nothing'\n" + OPENAI[9:], "engine.api_key_file"),
    "no tokenizer named": (OPENAI.partition("[model]")[0], "model.tokenizer"),
    "no tokenizer there": (OPENAI.replace("tokenizer.json", "nothing"), "model.tokenizer"),
    "a tokenizer that is none": (OPENAI.replace("tokenizer.json", "short"), "model.tokenizer"),
    "no such grammar": (OPENAI + "grammar = 'latin'\n", "model.grammar"),
    "another family's grammar": (OPENAI + "grammar = 'starcoder2'\n", "model.grammar"),
    "an option that is none": ("[engine.options]\nspeed = 3\n", "engine.options"),
    "an option out of its range": ("[engine.options]\ncache_bytes = 1\n", "engine.options"),
    "a context that the model has not": ("[model]\ncontext_limit_tokens = 100000\n", "model.context_limit_tokens"),
    "a budget over the context": (
        "[model]\ncontext_limit_tokens = 1024\n[model.budgets]\nprompt_tokens = 4000\n",
        "model.budgets.prompt_tokens",
    ),
    "a budget over the model": ("[model.budgets]\nprompt_tokens = 9000\n", "model.budgets.prompt_tokens"),
    "a budget below zero": ("[model.budgets]\nsuffix_tokens = -1\n", "model.budgets.suffix_tokens"),
    "no such strategy": ("[model]\nstrategy = 'best-1'\n", "model.strategy"),
    "a grammar of tomorrow": ("[model.grammar_rules]\nid = 'm-1'\nformat = 4\n", "model.grammar_rules.format"),
    "a grammar with a token of two words": (
        "[model.grammar_rules]\nid = 'm-1'\nfim_prefix = 'two words'\nfim_suffix = '<s>'\nend_tokens = ['<e>']\n",
        "model.grammar_rules.fim_prefix",
    ),
    "another grammar's rules": (
        """[model]
grammar = 'm-2'
[model.grammar_rules]
id = 'm-1'
fim_prefix = '<p>'
fim_suffix = '<s>'
fim_middle = '<m>'
end_tokens = ['<e>']
""",
        "model.grammar_rules.id",
    ),
    "another strategy's rules": ("[model.strategy_rules]\nid = 'mine-1'\n", "model.strategy_rules.id"),
    "a rule out of its range": (
        "[model]\nstrategy = 'mine-1'\n[model.strategy_rules]\nid = 'mine-1'\ncontext_share = 2.0\n",
        "model.strategy_rules.context_share",
    ),
    # tenants
    "tenants on an engine without salts": ("[identity]\nurl = 'i.db'\n", "identity.enabled"),
    "tenants without a secret": (SHARED.replace("salt_file = 'salt'", "enabled = true"), "identity.salt_file"),
    "tenants that are said to be none": (
        SHARED + "enabled = true\n[engine]\nname = 'vllm-server'\n[engine.options]\nshared = false\n",
        "engine.options.shared",
    ),
    "no secret there": (SHARED.replace("'salt'", "'nothing'"), "identity.salt_file"),
    "a secret that is none": (SHARED.replace("'salt'", "'short'"), "identity.salt_file"),
    "a store of no known kind": (SHARED + "url = 'mysql://h/x'\n", "identity.url"),
    "a store without a port": (SHARED + "url = 'postgresql://h:port/x'\n", "identity.url"),
    "a folder for a store": (SHARED + "url = 'folder'\n", "identity.url"),
    "a store below a file": (SHARED + "url = 'short/below/i.db'\n", "identity.url"),
    "an issuer without an audience": (
        SHARED + "[identity.oidc]\nissuer = 'https://i.example'\n",
        "identity.oidc",
    ),
    "an issuer that is none": (OIDC.replace("https://i.example", "i.example"), "identity.oidc.issuer"),
    "an issuer's keys nowhere": (OIDC + "jwks_url = 'keys'\n", "identity.oidc.jwks_url"),
    "a tenant that is no name": (OIDC + "tenant = 'a b'\n", "identity.oidc.tenant"),
    "budgets shared by HTTP": (SHARED + "[leases]\nredis_url = 'http://redis'\n", "leases.redis_url"),
    "budgets shared on no port": (SHARED + "[leases]\nredis_url = 'redis://redis:port'\n", "leases.redis_url"),
    "budgets in a database of a name": (
        TENANTS + "[leases]\nredis_url = 'redis://redis/budgets'\n",
        "leases.redis_url",
    ),
    "budgets in two databases": (TENANTS + "[leases]\nredis_url = 'redis://redis/1/2'\n", "leases.redis_url"),
    "budgets with an option of no meaning": (
        TENANTS + "[leases]\nredis_url = 'redis://redis/0?sockettimeout=1'\n",
        "leases.redis_url",
    ),
    # telemetry, traces, admission, prices
    "events nowhere": ("[telemetry]\nurl = 'oracle://h/x'\n", "telemetry.url"),
    "no key for texts": ("[telemetry]\nkey_file = 'nothing'\n", "telemetry.key_file"),
    "traces nowhere": ("[tracing]\nendpoint = 'collector'\n", "tracing.endpoint"),
    "more than all traces": ("[tracing]\nsample_share = 2\n", "tracing.sample_share"),
    "shedding that never ends": ("[admission]\nresume_share = 0.9\n", "admission.resume_share"),
    "more reserved than there is": (
        "[limits]\nmax_running = 2\n[admission.reserved]\nchat = 3\n",
        "admission.reserved",
    ),
    "a price below zero": ("[prices]\nengine_hour = -1\n", "prices.engine_hour"),
    # pools
    "two engines": (REPLICAS + OPENAI, "engine.name"),
    "a replica twice": ("[pool.fast]\nreplicas = ['http://a/v1', 'http://a/v1/']\n", "pool.fast.replicas[1]"),
    "a replica that is none": ("[pool.fast]\nreplicas = ['a:8000']\n", "pool.fast.replicas[0]"),
    "a router beside a router": (
        "[pool.fast]\nreplicas = ['http://a/v1', 'http://b/v1']\nrouting = 'pass_through'\n",
        "pool.fast.routing",
    ),
    "events of another host": (REPLICAS + "kv_events = ['tcp://10.0.0.1:5557']\n", "pool.fast.kv_events[0]"),
    "what is retired told nowhere": (REPLICAS + "retire_url = 'http://x'\n", "pool.fast.retire_url"),
    "what is retired told to a name": (
        SHARED.replace("[model]", "retire_url = 'redis://x/tier'\n[model]"),
        "pool.fast.retire_url",
    ),
    "replicas without a tokenizer": (REPLICAS, "model.tokenizer"),
    "no key of the replicas": (REPLICAS + "api_key_file = 'nothing'\n", "pool.fast.api_key_file"),
    "chat nowhere": (QUALITY.replace("url = 'http://127.0.0.1:9/v1'\n", "url = 'h:1'\n"), "pool.quality.url"),
    "blocks without a grammar": (QUALITY + "tokenizer = 'tokenizer.json'\n", "pool.quality.grammar"),
    "blocks without a tokenizer": (QUALITY + "grammar = 'foretype-1'\n", "pool.quality.tokenizer"),
    "no tokenizer of blocks there": (
        QUALITY + "grammar = 'foretype-1'\ntokenizer = 'nothing'\n",
        "pool.quality.tokenizer",
    ),
    "a format of next edits that is none": (OPENAI + "next_edit = 'zeta-3'\n", "model.next_edit"),
    "a format that the model does not know": (OPENAI + "next_edit = 'zeta-2.1'\n", "model.next_edit"),
    "two models of next edits": (OPENAI + "next_edit = 'sweep-next-edit'\n" + EDITS, "model.next_edit"),
    "a pool of a format that is none": (OPENAI + EDITS.replace("sweep", "sweeep"), "pool.next_edit.format"),
    "next edits nowhere": (OPENAI + EDITS.replace("http://127.0.0.1:9/v1", "h:1"), "pool.next_edit.url"),
    "no tokenizer of next edits there": (
        OPENAI + EDITS.replace("tokenizer.json", "nothing"),
        "pool.next_edit.tokenizer",
    ),
    "another model's tokenizer": (OPENAI + EDITS.replace("sweep-next-edit", "zeta-2.1"), "pool.next_edit.tokenizer"),
    "no key of the server of next edits": (
        OPENAI + EDITS + "api_key_file = 'short-key'\n",
        "pool.next_edit.api_key_file",
    ),
    "no context for next edits": (OPENAI + EDITS + "context_limit_tokens = 0\n", "pool.next_edit.context_limit_tokens"),
    "no key of the chat server": (QUALITY + "api_key_file = 'short-key'\n", "pool.quality.api_key_file"),
}

PROCESSES = (
    "no TOML",
    "another certificate's key",
    "a model that is none",
    "a folder that vLLM cannot read",
    "a folder for a store",
    "blocks without a tokenizer",
)
"""One of each kind is refused by a process of its own; the others by the same command in this one, which takes a tenth of the time."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the files name."""
    found = tmp_path_factory.mktemp("named")
    model = locate()
    (found / "folder").mkdir()
    (found / "other").mkdir()
    (found / "short").write_text("short\n")
    (found / "salt").write_bytes(b"s" * 32)
    shutil.copy(model.tokenizer_path, found / "tokenizer.json")
    with model.path.open("rb") as file:
        (found / "half.gguf").write_bytes(file.read(model.path.stat().st_size // 2))
    for where in (found, found / "other"):
        path, key = certificate(where, days=9)
        path.rename(where / "cert.pem")
        key.rename(where / "key.pem")
    return found


@pytest.fixture(scope="module")
def taken() -> Iterator[int]:
    """A port that somebody has: who binds before everything is checked says so."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def serve(*arguments: str, own_process: bool) -> tuple[int, str, str]:
    """Exit code, output and errors of `foretype serve`."""
    if own_process:
        command = [sys.executable, "-m", "foretype_backend", "serve", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout, done.stderr
    said = CliRunner().invoke(main, ["serve", *arguments])
    assert said.exception is None or isinstance(said.exception, SystemExit), said.exc_info
    return said.exit_code, said.stdout, said.stderr


@pytest.mark.parametrize("name", BROKEN)
def test_check_and_serve_refuse_the_same_files_in_the_same_words(
    name: str, folder: Path, taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, field = BROKEN[name]
    path = folder / "team.toml"
    path.write_text(text)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logs, "configure", lambda level: None)  # this process' loggers are pytest's
    checked = CliRunner().invoke(app, ["config", "check", str(path), "--json"])
    found = json.loads(checked.stdout)["findings"]
    assert len(found) == 1
    assert found[0]["field"] == field
    # The line is where the field stands, or its table; what is missing stands nowhere.
    lines = text.splitlines()
    assert 0 <= found[0]["line"] <= len(lines)
    flags = () if "port = 70" in text else ("--port", str(taken))
    code, out, err = serve("--profile", str(path), *flags, own_process=name in PROCESSES)
    assert out == ""
    assert (code, checked.exit_code) == (2, 2)
    assert err.splitlines()[-1] == f"foretype serve: {field}: {found[0]['message']}"
    assert "Traceback" not in err
    # Nothing was written.
    assert os.listdir(tmp_path) == []


def test_there_are_forty_at_least() -> None:
    assert len(BROKEN) >= 40
