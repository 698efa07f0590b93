"""The examples: each file parses, names what the others name, and the real Envoy accepts what is Envoy's."""

import copy
import json
import re
import subprocess

import pytest
import yaml

import chart

EXAMPLES = chart.ROOT / "examples"
OURS = [EXAMPLES / name for name in ("envoy", "envoy-gateway", "istio", "contour")]
FILES = sorted(path for directory in OURS for path in directory.rglob("*") if path.is_file())


def load(path: str) -> dict:
    return yaml.safe_load((EXAMPLES / path).read_text())


def envoy_accepts(bootstrap: dict, directory) -> None:
    path = directory / "envoy.yaml"
    path.write_text(yaml.safe_dump(bootstrap))
    result = subprocess.run([chart.tool("envoy"), "--mode", "validate", "-c", path], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def connection_manager(bootstrap: dict) -> dict:
    return bootstrap["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]


def descriptors_of(rate_limits: list) -> list[tuple[str, ...]]:
    """The keys that Envoy sends for each of these."""
    keys = []
    for limit in rate_limits:
        names = []
        for action in limit["actions"]:
            ((kind, what),) = action.items()
            names.append({"request_headers": what.get("descriptor_key"), "remote_address": "remote_address"}[kind])
        keys.append(tuple(names))
    return keys


def keys_of(rules: dict) -> list[tuple[str, ...]]:
    """The keys of every rule with a limit."""

    def walk(descriptors, path):
        for descriptor in descriptors:
            here = (*path, descriptor["key"])
            if "rate_limit" in descriptor:
                yield here
            yield from walk(descriptor.get("descriptors", []), here)

    return list(walk(rules["descriptors"], ()))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_every_file_parses_and_says_what_it_is(path):
    text = path.read_text()
    assert path.suffix == ".yaml"
    assert text.startswith("# "), "a comment at its head says what it is for"
    assert isinstance(yaml.safe_load(text), dict)


def test_envoy(tmp_path):
    bootstrap = load("envoy/envoy.yaml")
    envoy_accepts(bootstrap, tmp_path)
    manager = connection_manager(bootstrap)
    limiter = manager["http_filters"][0]["typed_config"]
    rules = load("envoy/rules/shop.yaml")
    assert limiter["domain"] == rules["domain"]
    sent = descriptors_of(manager["route_config"]["virtual_hosts"][0]["rate_limits"])
    assert sorted(sent) == sorted(keys_of(rules))
    clusters = {cluster["name"] for cluster in bootstrap["static_resources"]["clusters"]}
    assert limiter["rate_limit_service"]["grpc_service"]["envoy_grpc"]["cluster_name"] in clusters


def test_istio(tmp_path):
    patches = load("istio/envoy-filter.yaml")["spec"]["configPatches"]
    http_filter, host = (patch["patch"]["value"] for patch in patches)
    assert [patch["applyTo"] for patch in patches] == ["HTTP_FILTER", "VIRTUAL_HOST"]

    # Istio merges the patches into its own configuration: here into the example's.
    bootstrap = copy.deepcopy(load("envoy/envoy.yaml"))
    manager = connection_manager(bootstrap)
    manager["http_filters"][0] = http_filter
    manager["route_config"]["virtual_hosts"][0]["rate_limits"] = host["rate_limits"]
    service = http_filter["typed_config"]["rate_limit_service"]["grpc_service"]["envoy_grpc"]
    cluster = bootstrap["static_resources"]["clusters"][0]
    cluster["name"] = cluster["load_assignment"]["cluster_name"] = service["cluster_name"]
    envoy_accepts(bootstrap, tmp_path)

    values = EXAMPLES / "istio" / "values.yaml"
    _, port, _, name = service["cluster_name"].split("|")
    assert service["authority"] == name
    installed = chart.helm("template", "palang", chart.CHART, "--namespace", "ratelimit", "--values", values)
    assert installed.returncode == 0, installed.stderr
    objects = [each for each in yaml.safe_load_all(installed.stdout) if each]
    assert any(
        f"{each['metadata']['name']}.{each['metadata']['namespace']}.svc.cluster.local" == name
        and int(port) in {number["port"] for number in each["spec"]["ports"]}
        for each in objects
        if each["kind"] == "Service"
    )
    rules = load("istio/values.yaml")["rules"]["domains"]
    domain = http_filter["typed_config"]["domain"]
    assert sorted(descriptors_of(host["rate_limits"])) == sorted(keys_of(rules[domain]))


def test_contour():
    values = EXAMPLES / "contour" / "values.yaml"
    extension = load("contour/extension-service.yaml")
    assert (extension["apiVersion"], extension["kind"]) == ("projectcontour.io/v1alpha1", "ExtensionService")
    assert extension["spec"]["protocol"] == "h2c"
    installed = chart.helm("template", "palang", chart.CHART, "--namespace", "ratelimit", "--values", values)
    assert installed.returncode == 0, installed.stderr
    services = {
        (each["metadata"]["namespace"], each["metadata"]["name"]): {port["port"] for port in each["spec"]["ports"]}
        for each in yaml.safe_load_all(installed.stdout)
        if each and each["kind"] == "Service"
    }
    for backend in extension["spec"]["services"]:
        assert backend["port"] in services[extension["metadata"]["namespace"], backend["name"]]

    config = load("contour/contour.yaml")["rateLimitService"]
    metadata = extension["metadata"]
    assert config["extensionService"] == f"{metadata['namespace']}/{metadata['name']}"
    rules = load("contour/values.yaml")["rules"]["domains"][config["domain"]]

    proxy = load("contour/http-proxy.yaml")
    assert (proxy["apiVersion"], proxy["kind"]) == ("projectcontour.io/v1", "HTTPProxy")
    policies = [proxy["spec"]["virtualhost"]["rateLimitPolicy"]]
    policies += [route["rateLimitPolicy"] for route in proxy["spec"]["routes"] if "rateLimitPolicy" in route]
    sent = []
    for policy in policies:
        for descriptor in policy["global"]["descriptors"]:
            names = []
            for entry in descriptor["entries"]:
                ((kind, what),) = entry.items()
                own = {"genericKey": "generic_key", "remoteAddress": "remote_address"}
                names.append(own[kind] if kind in own else what["descriptorKey"])
            sent.append(tuple(names))
    assert sorted(sent) == sorted(keys_of(rules))


def test_envoy_gateway():
    gateway = load("envoy-gateway/envoy-gateway.yaml")
    assert (gateway["apiVersion"], gateway["kind"]) == ("gateway.envoyproxy.io/v1alpha1", "EnvoyGateway")
    image = gateway["provider"]["kubernetes"]["rateLimitDeployment"]["container"]["image"]
    assert image == chart.render(chart.case("defaults-with-redis")).container["image"]
    assert gateway["rateLimit"]["backend"]["type"] == "Redis"
    for variable in gateway["provider"]["kubernetes"]["rateLimitDeployment"]["container"]["env"]:
        assert not re.search("AUTH|PASSWORD", variable["name"]) or "valueFrom" in variable

    policy = load("envoy-gateway/backend-traffic-policy.yaml")
    assert (policy["apiVersion"], policy["kind"]) == ("gateway.envoyproxy.io/v1alpha1", "BackendTrafficPolicy")
    (target,) = policy["spec"]["targetRefs"]
    route = load("envoy-gateway/http-route.yaml")
    assert (target["kind"], target["name"]) == (route["kind"], route["metadata"]["name"])
    assert route["metadata"]["namespace"] == policy["metadata"]["namespace"]
    assert policy["spec"]["rateLimit"]["type"] == "Global"
    for rule in policy["spec"]["rateLimit"]["global"]["rules"]:
        assert set(rule["limit"]) == {"requests", "unit"}


def test_the_notes_are_what_envoy_accepts(tmp_path):
    """The cluster that NOTES.txt prints, in place of the example's."""
    for name in ("defaults-with-redis", "tls-secret"):
        text = chart.notes("--values", chart.case(name)).split("  clusters:\n")[1].split("  and in the HTTP filter")[0]
        (cluster,) = yaml.safe_load(text)
        if "transport_socket" in cluster:
            # Envoy reads the file while it validates.
            context = cluster["transport_socket"]["typed_config"]["common_tls_context"]["validation_context"]
            context["trusted_ca"] = {"inline_string": certificate(tmp_path)}
        bootstrap = load("envoy/envoy.yaml")
        bootstrap["static_resources"]["clusters"][0] = cluster
        envoy_accepts(json.loads(json.dumps(bootstrap)), tmp_path)


def certificate(directory) -> str:
    arguments = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    files = ["-subj", "/CN=palang", "-keyout", directory / "key.pem", "-out", directory / "cert.pem"]
    subprocess.run(["openssl", *arguments, *files], check=True, capture_output=True)
    return (directory / "cert.pem").read_text()
