"""transformers: `load` a model from a GGUF file, `save` a live one, `compute_imatrix` of one."""

from typing import TYPE_CHECKING, Any

from ggufkit.frameworks.live.compute_imatrix import compute_imatrix
from ggufkit.frameworks.live.save import save
from ggufkit.frameworks.transformers import LoadedModel, load

if TYPE_CHECKING:
    from ggufkit.frameworks.live.trainer_callback import GGUFCallback

__all__ = ["GGUFCallback", "LoadedModel", "compute_imatrix", "load", "save"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (as the language has it)
    """Import what needs transformers when it is used."""
    if name == "GGUFCallback":
        from ggufkit.frameworks.live.trainer_callback import GGUFCallback  # noqa: PLC0415 (it imports transformers)

        return GGUFCallback
    message = f"module 'ggufkit.transformers' has no attribute {name!r}"
    raise AttributeError(message)
