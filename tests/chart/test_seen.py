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


def test_every_alert_says_what_to_do():
    names = set()
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            if "alert" not in rule:
                continue
            assert rule["alert"].startswith("Palang") and rule["alert"] not in names
            names.add(rule["alert"])
            assert rule["labels"]["severity"] in ("critical", "warning", "info")
            assert {"summary", "description", "runbook"} <= set(rule["annotations"])


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
    assert dashboard["title"] and dashboard["uid"] and "id" not in dashboard
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    for panel in panels:
        if panel["type"] == "row":
            continue
        assert panel["title"] and panel["description"]
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
