"""The settings of a release, and the file `release.toml` that holds them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from ggufkit.errors import FormatError, GGUFError, ValueTypeError, brief
from ggufkit.quantization.recipe_files import RECIPE_SUFFIX
from ggufkit.system.text_file import Most, decoded, read_small
from ggufkit.validation.sizes import bytes_of
from ggufkit.validation.typed_values import finite_number

RUNGS: Final = (
    *("Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_M", "Q4_K_S", "IQ4_XS", "Q4_0"),
    *("Q3_K_L", "Q3_K_M", "IQ3_M", "Q3_K_S", "IQ3_XXS", "Q2_K", "IQ2_M", "IQ2_XS"),
)
HUB_FILE_BYTES: Final = 50 * 10**9  # the largest file that the Hub takes


def _key(about: str, default: Any) -> Any:  # noqa: ANN401 (the default of the field)
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True)
class Settings:
    """What a release consists of: each field is a key of `release.toml`, with what that says."""

    rungs: tuple[str, ...] = _key(
        "Recipes, recipe files (mine.toml), sizes (3.2GiB) or bits per weight (4.25bpw).", RUNGS
    )
    calibration: str = _key("A text for the importance data, like what the model will read.", "")
    calibration_chunks: int = _key("The most chunks of it to read; 0 reads all.", 0)
    imatrix: tuple[str, ...] = _key(
        "Files of importance data to use instead; several are added up.", ()
    )
    gate: float = _key(
        "Least cosine between half of the importance data and all of it, for each tensor.", 0.9
    )
    hessian: bool = _key(
        "Feed errors back with a Hessian: slower, and better files.", default=False
    )
    search: str = _key("Look for better blocks: better or best.", "")
    texts: tuple[str, ...] = _key("Texts to measure quality on, not used for calibration.", ())
    text_chunks: int = _key("The most chunks of each text to read.", 40)
    context: int = _key("Tokens of a chunk.", 512)
    outtype: str = _key("Type of the converted model: auto, f16, bf16 or f32.", "auto")
    keep_base: bool = _key("Publish the converted model too.", default=True)
    projector: bool = _key("Convert the projector for pictures or sound, if any.", default=True)
    drafts: tuple[str, ...] = _key(
        "Draft models: folders, GGUF files, hf://org/model; mtp or dspark for those in the source.",
        (),
    )
    draft_outtype: str = _key("Type of converted draft models, as outtype, or q8_0.", "q8_0")
    adapters: tuple[str, ...] = _key(
        "LoRA adapters: folders of PEFT or MLX, GGUF files or hf://org/adapter.", ()
    )
    shard_bytes: int = _key("Split files at this size.", HUB_FILE_BYTES)
    run: bool = _key("Generate some tokens with each file in llama.cpp.", default=True)
    name: str = _key("Name of the files and the card; empty takes that of the source.", "")
    base_model: str = _key("The original on the Hub, such as org/model.", "")
    license: str = _key("Licence of the original, as the Hub calls it: apache-2.0, mit, ...", "")
    languages: tuple[str, ...] = _key("Languages of the model, such as en.", ())
    tags: tuple[str, ...] = _key("More tags for the card.", ())
    pipeline_tag: str = _key("What the model does, as the Hub calls it.", "text-generation")
    datasets: tuple[str, ...] = _key(
        "Data sets on the Hub that the text for calibration came from.", ()
    )
    quantized_by: str = _key("Who publishes the files.", "")

    def target(self, rung: str) -> dict[str, float] | None:
        """Return the target size of a rung as an argument of `target`, None for a recipe."""
        if rung.lower().endswith("bpw"):
            try:
                return {"bpw": finite_number(float(rung[:-3]), rung, least=0)}
            except ValueError:
                raise ValueTypeError(
                    f"{brief(rung)} is not a number of bits", remedy="Write it like 4.25bpw"
                ) from None
        is_size = rung[:1].isdigit() and not rung.endswith(RECIPE_SUFFIX)
        return {"nbytes": bytes_of(rung)[0]} if is_size else None


def template() -> str:
    """Return a commented `release.toml` with every setting at its default."""
    lines = ["# Settings of `ggufkit release`: remove # to change one."]
    for option in fields(Settings):
        plain = list(option.default) if isinstance(option.default, tuple) else option.default
        lines += ["", f"# {option.metadata['about']}", f"# {option.name} = {json.dumps(plain)}"]
    return "\n".join(lines) + "\n"


def read_settings(path: Path) -> Settings:
    """Return the settings in a TOML file; FormatError for other content, which it names."""
    import ggufkit._toml as _toml  # noqa: PLC0415 (slow to import, and most runs need none)

    try:
        return _checked(_toml.loads(decoded(read_small(path, Most.RECIPE))))
    except GGUFError as error:
        raise FormatError(error.message, remedy=error.remedy, path=str(path)) from None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"this is not TOML: {error}", path=str(path)) from None


def _checked(parsed: Mapping[str, Any]) -> Settings:
    defaults = {option.name: option.default for option in fields(Settings)}
    for key, value in parsed.items():
        if key not in defaults:
            near = difflib.get_close_matches(key, defaults, 1)
            hint = f"Did you mean {near[0]}?" if near else "`ggufkit release init` writes them all"
            raise ValueTypeError(f"there is no setting {key!r}", remedy=hint)
        if not _fits(value, defaults[key]):
            example = json.dumps(defaults[key] or ["..."])
            raise ValueTypeError(f"{key} has the wrong type", remedy=f"Write it like {example}")
    lists = {key: tuple(value) for key, value in parsed.items() if isinstance(value, list)}
    settings = Settings(**{**parsed, **lists})
    for rung in settings.rungs:
        settings.target(rung)  # a size or a number, or refused
    return settings


def _fits(value: object, default: object) -> bool:
    if isinstance(default, tuple):
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number if isinstance(default, float) else type(value) is type(default)
