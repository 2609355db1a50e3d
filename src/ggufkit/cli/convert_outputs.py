"""Names, writes and shows the files of `ggufkit convert`: models and adapters."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

import ggufkit
from ggufkit.cli.output import counted, dims, emit, grouped, note, paged, size, table
from ggufkit.cli.streams import PIPE
from ggufkit.cli.write_model import is_folder, report, write_all
from ggufkit.errors import printable
from ggufkit.format.file_name import NO_BASENAME, build_name
from ggufkit.lora.task_adapters import ARCHITECTURE
from ggufkit.models.model import Model, bits_per_weight

OPTION_GROUPS: Final[dict[str, str]] = {
    "Types": "--outtype --quantize --imatrix --search --fp8-as-q8 --keep-quantized",
    "Text models": "--pre --vocab-only --mtp --dspark --target-model-dir --strict --exactly "
    "--fuse-qkv --fuse-gate-up-exps --sentence-transformers-dense-modules "
    "--mistral-format --disable-mistral-community-chat-template",
    "Projectors": "--mmproj --with-mmproj",
    "Image and video models": "--arch --for --part",
    "Names and metadata": "--model-name --metadata --arch-path --follow-links",
    "Output": "--output --bigendian --split-max-size --split-max-tensors "
    "--no-tensor-first-split --dry-run --json --no-clobber",
    "Work": "--threads --resume",
}
# What stands for the type in the name of an output, as in the converter's templates.
TYPE_WORDS: Final[dict[str, Callable[[str], str]]] = {
    "{ftype}": str.lower, "{outtype}": str.lower, "{FTYPE}": str.upper, "{OUTTYPE}": str.upper,
    "{}": str.lower,
}  # fmt: skip


def has_type(out: str) -> bool:
    """Whether the name of OUT contains a word for the type."""
    return any(word in Path(out).name for word in TYPE_WORDS)


def output_path(model: Model, out: str, kind: str = "", stem: str = "") -> str:
    """Return the file to write: OUT, or a file in the folder OUT named by the convention.

    `kind` is "vocab" or "mtp" for a file that holds only this part of a model, else empty. The name
    of an image or video model begins with `stem`.
    """
    if out == PIPE:
        return out
    parts = ggufkit.conventional_name(model)
    kinds = [tensor.type.name for tensor in model.tensors.values() if len(tensor.shape) > 1]
    # Some architectures do not write general.file_type.
    encoding = parts.encoding or next(iter(kinds), "F32")
    if not is_folder(out):
        name = Path(out).name
        for word, letters in TYPE_WORDS.items():
            name = name.replace(word, letters(encoding))
        return str(Path(out).with_name(name)) if name != Path(out).name else out
    if stem:
        return str(Path(out) / f"{stem}-{encoding}.gguf")
    title = model.metadata.get("general.name", "")
    basename = str(title) if title and parts.basename == NO_BASENAME else parts.basename
    # The size of a projector tells nothing of the model that it belongs to.
    label = "" if parts.sidecar else parts.size_label
    parts = replace(parts, basename=basename, encoding=encoding, size_label=label)
    if kind == "vocab":
        parts = replace(parts, size_label="", encoding="", type=kind)
    elif kind == "mtp":
        parts = replace(parts, size_label="", sidecar=kind)
    return str(Path(out) / build_name(parts))


def adapter_outputs(
    model: Model, source: str, target: str, **options: Any
) -> list[tuple[Model, str]]:
    """Return the adapters for tasks in the checkpoint of `model`, and a file next to `target` each.

    `options` go to `ggufkit.task_adapters`.
    """
    if model.architecture != ARCHITECTURE:
        return []
    adapters = ggufkit.task_adapters(source, **options)
    if adapters and target == PIPE:
        note(f"stdout gets the model without its adapters for {', '.join(adapters)}")
        return []
    place = Path(target)
    return [
        (adapter, str(place.with_name(f"lora-{task}-{place.name}")))
        for task, adapter in adapters.items()
    ]


def _plain(model: Model, target: str) -> dict[str, Any]:
    return {
        "path": target,
        "architecture": model.metadata.get("general.architecture"),
        "nbytes": model.nbytes,
        "bits_per_weight": bits_per_weight(model.tensors.values()),
        "tensors": [
            {"name": t.name, "type": t.type.name, "shape": list(t.shape), "nbytes": t.nbytes}
            for t in model.tensors.values()
        ],
    }


def _print(outputs: list[tuple[Model, str]]) -> None:
    """Print the tensors of the first output, and a line for each output."""
    rows = (
        (printable(t.name), dims(t.shape), t.type.name, grouped(t.nbytes))
        for t in outputs[0][0].tensors.values()
    )
    table(("TENSOR", "SHAPE", "TYPE", "BYTES"), rows, right="lllr")
    click.echo()
    for model, target in outputs:
        bits = bits_per_weight(model.tensors.values())
        rate = "" if bits is None else f", {bits:.2f} bits per weight"
        tensors = counted(len(model.tensors), "tensor")
        click.echo(f"{printable(target)}: {tensors}, {size(model.nbytes)}{rate}")


@contextlib.contextmanager
def folder_of(target: str) -> Iterator[None]:
    """Make the folder of an output, and remove it again if it stays empty."""
    folder = Path(target).parent
    is_new = target != PIPE and not folder.exists()
    if is_new:
        folder.mkdir(parents=True)
    try:
        yield
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # the folder has the output
                folder.rmdir()


def deliver_all(
    outputs: list[tuple[Model, str]], work: dict[str, Any], *, dry_run: bool, as_json: bool
) -> None:
    """Write the outputs and print their files; a dry run only prints."""
    paths = [] if dry_run else list(itertools.chain(*write_all(outputs, **work)))
    if as_json:
        emit([_plain(model, target) for model, target in outputs])
    elif dry_run:
        with paged():
            _print(outputs)
    else:
        report(paths)
