"""A ReaderField of gguf-py whose lists of arrays are made only when a program asks for them.

gguf-py makes one or two arrays of each token of a vocabulary while it opens a file. Here a field
knows where its bytes are. `contents()` decodes them in one step; `parts` and `data` are made of
them on first access, and are then the same lists as gguf-py's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from ggufkit.compat.gguf.field_bytes import FieldBytes, Part
from ggufkit.compat.gguf.installed import ReaderField


class LazyField(ReaderField):
    """A field of a file: `parts` and `data` are made when first asked for."""

    source: FieldBytes

    @classmethod
    def over(cls, source: FieldBytes) -> LazyField:
        """Make the field whose bytes `source` knows."""
        field = cls.__new__(cls, source.offset, source.name, [], [], source.types)
        field.source = source
        return field

    @property
    def parts(self) -> list[Part]:
        """The arrays of the field's bytes."""
        return self.source.lists.parts

    @property
    def data(self) -> list[int]:
        """The numbers of the parts that hold the value."""
        return self.source.lists.data

    def contents(self, index_or_slice: int | slice = slice(None)) -> Any:  # noqa: ANN401 (gguf-py's)
        """Return the value; of an array also a part."""
        are_made = "lists" in vars(self.source)  # a program may have changed bytes through them
        found = None if are_made else self.source.elements()
        return super().contents(index_or_slice) if found is None else found[index_or_slice]

    # A tuple's own methods would show the empty lists that stand where lists will be.

    def _whole(self) -> tuple[Any, ...]:
        return (self.offset, self.name, self.parts, self.data, self.types)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the five members."""
        return iter(self._whole())

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 (as of a tuple)
        """Return a member by its number."""
        return self._whole()[index]

    def __eq__(self, other: object) -> bool:
        """Compare as tuples do."""
        return self is other or (isinstance(other, tuple) and self._whole() == tuple(other))

    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Show the five members."""
        return repr(ReaderField(*self._whole()))

    def __reduce__(self) -> tuple[Callable[..., ReaderField], tuple[Any, ...]]:
        """Pickle as a field of arrays in memory."""
        return ReaderField, self._whole()
