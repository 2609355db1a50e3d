from __future__ import annotations

import errno
import json

import pytest

import ggufkit as library
import projector_folders
import shapes
from ggufkit.imatrix.matrix import Imatrix
from ggufkit.output import chunks, execute
from ggufkit.system.hidden_files import RESUME
from plain_checkpoint import ARCH, CONFIG, numbers, whole
from shell import ggufkit
from tensors_file import write_checkpoint


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "arch").mkdir()
    (tmp_path / "arch" / "plain.toml").write_text(ARCH)
    return write_checkpoint(tmp_path / "Tiny-Plain", CONFIG, model=whole())


def run(checkpoint, out, *options):
    return ggufkit("convert", checkpoint, out, "--arch-path", checkpoint.parent / "arch", *options)


def test_convert_writes_a_file(checkpoint, tmp_path):
    done = run(checkpoint, tmp_path / "out.gguf")
    assert done.code == 0, done.err
    assert "wrote" in done.out
    assert len(library.open(tmp_path / "out.gguf").tensors) == 20


def test_output_in_a_folder_gets_a_conventional_name(checkpoint, tmp_path):
    (tmp_path / "out").mkdir()
    assert run(checkpoint, tmp_path / "out").code == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["Tiny-Plain-1.2K-v1.0-F16.gguf"]


def test_path_with_a_final_slash_creates_a_folder(checkpoint, tmp_path):
    assert run(checkpoint, f"{tmp_path}/new/folder/").code == 0
    (path,) = (tmp_path / "new" / "folder").iterdir()
    with library.open(path) as model:
        assert model.files[0].path.name == "Tiny-Plain-1.2K-v1.0-F16.gguf"
    assert not [finding for finding in library.check(path) if finding.rule == "file-name"]


def test_dry_run_creates_no_folder(checkpoint, tmp_path):
    assert run(checkpoint, f"{tmp_path}/new/", "--dry-run").code == 0
    assert not (tmp_path / "new").exists()


def test_remedy_for_a_quantized_checkpoint_names_an_option_of_convert(checkpoint, tmp_path):
    config = CONFIG | {"hidden_size": 32, "intermediate_size": 48, "vocab_size": 40}
    wide = {name: numbers(*(4 * n for n in array.shape)) for name, array in whole().items()}
    write_checkpoint(checkpoint, config, model=wide)
    done = run(checkpoint, tmp_path / "o.gguf", "--outtype", "q8_0", "--quantize", "Q4_0")
    assert done.code == 1
    assert "--outtype f16" in done.err
    assert "requantize" not in done.err


def test_several_types_give_several_files(checkpoint, tmp_path):
    (tmp_path / "out").mkdir()
    done = run(checkpoint, tmp_path / "out", "--quantize", "F32,BF16")
    assert done.code == 0, done.err
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert [name.rpartition("-")[2] for name in names] == ["BF16.gguf", "F32.gguf"]


def test_empty_list_of_types_is_an_error(checkpoint, tmp_path):
    done = run(checkpoint, tmp_path / "one.gguf", "--quantize", "")
    assert done.code == 2, done.err
    assert "unknown recipe ''" in done.err
    assert not (tmp_path / "one.gguf").exists()


@pytest.fixture
def wide_checkpoint(tmp_path):
    """Return the small checkpoint with rows that quantized blocks divide."""
    (tmp_path / "arch").mkdir()
    (tmp_path / "arch" / "plain.toml").write_text(ARCH)
    tensors = {
        name: numbers(*(64 if length in (8, 12) else length for length in array.shape))
        for name, array in whole().items()
    }
    config = CONFIG | {"hidden_size": 64, "intermediate_size": 64}
    return write_checkpoint(tmp_path / "Tiny-Wide", config, model=tensors)


def test_search_and_importance_data_give_the_blocks_of_quantize(wide_checkpoint, tmp_path):
    plain, out = tmp_path / "plain.gguf", tmp_path / "out.gguf"
    assert run(wide_checkpoint, plain).code == 0
    with library.open(plain) as model:
        data = shapes.importance({t.name: t.shape for t in model.tensors.values()})
        Imatrix(data).save(tmp_path / "data.gguf")
        options = {"imatrix": tmp_path / "data.gguf", "search": "best"}
        library.write(library.quantize(model, "Q4_1", **options), tmp_path / "expected.gguf")
        usual = library.quantize(model, "Q4_1", imatrix=tmp_path / "data.gguf")
        library.write(usual, tmp_path / "usual.gguf")
    flags = ("--imatrix", tmp_path / "data.gguf", "--search", "best")
    done = run(wide_checkpoint, out, "--quantize", "Q4_1", *flags)
    assert done.code == 0, done.err
    assert out.read_bytes() == (tmp_path / "expected.gguf").read_bytes()
    with library.open(out) as written, library.open(tmp_path / "usual.gguf") as usual:
        assert any(
            written.tensors[name].raw().tobytes() != usual.tensors[name].raw().tobytes()
            for name in usual.tensors
        )


@pytest.mark.parametrize(
    ("recipes", "option"),
    [("Q4_0", "--metadata"), ("Q4_0,Q8_0", "--metadata"), ("Q4_0", "--imatrix")],
)
def test_no_file_of_an_option_is_overwritten(wide_checkpoint, tmp_path, recipes, option):
    read = tmp_path / "q4_0.gguf"
    read.write_text("{}")
    if option == "--imatrix":
        Imatrix(shapes.importance({"output.weight": (64, 64)})).save(read)
    before = read.read_bytes()
    out = tmp_path / "{ftype}.gguf"
    done = run(wide_checkpoint, out, "--quantize", recipes, option, read)
    assert done.code == 1, done.err
    assert "q4_0.gguf is also an input" in done.err
    assert read.read_bytes() == before
    assert list(tmp_path.glob("*.gguf")) == [read]


def test_quantizing_prints_the_notes_of_quantize(wide_checkpoint, tmp_path):
    done = run(wide_checkpoint, tmp_path / "{ftype}.gguf", "--quantize", "Q8_0", "--search", "best")
    assert "note: 15 tensors without a search: Q8_0 has none" in done.err
    done = run(wide_checkpoint, tmp_path / "{ftype}.gguf", "--quantize", "Q8_0,Q4_K_M")
    assert "note: Q4_K_M: " in done.err
    assert "rows that do not divide into blocks" in done.err


@pytest.mark.parametrize("flags", [("--search", "best"), ("--imatrix", __file__)])
def test_options_of_quantizing_need_a_recipe(checkpoint, tmp_path, flags):
    done = run(checkpoint, tmp_path / "out.gguf", *flags)
    assert done.code == 2, done.err
    assert f"{flags[0]} goes with --quantize" in done.err


def test_unknown_type_is_refused_before_anything_is_read(tmp_path):
    done = ggufkit("convert", tmp_path / "missing", tmp_path / "one.gguf", "--quantize", "Q8_0,Q9")
    assert done.code == 2, done.err
    assert "unknown recipe 'Q9'" in done.err


def test_a_recipe_file_quantizes_as_in_quantize(checkpoint, tmp_path):
    (tmp_path / "mine.toml").write_text('base = "F32"\n')
    done = run(checkpoint, tmp_path / "one.gguf", "--quantize", tmp_path / "mine.toml")
    assert done.code == 0, done.err
    with library.open(tmp_path / "one.gguf") as model:
        assert {tensor.type.name for tensor in model.tensors.values()} == {"F32"}


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "a\tb"])
def test_unusual_model_names_give_safe_file_names(checkpoint, tmp_path, name):
    (tmp_path / "out").mkdir()
    card = json.dumps({"basename": name})
    (checkpoint / "README.md").write_text(f"---\n{card[1:-1]}\n---\n")
    done = run(checkpoint, tmp_path / "out")
    assert done.code == 0, done.err
    (path,) = (tmp_path / "out").iterdir()
    assert path.name == "Tiny-Plain-1.2K-v1.0-F16.gguf"  # by the name of the folder


def test_several_types_need_a_folder(checkpoint, tmp_path):
    assert run(checkpoint, tmp_path / "one.gguf", "--quantize", "F32,F16").code == 2


def test_dry_run_shows_and_writes_nothing(checkpoint, tmp_path):
    done = run(checkpoint, tmp_path / "out.gguf", "--dry-run")
    assert "blk.1.ffn_up.weight" in done.out
    assert not (tmp_path / "out.gguf").exists()


def test_json_lists_the_tensors(checkpoint, tmp_path):
    done = run(checkpoint, tmp_path / "out.gguf", "--dry-run", "--json")
    (entry,) = json.loads(done.out)
    assert entry["architecture"] == "llama"
    assert len(entry["tensors"]) == 20


def test_writes_shards(checkpoint, tmp_path):
    assert run(checkpoint, tmp_path / "out.gguf", "--shard-size", "1000").code == 0
    assert len(list(tmp_path.glob("out-*-of-*.gguf"))) > 1


def test_shards_are_those_of_the_converter(checkpoint, tmp_path):
    assert run(checkpoint, tmp_path / "m.gguf", "--no-tensor-first-split").code == 0
    first, second = sorted(tmp_path.glob("m-*.gguf"))
    assert first.name == "m-00001-of-00002.gguf"
    with library.open(first, shards=False) as head, library.open(first) as whole:
        assert (len(head.tensors), len(whole.tensors)) == (0, 20)
        assert list(head.metadata)[-3:] == ["split.no", "split.count", "split.tensors.count"]
    assert second.stat().st_size > first.stat().st_size


def test_lists_problems_line_by_line_and_writes_nothing(checkpoint, tmp_path):
    config = CONFIG | {"hidden_act": "gelu"}
    write_checkpoint(checkpoint, config, model=whole() | {"odd\x1b": numbers(1)})
    done = run(checkpoint, tmp_path / "out.gguf")
    assert done.code == 1
    assert len([line for line in done.err.splitlines() if line.startswith("  - ")]) == 2
    assert "\x1b" not in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize("content", ["{", "[]", "3"])
def test_metadata_file_that_is_not_an_object_is_wrong_usage(checkpoint, tmp_path, content):
    (tmp_path / "keys.json").write_text(content)
    assert run(checkpoint, tmp_path / "o.gguf", "--metadata", tmp_path / "keys.json").code == 2


def test_metadata_file_replaces_keys(checkpoint, tmp_path):
    (tmp_path / "keys.json").write_text('{"general.author": "Somebody"}')
    options = ("--metadata", tmp_path / "keys.json", "--name", "Mine")
    assert run(checkpoint, tmp_path / "out.gguf", *options).code == 0
    metadata = library.open(tmp_path / "out.gguf").metadata
    assert (metadata["general.author"], metadata["general.name"]) == ("Somebody", "Mine")


@pytest.mark.parametrize("options", [(), ("--quantize", "Q8_0"), ("--outtype", "f32")])
def test_interrupted_conversion_resumes_from_kept_work(checkpoint, tmp_path, monkeypatch, options):
    out = tmp_path / "out.gguf"
    assert run(checkpoint, tmp_path / "wanted.gguf", *options).code == 0
    with monkeypatch.context() as patched:
        patched.setattr(execute, "_publish", full)
        failed = run(checkpoint, out, "--resume", *options)
    assert failed.code == 1
    assert "resume" in failed.err
    assert not out.exists()
    assert (tmp_path / f".{out.name}{RESUME}").exists()
    with monkeypatch.context() as patched:
        patched.setattr(chunks, "_write_once", refuse_work)
        done = run(checkpoint, out, "--resume", *options)
    assert done.code == 0, done.err
    assert out.read_bytes() == (tmp_path / "wanted.gguf").read_bytes()


def full(_jobs):
    raise OSError(errno.ENOSPC, "No space left on device")


def refuse_work(chunk, _targets, *, checked):
    assert checked
    assert not chunk.parts, "this was done already"
    return []


def test_resumes_several_outputs_together(checkpoint, tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    several = ("--quantize", "F32,BF16", "--resume")
    with monkeypatch.context() as patched:
        patched.setattr(execute, "_publish", full)
        assert run(checkpoint, tmp_path / "out", *several).code == 1
    assert run(checkpoint, tmp_path / "out", *several).code == 0
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_stdout_cannot_be_resumed(checkpoint):
    done = run(checkpoint, "-", "--resume")
    assert done.code == 2
    assert "cannot write to stdout" in done.err


@pytest.fixture
def seeing(tmp_path):
    """Return a checkpoint with an encoder of pictures, and no text model yet."""
    case = projector_folders.cases()["gemma3"]
    own = {name: shape for name, shape in case["tensors"].items() if "language" not in name}
    return projector_folders.make({**case, "tensors": own}, tmp_path / "Gemma-Tiny")


def test_projector_in_a_folder_gets_its_prefix(seeing, tmp_path):
    done = ggufkit("convert", seeing, f"{tmp_path}/out/", "--mmproj")
    assert done.code == 0, done.err
    (path,) = (tmp_path / "out").iterdir()
    assert path.name == "mmproj-Gemma-Tiny-v1.0-BF16.gguf"


@pytest.mark.parametrize("option", ["--no-mtp", "--mtp", "--vocab-only", "--fuse-qkv", "--pre"])
def test_projector_alone_refuses_options_of_text_models(tmp_path, option):
    value = ("gpt-2",) if option == "--pre" else ()
    done = ggufkit("convert", tmp_path, tmp_path / "p.gguf", "--mmproj", option, *value)
    assert done.code == 2
    assert f"leave out {option}" in done.err


@pytest.mark.parametrize("option", ["--mtp", "--no-mtp"])
def test_dspark_is_one_choice_of_layers_that_predict(tmp_path, option):
    done = ggufkit("convert", tmp_path, tmp_path / "d.gguf", "--dspark", option)
    assert done.code == 2
    assert "--dspark goes without --mtp and --no-mtp" in done.err


def test_projector_is_written_with_the_text_model(checkpoint, seeing, tmp_path):
    config = json.loads((seeing / "config.json").read_text())
    eyes = {**config["vision_config"], "architectures": config["architectures"]}
    write_checkpoint(seeing, CONFIG | {"vision_config": eyes}, model_text=whole())
    arch = ("--arch-path", checkpoint.parent / "arch")
    done = ggufkit("convert", seeing, tmp_path / "t.gguf", "--with-mmproj", f"{tmp_path}/p/", *arch)
    assert done.code == 0, done.err
    (path,) = (tmp_path / "p").iterdir()
    with library.open(tmp_path / "t.gguf") as text, library.open(path) as projector:
        assert len(text.tensors) == 20
        assert projector.metadata["general.type"] == "mmproj"
        assert projector.metadata["clip.vision.projection_dim"] == CONFIG["hidden_size"]


def test_projector_with_the_text_model_cannot_go_to_stdout(seeing, tmp_path):
    done = ggufkit("convert", seeing, "-", "--with-mmproj", tmp_path / "p.gguf")
    assert done.code == 2
    assert "--with-mmproj" in done.err


def test_type_in_the_name_of_the_output_is_filled_in(checkpoint, tmp_path):
    assert run(checkpoint, tmp_path / "tiny-{ftype}.gguf", "--outtype", "bf16").code == 0
    assert run(checkpoint, tmp_path / "tiny-{FTYPE}.gguf").code == 0
    assert {path.name for path in tmp_path.glob("*.gguf")} == {"tiny-bf16.gguf", "tiny-F16.gguf"}


def test_several_types_go_to_files_with_the_type_in_their_name(checkpoint, tmp_path):
    done = run(checkpoint, tmp_path / "t-{ftype}.gguf", "--quantize", "F32,BF16")
    assert done.code == 0, done.err
    assert {path.name for path in tmp_path.glob("*.gguf")} == {"t-f32.gguf", "t-bf16.gguf"}


def test_vocabulary_alone_needs_no_tensors(checkpoint, tmp_path):
    for path in checkpoint.glob("*.safetensors"):
        path.unlink()
    done = run(checkpoint, f"{tmp_path}/new/", "--vocab-only")
    assert done.code == 0, done.err
    (path,) = (tmp_path / "new").iterdir()
    assert path.name == "Tiny-Plain-v1.0-vocab.gguf"
    with library.open(path) as model:
        assert not model.tensors
        assert model.metadata["llama.block_count"] == 2


@pytest.mark.parametrize("option", ["--quantize=Q8_0", "--mtp"])
def test_vocabulary_alone_cannot_be_quantized_or_predict(checkpoint, tmp_path, option):
    done = run(checkpoint, tmp_path / "out.gguf", "--vocab-only", option)
    assert done.code == 2
    assert "writes no tensors" in done.err


def test_big_endian_output_is_the_copy_of_the_little_endian_one(checkpoint, tmp_path):
    outs = [tmp_path / name for name in ("big.gguf", "little.gguf", "copy.gguf")]
    assert run(checkpoint, outs[0], "--outtype", "bf16", "--bigendian").code == 0
    assert run(checkpoint, outs[1], "--outtype", "bf16").code == 0
    assert ggufkit("copy", outs[1], outs[2], "--endian", "big").code == 0
    assert outs[0].read_bytes() == outs[2].read_bytes()


def test_names_of_the_converter_for_options_are_understood(checkpoint, tmp_path):
    done = run(checkpoint, tmp_path / "m.gguf", "--model-name", "Other", "--split-max-tensors", "9")
    assert done.code == 0, done.err
    shards = sorted(tmp_path.glob("*.gguf"))
    assert len(shards) == 3
    with library.open(shards[0]) as model:
        assert model.metadata["general.name"] == "Other"


def test_fused_queries_keys_and_values_are_one_matrix(checkpoint, tmp_path):
    assert run(checkpoint, tmp_path / "m.gguf", "--fuse-qkv").code == 0
    with library.open(tmp_path / "m.gguf") as model:
        assert model.tensors["blk.0.attn_qkv.weight"].shape == (24, 8)
        assert "blk.0.attn_q.weight" not in model.tensors
