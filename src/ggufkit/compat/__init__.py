"""gguf-py's names: programs that were written for gguf-py run on ggufkit.

`ggufkit.compat.gguf` stands in for the module `gguf`; `install` lets an installed gguf use it.
Nothing of ggufkit may import from here, and what gguf-py does not have is added elsewhere.
"""

from __future__ import annotations

from ggufkit.compat.patch import install, uninstall

__all__ = ["install", "uninstall"]
