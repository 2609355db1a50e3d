"""Compute an importance matrix of a live model of transformers, on the device that it is on."""

from __future__ import annotations

import contextlib
import functools
import os
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ggufkit.conversion.tokenizer.keys import VocabularyKeys
from ggufkit.errors import ValueTypeError
from ggufkit.frameworks.extras import library
from ggufkit.frameworks.live.input_origins import InputOrigin, input_origins
from ggufkit.frameworks.live.weights import EXTRA, is_shard, unwrapped
from ggufkit.frameworks.tokenizer import errors_of_library, tokenizer
from ggufkit.imatrix.checkpoint import SumsCheckpoint
from ggufkit.imatrix.collector import InputSums, require_finite
from ggufkit.imatrix.compute import BATCH, TextPasses, chunk_groups
from ggufkit.imatrix.coverage import cosines
from ggufkit.imatrix.hessian_file import HESSIAN_MEMORY, MomentsOrigin, blocks_of, require_band
from ggufkit.imatrix.matrix import CHUNK_SIZE, Entry, Imatrix, chunks_held
from ggufkit.imatrix.moments import InputMoments
from ggufkit.imatrix.random_tokens import random_batches, usable_tokens
from ggufkit.models.layers import tensor_names
from ggufkit.models.model import Model, Tensor
from ggufkit.models.open import open as open_model
from ggufkit.quantization.choice.eligibility import is_eligible
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.system.text_file import Most, read_small
from ggufkit.system.threads import Notify, Progress

_EXPERTS: Final = "_experts_implementation"  # of a configuration of transformers
_ONE_BY_ONE: Final = "eager"  # which multiplies one expert after the other


def compute_imatrix(  # noqa: PLR0913 (the options of `ggufkit.compute_imatrix`)
    model: Any,  # noqa: ANN401 (torch.nn.Module; pyright checks where torch is missing)
    text: AnyPath | Sequence[int],
    *,
    gguf: AnyPath,
    chunks: int | None = None,
    context: int = CHUNK_SIZE,
    batch: int = BATCH,
    from_chunk: int = 0,
    hessian: AnyPath | None = None,
    band: int | None = None,
    memory: int = HESSIAN_MEMORY,
    progress: Progress | None = None,
    say: Notify | None = None,
) -> Imatrix:
    """Run a live model over a text and return the importance matrix of its GGUF file.

    `model` is a model of transformers on any device, in any dtype, perhaps quantized or offloaded.
    `gguf` is what `ggufkit.convert` made of it, in any type: it has the names of the matrices, and
    the tokenizer. `text` is a file, or the ids of its tokens. The other options are those of
    `ggufkit.compute_imatrix`, and the result and the file `hessian` have the same form. Sums are
    float32 on the device of the inputs, and those for `hessian` take at most `memory` bytes there.
    `say` is called with a note if matrices get no data.

    Raises MissingExtraError for transformers before version 5, ShapeError for the file of another
    model, CheckpointError for a model or a tokenizer that cannot be converted, ValueTypeError for
    a text that is too short, for weights in shards, and for experts whose inputs cannot be seen.
    """
    require_band(band)
    inner, location = unwrapped(model), as_path(gguf)
    if any(map(is_shard, inner.parameters())):
        raise ValueTypeError("the weights are in shards", remedy="Load with device_map='auto'")
    with open_model(location) as file:
        origins = input_origins(inner, file)
        content, dataset, tokens = _tokens(file, text)
        keys, architecture = (
            VocabularyKeys(file.metadata),
            file.metadata.get("general.architecture"),
        )
        usable = usable_tokens(file.metadata)
        matrices = [t.name for t in file.tensors.values() if is_eligible(t, str(architecture))]
    groups = list(
        chunk_groups(tokens[from_chunk * context :], context, chunks, max(1, batch // context))
    )
    added = random_batches(usable, enumerate(groups)) if hessian else []
    if keys.adds("bos") and (beginning := keys.id_of("bos")) is not None:
        groups, added = (
            [[[beginning, *chunk[1:]] for chunk in group] for group in of_kind]
            for of_kind in (groups, added)
        )
    collector = _LiveCollector(origins=origins, moments=DeviceMoments(band) if hessian else None)
    target = as_path(hessian or location)
    checkpoint = SumsCheckpoint(target, uuid.uuid4().hex, stays=False)
    with _computing(inner, collector) as compute:
        reading = TextPasses(compute, collector, groups, added, progress, checkpoint)
        origin = MomentsOrigin(location, content, dataset, context, band)
        entries = reading.entries(target if hessian else None, origin, memory)
    missing = [name for name in matrices if name.startswith("blk.") and name not in entries]
    if say and missing:
        say(f"no importance data for {tensor_names(missing)}: the model computes no such product")
    count, similar = chunks_held(entries, context), cosines(collector.half, entries)
    return Imatrix(entries, (dataset,), count, context, half_cosines=similar)


def _tokens(file: Model, text: AnyPath | Sequence[int]) -> tuple[bytes, str, list[int]]:
    """Return a text as bytes, its name and its tokens."""
    if not isinstance(text, str | bytes | os.PathLike):
        ids = [int(number) for number in text]
        return np.array(ids, np.int64).tobytes(), "", ids
    content = read_small(as_path(text), Most.CALIBRATION).removesuffix(b"\n")
    splitter = tokenizer(file)
    splitter.encode_special_tokens = True  # the names of special tokens are text
    with errors_of_library():
        return content, os.fsdecode(text), splitter.encode(content.decode(errors="replace")).ids


@dataclass
class DeviceMoments(InputMoments):
    """Second moments that are added up where the inputs are, and copied at the end of a pass."""

    on_device: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, matrix: int, rows: Any) -> None:  # noqa: ANN401 (a torch tensor)
        """Add the inputs `rows` (tokens, width) of one matrix."""
        if name not in self.active:
            return
        if name not in self.on_device:
            self.on_device[name] = rows.new_zeros(self.sums[name].shape)
        blocks: list[Any] = [*blocks_of(self.on_device[name][self.part, matrix])]
        parts = rows.split([len(block) for block in blocks], dim=1)
        for block, inputs in zip(blocks, parts, strict=True):
            block.addmm_(inputs.T, inputs)
        self.counts[name][self.part, matrix] += len(rows)

    def tensors(self) -> list[Tensor]:
        """Return the sums as `InputMoments` does; none stay on the device."""
        while self.on_device:
            name, sums = self.on_device.popitem()
            self.sums[name] += sums.cpu().numpy()
        return super().tensors()


@dataclass(kw_only=True)
class _LiveCollector(InputSums):
    """Adds up the inputs of the weights of a model, for all matrices that have them."""

    origins: Mapping[str, list[InputOrigin]]
    seen: dict[tuple[str, int | None], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.users = defaultdict[tuple[str, int | None], list[tuple[str, int, Any]]](list)
        for name, matrices in self.origins.items():
            for number, (weight, expert, columns) in enumerate(matrices):
                self.users[weight, expert].append((name, number, columns))

    def collect(self, weight: str, expert: int | None, inputs: Any) -> None:  # noqa: ANN401 (a torch tensor)
        """Add the inputs (..., width) of a weight, or of one expert of a stack."""
        if self.moments is not None and self.moments.is_listing:
            # Views of the same unchanged numbers; while they are kept, no others take their place.
            key = inputs.data_ptr(), inputs.numel(), inputs._version  # noqa: SLF001 (torch has no other name)
            self.seen[weight, expert] = key, inputs
            return
        self.seen[weight, expert] = None
        rows = inputs.reshape(-1, inputs.shape[-1]).float()
        for name, number, columns in self.users[weight, expert]:
            ordered = rows if columns is None else rows[:, columns]
            if not self.moments_only:
                self._add_squares(name, number, ordered)
            if self.moments is not None:
                self.moments.add(name, number, ordered)

    def _add_squares(self, name: str, number: int, rows: Any) -> None:  # noqa: ANN401
        matrices = len(self.origins[name])
        if name not in self.sums:
            zeros = np.zeros((matrices, rows.shape[1]), np.float32)
            self.sums[name] = Entry(zeros, np.zeros(matrices, np.int64))
        squares = rows.square().sum(0).cpu().numpy()
        require_finite(squares, name)
        self.sums[name].sums[number] += squares
        self.sums[name].counts[number] += len(rows)

    def keep_half(self) -> None:
        """Keep copies, because these sums are changed in place."""
        self.half = {name: entry.sums.copy() for name, entry in self.sums.items()}

    def register(self) -> None:
        """List the matrices whose inputs were seen, and which of them have the same inputs."""
        if self.moments is None or not self.moments.is_listing:
            return
        for name, matrices in self.origins.items():
            inputs = [self.seen.get((weight, expert)) for weight, expert, _ in matrices]
            if widths := [rows.shape[-1] for _, rows in filter(None, inputs)]:
                keys = [pair and pair[0] for pair in inputs]
                orders = [columns for _, _, columns in matrices]
                self.moments.register(name, repr((keys, orders)), (len(matrices), widths[0]))
        self.seen.clear()


@contextlib.contextmanager
def _computing(
    model: Any,  # noqa: ANN401 (a model of transformers)
    collector: _LiveCollector,
) -> Iterator[Callable[[list[list[int]]], None]]:
    """Provide a function that runs the model on chunks while the collector sees all inputs."""
    torch = library("torch", EXTRA)
    stacks = defaultdict[Any, dict[str, str]](dict)
    products = _stack_products(collector)
    with contextlib.ExitStack() as undo:
        for module in model.modules():
            undo.callback(setattr, module, "training", module.training)
        model.eval()
        for weight, expert in collector.users:
            owner, _, attribute = weight.rpartition(".")
            module = model.get_submodule(owner)
            if expert is None:
                see = functools.partial(_see_layer, collector, weight)
                undo.callback(module.register_forward_pre_hook(see, with_kwargs=True).remove)
            else:
                stacks[module][attribute] = weight
        for module, weights in stacks.items():
            enter = functools.partial(products.enter, weights)
            undo.callback(module.register_forward_pre_hook(enter).remove)
            if hasattr(module, "config"):
                undo.callback(setattr, module.config, _EXPERTS, getattr(module.config, _EXPERTS))
                setattr(module.config, _EXPERTS, _ONE_BY_ONE)

        def compute(group: list[list[int]]) -> None:
            device = "cpu" if model.device.type == "meta" else model.device  # of an offloaded model
            with torch.no_grad(), products:
                model.base_model(input_ids=torch.tensor(group, device=device))
            _require_seen(collector, stacks)
            collector.register()

        yield compute


def _require_seen(collector: _LiveCollector, stacks: Mapping[Any, Mapping[str, str]]) -> None:
    seen = {weight for weight, _ in collector.seen}
    for weights in stacks.values():
        if unseen := {*weights.values()} - seen:
            raise ValueTypeError(
                f"the inputs of the experts in {min(unseen)} cannot be seen: transformers does not "
                "multiply them one by one",
                remedy="Use ggufkit.compute_imatrix, which runs llama.cpp",
            )


def _see_layer(collector: _LiveCollector, weight: str, _: object, args: Any, options: Any) -> None:  # noqa: ANN401 (a hook)
    """Collect the inputs that a layer is called with."""
    tensors = (value for value in (*args, *options.values()) if hasattr(value, "data_ptr"))
    if (inputs := next(tensors, None)) is not None and inputs.is_floating_point():
        collector.collect(weight, None, inputs)


def _stack_products(collector: _LiveCollector) -> Any:  # noqa: ANN401 (a class that needs torch)
    """Return a context that collects the inputs of products with one matrix of a stack."""
    torch = library("torch", EXTRA)
    functions = {torch.nn.functional.linear, torch.matmul, torch.Tensor.matmul}
    functions.add(torch.Tensor.__matmul__)

    class StackProducts(torch.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
        """Sees each product while the stack `module` runs, whose weights have these names."""

        module: Any = None
        weights: Mapping[str, str] = {}

        def enter(self, weights: Mapping[str, str], module: Any, _: object) -> None:  # noqa: ANN401
            self.module, self.weights = module, weights

        def __torch_function__(self, call: Any, _: Any, args: Any = (), rest: Any = None) -> Any:  # noqa: ANN401
            if call in functions:
                for attribute, weight in self.weights.items():
                    expert = _place(args[1], getattr(self.module, attribute))
                    if expert is not None:
                        collector.collect(weight, expert, args[0])
            return call(*args, **(rest or {}))

    return StackProducts()


def _place(matrix: Any, stack: Any) -> int | None:  # noqa: ANN401 (torch tensors)
    """Return the place of a matrix in the memory of a stack, None if it is not there."""
    if matrix.untyped_storage().data_ptr() != stack.untyped_storage().data_ptr():
        return None
    place: int = (matrix.storage_offset() - stack.storage_offset()) // stack.stride(0)
    return place if 0 <= place < len(stack) else None
