"""Shows what `ggufkit quantize` decided and did: notes, a table, or JSON."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import ggufkit
from ggufkit.cli.options import SharedOption, flag
from ggufkit.cli.output import counted, dims, emit, grouped, note, paged, row_widths, size, table
from ggufkit.cli.progress import progress_bar
from ggufkit.cli.streams import dropping_if_closed
from ggufkit.cli.write_model import files_written, report
from ggufkit.errors import printable
from ggufkit.format.types import TensorType
from ggufkit.models.layers import tensor_names
from ggufkit.models.model import Model, Tensor, bits_per_weight
from ggufkit.output.layout import layout
from ggufkit.quantization.choice.type_choice import BY_NAME
from ggufkit.quantization.decision import Decision, Quantization
from ggufkit.quantization.explain import Explanation, explain
from ggufkit.quantization.quantize import QuantizeOptions, decide, refuse
from ggufkit.quantization.recipes import Recipe
from ggufkit.quants.search import is_searched

if TYPE_CHECKING:
    from typing_extensions import Unpack

_DATA: Final = ("imatrix", "hessian")
explain_option: SharedOption = flag(
    "--explain explains",
    "Show why each tensor has its type, its error in OUT, and its share of the loss.",
)


def explained(
    quantization: Quantization,
    paths: Sequence[Path],
    threads: int | None = None,
    *,
    aimed: bool = False,
) -> list[Explanation]:
    """Return the explanations of an output; without files, what needs no data.

    `aimed` says that types by name were chosen for a target size.
    """
    if not paths:
        rows = explain(quantization)
    else:
        with ggufkit.open(paths[0]) as written, progress_bar("measuring", in_bytes=False) as bar:
            rows = explain(quantization, written, threads=threads, progress=bar)
    why = "chosen for the target size" if aimed else BY_NAME
    return [replace(row, why=row.why.replace(BY_NAME, why)) for row in rows]


def show_explanations(explanations: Sequence[Explanation]) -> None:
    """Print a table: the largest share of the loss first, or the order of the file."""
    ordered = sorted(explanations, key=lambda explanation: -(explanation.share or 0.0))
    rows = [
        (
            printable(explanation.name),
            explanation.before,
            explanation.after,
            grouped(explanation.nbytes),
            "" if explanation.error is None else f"{explanation.error:.2%}",
            "" if explanation.share is None else f"{explanation.share:.1%}",
            printable(explanation.why),
        )
        for explanation in ordered
    ]
    header = ("TENSOR", "TYPE", "BECOMES", "BYTES", "ERROR", "LOSS", "WHY")
    with paged():
        table(header, rows, right="lllrrrl")


@dropping_if_closed()
def report_quantized(
    outputs: Sequence[Quantization],
    paths: Sequence[list[Path]],
    *,
    dry_run: bool,
    as_json: bool,
    explanations: Sequence[Sequence[Explanation]] = (),
) -> None:
    """Print what became of each recipe: paths, a table for a dry run, explanations, or JSON."""
    if as_json:
        documents = [_plain(*pair) for pair in zip(outputs, paths, strict=True)]
        for document, rows in zip(documents, explanations, strict=False):
            document["explanations"] = [asdict(explanation) for explanation in rows]
        emit(documents[0] if len(documents) == 1 else {"outputs": documents})
    elif dry_run and not explanations:
        with paged():
            for output in outputs:
                _print(output)
    else:
        for rows in explanations:
            show_explanations(rows)
        report(list(itertools.chain.from_iterable(paths)))


def quantized_with_notes(
    model: Model,
    recipe: str | Recipe,
    *,
    allow_requantize: bool = False,
    of_several: bool = False,
    **options: Unpack[QuantizeOptions],
) -> Model:
    """Return what `ggufkit.quantize` returns, after its notes are printed."""
    quantized = decide(model, recipe, **options)
    refuse(quantized, allow_requantize=allow_requantize)
    warn(quantized, allowed=allow_requantize, of_several=of_several)
    return quantized.model


def warn(quantized: Quantization, *, allowed: bool, of_several: bool) -> None:
    """Print the notes of an output, with its recipe if there are several outputs."""
    for text in _notes(quantized, allowed=allowed):
        note(f"{quantized.recipe.name}: {text}" if of_several else text)


def warn_of_feedback(quantizations: Sequence[Quantization]) -> None:
    """Print which tensors were written without feedback of errors, and why."""
    fed_back = [[d.after for d in result.decisions if d.is_fed_back] for result in quantizations]
    if not any(fed_back):
        return
    from ggufkit.quantization.gptq_source import (  # noqa: PLC0415 (slow to import)
        has_few_tokens,
        outcomes_of,
        why_not_fed_back,
    )

    for tensors in fed_back:
        few = [tensor.name for tensor in tensors if has_few_tokens(tensor)]
        if few:
            note(
                f"the Hessian has fewer tokens than columns in {tensor_names(few)}: it is damped; "
                "a longer text is better"
            )
        reasons: dict[str, list[str]] = {}
        for tensor in tensors:
            outcomes = outcomes_of(tensor)
            if outcomes and not any(outcome.helps for outcome in outcomes):
                reasons.setdefault(why_not_fed_back(outcomes), []).append(tensor.name)
        for why, names in reasons.items():
            note(f"errors are not fed back in {tensor_names(names)}: {why}")


def _bits_of_name(quantized: Quantization) -> Iterator[str]:
    nominal, bits = quantized.nominal_bits, bits_per_weight(_sides(quantized)[1])
    if nominal and bits:
        widths = row_widths(quantized.fallback_widths)
        why = f": {widths} do not divide into the blocks of the recipe's types" if widths else ""
        base = f"the base type {quantized.recipe.base} has {nominal:.2f} bits per weight"
        yield f"{base}, this model gets {bits:.2f}{why}"


def _notes(quantized: Quantization, *, allowed: bool) -> Iterator[str]:
    yield from _bits_of_name(quantized)
    for part in quantized.unmatched:
        yield (
            f"{part!r} changes nothing: no tensor name contains it, or the recipe "
            f"{quantized.recipe.name} ignores patterns, as F32, F16 and BF16 do in llama-quantize"
        )
    if quantized.requantized:
        again = quantized.requantized
        sides = ([d.before for d in again], [d.after for d in again])
        before, after = (bits_per_weight(tensors) or 0 for tensors in sides)
        bits = f"from {before:.2f} to {after:.2f} bits per weight"
        tensors = f"{counted(len(again), 'tensor')} quantized already"
        yield (
            f"{tensors} ({quantized.requantized_types}): quantizing again loses quality ({bits}); "
        ) + (
            "start from F32, F16 or BF16 if you can"
            if allowed
            else "without --allow-requantize it is refused"
        )
    grown = [d for d in quantized.requantized if d.after.nbytes >= d.before.nbytes]
    if grown:
        extra = sum(d.after.nbytes - d.before.nbytes for d in grown)
        yield (
            f"{counted(len(grown), 'tensor')} of these would not become smaller, {size(extra)} "
            "more: --requantize-smaller keeps their bits"
        )
    yield from _about_types(quantized)
    if quantized.uncovered:
        tensors = tensor_names([d.after.name for d in quantized.uncovered])
        yield f"importance data is missing, and without it this is refused: {tensors}"
    for kind, number in Counter(d.after.type for d in quantized.unsearched).items():
        why = "gains little with importance data" if is_searched(kind) else "has none"
        yield f"{counted(number, 'tensor')} without a search: {kind} {why}"
    others = [d.after.name for d in quantized.unweighted if not d.needs_imatrix]
    if others:
        imatrix, hessian = (quantized.model.metadata.get(f"quantize.{key}.file") for key in _DATA)
        data = "Hessian" if imatrix and imatrix == hessian else "importance matrix"
        yield f"the {data} does not cover {tensor_names(others)}"


def _about_types(quantized: Quantization) -> Iterator[str]:
    """Yield which types tensors have instead of those that the recipe chose."""
    original = [d for d in quantized.decisions if d.kept_from]
    for (kind, chosen), number in Counter((d.before.type, d.kept_from) for d in original).items():
        yield f"{counted(number, 'tensor')} kept as {kind}: {chosen} would not be smaller"
    fallen: dict[tuple[TensorType, TensorType], list[int]] = {}
    for d in quantized.decisions:
        if d.fell_from:
            fallen.setdefault((d.fell_from, d.after.type), []).append(d.fallback_nbytes)
    for (chosen, used), costs in fallen.items():
        tensors = counted(len(costs), "tensor")
        yield (
            f"{tensors} with rows that do not divide into blocks: {used} instead of {chosen}, "
            f"{size(sum(costs))} more"
        )
    promoted = Counter(
        (d.promoted_from, d.after.type) for d in quantized.decisions if d.promoted_from
    )
    for (chosen, used), number in promoted.items():
        yield f"{counted(number, 'tensor')} without importance data: {used} instead of {chosen}"
    bare = quantized.without_feedback
    if bare and "quantize.hessian.file" in quantized.model.metadata:
        kinds = ", ".join(sorted({d.after.type.name for d in bare}))
        yield f"{counted(len(bare), 'tensor')} without feedback of errors: it cannot write {kinds}"


def _print(quantized: Quantization) -> None:
    rows = [
        (
            printable(d.after.name),
            dims(d.after.shape),
            d.before.type.name,
            d.after.type.name if d.is_changed else "",
            grouped(d.before.nbytes),
            grouped(d.after.nbytes),
        )
        for d in quantized.decisions
    ]
    table(("TENSOR", "SHAPE", "TYPE", "BECOMES", "BYTES", "WILL BE"), rows, right="llllrr")
    click.echo()
    for label, tensors in zip(("now ", "then"), _sides(quantized), strict=True):
        bits = bits_per_weight(tensors)
        rate = "" if bits is None else f", {bits:.2f} bits per weight"
        click.echo(f"{label}  {size(sum(tensor.nbytes for tensor in tensors))}{rate}")
    if quantized.search:
        searched = counted(sum(d.search is not None for d in quantized.decisions), "tensor")
        click.echo(f"search {quantized.search}: {searched}")
    fed_back = sum(decision.is_fed_back for decision in quantized.decisions)
    if fed_back:
        click.echo(f"errors fed back: {counted(fed_back, 'tensor')}")


def _sides(quantized: Quantization) -> tuple[list[Tensor], list[Tensor]]:
    return [d.before for d in quantized.decisions], [d.after for d in quantized.decisions]


def _plain(quantized: Quantization, paths: Sequence[Path]) -> dict[str, Any]:
    before, after = _sides(quantized)
    return {
        "recipe": quantized.recipe.name,
        "files": files_written(paths),
        "nbytes": sum(tensor.nbytes for tensor in before),
        "new_nbytes": sum(tensor.nbytes for tensor in after),
        "bits_per_weight": bits_per_weight(before),
        "new_bits_per_weight": bits_per_weight(after),
        "nominal_bits": quantized.nominal_bits,
        "file_nbytes": layout(
            quantized.model, "model.gguf", shard_counts=quantized.shard_counts
        ).nbytes,
        "fallbacks": [d.after.name for d in quantized.decisions if d.fell_from],
        "uncovered": [d.after.name for d in quantized.uncovered],
        "unweighted": [d.after.name for d in quantized.unweighted],
        "unmatched": list(quantized.unmatched),
        "search": quantized.search,
        "tensors": [_plain_decision(decision) for decision in quantized.decisions],
    }


def _plain_decision(decision: Decision) -> dict[str, Any]:
    before, after = decision.before, decision.after
    return {
        "name": after.name,
        "shape": list(after.shape),
        "type": before.type.name,
        "new_type": after.type.name,
        "nbytes": before.nbytes,
        "new_nbytes": after.nbytes,
        "fell_from": decision.fell_from and decision.fell_from.name,
        "promoted_from": decision.promoted_from and decision.promoted_from.name,
        "kept_from": decision.kept_from and decision.kept_from.name,
        "needs_imatrix": decision.needs_imatrix,
        "has_imatrix": decision.weights is not None,
        "search": decision.search,
        "has_hessian": decision.is_fed_back,
    }
