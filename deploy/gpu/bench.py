"""`make gpu-bench`: what this machine's GPU does with each lever of the fast tier, alone and together, in eight minutes.

Runs on the vLLM it finds. Without weights a 7B-shaped model with random ones is measured: time does not depend on them, but
acceptance does, so tokens per step are measured on the project's own model where its folder is named.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from shapes import write_shape

LIMIT_S = 480.0
RESERVE_S = 10.0
HERE = Path(__file__).parent
ALL = ("ttft", "abort", "sustained")


def lacking() -> list[str]:
    """What the vLLM here does not have of what the product uses."""

    def has(module: str, *names: str) -> bool:
        try:
            found = importlib.import_module(module)
        except Exception:  # noqa: BLE001 - a module that does not import is not there
            return False
        return all(hasattr(found, name) for name in names)

    def source(module: str) -> str:
        try:
            return inspect.getsource(importlib.import_module(module))
        except Exception:  # noqa: BLE001
            return ""

    wanted = {
        "tiers behind host memory (TieringOffloadingSpec)": has(
            "vllm.v1.kv_offload.tiering.spec", "TieringOffloadingSpec"
        ),
        "an eviction policy of our own (cache_policy_module_path)": "cache_policy_module_path"
        in source("vllm.v1.kv_offload.tiering.spec"),
        "cache salts": "cache_salt" in source("vllm.v1.core.kv_cache_utils"),
        "suffix speculation": '"suffix"' in source("vllm.config.speculative"),
        "draft-model speculation": "draft_model" in source("vllm.config.speculative"),
        "the abort endpoint (--enable-scale-out)": "enable_scale_out" in source("vllm.entrypoints.launchers.cli_args"),
        "recomputing blocks that cannot be loaded": "kv_load_failure_policy" in source("vllm.config.kv_transfer"),
    }
    return [name for name, there in wanted.items() if not there]


def levers(args: argparse.Namespace, folder: Path, gpu: bool) -> list[tuple[str, dict[str, Any], tuple[str, ...]]]:
    """Name, engine arguments and parts, the most wanted first: what does not fit the time is left out and named."""
    shape, draft = ("7b", "0.5b") if gpu else ("toy", "toy-draft")

    def model(quantization: str = "") -> dict[str, Any]:
        if args.model is not None and not quantization:
            return {"model": str(args.model)}
        made = write_shape(shape, folder / f"{shape}-{quantization or 'plain'}", quantization=quantization)
        return {"model": str(made), "load_format": "dummy"}

    common: dict[str, Any] = {
        "skip_tokenizer_init": True,
        "max_model_len": 4096 if gpu else 1024,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 2048,
        "block_size": 16 if gpu else 32,
        "enable_prefix_caching": True,
        "seed": 0,
        "dtype": "bfloat16" if gpu else "float32",
        "scheduling_policy": "priority",
    }
    if gpu:
        common |= {
            "gpu_memory_utilization": 0.9,
            "compilation_config": {"cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 40]},
        }
    else:
        common |= {"enforce_eager": True}
    eager = {name: value for name, value in common.items() if name != "compilation_config"} | {"enforce_eager": True}
    tokens_drafted = 4
    drafted = {"method": "draft_model", "num_speculative_tokens": tokens_drafted}
    drafted["model"] = str(args.draft or write_shape(draft, folder / draft))  # type: ignore[assignment]
    ngram = {
        "method": "ngram",
        "num_speculative_tokens": tokens_drafted,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 4,
    }
    host = {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"cpu_bytes_to_use": 8 << 30},
    }
    together = {"quantization": "fp8", "kv_cache_dtype": "fp8"} if gpu else {}
    rows: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
        ("bf16" if gpu else "float32", {**common, **model()}, ALL),
        ("all together", {**common, **model(), **together, "speculative_config": ngram}, ALL),
        ("ngram", {**common, **model(), "speculative_config": ngram}, ("steps", "ttft")),
        ("no prefix cache", {**common, **model(), "enable_prefix_caching": False}, ("ttft",)),
    ]
    if gpu:
        rows += [
            ("fp8", {**common, **model(), "quantization": "fp8"}, ("ttft", "sustained")),
            ("host tier", {**common, **model(), "kv_transfer_config": host}, ("host_tier",)),
            ("fp8 KV", {**common, **model(), "kv_cache_dtype": "fp8"}, ("ttft",)),
            ("int4", {**common, **model("int4"), "dtype": "float16"}, ("ttft",)),
            ("no CUDA graphs", {**eager, **model()}, ("ttft",)),
            ("int8", {**common, **model("int8")}, ("ttft",)),
            ("draft", {**common, **model(), "speculative_config": drafted}, ("steps", "ttft")),
        ]
    else:
        rows.append(("draft", {**common, **model(), "speculative_config": drafted}, ("steps",)))
    if args.own is not None:
        own = {**common, "model": str(args.own), "max_model_len": 1024, "speculative_config": ngram}
        rows.insert(2, ("own model, ngram", own, ("steps",)))
    return rows


def measure(plan: dict[str, Any], seconds: float, log: Path) -> dict[str, Any]:
    """One child; its whole process group ends with it."""
    environment = {**os.environ, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
    environment.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    cut = ""
    with log.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-P", str(HERE / "measure.py")],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            env=environment,
            start_new_session=True,
        )
        try:
            child.communicate(json.dumps(plan).encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            cut = f"cut off after {seconds:.0f} s"
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
    try:
        found: dict[str, Any] = json.loads(Path(plan["answer"]).read_text("utf-8"))
        return found | ({"cut": cut} if cut else {})
    except (OSError, ValueError):
        lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
        if cut:
            return {"failed": f"{cut}, before it had started"}
        told = [line for line in lines if "Error" in line or "no option" in line] or lines or ["nothing was said"]
        return {"failed": told[-1].strip()[:300]}


def table(rows: dict[str, dict[str, Any]]) -> str:
    """For people: cold and warm time to first token at each concurrency, and the rest."""
    head = (
        f"{'':18}"
        + "".join(f"{f'cold {n}':>16}{f'warm {n}':>16}" for n in (1, 4, 8))
        + f"{'abort':>14}{'req/s':>7}{'t/step':>8}"
    )
    lines = ["TTFT p50/p99 in ms at 1, 4 and 8 at once", head]
    for name, row in rows.items():
        if "failed" in row:
            lines.append(f"{name:18}  {row['failed']}")
            continue
        measured = row.get("ttft", {})
        cells = [_pair(measured.get(n, {}).get(kind, {})) for n in ("1", "4", "8") for kind in ("cold", "warm")]
        rate = row.get("sustained", {}).get("requests_per_s", "")
        step = row.get("steps", {}).get("tokens_per_step", "") or ""
        line = f"{name:18}" + "".join(f"{cell:>16}" for cell in cells)
        line += f"{_pair(row.get('abort', {})):>14}{rate!s:>7}{step!s:>8}"
        if row.get("left_out") or row.get("cut"):
            line += f"  {row.get('cut', 'no time')}: without {', '.join(row.get('left_out', [])) or 'the rest'}"
        if "host_tier" in row:
            line += f"  from host memory {_pair(row['host_tier'])}, cached {row['host_tier']['cached_share']}"
        lines.append(line)
    return "\n".join(lines)


def _pair(figures: dict[str, Any]) -> str:
    return f"{figures['p50_ms']:.1f}/{figures['p99_ms']:.1f}" if figures.get("n") else "–"


def main() -> int:
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", type=Path, help="folder with weights; default: random ones of a 7B's shape")
    parser.add_argument("--draft", type=Path, help="folder of the draft model")
    parser.add_argument("--own", type=Path, help="folder of the project's own model, for acceptance")
    parser.add_argument("--json", type=Path, default=Path("gpu-bench.json"), help="where the figures go")
    parser.add_argument("--seconds", type=float, default=LIMIT_S, help="for everything")
    args = parser.parse_args()
    try:
        import vllm
        from vllm.platforms import current_platform
    except ImportError as error:
        print(f"gpu-bench needs vLLM in this Python ({error}); `pip install 'vllm>=0.32,<0.34'`", file=sys.stderr)
        return 2
    gpu = not current_platform.is_cpu()
    missing = lacking()
    print(f"vllm {vllm.__version__} on {current_platform.get_device_name() if gpu else 'CPU, at toy size'}")
    for name in missing:
        print(f"  this version lacks {name}")
    result: dict[str, Any] = {"vllm": vllm.__version__, "gpu": gpu, "lacks": missing, "rows": {}, "left_out": []}
    if gpu:
        result["device"] = current_platform.get_device_name()
    ends = began + args.seconds - RESERVE_S
    with tempfile.TemporaryDirectory(prefix="gpu-bench") as name:
        folder = Path(name)
        rows = levers(args, folder, gpu)
        for at, (title, arguments, parts) in enumerate(rows):
            left = ends - time.monotonic()
            share = left if at == len(rows) - 1 else min(left, 110.0 if gpu else 150.0)
            if left < 30:
                result["left_out"].append(title)
                continue
            plan = {
                "arguments": arguments,
                "parts": parts,
                "prompt_tokens": 2000 if gpu else 256,
                "output_tokens": 16 if gpu else 8,
                "samples": 32 if gpu else 8,
                "vocabulary": _vocabulary(Path(arguments["model"])),
                "seconds": share - 5,
                "answer": str(folder / f"{at}.json"),
            }
            if title.startswith("own"):
                plan["prompts"] = own_prompts(args.own)
            result["rows"][title] = measure(plan, share, folder / f"{at}.log")
            print(f"  {title}: {time.monotonic() - began:.0f} s", flush=True)
    result["seconds"] = round(time.monotonic() - began, 1)
    args.json.write_text(json.dumps(result, indent=1))
    print(table(result["rows"]))
    if result["left_out"]:
        print(f"no time was left for: {', '.join(result['left_out'])}")
    print(f"{result['seconds']:.0f} s; figures in {args.json}")
    return 1 if all("failed" in row for row in result["rows"].values()) else 0


def _vocabulary(folder: Path) -> int:
    return int(json.loads((folder / "config.json").read_text("utf-8"))["vocab_size"])


def own_prompts(folder: Path) -> list[list[int]]:
    """Beginnings of our own sources, which the model never saw the rest of, in its own tokens."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    files = sorted((HERE.parents[1] / "context" / "foretype_context").glob("*.py"))[:8]
    return [tokenizer.encode(file.read_text("utf-8")[:1500]).ids for file in files]


if __name__ == "__main__":
    sys.exit(main())
