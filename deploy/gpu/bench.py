"""`make gpu-bench`: what this machine's GPU does with each lever of the fast tier, alone and together, in eight minutes.

Runs on the vLLM it finds. Without weights a 7B-shaped model with random ones is measured: time does not depend on them, but
acceptance does, so tokens per step are measured on the project's own model where its folder is named.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import profiles
from shapes import write_shape

LIMIT_S = 480.0
RESERVE_S = 10.0
FIRST_S = 200.0
"""At most for a lever before it is known how long an engine takes to start here."""
LEAST_S = 30.0
BESIDE_SHARE = 0.4
"""Of the card's memory, for an engine beside another process."""
HERE = Path(__file__).parent
ALL = ("ttft", "abort", "sustained")


class Lever(NamedTuple):
    """One row.

    Attributes:
        parts: what is measured of it.
        needs: a Python package that it does not work without.
        lacks: why it cannot be measured here, where that is known without trying.
    """

    name: str
    arguments: dict[str, Any]
    parts: tuple[str, ...]
    needs: str = ""
    lacks: str = ""


class Stopped(Exception):
    """Somebody ended the run: what was measured is written."""


def lacking(package: Path) -> list[str]:
    """What the vLLM in this folder does not have of what the product uses; read, not imported, which takes a minute."""

    def says(module: str, name: str) -> bool:
        try:
            return name in (package / module).read_text("utf-8")
        except OSError:
            return False

    wanted = {
        "tiers behind host memory (TieringOffloadingSpec)": says(
            "v1/kv_offload/tiering/spec.py", "class TieringOffloadingSpec"
        ),
        "an eviction policy of our own (cache_policy_module_path)": says(
            "v1/kv_offload/tiering/spec.py", "cache_policy_module_path"
        ),
        "cache salts": says("v1/core/kv_cache_utils.py", "cache_salt"),
        "suffix speculation": says("config/speculative.py", '"suffix"'),
        "draft-model speculation": says("config/speculative.py", "draft_model"),
        "the abort endpoint (--enable-scale-out)": says("entrypoints/launchers/cli_args.py", "enable_scale_out"),
        "recomputing blocks that cannot be loaded": says("config/kv_transfer.py", "kv_load_failure_policy"),
    }
    return [name for name, there in wanted.items() if not there]


def rows_of(args: argparse.Namespace, folder: Path, gpu: bool) -> list[Lever]:
    """What is measured: the levers, or the profiles of deploy/ that the cards here are for."""
    if not args.profiles:
        return levers(args, folder, gpu)
    gpus, memory_gb = _cards() if gpu else (0, 0.0)
    return [
        Lever(name, {}, (), lacks=lacks)
        if (lacks := profiles.lacking_for(name, gpus=gpus, memory_gb=memory_gb))
        else Lever(name, profiles.arguments_of(name, folder), ALL)
        for name in profiles.names()
    ]


def _cards() -> tuple[int, float]:
    """How many there are, and gigabytes of the smallest."""
    asked = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return 1, 1e9  # of another maker: an engine says itself what does not fit
    return len(said), min((int(one) * (1 << 20) / 1e9 for one in said), default=0.0)


def levers(args: argparse.Namespace, folder: Path, gpu: bool) -> list[Lever]:
    """The most wanted first: what does not fit the time is left out and named."""
    shape, draft = ("7b", "0.5b") if gpu else ("toy", "toy-draft")

    def model(quantization: str = "") -> dict[str, Any]:
        if args.model is not None and not quantization:
            return {"model": str(args.model)}
        made = write_shape(shape, folder / f"{shape}-{quantization or 'plain'}", quantization=quantization)
        return {"model": str(made), "load_format": "dummy"}

    common: dict[str, Any] = {
        "skip_tokenizer_init": True,
        "max_model_len": 8192 if gpu else 1024,
        "max_num_seqs": 32,
        "max_num_batched_tokens": 2048,
        "block_size": 16 if gpu else 32,
        "enable_prefix_caching": True,
        "seed": 0,
        "dtype": "bfloat16" if gpu else "float32",
        "scheduling_policy": "priority",
    }
    if gpu:
        common |= {
            "gpu_memory_utilization": BESIDE_SHARE if args.beside else 0.9,
            "compilation_config": {"cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 40, 80, 160]},
        }
    else:
        # Said outright: else the engine asks for most of the machine's memory.
        common |= {"enforce_eager": True, "kv_cache_memory_bytes": 1 << 30}
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
    suffix = {"method": "suffix", "num_speculative_tokens": tokens_drafted}
    host = {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"cpu_bytes_to_use": 8 << 30},
    }
    together = {"quantization": "fp8", "kv_cache_dtype": "fp8"} if gpu else {}
    plain = {**common, **model()}
    rows = [
        Lever(
            "bf16" if gpu else "float32", plain, ("ttft", "ttft_long", "decode", "abort", "abort_prefill", "sustained")
        ),
        Lever(
            "all together", {**plain, **together, "speculative_config": ngram}, ("ttft", "decode", "abort", "sustained")
        ),
        Lever("no prefix cache", {**plain, "enable_prefix_caching": False}, ("ttft",)),
        Lever("ngram", {**plain, "speculative_config": ngram}, ("steps", "ttft", "decode")),
    ]
    on_gpu = [
        Lever("fp8", {**plain, "quantization": "fp8"}, ("ttft", "decode", "sustained")),
        Lever("host tier", {**plain, "kv_transfer_config": host}, ("host_tier",)),
        Lever("fp8 KV", {**plain, "kv_cache_dtype": "fp8"}, ("ttft", "decode")),
        Lever("int4", {**common, **model("int4"), "dtype": "float16"}, ("ttft", "decode")),
        Lever("no CUDA graphs", {**eager, **model()}, ("ttft",)),
        Lever("int8", {**common, **model("int8")}, ("ttft", "decode")),
    ]
    rows += on_gpu if gpu else []
    rows += [
        Lever("draft", {**plain, "speculative_config": drafted}, ("steps", "ttft")),
        Lever("suffix", {**plain, "speculative_config": suffix}, ("steps", "ttft"), needs="arctic_inference"),
    ]
    rows += [] if gpu else [Lever(one.name, {}, (), lacks="a GPU") for one in on_gpu]
    if args.own is not None:
        own = {**common, "model": str(args.own), "max_model_len": 1024, "speculative_config": ngram}
        rows.insert(2, Lever("own model, ngram", own, ("steps",)))
    return rows


def measure(plan: dict[str, Any], seconds: float, log: Path) -> dict[str, Any]:
    """One child; its whole process group ends with it. What is cut off has the figures that it had until then."""
    environment = {**os.environ, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
    if importlib.util.find_spec("flashinfer") is None:  # the engine takes it for there
        environment.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    # Of a build for CPUs: threads that spin while they wait for each other stand still on cores with other work.
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
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
        except (Stopped, KeyboardInterrupt):
            cut = "stopped"
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
            return {"failed": f"{cut}, before it had started", "cut": cut}
        told = [line for line in lines if "Error" in line or "no option" in line] or lines or ["nothing was said"]
        # The engine's own process says why it failed; what began it says last that it did.
        causes = [line for line in told if "core initialization failed" not in line] or told
        return {"failed": causes[-1].strip()[:300]}


def share_of(left_s: float, levers_left: int, start_s: float | None) -> float:
    """Seconds for the next lever: its part of what is left, but enough for a start as long as those seen so far."""
    least = FIRST_S if start_s is None else 1.5 * start_s + 20
    return min(left_s, max(left_s / levers_left, least))


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
        if row.get("parts_left_out") or row.get("cut"):
            line += f"  {row.get('cut', 'no time')}: without {', '.join(row.get('parts_left_out', [])) or 'the rest'}"
        if "decode" in row:
            line += "".join(f"  {one['p50_ms']:.1f} ms a token at {n}" for n, one in row["decode"].items())
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
    parser.add_argument("--profiles", action="store_true", help="the profiles of deploy/ in place of levers")
    parser.add_argument("--own", type=Path, help="folder of the project's own model, for acceptance")
    parser.add_argument("--json", type=Path, default=Path("gpu-bench.json"), help="where the figures go")
    parser.add_argument("--only", default="", help="names of rows, separated by commas; default: all")
    parser.add_argument("--seconds", type=float, default=LIMIT_S, help="for everything")
    parser.add_argument(
        "--beside", type=int, default=0, help="a process on the same card, which is stopped while a row is measured"
    )
    args = parser.parse_args()
    try:
        import vllm
        from vllm.platforms import current_platform
    except ImportError as error:
        print(f"gpu-bench needs vLLM in this Python ({error}); `pip install 'vllm>=0.32,<0.34'`", file=sys.stderr)
        return 2
    gpu = not current_platform.is_cpu()
    device = current_platform.get_device_name() if gpu else "CPU, at toy size"
    missing = lacking(Path(vllm.__file__).parent)
    print(f"vllm {vllm.__version__} on {device}")
    for name in missing:
        print(f"  this version lacks {name}")
    result: dict[str, Any] = {"vllm": vllm.__version__, "gpu": gpu, "device": device, "lacks": missing, "rows": {}}
    signal.signal(signal.SIGTERM, _stop)
    try:
        with tempfile.TemporaryDirectory(prefix="gpu-bench") as name:
            _measure_all(args, result, Path(name), began)
    except (Stopped, KeyboardInterrupt):
        result["stopped"] = True
    _write(args.json, result, began)
    print(table(result["rows"]))
    print(f"{result['seconds']:.0f} s; figures in {args.json}")
    return 1 if all("failed" in row for row in result["rows"].values()) else 0


def _measure_all(args: argparse.Namespace, result: dict[str, Any], folder: Path, began: float) -> None:
    """Fills `result`, and writes it after every lever: a run that is killed has what it had measured."""
    gpu, rows = result["gpu"], result["rows"]
    ends = began + args.seconds - RESERVE_S
    only = {name.strip() for name in args.only.split(",") if name.strip()}
    wanted = [one for one in rows_of(args, folder, gpu) if not only or one.name in only]
    if not wanted:
        result["rows"]["none"] = {"failed": f"--only {args.only}: no row has such a name"}
    start_s: float | None = None
    for at, lever in enumerate(wanted):
        left = ends - time.monotonic()
        possible = sum(not one.lacks for one in wanted[at:])
        if lever.lacks or (lever.needs and importlib.util.find_spec(lever.needs) is None):
            rows[lever.name] = {"failed": f"needs {lever.lacks or f'{lever.needs}, which is not installed'}"}
        elif left < max(LEAST_S, start_s or 0):
            rows[lever.name] = {"failed": f"no time was left; a start takes {start_s or LEAST_S:.0f} s here"}
        else:
            seconds = share_of(left, possible, start_s)
            plan = {
                "arguments": lever.arguments,
                "parts": lever.parts,
                "prompt_tokens": 2000 if gpu else 256,
                "long_tokens": 6000 if gpu else 768,
                "output_tokens": 16 if gpu else 8,
                "samples": 32 if gpu else 8,
                "vocabulary": _vocabulary(Path(lever.arguments["model"])),
                "seconds": seconds - 5,
                "answer": str(folder / f"{at}.json"),
                "beside": args.beside,
            }
            if lever.name.startswith("own"):
                plan["prompts"] = own_prompts(args.own)
            row = rows[lever.name] = measure(plan, seconds, folder / f"{at}.log")
            start_s = max(start_s or 0, row.get("start_s", 0)) or start_s
            print(f"  {lever.name}: {time.monotonic() - began:.0f} s", flush=True)
        _write(args.json, result, began)
        if rows[lever.name].get("cut") == "stopped":
            raise Stopped


def _write(path: Path, result: dict[str, Any], began: float) -> None:
    result["seconds"] = round(time.monotonic() - began, 1)
    partial = path.with_name(f"{path.name}.part")
    partial.write_text(json.dumps(result, indent=1))
    partial.replace(path)


def _stop(*_: object) -> None:
    raise Stopped


def _vocabulary(folder: Path) -> int:
    return int(json.loads((folder / "config.json").read_text("utf-8"))["vocab_size"])


def own_prompts(folder: Path) -> list[list[int]]:
    """Beginnings of our own sources, which the model never saw the rest of, in its own tokens."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    files = sorted((HERE.parents[1] / "context" / "foretype_context" / "prompt").glob("*.py"))[-8:]
    return [tokenizer.encode(file.read_text("utf-8")[:1500]).ids for file in files]


if __name__ == "__main__":
    sys.exit(main())
