"""What NOTES.txt says after an installation: how to call it, how to point proxies at it, what is risky."""

import pytest
import yaml

import chart
from chart import case, notes, render


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
        port = next(p["containerPort"] for p in release.container["ports"] if p["name"] == "grpc")
        assert address["port_value"] == port
        assert f"{address['address']}:{port}" in notes("--values", case(name))


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
        (
            ["redis.url=r:6379", "tls.enabled=true", "tls.existingSecret=t", "tls.mtls.enabled=true"],
            "/json on the HTTP port (8080) asks for no certificate",
        ),
        (
            ["redis.url=r:6379", "tls.enabled=true", "tls.existingSecret=t", "podSecurityContext.fsGroup=null"],
            "can read the certificates",
        ),
        (
            ["redis.url=rediss://r:6379", "redis.tls.existingSecret=t", "podSecurityContext.fsGroup=null"],
            "can read the certificates",
        ),
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


def test_notes_do_not_call_a_user_a_password():
    assert "a password of Redis" not in notes("--values", case("redis-username"))


def test_notes_warn_of_no_group_only_where_certificates_are_mounted():
    for path in (case("openshift"), case("tls-secret"), case("redis-sentinel-tls")):
        assert "read the certificates" not in notes("--values", path)


def test_notes_never_tell_a_password():
    for path in chart.CASES:
        said = notes("--values", path)
        assert "hunter2" not in said and "p:@ss" not in said
