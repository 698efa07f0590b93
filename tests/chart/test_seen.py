"""Alerts and dashboard are sound for a real Prometheus."""

import json
import pathlib
import re
import subprocess

import yaml

import chart

ALERTS = chart.CHART / "alerts" / "palang.yaml"
DASHBOARD = chart.CHART / "dashboards" / "palang.json"


def promtool(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run([chart.tool("promtool"), *map(str, arguments)], capture_output=True, text=True)


def test_promtool_accepts_the_alerts_and_the_rendered_rules(tmp_path):
    rendered = tmp_path / "rendered.yaml"
    rendered.write_text(yaml.safe_dump(chart.render(chart.case("monitoring-service")).one("PrometheusRule")["spec"]))
    for path in (ALERTS, rendered):
        result = promtool("check", "rules", path)
        assert result.returncode == 0, result.stderr


def test_promtool_runs_the_alerts():
    result = promtool("test", "rules", pathlib.Path(__file__).with_name("alerts_test.yaml"))
    assert result.returncode == 0, result.stdout + result.stderr


def alerts() -> dict[str, dict]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    found = {rule["alert"]: rule for rule in rules}
    assert len(found) == len(rules), "names are unique"
    return found


def test_every_alert_says_what_it_is_about_and_has_a_runbook():
    for name, rule in alerts().items():
        assert name.startswith("Palang")
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        said = rule["annotations"]
        assert set(said) == {"summary", "description", "runbook_url"}
        assert said["runbook_url"] == f"docs/failure.md#{name.lower()}"
        # Who is meant is in the text, for what is grouped by it.
        for label in ("domain", "rule", "store", "kind", "policy", "instance", "bound", "port"):
            if re.search(rf"by \([^)]*\b{label}\b", rule["expr"]):
                assert f"$labels.{label}" in said["summary"] + said["description"], f"{name}: {label}"


def test_the_runbook_has_each_alert_and_no_other():
    described = set(re.findall(r"`(palang_\w+)", (chart.ROOT / "docs" / "metrics.md").read_text()))
    text = (chart.ROOT / "docs" / "failure.md").read_text()
    entries = re.findall(r"^### (Palang\w+)\n\n(.+?)(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in entries] == list(alerts())
    for name, entry in entries:
        parts = re.match(r"- \*\*Means\*\*: .+^- \*\*Look\*\*: (.+)^- \*\*Do\*\*: .+", entry, re.MULTILINE | re.DOTALL)
        assert parts, name
        assert "`" in parts[1], f"{name}: what to ask, word for word"
        for metric in re.findall(r"\bpalang_\w+", entry):
            assert metric.removesuffix("_bucket") in described, f"{name}: {metric}"
    for named in re.findall(r"\b(Palang[A-Z]\w+)", text + DASHBOARD.read_text()):
        assert named in alerts(), named


def test_every_alert_is_seen_to_fire_and_not_to():
    healthy, *others = yaml.safe_load(pathlib.Path(__file__).with_name("alerts_test.yaml").read_text())["tests"]
    for each in healthy["promql_expr_test"]:
        assert (each["expr"], each["exp_samples"]) == ('ALERTS{alertstate="firing"}', [])
    fired = set(re.findall(r'alertname="(\w+)"', str([each["promql_expr_test"] for each in others])))
    assert fired == set(alerts())
    # It does not fire although there is something to judge: all its metrics are there.
    there = {re.match(r"\w+", each["series"])[0] for each in healthy["input_series"]}
    for name, rule in alerts().items():
        assert set(re.findall(r"\bpalang_\w+", rule["expr"])) <= there, name


def queries():
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def test_promtool_accepts_every_query_of_the_dashboard(tmp_path):
    rules = []
    for index, (title, query) in enumerate(queries()):
        query = query.replace("$__rate_interval", "5m").replace("$__interval", "1m").replace("$__range", "1h")
        query = re.sub(r'=~"\$\w+"', '=~".*"', query)
        assert "$" not in query, f"{title}: {query}"
        rules.append({"record": f"dashboard:query:{index}", "expr": query})
    assert rules
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    result = promtool("check", "rules", path)
    assert result.returncode == 0, result.stderr


def test_the_dashboard_is_well_formed():
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["title"] and dashboard["uid"] and "id" not in dashboard and "__inputs" not in dashboard
    assert dashboard["schemaVersion"] >= 38, "Grafana 10 reads it as it is"
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    for panel in panels:
        if panel["type"] == "row":
            continue
        assert panel["title"] and panel["description"] and panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${datasource}", "works with any Prometheus"
        for target in panel["targets"]:
            used = set(re.findall(r"\$(\w+)", target["expr"]))
            assert {name for name in used if not name.startswith("__")} <= variables
    # Nothing lies on something else.
    taken = set()
    for panel in panels:
        grid = panel["gridPos"]
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken and grid["x"] + grid["w"] <= 24, panel["title"]
        taken |= cells
