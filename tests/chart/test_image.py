"""The image recipe and the compose file; no container engine is needed."""

import re
import subprocess

import yaml

import chart
import image

DOCKERFILE = chart.ROOT / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    return image.instructions(DOCKERFILE.read_text())


def final() -> list[tuple[str, str]]:
    return image.final_stage(DOCKERFILE.read_text())


def test_hadolint():
    result = subprocess.run([chart.tool("hadolint"), DOCKERFILE], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_two_stages_and_both_architectures():
    stages = [rest for name, rest in instructions() if name == "FROM"]
    assert len(stages) == 2
    assert "--platform=$BUILDPLATFORM" in stages[0] and "rust:1.95-bookworm" in stages[0]
    assert stages[1].startswith("gcr.io/distroless/")
    recipe = " ".join(rest for name, rest in instructions() if name == "RUN")
    assert "$TARGETARCH" in recipe and "amd64)" in recipe and "arm64)" in recipe
    assert "cargo build --locked --release" in recipe


def test_the_final_stage_is_small_and_not_root():
    names = [name for name, _ in final()]
    assert "RUN" not in names and "ADD" not in names
    settings = dict(final())
    assert settings["USER"] == "65532:65532"
    assert settings["ENTRYPOINT"] == '["/palang"]' and settings["CMD"] == '["serve"]'
    assert settings["STOPSIGNAL"] == "SIGTERM"
    copied = [rest.split()[-1] for name, rest in final() if name == "COPY"]
    assert copied == ["/palang", "/bin/"]
    assert "ln -s /palang /image/bin/ratelimit" in " ".join(rest for name, rest in instructions() if name == "RUN")
    labels = next(rest for name, rest in final() if name == "LABEL")
    for label in ("title", "description", "licenses", "source", "version", "revision", "created"):
        assert f"org.opencontainers.image.{label}=" in labels


def test_image_and_chart_agree():
    container = chart.render(chart.case("defaults-with-redis")).container
    assert container["command"] == ["/palang"] and container["args"] == ["serve"]
    exposed = set(dict(final())["EXPOSE"].split())
    assert {str(port["containerPort"]) for port in container["ports"]} == exposed
    pod = chart.render(chart.case("defaults-with-redis")).pod["spec"]["securityContext"]
    assert f"{pod['runAsUser']}:{pod['runAsGroup']}" == dict(final())["USER"]


def test_nothing_the_build_needs_is_ignored():
    ignored = {
        line.strip("/") for line in (chart.ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")
    }
    assert {"target", ".git"} <= ignored
    for needed in ("Cargo.toml", "Cargo.lock", "build.rs", "src", "proto", "lua", "tests", "tests/suite", "README.md"):
        assert needed not in ignored
    # The program carries these rules.
    assert "!/examples/quickstart" in ignored


def compose() -> dict:
    return yaml.safe_load((chart.ROOT / "compose.yaml").read_text())


def test_compose_holds_together():
    services = compose()["services"]
    assert set(services) == {"envoy", "palang", "redis"}
    for name, service in services.items():
        for other, condition in service.get("depends_on", {}).items():
            assert other in services
            assert condition == {"condition": "service_healthy"} and "healthcheck" in services[other]
        for volume in service.get("volumes", []):
            source, _, mode = volume.split(":")
            assert (chart.ROOT / source).exists(), f"{name} mounts {source}"
            assert mode == "ro"
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    palang = services["palang"]
    assert palang["read_only"] is True and palang["cap_drop"] == ["ALL"]
    assert palang["environment"]["REDIS_URL"] == "redis:6379"
    assert all(isinstance(value, str) for value in palang["environment"].values())


def test_compose_shows_a_429():
    """The limit in the rules is what the comment says of the six calls."""
    text = (chart.ROOT / "compose.yaml").read_text()
    commands = re.findall(r"^#   (\S.*)$", text, re.MULTILINE)
    assert len(commands) == 2
    calls = len(re.search(r"for call in ([\d ]+);", commands[1])[1].split())
    header = re.search(r"-H '([^:]+):", commands[1])[1]
    mount = next(v for v in compose()["services"]["palang"]["volumes"]).split(":")[0]
    (rules,) = (chart.ROOT / mount).glob("*.yaml")
    user = yaml.safe_load(rules.read_text())["descriptors"][0]
    assert header == "x-user" and user["key"] == "user"
    assert user["rate_limit"]["requests_per_unit"] == calls - 1
    port = re.search(r"localhost:(\d+)", commands[1])[1]
    assert f"127.0.0.1:{port}:{port}" in compose()["services"]["envoy"]["ports"]
