"""The real Helm accepts the chart, with every values file, in both versions; the schema refuses what is wrong."""

import pathlib
import re
import tarfile

import pytest
import yaml

import chart

BAD = sorted(pathlib.Path(__file__).with_name("bad").glob("*.yaml"))


def header(path: pathlib.Path) -> dict[str, str]:
    """The `# key: value` lines a bad values file begins with."""
    lines = [line[2:].split(": ", 1) for line in path.read_text().splitlines() if line.startswith("# ")]
    return {line[0]: line[1] for line in lines if len(line) == 2}


def test_there_are_enough_cases():
    assert len(chart.CASES) >= 20
    assert len([path for path in BAD if header(path)["refused by"] == "schema"]) >= 15


@pytest.mark.parametrize("version", chart.helms())
def test_lint(values, version):
    result = chart.helm("lint", "--strict", chart.CHART, "--values", values, version=version)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.skipif(len(chart.helms()) < 2, reason="only one Helm can be installed here")
def test_both_helms_render_the_same(values):
    def of(version):
        return sorted(
            chart.render(values, version=version).objects, key=lambda it: (it["kind"], it["metadata"]["name"])
        )

    assert of("helm") == of("helm3")


@pytest.mark.parametrize("version", chart.helms())
@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_values_are_refused_by_name(path, version):
    result = chart.template(path, version=version)
    expected = header(path)
    assert result.returncode != 0, "these values were accepted"
    by = {"schema": "values don't meet the specifications of the schema", "chart": "These values cannot work"}
    assert by[expected["refused by"]] in result.stderr, result.stderr
    assert expected["names"] in result.stderr, result.stderr


@pytest.mark.parametrize(
    "odd",
    [
        {"extraEnv": [{"name": "REDIS_PASSWORD_FILE", "value": "/secrets/redis"}]},
        {"extraEnv": [{"name": "PW", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]},
        {"extraEnv": [{"name": "REDIS_AUTH", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]},
        {"extraEnv": [{"name": "REDIS_AUTH", "value": "user:$(PW)"}]},
        {"extraEnv": [{"name": "OTEL_EXPORTER_OTLP_HEADERS", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]},
        {"extraEnv": [{"name": "CORES", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu"}}}]},
        {"extraArgs": ["--redis-password-file=/secrets/redis", "--top-keys", "50"]},
        {"failure": {"storeTimeout": "1ms"}, "grpc": {"maxConnectionAge": "0s"}},
        {"failure": {"storeTimeout": "1.5s"}, "grpc": {"maxConnectionAge": "1h30m"}},
        {"xds": {"enabled": True, "serverUrl": "[::1]:65535", "maxMessageBytes": 65536}},
        {"rules": {"domains": {"a": {"descriptors": [{"key": "k", "rate_limit": {"unit": "MINUTE"}}]}}}},
        {"rules": {"domains": {"a": {"descriptors": [{"key": "k", "rate_limit": {"unlimited": True}}]}}}},
        {"rules": {"domains": {"a": {"descriptors": [{"key": "k", "rate_limit": {"window": "30s", "cost": 2}}]}}}},
        {"resources": {"requests": {"cpu": 1, "memory": "1000Mi"}, "limits": {"memory": "1Gi"}}},
        {"service": {"httpPort": 9090}},
        {"nodeSelector": {"node-role.kubernetes.io/edge": ""}},
        {"metrics": {"serviceMonitor": {"enabled": True, "interval": "1m", "scrapeTimeout": "30s"}}},
    ],
    ids=str,
)
def test_odd_values_that_work_are_not_refused(odd, tmp_path):
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump({"redis": {"url": "redis:6379"}, **odd}))
    result = chart.template(path)
    assert result.returncode == 0, result.stderr


def test_all_mistakes_are_told_at_once():
    result = chart.template(None, "--set", "tls.enabled=true,tracing.enabled=true,metrics.statsd.enabled=true")
    for key in ("redis.url", "tls.existingSecret", "tracing.endpoint", "metrics.statsd.host"):
        assert key in result.stderr


def test_a_refusal_does_not_repeat_a_password():
    for path in BAD:
        if "hunter2" in path.read_text():
            result = chart.template(path)
            assert result.returncode != 0 and "hunter2" not in result.stderr, path.stem


def test_values_and_schema_list_the_same_keys():
    schema = yaml.safe_load((chart.CHART / "values.schema.json").read_text())

    def keys(node, path=""):
        if "$ref" in node:
            node = schema["definitions"][node["$ref"].rpartition("/")[2]]
        for key, inner in node.get("properties", {}).items():
            yield f"{path}{key}"
            yield from keys(inner, f"{path}{key}.")

    def closed(node, path=""):
        if "$ref" in node:
            node = schema["definitions"][node["$ref"].rpartition("/")[2]]
        if "properties" in node and path not in ("global.",):
            assert node.get("additionalProperties") is False, f"{path or 'the root'} accepts unknown keys"
        for key, inner in node.get("properties", {}).items():
            yield from closed(inner, f"{path}{key}.")

    def defaults(node, path=""):
        for key, inner in node.items():
            yield f"{path}{key}"
            if isinstance(inner, dict):
                yield from defaults(inner, f"{path}{key}.")

    in_schema = set(keys(schema))
    in_values = set(defaults(yaml.safe_load((chart.CHART / "values.yaml").read_text())))
    list(closed(schema))
    # Kubernetes' own fields inside of these are not the chart's to list.
    foreign = ("podSecurityContext.", "securityContext.", "resources.", "redis.trial.resources.", "strategy.rolling")
    foreign += ("autoscaling.behavior.", "tls.certManager.privateKey.", "metrics.dashboard.labels.")
    # Optional parts of objects whose default is a whole, and the one key that is for parent charts only.
    optional = {"enabled", "affinity.nodeAffinity", "affinity.podAffinity", "affinity.podAntiAffinity"}
    optional |= {"lifecycle.preStop", "lifecycle.postStart", "lifecycle.stopSignal"}
    optional |= {"dnsConfig.nameservers", "dnsConfig.searches", "dnsConfig.options"}
    missing = {key for key in in_values - in_schema if not key.startswith(foreign)}
    assert not missing, f"in values.yaml only: {missing}"
    missing = {key for key in in_schema - in_values - optional if not key.startswith(foreign)}
    assert not missing, f"in values.schema.json only: {missing}"


def test_settings_that_values_make_are_known_to_be_theirs():
    """What a value makes is refused in extraEnv and extraArgs, by that value's name."""
    text = (chart.CHART / "templates" / "_owned.tpl").read_text()
    owned = dict(re.findall(r"^([A-Z_]+): (.+)$", text, re.MULTILINE))
    made = {name for path in chart.CASES for name in chart.render(path).env}
    given = {each["name"] for path in chart.CASES for each in chart.render(path).values.get("extraEnv", [])}
    # Credentials may come another way, where no value gives them.
    free = {name for name in made if re.search("SENTINEL_(AUTH|PASSWORD)$", name)}
    assert made - given - free <= set(owned)
    settings = set(re.findall(r"^\| `([A-Z_]+)`", (chart.ROOT / "docs" / "settings.md").read_text(), re.MULTILINE))
    assert set(owned) <= settings, "a setting the service does not have"
    values = yaml.safe_load((chart.CHART / "values.yaml").read_text())
    for name, path in owned.items():
        at = values
        for key in path.split(".") if name != "REPLICAS_DNS" else ():
            assert key in at, f"{name}: there is no value {path}"
            at = at[key]


def test_the_schema_of_rules_has_the_words_of_the_service():
    source = (chart.ROOT / "src" / "rules" / "compile" / "vocabulary.rs").read_text()
    words: dict[str, set[str]] = {}
    for name, levels in re.findall(r'^    (?:word|ours)\("(\w+)", &\[(.+)\]\)', source, re.MULTILINE):
        for level in re.findall(r"Level::(\w+)", levels):
            words.setdefault(level, set()).add(name)
    schema = yaml.safe_load((chart.CHART / "values.schema.json").read_text())["definitions"]
    limit = schema["rateLimit"]["properties"]
    assert words == {
        "Domain": set(schema["rules"]["properties"]),
        "Descriptor": set(schema["descriptor"]["properties"]),
        "RateLimit": set(limit),
        "Replaces": set(limit["replaces"]["items"]["properties"]),
    }
    for key, path in (("algorithm", "src/rules/compile/algorithm.rs"), ("on_store_failure", "src/counter.rs")):
        text = (chart.ROOT / path).read_text()
        assert all(f'"{name}"' in text for name in limit[key]["enum"]), path


def test_a_parent_chart_may_switch_it():
    assert chart.render(chart.case("quickstart"), "--set", "enabled=true").deployment


def test_packaged_without_the_test_values(tmp_path):
    result = chart.helm("package", chart.CHART, "--destination", tmp_path)
    assert result.returncode == 0, result.stderr
    (package,) = tmp_path.glob("palang-*.tgz")
    names = tarfile.open(package).getnames()
    assert "palang/values.schema.json" in names and "palang/alerts/palang.yaml" in names
    assert "palang/dashboards/palang.json" in names
    assert not [name for name in names if name.startswith("palang/ci/")]
