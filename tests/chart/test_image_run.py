"""The image by hand: its files, made by the Dockerfile's own steps, run as its user on a root that nobody can write."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile

import pytest

import chart
from image import final_stage
from service import PATIENCE, Service, free_ports

# In one worker: what is a free port to one must not be to another.
pytestmark = [pytest.mark.image, pytest.mark.xdist_group("binary")]

FINAL = final_stage((chart.ROOT / "Dockerfile").read_text())
USER = tuple(int(number) for number in dict(FINAL)["USER"].split(":"))
# What distroless/cc brings of what a Rust program may link.
BROUGHT = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1"}
BROUGHT |= {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
# The image is this, and 25 MB of distroless/cc. The binary keeps the names of functions, for its profiles.
MOST_BYTES = 24 * 1024 * 1024

# The first three arguments are the root, the user and the group. The mount is made in a namespace of its own.
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro,nosuid,nodev "$0" && exec setpriv --no-new-privs'
# Real root changes its user; a plain user is that user in a namespace in which nobody else exists.
AS_ROOT = ["unshare", "--mount"], 'chroot --userspec="$1:$2" --groups="" "$0" "${@:3}"'
AS_USER = ["unshare", "--user", "--map-root-user", "--mount"], (
    'unshare --user --map-user="$1" --map-group="$2" --root="$0" -- "${@:3}"'
)


class Root:
    """A directory that a process sees as its root, read-only."""

    def __init__(self, path: pathlib.Path, way: tuple[list[str], str]):
        self.path = path
        self.way = way

    def inside(self, uid: int, gid: int, *command: str) -> list[str]:
        outer, inner = self.way
        script = f"{READ_ONLY} {inner}"
        return [*outer, "bash", "-c", script, str(self.path), str(uid), str(gid), *command]

    def run(self, uid: int, gid: int, *command: str) -> subprocess.CompletedProcess:
        line = self.inside(uid, gid, *command)
        return subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, env=PATH)


# For the programs outside of the root; in the image PATH names /bin, too.
PATH = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


def libraries(binary: pathlib.Path) -> list[pathlib.Path]:
    shared = subprocess.run(["ldd", binary], check=True, capture_output=True, text=True).stdout
    assert "not found" not in shared, shared
    return [pathlib.Path(word) for word in shared.split() if word.startswith("/")]


@pytest.fixture(scope="module")
def root(image):
    """What the final stage copies, on the libraries that its base brings; with rules and hosts as a pod has them."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        path = pathlib.Path(scratch)
        path.chmod(0o755)
        for library in libraries(image / "palang"):
            target = path / str(library).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)
        for name, rest in FINAL:
            if name == "COPY":
                stage, source, target = rest.split()
                assert stage == "--from=build"
                made = image / pathlib.PurePosixPath(source).relative_to("/image")
                copy = path / target.strip("/")
                if made.is_dir():
                    shutil.copytree(made, copy, symlinks=True, dirs_exist_ok=True)
                else:
                    shutil.copy(made, copy)
        rules = path / "data" / "ratelimit" / "config"
        rules.mkdir(parents=True)
        shutil.copy(chart.ROOT / "examples" / "envoy" / "rules" / "shop.yaml", rules)
        (path / "etc").mkdir()
        (path / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
        yield Root(path, way_in(path))


def way_in(path: pathlib.Path) -> tuple[list[str], str]:
    """What this machine lets its user do. None is no reason to skip: then nobody would know."""
    said = ""
    for way in [AS_ROOT, AS_USER] if os.geteuid() == 0 else [AS_USER]:
        probe = Root(path, way).run(*USER, "/palang", "--version")
        if probe.returncode == 0:
            return way
        said += probe.stderr
    pytest.fail(
        "this machine lets nobody make a read-only root, so the image cannot be tested: run as root with CAP_SYS_ADMIN, "
        "or allow user namespaces (sysctl user.max_user_namespaces and kernel.apparmor_restrict_unprivileged_userns):\n"
        + said,
        pytrace=False,
    )


def test_the_base_brings_every_library(image):
    names = {library.name for library in libraries(image / "palang")}
    assert names <= BROUGHT, f"distroless/cc has no {sorted(names - BROUGHT)}"
    assert any(name.startswith("ld-linux") for name in names), "not linked against glibc"


def test_it_is_small_and_stripped(image):
    binary = image / "palang"
    assert binary.stat().st_size < MOST_BYTES
    sections = subprocess.run(["readelf", "--sections", "--wide", binary], check=True, capture_output=True, text=True)
    assert ".text" in sections.stdout
    assert ".debug_info" not in sections.stdout
    # Profiles of a serving process name functions by these.
    assert ".symtab" in sections.stdout


def test_the_links_are_the_programs_of_the_reference(root):
    links = {link.name: os.readlink(link) for link in (root.path / "bin").iterdir()}
    assert links == dict.fromkeys(["ratelimit", "ratelimit_client", "ratelimit_config_check"], "/palang")
    checked = root.run(65532, 65532, "/bin/ratelimit_config_check", "-config_dir", "/data/ratelimit/config")
    assert checked.returncode == 0, checked.stderr


# OpenShift chooses a uid itself, of the group root.
CHANCE = (random.SystemRandom().randrange(100_000, 2**31), 0)
WHOLE = json.loads(dict(FINAL)["ENTRYPOINT"]) + json.loads(dict(FINAL)["CMD"])


@pytest.mark.parametrize(
    ("user", "command"),
    [(USER, WHOLE), ((65534, 65534), ["/bin/ratelimit"]), (CHANCE, WHOLE)],
    ids=["the image's user", "Envoy Gateway's user and command", "any user"],
)
def test_it_serves_on_a_root_it_cannot_write(root, user, command, tmp_path):
    before = sorted(root.path.rglob("*"))
    names = ("GRPC_PORT", "PORT", "DEBUG_PORT", "metrics")
    ports = dict(zip(names, free_ports(4)))
    settings = {
        **PATH,
        **{name: str(port) for name, port in ports.items() if name != "metrics"},
        **{"RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_WATCH_ROOT": "false"},
        **{"RUNTIME_IGNOREDOTFILES": "true", "USE_STATSD": "false", "USE_PROMETHEUS": "true", "LOG_LEVEL": "info"},
        "PROMETHEUS_ADDR": f":{ports['metrics']}",
    }
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(root.inside(*user, *command), env=settings, stdout=output, stderr=output)
    try:
        service = Service(process, ports, log)
        service.eventually(lambda: service.status("/readyz") == 200)
        confined(process.pid, user, root.way)
        assert service.status("/metrics", "metrics") == 200

        address = f"127.0.0.1:{ports['GRPC_PORT']}"
        healthy = root.run(*user, "/palang", "healthcheck", "--address", address)
        assert healthy.returncode == 0, healthy.stderr
        ask = ["/palang", "decide", "--address", address, "--domain", "shop", "--timeout", "10s"]
        # Twice what a minute allows, and one: it may end in between.
        answers = [root.run(*user, *ask, "--descriptor", "user=ada").returncode for _ in range(11)]
        assert answers[:5] == [0] * 5 and 1 in answers, answers
        client = root.run(
            *user, *("/bin/ratelimit_client", "-dial_string", address, "-domain", "shop", "-descriptors", "user=grace")
        )
        assert client.returncode == 0 and "allowed" in client.stdout, client.stdout + client.stderr

        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert sorted(root.path.rglob("*")) == before, "it wrote somewhere"


def confined(pid: int, user: tuple[int, int], way: tuple[list[str], str]) -> None:
    """The process is who it should be, may do nothing more, and its root is read-only."""
    status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    # Elsewhere the process has that number in its own namespace only.
    if way == AS_ROOT:
        assert [set(status[name].split()) for name in ("Uid", "Gid")] == [{str(number)} for number in user]
        assert not status["Groups"].split()
    for capabilities in ("CapPrm", "CapEff", "CapInh", "CapAmb"):
        assert int(status[capabilities], 16) == 0, f"{capabilities} {status[capabilities]}"
    assert status["NoNewPrivs"] == "1"
    mounts = [line.split() for line in pathlib.Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    (options,) = [fields[5] for fields in mounts if fields[4] == "/"]
    assert re.search(r"(^|,)ro(,|$)", options), options
