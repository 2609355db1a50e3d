"""The tensors of a model by name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ggufkit.errors import MissingTensorError, ShapeError, did_you_mean
from ggufkit.format.html import SHOWN_ROWS, table
from ggufkit.models.tensors.tensor import Tensor


class Tensors(Mapping[str, Tensor]):
    """The tensors of a model by name, in file order.

    Tensors of an opened file are created on access.
    """

    __slots__ = ("_by_name", "_make")
    _make: Callable[[int], Tensor]  # from the numbers that `lazy` stores instead of tensors

    def __init__(self, tensors: Iterable[Tensor] = ()) -> None:
        """Take tensors in order; a repeated name raises ShapeError."""
        self._by_name: dict[str, Tensor | int] = {}
        for tensor in tensors:
            if tensor.name in self._by_name:
                raise ShapeError(f"two tensors have the name {tensor.name!r}")
            self._by_name[tensor.name] = tensor

    @classmethod
    def lazy(cls, names: Iterable[str], make: Callable[[int], Tensor]) -> Tensors:
        """Return tensors with distinct `names`; `make` creates one from its number."""
        tensors = cls()
        tensors._by_name = {name: number for number, name in enumerate(names)}
        tensors._make = make
        return tensors

    def __getitem__(self, name: str) -> Tensor:
        """Return a tensor; an unknown name raises MissingTensorError with the nearest one."""
        try:
            entry = self._by_name[name]
        except KeyError:
            remedy = did_you_mean(str(name), self._by_name)
            raise MissingTensorError(f"the model has no tensor {name!r}", remedy=remedy) from None
        if isinstance(entry, Tensor):
            return entry
        tensor = self._by_name[name] = self._make(entry)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __repr__(self) -> str:
        return f"<{len(self)} tensors>"

    def __reduce__(self) -> tuple[type[Tensors], tuple[list[Tensor]]]:
        """Pickle the tensors, their files by path."""
        return Tensors, (list(self.values()),)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a dict of each tensor, as the tables of pandas and polars take them."""
        return [
            {
                "name": tensor.name,
                "type": tensor.type.name,
                "shape": list(tensor.shape),
                "elements": tensor.elements,
                "nbytes": tensor.nbytes,
                "offset": tensor.offset,
                "path": None if tensor.path is None else str(tensor.path),
            }
            for tensor in self.values()
        ]

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def _repr_html_(self) -> str:
        columns = ("name", "type", "shape", "nbytes")
        rows = [
            [tensor.name, tensor.type, tensor.shape, f"{tensor.nbytes:,}"]
            for tensor in itertools.islice(self.values(), SHOWN_ROWS)
        ]
        return table(columns, rows, len(self))
