"""Every module has a test: one of its name, one that imports it, or the one that the list here says goes through it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
PACKAGES = {
    "wire/foretype_wire": ("client", "backend"),
    "client/foretype_client": ("client",),
    "lsp_server/foretype_lsp": ("lsp_server", "e2e"),
    "context/foretype_context": ("context",),
    "retrieval/foretype_retrieval": ("retrieval",),
    "backend/foretype_backend": ("backend",),
    "eval/foretype_eval": ("eval",),
    "models/foretype_models": ("models",),
    "lab/foretype_lab": ("lab",),
}
"""Each package, and the folders that its tests of its modules' names stand in."""

THROUGH = {
    "foretype_client.commands": "client/test_commands.py",
    "foretype_client.commands.playground": "backend/test_playground.py",
    "foretype_client.feedback": "client/test_feedback.py",
    "foretype_client.flow": "client/test_flow.py",
    "foretype_client.flow.anticipated_requests": "client/test_ahead.py",
    "foretype_client.open_document": "client/test_sdk.py",
    "foretype_client.session": "client/test_session.py",
    "foretype_client.sources": "client/test_own_sources.py",
    "foretype_client.telemetry": "backend/test_telemetry_with_client.py",
    "foretype_lsp": "lsp_server/test_lsp_server.py",
    "foretype_lsp.chat": "lsp_server/test_lsp_chat.py",
    "foretype_lsp.documents": "lsp_server/test_lsp_notebooks.py",
    "foretype_lsp.gateway_client": "e2e/test_lsp_life.py",
    "foretype_lsp.log": "e2e/test_lsp_life.py",
    "foretype_lsp.model_choice": "e2e/test_lsp_models.py",
    "foretype_lsp.run": "e2e/test_lsp_life.py",
    "foretype_lsp.transport": "e2e/test_lsp_life.py",
    "foretype_context.prompt": "context/test_assemble.py",
    "foretype_context.syntax": "context/test_outline.py",
    "foretype_context.tokens": "context/test_tokens.py",
    "foretype_retrieval.embedder": "retrieval/test_embed.py",
    "foretype_retrieval.git": "retrieval/test_scan.py",
    "foretype_backend.admission": "backend/test_admission.py",
    "foretype_backend.admission.build": "backend/test_completion.py",
    "foretype_backend.chat": "backend/test_chat.py",
    "foretype_backend.config": "backend/test_operations.py",
    "foretype_backend.config.rules": "backend/test_gateway_config.py",
    "foretype_backend.config.state_files": "backend/test_usage_journal.py",
    "foretype_backend.doors": "backend/test_http_doors.py",
    "foretype_backend.doors.answers": "backend/test_openapi.py",
    "foretype_backend.doors.health": "backend/test_probes.py",
    "foretype_backend.doors.prefix": "backend/test_fleet_gateway.py",
    "foretype_backend.doors.remembered_texts": "backend/test_stream_door.py",
    "foretype_backend.doors.stream_completions": "backend/test_stream_door.py",
    "foretype_backend.engines": "backend/test_engine_openai.py",
    "foretype_backend.engines.embedded": "backend/test_engine_embedded.py",
    "foretype_backend.engines.llama_cpp": "backend/test_engine_servers.py",
    "foretype_backend.engines.ollama": "backend/test_engine_servers.py",
    "foretype_backend.engines.openai.lm_studio": "backend/test_engine_servers.py",
    "foretype_backend.engines.vllm": "backend/test_vllm_options.py",
    "foretype_backend.experiments": "backend/test_audit.py",
    "foretype_backend.fleet": "backend/test_pool.py",
    "foretype_backend.fleet.warmup_requests": "backend/test_warm.py",
    "foretype_backend.identity": "backend/test_identity.py",
    "foretype_backend.operations": "backend/test_operations.py",
    "foretype_backend.operations.certificate": "backend/test_faults.py",
    "foretype_backend.operations.metrics_port": "backend/test_probes.py",
    "foretype_backend.playground": "backend/test_playground.py",
    "foretype_backend.serving": "backend/test_completion.py",
    "foretype_backend.start": "backend/test_gateway_process.py",
    "foretype_backend.start.running_server": "backend/test_serve_servers.py",
    "foretype_backend.start.server_canary": "backend/test_serve_servers.py",
    "foretype_backend.telemetry": "backend/test_telemetry_store.py",
    "foretype_backend.vllm_plugin": "vllm/test_tiers.py",
    "foretype_eval.ab": "eval/test_ab_store.py",
    "foretype_eval.compare": "eval/test_compare.py",
    "foretype_eval.console": "eval/test_compare.py",
    "foretype_eval.fim": "eval/test_fim_run.py",
    "foretype_eval.gate": "eval/test_gate.py",
    "foretype_eval.latency": "eval/test_latency_bench.py",
    "foretype_eval.load": "eval/test_load.py",
    "foretype_eval.replay": "eval/test_replay_run.py",
    "foretype_eval.report": "eval/test_report.py",
    "foretype_eval.sandbox": "eval/test_sandbox.py",
    "foretype_models.use": "e2e/test_use.py",
    "foretype_lab.adaptive": "lab/test_adaptive_fit.py",
    "foretype_lab.cache_counters": "vllm/test_benches.py",
    "foretype_lab.engine_bench": "vllm/test_benches.py",
    "foretype_lab.fleet": "lab/test_fleet.py",
    "foretype_lab.keystroke_cost": "lab/test_keystroke_cost.py",
    "foretype_lab.other_engines": "vllm/test_benches.py",
    "foretype_lab.other_gateways": "lab/test_other_gateways.py",
    "foretype_lab.peer": "lab/test_peer_typist.py",
    "foretype_lab.prefill": "lab/test_prefill_measure.py",
    "foretype_lab.results": "lab/test_results.py",
    "foretype_lab.retrieval": "lab/test_retrieval_bench.py",
    "foretype_lab.telemetry_events": "lab/test_telemetry_events.py",
    "foretype_lab.training": "lab/test_model_commands.py",
}
"""Of a module, or of what a folder has besides: the test that reaches it through another module, a command or a socket."""


@cache
def modules() -> dict[str, tuple[str, ...]]:
    """The folders of each module's tests."""
    found: dict[str, tuple[str, ...]] = {}
    for package, folders in PACKAGES.items():
        for path in (ROOT / package).rglob("*.py"):
            if path.stem not in ("__init__", "__main__"):
                inner = path.relative_to(ROOT / package).with_suffix("").parts
                found[".".join((Path(package).name, *inner))] = folders
    assert len(found) > 400
    return found


def namesakes(module: str) -> set[str]:
    """`routing.router` is tested by `test_router` or `test_routing_router`; the language server's tests begin with `lsp`."""
    parts = module.split(".")[1:]
    ends = ["_".join(parts[at:]) for at in range(len(parts))]
    return {f"{folder}/test_{lsp}{end}.py" for folder in modules()[module] for lsp in ("", "lsp_") for end in ends}


@cache
def known_to_tests() -> tuple[frozenset[str], frozenset[str]]:
    """The files of tests, and each module that one of them imports or names in a text, as for `python -m`."""
    files, named = set[str](), set[str]()
    for path in HERE.rglob("*.py"):
        if path == Path(__file__):
            continue
        files.add(path.relative_to(HERE).as_posix())
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                named.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                named.add(node.module)
                named.update(f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                for said in re.findall(r"\bforetype_\w+(?:\.\w+)+", node.value):
                    parts = said.split(".")
                    named.update(".".join(parts[:end]) for end in range(2, len(parts) + 1))
    return frozenset(files), frozenset(named)


def test_every_module_has_a_test_and_the_list_holds_nothing_else() -> None:
    files, named = known_to_tests()
    used: set[str] = set()
    without: list[str] = []
    for module in modules():
        if module in named or namesakes(module) & files:
            continue
        parts = module.split(".")
        entries = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
        if entry := next((one for one in entries if one in THROUGH), None):
            used.add(entry)
        else:
            without.append(module)
    assert not without, "write a test of that name, or one that imports it, or say in THROUGH which test goes through it"
    assert set(THROUGH) <= used, "modules with a test of their own now, or gone: take them out of THROUGH"
    assert set(THROUGH.values()) <= files
