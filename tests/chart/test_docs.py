"""The chart's README lists every value, with its default and a description."""

import json
import re
import subprocess
import sys

import yaml

import chart

README = chart.CHART / "README.md"


def rows() -> dict[str, tuple[str, str]]:
    """The table: value to default and description."""
    found = re.findall(r"^\| `([^`]+)` \| `(.*?)` \| (.+) \|$", README.read_text(), re.MULTILINE)
    return {path: (default.replace("\\|", "|"), description) for path, default, description in found}


def test_the_table_is_up_to_date():
    script = chart.ROOT / "scripts" / "chart_readme.py"
    result = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_every_value_is_listed_and_nothing_else():
    values = yaml.safe_load((chart.CHART / "values.yaml").read_text())
    listed = rows()

    def check(node, path):
        if path in listed:
            default, description = listed.pop(path)
            assert json.loads(default) == node, path
            assert len(description) > 5, path
        elif isinstance(node, dict) and node:
            for key, inner in node.items():
                check(inner, f"{path}.{key}" if path else key)
        else:
            raise AssertionError(f"README.md does not list {path}")

    check(values, "")
    assert not listed, f"README.md lists what is no value: {sorted(listed)}"


def test_every_description_is_in_the_form_of_helm_docs():
    text = (chart.CHART / "values.yaml").read_text()
    described = [line for line in text.splitlines() if line.lstrip().startswith("# -- ")]
    assert len(described) == len(rows())


def test_commands_in_the_readme_are_real():
    text = README.read_text()
    for path in re.findall(r"helm/palang/[\w./-]+\.yaml", text):
        assert (chart.ROOT / path).exists(), path
    (block,) = re.findall(r"```yaml\n(# values\.yaml\n.*?)```", text, re.DOTALL)
    values = yaml.safe_load(block)
    assert values["redis"]["url"]


def test_values_of_the_readme_render(tmp_path):
    (block,) = re.findall(r"```yaml\n(# values\.yaml\n.*?)```", README.read_text(), re.DOTALL)
    values = tmp_path / "values.yaml"
    values.write_text(block)
    assert chart.render(values).one("PodMonitor")


def test_rules_of_the_readme_go_with_its_values(tmp_path):
    text = README.read_text()
    (block,) = re.findall(r"```yaml\n(# values\.yaml\n.*?)```", text, re.DOTALL)
    command = r"^helm upgrade (.*?)--set-file '(.+?)=(.+?)'$"
    ((options, key, path),) = re.findall(command, text, re.DOTALL | re.MULTILINE)
    assert "--namespace ratelimit" in options
    values, rules = tmp_path / "values.yaml", tmp_path / path
    values.write_text(block)
    rules.parent.mkdir()
    rules.write_text(f"domain: {rules.stem}\ndescriptors: []\n")
    made = chart.render(values, "--set-file", f"{key}={rules}").one("ConfigMap", "rl-palang-rules")
    assert set(made["data"]) == {"shop.yaml", rules.name}
