"""Programs written for gguf-py give the same on ggufkit: its own tests, and its scripts."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

import real

# gguf-py's own tests; `test_every_test_of_gguf_py_is_listed` holds the list.
PYTEST_FILES = ("test_gguf_reader_validation.py", "test_metadata.py")
SCRIPT_FILES = ("test_quants.py",)  # a program that compares with ggml, not for pytest
# Newer than the libggml that the tests have.
CHANGED_SINCE = {"IQ1_M"}


def run(*arguments: str, ours: bool = True, own_gguf: Path | None = None, text: str = "") -> str:
    """Run Python with `arguments`, on ggufkit or not, and return all that it prints."""
    front = ["-m", "ggufkit.compat"] if ours else []
    paths = [str(own_gguf)] if own_gguf else []
    paths += filter(None, [os.environ.get("PYTHONPATH")])
    environment = os.environ | {
        "NO_LOCAL_GGUF": "1",
        "TQDM_DISABLE": "1",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    done = subprocess.run(
        [sys.executable, *front, *arguments],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        env=environment,
        input=text,
    )
    return f"{done.stdout}\nexit code {done.returncode}"


@pytest.fixture(scope="session")
def gguf_py():
    return real.llama_cpp_source() / "gguf-py"


def test_every_test_of_gguf_py_is_listed(gguf_py):
    programs = {path.name for path in (gguf_py / "tests").glob("test_*.py")}
    assert programs == {*PYTEST_FILES, *SCRIPT_FILES}


@pytest.mark.parametrize("version", ["installed", "newest"])
def test_gguf_pys_own_tests_pass(gguf_py, tmp_path, version):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    files = [str(gguf_py / "tests" / name) for name in PYTEST_FILES]
    options = ["-q", "-p", "no:cacheprovider", "-c", str(tmp_path / "pytest.ini")]
    own = gguf_py if version == "newest" else None
    printed = run("-m", "pytest", *options, *files, own_gguf=own)
    assert "7 passed" in printed, printed
    assert "skipped" not in printed


def _quants(gguf_py: Path, *options: str) -> list[str]:
    library = Path(importlib.util.find_spec("libggml").origin).parent / "lib64" / "libggml-base.so"
    script = str(gguf_py / "tests" / SCRIPT_FILES[0])
    printed = run(script, "--libggml", str(library), "--quick", *options)
    assert "exit code 0" in printed, printed
    return [line for line in printed.splitlines() if "match" in line and "DEBUG" not in line]


@pytest.mark.parametrize("name", ["Q8_0", "Q4_K"])
def test_gguf_pys_test_of_types_finds_that_they_match_ggml(gguf_py, name):
    lines = _quants(gguf_py, "--type", name)
    assert len(lines) == 3
    assert all("matches exactly" in line for line in lines)


@pytest.mark.exhaustive
def test_gguf_pys_test_of_all_types_finds_that_they_match_ggml(gguf_py):
    lines = _quants(gguf_py)
    wrong = [line for line in lines if "matches exactly" not in line]
    assert {line.split(" to ")[1].split()[0] for line in wrong} <= CHANGED_SINCE
    assert len(lines) > 60


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """Return a small model with every kind of value, and types that all scripts can handle."""
    path = tmp_path_factory.mktemp("programs") / "model.gguf"
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("a name of some length that gguf-dump must cut at some point of its table")
    writer.add_block_count(2)
    writer.add_rope_freq_base(1e6)
    writer.add_bool("llama.flag", val=True)
    writer.add_key_value("llama.large", 2**60, gguf.GGUFValueType.UINT64)
    writer.add_array("llama.floats", [0.5, -1.5, 3.25])
    writer.add_token_list(["<s>", "a", "été", "b" * 70])
    writer.add_token_scores([0.0, -1.0, -2.0, -3.5])
    writer.add_chat_template("{{ messages }}")
    writer.add_bos_token_id(0)
    for name, kind in (("token_embd.weight", "Q8_0"), ("blk.0.attn_q.weight", "Q4_0")):
        type_ = gguf.GGMLQuantizationType[kind]
        array = rng.normal(size=(4, 64)).astype(np.float32)
        writer.add_tensor(name, gguf.quantize(array, type_), raw_dtype=type_)
    writer.add_tensor("output_norm.weight", np.ones(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


DUMPS = [
    ("gguf_dump", "MODEL"),
    ("gguf_dump", "--json", "--json-array", "MODEL"),
    ("gguf_dump", "--markdown", "MODEL"),
    ("gguf_hash", "MODEL"),
]
CHANGES = [
    ("gguf_set_metadata", "COPY", "llama.block_count", "7", "--force"),
    ("gguf_set_metadata", "COPY", "no.such.key", "7", "--force"),
    ("gguf_convert_endian", "COPY", "big"),
    (
        *("gguf_new_metadata", "--general-name", "new", "--special-token", "eos", "a"),
        *("--remove-metadata", "llama.floats", "--force", "--verbose", "COPY", "OUT"),
    ),
]


@pytest.mark.parametrize("command", DUMPS + CHANGES, ids=" ".join)
def test_gguf_pys_scripts_print_and_write_the_same(model, tmp_path, command):
    outputs = []
    for ours in (True, False):
        folder = tmp_path / "work"
        folder.mkdir()
        copy = shutil.copy(model, folder / "model.gguf")
        places = {"MODEL": str(model), "COPY": str(copy), "OUT": str(folder / "out.gguf")}
        script, *arguments = [places.get(word, word) for word in command]
        printed = run("-m", f"gguf.scripts.{script}", *arguments, ours=ours, text="YES\n")
        outputs.append((printed, {path.name: path.read_bytes() for path in folder.iterdir()}))
        shutil.rmtree(folder)
    assert outputs[0] == outputs[1]
    assert "Traceback" not in outputs[0][0]
    is_expected_failure = "no.such.key" in command
    assert ("exit code 0" in outputs[0][0]) != is_expected_failure


def test_gguf_dump_prints_the_same_of_a_real_vocabulary(vocabularies):
    path = next(path for path in vocabularies if "phi-3" in path.name)
    printed = [run("-m", "gguf.scripts.gguf_dump", str(path), ours=ours) for ours in (True, False)]
    assert printed[0] == printed[1]
