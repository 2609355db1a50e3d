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
    reference, _ = header(after, alignment, spelling=spelling)
    changed, new, written = put(data, parsed, reference.metadata, reserve=reserve)
    assert written.data_offset == len(new)
    assert (len(new) - parsed.data_offset) % max(STEP, alignment) == 0
    assert visible(written.metadata) == visible(reference.metadata)
    assert written.places.infos.names == ["a", "b"]
    assert written.places.starts == parsed.places.starts
    for start, info in zip(written.places.starts, TENSORS, strict=True):
        assert changed[len(new) + start :].startswith(info.data)
    rules = {finding.rule for finding in written.findings}
    assert rules <= {finding.rule for finding in (*parsed.findings, *reference.findings)}
    if reserve:
        assert len(written.metadata[RESERVED_KEY]) >= reserve


@given(st.integers(0, 200), st.integers(0, 200), st.sampled_from([8, 16, 32, 64]))
def test_text_of_any_length_fits_where_possible(long, short, alignment):
    parsed, data = header([("text", ("string", "x" * long))], alignment)
    metadata = parsed.metadata.updated({"text": "y" * short})
    _, new, written = put(data, parsed, metadata)
    assert written.metadata["text"] == "y" * short
    slack = parsed.data_offset - padded(parsed.end + short - long, alignment)
    if slack >= 40 or slack == 0:  # an array fills what is left, or nothing has to
        assert len(new) == parsed.data_offset
    if slack == 0:
        assert RESERVED_KEY not in written.metadata


def test_uses_up_slack_before_moving_anything():
    parsed, data = header([])
    roomy, _, written = put(data, parsed, parsed.metadata, reserve=1000)
    assert len(written.metadata[RESERVED_KEY]) >= 1000
    metadata = written.metadata.updated({"text": "x" * 900})
    _, new, again = put(roomy, written, metadata)
    assert len(new) == written.data_offset
    assert len(again.metadata[RESERVED_KEY]) < 1000
    assert list(again.metadata)[-1] == RESERVED_KEY


@pytest.mark.parametrize("padding", [True, False])
def test_file_without_tensors_has_a_header_of_any_size(padding):
    parsed, data = header([], tensors=[])
    if not padding:
        data = data[: parsed.end]
        parsed = parse(data, len(data))
    metadata = parsed.metadata.updated({"a": 1})
    changed, new, written = put(data, parsed, metadata)
    assert written.metadata == metadata
    assert changed == new
    assert len(new) == (padded(written.end, 32) if padding else written.end)
    _, _, roomy = put(data, parsed, Metadata(metadata), reserve=77)
    assert len(roomy.metadata[RESERVED_KEY]) == 77
