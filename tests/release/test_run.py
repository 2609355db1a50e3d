"""What a release does where the system or one step fails; no test here runs llama.cpp."""

from __future__ import annotations

import copy
import json
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import ggufkit as library
from ggufkit.errors import OutputError
from ggufkit.output import resume
from ggufkit.release import journal, run
from ggufkit.release.rung_steps import RungSteps
from ggufkit.system.mapped_file import MappedFile
from shell import done, ggufkit

COMMAND = ("release", "in.gguf", "-o", "out", "--config", "release.toml", "--threads", "1")


@pytest.fixture(autouse=True)
def work(tmp_path, monkeypatch):
    """Make a model of a few tensors, which llama.cpp could not run, in the current folder."""
    monkeypatch.chdir(tmp_path)
    tensors = {f"blk.{i}.ffn_up.weight": np.ones((4, 64), np.float32) for i in range(3)}
    words = {"tokenizer.ggml.tokens": [f"word {i}" for i in range(8)]}
    library.save("in.gguf", tensors, {"general.architecture": "llama", **words})
    Path("release.toml").write_text('rungs = ["Q8_0", "F16"]\nrun = false\n')


REFUSALS = {  # settings, options, and what the error says
    "rungs twice": ('rungs = ["Q8_0", "q8_0"]', (), "two rungs have the same name"),
    "no rungs": ("rungs = []", (), "there are no rungs"),
    "unknown rung": ('rungs = ["Q9_9"]', (), "unknown recipe 'Q9_9'"),
    "name with a folder": ('name = "a/b"', (), "'a/b' is not the name of a file"),
    "no size of a shard": ("shard_bytes = 0", (), "a shard size of 0"),
    "short chunk": ("context = 1", (), "numbers of tokens and chunks are too small"),
    "negative count": ("text_chunks = -1", (), "numbers of tokens and chunks are too small"),
    "short text": ("", ("--calibration", "short.txt"), "short.txt: this text is shorter than"),
    "short other text": ("", ("--text", "short.txt"), "short.txt: this text is shorter than"),
    "damaged data": ('imatrix = ["damaged.gguf"]', (), "damaged.gguf: "),
    "absent data": ('imatrix = ["absent.gguf"]', (), "absent.gguf: No such file"),
    "wrong template": ("", ("--card", "wrong.jinja"), "the template of the card fails"),
    "file as the folder": ("", ("-o", "in.gguf"), "in.gguf is a file"),
    "limit below a rung": ("", ("--disk", "1k", "--upload", "./public"), "the limit leaves 0"),
    "no token": ("", ("--upload", "me/model"), "the Hub needs your token"),
    "foreign files": ("", ("--upload", "./theirs"), "theirs has other files called in-Q8_0.gguf"),
    "text for both": ("", ("--text", "long.txt", "--calibration", "long.txt"), "Use two texts"),
    "colon in the name": ('name = "a:b"', (), "'a:b' is not the name of a file"),
    "absent draft": ('drafts = ["absent.gguf"]', (), "absent.gguf: No such file"),
    "draft of other tokens": ('drafts = ["tokens.gguf"]', (), "its tokens are other ones"),
    "adapter as a draft": ('drafts = ["fit.gguf"]', (), "fit.gguf is not a model"),
    "layers of a GGUF file": ('drafts = ["mtp"]', (), "mtp can only be converted together with"),
    "absent adapter": ('adapters = ["absent"]', (), "absent: No such file"),
    "adapter of a GGUF file": ('adapters = ["style"]', (), "style can only be converted together"),
    "model as an adapter": ('adapters = ["in.gguf"]', (), "in.gguf is not a LoRA adapter"),
    "foreign adapter": ('adapters = ["other.gguf"]', (), "the adapter does not fit the model"),
    "adapters of one name": ('adapters = ["fit.gguf", "a/fit.gguf"]', (), "have the same name"),
    "foreign adapter there": ('adapters = ["fit.gguf"]', ("--upload", "./theirs"), "lora-fit.gguf"),
    "one name for two": ("", ("--text", "long.txt", "--text", "a/long.txt"), "the same name"),
}


def save_sidecars():
    """Write a draft model, an adapter, and such that do not fit the model."""
    words = {"tokenizer.ggml.tokens": [f"token {i}" for i in range(8)]}
    model = {"blk.0.ffn_up.weight": np.ones((4, 64), np.float32)}
    library.save("tokens.gguf", model, {"general.architecture": "llama", **words})
    keys = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora"}
    for name, rows in {"fit.gguf": 4, "a/fit.gguf": 4, "other.gguf": 5}.items():
        factors = {
            "blk.0.ffn_up.weight.lora_a": np.ones((2, 64), np.float32),
            "blk.0.ffn_up.weight.lora_b": np.ones((rows, 2), np.float32),
        }
        library.save(name, factors, {**keys, "adapter.lora.alpha": np.float32(2)})
    Path("style").mkdir()


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_work_is_refused_before_anything_is_made(case, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_HOME", "home")
    Path("short.txt").write_text("abc")
    Path("damaged.gguf").write_bytes(b"GGUF")
    Path("wrong.jinja").write_text("{% if %}")
    for folder in ("a", "theirs"):
        Path(folder).mkdir()
    for text in ("long.txt", "a/long.txt"):
        Path(text).write_text("abc " * 1000)
    for name in ("in-Q8_0.gguf", "lora-fit.gguf"):
        Path("theirs", name).write_bytes(b"theirs")
    save_sidecars()
    settings, options, message = REFUSALS[case]
    rungs = "" if "rungs" in settings else 'rungs = ["Q8_0"]\n'
    Path("release.toml").write_text(f"{rungs}run = false\n{settings}\n")
    result = ggufkit(*COMMAND, *options)
    assert result.code == 1, result.err
    assert message in result.err
    assert "Traceback" not in result.err
    assert not Path("out/release.json").exists()  # no step was done


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_model_of_which_no_rung_can_be_made_is_refused(words):
    done("quantize", "in.gguf", "small.gguf", "Q8_0")
    Path("release.toml").write_text('rungs = ["Q4_0"]\nrun = false\n')
    result = ggufkit("release", "small.gguf", *COMMAND[2:], *words)
    assert result.code == 1
    assert "no rung can be made; Q4_0: " in result.err
    assert "start from a checkpoint or a file in F32" in result.err
    assert not Path("out/release.json").exists()


def test_disk_that_is_too_small_is_told_before_anything_is_made(monkeypatch):
    free = SimpleNamespace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    result = ggufkit(*COMMAND)
    assert result.code == 1
    assert "100 bytes free" in result.err
    assert not Path("out/release.json").exists()
    assert "missing: " in (plan := done(*COMMAND, "--dry-run").err)
    assert "100 bytes free" in plan


def test_missing_texts_and_licence_are_told_at_the_start():
    result = done(*COMMAND, "--json")
    notes = [line["text"] for line in map(json.loads, result.lines) if line["state"] == "note"]
    assert [text.partition(":")[0] for text in notes] == ["missing"] * 4
    assert any("licence" in text for text in notes)


def test_card_has_one_unit_for_sizes_and_its_commands_make_the_files():
    Path("mine.toml").write_text('base = "Q8_0"\n[types]\n"blk.1.*" = "Q5_1"\n')
    Path("release.toml").write_text('rungs = ["mine.toml", "Q8_0"]\nrun = false\n')
    done(*COMMAND)
    card = Path("out/README.md").read_text()
    assert "| in-mine.gguf | mine.toml |" in card
    assert {line.split(" | ")[2].split()[1] for line in card.splitlines() if ".gguf |" in line} == {
        "GB"
    }
    command = next(line for line in card.splitlines() if line.startswith("- `ggufkit quantize"))
    done(*shlex.split(command.strip("-` "))[1:])
    for name in ("in-mine.gguf", "in-Q8_0.gguf"):
        assert Path(name).read_bytes() == Path("out", name).read_bytes()


def test_card_of_a_journal_with_other_facts_is_refused():
    done(*COMMAND)
    whole = json.loads(Path("out/release.json").read_text())
    facts = [(step, key) for step, row in whole["steps"].items() for key in row["facts"]]
    assert ("set", "sidecars") in facts
    refused = []
    for step, key in facts:
        for value in (None, [{}]):
            spoiled = copy.deepcopy(whole)
            spoiled["steps"][step]["facts"][key] = value
            Path("out/release.json").write_text(json.dumps(spoiled))
            result = ggufkit("card", "out")
            assert "Traceback" not in result.err
            assert result.code == 0 or "Run `ggufkit release` again" in result.err, (step, key)
            refused += [key] * result.code
    assert {"texts", "rungs", "sidecars", "nbytes"} <= {*refused}


def test_all_rungs_are_made_from_one_read_of_the_source(monkeypatch):
    Path("release.toml").write_text('rungs = ["Q8_0", "Q4_0", "Q5_1", "F16"]\nrun = false\n')
    read, make, spans = MappedFile.read, RungSteps.make, []

    def counting(file, offset, nbytes):
        if file.path.name == "in.gguf":
            spans.append((offset, nbytes))
        return read(file, offset, nbytes)

    def making(steps, *arguments):
        with monkeypatch.context() as patch:
            patch.setattr(MappedFile, "read", counting)
            make(steps, *arguments)

    monkeypatch.setattr(RungSteps, "make", making)
    done(*COMMAND)
    with library.open("in.gguf") as model:
        data = sorted(tensor.source[1:3] for tensor in model.tensors.values())
    assert sorted(span for span in spans if span[0]) == data  # the head tells whether it changed


def failing(*_):
    raise OSError(28, "No space left on device")


def hidden_files():
    return [path.name for path in Path("out").iterdir() if path.name.startswith(".")]


def test_what_the_writer_could_not_remove_is_removed_at_the_end(monkeypatch):
    monkeypatch.setattr(resume.ResumeJournal, "remove", resume.ResumeJournal.close)
    done(*COMMAND)
    assert hidden_files() == []


@pytest.mark.parametrize("function", [(run, "remove_leftover"), (run, "sweep"), (shutil, "rmtree")])
def test_leftovers_that_stayed_are_removed_by_the_next_run(function, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(*function, failing)
        patch.setattr(resume.ResumeJournal, "remove", resume.ResumeJournal.close)
        assert "hidden files stay in out: No space left on device" in done(*COMMAND).err
    Path("out/.in-F16.gguf.ggufkit-part").write_bytes(b"")
    done(*COMMAND)
    assert hidden_files() == []


def test_journal_that_cannot_be_written_is_no_problem_of_one_file(monkeypatch):
    write_whole = journal.write_whole

    def full(path, content):
        if b'"check Q8_0"' in content:
            raise OutputError(f"writing {path}: No space left on device")
        write_whole(path, content)

    monkeypatch.setattr(journal, "write_whole", full)
    result = ggufkit(*COMMAND)
    assert result.code == 1
    assert "error: writing out/release.json: No space left on device" in result.err
    assert "check Q8_0 failed" not in result.err
