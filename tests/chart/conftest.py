import pathlib

import pytest

import chart


def name(value: object) -> str | None:
    return value.stem if isinstance(value, pathlib.Path) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`release` is every values file in helm/palang/ci, rendered; `values` is its path."""
    for wanted in ("release", "values"):
        if wanted in metafunc.fixturenames:
            metafunc.parametrize(wanted, chart.CASES, ids=name, indirect=wanted == "release")


@pytest.fixture
def release(request: pytest.FixtureRequest) -> chart.Release:
    return chart.render(request.param)
