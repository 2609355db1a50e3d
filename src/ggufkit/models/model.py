"""The lazy model: metadata and ordered tensors; tensor data is read when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ggufkit.format.encoding import ByteOrder
from ggufkit.format.html import definitions
from ggufkit.format.metadata import Metadata, alignment_of
from ggufkit.models.rows import AnyFile
from ggufkit.models.tensors.collection import Tensors
from ggufkit.models.tensors.tensor import Tensor
from ggufkit.models.verbs import ModelVerbs
from ggufkit.rules.findings import Finding
from ggufkit.system.readers_limit import NO_LIMIT, ReadersLimit

__all__ = ["Model", "ModelFile", "Tensor", "Tensors", "as_ggml_counts", "bits_per_weight"]

_FIXED: Final = ("metadata", "tensors", "version", "byte_order", "files", "end_padded")
PROJECTOR: Final = "clip"  # the architecture of all multimodal projectors
Reduced = tuple[Callable[..., Any], tuple[Any, ...]]  # what `__reduce__` returns


@dataclass(frozen=True)
class ModelFile:
    """The layout of one file of a model: sizes and offsets in bytes."""

    path: Path
    nbytes: int
    data_offset: int
    data_nbytes: int


class Model(ModelVerbs, Mapping[str, Tensor]):
    """A model: metadata, tensors, and its layout in files.

    Models are values: `replace` and the verbs (`edit`, `quantize`, `select`) return a changed one,
    and no operation reads tensor data. A model is a mapping of names to tensors: `model[name]`,
    `len(model)`, `model.items()`. It is true without tensors too, and equals only itself. `files`
    is empty for a model that was not opened from files. A model can be used as a context manager;
    after `close` its tensor data can no longer be read, but its metadata can.
    """

    def __init__(  # noqa: PLR0913 (what a file says of itself)
        self,
        metadata: Metadata,
        tensors: Tensors,
        *,
        version: int = 3,
        byte_order: ByteOrder = "little",
        files: tuple[ModelFile, ...] = (),
        end_padded: bool = True,
    ) -> None:
        """Store the parts unchecked; `open` and `model` make models."""
        self.metadata: Final = metadata
        self.tensors: Final = tensors
        self.version: Final = version
        self.byte_order: Final[ByteOrder] = byte_order
        self.files: Final = files
        self.end_padded: Final = end_padded  # ggml pads the end of a file; some writers do not
        self.inputs: tuple[AnyFile, ...] = ()
        self._limit = NO_LIMIT
        self.missing: tuple[Finding, ...] = ()  # what `open(partial=True)` did not find
        self._owned: tuple[AnyFile, ...] = ()  # closed by `close`
        self._reduced: Reduced | None = None

    @property
    def architecture(self) -> str:
        """The architecture that the metadata names, empty if there is none."""
        architecture = self.metadata.get("general.architecture")
        return architecture if isinstance(architecture, str) else ""

    @property
    def parameters(self) -> int:
        """Number of elements of all tensors."""
        return sum(tensor.elements for tensor in self.tensors.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, without padding."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def path(self) -> Path | None:
        """The (first) file, None for a model that was not opened from files."""
        return self.files[0].path if self.files else None

    @property
    def alignment(self) -> int:
        """Tensor alignment in bytes: general.alignment, 32 if absent."""
        return alignment_of(self.metadata)

    @property
    def data_offset(self) -> int:
        """Where tensor data begins in the (first) file, 0 for a model without files."""
        return self.files[0].data_offset if self.files else 0

    @property
    def data_nbytes(self) -> int:
        """Bytes from the beginning of tensor data to the end, all files together."""
        return sum(file.data_nbytes for file in self.files)

    def __getitem__(self, name: str) -> Tensor:
        """Return a tensor; MissingTensorError (a KeyError) for an unknown name."""
        return self.tensors[name]

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __bool__(self) -> bool:
        """Return true: a model without tensors is also a model."""
        return True

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse to change what a file says: AttributeError with the remedy."""
        if name in _FIXED and name in self.__dict__:
            remedy = "model.replace(...) returns a model with other metadata or tensors"
            message = f"`{name}` of a model cannot be set. {remedy}"
            raise AttributeError(message)
        super().__setattr__(name, value)

    def replace(
        self,
        *,
        metadata: Mapping[str, object] | None = None,
        tensors: Iterable[Tensor] | None = None,
    ) -> Model:
        """Return the same model with other metadata or tensors, without files.

        Closing it does not close this model.
        """
        return Model(
            self.metadata if metadata is None else Metadata(metadata),
            self.tensors if tensors is None else Tensors(tensors),
            version=self.version,
            byte_order=self.byte_order,
        ).derived_from(self.inputs, self._limit)

    # Files.

    @property
    def readers_limit(self) -> ReadersLimit:
        """The limit on who may read its output: users who may read all its inputs."""
        of_files = ReadersLimit.of(file.status for file in self.inputs)
        return ReadersLimit.all_of([self._limit, of_files])

    @property
    def closed(self) -> bool:
        """Whether tensor data can no longer be read, because a file was closed."""
        return any(file.closed for file in self.inputs)

    def close(self) -> None:
        """Close the files that this model opened; arrays already handed out stay valid."""
        for file in self._owned:
            file.close()

    def reading(self, files: Iterable[AnyFile], reduced: Reduced | None = None) -> Model:
        """Attach the files that were opened for this model: `close` closes them.

        `reduced` makes the model again where it was pickled.
        """
        self.derived_from(files).owning(self.inputs)
        self._reduced = reduced
        return self

    def owning(self, files: Iterable[AnyFile]) -> Model:
        """Let `close` close these files too."""
        self._owned = (*self._owned, *files)
        return self

    def derived_from(self, files: Iterable[AnyFile], *limits: ReadersLimit) -> Model:
        """Attach the open files of other models: none of them may be an output.

        `limits` belong to other inputs, which are not open.
        """
        self.inputs = tuple(files)
        self._limit = ReadersLimit.all_of([self._limit, *limits])
        return self

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Reduced:
        """Pickle the path of an opened model; of any other its parts, with the paths of data."""
        if self._reduced:
            return self._reduced
        facts = {"version": self.version, "byte_order": self.byte_order}
        return _unpickled, (self.metadata, self.tensors, facts, self.inputs, self._limit)

    # In notebooks.

    def __repr__(self) -> str:
        name = ", ".join(file.path.name for file in self.files[:1]) or "in memory"
        return f"<Model {name}: {len(self.metadata)} keys, {len(self.tensors)} tensors>"

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.tensors)

    def _repr_html_(self) -> str:
        facts = {
            "architecture": self.architecture or "unknown",
            "parameters": f"{self.parameters:,}",
            "bytes of tensors": f"{self.nbytes:,}",
        }
        title = self.files[0].path.name if self.files else "in memory"
        keys, tensors = self.metadata._repr_html_(), self.tensors._repr_html_()
        return f"{definitions(title, facts)}{keys}{tensors}"


def _unpickled(metadata: Metadata, tensors: Tensors, facts: dict[str, Any], *origin: Any) -> Model:
    return Model(metadata, tensors, **facts).derived_from(*origin)


def bits_per_weight(tensors: Iterable[Tensor]) -> float | None:
    """Return the average number of bits per element, None if there are no elements."""
    counted = list(tensors)
    elements = sum(tensor.elements for tensor in counted)
    return 8 * sum(tensor.nbytes for tensor in counted) / elements if elements else None


def as_ggml_counts(tensor: Tensor) -> Tensor:
    """Return a tensor without leading axes of length 1, which ggml does not write."""
    if tensor.shape and tensor.shape[0] != 1:
        return tensor
    first = next((i for i, n in enumerate(tensor.shape[:-1]) if n != 1), len(tensor.shape) - 1)
    shape = tensor.shape[max(first, 0) :] or (1,)
    return tensor if shape == tensor.shape else replace(tensor, shape=shape)
