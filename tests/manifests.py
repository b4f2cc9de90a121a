"""The Kubernetes manifests as `kubectl kustomize` renders them, and whether they are what a cluster takes."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import kubernetes_validate.utils
import yaml

__all__ = ["FOLDER", "OVERLAYS", "VERSIONS", "Invalid", "check_object", "kubectl", "render", "the"]

FOLDER = Path(__file__).parents[1] / "deploy" / "kubernetes"
OVERLAYS = ("small", "team", "scaled")
VERSIONS = ("1.29", "1.32", "1.37")
"""Of Kubernetes, whose schemas every object has to fit."""

# The library reads the definitions of a version, a megabyte and more, anew for every object.
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)


class Invalid(Exception):
    """An object that a cluster would refuse, or of a kind that nobody knows."""


def kubectl() -> str | None:
    """The machine's own, else the one that requirements/kubectl.sh put beside this Python."""
    beside = Path(sys.prefix) / "bin" / "kubectl"
    return shutil.which("kubectl") or (str(beside) if beside.exists() else None)


@functools.cache
def render(overlay: str, folder: Path = FOLDER) -> list[dict[str, Any]]:
    """All objects of an overlay. Raises FileNotFoundError without kubectl, and CalledProcessError."""
    command = kubectl()
    if command is None:
        raise FileNotFoundError("there is no kubectl: requirements/kubectl.sh gets one")
    done = subprocess.run([command, "kustomize", str(folder / overlay)], capture_output=True, text=True, check=True)
    assert not done.stderr, done.stderr  # a warning: something is written in a form that is going away
    return [one for one in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if one]


def the(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """The object of this kind and name. A name that kustomize gave a digest is found without it."""
    found = [
        one
        for one in objects
        if one["kind"] == kind and (one["metadata"]["name"] == name or one["metadata"]["name"][:-11] == name)
    ]
    assert len(found) == 1, (kind, name, [one["metadata"]["name"] for one in found])
    return found[0]


def check_object(one: dict[str, Any], version: str) -> None:
    """Raises Invalid. Kinds of Kubernetes' own by its schemas, strictly; others by those that stand in deploy/kubernetes/schemas."""
    group, _, api = one["apiVersion"].rpartition("/")
    schema = FOLDER / "schemas" / f"{one['kind'].lower()}-{group}-{api}.json"
    try:
        if schema.exists():
            jsonschema.Draft7Validator(json.loads(schema.read_text("utf-8"))).validate(one)
        elif group and "." in group and not group.endswith(".k8s.io"):
            raise Invalid(f"no schema of {one['kind']} in {group}")
        else:
            kubernetes_validate.validate(one, version, strict=True)
    except (jsonschema.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        raise Invalid(f"{one['kind']} {one['metadata'].get('name')}: {error.message}") from error
