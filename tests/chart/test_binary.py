"""The real service accepts what the chart renders: environment, rules, mounts, and the command of `helm test`."""

import base64
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import pytest
import yaml

import chart
from chart import case, render

# In one worker: what is a free port to one must not be to another.
pytestmark = [pytest.mark.binary, pytest.mark.xdist_group("binary")]

PATIENCE = 20.0


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


def project(directory: pathlib.Path, files: dict[str, str]) -> None:
    """Lays files out as the kubelet does: links through `..data` into a hidden directory."""
    hidden = directory / "..2026_01_01_00_00_00.000000001"
    hidden.mkdir(parents=True)
    for name, text in files.items():
        (hidden / name).write_text(text)
        (directory / name).symlink_to(pathlib.Path("..data") / name)
    (directory / "..data").symlink_to(hidden.name)


class Pod:
    """One container, run as a process: its environment and mounts, but free ports and no cluster."""

    def __init__(self, release: chart.Release, spec: dict, container: dict, directory: pathlib.Path, certificates):
        self.release = release
        directory.mkdir(parents=True, exist_ok=True)
        self.certificates = certificates
        self.paths: dict[str, str] = {}
        volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
        for mount in container.get("volumeMounts", []):
            target = directory / mount["name"]
            self.paths[mount["mountPath"]] = str(target)
            project(target, self.files(volumes[mount["name"]]))
        self.env: dict[str, str] = {}
        for variable in container.get("env", []):
            value = variable["value"] if "value" in variable else self.value_from(variable["valueFrom"])
            for name, earlier in self.env.items():
                value = value.replace(f"$({name})", earlier)
            self.env[variable["name"]] = self.here(value)
        self.arguments = [self.here(argument) for argument in container["args"]]

    def here(self, value: str) -> str:
        for mounted, real in self.paths.items():
            if value == mounted or value.startswith(f"{mounted}/"):
                return real + value[len(mounted) :]
        return value

    def files(self, volume: dict) -> dict[str, str]:
        if "configMap" in volume:
            for found in self.release.all("ConfigMap"):
                if found["metadata"]["name"] == volume["configMap"]["name"]:
                    return found.get("data") or {}
            return {"existing.yaml": "domain: existing\ndescriptors: []\n"}
        if "secret" in volume:
            tls = self.release.values.get("tls", {})
            named = {tls.get("certKey"): "tls.crt", tls.get("keyKey"): "tls.key"}
            files = {name: self.certificates[known] for name, known in named.items() if name}
            return {**self.certificates, **files}
        return {}

    def value_from(self, source: dict) -> str:
        if "fieldRef" in source:
            return "somewhere"
        reference = source["secretKeyRef"]
        for secret in self.release.all("Secret"):
            if secret["metadata"]["name"] == reference["name"]:
                data = {key: base64.b64decode(text).decode() for key, text in secret.get("data", {}).items()}
                return {**data, **secret.get("stringData", {})}[reference["key"]]
        return "redis://user:pa%3Ass@127.0.0.1:1" if reference["key"] == "url" else "of-somebody-else"


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Service:
    """The running service."""

    def __init__(self, process: subprocess.Popen, ports: dict[str, int], log: pathlib.Path):
        self.process = process
        self.ports = ports
        self.log = log

    @property
    def address(self) -> str:
        return f"localhost:{self.ports['GRPC_PORT']}"

    def status(self, path: str, port: str = "PORT") -> int | None:
        """The HTTP status of a path; None if nobody answers."""
        return get(f"http://127.0.0.1:{self.ports[port]}{path}")

    def eventually(self, condition) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, f"it ended by itself:\n{self.log.read_text()}"
            assert time.monotonic() < deadline, f"still not so:\n{self.log.read_text()}"
            time.sleep(0.02)

    def becomes_ready(self) -> None:
        self.eventually(lambda: self.status("/readyz") == 200)


@contextlib.contextmanager
def served(palang: str, release: chart.Release, directory: pathlib.Path, certificates, **settings: str):
    """The service, started as the Deployment says and stopped as the kubelet does."""
    pod = Pod(release, release.pod["spec"], release.container, directory, certificates)
    ports = dict(zip(("GRPC_PORT", "PORT", "DEBUG_PORT", "metrics"), free_ports(4)))
    environment = {
        **pod.env,
        # Where this machine differs from a pod: others run here, and it may have no IPv6.
        **{name: str(port) for name, port in ports.items() if name != "metrics"},
        "PROMETHEUS_ADDR": f"127.0.0.1:{ports['metrics']}",
        **{name: "127.0.0.1" for name in ("GRPC_HOST", "HOST", "DEBUG_HOST")},
        "SHUTDOWN_DELAY": "0s",
        **settings,
    }
    log = directory / "log"
    with log.open("w") as output:
        process = subprocess.Popen([palang, *pod.arguments], env=environment, stdout=output, stderr=output, cwd="/")
    try:
        yield Service(process, ports, log)
        assert process.poll() is None, f"it ended by itself:\n{log.read_text()}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def get(url: str, **headers: str) -> int | None:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=PATIENCE) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def rules_of(release: chart.Release) -> dict[str, str]:
    """The files of the ConfigMap that is mounted as rules, if the chart makes it."""
    volumes = release.pod["spec"].get("volumes", [])
    names = [volume["configMap"]["name"] for volume in volumes if volume["name"] == "rules"]
    found = [each for each in release.all("ConfigMap") if each["metadata"]["name"] in names]
    return (found[0].get("data") or {}) if found else {}


def test_check_accepts_the_rendered_rules(palang, release, tmp_path):
    files = rules_of(release)
    if not files:
        return
    project(tmp_path / "rules", files)
    merge = ["--merge-domains"] if release.setting("MERGE_DOMAIN_CONFIG") == "true" else []
    result = subprocess.run([palang, "check", *merge, tmp_path / "rules"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_check_refuses_what_a_configmap_can_break(palang, tmp_path):
    broken = {"shop.yaml": "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {unit: fortnight}\n"}
    project(tmp_path / "rules", broken)
    result = subprocess.run([palang, "check", tmp_path / "rules"], capture_output=True, text=True)
    assert result.returncode != 0
    assert "shop.yaml" in result.stdout + result.stderr


def test_the_rendered_environment_starts_it(palang, release, tmp_path, certificates):
    """It lives, whatever its store and its xDS server do (here: nothing), and ends in peace."""
    with served(palang, release, tmp_path, certificates) as service:
        service.eventually(lambda: service.status("/livez") == 200)
        wanted = 200 if release.setting("USE_PROMETHEUS") == "true" else None
        assert service.status("/metrics", "metrics") == wanted
        if "REDIS_URL" not in release.env and release.setting("CONFIG_TYPE") != "GRPC_XDS_SOTW":
            service.becomes_ready()
        said = service.log.read_text()
        for secret in ("hunter2", "p:@ss", "pa%3Ass", "of-somebody-else"):
            assert secret not in said, "the log tells a password"


def memory(name: str) -> chart.Release:
    """A case, with its counters in memory, so that it can decide without a Redis."""
    arguments = ["store=memory", "replicaCount=1", "redis.url=", "redis.trial.enabled=false"]
    return render(case(name), "--set", ",".join(arguments))


@pytest.mark.parametrize("name", ["quickstart", "rules-many", "tls-secret", "mtls-cert-manager"])
def test_the_pod_of_helm_test_gets_its_answer(palang, name, tmp_path, certificates):
    release = memory(name)
    test = release.component("Pod", "test")["spec"]
    with served(palang, release, tmp_path / "service", certificates) as service:
        service.becomes_ready()
        arguments = Pod(release, test, test["containers"][0], tmp_path / "test", certificates).arguments
        arguments[arguments.index("--address") + 1] = service.address
        result = subprocess.run([palang, *arguments], capture_output=True, text=True, timeout=PATIENCE, env={})
        assert result.returncode == 0, result.stdout + result.stderr + service.log.read_text()


def test_probes_get_their_answers(palang, tmp_path, certificates):
    release = memory("quickstart")
    with served(palang, release, tmp_path, certificates) as service:
        for probe in ("startupProbe", "livenessProbe"):
            path = release.container[probe]["httpGet"]["path"]
            service.eventually(lambda path=path: service.status(path) == 200)
        # `palang healthcheck` asks what the kubelet's gRPC probe asks.
        command = [palang, "healthcheck", "--address", service.address]
        service.eventually(lambda: subprocess.run(command, capture_output=True).returncode == 0)


def test_a_new_configmap_takes_effect_without_a_restart(palang, tmp_path, certificates):
    with served(palang, memory("quickstart"), tmp_path, certificates) as service:
        service.becomes_ready()

        def decide() -> int:
            command = [palang, "decide", "--address", service.address, "--domain", "new-domain"]
            command += ["--timeout", "10s"]
            asked = subprocess.run([*command, "--descriptor", "user=ada"], capture_output=True, timeout=PATIENCE)
            return asked.returncode

        assert decide() == 0, "nobody has rules for it"
        rules = tmp_path / "rules"
        fresh = rules / "..2026_01_01_00_00_01.000000002"
        fresh.mkdir()
        limit = {"unit": "day", "requests_per_unit": 0}
        text = yaml.safe_dump({"domain": "new-domain", "descriptors": [{"key": "user", "rate_limit": limit}]})
        (fresh / "my-domain.yaml").write_text(text)
        # As the kubelet does: a new link, renamed over the old one.
        (rules / "..data_tmp").symlink_to(fresh.name)
        (rules / "..data_tmp").rename(rules / "..data")
        service.eventually(lambda: decide() == 1)


def test_the_example_of_envoy_shows_a_429(palang, tmp_path, certificates):
    """examples/envoy with the real Envoy and real calls: what compose.yaml shows."""
    bootstrap = yaml.safe_load((chart.ROOT / "examples" / "envoy" / "envoy.yaml").read_text())
    front, page = free_ports(2)
    listeners = bootstrap["static_resources"]["listeners"]
    for listener, port in zip(listeners, (front, page)):
        listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": port}
    limiter = listeners[0]["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"][0]["typed_config"]
    # The example waits 20 ms and then lets calls through; a busy test machine may take longer.
    limiter["timeout"] = "5s"
    rules = chart.ROOT / "examples" / "envoy" / "rules"
    limit = yaml.safe_load((rules / "shop.yaml").read_text())["descriptors"][0]["rate_limit"]["requests_per_unit"]

    settings = {"PALANG_RULES": str(rules)}
    with served(palang, memory("quickstart"), tmp_path, certificates, **settings) as service:
        service.becomes_ready()
        ports = {"ratelimit": service.ports["GRPC_PORT"], "page": page}
        for cluster in bootstrap["static_resources"]["clusters"]:
            endpoint = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
            port = ports[cluster["name"]]
            endpoint["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": port}
        config = tmp_path / "envoy.yaml"
        config.write_text(yaml.safe_dump(bootstrap))
        command = [chart.tool("envoy"), "-c", config, "--concurrency", "1", "--use-dynamic-base-id"]
        with (tmp_path / "envoy.log").open("w") as output:
            envoy = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            url = f"http://127.0.0.1:{front}/"
            service.eventually(lambda: get(url, **{"x-user": "warm-up"}) == 200)
            # Twice: the window of a minute may end in between.
            answers = [get(url, **{"x-user": "ada"}) for _ in range(2 * limit + 1)]
            assert answers[:limit] == [200] * limit and 429 in answers, answers
            assert get(url, **{"x-user": "grace"}) == 200, "another user has a limit of her own"
        finally:
            envoy.kill()
            envoy.wait()


def rootfs(palang: str, root: pathlib.Path) -> None:
    """The files of the image, as the Dockerfile copies them, on what distroless/cc brings."""
    shared = subprocess.run(["ldd", palang], check=True, capture_output=True, text=True).stdout
    libraries = [pathlib.Path(word) for word in shared.split() if word.startswith("/")]
    brought = ("ld-linux", "libc.", "libm.", "libgcc_s.", "libpthread.", "libdl.", "librt.")
    for library in libraries:
        assert library.name.startswith(brought), f"distroless/cc has no {library.name}"
        target = root / str(library).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    shutil.copy(palang, root / "palang")
    (root / "bin").mkdir(exist_ok=True)
    (root / "bin" / "ratelimit").symlink_to("/palang")


@pytest.mark.parametrize("uid", [65532, 65534], ids=["image's user", "Envoy Gateway's user"])
def test_the_image_by_hand(palang, uid, tmp_path_factory):
    """/bin/ratelimit without arguments, in the image's files, as a user who may write nowhere."""
    if os.geteuid() != 0:
        pytest.skip("only root may change its root and its user")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        root = pathlib.Path(scratch)
        root.chmod(0o755)
        rootfs(palang, root)
        rules = root / "data" / "ratelimit" / "config"
        rules.mkdir(parents=True)
        shutil.copy(chart.ROOT / "examples" / "envoy" / "rules" / "shop.yaml", rules)
        (root / "etc").mkdir(exist_ok=True)
        (root / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
        before = sorted(root.rglob("*"))

        *three, metrics = map(str, free_ports(4))
        ports = dict(zip(("GRPC_PORT", "PORT", "DEBUG_PORT"), three))
        settings = {
            **{"RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_WATCH_ROOT": "false"},
            **{"RUNTIME_IGNOREDOTFILES": "true", "USE_STATSD": "false", "LOG_LEVEL": "info"},
            "PROMETHEUS_ADDR": f":{metrics}",
            **ports,
        }
        inside = [shutil.which("chroot") or "/usr/sbin/chroot", f"--userspec={uid}:{uid}", root]
        log = tmp_path_factory.mktemp("image") / "log"
        with log.open("w") as output:
            process = subprocess.Popen([*inside, "/bin/ratelimit"], env=settings, stdout=output, stderr=output)
        try:
            service = Service(process, {name: int(port) for name, port in ports.items()}, log)
            service.eventually(lambda: service.status("/healthcheck") == 200)
            ask = [*inside, "/palang", "decide", "--address", f"127.0.0.1:{ports['GRPC_PORT']}", "--domain", "shop"]
            ask += ["--timeout", "10s"]
            answers = [
                subprocess.run([*ask, "--descriptor", "user=ada"], capture_output=True, env={}).returncode
                for _ in range(11)
            ]
            assert answers[:5] == [0] * 5 and 1 in answers, answers
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0, log.read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        assert sorted(root.rglob("*")) == before, "it wrote somewhere"
