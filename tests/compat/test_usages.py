"""Twenty ways in which published programs use gguf-py give the same with ggufkit.

Each function takes the module and a file, and does what programs for PyTorch, image models, vLLM,
llama.cpp and others do with them.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import re

import gguf
import numpy as np
import pytest

from ggufkit.compat import gguf as ours


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("usages") / "model.gguf"
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_rope_freq_base(10000.0)
    writer.add_array("comfy.gguf.orig_shape.blk.0.ffn_up.weight", [8, 2, 32])
    writer.add_token_list(["<s>", "été", "b"])
    writer.add_token_scores([0.0, -1.0, -2.5])
    writer.add_token_types([3, 1, 1])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    names = ("token_embd.weight", "blk.0.ffn_up.weight", "blk.1.ffn_up.weight")
    for name, kind in zip(names, ("Q8_0", "BF16", "Q4_0"), strict=True):
        type_ = gguf.GGMLQuantizationType[kind]
        array = rng.normal(size=(8, 64)).astype(np.float32)
        writer.add_tensor(name, gguf.quantize(array, type_), raw_dtype=type_)
    writer.add_tensor("output_norm.weight", np.ones(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def number_by_parts(g, path):
    field = g.GGUFReader(path).fields["llama.block_count"]
    return int(field.parts[field.data[0]][0]), field.parts[-1].item()


def text_by_str(g, path):
    field = g.GGUFReader(str(path)).get_field("general.name")
    return str(field.parts[field.data[-1]], encoding="utf-8")


def texts_by_bytes(g, path):
    field = g.GGUFReader(path).fields["tokenizer.ggml.tokens"]
    return [bytes(field.parts[index]).decode("utf-8") for index in field.data]


def original_shape(g, path):
    field = g.GGUFReader(path).get_field("comfy.gguf.orig_shape.blk.0.ffn_up.weight")
    assert len(field.types) == 2
    assert field.types == [g.GGUFValueType.ARRAY, g.GGUFValueType.INT32]
    return tuple(int(field.parts[index][0]) for index in field.data)


def every_value(g, path):
    return {key: field.contents() for key, field in g.GGUFReader(path).fields.items()}


def values_as_json(g, path):
    return json.dumps({key: field.contents() for key, field in g.GGUFReader(path).fields.items()})


def values_by_types(g, path):
    values = {}
    for key, field in g.GGUFReader(path, "r").fields.items():
        if field.types[:1] == [g.GGUFValueType.STRING]:
            values[key] = field.parts[-1].tobytes().decode()
        elif len(field.types) == 1:
            values[key] = field.parts[field.data[0]].tolist()[0]
        else:
            values[key] = [list(field.parts[index]) for index in field.data]
    return values


def kinds_of_types(g, path):
    reader = g.GGUFReader(path)
    return [(int(kind), kind.name, kind == 8) for f in reader.fields.values() for kind in f.types]


def missing_field(g, path):
    return g.GGUFReader(path).get_field("no.such.key")


def state_dict(g, path):
    return {
        tensor.name: np.asarray(g.quants.dequantize(tensor.data, tensor.tensor_type)).tolist()
        for tensor in g.GGUFReader(path).tensors
    }


def shapes_reversed(g, path):
    return [tuple(int(n) for n in reversed(t.shape)) for t in g.GGUFReader(path).tensors]


def shape_from_bytes(g, path):
    return [
        g.quant_shape_from_byte_shape(t.data.shape, t.tensor_type)
        for t in g.GGUFReader(path).tensors
        if t.data.dtype == np.uint8
    ]


def bytes_at_offsets(g, path):
    data = path.read_bytes()
    tensors = g.GGUFReader(path).tensors
    return [data[t.data_offset : t.data_offset + t.n_bytes] == t.data.tobytes() for t in tensors]


def bfloat16_words(g, path):
    tensor = next(t for t in g.GGUFReader(path).tensors if t.tensor_type.name == "BF16")
    return (tensor.data.view(np.uint16).astype(np.uint32) << 16).view(np.float32).tolist()


def bits_per_weight(g, path):
    blocks = (g.GGML_QUANT_SIZES[t.tensor_type] for t in g.GGUFReader(path).tensors)
    return [8 * size / count for count, size in blocks]


def layers_by_name(g, path):
    names = (re.match(r"blk\.(\d+)\.", tensor.name) for tensor in g.GGUFReader(path).tensors)
    return sorted({int(name[1]) for name in names if name})


def digest_of_tensors(g, path):
    digest = hashlib.sha256()
    for tensor in g.GGUFReader(path).tensors:
        digest.update(tensor.data.data)
        digest.update(np.ascontiguousarray(tensor.data))
    return digest.hexdigest()


def gaps_between_tensors(g, path):
    tensors = sorted(g.GGUFReader(path).tensors, key=lambda tensor: tensor.data_offset)
    return [b.data_offset - a.data_offset - a.n_bytes for a, b in itertools.pairwise(tensors)]


def end_of_keys(g, path):
    reader = g.GGUFReader(path)
    first = reader.tensors[0].field
    return first.offset, sum(part.nbytes for part in first.parts), reader.data_offset


def copied_file(g, path):
    """Copy every key and tensor as programs do that remove or rename some."""
    reader, out = g.GGUFReader(path), path.with_suffix(".copy")
    writer = g.GGUFWriter(out, arch=reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == g.Keys.General.ARCHITECTURE:
            continue
        inner = field.types[-1] if field.types[0] == g.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file(progress=False)
    writer.close()
    return out.read_bytes()


def writer_without_architecture(g, path):
    """Write an importance matrix as llama.cpp's scripts do, with a class of their own."""

    class Writer(g.GGUFWriter):
        def add_architecture(self):
            pass

    out = path.with_suffix(".imatrix")
    writer = Writer(out, arch="")
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", ["a.txt"])
    writer.add_tensor("w.in_sum2", np.ones((1, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out.read_bytes()


def writer_that_packs_its_own_way(g, path):
    class Writer(g.GGUFWriter):
        def _pack_val(self, val, vtype, add_vtype, sub_type=None):
            if vtype == g.GGUFValueType.ARRAY and isinstance(val, tuple):
                val = [item.upper() for item in val]
            return super()._pack_val(val, vtype, add_vtype, sub_type)

    out = path.with_suffix(".upper")
    writer = Writer(out, "llama")
    writer.add_array("words", ("a", "b"))
    writer.add_array("numbers", [1, 2])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return out.read_bytes()


def signatures(g, path):
    del path
    known = {}
    for name in ("GGUFReader", "GGUFWriter"):
        known[name] = list(inspect.signature(getattr(g, name)).parameters)
    for name in ("quantize", "dequantize", "get_tensor_name_map"):
        known[name] = list(inspect.signature(getattr(g, name)).parameters)
    return known


USAGES = [
    *(number_by_parts, text_by_str, texts_by_bytes, original_shape, every_value, values_as_json),
    *(values_by_types, kinds_of_types, missing_field, state_dict, shapes_reversed),
    *(shape_from_bytes, bytes_at_offsets, bfloat16_words, bits_per_weight, layers_by_name),
    *(digest_of_tensors, gaps_between_tensors, end_of_keys, copied_file),
    *(writer_without_architecture, writer_that_packs_its_own_way, signatures),
]


@pytest.mark.parametrize("usage", USAGES, ids=lambda usage: usage.__name__)
def test_usage_gives_the_same(model, usage):
    mine, theirs = usage(ours, model), usage(gguf, model)
    assert mine == theirs
    assert repr(mine) == repr(theirs)
