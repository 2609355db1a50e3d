"""A header with new metadata fits in place of the old one, or grows by whole steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spelled
from ggufkit.edits.header_slack import refit, visible
from ggufkit.format.header import parse
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import RESERVED_KEY, padded
from spelled import SpelledTensor, Spelling

TENSORS = [SpelledTensor("a", (3,), 0, b"\x01" * 12), SpelledTensor("b", (5, 2), 0, b"\x02" * 40)]
STEP = 512
VERSION_3 = Spelling()


def header(pairs, alignment=32, tensors=TENSORS, spelling=VERSION_3):
    known = [*pairs, ("general.alignment", ("uint32", alignment))]
    data = spelling.file(known, tensors, alignment)
    parsed = parse(data, len(data))
    return parsed, data


def put(data, parsed, metadata, **options):
    """Return the file with its header changed, and the new header as read back."""
    new = refit(parsed, data[: parsed.data_offset], metadata, step=STEP, **options)
    changed = new + data[parsed.data_offset :]
    return changed, new, parse(changed, len(changed))


@given(
    st.sampled_from(spelled.SPELLINGS),
    st.sampled_from([8, 16, 32, 64, 1024]),
    spelled.metadata,
    spelled.metadata,
    st.sampled_from([None, 1, 100]),
)
def test_replaces_the_header_and_keeps_every_tensor(spelling, alignment, before, after, reserve):
    parsed, data = header(before, alignment, spelling=spelling)
    wanted, _ = header(after, alignment, spelling=spelling)
    changed, new, found = put(data, parsed, wanted.metadata, reserve=reserve)
    assert found.data_offset == len(new)
    assert (len(new) - parsed.data_offset) % max(STEP, alignment) == 0
    assert visible(found.metadata) == visible(wanted.metadata)
    assert found.places.infos.names == ["a", "b"]
    assert found.places.starts == parsed.places.starts
    for start, info in zip(found.places.starts, TENSORS, strict=True):
        assert changed[len(new) + start :].startswith(info.data)
    rules = {each.rule for each in found.findings}
    assert rules <= {each.rule for each in (*parsed.findings, *wanted.findings)}
    if reserve:
        assert len(found.metadata[RESERVED_KEY]) >= reserve


@given(st.integers(0, 200), st.integers(0, 200), st.sampled_from([8, 16, 32, 64]))
def test_text_of_any_length_fits_where_possible(long, short, alignment):
    parsed, data = header([("text", ("string", "x" * long))], alignment)
    metadata = parsed.metadata.updated({"text": "y" * short})
    _, new, found = put(data, parsed, metadata)
    assert found.metadata["text"] == "y" * short
    left = parsed.data_offset - padded(parsed.end + short - long, alignment)
    if left >= 40 or left == 0:  # an array fills what is left, or nothing has to
        assert len(new) == parsed.data_offset
    if left == 0:
        assert RESERVED_KEY not in found.metadata


def test_uses_up_slack_before_moving_anything():
    parsed, data = header([])
    roomy, _, found = put(data, parsed, parsed.metadata, reserve=1000)
    assert len(found.metadata[RESERVED_KEY]) >= 1000
    metadata = found.metadata.updated({"text": "x" * 900})
    _, new, again = put(roomy, found, metadata)
    assert len(new) == found.data_offset
    assert len(again.metadata[RESERVED_KEY]) < 1000
    assert list(again.metadata)[-1] == RESERVED_KEY


@pytest.mark.parametrize("padding", [True, False])
def test_file_without_tensors_has_a_header_of_any_size(padding):
    parsed, data = header([], tensors=[])
    if not padding:
        data = data[: parsed.end]
        parsed = parse(data, len(data))
    metadata = parsed.metadata.updated({"a": 1})
    changed, new, found = put(data, parsed, metadata)
    assert found.metadata == metadata
    assert changed == new
    assert len(new) == (padded(found.end, 32) if padding else found.end)
    _, _, roomy = put(data, parsed, Metadata(metadata), reserve=77)
    assert len(roomy.metadata[RESERVED_KEY]) == 77
