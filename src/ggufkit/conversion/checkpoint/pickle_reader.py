"""Reads the pickle in a PyTorch file with its own stack machine, and never runs code from it.

PyTorch pickles dictionaries of tensors, with the name of a PyTorch function that rebuilds each.
This machine knows those names as data. It refuses any other name, so a file cannot run code.

`pickletools` parses the opcodes. Source of the rebuilding: PyTorch's weights-only unpickler.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeGuard

from ggufkit.errors import CheckpointError, brief

PROTOCOLS: Final = range(2, 6)
MAX_NAME: Final = 200  # characters of a name in a message
MAX_OPCODES: Final = 1 << 23  # a tensor takes some 40; no pickle of weights is that long
MAX_ARGUMENTS: Final = 16  # of a function; PyTorch's take up to 8
MAX_COUNTS: Final = 64  # in a shape or its strides: PyTorch's limit on axes


class Named(NamedTuple):
    """A global that the pickle names and the machine knows."""

    name: str


class Storage(NamedTuple):
    """A run of elements in the file: the class or type, the key, how many."""

    kind: str
    key: str
    elements: int


class Rebuilt(NamedTuple):
    """A tensor over a storage; `dtype` replaces the storage's if given."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str | None = None


def loads(data: bytes, allowed: frozenset[str]) -> object:
    """Return the object in the pickle; `allowed` are the storages and types that it may name.

    Raises CheckpointError for anything but plain data and tensors.
    """
    machine = _Machine(allowed)
    try:
        return machine.run(data)
    except CheckpointError:
        raise
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the pickle is broken or ends early, at byte {machine.offset:,}: {error!r}"
        ) from None


def _ordered_dict(*pairs: object) -> dict[Any, Any]:
    if pairs not in ((), ([],)):
        raise CheckpointError(
            "the pickle has an OrderedDict made from pairs, which PyTorch never writes"
        )
    return {}


def _typed_tensor(*arguments: object) -> Rebuilt:
    dtype = arguments[6]
    if not isinstance(dtype, Named):
        raise CheckpointError("the pickle has a tensor of an invalid type")
    return _tensor(*arguments)._replace(dtype=dtype.name)


def _tensor(*arguments: object) -> Rebuilt:
    storage, offset, shape, strides, *_ = arguments
    sizes, steps = _counts(shape), _counts(strides)
    if not isinstance(storage, Storage) or sizes is None or steps is None or not _is_count(offset):
        raise CheckpointError("the pickle has a tensor without storage, offset, shape and strides")
    return Rebuilt(storage, offset, sizes, steps)


def _counts(items: object) -> tuple[int, ...] | None:
    if not isinstance(items, tuple) or len(items) > MAX_COUNTS or not all(map(_is_count, items)):
        return None
    return items


def _is_count(item: object) -> TypeGuard[int]:
    return isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 1 << 63


CALLED: Final[Mapping[str, Callable[..., object]]] = {
    "collections.OrderedDict": _ordered_dict,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _typed_tensor,
    "torch._utils._rebuild_parameter": lambda *arguments: arguments[0],
}


@dataclass
class _Machine:
    """The offset in the data, and the stack of the opcodes; each mark begins a new stack."""

    allowed: frozenset[str]
    offset: int = 0
    stack: list[Any] = field(default_factory=list)
    below: list[list[Any]] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def run(self, data: bytes) -> object:
        for count, (opcode, argument, offset) in enumerate(pickletools.genops(data)):
            self.offset = offset or 0
            if opcode.name == "STOP":
                break
            if count >= MAX_OPCODES:
                raise CheckpointError(f"the pickle has more than {MAX_OPCODES:,} opcodes, too many")
            act = _OPCODES.get(opcode.name)
            if act is None:
                raise CheckpointError(
                    f"the pickle uses the opcode {opcode.code.encode('latin-1')!r} at byte "
                    f"{self.offset:,}, which PyTorch does not write for weights"
                )
            act(self, argument)
        return self.stack.pop()

    def push_global(self, module: object, name: object) -> None:
        """Push a known name; refuse any other, because it could be code."""
        if not isinstance(module, str) or not isinstance(name, str):
            # Printing nested tuples that share items could take forever.
            raise CheckpointError("the pickle asks for a global whose name is not text")
        full = f"{module[:MAX_NAME]}.{name[:MAX_NAME]}"
        if full not in CALLED and full not in self.allowed:
            raise CheckpointError(
                f"the pickle imports {full!r}, which weights do not need and which "
                "could run code; ggufkit ran nothing",
                remedy="Do not trust this file; get the weights as safetensors",
            )
        self.stack.append(Named(full))

    def unmark(self) -> list[Any]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def fold(self, count: int) -> None:
        if len(self.stack) < count:
            raise IndexError("too few items for a tuple")
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def put(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise CheckpointError("the pickle sets items of a value that is not a dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | int):
                raise CheckpointError("the pickle has a key that is neither text nor a number")
            if key in target:
                raise CheckpointError(f"the pickle holds {brief(key)} twice")
            target[key] = value

    def extend(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise CheckpointError("the pickle appends to a value that is not a list")
        self.stack[-1].extend(items)

    def call(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, Named) or function.name not in CALLED:
            raise CheckpointError("the pickle calls a value that is not a function for tensors")
        if not isinstance(arguments, tuple) or len(arguments) > MAX_ARGUMENTS:
            raise CheckpointError(f"the pickle calls {function.name} with wrong arguments")
        try:
            self.stack.append(CALLED[function.name](*arguments))
        except CheckpointError:
            raise
        except (ValueError, TypeError, IndexError):
            raise CheckpointError(
                f"the pickle calls {function.name} with too few arguments"
            ) from None

    def find_storage(self) -> None:
        described = self.stack.pop()
        if not isinstance(described, tuple) or len(described) != 5:  # noqa: PLR2004
            raise CheckpointError("the pickle refers to a value that is not a storage")
        word, kind, key, _, elements = described
        is_sound = word == "storage" and isinstance(kind, Named) and isinstance(key, str)
        if not is_sound or not _is_count(elements):
            raise CheckpointError("the pickle refers to a value that is not a storage")
        self.stack.append(Storage(kind.name, key, elements))

    def build(self) -> None:
        """Drop the attributes of a dictionary: they hold module versions, not tensors."""
        self.stack.pop()
        if not isinstance(self.stack[-1], dict):
            raise CheckpointError("the pickle sets the state of a value that is not a dictionary")

    def mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []

    def start(self, protocol: int) -> None:
        if protocol not in PROTOCOLS:
            raise CheckpointError(f"the pickle is of protocol {protocol}, which is unknown")

    def remember(self, key: int) -> None:
        self.memo[key] = self.stack[-1]

    def push(self, item: object) -> None:
        self.stack.append(item)


_OPCODES: Final[dict[str, Callable[[_Machine, Any], object]]] = {
    "PROTO": _Machine.start,
    "FRAME": lambda _machine, _length: None,  # only needed to read streams
    "GLOBAL": lambda m, names: m.push_global(*names.split(" ", 1)),
    "STACK_GLOBAL": lambda m, _: m.push_global(m.stack.pop(-2), m.stack.pop()),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), _Machine.remember),
    "MEMOIZE": lambda m, _: m.remember(len(m.memo)),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda m, key: m.push(m.memo[key])),
    "MARK": lambda m, _: m.mark(),
    "TUPLE": lambda m, _: m.push(tuple(m.unmark())),
    "EMPTY_TUPLE": lambda m, _: m.push(()),
    "TUPLE1": lambda m, _: m.fold(1),
    "TUPLE2": lambda m, _: m.fold(2),
    "TUPLE3": lambda m, _: m.fold(3),
    "EMPTY_DICT": lambda m, _: m.push({}),
    "EMPTY_LIST": lambda m, _: m.push([]),
    "APPEND": lambda m, _: m.extend([m.stack.pop()]),
    "APPENDS": lambda m, _: m.extend(m.unmark()),
    "SETITEM": lambda m, _: m.put([m.stack.pop(-2), m.stack.pop()]),
    "SETITEMS": lambda m, _: m.put(m.unmark()),
    "REDUCE": lambda m, _: m.call(),
    "BINPERSID": lambda m, _: m.find_storage(),
    "BUILD": lambda m, _: m.build(),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), _Machine.push),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"), _Machine.push),
    "NONE": _Machine.push,
    "NEWTRUE": lambda m, _: m.push(True),  # noqa: FBT003 (an item)
    "NEWFALSE": lambda m, _: m.push(False),  # noqa: FBT003 (an item)
}
