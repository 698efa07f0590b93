import os
import pathlib
import subprocess

import pytest

import chart


def name(value: object) -> str | None:
    return value.stem if isinstance(value, pathlib.Path) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`release` is every values file in helm/palang/ci, rendered; `values` is its path."""
    for wanted in ("release", "values"):
        if wanted in metafunc.fixturenames:
            metafunc.parametrize(wanted, chart.CASES, ids=name, indirect=wanted == "release")


@pytest.fixture
def release(request: pytest.FixtureRequest) -> chart.Release:
    return chart.render(request.param)


@pytest.fixture(scope="session")
def palang() -> str:
    path = pathlib.Path(os.environ.get("PALANG_BIN", chart.ROOT / "target" / "debug" / "palang")).resolve()
    if not os.access(path, os.X_OK):
        pytest.fail(f"{path} does not exist: run `cargo build` first, or set PALANG_BIN", pytrace=False)
    return str(path)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory) -> dict[str, str]:
    """A CA and a certificate of localhost, good for both sides."""
    directory = tmp_path_factory.mktemp("certificates")
    extensions = directory / "extensions"
    extensions.write_text(
        "subjectAltName=DNS:localhost,DNS:envoy.gateway.svc,IP:127.0.0.1\n"
        "keyUsage=digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n"
    )

    def openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, cwd=directory)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    ca = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
    openssl("req", "-x509", *curve, "-days", "2", "-subj", "/CN=test CA", "-keyout", "ca.key", "-out", "ca.crt", *ca)
    openssl("req", *curve, "-subj", "/CN=localhost", "-keyout", "tls.key", "-out", "tls.csr")
    sign = ("-req", "-in", "tls.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
    openssl("x509", *sign, "-extfile", extensions, "-out", "tls.crt")
    return {name: (directory / name).read_text() for name in ("ca.crt", "tls.crt", "tls.key")}


@pytest.fixture(scope="session")
def image() -> pathlib.Path:
    """The image's files, as scripts/image.py makes them by the Dockerfile's steps."""
    release = pathlib.Path(os.environ.get("PALANG_RELEASE", chart.ROOT / "target" / "image" / "palang"))
    if not os.access(release, os.X_OK):
        pytest.fail(f"{release} does not exist: run `make image` first, or set PALANG_RELEASE", pytrace=False)
    return release.resolve().parent
