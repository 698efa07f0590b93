"""The real service accepts what the chart renders: environment, rules, mounts, and the command of `helm test`."""

import subprocess

import pytest
import yaml

import chart
from chart import case, render
from service import PATIENCE, Pod, free_ports, get, project, redis, sentinel, served

# In one worker: what is a free port to one must not be to another.
pytestmark = [pytest.mark.binary, pytest.mark.xdist_group("binary")]


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


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        *(("single", url) for url in ("r", "r:1", "[::1]:6379", "redis://r/2", "rediss://r:6380", "/run/redis.sock")),
        *(("sentinel", url) for url in ("main,s", "main,s:26379,[::1]:26379")),
        *(("cluster", url) for url in ("r", "r-0,r-1:7000,redis://r-2:1/0")),
    ],
)
def test_addresses_that_the_chart_lets_through_are_read_by_the_service(palang, kind, url, tmp_path, certificates):
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"redis": {"type": kind, "url": url}}))
    with served(palang, render(values), tmp_path / "service", certificates) as service:
        service.eventually(lambda: service.status("/livez") == 200)


def test_it_logs_in_with_any_user_and_password(palang, tmp_path, certificates):
    """A real Redis for all counters, with a user, and one for those of a second, with a password alone."""
    name, first, second = "limiter-user", "p:@ss/w%rd#1", "a:b:=$x"
    values = tmp_path / "values.yaml"
    one = {"url": "redis:6379", "username": name, "password": first}
    two = {"url": "redis:6380", "password": second, "enabled": True}
    values.write_text(yaml.safe_dump({"redis": {**one, "perSecond": two}}))
    release = render(values)
    with redis(tmp_path / "first", name, first) as port, redis(tmp_path / "second", "default", second) as fast:
        urls = {"REDIS_URL": f"127.0.0.1:{port}", "REDIS_PERSECOND_URL": f"127.0.0.1:{fast}"}
        # Both have to have answered before it is ready.
        with served(palang, release, tmp_path / "service", certificates, **urls) as service:
            service.becomes_ready()
            said = service.log.read_text()
            assert first not in said and second not in said, "the log tells a password"


def test_it_logs_in_to_sentinels_with_any_password(palang, tmp_path, certificates):
    password, asked = "p:@ss/w%rd#1", "a:b:c"
    values = tmp_path / "values.yaml"
    one = {"type": "sentinel", "url": "main,sentinel:26379", "password": password, "sentinelPassword": asked}
    values.write_text(yaml.safe_dump({"redis": one}))
    with redis(tmp_path / "redis", "default", password) as master:
        with sentinel(tmp_path / "sentinel", asked, master, password) as port:
            url = {"REDIS_URL": f"main,127.0.0.1:{port}"}
            with served(palang, render(values), tmp_path / "service", certificates, **url) as service:
                service.becomes_ready()


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
