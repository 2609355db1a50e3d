"""Check whether llama.cpp accepts the values of the architecture's keys.

Source: `load_hparams` in `llama-model.cpp`; most of these faults abort the whole program there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ggufkit.checks.demands import Demands
from ggufkit.checks.known_tensors import known_tensors
from ggufkit.checks.subject import Broken, Subject, at_key
from ggufkit.checks.tensor_demands import MAX_BLOCKS, sizes

MAX_EXPERTS: Final = 1024  # llama.cpp's LLAMA_MAX_EXPERTS
ROPE_SCALINGS: Final = ("none", "linear", "yarn", "longrope")


def about_hyperparameters(seen: Subject, known: Demands) -> Iterator[Broken]:
    """Check single numbers and names, and numbers that depend on each other."""
    yield from _about_limits(seen)
    yield from _about_heads(seen)
    yield from _about_experts(seen)
    yield from _about_rope(seen, known)
    key, value = sizes(seen)[0]["head"], sizes(seen)[0]["value_head"]
    if None not in (key, value) and key != value and known.has_equal_heads:
        yield at_key("head-lengths", seen.own("attention.key_length"), keys=key, values=value)


def _about_limits(seen: Subject) -> Iterator[Broken]:
    blocks = seen.number(seen.own("block_count"))
    yield from _within(seen, "block_count", blocks, (1, MAX_BLOCKS))
    yield from _within(seen, "nextn_predict_layers", seen.ahead, (0, blocks or 0))
    loads_ahead = any(".nextn." in name for name in known_tensors(seen.architecture))
    if 0 < seen.ahead <= (blocks or 0) and seen.layers == blocks and not loads_ahead:
        yield from _within(seen, "nextn_predict_layers", seen.ahead, (0, 0))
    yield from _within(seen, "expert_count", seen.size("expert_count"), (0, MAX_EXPERTS))


def _within(
    seen: Subject, name: str, number: int | None, limits: tuple[int, int]
) -> Iterator[Broken]:
    least, most = limits
    if number is not None and not least <= number <= most:
        yield at_key("value-limit", seen.own(name), number=number, least=least, most=most)


def _about_heads(seen: Subject) -> Iterator[Broken]:
    heads, kv = (seen.number(seen.own(f"attention.head_count{end}")) for end in ("", "_kv"))
    if heads and kv and heads % kv:
        yield at_key("head-count", seen.own("attention.head_count_kv"), heads=heads, kv=kv)


def _about_experts(seen: Subject) -> Iterator[Broken]:
    used, experts = seen.size("expert_used_count"), seen.size("expert_count")
    if used is None or experts is None:
        return
    if used > experts or (experts and not used):
        yield at_key("expert-count", seen.own("expert_used_count"), used=used, experts=experts)
    groups, active = (seen.size(f"expert_group{name}_count") for name in ("", "_used"))
    if groups is None or active is None or not _is_wrong_grouping(experts, groups, active):
        return
    found = {"groups": groups, "used": active, "experts": experts}
    yield at_key("expert-groups", seen.own("expert_group_count"), **found)


def _is_wrong_grouping(experts: int, groups: int, active: int) -> bool:
    if not experts or groups >= experts:
        return groups > 0
    return groups > 1 and (experts % groups > 0 or not 0 < active < groups)


def _about_rope(seen: Subject, known: Demands) -> Iterator[Broken]:
    key = seen.own("rope.scaling.type")
    found = seen.metadata.get(key)
    if isinstance(found, str) and found not in ROPE_SCALINGS:
        yield at_key("rope-scaling", key, found=found, known=", ".join(ROPE_SCALINGS))
    key = seen.own("rope.dimension_count")
    count, head = seen.number(key), sizes(seen)[0]["head"]
    if count is not None and head and count != head and known.rotates_whole_heads:
        yield at_key("rope-dimensions", key, count=count, head=head)
