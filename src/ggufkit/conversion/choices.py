"""What a user chooses about a conversion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ggufkit.conversion.tensors.storage_type import AUTO
from ggufkit.system.descriptors import AnyPath


@dataclass(frozen=True)
class Choices:
    """The choices of one conversion; `ggufkit.convert` explains each."""

    outtype: str = AUTO
    name: str | None = None
    overrides: Mapping[str, Any] | None = None
    pre: str | None = None
    arch_path: Sequence[Path] = ()
    vocab_only: bool = False
    fuse_qkv: bool = False
    fuse_gate_up_exps: bool = False
    fp8_as_q8: bool = False
    keep_quantized: bool = False
    dense_modules: bool = False
    mtp: bool | None = None
    target: AnyPath | None = None
    dspark: bool = False
    no_community_template: bool = False
    strict: bool = False
    exactly: bool = False

    @property
    def of_description(self) -> dict[str, Any]:
        """The arguments of `describe` that the user chooses."""
        return {"name": self.name, "overrides": self.overrides, "exactly": self.exactly}

    @property
    def keys(self) -> list[str]:
        """The metadata keys whose values the user gives."""
        values = {"general.name": self.name, "tokenizer.ggml.pre": self.pre}
        values |= self.overrides or {}
        return [key for key, value in values.items() if value is not None]
