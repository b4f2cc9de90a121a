"""The images: ours by their Dockerfiles, and Debian's programs in place of those that a registry would give."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from rehearsal.engine import Engine
from rehearsal.steps import Failed, told

__all__ = ["FORMER", "ROOT", "base", "former", "gateway", "stand_in", "vllm"]

ROOT: Final = Path(__file__).parents[2]
FORMER: Final = "1a29ef95"
"""The version that is upgraded from."""

# In OCI's format an image has no health check.
_BOUNDS: Final = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=1000:1000"]
_BUILD: Final = ["build", "--format", "docker", "--isolation=chroot", "--network=host", "--pull=never", *_BOUNDS]
_STAND_INS: Final = {
    "postgres": "docker.io/library/postgres:15-bookworm",
    "redis": "docker.io/library/redis:7-bookworm",
    "prometheus": "docker.io/prom/prometheus:v2.55.1",
}


def megabytes(engine: Engine, image: str) -> float:
    return int(engine("image", "inspect", "-f", "{{.Size}}", image)) / 1e6


def base(engine: Engine) -> None:
    """What the Dockerfiles build on: from a registry where there is one, else made by debootstrap under that name."""
    (name,) = set(re.findall(r"^FROM (\S+)$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE))
    full = f"docker.io/library/{name}"
    if engine.run("image", "exists", full).returncode and engine.run("pull", "-q", full, timeout_s=600).returncode:
        _made(engine, full)
    told(f"base {name}: {megabytes(engine, full):.0f} MB")


def _made(engine: Engine, full: str) -> None:
    folder = engine.folder / "base"
    shutil.rmtree(folder, ignore_errors=True)
    sources = [*Path("/etc/apt/sources.list.d").glob("*.sources"), *Path("/etc/apt").glob("sources.list")]
    text = "\n".join(path.read_text() for path in sources)
    (mirror, *_) = [*re.findall(r"^(?:URIs:|deb) +(http\S+)", text, re.MULTILINE), "http://deb.debian.org/debian"]
    with (engine.folder / "debootstrap.log").open("w") as log:
        programs = "--include=python3,python3-venv,python3-pip,ca-certificates"
        words = ["debootstrap", "--variant=minbase", programs, "bookworm", str(folder), mirror]
        if subprocess.run(words, stdout=log, stderr=log, check=False).returncode:
            raise Failed(f"no container can run here: no registry, and debootstrap failed: {log.name}")
    (folder / "usr/bin/python").symlink_to("python3")
    (folder / "usr/lib/python3.11/EXTERNALLY-MANAGED").unlink(missing_ok=True)
    for archive in (folder / "var/cache/apt/archives").glob("*.deb"):
        archive.unlink()
    # As in the image of that name, what apt fetched is not kept, and pages for readers are not installed.
    (folder / "etc/apt/apt.conf.d/clean").write_text(
        'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin"; };\n'
    )
    excluded = ("doc", "man", "locale", "info", "groff", "lintian")
    (folder / "etc/dpkg/dpkg.cfg.d/slim").write_text("".join(f"path-exclude /usr/share/{one}/*\n" for one in excluded))
    tar = subprocess.Popen(["tar", "-C", str(folder), "-c", "."], stdout=subprocess.PIPE)
    words = [str(engine.program), "import", "--change", 'CMD ["python3"]', "-", full]
    imported = subprocess.run(words, stdin=tar.stdout, capture_output=True, check=False)
    if tar.wait() or imported.returncode:
        raise Failed(f"no container can run here: the base was not imported: {imported.stderr.decode()[-300:]}")
    shutil.rmtree(folder)


def _mounts(engine: Engine) -> list[str]:
    """Certificates, and pip's settings here with the folders that they name: a build goes where pip goes here."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    settings = dict(line.split("=", 1) for line in listed.stdout.splitlines())  # the environment's come last, and win
    values = {name.rpartition(".")[2]: str(ast.literal_eval(value)) for name, value in settings.items()}
    file = engine.folder / "pip.conf"
    file.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in values.items()))
    words = " ".join(values.values()).replace("file://", "").split()
    named = {Path(word) for word in words if word.startswith("/") and Path(word).exists()}
    certificates = Path("/etc/ssl/certs")
    named = {certificates, *(_with_files(path) for path in named if not path.is_relative_to(certificates))}
    return ["-v", f"{file}:/etc/pip.conf:ro", *(word for path in sorted(named) for word in ("-v", f"{path}:{path}:ro"))]


def _with_files(path: Path) -> Path:
    """An index of packages is named by its pages, and the files lie beside them."""
    return path.parent if path.name == "simple" else path


def _build(engine: Engine, name: str, dockerfile: Path, context: Path, *options: str) -> None:
    words = [*_BUILD, *options, "-f", str(dockerfile), "-t", name, str(context)]
    log = engine.folder / f"build-{name.replace(':', '-')}.log"
    with log.open("w") as out:
        code = subprocess.run([engine.program, *words], stdout=out, stderr=out, check=False).returncode
    if code:
        raise Failed(f"the image {name} was not built: {log}\n" + "\n".join(log.read_text().splitlines()[-30:]))
    told(f"image {name}: {megabytes(engine, name):.0f} MB")


def gateway(engine: Engine) -> None:
    _build(engine, "foretype", ROOT / "deploy" / "Dockerfile", ROOT, *_mounts(engine))


def vllm(engine: Engine) -> None:
    _build(engine, "foretype-vllm:cpu", ROOT / "deploy" / "Dockerfile.vllm", ROOT, "--target", "cpu", *_mounts(engine))


def stand_in(engine: Engine, target: str) -> None:
    """Debian's program by the name that compose.yaml has, where a registry gives none."""
    folder = ROOT / "tests" / "containers"
    _build(engine, f"stand-in-{target}", folder / "Dockerfile.stores", folder, "--target", target)
    engine("tag", f"stand-in-{target}", _STAND_INS[target])


def former(engine: Engine) -> Path:
    """The gateway's image of an earlier commit, `foretype:former`. Returns that commit's files."""
    folder = engine.folder / "former"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", FORMER], capture_output=True, check=False)
    if packed.returncode:
        raise Failed(
            f"the commit {FORMER} is not in this clone, and an upgrade from it cannot be rehearsed: git fetch --unshallow"
        )
    subprocess.run(["tar", "-C", str(folder), "-x"], input=packed.stdout, check=True)
    _build(engine, "foretype:former", folder / "deploy" / "Dockerfile", folder, *_mounts(engine))
    return folder
