"""The service as a process: started as a pod's container says, with free ports, and stopped as the kubelet does."""

import base64
import contextlib
import pathlib
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import chart

PATIENCE = 20.0


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


@contextlib.contextmanager
def redis(directory: pathlib.Path, user: str, password: str):
    """A Redis that lets nobody in but this user; its port."""
    nobody = "" if user == "default" else "user default off\n"
    users = f"{nobody}user {user} on >{password} ~* &* +@all\n"
    with _server("redis-server", directory, f'save ""\n{users}') as port:
        yield port


@contextlib.contextmanager
def sentinel(directory: pathlib.Path, password: str, master: int, master_password: str):
    """A sentinel with a password, of the master `main` on that port; its own port."""
    told = f'requirepass "{password}"\nsentinel monitor main 127.0.0.1 {master} 1\n'
    with _server("redis-sentinel", directory, f'{told}sentinel auth-pass main "{master_password}"\n') as port:
        yield port


@contextlib.contextmanager
def _server(program: str, directory: pathlib.Path, config: str):
    directory.mkdir()
    (port,) = free_ports(1)
    file = directory / "config"
    file.write_text(f"port {port}\nbind 127.0.0.1\ndir {directory}\n{config}")
    process = subprocess.Popen([chart.tool(program), str(file)], stdout=subprocess.DEVNULL)
    try:
        yield port
        assert process.poll() is None, f"{program} ended by itself"
    finally:
        process.kill()
        process.wait()
