"""`make gpu-campaign REHEARSE=1`: the whole campaign at toy size on a CPU, from pieces; killed once in its training, and gone on with.

What it leaves for docs is the JSON that a campaign brings home: ``--json FILE``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / one) for one in ("lab/gpu", "lab", "models", "context", "tests")]

import pieces
from foretype_lab.corpus.store import build_store
from models.networks import write_base
from pack import pack, pack_wheels

CONFIG = """seed = 1
rank = 32
tokens = 60_000
batch_tokens = 1024
micro_tokens = 512
rate_a = 0.0004
rate_b = 0.0012
rate_rows = 0.002
warmup_steps = 4
threads = 1
checkpoint_seconds = 2
[lengths]
128 = 0.5
256 = 0.5
[layouts]
spm = 1.0
"""
PIECE_BYTES = 64 << 10


def packed(scratch: Path, folder: Path) -> None:
    """Pieces of a store of our own sources, a random base and one wheel."""
    for split, package in (("train", "context"), ("validation", "wire")):
        files = sorted((ROOT / package).rglob("*.py"))[:40]
        build_store(
            ({"repo": str(at % 5), "path": one.name, "text": one.read_text("utf-8")} for at, one in enumerate(files)),
            scratch / "stores" / split,
        )
    pack(scratch / "stores", scratch / "store.tar.xz", 1.0)
    write_base(scratch / "base.gguf")
    (scratch / "wheels").mkdir()
    with zipfile.ZipFile(scratch / "wheels" / "carried-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("carried.py", "CAME = True\n")
        wheel.writestr("carried-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: carried\nVersion: 1.0\n")
        wheel.writestr("carried-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("carried-1.0.dist-info/RECORD", "")
    wheels = pack_wheels(scratch / "wheels", scratch)
    pieces.cut([scratch / "store.tar.xz", scratch / "base.gguf", *wheels], folder, PIECE_BYTES)


def kill_training(state: Path) -> None:
    """As a machine that takes it away would, once it has a checkpoint."""
    pid = int((state / "trainer.pid").read_text("utf-8"))
    while not (state / "run" / "last.pt").exists():
        os.kill(pid, 0)  # it is to run until then
        time.sleep(0.1)
    os.killpg(pid, signal.SIGKILL)
    print("--- its training was killed", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="where the figures go")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpu-rehearsal") as name:
        scratch = Path(name)
        folder, all_of_it = scratch / "come", scratch / "all"
        packed(scratch, all_of_it)
        (scratch / "toy.toml").write_text(CONFIG)
        environment = {**os.environ, "FORETYPE_GPU": str(scratch / "state"), "OUT": str(scratch / "out")}
        command = [
            sys.executable,
            str(ROOT / "lab/gpu/campaign.py"),
            str(folder),
            "--toy",
            "--config",
            str(scratch / "toy.toml"),
        ]

        def call(minutes: float) -> int:
            """A call's exit status."""
            print(f"--- a call of {minutes:g} minutes", flush=True)
            return subprocess.run([*command, "--minutes", str(minutes)], env=environment, check=False).returncode

        folder.mkdir()
        assert call(0) == 2, "without a manifest nothing begins"
        names = sorted(one.name for one in all_of_it.iterdir())
        for one in names:
            shutil.copyfile(all_of_it / one, folder / one)
        (folder / "base.gguf.00").write_bytes(b"damaged")
        (folder / "vllm.tar.00").unlink()
        assert call(0) == 0
        shutil.rmtree(folder)  # as on a machine that gets one load a call
        folder.mkdir()
        for one in (pieces.MANIFEST, "base.gguf.00", "vllm.tar.00"):
            shutil.copyfile(all_of_it / one, folder / one)
        assert call(0) == 0
        kill_training(scratch / "state")
        ended = call(20)
        came = (scratch / "out" / "adapter.gguf").is_file()
        result = json.loads((scratch / "out" / "gpu-campaign.json").read_text("utf-8"))
        if given.json is not None:
            text = json.dumps(result, indent=1).replace(str(scratch), "…").replace(f"{ROOT}/", "")
            given.json.write_text(text + "\n", "utf-8")
    trained = result["steps"].get("train", {})
    assert came and trained.get("done") and trained["tries"] == 2, trained
    return ended


if __name__ == "__main__":
    sys.exit(main())
