"""What platform teams add, and how the release is seen: extras, names, nulls, monitors, dashboards."""

import json
import re

import pytest
import yaml

import chart
from chart import case, render


# --- What platform teams add


@pytest.mark.parametrize(
    ("tag", "label"),
    [
        ("1.2.3", "1.2.3"),
        ("_main-", "main"),
        ("1.2_rc.", "1.2_rc"),
        (f"{'a' * 62}-{'b' * 20}", "a" * 62),
    ],
)
def test_any_tag_makes_a_label_kubernetes_takes(tag, label):
    release = render(case("defaults-with-redis"), "--set-string", f"image.tag={tag}")
    assert release.container["image"].endswith(f":{tag}")
    for labels in (release.deployment["metadata"]["labels"], release.pod["metadata"]["labels"]):
        assert labels["app.kubernetes.io/version"] == label


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
