"""Lookup tables of types, compared with checksums of the tables in ggml."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import oracle
from ggufkit import quants
from ggufkit.format.types import tensor_type

# SHA-256 of the bytes of each table of `ggml/src/ggml-common.h` in llama.cpp of October 2026.
DIGESTS = {
    "ksigns_iq2xs": "a76742a603f8beca5212ecce0f1f02f11a4887fd2f7c8b15aca0ea3eb3380c31",
    "iq2xxs_grid": "05826b5d3e472a3a78f196be62ac78acf81df0f909626e12ab9fa2a5d490dd54",
    "iq2xs_grid": "06e47aaca60b4dc1d9b5a3f34540437058a6b142b4d7a59d5ded769b4d1bf1de",
    "iq2s_grid": "e1aa1473412b0552c2174c30ef22ab4073f6a181b85a17056e8249bd2932fd88",
    "iq3xxs_grid": "46e35f5a997efdee6c99ce57854c8a0d4f0ff8ca57e5e8a60c0793ea580acf5d",
    "iq3s_grid": "bd1af4945a1717c65610b0284e4628b9a1ba3b306fae3a06f6e5f597356e349f",
    "iq1s_grid": "07540ffc1aeaf6ad4d97e96b0fcc765aae39671d4ae4a27bbd0e796fde167c6a",
    "kvalues_iq4nl": "61aa47540aa024b5d6ddaa839b84ffe59f3d5a349af5c6c7ffcb5e0474b46163",
    "kvalues_fp4": "adf76b672d47eb7fc0afd4db132d548d59d3190aa0ad118fdbf569d5fd478f97",
}


def blocks(name, count, scale):
    """Return blocks of zeros that begin with a scale."""
    packed = np.zeros((count, tensor_type(name).block_bytes), np.uint8)
    packed[:, :2].view(np.float16)[:] = scale
    return packed


def put_low_bytes(packed, points):
    """Number so many points a block; put low bytes behind the scales, and return what is higher."""
    indices = np.arange(len(packed) * points).reshape(len(packed), points)
    packed[:, 2 : 2 + points] = indices & 255
    return indices >> 8


def joined(parts, bits, count):
    """Return numbers of so many bits, `count` as one, the first lowest."""
    return (parts.reshape(*parts.shape[:-1], -1, count) << np.arange(0, bits * count, bits)).sum(-1)


def iq2_xxs():
    """A scale of 8 counts as one: half a quarter of it is taken."""
    packed = blocks("IQ2_XXS", 8, 8)
    packed[:, 2:].reshape(8, 8, 8)[:, :, :4] = np.arange(256).reshape(8, 8, 4)
    return packed


def iq2_xxs_signs():
    """Seven bits for eight signs of the first point, all of whose levels are the same."""
    packed = blocks("IQ2_XXS", 4, 1)
    signs = joined(np.arange(128).reshape(4, 32), 7, 4)
    packed[:, 2:].view("<u4").reshape(4, 8, 2)[:, :, 1] = signs
    return packed


def iq2_xs():
    """Nine bits of a number of sixteen are an index."""
    packed = blocks("IQ2_XS", 16, 8)
    packed[:, 2:66].view("<u2")[:] = np.arange(512).reshape(16, 32)
    return packed


def iq2_s():
    """The high two bits of ten are apart."""
    packed = blocks("IQ2_S", 32, 8)
    packed[:, 66:74] = joined(put_low_bytes(packed, 32), 2, 4)
    return packed


def iq3_xxs():
    """A scale of 4 counts as one: half of a half is taken."""
    packed = blocks("IQ3_XXS", 4, 4)
    put_low_bytes(packed, 64)
    return packed


def iq3_s():
    """The highest bit of nine is apart."""
    packed = blocks("IQ3_S", 8, 1)
    packed[:, 66:74] = joined(put_low_bytes(packed, 64), 1, 8)
    return packed


def iq1_s():
    """The high three bits of eleven are apart."""
    packed = blocks("IQ1_S", 64, 1)
    packed[:, 34:].view("<u2")[:] = joined(put_low_bytes(packed, 32), 3, 4)
    return packed


def sixteen(name, scale):
    """All levels of four bits, the low ones of bytes."""
    packed = np.zeros((1, tensor_type(name).block_bytes), np.uint8)
    packed[0, : len(scale)] = list(scale)
    packed[0, len(scale) : len(scale) + 16] = np.arange(16)
    return packed


def as_levels(x):
    return x.astype(np.int8)


# Per table: blocks of which type look up all its entries in turn, and the entries in what decodes.
LOOK_UPS = {
    "ksigns_iq2xs": ("IQ2_XXS", iq2_xxs_signs(), lambda x: np.packbits(x < 0, bitorder="little")),
    "iq2xxs_grid": ("IQ2_XXS", iq2_xxs(), as_levels),
    "iq2xs_grid": ("IQ2_XS", iq2_xs(), as_levels),
    "iq2s_grid": ("IQ2_S", iq2_s(), as_levels),
    "iq3xxs_grid": ("IQ3_XXS", iq3_xxs(), as_levels),
    "iq3s_grid": ("IQ3_S", iq3_s(), as_levels),
    "iq1s_grid": ("IQ1_S", iq1_s(), lambda x: as_levels(x - 0.125)),  # which decoding adds
    "kvalues_iq4nl": ("IQ4_NL", sixteen("IQ4_NL", b"\0\x3c"), lambda x: as_levels(x[:, :16])),
    "kvalues_fp4": ("MXFP4", sixteen("MXFP4", b"\x80"), lambda x: as_levels(x[:, :16])),
}


def digest(table, decode):
    name, packed, entries = LOOK_UPS[table]
    return hashlib.sha256(entries(decode(packed, name)).tobytes()).hexdigest()


@pytest.mark.parametrize("isa", quants.instruction_sets())
@pytest.mark.parametrize("table", DIGESTS)
def test_tables_have_the_same_checksums_as_in_ggml(table, isa, monkeypatch):
    monkeypatch.setenv("GGUFKIT_ISA", isa)
    assert digest(table, quants.decode_rows) == DIGESTS[table]


@pytest.mark.real
@pytest.mark.parametrize("table", DIGESTS)
def test_tables_with_these_checksums_match_what_ggml_decodes(table):
    def decode(packed, name):
        return oracle.decode("llama.cpp", packed, tensor_type(name))

    assert digest(table, decode) == DIGESTS[table]
