"""Check whether a file says the truth about its recipe, its version and its name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from ggufkit.checks.model_view import ARCHITECTURE, ModelView, Violation, at_key
from ggufkit.format.file_name import parse_name
from ggufkit.format.file_types import (
    FILE_TYPE_KEY,
    FILE_TYPES,
    GUESSED,
    NUMBER_OF,
    QUANTIZATION_VERSION,
    VERSION_KEY,
)
from ggufkit.format.types import tensor_type
from ggufkit.quantization.choice.eligibility import is_eligible
from ggufkit.quantization.recipes import ALL_RECIPES, KEEP_ALL, LAST_RESORT, PROMOTED


def false_declarations(view: ModelView, *, names: bool = False) -> Iterator[Violation]:
    """Yield every rule that the model's statements about itself break.

    With `names`, also check that the file name follows the naming convention.
    """
    version = view.number(VERSION_KEY)
    if version not in (None, QUANTIZATION_VERSION):
        numbers = {"number": version, "now": QUANTIZATION_VERSION}
        yield at_key("quantization-version-value", VERSION_KEY, **numbers)
    number = view.number(FILE_TYPE_KEY)
    claimed = None if number is None or number & GUESSED else FILE_TYPES.get(number)
    if number is not None and number & ~GUESSED not in FILE_TYPES:
        yield at_key("file-type-value", FILE_TYPE_KEY, number=number)
    if claimed is not None:
        yield from _about_mix(view, claimed)
    if view.model.files:
        name = view.model.files[0].path.name
        encoding = parse_name(name).encoding.upper()
        if claimed and encoding in NUMBER_OF and encoding != claimed:
            yield at_key("file-encoding", FILE_TYPE_KEY, said=encoding, claimed=claimed)
        if names and not parse_name(name).conventional:
            yield at_key("file-name", ARCHITECTURE, file=name)  # a file name has no offset


def _about_mix(view: ModelView, claimed: str) -> Iterator[Violation]:
    recipe = ALL_RECIPES.get(claimed, KEEP_ALL)
    base, architecture = recipe.base, view.architecture
    tensors = view.model.tensors.values()
    types = Counter(t.type.name for t in tensors if is_eligible(t, architecture, recipe.program))
    if base is None or not types or types.keys() & _types_for(base, recipe.fallbacks):
        return
    most = types.most_common(1)[0][0]
    details = {"total": types.total(), "base": base, "most": most}
    yield at_key("file-type-mix", FILE_TYPE_KEY, claimed=claimed, **details)


def _types_for(base: str, fallbacks: Mapping[str, str]) -> set[str]:
    """Return the types that may replace a recipe's: for short rows, or without importance data."""
    types, pending = {base}, [base]
    while pending:
        name = pending.pop()
        plain = tensor_type(name).plain or name
        others = {plain, fallbacks.get(plain, LAST_RESORT), PROMOTED.get(plain, name)} - types
        types |= others
        pending += others
    return types - ({LAST_RESORT} if base != LAST_RESORT else set())
