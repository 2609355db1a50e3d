"""gguf-py's GGUFWriter, whose arrays of metadata are encoded in one step.

States, shards, temporary files and the `add_*` methods, a table of all keys, are the installed
gguf's: files are the same byte for byte, and the methods are the same.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import gguf.gguf_writer
from gguf.constants import GGUFEndian, GGUFValueType
from gguf.gguf_writer import GGUFWriter as InstalledWriter


class GGUFWriter(InstalledWriter):
    """A writer of GGUF files; the methods are the installed gguf-py's."""

    def _pack_val(self, val: Any, vtype: GGUFValueType, *args: Any, **options: Any) -> bytes:  # noqa: ANN401 (gguf-py's)
        """Return the bytes of a value; gguf-py packs an array's elements one by one."""
        sub_type = options.get("sub_type", args[1] if len(args) > 1 else None)
        if vtype != GGUFValueType.ARRAY or not isinstance(val, Sequence) or not len(val):
            return super()._pack_val(val, vtype, *args, **options)
        kind = _element_type(val, sub_type)
        mark = "<" if self.endianess == GGUFEndian.LITTLE else ">"
        code = self._simple_value_packing.get(kind) if kind is not None else None
        if code is not None:
            packed = struct.pack(f"{mark}{len(val)}{code}", *val)
        elif kind == GGUFValueType.STRING:
            count = struct.Struct(f"{mark}Q").pack
            texts = [value.encode() if isinstance(value, str) else value for value in val]
            packed = b"".join([part for text in texts for part in (count(len(text)), text)])
        else:
            return super()._pack_val(val, vtype, *args, **options)
        head = (
            struct.pack(f"{mark}I", vtype) if options.get("add_vtype", args[:1] == (True,)) else b""
        )
        return head + struct.pack(f"{mark}IQ", kind, len(val)) + packed


def _element_type(values: Sequence[Any], sub_type: GGUFValueType | None) -> GGUFValueType | None:
    """Return the type of all elements, None where gguf-py has an error for them."""
    if sub_type is not None:
        return sub_type
    if isinstance(values, bytes):
        return GGUFValueType.UINT8
    kinds = {GGUFValueType.get_type(value) for value in {type(v): v for v in values}.values()}
    return kinds.pop() if len(kinds) == 1 else None


def __getattr__(name: str) -> Any:  # noqa: ANN401 (as the language has it)
    """Return what else gguf-py has in this module."""
    return getattr(gguf.gguf_writer, name)
