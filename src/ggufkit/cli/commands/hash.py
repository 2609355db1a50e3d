"""`ggufkit hash`: print digests of a model and its tensors, or check them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

import ggufkit
from ggufkit.cli.errors import report
from ggufkit.cli.model_argument import MODEL
from ggufkit.cli.options import threads_option
from ggufkit.cli.output import emit, examples, note
from ggufkit.cli.progress import progress_bar
from ggufkit.errors import FormatError, printable
from ggufkit.inspection.hash import ALGORITHMS, BY_TENSOR, Hashes
from ggufkit.inspection.hash_manifest import Line, Manifest, Result, Verdict, read_manifest, verdict

SECTION: Final = "Look"  # of the help

Results = list[tuple[Line, Result]]


@click.command(
    "hash",
    short_help="Hash tensors as llama-gguf-hash does, and check manifests.",
    epilog=examples(
        "ggufkit hash model.gguf",
        "ggufkit hash model.gguf --all > model.gguf.manifest",
        "ggufkit hash model.gguf --check model.gguf.manifest",
        "ggufkit hash model-00001-of-00003.gguf --content",
    ),
)
@click.argument("file", type=MODEL)
@click.option("--xxh64", is_flag=True, help="XXH64 (fast, the default).")
@click.option("--sha1", is_flag=True, help="SHA-1.")
@click.option("--sha256", is_flag=True, help="SHA-256.")
@click.option("--all", "all_", is_flag=True, help="XXH64, SHA-1 and SHA-256.")
@click.option("--uuid", is_flag=True, help="llama.cpp's identifier (UUIDv5) of the tensor data.")
@click.option(
    "--content", is_flag=True, help="One digest of all content, independent of the layout."
)
@click.option("--no-layer", is_flag=True, help="Leave out the digests of single tensors.")
@click.option("--check", "-c", "manifest", metavar="MANIFEST", help="Check against a manifest.")
@click.option("--name", metavar="NAME", help="Print this name instead of FILE.")
@click.option("--json", "as_json", is_flag=True, help="Print the digests as JSON.")
@threads_option
@click.pass_context
def command(  # noqa: PLR0913 (click passes each option)
    ctx: click.Context,
    /,
    file: str,
    *,
    no_layer: bool,
    manifest: str | None,
    name: str | None,
    as_json: bool,
    threads: int | None,
    all_: bool,
    **chosen: bool,
) -> None:
    """Print digests of the tensor data of FILE, line for line as llama-gguf-hash does.

    FILE is a GGUF file, any shard of a set, or a folder that holds one. A set has the same digests
    as the merged file. --content also covers names, shapes, types and metadata.

    With --check each line says whether the digest matches the manifest. The exit codes are those of
    llama-gguf-hash: 0 if all match, 1 if one differs, 3 if the manifest has none of them, 4 if
    it has no known hash type, 5 if it cannot be read.
    """
    expected = _expected(ctx, manifest) if manifest is not None else None
    algorithms = _chosen(chosen | dict.fromkeys(BY_TENSOR, True) if all_ else chosen, expected)
    with ggufkit.open(file) as model, progress_bar("hashing") as progress:
        hashes = ggufkit.hash(
            model, algorithms, tensors=not no_layer, threads=threads, progress=progress
        )
    lines = list(_lines(hashes, name or file))
    results = [(line, expected.result(line)) for line in lines] if expected else []
    if as_json:
        emit(_plain(name or file, lines, results))
    elif expected is None or manifest is None:
        click.echo("\n".join(map(str, lines)))
    else:
        _print_check(manifest, expected, results)
    if expected:
        ctx.exit(verdict(results).code)


def _expected(ctx: click.Context, manifest: str) -> Manifest:
    """Read the manifest; if it cannot be used, exit with the code for the reason."""
    try:
        return read_manifest(Path(manifest))
    except FormatError as error:
        report(error)
        ctx.exit(Verdict.UNKNOWN_HASH.code)
    except OSError as error:
        report(error)
        ctx.exit(Verdict.FILE_ERROR.code)


def _chosen(options: dict[str, bool], expected: Manifest | None) -> list[str]:
    """Return the requested hashes, else the manifest's strongest one, else the fast one."""
    chosen = [name for name in ALGORITHMS if options[name]]
    return chosen or ([expected.algorithms[0]] if expected else ["xxh64"])


def _lines(hashes: Hashes, name: str) -> Iterator[Line]:
    for tensor, digests in hashes.tensors.items():
        for algorithm, digest in digests.items():
            yield Line(algorithm, digest, name, tensor)
    for algorithm, digest in hashes.model.items():
        yield Line(algorithm, digest, name)


def _print_check(manifest: str, expected: Manifest, results: Results) -> None:
    shown = printable(manifest)
    click.echo("  ".join(("manifest", shown, *expected.algorithms)))
    known = expected.names()
    if verdict(results) is Verdict.MISSING_ENTRY and known:  # one note for all tensors
        note(
            f"the manifest is about {known}, not about {results[0][0].name}; "
            "if the file was renamed, say the old name with --name"
        )
    else:
        for line, result in results:
            click.echo(f"{line}  -  {result.value}")
    click.echo(f"\nVerification results for {shown} - {verdict(results).words}")


def _plain(name: str, lines: list[Line], results: Results) -> dict[str, Any]:
    found = [{"result": result.value} for _, result in results] or [{}] * len(lines)
    digests = [
        {"tensor": line.tensor, "algorithm": line.algorithm, "digest": line.digest, **outcome}
        for line, outcome in zip(lines, found, strict=True)
    ]
    checked = {"verdict": verdict(results).words} if results else {}
    return {"name": name, "digests": digests} | checked
