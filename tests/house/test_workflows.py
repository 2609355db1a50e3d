"""The workflows run targets of the Makefile, with pinned actions and the least permissions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
by_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def jobs(path):
    return yaml.safe_load(path.read_text("utf-8"))["jobs"]


@by_workflow
def test_actions_are_pinned_by_digest_with_their_version(path):
    used = re.findall(r"uses: (.+)$", path.read_text("utf-8"), flags=re.MULTILINE)
    pinned = re.compile(
        r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|\./\.github/workflows/\w+\.yml"
    )
    assert [action for action in used if not pinned.fullmatch(action)] == []


@by_workflow
def test_workflow_may_only_read(path):
    assert yaml.safe_load(path.read_text("utf-8"))["permissions"] == {"contents": "read"}
    more = {name: job["permissions"] for name, job in jobs(path).items() if "permissions" in job}
    assert more == ({"publish": {"id-token": "write"}} if path.stem == "release" else {})


def test_other_jobs_wait_for_the_fast_checks():
    others = dict(jobs(ROOT / ".github/workflows/ci.yml"))
    assert [step["run"] for step in others.pop("check")["steps"] if "run" in step] == ["make check"]
    assert {job["needs"] for job in others.values()} == {"check"}


def test_jobs_run_every_target_of_the_script():
    script = re.findall(
        r"^make ([a-z-]+)(?: &)?$", (ROOT / ".ci/run").read_text(), flags=re.MULTILINE
    )
    ci = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
    targets = set(re.findall(r"(?:make |target: )([a-z-]+)", ci))
    assert set(script) - targets == {"wheel"}, "wheels.yml builds the wheels"
    assert targets <= TARGETS


def test_contributing_explains_each_target_that_tests():
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    tests = {name for name in TARGETS if name.startswith("test")} | {"check", "lint", "wheel"}
    assert {name for name in tests if f"make {name}" not in page} == set()
