"""Patterns translate the names of diffusers to the publisher's."""

from __future__ import annotations

import pytest

from ggufkit.diffusion.diffusers_names import diffusers_names, shape_of

NAMES = diffusers_names(
    {
        "names": [["first", "second"]],
        "parts": {"*.inner.": "*.outer."},
        "joined": {"blocks.{a}.qkv.": ["blocks.{a}.q.", "blocks.{a}.k."]},
        "renamed": {
            "down.{a}.{b}.": "input.{3a+b+1}.0.",
            "blocks.{a}.norm2.": "blocks.{a}.norm3.",
            "blocks.{a}.norm3.": "blocks.{a}.norm2.",
            "whole": "all",
        },
        "swapped": ["out."],
        "swapped_last": ["blocks.{a}.mod."],
        "shapes": {"*.table": [1, -1]},
    }
)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("down.2.1.weight", ("input.8.0.weight", 0, 1)),
        ("blocks.10.norm2.bias", ("blocks.10.norm3.bias", 0, 1)),
        ("blocks.10.norm3.bias", ("blocks.10.norm2.bias", 0, 1)),
        ("blocks.3.k.weight", ("blocks.3.qkv.weight", 1, 2)),
        ("down.0.0.inner.weight", ("input.1.0.outer.weight", 0, 1)),
        ("whole", ("all", 0, 1)),
        ("whole.weight", None),
        ("down.2.x.weight", None),
        ("down.99999.1.weight", None),
        ("unknown", None),
    ],
)
def test_a_name_goes_to_its_place(name, published):
    assert NAMES.place(name) == published


@pytest.mark.parametrize(
    ("name", "sources"),
    [
        ("input.8.0.weight", ("down.2.1.weight",)),
        ("blocks.10.norm3.bias", ("blocks.10.norm2.bias",)),
        ("blocks.3.qkv.weight", ("blocks.3.q.weight", "blocks.3.k.weight")),
        ("input.1.0.outer.weight", ("down.0.0.inner.weight",)),
        ("all", ("whole",)),
        ("input.0.0.weight", ()),
        ("unknown", ()),
        ("n" * 2000, ()),
    ],
)
def test_a_published_tensor_has_its_names_of_diffusers(name, sources):
    assert NAMES.sources(name) == sources


def test_the_last_block_alone_is_swapped():
    assert NAMES.is_swapped("out.weight", {})
    assert NAMES.is_swapped("blocks.4.mod.bias", {"blocks": 4})
    assert not NAMES.is_swapped("blocks.3.mod.bias", {"blocks": 4})


def test_shapes_follow_the_publishers_names():
    assert shape_of("blocks.0.table", NAMES.shapes) == [1, -1]
    assert shape_of("blocks.0.weight", NAMES.shapes) is None


def test_a_model_is_recognized_by_all_names_of_a_row():
    assert NAMES.matched({"first": 0, "second": 0}) == 2
    assert NAMES.matched({"first": 0}) == 0
