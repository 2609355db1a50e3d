"""`ggufkit imatrix`: show, merge, convert and compute importance matrices."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from ggufkit.cli import options as shared
from ggufkit.cli import streams, write_model
from ggufkit.cli.model_argument import FILE, MODEL
from ggufkit.cli.output import counted, emit, examples, note, paged, table
from ggufkit.cli.progress import progress_bar
from ggufkit.errors import printable
from ggufkit.imatrix.coverage import (
    ADVICE,
    LEAST_COSINE,
    ExpertCoverage,
    expert_coverage,
    half_similarity,
)
from ggufkit.imatrix.hessian_file import BAND_UNIT
from ggufkit.imatrix.matrix import CHUNK_SIZE, FORMATS, Imatrix, merge
from ggufkit.imatrix.shards import parse_shard
from ggufkit.imatrix.statistics import LayerStatistics, by_layer, statistics
from ggufkit.models.layers import tensor_names
from ggufkit.validation.plain_values import plain_values

STATISTICS: Final = "LAYER TENSOR SUM(ACT²) MIN MAX MEAN STDDEV ACTIVE N ENTROPY E(NORM) ZD COSSIM"

format_option: shared.SharedOption = shared.option(
    "--format",
    "Format of the file.  [default: dat if OUT ends in .dat, otherwise gguf]",
    type=click.Choice(FORMATS, case_sensitive=False),
)
json_option: shared.SharedOption = shared.flag("--json as_json", "Print the result as JSON.")
context_option: shared.SharedOption = shared.option(
    "--context",
    "Tokens per chunk, which .dat files do not say.  [default: what a .gguf among the inputs "
    "says, or 512]",
    type=shared.TokenCount(1, shared.MAX_CONTEXT),
)


@click.group(
    "imatrix",
    epilog=examples(
        "ggufkit imatrix show imatrix.gguf",
        "ggufkit imatrix compute model-f16.gguf text.txt -o imatrix.gguf",
    ),
)
def command() -> None:
    """Work with importance matrices, in the GGUF or the legacy .dat format of llama-imatrix."""


@command.command(
    "show",
    short_help="Show the statistics of an importance matrix.",
    epilog=examples("ggufkit imatrix show imatrix.gguf", "ggufkit imatrix show imatrix.dat --json"),
)
@click.argument("source", metavar="IN", type=FILE)
@json_option
def show(source: str, *, as_json: bool) -> None:
    """Show the statistics of each tensor and each layer in the importance matrix IN.

    The figures equal llama-imatrix --show-statistics.
    """
    imatrix = Imatrix.open(source)
    summary = statistics(imatrix)
    layers = by_layer(summary)
    if as_json:
        figures = {"tensors": plain_values(summary), "layers": plain_values(layers)}
        emit(_about(imatrix) | figures)
        return
    with paged():
        of_tokens = f" of {imatrix.chunk_size} tokens" if imatrix.chunk_size else ""
        form = "legacy importance matrix" if imatrix.is_legacy else "importance matrix"
        datasets = ", ".join(imatrix.datasets) or "unknown"
        click.echo(f"{form}, {counted(len(imatrix.entries), 'tensor')}")
        click.echo(f"computed on {counted(imatrix.chunk_count, 'chunk')}{of_tokens}")
        click.echo(f"from {printable(datasets)}")
        if experts := expert_coverage(imatrix):
            click.echo(_tokens_of(experts))
            _note_unreached(experts)
        click.echo()
        rows = [
            (
                printable(layer.layer),
                printable(layer.tensor),
                f"{layer.total:.2f}",
                f"{layer.minimum:.4f}",
                f"{layer.maximum:.4f}",
                f"{layer.mean:.2f}",
                f"{layer.deviation:.2f}",
                f"{100 * layer.active:.2f}%",
                str(layer.elements),
                f"{layer.entropy:.4f}",
                f"{100 * layer.evenness:.2f}%",
                f"{100 * layer.z_density:.2f}%",
                f"{layer.similarity:.4f}",
            )
            for layer in summary
        ]
        table(STATISTICS.split(), rows, right="rlrrrrrrrrrrr")
        click.echo()
        _print_layers(layers)


@command.command(
    "merge",
    short_help="Merge several importance matrices into one.",
    epilog=examples("ggufkit imatrix merge english.gguf code.dat -o both.gguf"),
)
@click.argument("sources", metavar="IN...", type=FILE, nargs=-1, required=True)
@shared.option("-o --output out OUT", "The file to write.", required=True)
@format_option
@context_option
@shared.no_clobber_option
@json_option
def merge_command(
    sources: tuple[str, ...], out: str, *, format: str | None, context: int | None, as_json: bool
) -> None:
    """Add the importance matrices IN of one model, and write the sum to OUT.

    The output equals llama-imatrix's with each IN as --in-file. Several Hessians are added too.
    """
    from ggufkit.imatrix.hessian_merge import is_hessian, merge_hessians  # noqa: PLC0415 (slow)

    if any(map(is_hessian, sources)):
        write_model.refuse_input(out, sources)
        merge_hessians(sources, out, clobber=write_model.may_replace())
        streams.work_is_done()
        write_model.report([Path(out)])
        return
    merged = merge((Imatrix.open(source) for source in sources), chunk_size=context)
    _write(merged, out, sources, format, as_json=as_json)


@command.command(
    "convert",
    cls=shared.Command,
    short_help="Convert between the .dat and .gguf formats.",
    epilog=examples("ggufkit imatrix convert imatrix.dat imatrix.gguf"),
)
@click.argument("source", metavar="IN", type=FILE)
@click.argument("out", metavar="OUT")
@format_option
@context_option
@shared.no_clobber_option
@json_option
def convert(
    source: str, out: str, *, format: str | None, context: int | None, as_json: bool
) -> None:
    """Convert the importance matrix IN to the other format, and write it to OUT."""
    converted = merge([Imatrix.open(source)], chunk_size=context)
    _write(converted, out, (source,), format, as_json=as_json)


@command.command(
    "compute",
    short_help="Compute an importance matrix with llama.cpp.",
    epilog=examples(
        "ggufkit imatrix compute model-f16.gguf text.txt",
        "ggufkit imatrix compute model-f16.gguf text.txt -o model.imatrix --chunks 100",
        "ggufkit imatrix compute model-f16.gguf text.txt --hessian model.hessian.gguf",
    ),
)
@click.argument("model", metavar="MODEL", type=MODEL)
@click.argument("text", metavar="TEXT", type=FILE)
@shared.output_option("imatrix.gguf")
@format_option
@shared.chunks_option
@shared.option(
    "--from-chunk", "Skip the first N chunks.", type=shared.Count(0), default=0, show_default=False
)
@shared.option(
    "--shard I/N",
    "Read only part I of N of these chunks; `imatrix merge` adds up the N results.",
    type=shared.usage(parse_shard),
    default="1/1",
    show_default=False,
)
@shared.option(
    "--context",
    "Tokens per chunk.",
    type=shared.TokenCount(16, shared.MAX_CONTEXT),
    default=CHUNK_SIZE,
)
@shared.option(
    "--batch",
    "Tokens computed at once; fewer need less memory.",
    type=shared.Count(16, shared.MAX_CONTEXT),
    default=2048,
)
@shared.flag("--process-output", "Also collect data for output.weight.")
@shared.flag("--parse-special", "Parse special tokens in the text.")
@shared.option(
    "--hessian FILE",
    "Also write how the inputs of each weight go together, for `quantize --hessian`.",
)
@shared.option(
    "--band N",
    "For --hessian: only how inputs in the same block of N columns go together, a multiple "
    f"of {BAND_UNIT}. Memory, file and time of `quantize` grow with N.",
    type=shared.Count(BAND_UNIT),
)
@shared.option(
    "--memory SIZE",
    "Memory for the data of --hessian; more data takes several passes over TEXT.  [default: 4GiB]",
    type=shared.parse_size,
)
@shared.resume_option
@shared.no_clobber_option
@shared.threads_option
@json_option
def compute(model: str, text: str, out: str, *, as_json: bool, **options: Any) -> None:
    """Run MODEL on the file TEXT, and write how large the inputs of each weight are.

    This runs llama.cpp through its Python binding, the extra ggufkit[llama]. llama-imatrix
    gives the same result on the same chunks.
    """
    from ggufkit.imatrix.compute import compute_imatrix  # noqa: PLC0415 (needs the extra)

    chosen = options | {"resume": out if options["resume"] else None}
    form, hessian = chosen.pop("format"), options["hessian"]
    if hessian and Path(hessian) == Path(out):
        raise click.UsageError("--hessian and --output name the same file")
    for option in ("memory", "band"):
        if chosen[option] is None:
            del chosen[option]  # the default
        elif not hessian:
            raise click.UsageError(f"--{option} goes with --hessian")
    for output in (out, hessian) if hessian else (out,):  # before hours of work
        write_model.refuse_input(output, (model, text))
        write_model.require_place(output)
    with progress_bar("computing", in_bytes=False) as progress:
        imatrix = compute_imatrix(model, text, progress=progress, **chosen)
    also = (Path(hessian),) if hessian else ()
    _write(imatrix, out, (model, text, *map(str, also)), form, as_json=as_json, also=also)


def _write(  # noqa: PLR0913 (what is written, where, and how it is shown)
    imatrix: Imatrix,
    out: str,
    inputs: tuple[str, ...],
    format: str | None,
    *,
    as_json: bool,
    also: tuple[Path, ...] = (),
) -> None:
    write_model.refuse_input(out, inputs)
    _note_coverage(imatrix)
    paths = [imatrix.save(out, format, clobber=write_model.may_replace()), *also]
    streams.work_is_done()
    if as_json:
        emit(_about(imatrix) | {"files": write_model.files_written(paths)})
    else:
        write_model.report(paths)


def _tokens_of(experts: ExpertCoverage) -> str:
    return (
        f"each of {counted(experts.experts, 'expert')} got {experts.least:,} to {experts.most:,} "
        f"tokens, the median {experts.median:,.0f}"
    )


def _note_unreached(experts: ExpertCoverage) -> None:
    """Print a note for experts that no token reached: their inputs all get the same weight."""
    if experts.unreached:
        note(
            f"no token reached {experts.unreached:,} of {counted(experts.experts, 'expert')}, in "
            f"{tensor_names(experts.tensors)}. {ADVICE}"
        )


def _note_coverage(imatrix: Imatrix) -> None:
    """Print how well the text covers the model."""
    if experts := expert_coverage(imatrix):
        note(_tokens_of(experts))
        _note_unreached(experts)
    if similar := half_similarity(imatrix):
        advice = f". {ADVICE}" if similar.least < LEAST_COSINE else ""
        note(
            f"half of the text and all of it have a cosine of {similar.least:.4f} in "
            f"{similar.tensor}, the least, and {similar.median:.4f} in the median tensor{advice}"
        )


def _about(imatrix: Imatrix) -> dict[str, Any]:
    return {
        "format": "dat" if imatrix.is_legacy else "gguf",
        "datasets": list(imatrix.datasets),
        "chunk_count": imatrix.chunk_count,
        "chunk_size": imatrix.chunk_size or None,
        "entries": len(imatrix.entries),
        "experts": plain_values(expert_coverage(imatrix)),
        "half_similarity": plain_values(half_similarity(imatrix)),
    }


def _print_layers(layers: list[LayerStatistics]) -> None:
    rows = [
        (
            str(layer.layer),
            f"{layer.total:.2f}",
            f"{100 * layer.z_density:.4f}%",
            f"{layer.similarity:.4f}",
        )
        for layer in layers
    ]
    table(("LAYER", "MEAN SUM ACT²", "MEAN ZD", "MEAN COSSIM"), rows, right="rrrr")
