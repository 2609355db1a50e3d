"""No content of a file makes ggufkit raise anything except its own typed errors."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forge
import ggufkit
from forging import unusual
from forging.builder import Q8_0, Forge, tensor
from ggufkit.errors import FormatError, GGUFError, NotGGUFError, ShardError, TruncatedError
from ggufkit.rules.rules import all_rules

CASES = forge.corpus()

# What the promise names, and the forged cases that hold us to it (test_forge judges each).
PROMISED = {
    "wrong magic": "magic-*",
    "unknown version": "version-[0-9]*",
    "byte-swapped version": "version-swapped-alone",
    "lying tensor count": "tensor-count-2p*",
    "lying pair count": "pair-count-*",
    "lying key length": "key-length-*",
    "lying string length": "string-length-*",
    "lying length of an item": "item-length-*",
    "lying name length": "name-length-*",
    "lying array count": "array-count-*",
    "array size that wraps": "array-size-wraps-*",
    "lying dimension": "dims-2p*",
    "product of dimensions that wraps": "dims-product-*",
    "lying number of dimensions": "dims-count-*",
    "lying size": "size-*",
    "lying offset": "offset-*",
    "offset that wraps into the header": "offset-wraps-into-the-header",
    "unknown value type": "value-type-*",
    "unknown element type of an empty array": "element-type-*-of-nothing",
    "truncation": "cut-*",
    "duplicate key": "key-twice*",
    "duplicate name": "name-twice",
    "empty key": "key-empty",
    "empty name": "name-empty",
    "NUL in a key": "key-nul",
    "NUL in a name": "name-nul",
    "names equal up to a NUL": "names-equal-up-to-nul",
    "alignment 0": "alignment-0",
    "odd alignment": "alignment-3",
    "alignment that is no uint32": "alignment-as-*",
    "alignment overflow": "alignment-overflow",
    "bad bool": "bool-*",
    "bad UTF-8 in a key": "key-utf8-*",
    "bad UTF-8 in a name": "name-utf8-*",
    "tensor beyond the end": "offset-2p63",
    "overlapping tensors": "offset-of-another",
    "deep nesting": "arrays-nested-100000",
    "zero dimensions beside huge ones": "dims-zero-*",
    "CVE-2024-21825": "cve-2024-21825",
    "CVE-2024-21836": "cve-2024-21836",
    "CVE-2024-23496": "cve-2024-23496",
    "CVE-2024-23605": "cve-2024-23605",
    "CVE-2025-53630": "cve-2025-53630",
    "CVE-2026-27940": "cve-2026-27940",
    "CVE-2026-33298": "cve-2026-33298",
}
# Valid by the specification, so that llama.cpp alone refuses them.
TAKEN = {
    "unknown tensor type": "type-4[0-9]",
    "type that narrows to a known one": "type-264",
    "block size 0 of a removed type": "type-*-removed",
    "zero dimensions": "zero-dim-*",
    "CVE-2024-21802": "cve-2024-21802",
}


@pytest.mark.parametrize("pattern", PROMISED.values(), ids=PROMISED)
def test_every_documented_refusal_has_cases(pattern):
    verdicts = {CASES[name].verdict for name in fnmatch.filter(CASES, pattern)}
    assert verdicts == {"refuse"}


@pytest.mark.parametrize("pattern", TAKEN.values(), ids=TAKEN)
def test_every_refusal_of_llama_cpp_alone_has_cases(pattern):
    verdicts = {CASES[name].verdict for name in fnmatch.filter(CASES, pattern)}
    assert verdicts <= {"warn", "accept"}
    assert verdicts


# Errors.


def test_callers_can_catch_errors_of_bad_input():
    for rule in all_rules().values():
        assert issubclass(rule.error, (FormatError, GGUFError, ValueError))
    assert issubclass(TruncatedError, EOFError)
    assert issubclass(ShardError, FormatError)
    assert issubclass(NotGGUFError, FormatError)


def test_error_names_file_offset_expectation_and_remedy(tmp_path):
    path = forge.write(CASES["offset-33"], tmp_path)
    with pytest.raises(FormatError) as caught:
        ggufkit.open(path)
    assert str(caught.value) == (
        f"{path}: the tensor 'a' starts at 33 in the data, not at a multiple of 32 (at byte "
        f"{caught.value.offset}). The file is damaged or its writer is broken; download it again, "
        "or convert the checkpoint again"
    )


def test_text_in_a_file_cannot_control_the_terminal(tmp_path):
    content = Forge(infos=[tensor("\x1b[2J\x07\u202e", 4)] * 2).build()
    path = tmp_path / "\x1b[31m.gguf"
    path.write_bytes(content)
    with pytest.raises(FormatError) as caught:
        ggufkit.open(path)
    assert str(caught.value).isprintable()
    assert r"'\x1b[2J\x07\u202e'" in str(caught.value)
    assert r"\x1b[31m.gguf" in str(caught.value)


# A real download.


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_error_for_a_truncated_real_model_says_how_much_is_missing(smollm2, tmp_path, share):
    size = smollm2.stat().st_size
    size_of_cut = int(size * share)
    path = tmp_path / "cut.gguf"
    with smollm2.open("rb") as whole, path.open("wb") as cut:
        cut.write(whole.read(min(2**24, size_of_cut)))
        cut.truncate(size_of_cut)
    with pytest.raises(TruncatedError) as caught:
        ggufkit.open(path)
    assert (
        f"it has {size_of_cut} bytes, its tensors need {size}; {size - size_of_cut} bytes"
        in str(caught.value)
    )
    assert [finding.rule for finding in ggufkit.check(path)] == ["data-truncated"]


def test_download_cut_inside_the_header_is_called_truncated(smollm2, tmp_path):
    path = tmp_path / "cut.gguf"
    with smollm2.open("rb") as whole:
        path.write_bytes(whole.read(100_000))
    with pytest.raises(TruncatedError):
        ggufkit.open(path)


# Anything at all.

RICH = Forge(
    pairs=(*unusual.every_type(), unusual.nested_text(), unusual.nested(5)),
    infos=(tensor("a", 8, 2), tensor("b", 64, type=Q8_0), tensor("c", 5, type=24)),
)
SEEDS = [RICH.build(), Forge(version=1, mark=">", pairs=RICH.pairs, infos=RICH.infos).build()]
EDITS = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from([1, 4, 8]), st.integers(0)),
    max_size=5,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged") / "model.gguf"


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(SEEDS), EDITS, st.floats(0.2, 1))
def test_damaged_file_opens_and_reads_or_raises_a_typed_error(path, seed, edits, share):
    content = bytearray(seed[: int(len(seed) * share)])
    for place, size, value in edits:
        offset = int(place * len(content))
        content[offset : offset + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
    path.write_bytes(content)
    if any(finding.severity == "error" for finding in ggufkit.check(path)):
        with pytest.raises(FormatError) as caught:
            ggufkit.open(path)
        assert caught.value.rule in all_rules()
    else:
        read_everything(ggufkit.open(path))


def read_everything(model: ggufkit.Model) -> None:
    """Decode all values and tensors; only an unknown type may raise an error."""
    with model:
        for key, value in model.metadata.items():
            assert model.metadata.type_name(key)
            if not isinstance(value, str | bool | int | float):
                value.tolist()
        for tensor in model.tensors.values():
            assert tensor.raw().nbytes == tensor.nbytes
            if not tensor.type.is_opaque:
                assert tensor.numpy().shape == tensor.shape
        ggufkit.write(model, Path(model.files[0].path).with_name("again.gguf"), byte_order="little")
