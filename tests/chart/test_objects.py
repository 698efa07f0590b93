"""Every rendering holds together: selectors, ports, mounts, secrets, probes, and Kubernetes' own schemas."""

import re

import kubernetes_validate
import pytest
import yaml

import chart
from chart import matches, render, walk

CORE = {
    "apps/v1",
    "autoscaling/v2",
    "networking.k8s.io/v1",
    "policy/v1",
    "v1",
}
FOREIGN = {
    ("cert-manager.io/v1", "Certificate"),
    ("monitoring.coreos.com/v1", "PodMonitor"),
    ("monitoring.coreos.com/v1", "PrometheusRule"),
    ("monitoring.coreos.com/v1", "ServiceMonitor"),
}


@pytest.mark.parametrize("kubernetes", chart.KUBERNETES)
def test_valid_against_the_schemas_of_kubernetes(values, kubernetes):
    for found in render(values, kubernetes=kubernetes).objects:
        kind = found["apiVersion"], found["kind"]
        if kind in FOREIGN:
            continue
        assert found["apiVersion"] in CORE, kind
        kubernetes_validate.validate(found, kubernetes.rpartition(".")[0], strict=True)


def test_names_are_unique_and_labels_are_there(release):
    seen = set()
    for found in release.objects:
        metadata = found["metadata"]
        key = found["kind"], metadata.get("namespace"), metadata["name"]
        assert key not in seen, f"two of {key}"
        seen.add(key)
        assert len(metadata["name"]) <= 63 and re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", metadata["name"])
        if "labels" not in metadata:
            continue  # an extra object, which is the user's own
        assert metadata["namespace"] == chart.NAMESPACE or "monitoring" in metadata["namespace"]
        labels = metadata["labels"]
        for label in ("name", "instance", "component", "version", "managed-by", "part-of"):
            assert labels[f"app.kubernetes.io/{label}"]
        assert all(len(value) <= 63 for value in labels.values())
        assert release.values.get("commonLabels", {}).items() <= labels.items()


def test_selectors_find_what_they_are_meant_to(release):
    pods = list(release.pod_templates())

    def found(selector):
        return [component for component, metadata, _ in pods if matches(selector, metadata["labels"])]

    for deployment in release.all("Deployment"):
        component = deployment["metadata"]["labels"]["app.kubernetes.io/component"]
        assert found(deployment["spec"]["selector"]["matchLabels"]) == [component]
    for service in release.all("Service"):
        component = service["metadata"]["labels"]["app.kubernetes.io/component"]
        assert found(service["spec"]["selector"]) == [component]
    for policy in release.all("NetworkPolicy"):
        component = policy["metadata"]["labels"]["app.kubernetes.io/component"]
        assert found(policy["spec"]["podSelector"]["matchLabels"]) == [component]
    for budget in release.all("PodDisruptionBudget"):
        assert found(budget["spec"]["selector"]["matchLabels"]) == ["ratelimit"]
    for monitor in release.all("PodMonitor"):
        assert found(monitor["spec"]["selector"]["matchLabels"]) == ["ratelimit"]
        assert monitor["spec"]["namespaceSelector"]["matchNames"] == [chart.NAMESPACE]
    for monitor in release.all("ServiceMonitor"):
        chosen = monitor["spec"]["selector"]["matchLabels"]
        services = [s for s in release.all("Service") if matches(chosen, s["metadata"]["labels"])]
        assert services == [release.headless], "each pod is scraped once"
        assert monitor["spec"]["namespaceSelector"]["matchNames"] == [chart.NAMESPACE]
    for scaler in release.all("HorizontalPodAutoscaler"):
        target = scaler["spec"]["scaleTargetRef"]
        assert target == {"apiVersion": "apps/v1", "kind": "Deployment", "name": release.deployment["metadata"]["name"]}
    for constraint in release.pod["spec"].get("topologySpreadConstraints", []):
        if constraint["labelSelector"] != {"matchLabels": {"app": "something"}}:
            assert found(constraint["labelSelector"]["matchLabels"]) == ["ratelimit"]


def test_ports_match(release):
    container = release.container
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert len(set(ports.values())) == len(ports)
    assert str(ports["grpc"]) == release.setting("GRPC_PORT")
    assert str(ports["http"]) == release.setting("PORT")
    if release.setting("USE_PROMETHEUS") == "true":
        assert f":{ports['metrics']}" == release.setting("PROMETHEUS_ADDR")
    else:
        assert "metrics" not in ports
    if "debug" in ports:
        assert str(ports["debug"]) == release.setting("DEBUG_PORT")
        assert release.setting("DEBUG_HOST") != "127.0.0.1"
    else:
        assert release.setting("DEBUG_HOST") == "127.0.0.1"

    for service in (release.service, release.headless):
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= set(ports)
        numbers = [port["port"] for port in service["spec"]["ports"]]
        assert len(set(numbers)) == len(numbers)
    # No proxy stands before a headless Service: a caller connects to the pod by the port it was told.
    assert all(port["port"] == ports[port["targetPort"]] for port in release.headless["spec"]["ports"])
    tls = release.setting("GRPC_SERVER_USE_TLS") == "true"
    for service in (release.service, release.headless):
        grpc = next(port for port in service["spec"]["ports"] if port["name"] == "grpc")
        assert grpc["appProtocol"] == ("https" if tls else "kubernetes.io/h2c")
    assert release.service["spec"].get("clusterIP") is None
    assert release.headless["spec"]["clusterIP"] == "None"

    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        check = container.get(probe, {})
        if "httpGet" in check:
            assert check["httpGet"]["port"] in ports
        if "grpc" in check:
            assert check["grpc"]["port"] == ports["grpc"]
    for monitor in release.all("PodMonitor"):
        assert [end["port"] for end in monitor["spec"]["podMetricsEndpoints"]] == ["metrics"]
        assert "metrics" in ports
    for monitor in release.all("ServiceMonitor"):
        assert [end["port"] for end in monitor["spec"]["endpoints"]] == ["metrics"]
        assert "metrics" in {port["name"] for port in release.headless["spec"]["ports"]}

    policy = release.component("NetworkPolicy", "ratelimit")
    if policy:
        extra = release.values["networkPolicy"].get("ingress", {}).get("extra", [])
        rules = [rule for rule in policy["spec"]["ingress"] if rule not in extra]
        open_ports = sorted(port["port"] for rule in rules for port in rule["ports"])
        assert open_ports == sorted(number for name, number in ports.items() if name != "debug")

    store = release.component("Deployment", "trial-store")
    if store:
        service = release.component("Service", "trial-store")
        (port,) = store["spec"]["template"]["spec"]["containers"][0]["ports"]
        assert service["spec"]["ports"][0]["targetPort"] == port["name"]
        assert release.setting("REDIS_URL") == f"{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"

    test = release.component("Pod", "test")
    if test:
        arguments = test["spec"]["containers"][0]["args"]
        host, _, port = arguments[arguments.index("--address") + 1].rpartition(":")
        assert host == f"{release.service['metadata']['name']}.{chart.NAMESPACE}.svc.cluster.local"
        assert int(port) == next(p["port"] for p in release.service["spec"]["ports"] if p["name"] == "grpc")


def outside(release) -> set[str]:
    """Names of objects that values say somebody else makes."""
    named = {
        value
        for path, value in walk(release.values)
        if re.search(r"(^|\.)(existingSecret(\.name)?|existingConfigMap|caSecret|clientCertSecret)$", path)
    }
    extra = ("extraEnv", "extraEnvFrom", "extraVolumes", "initContainers", "extraContainers")
    named |= {value for path, value in walk(release.values) if path.startswith(extra) and path.endswith("ame")}
    return named


def test_every_secret_and_configmap_exists_or_is_named_by_a_value(release):
    made = {kind: {each["metadata"]["name"]: each for each in release.all(kind)} for kind in ("Secret", "ConfigMap")}
    # cert-manager makes this one.
    for certificate in release.all("Certificate"):
        made["Secret"][certificate["spec"]["secretName"]] = {"data": {"tls.crt": "", "tls.key": "", "ca.crt": ""}}
    elsewhere = outside(release)

    def check(kind, name, keys=()):
        if name in made[kind]:
            held = {**made[kind][name].get("data", {}), **made[kind][name].get("stringData", {})}
            assert set(keys) <= set(held), f"{kind} {name} lacks {set(keys) - set(held)}"
        else:
            assert name in elsewhere, f"nobody makes the {kind} {name}"

    for _, _, spec in release.pod_templates():
        volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
        assert len(volumes) == len(spec.get("volumes", []))
        mounted = set()
        for container in spec.get("initContainers", []) + spec["containers"]:
            for mount in container.get("volumeMounts", []):
                assert mount["name"] in volumes
                assert "subPath" not in mount, "what is mounted by subPath is never reloaded"
                mounted.add(mount["name"])
            for variable in container.get("env", []):
                source = variable.get("valueFrom", {})
                for kind, field in (("Secret", "secretKeyRef"), ("ConfigMap", "configMapKeyRef")):
                    if field in source:
                        check(kind, source[field]["name"], [source[field]["key"]])
            for source in container.get("envFrom", []):
                for kind, field in (("Secret", "secretRef"), ("ConfigMap", "configMapRef")):
                    if field in source:
                        check(kind, source[field]["name"])
        assert mounted == set(volumes), "a volume that nothing mounts"
        for volume in volumes.values():
            if "secret" in volume:
                keys = [item["key"] for item in volume["secret"].get("items", [])]
                check("Secret", volume["secret"]["secretName"], keys)
                assert volume["secret"]["defaultMode"] == 0o440
            if "configMap" in volume:
                check("ConfigMap", volume["configMap"]["name"])


def test_a_secret_by_the_charts_own_name_is_rendered_with_its_keys(release):
    """Whatever values call it: a name of the release is nobody else's."""
    own = release.deployment["metadata"]["name"] + "-"
    made = {each["metadata"]["name"]: {**each.get("data", {}), **each["stringData"]} for each in release.all("Secret")}
    for component, _, spec in release.pod_templates():
        for container in spec["containers"]:
            for variable in container.get("env", []):
                reference = variable.get("valueFrom", {}).get("secretKeyRef")
                if reference and reference["name"].startswith(own):
                    assert reference["key"] in made.get(reference["name"], {}), f"{component} {variable['name']}"


def test_files_that_settings_name_are_mounted(release):
    mounts = {mount["mountPath"]: mount for mount in release.container.get("volumeMounts", [])}
    assert all(mount.get("readOnly") for path, mount in mounts.items() if path.startswith("/etc/palang/"))
    for name, variable in release.env.items():
        path = variable.get("value", "")
        if path.startswith("/"):
            assert any(path == mount or path.startswith(f"{mount}/") for mount in mounts), f"{name}={path}"
    used = " ".join(variable.get("value", "") for variable in release.env.values())
    for path in mounts:
        assert not path.startswith("/etc/palang/") or path in used, f"{path} is mounted for nobody"


def test_no_password_outside_of_a_secret(release):
    secrets = {
        value
        for path, value in walk(release.values)
        if re.search(r"\.(password|sentinelPassword|username)$", path) and value
    }
    for found in release.objects:
        if found["kind"] == "Secret":
            continue
        for path, value in walk(found):
            assert not any(secret in str(value) for secret in secrets), f"{found['kind']} {path}"
    for _, _, spec in release.pod_templates():
        for container in spec["containers"]:
            for variable in container.get("env", []):
                if re.search(r"(AUTH|PASSWORD|TOKEN|SECRET)", variable["name"]):
                    plain = variable.get("value", "")
                    assert re.fullmatch(r"(:\$\([A-Z_]+\))?", plain), f"{variable['name']} is plain"
                    assert plain or "secretKeyRef" in variable["valueFrom"], variable["name"]


def test_environment_is_sound(release):
    for _, _, spec in release.pod_templates():
        assert spec["enableServiceLinks"] is False, "a Service called grpc would set GRPC_PORT"
        for container in spec["containers"]:
            earlier = set()
            for variable in container.get("env", []):
                assert variable["name"] not in earlier, f"{variable['name']} is set twice"
                assert set(variable) in ({"name", "value"}, {"name", "valueFrom"})
                if "value" in variable:
                    assert isinstance(variable["value"], str)
                    assert set(re.findall(r"\$\(([A-Z_]+)\)", variable["value"])) <= earlier
                    if variable["name"] not in {each["name"] for each in release.values.get("extraEnv", [])}:
                        assert variable["value"] != "", f"{variable['name']} is empty"
                earlier.add(variable["name"])


def test_probes_fit_tls_and_never_kill_for_a_store(release):
    container = release.container
    if release.setting("GRPC_SERVER_USE_TLS") == "true":
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert "grpc" not in container.get(probe, {}), "the kubelet's gRPC probe speaks no TLS"
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    elif not release.values.get("probes"):
        assert container["readinessProbe"]["grpc"]["service"] == "ratelimit"
    for probe in ("startupProbe", "livenessProbe"):
        if probe in container:
            assert container[probe]["httpGet"] == {"path": "/livez", "port": "http"}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        if probe in container:
            assert {key for key in container[probe]} & {"httpGet", "grpc"}


def test_security_contexts_are_hardened(release):
    for component, _, spec in release.pod_templates():
        pod = spec["securityContext"]
        assert pod["runAsNonRoot"] is True
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
        if "podSecurityContext" not in release.values:
            assert pod["runAsUser"] == 65532
        else:
            assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(pod)
        assert spec["automountServiceAccountToken"] is False
        for container in spec["containers"]:
            if container["name"] not in ("palang", "valkey", "decide"):
                continue
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            resources = container["resources"]
            assert {"cpu", "memory"} <= set(resources["requests"]), component
            assert "memory" in resources["limits"] and "cpu" not in resources["limits"], component


def test_checksums_are_for_what_is_not_reloaded(release):
    made = [secret["metadata"]["name"] for secret in release.all("Secret")]
    for component, metadata, _ in release.pod_templates():
        checksums = {key for key in metadata.get("annotations", {}) if "checksum" in key}
        wanted = {"checksum/redis-secret"} if made and component in ("ratelimit", "trial-store") else set()
        assert checksums == wanted


def test_grace_holds_the_drain(release):
    spec = release.pod["spec"]
    sleep = release.container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    delay, timeout = (int(release.setting(name).removesuffix("s")) for name in ("SHUTDOWN_DELAY", "SHUTDOWN_TIMEOUT"))
    assert spec["terminationGracePeriodSeconds"] >= sleep + delay + timeout


def test_hooks_are_the_test_pod_only(release):
    for found in release.objects:
        hook = found["metadata"].get("annotations", {}).get("helm.sh/hook")
        is_test = found["kind"] == "Pod"
        assert (hook == "test") == is_test
        if is_test:
            container = found["spec"]["containers"][0]
            assert container["image"] == release.container["image"]
            assert (container["command"], container["args"][0]) == (["/palang"], "decide")
            assert found["spec"]["restartPolicy"] == "Never"


def test_objects_of_other_projects_have_their_shape(release):
    for monitor, ends in (("ServiceMonitor", "endpoints"), ("PodMonitor", "podMetricsEndpoints")):
        for found in release.all(monitor):
            assert found["apiVersion"] == "monitoring.coreos.com/v1"
            assert set(found["spec"]) == {"selector", "namespaceSelector", ends}
            (end,) = found["spec"][ends]
            known = {"port", "path", "interval", "scrapeTimeout", "relabelings", "metricRelabelings"}
            assert {"port", "path"} <= set(end) <= known
    for found in release.all("PrometheusRule"):
        assert set(found["spec"]) == {"groups"}
        for group in found["spec"]["groups"]:
            assert group["name"] and group["rules"]
    for found in release.all("Certificate"):
        spec = found["spec"]
        assert set(spec["issuerRef"]) == {"name", "kind", "group"}
        assert {"digital signature", "server auth"} <= set(spec["usages"])
        for service in (release.service, release.headless):
            name = service["metadata"]["name"]
            assert {name, f"{name}.{chart.NAMESPACE}.svc"} <= set(spec["dnsNames"])


def test_rules_are_yaml_with_a_domain(release):
    volume = next((each for each in release.pod["spec"].get("volumes", []) if each["name"] == "rules"), None)
    if release.setting("CONFIG_TYPE") == "GRPC_XDS_SOTW":
        assert volume is None and "PALANG_RULES" not in release.env
        return
    name = volume["configMap"]["name"]
    found = [each for each in release.all("ConfigMap") if each["metadata"]["name"] == name]
    for text in (found[0].get("data") or {}).values() if found else ():
        rules = yaml.safe_load(text)
        assert rules["domain"] and isinstance(rules["descriptors"], list)
