"""`ggufkit estimate`: show how much memory a model takes in llama.cpp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import click

import ggufkit
from ggufkit.cli.model_argument import MODEL, look_at
from ggufkit.cli.options import Count, TokenCount, flag, new_command, option, parse_devices
from ggufkit.cli.output import emit, grouped, note, paged, size, table
from ggufkit.cli.quantize_options import parse_recipe
from ggufkit.inspection import estimate
from ggufkit.inspection.compute_buffer import is_encoder
from ggufkit.models.model import Model
from ggufkit.quantization.plan_memory import PlannedMemory
from ggufkit.quantization.quantize import decide

EVERY: Final = "all"  # recipes
AS_IT_IS: Final = "as it is"  # without a recipe
KINDS: Final = ("context", "weights", "cache", "state", "compute", "output", "total")


@new_command(
    "estimate",
    "ggufkit estimate model.gguf",
    "ggufkit estimate model.gguf --context 32768 --cache-type q8_0",
    "ggufkit estimate model.gguf --memory 8GiB",
    "ggufkit estimate model.gguf --memory auto",
    "ggufkit estimate model-f16.gguf --recipe all --context 8k --memory 8GiB",
    "ggufkit estimate model.gguf --context 4k --context 32k --memory 8GiB --memory 8GiB+8GiB",
    "ggufkit estimate model.gguf --json | jq .total",
)
@click.argument("file", type=MODEL)
@option(
    "--context contexts",
    "Tokens of all texts together, such as 8192 or 32k.  [repeatable; default: the model's "
    "training context]",
    type=TokenCount(min=1),
    multiple=True,
)
@option(
    "--cache-type",
    "Type of the KV cache.",
    type=click.Choice(estimate.CACHE_TYPES, case_sensitive=False),
    default="F16",
)
@option(
    "--value-cache-type",
    "Type of the cached values, if it differs from the keys' type.",
    type=click.Choice(estimate.CACHE_TYPES, case_sensitive=False),
)
@option("--sequences", "Number of texts at once.", type=Count(min=1), default=1, show_default=False)
@flag("--unified", "Keep all texts in one shared cache.")
@option("--micro-batch", "Number of tokens computed at once.", type=Count(min=1), default=512)
@flag("--no-flash-attention", "Assume flash attention is off.")
@flag("--full-window", "Assume a full-size cache for layers with a sliding window.")
@option(
    "--recipe recipes RECIPE",
    "Assume FILE is quantized by this recipe; all means FILE as it is, and each recipe that "
    "makes it smaller.  [repeatable]",
    multiple=True,
)
@option(
    "--memory devices SIZE",
    "Show what fits into a device with this much memory, or into several devices together "
    "(8GiB+12GiB); auto finds the graphics cards of this machine, or its memory.  [repeatable]",
    type=lambda text: Devices(text, parse_devices(text)),
    multiple=True,
)
@flag("--layers by_layer", "Show each layer.")
@flag("--json as_json", "Print all figures in bytes, as JSON.")
def command(  # noqa: PLR0913 (click passes each option)
    file: str,
    *,
    contexts: tuple[int, ...],
    recipes: tuple[str, ...],
    devices: tuple[Devices, ...],
    no_flash_attention: bool,
    by_layer: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Show how much memory FILE takes in llama.cpp, from its header alone.

    Weights and caches are exact; the compute buffer is an estimate. --memory 8GiB (powers of 1024)
    or 24G (powers of 1000) also shows how many layers fit on the device (llama.cpp's
    --n-gpu-layers), and the longest context with which the whole model fits. Several contexts,
    recipes or memories make a table; with several recipes it ends with the largest that fits.
    """
    options["flash_attention"] = not no_flash_attention
    with look_at(file) as model:
        if estimate.has_only_weights(model):
            note("a compute buffer is needed too; its size depends on the picture, video or sound")
        elif not contexts and estimate.trained_context(model) is None:
            note(
                f"the file does not say for how long a context it was trained; these figures are "
                f"for {estimate.DEFAULT_CONTEXT:,} tokens (--context)"
            )
        names = [name for text in recipes for name in text.split(",")]
        parsed = None if EVERY in recipes else list(map(parse_recipe, names))
        if parsed is None or max(len(contexts), len(devices), len(parsed)) > 1:
            if by_layer:
                raise click.UsageError("--layers shows one context, recipe and memory")
            lengths = contexts or (None,)
            planned = ggufkit.plan_memory(model, parsed or [None], lengths, **options)
            if parsed is None:
                planned += ggufkit.plan_memory(model, None, lengths, **options)
            show_memory_table(file, planned, devices, as_json=as_json)
            return
        options["context"] = contexts[0] if contexts else None
        memory = devices[0].memories if devices else None
        quantized = decide(model, parsed[0]).model if parsed else model
        _show_one(file, quantized, memory, options, by_layer, as_json=as_json)


def _show_one(  # noqa: PLR0913 (what to show of one model)
    file: str,
    model: Model,
    memory: tuple[int, ...] | None,
    options: dict[str, Any],
    by_layer: bool,  # noqa: FBT001
    *,
    as_json: bool,
) -> None:
    estimated = ggufkit.estimate(model, **options)
    fit = None if memory is None else estimated.fit(memory)
    most = None if memory is None else estimate.largest_context(model, memory, **options)
    if as_json:
        kinds = (*KINDS, "input_weights", "output_weights")
        document: dict[str, object] = {"file": file}
        document |= {kind: getattr(estimated, kind) for kind in kinds}
        document["layers"] = [vars(layer) for layer in estimated.layers]
        if fit:
            document |= {"fit": vars(fit), "largest_context": most}
        emit(document)
        return
    with paged():
        projects = estimate.has_only_weights(model)
        _print(estimated, by_layer=by_layer and not projects, encodes=is_encoder(model))
        if fit and projects:
            click.echo(f"\nThe weights {'fit' if fit.is_whole else 'do not fit'}.")
        elif fit:
            _print_fit(estimated, fit, most or 0)


def _print(estimated: estimate.Estimate, *, by_layer: bool, encodes: bool) -> None:
    rows = [
        ("weights", size(estimated.weights), ""),
        ("cache", size(estimated.cache), f"keys and values of {estimated.context:,} tokens"),
        ("state", size(estimated.state), "recurrent layers"),
        ("compute", size(estimated.compute), "about"),
        ("output", size(estimated.output), "reserved for results" if encodes else "logits"),
        ("total", size(estimated.total), ""),
    ]
    # Only some models have a state, and projectors nothing but weights.
    always = ("weights", "total") + (("cache", "compute", "output") if estimated.context else ())
    listed = (row for row in rows if row[0] in always or (row[0] == "state" and estimated.state))
    table(("MEMORY", "SIZE", ""), listed, right="lrl")
    if by_layer:
        click.echo()
        table(
            ("LAYER", "WEIGHTS", "CACHE", "STATE"),
            (
                (str(layer.number), size(layer.weights), size(layer.cache), size(layer.state))
                for layer in estimated.layers
            ),
            right="rrrr",
        )


def _print_fit(estimated: estimate.Estimate, fit: estimate.Fit, most: int) -> None:
    click.echo()
    layers = len(estimated.layers) + 1
    if fit.is_whole:
        click.echo(f"All {layers} layers fit, including the output layer: {size(fit.device)}.")
    elif fit.layers:
        where = "device" if len(fit.split) == 1 else "devices"
        click.echo(
            f"{fit.layers} of {layers} layers fit (--n-gpu-layers {fit.layers}): "
            f"{size(fit.device)} on the {where}, {size(fit.host)} on the host."
        )
    else:
        click.echo("No layer fits.")
    if len(fit.split) > 1 and fit.layers:
        click.echo(f"Layers of each device, from the last on: {', '.join(map(str, fit.split))}.")
    if most:
        click.echo(f"All layers fit with a context of up to {most:,} tokens.")
    else:
        click.echo("No context is short enough for all layers to fit.")


class Devices(NamedTuple):
    """The memory of a device, or of several together: as written, and in bytes."""

    text: str
    memories: tuple[int, ...]


def show_memory_table(
    file: str, planned: Sequence[PlannedMemory], devices: Sequence[Devices], *, as_json: bool
) -> None:
    """Show a row for each recipe and context, and the largest recipe that fits each memory."""
    largest = _largest(planned, devices)
    if as_json:
        fitting = [
            {"memory": device.text, "context": context}
            | {"fits": plan is not None, "recipe": plan and plan.recipe}
            for device, context, plan in largest
        ]
        documents = [_plain(plan, devices) for plan in planned]
        emit({"file": file, "rows": documents, "largest": fitting})
        return
    recipes = {plan.recipe for plan in planned} != {None}
    header = (*(("RECIPE",) if recipes else ()), "CONTEXT", "WEIGHTS", "CACHE", "TOTAL")
    columns = (*header, *(device.text for device in devices))
    with paged():
        rows = [_row(plan, devices, recipes=recipes) for plan in planned]
        table(columns, rows, right="l" * recipes + "r" * (len(columns) - recipes))
        if largest:
            click.echo()
        for device, context, largest_plan in largest:
            name = largest_plan and (largest_plan.recipe or AS_IT_IS)
            click.echo(
                f"Largest recipe for {device.text} with {context:,} tokens: {name or 'none fits'}"
            )


def _row(planned: PlannedMemory, devices: Sequence[Devices], *, recipes: bool) -> tuple[str, ...]:
    estimated = planned.estimate
    name = (planned.recipe or AS_IT_IS,) if recipes else ()
    sizes = (
        size(estimated.weights),
        size(estimated.cache + estimated.state),
        size(estimated.total),
    )
    fits = (fit_words(estimated, estimated.fit(d.memories), "fits") for d in devices)
    return (*name, grouped(estimated.context), *sizes, *fits)


def fit_words(estimated: estimate.Estimate, fit: estimate.Fit, whole: str) -> str:
    """Return how much fits; layers are counted as for llama.cpp's --n-gpu-layers."""
    if fit.is_whole:
        return whole
    return f"{fit.layers} of {len(estimated.layers) + 1} layers" if fit.layers else "no"


def _largest(
    planned: Sequence[PlannedMemory], devices: Sequence[Devices]
) -> list[tuple[Devices, int, PlannedMemory | None]]:
    """Return the largest recipe for each memory and context, if there are several recipes."""
    if len({plan.recipe for plan in planned}) < 2:  # noqa: PLR2004 (several)
        return []
    contexts = dict.fromkeys(plan.estimate.context for plan in planned)
    rows = []
    for device in devices:
        for context in contexts:
            fitting = [
                plan
                for plan in planned
                if plan.estimate.context == context and plan.estimate.fit(device.memories).is_whole
            ]
            best = max(fitting, key=lambda plan: plan.estimate.weights, default=None)
            rows.append((device, context, best))
    return rows


def _plain(planned: PlannedMemory, devices: Sequence[Devices]) -> dict[str, Any]:
    estimated = planned.estimate
    figures = {kind: getattr(estimated, kind) for kind in KINDS}
    fits = [{"memory": device.text, **vars(estimated.fit(device.memories))} for device in devices]
    return {"recipe": planned.recipe, **figures, "fits": fits}
