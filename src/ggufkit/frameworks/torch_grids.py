"""The tables of levels and grid points that some types look up, as torch tensors."""

from __future__ import annotations

from typing import Any, Final

from ggufkit.frameworks.extras import library
from ggufkit.quants.lookup_tables import LOOKUP_TABLES, lookup_table

torch: Final[Any] = library("torch", "torch")


def table(name: str, device: Any) -> Any:  # noqa: ANN401 (a torch.device and a torch.Tensor)
    """Return a table on a device, copied there once.

    While code is compiled, the tables are its inputs; what is not on the device yet is copied by
    the compiled code.
    """
    if device.type == "cpu":
        return _TABLES[name]
    found = _COPIES.get((name, str(device)))
    if found is None:
        found = _TABLES[name].to(device)
        if not torch.compiler.is_compiling():
            _COPIES[name, str(device)] = found
    return found


# A copy, because torch tensors are writable and the arrays are shared.
_TABLES: Final = {name: torch.from_numpy(lookup_table(name).copy()) for name in LOOKUP_TABLES}
_COPIES: Final[dict[tuple[str, str], Any]] = {}
