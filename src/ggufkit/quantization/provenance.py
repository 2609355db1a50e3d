"""What a quantized file derives from: digests of source and importance data, and all settings.

A file carries them only if its maker asks for it. `quantization/reproduce.py` proves them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from ggufkit._version import __version__
from ggufkit.errors import MISFORMED, FormatError, ValueTypeError, brief
from ggufkit.format.coerce import plain_exactly, typed
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import tensor_type
from ggufkit.imatrix.matrix import Imatrix
from ggufkit.inspection.digest import CONTENT, digest
from ggufkit.models.any_model import AnyModel, Opener
from ggufkit.models.model import Model
from ggufkit.quantization.decision import Quantization
from ggufkit.quantization.quantize import (
    QuantizeOptions,
    decide,
    hessian_of,
    opened_imatrix,
    refuse,
    types_by_name,
)
from ggufkit.quantization.recipes import ALL_RECIPES, Recipe, find_recipe, patterns_of
from ggufkit.system.threads import Progress

if TYPE_CHECKING:
    from typing_extensions import Unpack

PREFIX: Final = "ggufkit.provenance."
SOURCE: Final = f"{PREFIX}source"
IMATRIX: Final = f"{PREFIX}imatrix"
SETTINGS: Final = f"{PREFIX}settings"
HESSIAN: Final = f"{PREFIX}hessian"
UNREAD: Final = "0" * 64  # stands for a digest in forecasts of a file's size
KEYS: Final = (SOURCE, IMATRIX, HESSIAN, SETTINGS)
IMATRIX_FORM: Final = b"ggufkit importance data 1\0"
# Options that name files are recorded in another way: as a digest, and as `types`. In the settings
# of a file they are refused, because a file must not decide what is opened.
_ELSEWHERE: Final = ("imatrix", "hessian", "like")


@dataclass(frozen=True)
class Provenance:
    """What a file derives from.

    `source` is the content digest of the source (`ggufkit hash --content`), `imatrix` the digest of
    the importance data and `hessian` that of the Hessian file, empty if there is none; `settings`
    are the recipe and the options of `quantize`, as plain Python.
    """

    source: str
    imatrix: str
    settings: Mapping[str, Any]
    hessian: str = ""

    def keys(self) -> dict[str, str]:
        """Return the keys that carry this in a file."""
        settings = json.dumps(self.settings, ensure_ascii=False, separators=(",", ":"))
        digests = {IMATRIX: self.imatrix, HESSIAN: self.hessian}
        digests_used = {key: value for key, value in digests.items() if value}
        return {SOURCE: self.source, **digests_used, SETTINGS: settings}


def provenance_of(metadata: Metadata) -> Provenance | None:
    """Return what a file says that it derives from, None if it says nothing.

    Raises FormatError for keys that cannot be read.
    """
    if not any(key.startswith(PREFIX) for key in metadata):
        return None
    try:
        settings = json.loads(metadata.text(SETTINGS, ""))
        source, imatrix, hessian = (metadata.text(key, "") for key in (SOURCE, IMATRIX, HESSIAN))
        return Provenance(source, imatrix, dict(settings), hessian)
    except MISFORMED as error:
        raise _damaged(str(error)) from None


def _damaged(why: str) -> FormatError:
    return FormatError(
        f"the provenance of this file cannot be read: {why}",
        remedy="Its keys were changed, or a newer ggufkit wrote them",
    )


def quantize_with_provenance(
    model: AnyModel,
    recipe: str | int | Recipe | None = None,
    *,
    allow_requantize: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    **options: Unpack[QuantizeOptions],
) -> Model:
    """Return what `quantize` returns, with keys that say what it derives from.

    The arguments work as in `quantize`. For its digest all data of `model` is read once;
    `progress(done, total)` counts bytes. `reproduce` proves what the keys say. Raises what
    `quantize` raises, and ValueTypeError for settings that a file cannot carry: a recipe with rules
    made in Python.
    """
    with Opener() as opener:
        source = opener.open(model)
        like = options.get("like")
        if like is not None:
            options["like"] = opener.open(like, "like")
        result = decide(source, recipe, **options)
        allowed = allow_requantize or options.get("requantize_smaller", False)
        refuse(result, allow_requantize=allowed)
        content = content_digest(source, threads, progress)
        return opener.hand_over(with_provenance(result, options, content).model)


def content_digest(
    source: Model, threads: int | None = None, progress: Progress | None = None
) -> str:
    """Return the content digest of a model; reads all its data."""
    digests = digest(source, CONTENT, tensors=False, threads=threads, progress=progress)
    return digests.model[CONTENT]


def with_provenance(result: Quantization, options: QuantizeOptions, content: str) -> Quantization:
    """Return the result with keys for its settings and for a source with the digest `content`."""
    data, hessian = opened_imatrix(options.get("imatrix")), hessian_of(options)
    provenance = Provenance(
        content,
        imatrix_digest(data) if data else "",
        _settings(result.recipe, options),
        content_digest(hessian.source) if hessian else "",
    )
    return with_keys(result, provenance)


def with_keys(result: Quantization, provenance: Provenance) -> Quantization:
    """Return the result with the keys of a provenance."""
    model = result.model
    metadata = model.metadata.without(*KEYS, missing_ok=True).updated(provenance.keys())
    return replace(result, model=model.replace(metadata=metadata))


def unread_keys(recipe: Recipe, options: QuantizeOptions) -> dict[str, str]:
    """Return keys as long as `with_provenance` makes them, without reading any data."""
    imatrix, hessian = (UNREAD if options.get(key) else "" for key in ("imatrix", "hessian"))
    return Provenance(UNREAD, imatrix, _settings(recipe, options), hessian).keys()


def imatrix_digest(imatrix: Imatrix) -> str:
    """Return the SHA-256 of importance data: of its names, sums and counts, in any file format."""
    sha256 = hashlib.sha256(IMATRIX_FORM)
    for name, entry in sorted(imatrix.entries.items()):
        sums, counts = entry.sums.astype("<f4"), entry.counts.astype("<i8")
        head = json.dumps([name, imatrix.is_legacy, sums.shape, counts.shape])
        sha256.update(head.encode())
        sha256.update(sums.tobytes())
        sha256.update(counts.tobytes())
    return sha256.hexdigest()


def _settings(recipe: Recipe, options: QuantizeOptions) -> dict[str, Any]:
    types = types_by_name(options.get("types"), options.get("like"))
    settings = {key: _plain(key, value) for key, value in options.items() if key not in _ELSEWHERE}
    settings["types"] = {name: kind.name for name, kind in types.items()}
    changed = {key: value for key, value in sorted(settings.items()) if value not in _UNSET}
    return {"ggufkit": __version__, **_plain_recipe(recipe), **changed}


_UNSET: Final[tuple[object, ...]] = (None, False, [], {})


def _plain_recipe(recipe: Recipe) -> dict[str, Any]:
    for base in ALL_RECIPES.values():
        if replace(recipe, name=base.name, patterns=base.patterns) == base:
            patterns = [[pattern.pattern, kind.name] for pattern, kind in recipe.patterns]
            own = {"recipe_name": recipe.name} if recipe.name != base.name else {}
            return {"recipe": base.name, **own, **({"patterns": patterns} if patterns else {})}
    raise ValueTypeError(
        f"the recipe {recipe.name} has rules of its own, which a file cannot carry",
        remedy="Use a recipe of llama-quantize or a recipe file, or leave out the provenance",
    )


def _plain(key: str, value: Any) -> Any:  # noqa: ANN401 (an option, and JSON)
    if key == "override_kv":
        values = Metadata(value or {})
        return {k: [values.type_name(k), plain_exactly(v)] for k, v in values.typed_items()}
    if key == "tensor_types":
        return [[pattern, tensor_type(kind).name] for pattern, kind in value]
    if key in {"output_tensor_type", "token_embedding_type"}:
        return value and tensor_type(value).name
    return value if isinstance(value, str | int | None) else list(value)


def options_of(settings: Mapping[str, Any]) -> tuple[Recipe, QuantizeOptions]:
    """Return recipe and options of recorded settings; FormatError if they cannot be read."""
    try:
        options = {key: value for key, value in settings.items() if key != "ggufkit"}
        base = find_recipe(options.pop("recipe"))
        name, patterns = options.pop("recipe_name", base.name), options.pop("patterns", ())
        recipe = replace(base, name=name, patterns=patterns_of(patterns))
        if "override_kv" in options:
            options["override_kv"] = {k: typed(*pair) for k, pair in options["override_kv"].items()}
        if "tensor_types" in options:
            options["tensor_types"] = [tuple(value) for value in options["tensor_types"]]
    except MISFORMED as error:
        raise _damaged(str(error)) from None
    names = QuantizeOptions.__annotations__.keys() - set(_ELSEWHERE)
    if unknown := options.keys() - names:
        key = min(unknown)
        raise _damaged(f"ggufkit does not know the setting {key!r}: {brief(options[key])}")
    return recipe, cast("QuantizeOptions", options)
