"""Tensors of a file one at a time, as `safetensors.safe_open` gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ggufkit.frameworks.torch import load
from ggufkit.models.any_model import AnyModel, as_model
from ggufkit.models.model import Model, Tensor

if TYPE_CHECKING:
    import torch


class safe_open:  # noqa: N801 (so safetensors calls it)
    """Opens a model, of which `get_tensor` and `get_slice` read and decode only what they return.

    Use it as a context manager, as `safetensors.safe_open`: code written for that runs with a GGUF
    file. Tensors become `dtype` on `device`, as `load` gives them.
    """

    def __init__(
        self,
        model: AnyModel,
        framework: str = "pt",
        device: torch.device | str | int = "cpu",
        *,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Open the model; `framework` is safetensors' own argument, and "pt" its one value here."""
        self._model = as_model(model)
        self._is_own = self._model is not model
        self._options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.framework = framework

    def __enter__(self) -> safe_open:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the model if it was opened here."""
        if self._is_own:
            self._model.close()

    def keys(self) -> list[str]:
        """Return the names of the tensors, in the order of the file."""
        return list(self._model)

    def metadata(self) -> dict[str, Any]:
        """Return the metadata as plain Python."""
        return self._model.metadata.to_dict()

    def get_tensor(self, name: str) -> torch.Tensor:
        """Return a tensor; MissingTensorError (a KeyError) for an unknown name."""
        return _loaded(self._model, self._model[name], self._options)

    def get_slice(self, name: str) -> TensorSlice:
        """Return a tensor of which indexing reads only the rows of the first axis that it names."""
        return TensorSlice(self._model, self._model[name], self._options)


class TensorSlice:
    """A tensor that is read when it is indexed, as safetensors' `PySafeSlice`."""

    def __init__(self, model: Model, tensor: Tensor, options: dict[str, Any]) -> None:
        """Store what will be read."""
        self._model, self._tensor, self._options = model, tensor, options

    def get_shape(self) -> list[int]:
        """Return the shape."""
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """Return the name of the type in the file."""
        return self._tensor.type.name

    def __getitem__(self, index: Any) -> torch.Tensor:  # noqa: ANN401 (as torch takes it)
        """Return the elements of an index of torch."""
        first, *others = index if isinstance(index, tuple) else (index,)
        tensor = self._tensor
        if tensor.ndim > 1 and isinstance(first, int | slice):
            tensor = tensor[first]
            others = others if isinstance(first, int) else [slice(None), *others]
        else:
            others = [first, *others]
        return _loaded(self._model, tensor, self._options)[tuple(others)].contiguous()


def _loaded(model: Model, tensor: Tensor, options: dict[str, Any]) -> torch.Tensor:
    whole = model[tensor.name].shape == tensor.shape
    metadata = model.metadata if whole else {}  # which may give the whole tensor another shape
    return load(model.replace(metadata=metadata, tensors=[tensor]), **options)[tensor.name]
