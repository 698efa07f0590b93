"""What single values do."""

import re

import pytest
import yaml

import chart
from chart import case, render


def checksum(release):
    return release.pod["metadata"].get("annotations", {}).get("checksum/redis-secret")


# --- Counters


def test_memory_in_one_pod():
    release = render(case("memory-single"))
    assert release.deployment["spec"]["replicas"] == 1
    assert "REDIS_URL" not in release.env
    assert release.setting("MEMORY_MAX_KEYS") == "2000000"
    assert not release.all("PodDisruptionBudget")


def test_memory_in_several_pods_only_by_name():
    assert render(case("memory-multiplied")).deployment["spec"]["replicas"] == 3
    refused = chart.template(case("memory-multiplied"), "--set", "memory.acceptMultipliedLimits=false")
    assert refused.returncode != 0
    assert "memory.acceptMultipliedLimits" in refused.stderr and "multiplied" in refused.stderr


def test_large_numbers_stay_numbers():
    release = render(case("behaviour"))
    assert release.setting("LOCAL_CACHE_SIZE_IN_BYTES") == "33554432"
    assert render(case("xds")).setting("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES") == "16777216"


def test_replicas_that_count_by_themselves_know_each_other():
    release = render(case("redis-password"))
    name, _, rest = release.setting("REPLICAS_DNS").partition(".")
    headless = [service for service in release.all("Service") if service["spec"].get("clusterIP") == "None"]
    assert [service["metadata"]["name"] for service in headless] == [name]
    assert rest.endswith(".svc")


def test_the_memory_of_refusals_can_be_turned_off():
    assert "LOCAL_CACHE_SIZE_IN_BYTES" not in render(case("redis-password")).env
    off = render(case("redis-password"), "--set", "limits.localCacheBytes=0")
    assert off.setting("LOCAL_CACHE_SIZE_IN_BYTES") == "0"


def test_user_and_password_come_from_the_secret():
    env = render(case("redis-existing-secret")).env
    reference = {"name": "redis-credentials", "key": "user"}
    assert env["REDIS_USER"]["valueFrom"]["secretKeyRef"] == reference
    assert env["REDIS_PASSWORD"]["valueFrom"]["secretKeyRef"] == {"name": "redis-credentials", "key": "password"}
    assert "REDIS_AUTH" not in env, "it is split at its first colon"
    assert env["REDIS_POOL_SIZE"]["value"] == "20"
    assert not render(case("redis-existing-secret")).all("Secret")


def test_an_address_may_be_secret():
    env = render(case("redis-url-secret")).env
    assert env["REDIS_URL"]["valueFrom"]["secretKeyRef"] == {"name": "redis-credentials", "key": "url"}


def test_a_password_among_the_values_becomes_a_secret_as_it_is():
    release = render(case("redis-password"))
    assert release.one("Secret")["stringData"] == {
        "redis-username": "limiter-user",
        "redis-password": "p:@ss/w%rd#1",
    }


def test_a_user_alone_among_the_values_has_a_secret_of_the_chart():
    release = render(case("redis-username"))
    secret = release.one("Secret")
    assert secret["stringData"] == {"redis-username": "limiter-user", "per-second-username": "fast-user"}
    for prefix, key, others in (
        ("REDIS", "redis-username", "redis-credentials"),
        ("REDIS_PERSECOND", "per-second-username", "redis-fast-credentials"),
    ):
        user, password = (release.env[f"{prefix}_{what}"]["valueFrom"]["secretKeyRef"] for what in ("USER", "PASSWORD"))
        assert user == {"name": secret["metadata"]["name"], "key": key}
        assert password == {"name": others, "key": "password"}


def test_a_new_password_restarts_and_new_rules_do_not():
    before = render(case("redis-password"))
    assert checksum(before)
    assert checksum(before) != checksum(render(case("redis-password"), "--set", "redis.password=other"))
    rules = "rules.domains.shop.descriptors[0].key=user"
    with_rules = render(case("redis-password"), "--set", rules)
    assert with_rules.one("ConfigMap") != before.one("ConfigMap")
    assert with_rules.pod == before.pod


def test_sentinels():
    release = render(case("redis-sentinel-tls"))
    assert release.setting("REDIS_TYPE") == "SENTINEL"
    # What comes before the first colon is a user: none, and the password may have colons.
    assert release.setting("REDIS_SENTINEL_AUTH") == ":$(SECRET_REDIS_SENTINEL_PASSWORD)"
    assert release.env["SECRET_REDIS_SENTINEL_PASSWORD"]["valueFrom"]["secretKeyRef"]["key"] == "sentinel"
    assert release.env["REDIS_PASSWORD"]["valueFrom"]["secretKeyRef"]["key"] == "password"
    assert "REDIS_USER" not in release.env
    assert release.setting("REDIS_TLS") == "true"
    assert release.setting("REDIS_TLS_CACERT") == "/etc/palang/redis-tls/ca.crt"
    assert release.setting("REDIS_TLS_CLIENT_CERT") == "/etc/palang/redis-tls/tls.crt"
    assert release.setting("REDIS_TLS_CLIENT_KEY") == "/etc/palang/redis-tls/tls.key"


def test_cluster_and_a_redis_per_second():
    release = render(case("redis-cluster-per-second"))
    assert release.setting("REDIS_TYPE") == "CLUSTER"
    assert release.setting("REDIS_PERSECOND") == "true"
    assert release.setting("REDIS_PERSECOND_URL") == "redis-fast:6380"
    assert release.setting("REDIS_PERSECOND_TYPE") == "SINGLE"
    assert release.setting("REDIS_PERSECOND_TLS") == "true"
    assert release.setting("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION") == "true"
    secret = release.one("Secret")
    for name, key in (("REDIS_PASSWORD", "redis-password"), ("REDIS_PERSECOND_PASSWORD", "per-second-password")):
        reference = release.env[name]["valueFrom"]["secretKeyRef"]
        assert reference == {"name": secret["metadata"]["name"], "key": key}


def test_the_trial_store_is_off_by_default_and_asks_for_its_password():
    assert not render(case("defaults-with-redis")).component("Deployment", "trial-store")
    release = render(case("redis-trial"))
    container = release.component("Deployment", "trial-store")["spec"]["template"]["spec"]["containers"][0]
    assert "$(SECRET_REDIS_PASSWORD)" in container["args"]
    secret = {"name": release.one("Secret")["metadata"]["name"], "key": "redis-password"}
    assert container["env"][0]["valueFrom"]["secretKeyRef"] == secret
    assert release.env["REDIS_PASSWORD"]["valueFrom"]["secretKeyRef"] == secret


# --- Rules


def test_one_file_a_domain():
    release = render(case("rules-many"))
    data = release.one("ConfigMap")["data"]
    assert sorted(data) == ["empty.yaml", "extra.yaml", "gateway.yaml", "shop.yaml"]
    domains = {name: yaml.safe_load(text)["domain"] for name, text in data.items()}
    assert domains["gateway.yaml"] == "ns/gateway/listener"
    assert domains["shop.yaml"] == domains["extra.yaml"] == "shop"
    assert release.setting("MERGE_DOMAIN_CONFIG") == "true"
    assert yaml.safe_load(data["gateway.yaml"])["descriptors"][0] == {
        "key": "remote_address",
        "shadow_mode": True,
        "rate_limit": {"unit": "hour", "requests_per_unit": 1000},
    }


def test_large_limits_stay_integers():
    limit = "rules.domains.big.descriptors[0].rate_limit.requests_per_unit=4294967295"
    release = render(case("defaults-with-redis"), "--set", "rules.domains.big.descriptors[0].key=a", "--set", limit)
    text = release.one("ConfigMap")["data"]["big.yaml"]
    assert re.search(r"requests_per_unit: 4294967295$", text, re.MULTILINE), text


def test_large_limits_in_a_values_file_stay_integers(tmp_path):
    values = tmp_path / "values.yaml"
    values.write_text(
        "redis: {url: 'redis:6379'}\n"
        "rules: {domains: {big: {descriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 4294967295}}]}}}\n"
    )
    for version in chart.helms():
        text = render(values, version=version).one("ConfigMap")["data"]["big.yaml"]
        limit = yaml.safe_load(text)["descriptors"][0]["rate_limit"]["requests_per_unit"]
        assert limit == 4294967295 and isinstance(limit, int), f"{version}: {text}"


def test_files_from_the_command_line(tmp_path):
    rules = tmp_path / "api.yaml"
    rules.write_text("domain: api # kept as it is\ndescriptors: []\n")
    release = render(case("defaults-with-redis"), "--set-file", rf"rules.files.api\.yaml={rules}")
    assert release.one("ConfigMap")["data"] == {"api.yaml": rules.read_text()}


def test_an_existing_configmap_is_mounted():
    release = render(case("rules-existing"))
    assert not release.all("ConfigMap")
    assert {"name": "rules", "configMap": {"name": "team-rules"}} in release.pod["spec"]["volumes"]
    assert release.setting("PALANG_RULES") == "/etc/palang/rules"


def test_rules_over_xds():
    release = render(case("xds"))
    assert not release.all("ConfigMap")
    expected = {
        "CONFIG_TYPE": "GRPC_XDS_SOTW",
        "CONFIG_GRPC_XDS_SERVER_URL": "control-plane.system:18001",
        "CONFIG_GRPC_XDS_NODE_ID": "palang",
        "CONFIG_GRPC_XDS_NODE_METADATA": "cluster=east,tier=edge",
        "CONFIG_GRPC_XDS_SERVER_USE_TLS": "true",
        "CONFIG_GRPC_XDS_SERVER_TLS_CACERT": "/etc/palang/xds-tls/ca.crt",
        "CONFIG_GRPC_XDS_CLIENT_TLS_CERT": "/etc/palang/xds-tls/tls.crt",
        "CONFIG_GRPC_XDS_CLIENT_TLS_KEY": "/etc/palang/xds-tls/tls.key",
        "CONFIG_GRPC_XDS_SERVER_TLS_SAN": "control-plane",
        "FORCE_START_WITHOUT_INITIAL_CONFIG": "true",
    }
    assert {name: release.setting(name) for name in expected} == expected
    assert "CONFIG_GRPC_XDS_SERVER_USE_TLS" not in render(case("xds-plain")).env


# --- TLS


def test_tls_from_a_secret():
    release = render(case("tls-secret"))
    assert release.setting("GRPC_SERVER_TLS_CERT") == "/etc/palang/tls/server.crt"
    assert release.setting("GRPC_SERVER_TLS_KEY") == "/etc/palang/tls/server.key"
    assert "GRPC_CLIENT_TLS_CACERT" not in release.env
    arguments = release.component("Pod", "test")["spec"]["containers"][0]["args"]
    assert "--grpc-use-tls" in arguments and "--grpc-cert-file" not in arguments


def test_mtls_from_cert_manager():
    release = render(case("mtls-cert-manager"))
    certificate = release.one("Certificate")
    volumes = {volume["name"]: volume for volume in release.pod["spec"]["volumes"]}
    assert volumes["tls"]["secret"]["secretName"] == certificate["spec"]["secretName"]
    assert "ratelimit.example.com" in certificate["spec"]["dnsNames"]
    assert volumes["client-ca"]["secret"]["secretName"] == "clients-ca"
    assert release.setting("GRPC_CLIENT_TLS_CACERT") == "/etc/palang/client-ca/ca.crt"
    assert release.setting("GRPC_CLIENT_TLS_SAN") == "envoy.gateway.svc"
    test = release.component("Pod", "test")["spec"]
    assert "/etc/palang/client/tls.crt" in test["containers"][0]["args"]
    assert {volume["secret"]["secretName"] for volume in test["volumes"]} == {"rl-palang-tls", "palang-test-client"}


# --- Starting, stopping, scaling


@pytest.mark.parametrize(
    ("kubernetes", "sleep", "delay"),
    [("1.27.0", None, "15s"), ("1.29.9-gke.100", None, "15s"), ("1.30.1-gke.7", 10, "5s"), ("1.37.0", 10, "5s")],
)
def test_prestop_sleeps_where_kubernetes_can(kubernetes, sleep, delay):
    release = render(case("defaults-with-redis"), "--set", "drain.preStopSeconds=10", kubernetes=kubernetes)
    hook = {"preStop": {"sleep": {"seconds": sleep}}} if sleep else None
    assert release.container.get("lifecycle") == hook
    assert release.setting("SHUTDOWN_DELAY") == delay
    assert release.pod["spec"]["terminationGracePeriodSeconds"] == 10 + 5 + 30 + 5


def test_no_prestop_without_a_wish_for_one():
    release = render(case("defaults-with-redis"), "--set", "drain.preStopSeconds=0")
    assert "lifecycle" not in release.container
    assert release.pod["spec"]["terminationGracePeriodSeconds"] == 5 + 30 + 5


def test_probes_and_hooks_can_be_replaced():
    release = render(case("probes"))
    assert "livenessProbe" not in release.container
    assert release.container["startupProbe"]["failureThreshold"] == 60
    assert release.container["readinessProbe"] == {
        "httpGet": {"path": "/healthcheck", "port": "http"},
        "periodSeconds": 3,
    }
    assert release.container["lifecycle"]["preStop"]["httpGet"]["path"] == "/readyz"
    assert release.pod["spec"]["terminationGracePeriodSeconds"] == 120


def test_autoscaling():
    release = render(case("autoscaling"))
    assert "replicas" not in release.deployment["spec"], "the autoscaler sets it"
    spec = release.one("HorizontalPodAutoscaler")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (3, 30)
    assert [metric["type"] for metric in spec["metrics"]] == ["Resource", "Pods"]
    assert spec["metrics"][0]["resource"]["target"]["averageUtilization"] == 50
    assert {"scaleUp", "scaleDown"} == set(spec["behavior"])


def test_disruption_budgets():
    assert render(case("defaults-with-redis")).one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert render(case("autoscaling")).one("PodDisruptionBudget")["spec"]["maxUnavailable"] == "25%"
    spec = render(case("pdb-min-available")).one("PodDisruptionBudget")["spec"]
    assert spec["minAvailable"] == "60%" and "maxUnavailable" not in spec


def test_pods_spread_over_zones_and_nodes():
    first, second = render(case("defaults-with-redis")).pod["spec"]["topologySpreadConstraints"]
    assert first["topologyKey"] == "topology.kubernetes.io/zone" and first["matchLabelKeys"] == ["pod-template-hash"]
    assert second["topologyKey"] == "kubernetes.io/hostname"
    _, own = render(case("scheduling")).pod["spec"]["topologySpreadConstraints"]
    assert own["labelSelector"] == {"matchLabels": {"app": "something"}} and "matchLabelKeys" not in own


def test_scheduling():
    release = render(case("scheduling"))
    assert release.deployment["metadata"]["name"] == "edge-ratelimit"
    spec = release.pod["spec"]
    expected = {
        "priorityClassName": "system-cluster-critical",
        "runtimeClassName": "gvisor",
        "schedulerName": "custom",
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["192.0.2.53"]},
        "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["redis"]}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "edge", "operator": "Exists"}],
        "serviceAccountName": "default",
    }
    assert {key: spec[key] for key in expected} == expected
    assert "nodeAffinity" in spec["affinity"]
    assert not release.all("ServiceAccount")


# --- Reaching it


@pytest.mark.parametrize(
    ("kubernetes", "wish", "expected"),
    [
        ("1.30.0", "PreferSameZone", None),
        ("1.31.0", "PreferSameZone", "PreferClose"),
        ("1.34.2", "PreferSameNode", "PreferClose"),
        ("1.35.0", "PreferSameZone", "PreferSameZone"),
        ("1.37.0", "PreferSameNode", "PreferSameNode"),
        ("1.37.0", "", None),
    ],
)
def test_traffic_distribution_follows_the_cluster(kubernetes, wish, expected):
    wished = f"service.trafficDistribution={wish}"
    release = render(case("defaults-with-redis"), "--set", wished, kubernetes=kubernetes)
    assert release.service["spec"].get("trafficDistribution") == expected


def test_dual_stack():
    release = render(case("dual-stack"))
    for service in (release.service, release.headless):
        assert service["spec"]["ipFamilies"] == ["IPv6", "IPv4"]
        assert service["metadata"]["labels"]["team"] == "platform"
    assert release.setting("GRPC_HOST") == release.setting("HOST") == "::"
    assert render(case("defaults-with-redis")).setting("GRPC_HOST") == "0.0.0.0"


def test_network_policy():
    release = render(case("network-policy"))
    spec = release.one("NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    by_port = {rule["ports"][0]["port"]: rule for rule in spec["ingress"]}
    gateway = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateway"}}}
    assert by_port[8081]["from"][0] == gateway
    test = release.component("Pod", "test")["metadata"]["labels"]
    assert any(
        chart.matches(p["podSelector"]["matchLabels"], test) for p in by_port[8081]["from"] if "podSelector" in p
    )
    assert by_port[8080]["from"] == [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    assert 6070 in by_port
    egress = {(port["port"], port["protocol"]) for rule in spec["egress"] if "ports" in rule for port in rule["ports"]}
    assert egress == {(53, "UDP"), (53, "TCP"), (6390, "TCP"), (4318, "TCP"), (8125, "UDP")}


@pytest.mark.parametrize(
    ("name", "ports"),
    [
        ("redis-url-secret", {6379}),
        ("redis-sentinel-tls", {26379, 6379}),
        ("redis-cluster-per-second", {6379, 6380}),
        ("dual-stack", {6379}),
        ("xds", {6379, 18001}),
        ("tracing", {6379, 443}),
        ("redis-address", {6379, 7000}),
    ],
)
def test_network_policy_knows_the_ports(name, ports):
    spec = render(case(name)).component("NetworkPolicy", "ratelimit")["spec"]
    found = {port["port"] for rule in spec["egress"] for port in rule["ports"]} - {53}
    assert found == ports


def test_the_trial_store_is_reached_by_palang_only():
    release = render(case("redis-trial"))
    spec = release.component("NetworkPolicy", "trial-store")["spec"]
    (rule,) = spec["ingress"]
    (peer,) = rule["from"]
    assert chart.matches(peer["podSelector"]["matchLabels"], release.pod["metadata"]["labels"])
    assert "egress" not in spec and "Egress" in spec["policyTypes"]


# --- Behaviour


def test_behaviour():
    expected = {
        "FAILURE_MODE": "local",
        "STORE_TIMEOUT": "8ms",
        "SHADOW_MODE": "true",
        "CACHE_KEY_PREFIX": "edge:",
        "NEAR_LIMIT_RATIO": "0.9",
        "LIMIT_RESPONSE_HEADERS_ENABLED": "true",
        "RATE_LIMIT_HEADERS": "ietf,retry-after",
        "RESPONSE_DYNAMIC_METADATA": "true",
        "GRPC_MAX_CONNECTION_AGE": "10m",
        "WORKERS": "4",
        "SHUTDOWN_DELAY": "0s",
        "SHUTDOWN_TIMEOUT": "60s",
    }
    release = render(case("behaviour"))
    assert {name: release.setting(name) for name in expected} == expected
    quiet = render(case("defaults-with-redis"))
    assert quiet.setting("FAILURE_MODE") == "error" and quiet.setting("STORE_TIMEOUT") == "15ms"
    assert not {"SHADOW_MODE", "WORKERS", "RATE_LIMIT_HEADERS", "LOCAL_CACHE_SIZE_IN_BYTES"} & set(quiet.env)


def test_tracing():
    release = render(case("tracing"))
    expected = {
        "TRACING_ENABLED": "true",
        "TRACING_EXPORTER_PROTOCOL": "grpc",
        "TRACING_SAMPLING_RATE": "0.1",
        "TRACING_SERVICE_NAME": "edge-limits",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://otel.example.com",
        "LOG_FORMAT": "text",
    }
    assert {name: release.setting(name) for name in expected} == expected
    field = release.env["TRACING_SERVICE_INSTANCE_ID"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert field == "metadata.name"


def test_without_metrics_there_is_no_port_for_them():
    release = render(case("monitoring-none"))
    assert release.setting("USE_PROMETHEUS") == "false" and "PROMETHEUS_ADDR" not in release.env
    assert {port["name"] for port in release.container["ports"]} == {"grpc", "http"}
    for service in (release.service, release.headless):
        assert {port["name"] for port in service["spec"]["ports"]} == {"grpc", "http"}
    rules = release.one("NetworkPolicy")["spec"]["ingress"]
    assert {port["port"] for rule in rules for port in rule["ports"]} == {8081, 8080}
    assert not {each["kind"] for each in release.objects} & {"ServiceMonitor", "PodMonitor", "PrometheusRule"}


def test_recreate_comes_alone():
    strategy = render(case("defaults-with-redis"), "--set", "strategy.type=Recreate").deployment["spec"]["strategy"]
    assert strategy == {"type": "Recreate"}, "Kubernetes refuses rollingUpdate beside it"


def test_metrics_sinks():
    release = render(case("defaults-with-redis"))
    assert (release.setting("USE_STATSD"), release.setting("USE_PROMETHEUS")) == ("false", "true")
    release = render(case("monitoring-pod"))
    assert (release.setting("USE_STATSD"), release.setting("STATSD_PORT")) == ("true", "9125")
    release = render(case("monitoring-none"))
    assert (release.setting("USE_STATSD"), release.setting("USE_PROMETHEUS")) == ("false", "false")
    assert not release.component("Pod", "test")
