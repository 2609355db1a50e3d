"""The settings of a release are checked before anything is made."""

from __future__ import annotations

import pytest

from ggufkit.errors import ValueTypeError
from ggufkit.release.settings import Settings


@pytest.mark.parametrize("rung", ["abcbpw", "nanbpw", "infbpw", "-1bpw", "1e400bpw", "bpw"])
def test_bits_that_are_no_number_are_refused(rung):
    with pytest.raises(ValueTypeError, match="not a number of bits"):
        Settings().target(rung)


def test_sizes_and_bits_are_targets():
    assert Settings().target("4.25bpw") == {"bpw": 4.25}
    assert Settings().target("3GiB") == {"nbytes": 3 << 30}
    assert Settings().target("Q4_K_M") is None
