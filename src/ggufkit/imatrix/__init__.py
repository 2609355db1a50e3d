"""Importance matrices: read, merge, describe, compute with llama.cpp.

The public names of `ggufkit.imatrix` are below. How quantization uses the data belongs in
`quantization`.
"""

from __future__ import annotations

from ggufkit.imatrix.matrix import Entry, Imatrix, merge

__all__ = ["Entry", "Imatrix", "merge"]
