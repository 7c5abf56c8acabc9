"""The alerts, the dashboard and the runbook: by Prometheus's own tools, and against the metrics that there are."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.prometheus import program

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "infra/observability"
RULES = [rule for group in yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"] for rule in group["rules"]]
TESTS = yaml.safe_load((FOLDER / "rules_test.yml").read_text())["tests"]
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
RUNBOOK = (ROOT / "docs/operations.md").read_text("utf-8")
DOCUMENTED = set(re.findall(r"`(streams_\w+)", (ROOT / "docs/metrics.md").read_text("utf-8")))
ALERTS = [rule["alert"] for rule in RULES]


def promtool(*arguments: str) -> None:
    done = subprocess.run([program("promtool"), *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    """Each query, and where it stands."""
    yield from ((rule["alert"], rule["expr"]) for rule in RULES)
    yield from ((panel["title"], target["expr"]) for panel in panels() for target in panel["targets"])
    yield from ((each["name"], each["query"]) for each in DASHBOARD["templating"]["list"] if each["type"] == "query")


def section(alert: str) -> str:
    """What the runbook says of an alert; empty if nothing."""
    found = re.search(rf"^## {alert}\n(.*?)(?=^## |\Z)", RUNBOOK, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


# ------------------------------------------------------------------------------------------------------- promtool


def test_promtool_takes_the_example_and_its_rules() -> None:
    promtool("check", "config", "prometheus.yml")


def test_every_alert_fires_when_it_must_and_not_when_it_must_not() -> None:
    promtool("test", "rules", "rules_test.yml")


@pytest.mark.parametrize("alert", ALERTS)
def test_both_are_tested(alert: str) -> None:
    expected = [
        each.get("exp_alerts", []) for test in TESTS for each in test["alert_rule_test"] if each["alertname"] == alert
    ]
    assert [] in expected
    assert any(expected)


def test_a_rule_that_never_fires_would_be_noticed(tmp_path: Path) -> None:
    """That the tests can fail: each limit moved out of reach fails them."""
    text = (FOLDER / "rules.yml").read_text()
    (tmp_path / "rules_test.yml").write_text((FOLDER / "rules_test.yml").read_text())
    limits = re.findall(r"(?:[<>=]=?) [\d.]+$|(?:[<>=]=?) [\d.]+(?=  # promise| or )", text, re.MULTILINE)
    assert len(limits) >= len(ALERTS) - 1  # NothingMeasured has none
    for limit in set(limits):
        (tmp_path / "rules.yml").write_text(text.replace(limit, "== -7"))
        done = subprocess.run(
            [program("promtool"), "test", "rules", "rules_test.yml"], cwd=tmp_path, capture_output=True, check=False
        )
        assert done.returncode != 0, limit


# ---------------------------------------------------------------------------------------------------- the metrics


@pytest.mark.parametrize(("where", "query"), list(queries()))
def test_only_metrics_that_exist_are_queried(where: str, query: str) -> None:
    names = set(re.findall(r"\bstreams_\w+", query))
    assert names, where
    assert names <= DOCUMENTED


def test_the_dashboard_shows_every_part() -> None:
    shown = {name for _, query in queries() for name in re.findall(r"\bstreams_\w+", query)}
    # What a worker of the analytics says of itself is on its own page.
    own = {name for name in DOCUMENTED if name.startswith("streams_analytics_")}
    assert DOCUMENTED - own - shown == {"streams_relay_slot_active", "streams_relay_polled"}


def test_the_dashboard_is_one_that_grafana_can_lay_out() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["description"]
        assert [target["refId"] for target in panel["targets"]] == sorted({each["refId"] for each in panel["targets"]})


# ---------------------------------------------------------------------------------------------------- the runbook


@pytest.mark.parametrize("rule", RULES, ids=ALERTS)
def test_each_alert_has_its_section_and_links_to_it(rule: dict[str, Any]) -> None:
    path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert (ROOT / path).read_text("utf-8") == RUNBOOK
    assert anchor == rule["alert"].lower()  # as a heading of one word becomes an anchor
    text = section(rule["alert"])
    assert "| look |" in text or re.search(r"same look .* as for\s+\[", text)
    assert re.search(r"`streams [a-z]", text), "a command"
    assert rule["labels"]["severity"] in ("page", "ticket")


def test_no_section_is_of_no_alert() -> None:
    assert re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE) == [*ALERTS]


def test_links_within_the_runbook_lead_somewhere() -> None:
    assert set(re.findall(r"\]\(#(\w+)\)", RUNBOOK)) <= {alert.lower() for alert in ALERTS}
