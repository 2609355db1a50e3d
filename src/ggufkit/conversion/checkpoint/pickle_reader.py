"""Reads the pickle in a PyTorch file with its own stack machine, and never runs code from it.

PyTorch pickles dictionaries of tensors, with the name of a PyTorch function that rebuilds each.
This machine knows those names as data. It refuses any other name, so a file cannot run code.

Source: the opcodes as `pickletools` documents them; the rebuilding as PyTorch's weights-only
unpickler does it.
"""

from __future__ import annotations

import struct
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
    dtype: str | None


def loads(data: bytes, known: frozenset[str]) -> object:
    """Return the object in the pickle; `known` are the storages and types that it may name.

    Raises CheckpointError for anything but plain data and tensors.
    """
    machine = _Machine(data, known)
    try:
        return machine.run()
    except (IndexError, KeyError, struct.error, UnicodeDecodeError, TypeError) as error:
        raise CheckpointError(f"the pickle is broken at byte {machine.at:,}: {error!r}") from None


# Functions that a pickle may call.


def _ordered_dict(*pairs: object) -> dict[Any, Any]:
    if pairs not in ((), ([],)):
        raise CheckpointError(
            "the pickle has an OrderedDict made from pairs, which PyTorch never writes"
        )
    return {}


def _tensor(*arguments: object) -> Rebuilt:
    storage, offset, shape, strides, *_ = arguments
    return _rebuilt(storage, offset, shape, strides, None)


def _typed_tensor(*arguments: object) -> Rebuilt:
    storage, offset, shape, strides, _, _, dtype, *_ = arguments
    if not isinstance(dtype, Named):
        raise CheckpointError("the pickle has a tensor of an invalid type")
    return _rebuilt(storage, offset, shape, strides, dtype.name)


def _rebuilt(
    storage: object, offset: object, shape: object, strides: object, dtype: str | None
) -> Rebuilt:
    sizes, steps = _counts(shape), _counts(strides)
    if not isinstance(storage, Storage) or sizes is None or steps is None or not _is_count(offset):
        raise CheckpointError("the pickle has a tensor without storage, offset, shape and strides")
    return Rebuilt(storage, offset, sizes, steps, dtype)


def _counts(items: object) -> tuple[int, ...] | None:
    if not isinstance(items, tuple) or len(items) > MAX_COUNTS or not all(map(_is_count, items)):
        return None
    return items


def _is_count(item: object) -> TypeGuard[int]:
    return isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 1 << 63


def _parameter(*arguments: object) -> object:
    return arguments[0]


CALLED: Final[Mapping[str, Callable[..., object]]] = {
    "collections.OrderedDict": _ordered_dict,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _typed_tensor,
    "torch._utils._rebuild_parameter": _parameter,
}


# The machine.


@dataclass
class _Machine:
    """The data, the position in it, and the stack of the opcodes; each mark begins a new stack."""

    data: bytes
    known: frozenset[str]
    at: int = 0
    stack: list[Any] = field(default_factory=list)
    below: list[list[Any]] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def run(self) -> object:
        """Run all opcodes; return the top of the stack at the end."""
        for _ in range(MAX_OPCODES):
            if (opcode := self.take(1)) == b".":
                return self.stack.pop()
            act = _OPCODES.get(opcode)
            if act is None:
                raise CheckpointError(
                    f"the pickle uses the opcode {opcode!r} at byte {self.at - 1:,}, which PyTorch "
                    "does not write for weights"
                )
            act(self)
        raise CheckpointError(f"the pickle has more than {MAX_OPCODES:,} opcodes, too many")

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        found = self.data[self.at : self.at + count]
        if len(found) < count:
            raise CheckpointError(f"the pickle ends early, at byte {len(self.data):,}")
        self.at += count
        return found

    def number(self, form: str) -> Any:  # noqa: ANN401 (as `struct` is)
        """Return the next number."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> str:
        """Return text up to the end of the line."""
        end = self.data.find(b"\n", self.at)
        count = (end if end >= 0 else len(self.data)) - self.at
        return self.take(count + 1)[:-1].decode()

    def push(self, item: object) -> None:
        """Put an item on top."""
        self.stack.append(item)

    def push_text(self, form: str) -> None:
        """Push text after its length."""
        self.stack.append(self.take(self.number(form)).decode())

    def push_global(self, module: object, name: object) -> None:
        """Push a known name; refuse any other, because it could be code."""
        if not isinstance(module, str) or not isinstance(name, str):
            # Printing nested tuples that share items could take forever.
            raise CheckpointError("the pickle asks for a global whose name is not text")
        full = f"{module[:MAX_NAME]}.{name[:MAX_NAME]}"
        if full not in CALLED and full not in self.known:
            raise CheckpointError(
                f"the pickle imports {full!r}, which weights do not need and which "
                "could run code; ggufkit ran nothing",
                remedy="Do not trust this file; get the weights as safetensors",
            )
        self.stack.append(Named(full))

    def unmark(self) -> list[Any]:
        """Return what was pushed since the last mark."""
        items, self.stack = self.stack, self.below.pop()
        return items

    def fold(self, count: int) -> None:
        """Make a tuple of the top items."""
        if len(self.stack) < count:
            raise IndexError("too few items for a tuple")
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def put(self, items: list[Any]) -> None:
        """Set keys and values in the dictionary on top."""
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
        """Append to the list on top."""
        if not isinstance(self.stack[-1], list):
            raise CheckpointError("the pickle appends to a value that is not a list")
        self.stack[-1].extend(items)

    def call(self) -> None:
        """Call the counterpart of a named function."""
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
        """Replace the tuple on top by the storage that it describes."""
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
        """Begin a new stack."""
        self.below.append(self.stack)
        self.stack = []

    def start(self) -> None:
        """Check the protocol."""
        if (protocol := self.number("B")) not in PROTOCOLS:
            raise CheckpointError(f"the pickle is of protocol {protocol}, which is unknown")

    def name_on_stack(self) -> None:
        """Push the global whose module and name are on top."""
        name, module = self.stack.pop(), self.stack.pop()
        self.push_global(module, name)


_OPCODES: Final[dict[bytes, Callable[[_Machine], object]]] = {
    b"\x80": _Machine.start,
    b"\x95": lambda m: m.take(8),  # a frame: only needed to read streams
    b"c": lambda m: m.push_global(m.line(), m.line()),
    b"\x93": _Machine.name_on_stack,
    b"q": lambda m: m.memo.__setitem__(m.number("B"), m.stack[-1]),
    b"r": lambda m: m.memo.__setitem__(m.number("<I"), m.stack[-1]),
    b"\x94": lambda m: m.memo.__setitem__(len(m.memo), m.stack[-1]),
    b"h": lambda m: m.push(m.memo[m.number("B")]),
    b"j": lambda m: m.push(m.memo[m.number("<I")]),
    b"(": _Machine.mark,
    b"t": lambda m: m.push(tuple(m.unmark())),
    b")": lambda m: m.push(()),
    b"\x85": lambda m: m.fold(1),
    b"\x86": lambda m: m.fold(2),
    b"\x87": lambda m: m.fold(3),
    b"}": lambda m: m.push({}),
    b"]": lambda m: m.push([]),
    b"a": lambda m: m.extend([m.stack.pop()]),
    b"e": lambda m: m.extend(m.unmark()),
    b"s": lambda m: m.put([m.stack.pop(-2), m.stack.pop()]),
    b"u": lambda m: m.put(m.unmark()),
    b"R": _Machine.call,
    b"Q": _Machine.find_storage,
    b"b": _Machine.build,
    b"X": lambda m: m.push_text("<I"),
    b"\x8c": lambda m: m.push_text("B"),
    b"\x8d": lambda m: m.push_text("<Q"),
    b"J": lambda m: m.push(m.number("<i")),
    b"K": lambda m: m.push(m.number("B")),
    b"M": lambda m: m.push(m.number("<H")),
    b"\x8a": lambda m: m.push(int.from_bytes(m.take(m.number("B")), "little", signed=True)),
    b"G": lambda m: m.push(m.number(">d")),
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.stack.append(True),
    b"\x89": lambda m: m.stack.append(False),
}
