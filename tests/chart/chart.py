"""What the chart renders, as objects: `render(values)` runs the real Helm and parses what it says."""

from __future__ import annotations

import functools
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "palang"
TOOLS = ROOT / "target" / "tools" / "bin"
CASES = sorted((CHART / "ci").glob("*.yaml"))
# The oldest the chart supports, one in the middle of what it gates by version, the newest.
KUBERNETES = ["1.27.0", "1.31.0", "1.37.0"]
NAMESPACE = "edge"
RELEASE = "rl"

Object = dict[str, Any]


def tool(name: str) -> str:
    """A tool that scripts/tools.sh installs."""
    path = TOOLS / name
    found = str(path) if path.exists() else shutil.which(name)
    assert found, f"{name} is not installed: run scripts/tools.sh chart"
    return found


def helms() -> list[str]:
    """The Helm versions to test with: where only one can be installed, that one."""
    return ["helm", "helm3"] if (TOOLS / "helm3").exists() else ["helm"]


def helm(*arguments: str | os.PathLike, version: str = "helm") -> subprocess.CompletedProcess:
    return subprocess.run([tool(version), *map(str, arguments)], capture_output=True, text=True, timeout=60)


class Release:
    """One rendering."""

    def __init__(self, objects: list[Object], values: Object):
        self.objects = objects
        self.values = values

    def all(self, kind: str) -> list[Object]:
        return [found for found in self.objects if found["kind"] == kind]

    def one(self, kind: str, name: str | None = None) -> Object:
        found = [each for each in self.all(kind) if name in (None, each["metadata"]["name"])]
        assert len(found) == 1, f"{len(found)} objects {kind} {name or ''}"
        return found[0]

    def component(self, kind: str, component: str) -> Object | None:
        key = "app.kubernetes.io/component"
        found = [each for each in self.all(kind) if each["metadata"]["labels"].get(key) == component]
        assert len(found) <= 1, f"{len(found)} objects {kind} of {component}"
        return found[0] if found else None

    @property
    def deployment(self) -> Object:
        found = self.component("Deployment", "ratelimit")
        assert found, "no Deployment"
        return found

    @property
    def pod(self) -> Object:
        return self.deployment["spec"]["template"]

    @property
    def container(self) -> Object:
        return next(each for each in self.pod["spec"]["containers"] if each["name"] == "palang")

    @property
    def env(self) -> dict[str, Object]:
        return {each["name"]: each for each in self.container["env"]}

    def setting(self, name: str) -> str | None:
        """A setting's plain value."""
        return self.env.get(name, {}).get("value")

    @property
    def service(self) -> Object:
        return self._service("cluster-ip")

    @property
    def headless(self) -> Object:
        return self._service("headless")

    def _service(self, kind: str) -> Object:
        (found,) = [s for s in self.all("Service") if s["metadata"]["labels"].get("palang/service") == kind]
        return found

    def pod_templates(self) -> Iterator[tuple[str, Object, Object]]:
        """Every pod there may be: whose it is, its metadata and its spec."""
        for deployment in self.all("Deployment"):
            template = deployment["spec"]["template"]
            yield (
                deployment["metadata"]["labels"]["app.kubernetes.io/component"],
                template["metadata"],
                template["spec"],
            )
        for pod in self.all("Pod"):
            yield pod["metadata"]["labels"]["app.kubernetes.io/component"], pod["metadata"], pod["spec"]


def template(
    values: pathlib.Path | None, *arguments: str, kubernetes: str = KUBERNETES[-1], version: str = "helm"
) -> subprocess.CompletedProcess:
    files = ["--values", values] if values else []
    return helm(
        *("template", RELEASE, CHART, "--namespace", NAMESPACE, "--kube-version", kubernetes),
        *files,
        *arguments,
        version=version,
    )


@functools.cache
def render(
    values: pathlib.Path | None, *arguments: str, kubernetes: str = KUBERNETES[-1], version: str = "helm"
) -> Release:
    """Renders the chart with a file of values and further arguments such as `--set`."""
    result = template(values, *arguments, kubernetes=kubernetes, version=version)
    assert result.returncode == 0, result.stderr
    objects = [each for each in yaml.load_all(result.stdout, Loader=yaml.CSafeLoader) if each]
    given = yaml.safe_load(values.read_text()) if values else {}
    return Release(objects, without_nulls(given or {}))


def without_nulls(values: Object) -> Object:
    """As Helm takes them: a null takes the default away, and is then not there."""
    kept = {key: without_nulls(inner) if isinstance(inner, dict) else inner for key, inner in values.items()}
    return {key: inner for key, inner in kept.items() if inner is not None}


def case(name: str) -> pathlib.Path:
    return CHART / "ci" / f"{name}.yaml"


def notes(*arguments: str | os.PathLike) -> str:
    """What `helm install` says at its end. Helm 3 would ask a cluster."""
    result = helm(*("install", RELEASE, CHART, "--namespace", NAMESPACE, "--dry-run=client"), *arguments)
    assert result.returncode == 0, result.stderr
    _, _, said = result.stdout.partition("\nNOTES:\n")
    return said


def walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every scalar in it, with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from walk(inner, f"{path}[{index}]")
    else:
        yield path, value


def matches(selector: dict[str, str], labels: dict[str, str]) -> bool:
    assert selector, "an empty selector matches every pod of the namespace"
    return selector.items() <= labels.items()
