"""Writes the table of values into the chart's README.md, from the comments of values.yaml (helm-docs' `# --`).

With --check it writes nothing and fails if the table is out of date.
"""

import json
import pathlib
import sys

import yaml

CHART = pathlib.Path(__file__).resolve().parent.parent / "helm" / "palang"
BEGIN = "<!-- values: begin (made by scripts/chart_readme.py) -->"
END = "<!-- values: end -->"


def main() -> None:
    readme = CHART / "README.md"
    old = readme.read_text()
    before, _, rest = old.partition(BEGIN)
    _, _, after = rest.partition(END)
    new = f"{before}{BEGIN}\n{table()}\n{END}{after}"
    if "--check" in sys.argv:
        if new != old:
            raise SystemExit("helm/palang/README.md: the table of values is out of date; run scripts/chart_readme.py")
    else:
        readme.write_text(new)


def table() -> str:
    text = (CHART / "values.yaml").read_text()
    rows = ["| Value | Default | What it is |", "| --- | --- | --- |"]
    for path, default, description in values(text):
        cells = [f"`{path}`", f"`{json.dumps(default, ensure_ascii=False)}`", description]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def values(text: str) -> list[tuple[str, object, str]]:
    """Every documented value: its path, default and description. A commented map is one value, unless what is in it
    is commented, too. A value without a comment is an error."""
    found: list[tuple[str, object, str]] = []
    lines = text.splitlines()
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    walk(root, "", lines, found)
    return found


def walk(node: yaml.MappingNode, path: str, lines: list[str], found: list) -> None:
    for key, value in node.value:
        here = f"{path}.{key.value}" if path else key.value
        description = comment(lines, key.start_mark.line)
        if isinstance(value, yaml.MappingNode) and value.value and (not description or inner_comments(lines, value)):
            walk(value, here, lines, found)
        elif description:
            found.append((here, construct(value), description))
        else:
            raise SystemExit(f"values.yaml:{key.start_mark.line + 1}: {here} has no description")


def construct(node: yaml.Node) -> object:
    return yaml.SafeLoader("").construct_document(node)


def inner_comments(lines: list[str], node: yaml.MappingNode) -> bool:
    return any(
        comment(lines, key.start_mark.line) or (isinstance(value, yaml.MappingNode) and inner_comments(lines, value))
        for key, value in node.value
    )


def comment(lines: list[str], line: int) -> str:
    """The description right above a line, without its `# --`."""
    said: list[str] = []
    for above in reversed(lines[:line]):
        stripped = above.strip()
        if not stripped.startswith("#"):
            return ""
        if stripped.startswith("# -- "):
            return " ".join([stripped.removeprefix("# -- "), *reversed(said)])
        if stripped.startswith("# ---"):
            return ""
        said.append(stripped.lstrip("# "))
    return ""


if __name__ == "__main__":
    main()
