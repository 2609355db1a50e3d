from __future__ import annotations

import io
import os
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pytorch_file
from ggufkit.conversion.checkpoint import pytorch
from ggufkit.conversion.checkpoint.folder import open_checkpoint
from ggufkit.conversion.checkpoint.pytorch import read_pytorch
from ggufkit.errors import CheckpointError
from ggufkit.system.mapped_file import MappedFile
from pytorch_file import Called, Global, Storage, archive, pickled, pytorch_bytes, tensor
from tensors_file import write_checkpoint

RNG = np.random.default_rng(41)
ONE = np.arange(12, dtype=np.float32).reshape(3, 4)


# A global named by tuples that hold each other twice: 2^100 items, if anything spelled them.
BOMB = b"\x80\x02)q\0" + b"h\0h\0\x86q\0" * 100 + b"h\0h\0\x93."
WIDE_CALL = b"\x80\x02ccollections\nOrderedDict\n(" + b"N" * 40 + b"tR."


def read(folder, data):
    path = folder / "pytorch_model.bin"
    path.write_bytes(data)
    return read_pytorch(MappedFile(path))


def problem(folder, data):
    tensors, problems = read(folder, data)
    assert tensors == []
    (problem,) = problems
    return problem


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_tensors_have_the_order_and_elements_of_the_file(tmp_path, protocol):
    arrays = {name: RNG.integers(0, 2, (3, 5)).astype(name)
            for name in sorted(pytorch_file.STORAGES, reverse=True)}  # fmt: skip
    tensors, problems = read(tmp_path, pytorch_bytes(arrays, protocol=protocol))
    assert problems == []
    assert [tensor.name for tensor in tensors] == list(arrays)
    for tensor_ in tensors:
        data = tensor_.source.read(0, 3).view(arrays[tensor_.name].dtype)
        assert np.array_equal(data, arrays[tensor_.name])


def test_tensors_are_spans_of_the_file_that_the_kernel_copies(tmp_path):
    (weight,), _ = read(tmp_path, pytorch_bytes({"a": ONE}))
    assert weight.source.span.nbytes == ONE.nbytes


def test_reads_scalars_and_empty_tensors(tmp_path):
    arrays = {"one": np.array(2.5, np.float32), "none": np.zeros((0, 3), np.float16)}
    tensors, _ = read(tmp_path, pytorch_bytes(arrays))
    assert [(t.shape, t.nbytes) for t in tensors] == [((), 4), ((0, 3), 0)]


def test_reads_rows_of_a_storage_and_transposed_matrices(tmp_path):
    parts = {"offset": 4, "shape": (2, 4)}
    turned = {"shape": (4, 3), "strides": (1, 4)}
    tensors, _ = read(tmp_path, pytorch_bytes({"a": ONE, "b": ONE}, a=parts, b=turned))
    assert np.array_equal(tensors[0].numpy(), ONE[1:])
    assert np.array_equal(tensors[1].numpy(), ONE.T)


def test_two_tensors_may_share_a_storage(tmp_path):
    arrays = {"a": tensor(ONE, "0"), "b": tensor(ONE, "0")}
    tensors, _ = read(tmp_path, archive(pickled(arrays), {"data/0": ONE.tobytes()}))
    assert [np.array_equal(t.numpy(), ONE) for t in tensors] == [True, True]


def test_reads_parameters_and_typed_storages(tmp_path):
    parameter = Called("torch._utils", "_rebuild_parameter", tensor(ONE, "0"), True, {})
    storage = Storage("FloatStorage", "0", 48)
    storage.described = ("storage", Global("torch.storage", "UntypedStorage"), "0", "cpu", 48)
    arguments = (storage, 0, (6, 8), (8, 1), False, {}, Global("torch", "float8_e4m3fn"))
    typed = Called("torch._utils", "_rebuild_tensor_v3", *arguments)
    data = archive(pickled({"p": parameter, "t": typed}), {"data/0": ONE.tobytes()})
    tensors, problems = read(tmp_path, data)
    assert problems == []
    assert [(t.type.name, t.shape) for t in tensors] == [("F32", (3, 4)), ("F8_E4M3", (6, 8))]


class Evil:
    """An object that runs a command when unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("protocol", [2, 4])
def test_refuses_a_pickle_that_would_run_code_and_names_the_function(tmp_path, protocol):
    mark = tmp_path / "ran"
    data = archive(pickle.dumps({"a": Evil(mark)}, protocol), {})
    assert f"{os.mkdir.__module__}.mkdir" in problem(tmp_path, data)
    assert not mark.exists()
    pickle.loads(pickle.dumps(Evil(mark)))
    assert mark.exists()  # it would have run


@pytest.mark.parametrize(
    ("module", "name"),
    [("builtins", "eval"), ("torch", "load"), ("torch._utils", "_rebuild_wrapper_subclass")],
)
def test_refuses_other_names(tmp_path, module, name):
    data = archive(pickled({"a": Called(module, name, "1 + 1")}), {})
    assert f"{module}.{name}" in problem(tmp_path, data)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "dictionary"),
        ({"epoch": 3}, "'epoch' in it is not a tensor but int"),
        ({"state_dict": {"a": 1}}, "'state_dict' in it is not a tensor but dict"),
        ({5: None}, "not a tensor"),
        ({(1, 2): None}, "a key that is neither"),
        ({"a": Called("torch", "FloatStorage", 1)}, "not a function"),
        ({"a": Called("torch._utils", "_rebuild_tensor_v2", 1)}, "too few arguments"),
        ({"a": Called("torch._utils", "_rebuild_tensor", 1, 2, 3, 4)}, "without storage"),
        ({"a": tensor(ONE, "7")}, "storage '7' of 'a' is missing"),
        ({"a": tensor(ONE, "0", shape=(3, 5), strides=(5, 1))}, "60 bytes of a storage"),
        ({"a": tensor(ONE, "0", offset=1)}, "52 bytes of a storage"),
        ({"a": tensor(ONE, "0", shape=(-3, 4))}, "without storage"),
        ({"a": tensor(ONE, "0", offset=-1)}, "without storage"),
        ({"a": tensor(ONE, "0", shape=(True, 4))}, "without storage"),
        ({"a": tensor(ONE, "0", shape=(3,))}, "do not fit each other"),
        ({"a": tensor(ONE, "0", shape=(1 << 40, 4), strides=(0, 1))}, "skips elements"),
        ({"a": tensor(ONE, "0", shape=(1 << 62, 4))}, "bytes of a storage"),
        ({"a": tensor(ONE, "0", shape=(3, 2), strides=(4, 2))}, "skips elements"),
        ({"a": tensor(ONE, "0", storage="0")}, "without storage"),
        ({"a": tensor(ONE, "0", storage=Storage("float8_e5m2", "0", "1"))}, "not a storage"),
    ],
)
def test_reports_what_is_not_a_weight(tmp_path, content, message):
    assert message in problem(tmp_path, archive(pickled(content), {"data/0": ONE.tobytes()}))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"<html>" + bytes(400), "web page"),
        (bytes([1]) * 400, "not a PyTorch file"),
        (pickle.dumps(0x1950A86A20F9469CFC6C, 2), "before 1.6"),
        (bytes(257) + b"ustar" + bytes(250), "before 1.6"),
        (b"PK\x03\x04" + bytes(100), "broken zip"),
        (archive(pickled({}), {"Byteorder": b""}).replace(b"Byte", b"byte"), "twice"),
        (archive(pickled({}), {}).replace(b"little", b"biglyy"), "big-endian"),
        (archive(pickled({}), {}, zipfile.ZIP_DEFLATED), "compressed"),
        (archive(pickled({}), {}).replace(b"data.pkl", b"date.pkl"), "without PyTorch's data.pkl"),
        (archive(b"", {}), "ends early, at byte 0"),
        (archive(b"\x80\x02", {}), "ends early"),
        (archive(b"\x80\x09.", {}), "protocol 9"),
        (archive(b"\x80\x02h\x07.", {}), "broken"),
        (archive(b"\x80\x02.", {}), "broken"),
        (archive(b"\x80\x02t.", {}), "broken"),
        (archive(b"\x80\x02X\xff\xff\xff\xffa.", {}), "ends early"),
        (archive(b"\x80\x02X\x01\0\0\0\xff.", {}), "broken"),
        (archive(b"\x80\x02cos\nsystem\n.", {}), "'os.system'"),
        (archive(b"\x80\x02cos", {}), "ends early"),
        (archive(BOMB, {}), "whose name is not text"),
        (archive(b"\x80\x02" + b"N" * 40 + b"t.", {}), "broken"),
        (archive(WIDE_CALL, {}), "wrong arguments"),
        (archive(b"\x80\x02L1\n.", {}), "opcode b'L'"),
        (archive(b"\x80\x02}q\0X\x01\0\0\0aNX\x01\0\0\0aNu.", {}), "broken"),
        (archive(b"\x80\x02}(X\x01\0\0\0aNX\x01\0\0\0aNu.", {}), "'a' twice"),
        (archive(b"\x80\x02N" + b"\x85" * 300_000 + b".", {}), "dictionary"),
        (archive(b"\x80\x02}N" + b"\x85" * 300_000 + b"Ns.", {}), "a key that is neither"),
    ],
)  # fmt: skip
def test_reports_broken_files(tmp_path, data, message):
    assert message in problem(tmp_path, data)


def lying(tell):
    """Return an archive after `tell` changed the directory entries of its last two files."""
    stream = io.BytesIO(archive(pickled({"a": tensor(ONE, "0")}), {}))
    with zipfile.ZipFile(stream, "a") as zip_file:
        for name in ("archive/data/0", "archive/data/1"):
            zip_file.writestr(name, ONE.tobytes())
        tell(*zip_file.filelist[-2:])
    return stream.getvalue()


def overlap(first, second):
    second.header_offset = first.header_offset


def declare_a_tebibyte(_, second):
    second.file_size = second.compress_size = 1 << 40


def begin_beyond(_, second):
    second.header_offset = 1 << 40


@pytest.mark.parametrize(
    ("tell", "message"),
    [(overlap, "overlap"), (declare_a_tebibyte, "is incomplete"), (begin_beyond, "truncated")],
)
def test_refuses_an_archive_that_lies_about_its_files(tmp_path, tell, message):
    assert message in problem(tmp_path, lying(tell))


def test_does_not_unpack_names_that_lead_out_of_the_archive(tmp_path):
    outside = {"../../evil": b"evil", "/evil": b"evil", "data/0": ONE.tobytes()}
    tensors, problems = read(tmp_path, archive(pickled({"a": tensor(ONE, "0")}), outside))
    assert [tensor.name for tensor in tensors] == ["a"]
    assert not problems
    assert len([*tmp_path.rglob("*")]) == 1  # nothing is unpacked


def test_lists_all_problems_at_once(tmp_path):
    arrays = {name: tensor(ONE, "9") for name in "abc"}
    _, problems = read(tmp_path, archive(pickled(arrays), {}))
    assert len(problems) == 3


def test_does_not_read_a_pickle_beyond_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(pytorch, "MAX_PICKLE_BYTES", 10)
    assert "too large" in problem(tmp_path, pytorch_bytes({"a": ONE}))


def test_does_not_read_a_directory_beyond_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(pytorch, "MAX_DIRECTORY_BYTES", 30)
    assert "too large" in problem(tmp_path, pytorch_bytes({"a": ONE}))


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_damaged_files_give_tensors_or_problems(tmp_path_factory, data):
    whole = bytearray(pytorch_bytes({"a": ONE, "b": ONE.astype(np.float16)}))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    path = tmp_path_factory.mktemp("damaged") / "pytorch_model.bin"
    for content in (whole, whole[:cut]):
        path.write_bytes(bytes(content))
        file = MappedFile(path)
        tensors, problems = read_pytorch(file)
        assert tensors or problems or len(content) == len(whole)
        for entry in tensors:
            entry.raw()
        file.close()


@given(st.binary(max_size=60))
def test_random_pickles_give_tensors_or_problems(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("random")
    tensors, problems = read(folder, archive(b"\x80\x02}" + data + b".", {}))
    assert not tensors
    assert isinstance(problems, list)


# In a checkpoint.


def test_opens_a_checkpoint_of_one_file(tmp_path):
    write_checkpoint(tmp_path, {})
    (tmp_path / "pytorch_model.bin").write_bytes(pytorch_bytes({"z": ONE, "a": ONE}))
    assert list(open_checkpoint(tmp_path).tensors) == ["z", "a"]


def test_opens_a_checkpoint_of_a_pth_file(tmp_path):
    write_checkpoint(tmp_path, {})
    (tmp_path / "model.pth").write_bytes(pytorch_bytes({"a": ONE}))
    (tmp_path / "training_args.bin").write_bytes(b"something else")
    assert list(open_checkpoint(tmp_path).tensors) == ["a"]


def test_opens_a_sharded_checkpoint_by_its_index(tmp_path):
    write_checkpoint(tmp_path, {})
    for n, name in enumerate("ab", 1):
        data = pytorch_bytes({name: ONE})
        (tmp_path / f"pytorch_model-0000{n}-of-00002.bin").write_bytes(data)
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text('{"weight_map": {"a": "pytorch_model-00001-of-00002.bin", '
                     '"b": "pytorch_model-00002-of-00002.bin"}}')  # fmt: skip
    assert list(open_checkpoint(tmp_path).tensors) == ["a", "b"]
    index.write_text('{"weight_map": {"a": "pytorch_model-00001-of-00002.bin", "c": "x.bin"}}')
    with pytest.raises(CheckpointError, match=r"x\.bin is missing"):
        open_checkpoint(tmp_path)


def test_prefers_safetensors_to_pytorch_files(tmp_path):
    write_checkpoint(tmp_path, {}, model={"safe": ONE})
    (tmp_path / "pytorch_model.bin").write_bytes(b"not looked at")
    assert list(open_checkpoint(tmp_path).tensors) == ["safe"]


def test_names_the_file_that_would_run_code(tmp_path):
    write_checkpoint(tmp_path, {})
    data = archive(b"\x80\x02cos\nsystem\n.", {})
    (tmp_path / "pytorch_model.bin").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin: .*'os\.system'"):
        open_checkpoint(tmp_path)


def test_python_reads_the_forged_zip(tmp_path):
    with zipfile.ZipFile(io.BytesIO(pytorch_bytes({"a": ONE}))) as archive:
        assert archive.testzip() is None
