"""`ggufkit imatrix` as a user meets it."""

from __future__ import annotations

import numpy as np
import pytest

from ggufkit.imatrix.matrix import Entry, Imatrix, merge
from shell import done, ggufkit


def matrix(seed, counts=(1024,)):
    rng = np.random.default_rng(seed)
    names = ("blk.0.up.weight", "blk.1.up.weight")
    return Imatrix(
        {
            name: Entry(rng.random((len(counts), 8), np.float32), np.array(counts, np.int64))
            for name in names
        },
        (f"{seed}.txt",),
        2,
    )


@pytest.fixture
def source(tmp_path):
    return matrix(1).save(tmp_path / "in.gguf")


def test_show_names_the_origin_and_lists_tensors_and_layers(source):
    lines = done("imatrix", "show", source).lines
    assert lines[:3] == [
        "importance matrix, 2 tensors",
        "computed on 2 chunks of 512 tokens",
        "from 1.txt",
    ]
    assert lines[4].split()[:4] == ["LAYER", "TENSOR", "SUM(ACT²)", "MIN"]
    assert sorted(line.split()[0] for line in lines[5:7]) == ["0", "1"]
    assert lines[8].startswith("LAYER  MEAN SUM")
    assert len(lines) == 11


def test_show_as_json(source):
    document = done("imatrix", "show", source, "--json").json()
    assert document["format"] == "gguf"
    assert (document["chunk_count"], document["chunk_size"], document["entries"]) == (2, 512, 2)
    assert {tensor["name"] for tensor in document["tensors"]} == {
        "blk.0.up.weight",
        "blk.1.up.weight",
    }
    assert [layer["layer"] for layer in document["layers"]] == [0, 1]


def test_show_of_a_legacy_file_leaves_out_unknown_chunks(tmp_path):
    path = matrix(1).save(tmp_path / "in.dat")
    lines = done("imatrix", "show", path).lines
    assert lines[:2] == ["legacy importance matrix, 2 tensors", "computed on 2 chunks"]
    assert done("imatrix", "show", path, "--json").json()["chunk_size"] is None


def test_notes_experts_that_no_token_reached(tmp_path):
    path = matrix(1, counts=(512, 0)).save(tmp_path / "in.gguf")
    result = done("imatrix", "show", path)
    assert "each of 4 experts got 0 to 512 tokens, the median 256" in result.lines
    note = "note: no token reached 2 of 4 experts, in 2 tensors (blk.0-1.up.weight). Use a longer"
    assert note in result.err
    merged = done("imatrix", "merge", path, path, "-o", tmp_path / "out.gguf", "--json")
    assert note in merged.err
    for document in (merged.json(), done("imatrix", "show", path, "--json").json()):
        assert (document["experts"]["experts"], document["experts"]["unreached"]) == (4, 2)
        assert document["experts"]["tensors"] == ["blk.0.up.weight", "blk.1.up.weight"]
        assert document["half_similarity"] is None


def test_show_without_experts_says_nothing_of_them(source):
    assert done("imatrix", "show", source, "--json").json()["experts"] is None


def test_merge_writes_the_same_file_as_the_library(source, tmp_path):
    other = matrix(2).save(tmp_path / "other.dat")
    out = tmp_path / "out.gguf"
    result = done("imatrix", "merge", source, other, "-o", out)
    assert result.out == f"wrote {out} ({out.stat().st_size} bytes)\n"
    expected = merge([Imatrix.open(source), Imatrix.open(other)]).save(tmp_path / "library.gguf")
    assert out.read_bytes() == expected.read_bytes()


def test_merge_reports_as_json(source, tmp_path):
    out = tmp_path / "out.gguf"
    document = done("imatrix", "merge", source, source, "-o", out, "--json").json()
    assert document["files"] == [{"path": str(out), "nbytes": out.stat().st_size}]
    assert (document["chunk_count"], document["datasets"]) == (4, ["1.txt", "1.txt"])


def test_convert_picks_the_format_by_name_unless_an_option_sets_it(source, tmp_path):
    for name, options, is_legacy in (
        ("x.dat", (), True),
        ("x.gguf", (), False),
        ("x.imatrix", (), False),
        ("y.imatrix", ("--format", "dat"), True),
    ):
        done("imatrix", "convert", source, tmp_path / name, *options)
        assert Imatrix.open(tmp_path / name).is_legacy == is_legacy


def test_option_gives_the_chunk_size_of_legacy_files(tmp_path):
    old = matrix(1).save(tmp_path / "old.dat")
    done("imatrix", "convert", old, tmp_path / "new.gguf", "--context", 128)
    new = Imatrix.open(tmp_path / "new.gguf")
    assert (new.chunk_size, new.entries["blk.0.up.weight"].counts.tolist()) == (128, [256])


def test_refuses_an_output_that_is_an_input(source):
    before = source.read_bytes()
    result = ggufkit("imatrix", "merge", source, source, "-o", source)
    assert result.code == 1
    assert "is also an input" in result.err
    assert source.read_bytes() == before


def test_merge_never_takes_its_last_input_as_the_output(source, tmp_path):
    last = matrix(2).save(tmp_path / "last.dat")
    before = last.read_bytes()
    result = ggufkit("imatrix", "merge", source, last)
    assert (result.code, last.read_bytes()) == (2, before)
    assert "Missing option '-o' / '--output'" in result.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("imatrix", "show", "no-such-file"), 1, "no-such-file"),
        (("imatrix", "show", __file__), 1, "importance matrix"),
        (("imatrix", "merge", "-o", "out"), 2, "Missing argument"),
        (("imatrix", "shw", "x"), 2, "No such command 'shw'"),
        (("imatrix", "compute", "m", "t", "--context", 8), 2, "--context"),
        (("imatrix", "compute", __file__, __file__, "-o", "o", "--memory", "1GiB"), 2, "--hessian"),
        (("imatrix", "compute", __file__, __file__, "-o", "o", "--band", "512"), 2, "--hessian"),
        (("imatrix", "convert", "a", "b", "--format", "csv"), 2, "--format"),
    ],
)
def test_mistakes_give_one_message(arguments, code, message):
    result = ggufkit(*arguments)
    assert result.code == code
    assert message in result.err
    assert "Traceback" not in result.err


def test_compute_writes_a_matrix_that_show_reads(smollm2, tmp_path):
    text, out = tmp_path / "text.txt", tmp_path / "out.gguf"
    text.write_text("One two three four five six seven eight nine ten. " * 4)
    computed = done(
        *("imatrix", "compute", smollm2, text, "-o", out, "--json"),
        *("--chunks", 2, "--context", 16, "--batch", 16, "--threads", 1),
    )
    similar = computed.json()["half_similarity"]
    assert f"cosine of {similar['least']:.4f} in {similar['tensor']}, the least" in computed.err
    document = done("imatrix", "show", out, "--json").json()
    assert (document["chunk_count"], document["chunk_size"]) == (2, 16)
    assert document["datasets"] == [str(text)]
    assert document["entries"] == 30 * 7
