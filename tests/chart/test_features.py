"""What single values do."""

import json
import re

import pytest
import yaml

import chart
from chart import case, notes, render


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
    reference = {"name": "palang-redis", "key": "user"}
    assert env["REDIS_USER"]["valueFrom"]["secretKeyRef"] == reference
    assert env["REDIS_PASSWORD"]["valueFrom"]["secretKeyRef"] == {"name": "palang-redis", "key": "password"}
    assert "REDIS_AUTH" not in env, "it is split at its first colon"
    assert env["REDIS_POOL_SIZE"]["value"] == "20"
    assert not render(case("redis-existing-secret")).all("Secret")


def test_an_address_may_be_secret():
    env = render(case("redis-url-secret")).env
    assert env["REDIS_URL"]["valueFrom"]["secretKeyRef"] == {"name": "palang-redis", "key": "url"}


def test_a_password_among_the_values_becomes_a_secret_as_it_is():
    release = render(case("redis-password"))
    assert release.one("Secret")["stringData"] == {
        "redis-username": "limiter-user",
        "redis-password": "p:@ss/w%rd#1",
    }


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


# --- What platform teams add


def test_a_new_chart_alone_restarts_nothing():
    pod = json.dumps(render(case("quickstart")).pod)
    assert "helm.sh/chart" not in pod and "managed-by" not in pod


def test_extras():
    release = render(case("extras"))
    image = "registry.example.com/palang/palang@sha256:" + "0123456789abcdef" * 4
    assert release.container["image"] == image
    assert release.component("Pod", "test")["spec"]["containers"][0]["image"] == image
    assert release.pod["spec"]["imagePullSecrets"] == [{"name": "registry"}, {"name": "second"}]
    assert release.pod["metadata"]["labels"]["sidecar.istio.io/inject"] == "true"
    assert release.pod["metadata"]["annotations"] == {"example.com/pod": "yes", "example.com/owner": "platform"}
    assert release.container["args"] == ["serve", "--top-keys=50"]
    assert release.env["ADMIN_TOKEN"]["valueFrom"]["secretKeyRef"]["name"] == "admin"
    assert {"name": "scratch", "mountPath": "/scratch"} in release.container["volumeMounts"]
    assert [each["name"] for each in release.pod["spec"]["containers"]] == ["palang", "proxy"]
    assert release.pod["spec"]["initContainers"][0]["name"] == "wait"
    assert release.one("ServiceAccount")["metadata"]["name"] == release.pod["spec"]["serviceAccountName"] == "limits"
    assert release.one("ConfigMap", "rl-limits-more")["data"] == {"release": "rl"}
    assert release.one("ConfigMap", "rl-limits-text")
    for found in release.objects:
        if "labels" in found["metadata"]:
            assert found["metadata"]["annotations"]["example.com/owner"] == "platform"


def test_labels_of_the_user_never_break_a_selector():
    mine = r"podLabels.app\.kubernetes\.io/name=mine,commonLabels.app\.kubernetes\.io/component=mine"
    release = render(case("defaults-with-redis"), "--set", mine)
    labels = release.pod["metadata"]["labels"]
    assert chart.matches(release.deployment["spec"]["selector"]["matchLabels"], labels)
    assert chart.matches(release.service["spec"]["selector"], labels)


def test_a_long_name_leaves_room_for_suffixes():
    long = "a" * 50
    release = render(case("quickstart"), "--set", f"fullnameOverride={long}")
    assert len({(each["kind"], each["metadata"]["name"]) for each in release.objects}) == len(release.objects)
    assert all(len(each["metadata"]["name"]) <= 63 for each in release.objects)


@pytest.mark.parametrize("name", ["1st.release", "a.b", "palang.v2", "0"])
def test_any_name_of_a_release_makes_names_of_services(name):
    result = chart.helm("template", name, chart.CHART, "--values", case("quickstart"))
    assert result.returncode == 0, result.stderr
    for found in yaml.safe_load_all(result.stdout):
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", found["metadata"]["name"]), found["metadata"]["name"]


def test_what_is_missing_is_refused_and_what_is_empty_is_nothing():
    """A null takes a default away: the schema asks for what has to be there, ci/nulls.yaml clears all the rest."""
    schema = json.loads((chart.CHART / "values.schema.json").read_text())
    apart = dict.fromkeys(["podSecurityContext", "securityContext", "resources"])
    cleared = yaml.safe_load(case("nulls").read_text()) | apart
    bare = render(case("defaults-with-redis"), "--set", ",".join(f"{key}=null" for key in apart))
    assert "securityContext" not in bare.pod["spec"]
    assert not {"securityContext", "resources"} & set(bare.container)

    def check(values, described, path, nulls):
        if "$ref" in described:
            described = schema["definitions"][described["$ref"].rpartition("/")[2]]
        required = described.get("required", [])
        for key, default in values.items():
            here = f"{path}.{key}".lstrip(".")
            if key in required:
                if isinstance(default, dict):
                    check(default, described["properties"][key], here, (nulls or {}).get(key))
            else:
                assert default is None or (key in (nulls or {}) and nulls[key] is None), here

    check(yaml.safe_load((chart.CHART / "values.yaml").read_text()), schema, "", cleared)
    refused = chart.template(case("defaults-with-redis"), "--set", "tls=null")
    assert refused.returncode != 0 and "missing property 'tls'" in refused.stderr


# --- Seen


def test_service_monitor_alerts_and_dashboard():
    release = render(case("monitoring-service"))
    monitor = release.one("ServiceMonitor")
    assert monitor["metadata"]["namespace"] == "monitoring" and monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["endpoints"][0]["interval"] == "15s"

    source = yaml.safe_load((chart.CHART / "alerts" / "palang.yaml").read_text())["groups"]
    groups = {group["name"]: group["rules"] for group in release.one("PrometheusRule")["spec"]["groups"]}
    assert set(groups) == {group["name"] for group in source} | {"ours"}
    for group in source:
        wanted = [rule for rule in group["rules"] if rule.get("alert") != "PalangNearLimit"]
        for rule in wanted:
            if "alert" in rule:
                rule["labels"] = {**rule.get("labels", {}), "team": "platform"}
                runbook = rule["annotations"]["runbook_url"]
                rule["annotations"]["runbook_url"] = f"https://runbooks.example.com/palang/{runbook}"
        assert groups[group["name"]] == wanted, "the alerts are the file's, untouched but for labels and the runbook"

    dashboard = release.one("ConfigMap", "rl-palang-dashboard")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboard["metadata"]["annotations"] == {"grafana_folder": "Edge"}
    source = json.loads((chart.CHART / "dashboards" / "palang.json").read_text())
    assert json.loads(dashboard["data"]["palang.json"]) == source


# --- NOTES.txt


def test_notes_say_how_to_call_it():
    said = notes("--values", case("defaults-with-redis"))
    assert "helm test rl --namespace edge" in said
    assert "curl -s localhost:8080/json" in said
    assert "rl-palang.edge.svc.cluster.local:8081" in said
    assert "rl-palang-headless.edge.svc.cluster.local" in said
    assert "cluster_name: outbound|8081||rl-palang.edge.svc.cluster.local" in said
    assert "image: ghcr.io/palang/palang:" in said
    for whom in ("Envoy", "Envoy Gateway", "Istio"):
        assert f"Point {whom} at it" in said
    assert "UpstreamTlsContext" not in said
    assert "UpstreamTlsContext" in notes("--values", case("tls-secret"))


def test_notes_show_an_envoy_cluster_that_parses():
    for name in ("defaults-with-redis", "mtls-cert-manager", "dual-stack"):
        text = notes("--values", case(name)).split("  clusters:\n")[1].split("  and in the HTTP filter")[0]
        (cluster,) = yaml.safe_load(text)
        address = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
        release = render(case(name))
        assert address["address"].split(".")[0] == release.headless["metadata"]["name"]
        assert address["port_value"] == next(
            p["port"] for p in release.headless["spec"]["ports"] if p["name"] == "grpc"
        )


@pytest.mark.parametrize(
    ("arguments", "warning"),
    [
        (["redis.url=r:6379", "replicaCount=1"], "replicaCount is 1"),
        (["store=memory", "replicaCount=1"], "a restart forgets"),
        (["store=memory", "memory.acceptMultipliedLimits=true"], "2 times every limit"),
        (["redis.url=r:6379", "podDisruptionBudget.enabled=false"], "podDisruptionBudget is off"),
        (
            ["redis.url=r:6379", "podDisruptionBudget.maxUnavailable=null", "podDisruptionBudget.minAvailable=2"],
            "drained",
        ),
        (["redis.url=r:6379", "podDisruptionBudget.maxUnavailable=0"], "podDisruptionBudget.maxUnavailable is 0"),
        (["redis.trial.enabled=true"], "trying out only"),
        (["redis.url=r:6379"], "there are no rules"),
        (["redis.url=r:6379", "limits.shadowMode=true"], "nothing is refused"),
        (["redis.url=r:6379", "failure.mode=allow"], "there are no limits"),
        (["redis.url=r:6379", "failure.mode=deny"], "every limited call is refused"),
        (["redis.url=r:6379", "debug.exposed=true"], "debug pages"),
        (["redis.url=r:6379", "redis.password=x"], "redis.existingSecret is better"),
        (["redis.url=r:6379", "replicaCount=0"], "nothing runs"),
        (["redis.url=r:6379", "autoscaling.enabled=true", "autoscaling.minReplicas=1"], "autoscaling.minReplicas is 1"),
        (["redis.url=r:6379", "strategy.type=Recreate"], "nobody answers during a roll-out"),
        (["redis.url=r:6379", "failure.mode=local", "dnsPolicy=Default"], "do not know how many they are"),
        (["redis.url=r:6379", "failure.storeTimeout=50ms"], "Envoy gives up on a call after 20 ms"),
        (["redis.url=r:6379", "grpc.maxConnectionAge=0s"], "new pods get no load"),
        (["redis.url=rediss://r:6379", "redis.tls.skipHostnameVerification=true"], "skipHostnameVerification accepts"),
        (["redis.url=r:6379", "probes.readiness.enabled=false"], "before they can answer"),
        (["redis.url=r:6379", "drain.preStopSeconds=0", "drain.delaySeconds=0"], "have not heard of it"),
        (["redis.url=r:6379", "service.internalTrafficPolicy=Local"], "on a node without a pod"),
        (["redis.url=r:6379", "service.type=LoadBalancer"], "anybody's limits"),
        (["redis.url=r:6379", "podSecurityContext.runAsUser=0"], "more than Palang needs"),
        (["redis.url=r:6379", "securityContext.capabilities.add={NET_ADMIN}"], "more than Palang needs"),
        (["redis.url=r:6379", "securityContext=null"], "securityContext is empty"),
        (["redis.url=r:6379", "ports.http=80"], "ports.http is 80"),
        (["redis.url=r:6379", "tls.enabled=true", "tls.existingSecret=t", "tls.mtls.enabled=true"], "helm test presents"),
        (["redis.url=r:6379", "image.tag=latest"], "image.tag is latest"),
        (["redis.url=r:6379", "lifecycle.preStop.sleep.seconds=3"], "lifecycle replaces"),
        (["redis.url=r:6379", "resources.limits.cpu=1"], "resources.limits.cpu"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_notes_warn_of_risky_choices(arguments, warning):
    said = notes("--set", ",".join(arguments))
    warnings = [line for line in said.splitlines() if "WARNING" in line]
    assert any(warning in line for line in warnings), said


def test_notes_do_not_warn_of_local_where_replicas_are_known():
    local = "redis.url=r:6379,failure.mode=local"
    told = local + ",dnsPolicy=Default,extraEnv[0].name=REPLICAS,extraEnv[0].value=2"
    for arguments in (local, told):
        assert "do not know how many" not in notes("--set-string" if arguments is told else "--set", arguments)


def test_notes_are_quiet_when_all_is_well():
    rules = "rules.existingConfigMap=rules"
    assert "WARNING" not in notes("--values", case("redis-existing-secret"), "--set", rules)


def test_notes_never_tell_a_password():
    for path in chart.CASES:
        said = notes("--values", path)
        assert "hunter2" not in said and "p:@ss" not in said
