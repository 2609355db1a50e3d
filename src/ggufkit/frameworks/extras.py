"""Import a library of an extra, with an error that tells how to install it."""

from __future__ import annotations

import importlib
from typing import Any

from ggufkit.errors import MissingExtraError


def library(name: str, extra: str) -> Any:  # noqa: ANN401 (a module)
    """Return the module `name`; MissingExtraError (an ImportError) if it cannot be imported."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        absent = isinstance(error, ModuleNotFoundError) and error.name == package
        reason = f"{package} is not installed" if absent else f"importing it fails: {error}"
        raise MissingExtraError(
            f"this needs {package}, but {reason}", remedy=f"pip install 'ggufkit[{extra}]'"
        ) from error
