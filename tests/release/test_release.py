"""A release of tiny models: what it makes, what it says, and that a stopped one continues."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import ggufkit as library
import measured_llama
import real  # noqa: F401 (marks these tests: they run llama.cpp)
from ggufkit import _toml
from hub_uploads import DROPPED, TOKEN, UploadHub
from shell import done, ggufkit, process

huggingface_hub = pytest.importorskip("huggingface_hub")

# huggingface_hub says so to its own library for HTTP.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
SETTINGS = """
rungs = ["Q8_0", "Q4_0", "Q4_K_M", "IQ2_XS", "5.5bpw"]
calibration = "calibration.txt"
texts = ["held-out.txt"]
context = 32
license = "mit"
base_model = "someone/tiny"
languages = ["en"]
"""
RUNGS = ("Q8_0", "Q4_0", "Q4_K_M", "IQ2_XS", "5.5bpw")
COMMAND = ("release", "tiny-F32.gguf", "-o", "out", "--config", "release.toml", "--threads", "1")


def letters(path: Path, count: int, seed: int) -> None:
    path.write_text("".join(np.random.default_rng(seed).choice(list("abc"), count)))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    measured_llama.save(folder / "tiny-F32.gguf")
    letters(folder / "calibration.txt", 3000, 4)
    letters(folder / "held-out.txt", 1500, 9)
    (folder / "release.toml").write_text(SETTINGS)
    return folder


@pytest.fixture
def work(inputs, tmp_path, monkeypatch):
    """Return a copy of the inputs, which is the current folder."""
    shutil.copytree(inputs, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture(scope="module")
def released(inputs, tmp_path_factory):
    """Return the folder of an undisturbed release."""
    folder = tmp_path_factory.mktemp("released")
    shutil.copytree(inputs, folder, dirs_exist_ok=True)
    finish(folder)
    return folder / "out"


def finish(folder: Path) -> None:
    with process(*COMMAND, cwd=folder) as run:
        _, err = run.communicate()
    assert run.returncode == 0, err.decode()


def digests(folder: Path) -> dict[str, str]:
    """Return the digests of all files but the log, whose lines tell of each run."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "release.log"
    }


def test_release_makes_all_files_and_their_checksums(released):
    names = {path.name for path in released.iterdir()}
    assert {f"tiny-{rung}.gguf" for rung in RUNGS} <= names
    assert {"README.md", "quality.svg", "quality-held-out.json", "tiny.imatrix.gguf"} <= names
    assert not {name for name in names if name.startswith(".")}
    sums = dict(
        reversed(line.split("  ")) for line in (released / "SHA256SUMS").read_text().splitlines()
    )
    assert sums == {name: digest for name, digest in digests(released).items() if name in sums}
    assert {name for name in names if name.endswith(".gguf")} == set(sums)


def test_rungs_are_those_of_quantize_and_reproduce_proves_them(released, inputs, work):
    done(
        *("quantize", "tiny-F32.gguf", "own.gguf", "IQ2_XS", "--provenance"),
        *("--imatrix", released / "tiny.imatrix.gguf"),
    )
    with library.open("own.gguf") as mine, library.open(released / "tiny-IQ2_XS.gguf") as theirs:
        for name, tensor in mine.tensors.items():
            assert np.array_equal(tensor.raw(), theirs.tensors[name].raw()), name
        assert theirs.metadata["quantize.imatrix.file"] == "tiny.imatrix.gguf"
        assert theirs.metadata["quantize.imatrix.dataset"] == "calibration.txt"
    done(
        *("reproduce", released / "tiny-IQ2_XS.gguf", "--source", inputs / "tiny-F32.gguf"),
        *("--imatrix", released / "tiny.imatrix.gguf"),
    )


def test_importance_data_are_those_of_one_run_over_the_text(released, inputs):
    matrix = library.Imatrix.open(released / "tiny.imatrix.gguf")
    whole = library.compute_imatrix(
        inputs / "tiny-F32.gguf", inputs / "calibration.txt", context=32, threads=1
    )
    assert matrix.chunk_count == whole.chunk_count
    for name, entry in whole.entries.items():
        np.testing.assert_allclose(
            matrix.entries[name].sums, entry.sums, rtol=1e-4
        )  # in another order
        assert np.array_equal(matrix.entries[name].counts, entry.counts)


def test_card_is_valid_for_the_hub_and_says_what_eval_says(released, inputs):
    text = (released / "README.md").read_text()
    data = huggingface_hub.ModelCard(text).data.to_dict()
    assert data["base_model"] == "someone/tiny"
    assert data["base_model_relation"] == "quantized"
    assert (data["license"], data["language"]) == ("mit", ["en"])
    assert {"gguf", "quantized", "llama"} <= set(data["tags"])
    assert "quantize tiny-F32.gguf . Q8_0,Q4_0,Q4_K_M,IQ2_XS --imatrix" in text
    assert "quantize tiny-F32.gguf tiny-5.5bpw.gguf --target-bpw 5.5 --imatrix" in text
    assert str(inputs.parent) not in text
    assert str(released.parent) not in (released / "release.json").read_text()
    measured = done(
        *("eval", released / "tiny-Q4_0.gguf", "--base", inputs / "tiny-F32.gguf", "--json"),
        *("--text", inputs / "held-out.txt", "--context", "32", "--chunks", "40", "--threads", "1"),
    ).json()
    kld = measured["models"][0]["divergence"]["kld"]
    row = next(line for line in text.splitlines() if line.startswith("| tiny-Q4\\_0.gguf"))
    assert f"{kld['mean']['value']:.6f} ± {kld['mean']['error']:.6f}" in row
    assert f"{kld['percentiles']['99.9']:.6f}" in row
    assert f"| {(released / 'tiny-Q4_0.gguf').stat().st_size / 1e9:.3g} GB |" in row
    own = json.loads((released / "quality-held-out.json").read_text())
    assert [m["name"] for m in own["models"]] == [f"tiny-{rung}.gguf" for rung in RUNGS]
    assert own["models"][1]["divergence"] == measured["models"][0]["divergence"]


def test_chart_is_an_image_that_stands_alone(released):
    root = ET.fromstring((released / "quality.svg").read_text())  # noqa: S314 (ours)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(root.findall("{http://www.w3.org/2000/svg}circle")) == len(RUNGS)


def test_report_reads_the_figures(released, work):
    done(
        "report",
        released / "tiny-Q8_0.gguf",
        "-o",
        "page.md",
        "--eval",
        released / "quality-held-out.json",
    )
    assert "tiny-Q4" in Path("page.md").read_text()


def test_card_is_made_again_and_by_a_template(released, work):
    shutil.copytree(released, "out")
    before = digests(Path("out"))
    Path("out/README.md").unlink()
    done("card", "out")
    assert digests(Path("out")) == before
    Path("mine.jinja").write_text(
        "{{ front_matter }}{% for file in files %}{{ file.name }};{% endfor %}"
    )
    done("card", "out", "--template", "mine.jinja")
    assert Path("out/README.md").read_text().endswith("Q8_0;Q4_0;Q4_K_M;IQ2_XS;5.5bpw;")
    Path("mine.jinja").write_text("{{ absent }}")
    result = ggufkit("card", "out", "--template", "mine.jinja")
    assert result.code == 1
    assert "'absent' is undefined" in result.err


def test_second_run_does_nothing(released, work):
    shutil.copytree(released, "out")
    result = done(*COMMAND, "--json")
    states = {(line["step"], line["state"]) for line in map(json.loads, result.lines)}
    assert {state for step, state in states if step != "card"} == {"skipped"}
    assert digests(Path("out")) == digests(released)


def test_change_of_a_setting_makes_only_what_depends_on_it(released, work):
    shutil.copytree(released, "out")
    Path("release.toml").write_text(SETTINGS.replace('"Q8_0", ', '"Q8_0", "Q5_0", '))
    lines = [json.loads(line) for line in done(*COMMAND, "--json").lines]
    begun = {line["step"] for line in lines if line["state"] == "begun"}
    steps = {f"{act} Q5_0" for act in ("quantize", "check", "run")}
    assert begun == steps | {"base on held-out.txt", "measure Q5_0 on held-out.txt"}


def test_journal_that_cannot_be_written_after_the_base_is_no_problem_of_one_file(
    released, work, monkeypatch
):
    from ggufkit.errors import OutputError
    from ggufkit.release import journal

    shutil.copytree(released, "out")
    Path("release.toml").write_text(SETTINGS.replace('"Q8_0", ', '"Q8_0", "Q5_0", '))
    write_whole, name = journal.write_whole, "base on held-out.txt"

    def full(path, content):
        if name in json.loads(content)["steps"]:
            raise OutputError(f"writing {path}: No space left on device")
        write_whole(path, content)

    read = journal.Journal(Path("out"))
    del read.steps[name]
    read.publish({})
    read.close()
    monkeypatch.setattr(journal, "write_whole", full)
    result = ggufkit(*COMMAND)
    assert result.code == 1
    assert "error: writing out/release.json: No space left on device" in result.err
    assert "measure Q5_0" not in result.err


def kill_at(folder: Path, seconds: float) -> int:
    with process(*COMMAND, cwd=folder) as run:
        try:
            run.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            run.kill()
            run.communicate()
    return run.returncode


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.exhaustive)])
def test_killed_runs_continue_and_give_the_same_files(released, work, kills):
    delays, ends = random.Random(kills), []
    for number in range(kills):
        if 0 in ends[-1:]:  # it was quicker; the next one begins anew
            shutil.rmtree(work / "out")
        ends.append(kill_at(work, delays.uniform(0.5, 4) if number else 0.5))
    assert -signal.SIGKILL in ends
    finish(work)
    assert digests(work / "out") == digests(released)


HESSIAN = """
rungs = ["Q4_0"]
calibration = "calibration.txt"
hessian = true
context = 32
run = false
"""


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_killed_runs_continue_with_a_hessian_too(work, kills):
    letters(Path("calibration.txt"), 60_000, 4)
    Path("release.toml").write_text(HESSIAN)
    shutil.copytree(work, "alone")
    finish(Path("alone"))
    with process(*COMMAND, cwd=work) as run:
        while not (checkpoints := [*Path("out").glob(".release/.*-resume")]) and run.poll() is None:
            time.sleep(0.01)
        run.kill()
        run.communicate()
    assert checkpoints
    moments = random.Random(kills)
    for _ in range(kills):
        kill_at(work, moments.uniform(0.8, 2))
    for _ in range(2):  # the second run reads the journal of a finished release
        finish(work)
        assert digests(Path("out")) == digests(Path("alone/out"))
    assert "hessian" not in Path("out/SHA256SUMS").read_text()


def test_second_run_in_the_same_folder_is_refused(work):
    from ggufkit.release.journal import Journal

    journal = Journal(work / "out")
    result = ggufkit(*COMMAND)
    journal.close()
    assert result.code == 1
    assert "being written by another" in result.err


def test_file_that_llama_cpp_refuses_is_left_out_and_the_others_are_made(work, monkeypatch):
    from ggufkit.errors import GGUFError
    from ggufkit.release import trial

    runs = trial.require_runs

    def refusing(path, threads):
        if "Q4_0" in path.name:
            raise GGUFError("llama.cpp cannot run it: a fault")
        runs(path, threads)

    monkeypatch.setattr(trial, "require_runs", refusing)
    result = ggufkit(*COMMAND, "--upload", "./public")
    assert result.code == 1
    assert "run Q4_0: llama.cpp cannot run it: a fault" in result.err
    assert "Q4\\_0" not in Path("out/README.md").read_text()
    assert not Path("public/tiny-Q4_0.gguf").exists()
    assert Path("public/tiny-Q8_0.gguf").exists()


def test_llama_cpp_is_tried_in_a_process_of_its_own(work):
    from ggufkit.errors import GGUFError
    from ggufkit.release.trial import require_runs

    Path("numpy.py").write_text("raise SystemExit('a module of this folder was imported')")
    require_runs(Path("tiny-F32.gguf"), 1)
    Path("broken.gguf").write_bytes(Path("tiny-F32.gguf").read_bytes()[:5000])
    with pytest.raises(GGUFError, match=r"cannot run broken\.gguf"):
        require_runs(Path("broken.gguf"), 1)


# Disk and upload.


LIMIT = 350_000


def test_disk_limit_is_kept_and_rungs_are_removed_once_published(released, work, monkeypatch):
    from ggufkit.release.refusals import bytes_in

    sizes = []

    def measuring(call):
        def measured(*arguments, **options):
            sizes.append(bytes_in(Path("out")))
            return call(*arguments, **options)

        return measured

    with monkeypatch.context() as patch:  # files grow only between these calls
        for name in ("fsync", "replace", "unlink"):
            patch.setattr(os, name, measuring(getattr(os, name)))
        done(*COMMAND, "--upload", "./public", "--disk", str(LIMIT))
    assert 250_000 < max(sizes) <= LIMIT
    assert not list(Path("out").glob("tiny-*.gguf"))
    for rung in RUNGS:
        name = f"tiny-{rung}.gguf"
        assert Path("public", name).read_bytes() == (released / name).read_bytes()
    again = [
        json.loads(line)
        for line in done(*COMMAND, "--upload", "./public", "--disk", str(LIMIT), "--json").lines
    ]
    assert not [line for line in again if line["state"] == "begun"]
    result = ggufkit(*COMMAND, "--upload", "./public", "--disk", "20000")
    assert result.code == 1
    assert "the limit leaves" in result.err


@pytest.fixture
def small_disk(work):
    """Make the folder of the release a file system of 90 pages; skip where that is denied."""
    Path("out").mkdir()
    words = ("mount", "-t", "tmpfs", "-o", f"size={90 * 4096}", "tmpfs", "out")
    if not shutil.which("mount") or subprocess.run(words, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    yield Path("out")
    subprocess.run(["umount", "out"], check=True)


def test_release_that_fills_a_disk_continues_with_a_limit(released, small_disk):
    result = ggufkit(*COMMAND)
    assert result.code == 1
    assert "No space left on device" in result.err
    assert "Traceback" not in result.err
    for path in small_disk.glob("*.gguf"):
        assert path.read_bytes() == (released / path.name).read_bytes()
        path.unlink()
    done(*COMMAND, "--upload", "./public", "--disk", str(300_000))
    for rung in RUNGS:
        name = f"tiny-{rung}.gguf"
        assert Path("public", name).read_bytes() == (released / name).read_bytes()


def test_upload_goes_to_the_hub_private_and_without_the_token_elsewhere(
    released, work, monkeypatch
):
    shutil.copytree(released, "out")
    with UploadHub() as hub:
        hub.at_home(monkeypatch, work)
        result = done(*COMMAND, "--upload", "me/tiny-GGUF")
        files = hub.repos["me/tiny-GGUF"]
        assert hub.visibility["me/tiny-GGUF"] == "private"
        assert hub.counts["complete"] >= 1  # a file in parts
        for rung in RUNGS:
            name = f"tiny-{rung}.gguf"
            assert files[name] == (released / name).read_bytes()
        assert "llama-cli -hf me/tiny-GGUF:Q4_K_M" in files["README.md"].decode()
        written = b"".join(path.read_bytes() for path in work.rglob("*") if path.is_file())
        assert TOKEN not in result.out + result.err
        assert TOKEN.encode() not in written
        commits = len(hub.commits)
        done(*COMMAND, "--upload", "me/tiny-GGUF")
        assert len(hub.commits) == commits  # there was nothing new


def test_upload_that_fails_half_way_goes_on(released, work, monkeypatch):
    from ggufkit.release import publish

    shutil.copytree(released, "out")
    monkeypatch.setattr(publish, "TRIES", 1)
    with UploadHub(part_bytes=20_000) as hub:
        hub.at_home(monkeypatch, work)
        hub.faults = [("/commit/", 500)]
        failing = ggufkit(*COMMAND, "--upload", "me/tiny-GGUF")
        assert failing.code == 1
        assert "uploading to me/tiny-GGUF failed" in failing.err
        assert "Run again" in failing.err
        assert TOKEN not in failing.err
        parts = hub.counts["part"]
        done(*COMMAND, "--upload", "me/tiny-GGUF")
        assert hub.counts["part"] - parts <= 1  # the importance matrix; no rung comes again
        assert len(hub.repos["me/tiny-GGUF"]) >= len(RUNGS) + 4


def test_faults_of_the_server_are_tried_again(released, work, monkeypatch):
    from ggufkit.release import publish

    shutil.copytree(released, "out")
    monkeypatch.setattr(publish, "pause", lambda _seconds: None)
    with UploadHub() as hub:
        hub.at_home(monkeypatch, work)
        hub.faults = [("/commit/", 503), ("/preupload/", DROPPED), ("/lfs/", 500), ("/tree/", 503)]
        done(*COMMAND, "--upload", "me/tiny-GGUF", "--public")
        assert hub.faults == []
        assert hub.visibility["me/tiny-GGUF"] == "public"
        assert "tiny-Q8_0.gguf" in hub.repos["me/tiny-GGUF"]


def test_published_files_are_replaced_only_if_asked(work, monkeypatch):
    settings = SETTINGS.replace(', "Q4_K_M", "IQ2_XS", "5.5bpw"', "").partition("texts")[0]
    Path("release.toml").write_text(f"{settings}run = false\ncontext = 32")
    with UploadHub() as hub:
        hub.at_home(monkeypatch, work)
        hub.repos["me/other"] = {"tiny-Q4_0.gguf": b"theirs"}
        result = ggufkit(*COMMAND, "--upload", "me/other")
        assert result.code == 1
        assert "other files called tiny-Q4_0.gguf" in result.err
        assert "--replace" in result.err
        assert hub.repos["me/other"] == {"tiny-Q4_0.gguf": b"theirs"}
        assert not list(Path("out").glob("*.gguf"))  # said before long work
        done(*COMMAND, "--upload", "me/other", "--replace")
        assert hub.repos["me/other"]["tiny-Q4_0.gguf"] == Path("out/tiny-Q4_0.gguf").read_bytes()
        hub.repos["me/other"]["README.md"] = b"changed by hand"
        assert "called README.md" in ggufkit(*COMMAND, "--upload", "me/other").err


def test_wrong_and_missing_tokens_are_told_before_long_work(work, monkeypatch):
    with UploadHub() as hub:
        hub.at_home(monkeypatch, work, token="hf_wrong")  # noqa: S106
        result = ggufkit(*COMMAND, "--upload", "me/tiny-GGUF")
        assert result.code == 1
        assert "hf_wrong" not in result.err
        assert not list(Path("out").glob("tiny-*.gguf"))
        monkeypatch.delenv("HF_TOKEN")
        result = ggufkit(*COMMAND, "--upload", "me/tiny-GGUF")
        assert "the Hub needs your token" in result.err


# What is said before.


def test_dry_run_shows_the_sizes_of_the_files_and_writes_nothing(released, work):
    before = digests(work)
    document = done(*COMMAND, "--dry-run", "--json").json()
    assert digests(work) == before
    assert [file["recipe"] for file in document["files"]] == list(RUNGS)
    assert any(text.startswith("Q4_K_M: only 1 of 15 tensors") for text in document["doubts"])
    for file in document["files"]:
        nbytes = (released / file["file"]).stat().st_size
        assert abs(file["nbytes"] - nbytes) < 3000  # keys about importance data, and Q4_1
    assert document["disk"] == sum(file["nbytes"] for file in document["files"])
    assert {step["step"] for step in document["steps"]} >= {"importance data", "quantize 5 files"}
    assert all(step["seconds"] >= 0 for step in document["steps"])


def test_without_texts_rungs_that_need_importance_data_are_left_out(work):
    wide = {"blk.0.ffn_up.weight": np.ones((4, 256), np.float32)}
    library.save("wide.gguf", wide, {"general.architecture": "llama"})
    Path("release.toml").write_text("run = false")  # it is not a whole model
    words = ("release", "wide.gguf", "-o", "out", "--rungs", "Q8_0,IQ2_XS", "--threads", "1")
    words += ("--config", "release.toml")
    document = done(*words, "--dry-run", "--json").json()
    assert [text.partition(":")[0] for text in document["left_out"]] == ["IQ2_XS"]
    assert {text.partition(":")[0] for text in document["missing"]} == {
        "a text for importance data",
        "a text to measure quality on",
        "the licence of the original",
        "the original on the Hub",
    }
    assert "IQ2_XS is left out" in done(*words).err
    assert Path("out/wide-Q8_0.gguf").exists()
    assert "KLD" not in Path("out/README.md").read_text()


def test_settings_have_every_key_and_wrong_ones_are_named(work):
    Path("release.toml").unlink()
    done("release", "init")
    lines = Path("release.toml").read_text().splitlines()
    assert _toml.loads("\n".join(line.removeprefix("# ") for line in lines if " = " in line))
    assert "exists already" in ggufkit("release", "init").err
    for text, message in {
        "rung = []": "Did you mean rungs?",
        "rungs = 3": "has the wrong type",
        'rungs = ["3.2XiB"]': "is not a size",
        "x = ": "this is not TOML",
    }.items():
        Path("release.toml").write_text(text)
        result = ggufkit(*COMMAND)
        assert result.code == 1
        assert message in result.err


def test_texts_that_cannot_work_are_refused(work):
    same = ggufkit(*COMMAND, "--text", "calibration.txt")
    assert "is for calibration and for measuring quality" in same.err
    Path("calibration.txt").write_text("")
    assert "calibration.txt: this text is shorter than a chunk" in ggufkit(*COMMAND).err
    Path("release.toml").write_text(SETTINGS.replace("context = 32", "context = 1600"))
    Path("calibration.txt").write_text("abc" * 1000)
    Path("held-out.txt").write_text("\N{GRINNING FACE}" * 400)  # few tokens, and many bytes
    result = ggufkit(*COMMAND)
    assert result.code == 1
    assert "a chunk needs 1600" in result.err
    assert not Path("out/tiny.imatrix.gguf").exists()


def test_list_of_models_goes_on_after_a_bad_one(work):
    Path("list.txt").write_text("absent.gguf\n# a comment\ntiny-F32.gguf\n")
    words = ("--watch", "list.txt", "-o", "all", "--rungs", "Q8_0", "--threads", "1")
    result = ggufkit("release", *words)
    assert result.code == 1
    assert Path("all/tiny/tiny-Q8_0.gguf").exists()
    assert "absent.gguf" in Path("all/problems.md").read_text()
