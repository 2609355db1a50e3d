"""Check whether llama.cpp accepts the values of the architecture's keys.

Source: `load_hparams` in `llama-model.cpp`; most of these faults abort the whole program there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ggufkit.checks.known_tensors import known_tensors
from ggufkit.checks.model_view import ModelView, Violation, at_key
from ggufkit.checks.requirements import Requirements
from ggufkit.checks.tensor_requirements import MAX_BLOCKS, sizes

MAX_EXPERTS: Final = 1024  # llama.cpp's LLAMA_MAX_EXPERTS
ROPE_SCALINGS: Final = ("none", "linear", "yarn", "longrope")


def about_hyperparameters(view: ModelView, known: Requirements) -> Iterator[Violation]:
    """Check single numbers and names, and numbers that depend on each other."""
    yield from _about_limits(view)
    yield from _about_heads(view)
    yield from _about_experts(view)
    yield from _about_rope(view, known)
    key, value = sizes(view)[0]["head"], sizes(view)[0]["value_head"]
    if None not in (key, value) and key != value and known.has_equal_heads:
        yield at_key("head-lengths", view.own("attention.key_length"), keys=key, values=value)


def _about_limits(view: ModelView) -> Iterator[Violation]:
    blocks = view.number(view.own("block_count"))
    yield from _within(view, "block_count", blocks, (1, MAX_BLOCKS))
    yield from _within(view, "nextn_predict_layers", view.ahead, (0, blocks or 0))
    loads_ahead = any(".nextn." in name for name in known_tensors(view.architecture))
    if 0 < view.ahead <= (blocks or 0) and view.layers == blocks and not loads_ahead:
        yield from _within(view, "nextn_predict_layers", view.ahead, (0, 0))
    yield from _within(view, "expert_count", view.size("expert_count"), (0, MAX_EXPERTS))


def _within(
    view: ModelView, name: str, number: int | None, limits: tuple[int, int]
) -> Iterator[Violation]:
    least, most = limits
    if number is not None and not least <= number <= most:
        yield at_key("value-limit", view.own(name), number=number, least=least, most=most)


def _about_heads(view: ModelView) -> Iterator[Violation]:
    heads, kv = (view.number(view.own(f"attention.head_count{end}")) for end in ("", "_kv"))
    if heads and kv and heads % kv:
        yield at_key("head-count", view.own("attention.head_count_kv"), heads=heads, kv=kv)


def _about_experts(view: ModelView) -> Iterator[Violation]:
    used, experts = view.size("expert_used_count"), view.size("expert_count")
    if used is None or experts is None:
        return
    if used > experts or (experts and not used):
        yield at_key("expert-count", view.own("expert_used_count"), used=used, experts=experts)
    groups, active = (view.size(f"expert_group{name}_count") for name in ("", "_used"))
    if groups is None or active is None or not _is_wrong_grouping(experts, groups, active):
        return
    details = {"groups": groups, "used": active, "experts": experts}
    yield at_key("expert-groups", view.own("expert_group_count"), **details)


def _is_wrong_grouping(experts: int, groups: int, active: int) -> bool:
    if not experts or groups >= experts:
        return groups > 0
    return groups > 1 and (experts % groups > 0 or not 0 < active < groups)


def _about_rope(view: ModelView, known: Requirements) -> Iterator[Violation]:
    key = view.own("rope.scaling.type")
    scaling = view.metadata.get(key)
    if isinstance(scaling, str) and scaling not in ROPE_SCALINGS:
        yield at_key("rope-scaling", key, found=scaling, known=", ".join(ROPE_SCALINGS))
    key = view.own("rope.dimension_count")
    count, head = view.number(key), sizes(view)[0]["head"]
    if count is not None and head and count != head and known.rotates_whole_heads:
        yield at_key("rope-dimensions", key, count=count, head=head)
