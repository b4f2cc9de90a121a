"""Every module has a test: one of its name or its folder's, one that imports it, or the one that the list here says goes through it."""

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
    "plan/foretype_plan": ("plan",),
    "lab/foretype_lab": ("lab",),
}
"""Each package, and the folders that its tests of its modules' names stand in."""

THROUGH = {
    "foretype_client.open_document": "client/test_sdk.py",
    "foretype_lsp": "lsp_server/test_lsp_server.py",
    "foretype_lsp.log": "e2e/test_lsp_life.py",
    "foretype_lsp.model_choice": "e2e/test_lsp_models.py",
    "foretype_lsp.progress": "e2e/test_lsp_context.py",
    "foretype_lsp.transport": "e2e/test_lsp_life.py",
    "foretype_context.edits.names": "context/test_renames.py",
    "foretype_context.plain_console": "context/test_terminal.py",
    "foretype_context.prompt": "context/test_assemble.py",
    "foretype_retrieval.embedder": "retrieval/test_static_embedder.py",
    "foretype_backend.config": "backend/test_operations.py",
    "foretype_backend.config.state_files": "backend/test_usage_journal.py",
    "foretype_backend.doors": "backend/test_http_doors.py",
    "foretype_backend.doors.answers": "backend/test_openapi.py",
    "foretype_backend.doors.feedback": "backend/test_stream_door.py",
    "foretype_backend.doors.health": "backend/test_probes.py",
    "foretype_backend.doors.prefix": "backend/test_fleet_gateway.py",
    "foretype_backend.doors.remembered_texts": "backend/test_stream_door.py",
    "foretype_backend.engines": "backend/test_engine_openai.py",
    "foretype_backend.engines.embedded": "backend/test_engine_embedded.py",
    "foretype_backend.engines.llama_cpp": "backend/test_engine_servers.py",
    "foretype_backend.engines.ollama": "backend/test_engine_servers.py",
    "foretype_backend.engines.openai.lm_studio": "backend/test_engine_servers.py",
    "foretype_backend.engines.vllm": "vllm/test_engine.py",
    "foretype_backend.fleet": "backend/test_pool.py",
    "foretype_backend.fleet.ray": "fleet/test_fleet.py",
    "foretype_backend.fleet.warmup_requests": "backend/test_warm.py",
    "foretype_backend.serving": "backend/test_stream_door.py",
    "foretype_backend.start": "backend/test_gateway_process.py",
    "foretype_backend.start.server_canary": "backend/test_serve_servers.py",
    "foretype_backend.transport.certificate": "backend/test_faults.py",
    "foretype_backend.telemetry": "backend/test_telemetry_store.py",
    "foretype_backend.vllm_plugin": "vllm/test_tiers.py",
    "foretype_eval.console": "eval/test_compare.py",
    "foretype_eval.latency": "eval/test_latency_bench.py",
    "foretype_eval.replay": "eval/test_replay_run.py",
    "foretype_models.use": "e2e/test_use.py",
    "foretype_plan.simulation.asking": "plan/simulation/test_validate.py",
    "foretype_plan.simulation.fleet": "plan/simulation/test_cell.py",
    "foretype_lab.prefill": "lab/test_prefill_measure.py",
    "foretype_lab.retrieval": "lab/test_retrieval_bench.py",
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
    """`routing.router` is tested by `test_router`, `test_routing_router` or `test_routing`; the language server's begin with `lsp`."""
    parts = module.split(".")[1:]
    names = {"_".join(parts[at:end]) for end in range(1, len(parts) + 1) for at in range(end)}
    return {f"{folder}/test_{lsp}{name}.py" for folder in modules()[module] for lsp in ("", "lsp_") for name in names}


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
    assert not without, (
        "write a test of that name, or one that imports it, or say in THROUGH which test goes through it"
    )
    assert set(THROUGH) <= used, "modules with a test of their own now, or gone: take them out of THROUGH"
    assert set(THROUGH.values()) <= files
