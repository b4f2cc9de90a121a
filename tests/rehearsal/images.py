"""What images are made of and start. Ours are read from their Dockerfiles and installed by pip as these say; others have stand-ins of this machine."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from foretype_models.artifacts import available, made_of, models_folder

__all__ = ["ROOT", "Image", "foreign", "gateway_image", "install", "vllm_image"]

ROOT = Path(__file__).parents[2]
STORE = ROOT / ".rehearsal"
_GATEWAY, _BESIDE, _SHARE = STORE / "gateway", STORE / "vllm", STORE / "share"
_VLLM = Path(os.environ.get("FORETYPE_VLLM_VENV", ROOT / ".venv-vllm"))
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Image:
    """Attributes:
    folders: of the image's file system that a volume takes its owner from: path, then user id and mode.
    binds: folders of this machine that hold the image's programs, by their place in the image.
    """

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "0:0"
    folders: dict[str, tuple[int, int]] = field(default_factory=dict)
    binds: dict[str, Path] = field(default_factory=dict)


def _read(dockerfile: Path, target: str | None) -> list[tuple[str, str]]:
    """Instructions of one stage, the last one by default."""
    text = re.sub(r"\\\n\s*", "", dockerfile.read_text("utf-8"))
    stages: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "FROM":
            name = rest.partition(" AS ")[2] or "last"
            stages[name] = []
        stages[name].append((word, rest))
    return stages[target or name]


def _image(dockerfile: Path, target: str | None, binds: dict[str, Path], extra: dict[str, str]) -> Image:
    environment = {"PATH": _PATH}
    folders: dict[str, tuple[int, int]] = {}
    words: dict[str, tuple[str, ...]] = {"ENTRYPOINT": (), "CMD": ()}
    user = "0:0"
    for word, rest in _read(dockerfile, target):
        if word == "ENV":
            for pair in shlex.split(rest):
                key, _, value = pair.partition("=")
                environment[key] = value.replace("$PATH", environment["PATH"])
        elif word in words:
            words[word] = tuple(json.loads(rest))
        elif word == "USER":
            user = rest
        elif word == "RUN":
            for uid, mode, paths in re.findall(r"install -d -o (\d+) -g \d+ -m (\d+)((?: /\S+)+)", rest):
                folders |= dict.fromkeys(paths.split(), (int(uid), int(mode, 8)))
    return Image(words["ENTRYPOINT"], words["CMD"], environment | extra, user, folders, binds)


def _run(*command: str, **more: str) -> None:
    """With `more` in its environment."""
    done = subprocess.run(command, cwd=ROOT, env=os.environ | more, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")


def install(deploy: Path) -> None:
    """Install what the Dockerfiles install, which needs the network: extras and versions as they say, and our wheel as it is now."""
    folder = STORE / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), ".")
    (wheel,) = folder.glob("*.whl")
    text = (deploy / "Dockerfile").read_text("utf-8").replace("\\\n", "")
    (extras,) = re.findall(r"pip install .*'\.(\[[^\]]+\])'", text)
    inputs = b"".join((ROOT / name).read_bytes() for name in ("pyproject.toml", "requirements/lock.txt"))
    wanted = _GATEWAY / hashlib.sha256(inputs + extras.encode()).hexdigest()
    python = str(_GATEWAY / "bin" / "python")
    if wanted.exists():
        _run(python, "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", str(wheel))
    else:
        shutil.rmtree(_GATEWAY, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(_GATEWAY))
        _run(python, "-m", "pip", "install", "-q", "-c", "requirements/lock.txt", f"{wheel}{extras}")
        wanted.touch()
    python = str(_VLLM / "bin" / "python")
    if not Path(python).exists():
        raise RuntimeError(f"no vLLM in {_VLLM}: make vllm-env")
    shutil.rmtree(_BESIDE, ignore_errors=True)
    text = (deploy / "Dockerfile.vllm").read_text("utf-8")
    (projects,) = re.findall(r"pip install --no-cache-dir --no-deps (\..*)", text)
    wanted_there = [str(wheel) if project == "." else project for project in projects.split()]
    _run(python, "-m", "pip", "install", "-q", "--no-deps", "--target", str(_BESIDE), *wanted_there)
    _fetch(deploy / "Dockerfile.vllm", "cpu")


def _fetch(dockerfile: Path, target: str) -> None:
    """Run what the Dockerfile runs to have the model in the image; what lies there of an earlier rehearsal, or with this user, is kept."""
    (command,) = (rest for word, rest in _read(dockerfile, target) if word == "RUN" and "foretype models fetch" in rest)
    name = available()[0].name
    mine, there = models_folder() / name, _SHARE / "foretype" / "models" / name
    if made_of(mine) not in (None, made_of(there)):
        shutil.rmtree(there, ignore_errors=True)
        shutil.copytree(mine, there)
    path = f"{_VLLM / 'bin'}:{os.environ['PATH']}"
    _run("sh", "-ec", command, PATH=path, PYTHONPATH=str(_BESIDE), XDG_DATA_HOME=str(_SHARE))
    uid = int(_image(dockerfile, target, {}, {}).user.partition(":")[0])
    for made in (_SHARE, *_SHARE.rglob("*")):
        os.chown(made, uid, uid)


def gateway_image(deploy: Path) -> Image:
    return _image(deploy / "Dockerfile", None, {"/opt/foretype": _GATEWAY}, {})


def vllm_image(deploy: Path, target: str) -> Image:
    """vLLM as `make vllm-env` installed it, from the file that the target for processors names, and our wheel beside it."""
    if target != "cpu":
        raise RuntimeError(f"the target {target} of Dockerfile.vllm needs a GPU")
    binds = {"/opt/vllm": _VLLM, "/opt/foretype": _BESIDE}
    image = _image(deploy / "Dockerfile.vllm", target, binds, {"PYTHONPATH": "/opt/foretype"})
    return replace(image, binds=image.binds | {image.environment["XDG_DATA_HOME"]: _SHARE})


def foreign(name: str) -> Image | None:
    """A stand-in for somebody else's image: Debian's program, started as that image starts it. None where there is no program."""
    if name.startswith("postgres:"):
        (folder,) = Path("/usr/lib/postgresql").glob("*/bin")
        make = (
            'test -e $PGDATA/PG_VERSION || { printf %s "${POSTGRES_PASSWORD:-$(cat $POSTGRES_PASSWORD_FILE)}" > /tmp/password; initdb -U $POSTGRES_USER -A scram-sha-256 '
            "--pwfile /tmp/password -E UTF8 --locale C --no-sync > /dev/null; echo 'host all all all scram-sha-256' >> $PGDATA/pg_hba.conf; "
            "printf 'create database %s' $POSTGRES_USER | postgres --single -j postgres > /dev/null; }; "
            "exec postgres -c listen_addresses='*' -k /tmp"
        )
        data = "/var/lib/postgresql/data"
        environment = {"PATH": f"{folder}:{_PATH}", "PGDATA": data, "PGHOST": "127.0.0.1", "LC_ALL": "C"}
        return Image(("sh", "-ec", make), (), environment, "999:999", {data: (999, 0o700)})
    if name.startswith("redis:"):
        # That image's server is built with protected mode off.
        start = ("sh", "-ec", 'exec "$@" --bind 0.0.0.0 --protected-mode no', "sh")
        return Image(start, ("redis-server",), {"PATH": _PATH}, "999:999", {})
    if name.startswith("prom/prometheus:"):
        start = ("prometheus", "--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus")
        return Image(start, (), {"PATH": _PATH}, "65534:65534", {"/prometheus": (65534, 0o755)})
    return None
