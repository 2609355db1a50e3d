"""Image and video models are recognized by the names and shapes of their tensors."""

from __future__ import annotations

import pytest

from ggufkit.diffusion.architecture import (
    architecture_of,
    architectures,
    general_names,
    prefix_of,
    recognize,
)

KNOWN = architectures()


def shapes_of(stem: str, alternative: int = 0) -> dict[str, tuple[int, ...]]:
    """Return the names that recognize a model, with the lengths that it needs."""
    shapes = dict.fromkeys(KNOWN[stem].names[alternative], (8, 8))
    for name, axis, length in KNOWN[stem].shapes:
        shapes[name] = tuple(length if i == axis else size for i, size in enumerate((8, 8)))
    return shapes


@pytest.mark.parametrize(
    ("stem", "alternative"),
    [(stem, i) for stem, known in KNOWN.items() for i in range(len(known.names))],
)
def test_each_model_is_recognized_by_its_own_names(stem, alternative):
    architecture = recognize(shapes_of(stem, alternative))
    assert architecture is not None
    assert architecture.stem == stem


def test_models_with_the_names_of_another_differ_in_a_shape():
    qwen = {**shapes_of("mage_flow"), "txt_norm.weight": (3584, 8), "proj_out.weight": (64, 8)}
    assert recognize(qwen).stem == "qwen_image"
    assert recognize({**shapes_of("longcat"), "txt_in.weight": (8, 4096)}).stem == "flux"


def test_nothing_else_is_recognized():
    assert recognize({"blk.0.attn_q.weight": (8, 8)}) is None
    assert architecture_of("llama", {}) is None


def test_a_file_is_told_apart_from_others_of_its_architecture():
    assert architecture_of("lumina2", shapes_of("z_image")).stem == "z_image"
    assert architecture_of("lumina2", {}).stem == "lumina2"
    assert architecture_of("flux", shapes_of("wan")).stem == "flux"
    assert all(architecture_of(name, {}).architecture == name for name in general_names())


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (["model.diffusion_model.a", "first_stage_model.b"], "model.diffusion_model."),
        (["model.a", "b"], "model."),
        (["net.a", "net.b"], "net."),
        (["net.a", "b"], ""),
        (["model.model.transformer.a", "pretransform.b"], "model.model."),
    ],
)
def test_the_prefix_of_a_checkpoint_is_found(names, prefix):
    assert prefix_of(dict.fromkeys(names)) == prefix


@pytest.mark.parametrize("known", KNOWN.values(), ids=KNOWN)
def test_each_file_has_a_title_and_rules(known):
    assert known.title
    assert known.kept
    assert all(known.names)


def test_general_names_are_those_of_all_architectures():
    assert general_names() == {arch.architecture for arch in architectures().values()}
