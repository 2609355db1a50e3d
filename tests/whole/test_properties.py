"""Properties of any model: any metadata, any tensors, both byte orders, all versions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import ggufkit
from ggufkit.format.encoding import Encoding
from ggufkit.format.types import GGML_TYPES, SPLIT_KEYS
from ggufkit.models.model import Model, as_ggml_counts
from ggufkit.models.sources import in_order
from ggufkit.output import chunks
from spelled import SPELLINGS, SpelledTensor, metadata

TYPES = [kind for kind in GGML_TYPES.values() if not kind.is_opaque]
# K-quants look at a row as a whole, IQ4_NL at a block, with weights or without.
RECIPES = ["Q4_0", "Q8_0", "Q4_K_M", "Q6_K", "IQ4_NL", "BF16"]
some = settings(max_examples=60)


@st.composite
def tensors(draw):
    """Tensors of any type and shape, none and empty ones among them, of random bytes."""
    tensors_of_file = []
    kinds = draw(st.lists(st.sampled_from(TYPES), max_size=6))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    for number, kind in enumerate(kinds):
        blocks, *others = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
        count = int(np.prod([blocks, *others])) * kind.block_bytes
        name = draw(st.sampled_from(["blk.{}.weight", "größe.{}", "a b\t{}"])).format(number)
        tensors_of_file.append(
            SpelledTensor(name, (blocks * kind.block_size, *others), kind.id, random.bytes(count))
        )
    return tensors_of_file


@st.composite
def files(draw, spellings=SPELLINGS):
    """Return the bytes that the writer should have written."""
    alignment = draw(st.sampled_from([8, 32, 64, 4096]))
    pairs = draw(metadata)
    if alignment != 32:
        place = draw(st.integers(0, len(pairs)))
        pairs.insert(place, ("general.alignment", ("uint32", alignment)))
    return draw(st.sampled_from(spellings)).file(pairs, draw(tensors()), alignment)


def meaning(model):
    """Return the content of a model in one form: metadata as bytes, so that any NaN counts."""
    facts = [
        (t.name, t.type, t.shape, in_order(t, "little").read(0, t.rows).tobytes())
        for t in model.tensors.values()
    ]
    return model.metadata.without("general.alignment", missing_ok=True).encode(Encoding()), facts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@some
@given(
    files(),
    st.sampled_from([2, 3]),
    st.sampled_from(["little", "big"]),
    st.sampled_from([8, 32, 128]),
)
def test_model_written_in_any_form_opens_unchanged(folder, content, version, order, step):
    source, out = folder / "in.gguf", folder / "out.gguf"
    source.write_bytes(content)
    with ggufkit.open(source) as model:
        options = {"version": version, "byte_order": order, "alignment": step}
        ggufkit.write(model, out, **options)
        with ggufkit.open(out) as again:
            assert (again.version, again.byte_order, again.alignment) == (version, order, step)
            assert meaning(again) == meaning(model)


@some
@given(files(SPELLINGS[2:]))
def test_opened_file_is_rewritten_byte_for_byte(folder, content):
    source, out = folder / "in.gguf", folder / "out.gguf"
    source.write_bytes(content)
    with ggufkit.open(source) as model:
        ggufkit.write(model, out)
    assert out.read_bytes() == content


def with_end(model, *, padded):
    """Return the same model, with or without padding at the end of its file."""
    form = {"version": model.version, "byte_order": model.byte_order}
    return Model(model.metadata, model.tensors, **form, end_padded=padded)


@some
@given(files(SPELLINGS[2:]), st.integers(1, 4))
def test_split_and_merge_differ_only_by_the_keys_that_llama_cpp_leaves(
    folder, content, tensors_of_file
):
    source, out, plain = (folder / name for name in ("in.gguf", "out.gguf", "plain.gguf"))
    source.write_bytes(content)
    with ggufkit.open(source) as model:
        first, *others = ggufkit.write(model, folder / "set.gguf", shard_tensors=tensors_of_file)
        expected = {name: as_ggml_counts(tensor) for name, tensor in model.tensors.items()}
        is_split = bool(others)
        changed = model.replace(
            metadata=model.metadata.without(*SPLIT_KEYS, missing_ok=True) if is_split else None,
            tensors=expected.values() if is_split else None,
        )
        ggufkit.write(with_end(changed, padded=is_split or model.end_padded), plain)
    with ggufkit.open(first) as model:
        ggufkit.write(model, out)
    with ggufkit.open(out) as merged:
        assert merged.metadata.get("split.count") == (0 if is_split else None)
        metadata_left = merged.replace(
            metadata=merged.metadata.without(*SPLIT_KEYS, missing_ok=True) if is_split else None
        )
        ggufkit.write(with_end(metadata_left, padded=merged.end_padded), folder / "left.gguf")
    assert (folder / "left.gguf").read_bytes() == plain.read_bytes()


@st.composite
def matrices(draw):
    random = np.random.default_rng(draw(st.integers(0, 99)))
    shapes = draw(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3)), max_size=3))
    return {
        f"blk.{n}.ffn_down.weight": random.standard_normal((rows, 256 * blocks)).astype("f4")
        for n, (rows, blocks) in enumerate(shapes)
    }


@some
@given(
    matrices(),
    st.sampled_from(RECIPES),
    st.integers(1, 5),
    st.builds(chunks.Sizes, st.integers(1, 9999), st.integers(1, 9999)),
    st.integers(1, 9999),
    st.integers(1, 9999),
    st.booleans(),
)
def test_quantizing_in_any_pieces_gives_the_same_bytes(
    folder, arrays, recipe, threads, sizes, piece, tile, away
):
    source, out, other = (folder / name for name in ("in.gguf", "out.gguf", "other.gguf"))
    ggufkit.save(source, arrays, {"general.architecture": "llama"})
    with ggufkit.open(source) as model, ThreadPoolExecutor(threads) as pool:
        quantized = ggufkit.quantize(model, recipe)
        ggufkit.write(quantized, out, threads=1)
        cut = {"HERE": sizes, "AWAY": sizes}
        with (
            mock.patch.multiple("ggufkit.output.execute", **cut),
            mock.patch.multiple("ggufkit.output.chunks", **cut, PIECE=piece, TILE=tile),
        ):
            ggufkit.write(quantized, other, threads=threads, executor=pool if away else None)
    assert other.read_bytes() == out.read_bytes()


ADDED = ["added.one", "added.two", "added.three"]
NEW = st.one_of(
    st.text(max_size=300), st.integers(-99, 99), st.lists(st.text(max_size=9), min_size=1)
)


@some
@given(files(SPELLINGS[2:]), st.dictionaries(st.sampled_from(ADDED), NEW), st.integers(0, 3))
def test_undone_edit_restores_the_same_file(folder, content, values, left_out):
    path = folder / "edited.gguf"
    path.write_bytes(content)
    with ggufkit.open(path) as model:
        keys = [key for key in model.metadata if key != "general.alignment"]
    done = ggufkit.edit_in_place(path, set=values, drop_keys=keys[:left_out], force=True)
    assume(done.way != "nothing")
    assert path.read_bytes() != content
    ggufkit.undo(path)
    assert path.read_bytes() == content
