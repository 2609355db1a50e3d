"""The tests pass without locks, leases, clones, hard links and copies in the kernel.

`tests/support/plain_system` takes these calls away from pytest and from each process that it
starts. Only tests of what such a call promises are left out; WITHOUT names them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAIN = ROOT / "tests/support/plain_system"
FAST = (
    "tests/output/test_write.py",
    "tests/edits/test_in_place.py",
    "tests/system/test_staging.py",
)
WHOLE = ("tests/edits", "tests/models", "tests/output", "tests/system")
# What is not promised without a call, and the tests of it.
WITHOUT = {
    "a lock: leftovers look like files that are being written": (
        "test_lock_is_seen_by_other_processes_and_ends_with_the_descriptor",
        "test_mode_comes_from_the_umask_and_not_from_a_leftover",
        "test_sweep_removes_only_leftovers_of_dead_processes",
        "test_writer_starts_again_if_its_new_file_was_swept",
        "test_writing_from_the_start_discards_kept_work",
        "test_running_job_cannot_be_resumed_by_another",
        "test_leftover_of_a_killed_writer_does_not_block_the_next",
        "test_killed_writer_leaves_no_output_and_its_leftover_is_removed",
        "test_leftover_does_not_count_as_used_space",
        "test_edit_waits_for_another_one_and_then_edits_what_that_left",
        "test_leftover_of_a_killed_copy_is_swept_by_the_next_edit",
        "test_next_run_removes_what_a_killed_run_left",
    ),
    "a hard link, or a rename that replaces nothing": (
        "hard link",
        "hard_link",
        "test_recognizes_the_same_file_under_any_name",
        "test_a_model_is_not_replaced_by_its_tensor",
        "test_refuses_a_name_that_appears_meanwhile_and_renames_nothing",
    ),
    "a copy in the kernel": ("test_source_is_read_once_for_all_outputs",),
    "a limit on memory or on open files, which the tests themselves set": (
        "test_memory_does_not_grow_with_the_model",
        "test_command_refuses_a_huge_file",
        "test_huge_pointers_in_caches_are_passed_over",
        "test_opens_a_set_of_more_shards_than_the_soft_limit_of_open_files",
    ),
    "Dask, which needs a limit on memory": ("test_cluster",),
}


def run_plainly(*arguments):
    """Run pytest without the calls, and return what it prints."""
    path = os.pathsep.join((str(PLAIN), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "tests", [FAST, pytest.param(WHOLE, marks=pytest.mark.exhaustive)], ids=["fast", "whole"]
)
def test_tests_pass_without_the_calls_of_one_system(tests):
    names = [f"({re.escape(name)})" for reason in WITHOUT.values() for name in reason]
    expression = " or ".join(
        name for reason in WITHOUT.values() for name in reason if " " not in name
    )
    code, text = run_plainly(
        *tests, "-m", "not real and not matrix and not exhaustive", "-k", f"not ({expression})"
    )
    failed = [line for line in text.splitlines() if line.startswith(("FAILED", "ERROR"))]
    unexpected = [line for line in failed if not re.search("|".join(names), line)]
    assert not unexpected, text[-4000:]
    assert code == bool(failed), text[-4000:]
    assert re.search(r"\d{2,} passed", text)


def test_the_calls_are_gone():
    code = (
        "import os; from ggufkit.system import descriptors, disk_blocks, hidden_files;"
        "print(descriptors.fcntl, descriptors.sync_file_range, disk_blocks.fcntl,"
        "hidden_files.renameat2, hasattr(os, 'copy_file_range'))"
    )
    path = os.pathsep.join((str(PLAIN), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert printed.stdout == "None None None None False\n"
