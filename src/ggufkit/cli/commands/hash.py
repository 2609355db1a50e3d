"""`ggufkit hash`: print digests of a model and its tensors, or check them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

import ggufkit
from ggufkit.cli.errors import FAILED, report
from ggufkit.cli.model_argument import ModelName
from ggufkit.cli.options import flag, new_command, option, threads_option
from ggufkit.cli.output import counted, emit, note
from ggufkit.cli.pipes import incoming
from ggufkit.cli.progress import progress_bar
from ggufkit.errors import FormatError, printable
from ggufkit.inspection.digest import ALGORITHMS, BY_TENSOR, Digests
from ggufkit.inspection.file_digest import DigestList, digest_line, file_digest, read_digests
from ggufkit.inspection.hash_manifest import Line, Manifest, Result, Verdict, read_manifest, verdict
from ggufkit.inspection.summary import program_of
from ggufkit.models.byte_ranges import Tally
from ggufkit.models.remote_resolvers import files_of, is_remote
from ggufkit.remote.range_file import RangeFile
from ggufkit.system.cpu import worker_count
from ggufkit.system.threads import Progress, in_turn, pool_of

Results = list[tuple[Line, Result]]


@new_command(
    "hash",
    "ggufkit hash model.gguf",
    "ggufkit hash model.gguf --all > model.gguf.manifest",
    "ggufkit hash model.gguf --check model.gguf.manifest",
    "ggufkit hash model-00001-of-00003.gguf --content",
    "ggufkit hash --sha256sum *.gguf > SHA256SUMS",
    "ggufkit hash --sha256sum --check SHA256SUMS",
)
@click.argument("files", metavar="FILE...", nargs=-1, type=ModelName(reads_pipes=False))
@flag("--xxh64", "XXH64 (fast, the default).")
@flag("--sha1", "SHA-1.")
@flag("--sha256", "SHA-256.")
@flag("--all all_", "XXH64, SHA-1 and SHA-256.")
@flag("--uuid", "llama.cpp's identifier (UUIDv5) of the tensor data.")
@flag("--content", "One digest of all content, independent of the layout.")
@flag("--sha256sum", "Hash whole files, in the form of sha256sum.")
@flag("--no-layer", "Leave out the digests of single tensors.")
@option("--check -c manifest MANIFEST", "Check against a manifest.")
@option("--name NAME", "Print this name instead of FILE.")
@flag("--json as_json", "Print the digests as JSON.")
@threads_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    *,
    sha256sum: bool,
    manifest: str | None,
    **options: Any,
) -> None:
    """Print digests of the tensor data of FILE, line for line as llama-gguf-hash does.

    FILE is a GGUF file, any shard of a set, or a folder that holds one. A set has the same digests
    as the merged file. --content also covers names, shapes, types and metadata.

    With --check each line says whether the digest matches the manifest. The exit codes are those of
    llama-gguf-hash: 0 if all match, 1 if one differs, 3 if the manifest lists no digest of FILE,
    4 if it has no known hash type, 5 if it cannot be read.

    --sha256sum hashes whole files of any kind, and takes several. With --check it checks these
    files against a list, or all files of the list. The exit code is 1 if one differs.
    """
    if sha256sum:
        selected = [name for name in (*ALGORITHMS, "all_", "no_layer", "name") if options[name]]
        if selected:
            option = selected[0].strip("_").replace("_", "-")
            raise click.UsageError(f"--sha256sum hashes whole files: leave out --{option}")
        ctx.exit(_hash_files(files, manifest, options))
    if len(files) != 1:
        raise click.UsageError(
            "Name one model; only --sha256sum takes several files"
            if files
            else "Missing argument 'FILE...'"
        )
    ctx.exit(_hash_model(ctx, incoming(files[0]), manifest, options))


def _hash_model(
    ctx: click.Context, file: str, manifest: str | None, options: dict[str, Any]
) -> int:
    """Print or check the digests of tensors; return the exit code.

    Without a requested hash it is the manifest's strongest one, or else the fast one.
    """
    name = options["name"]
    expected = _expected(ctx, manifest) if manifest is not None else None
    everything = BY_TENSOR if options["all_"] else ()
    chosen = [name for name in ALGORITHMS if options[name] or name in everything]
    algorithms = chosen or ([expected.algorithms[0]] if expected else ["xxh64"])
    with ggufkit.open(file) as model, progress_bar("hashing") as progress:
        if program := program_of(model.tensors.values()):
            note(f"only {program} reads this file, so llama-gguf-hash fails for it")
        hashes = ggufkit.digest(
            model,
            algorithms,
            tensors=not options["no_layer"],
            threads=options["threads"],
            progress=progress,
        )
    lines = list(_lines(hashes, name or file))
    results = [(line, expected.result(line)) for line in lines] if expected else []
    if options["as_json"]:
        outcomes = [{"result": result.value} for _, result in results] or [{}] * len(lines)
        digests = [
            {"tensor": line.tensor, "algorithm": line.algorithm, "digest": line.digest, **outcome}
            for line, outcome in zip(lines, outcomes, strict=True)
        ]
        checked = {"verdict": verdict(results).words} if results else {}
        emit({"name": name or file, "digests": digests} | checked)
    elif expected is None or manifest is None:
        click.echo("\n".join(map(str, lines)))
    else:
        _print_check(manifest, expected, results)
    return verdict(results).code if expected else 0


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


def _lines(hashes: Digests, name: str) -> Iterator[Line]:
    for tensor, digests in hashes.tensors.items():
        for algorithm, digest in digests.items():
            yield Line(algorithm, digest, name, tensor)
    for algorithm, digest in hashes.model.items():
        yield Line(algorithm, digest, name)


def _print_check(manifest: str, expected: Manifest, results: Results) -> None:
    name = printable(manifest)
    click.echo("  ".join(("manifest", name, *expected.algorithms)))
    names = expected.names()
    algorithms = {line.algorithm for line, _ in results}
    if verdict(results) is Verdict.MISSING_ENTRY and not algorithms & {*expected.algorithms}:
        note(
            f"the manifest has no digests of {' or '.join(sorted(algorithms))}, only of "
            f"{', '.join(expected.algorithms)}; leave out --{' --'.join(sorted(algorithms))}"
        )
    elif verdict(results) is Verdict.MISSING_ENTRY and names:  # one note for all tensors
        note(
            f"the manifest is about {names}, not about {results[0][0].name}; "
            "if the file was renamed, say the old name with --name"
        )
    else:
        for line, result in results:
            click.echo(f"{line}  -  {result.value}")
    click.echo(f"\nVerification results for {name} - {verdict(results).words}")


def _hash_files(files: Sequence[str], manifest: str | None, options: dict[str, Any]) -> int:
    """Print or check the SHA-256 of whole files; return the exit code."""
    listed = None if manifest is None else read_digests(Path(manifest))
    entries = [entry.name for entry in listed.digests if entry.name is not None] if listed else []
    names = list(dict.fromkeys(files or entries))
    if not names:
        raise click.UsageError("Missing argument 'FILE...'")
    with progress_bar("hashing") as progress:
        opened = [_opened(name) if files else _listed(name) for name in names]
        digests = _digests(opened, options["threads"], progress)
    verdicts = [_verdict_of(*pair, listed) for pair in zip(names, digests, strict=True)]
    rows = list(zip(names, digests, verdicts, strict=True))
    if options["as_json"]:
        emit(
            [
                {"file": name, "sha256": digest if isinstance(digest, str) else None}
                | ({"result": words} if words else {})
                for name, digest, words in rows
            ]
        )
    for name, digest, words in rows:
        if isinstance(digest, OSError):
            report(digest)
        if listed and not options["as_json"]:
            click.echo(f"{printable(name)}: {words}")
        elif isinstance(digest, str) and not options["as_json"]:
            click.echo(digest_line(digest, name))
    if listed and listed.misformed:
        note(f"{manifest}: {counted(listed.misformed, 'line')} without a digest of a file")
    return 0 if {*verdicts} <= {"", "OK"} else FAILED


def _digests(
    files: Sequence[Path | RangeFile], threads: int | None, progress: Progress | None
) -> list[str | OSError]:
    """Return the digest of each file, or the error of reading it; each file has its thread."""
    tally = Tally(progress)
    for file in files:
        with contextlib.suppress(OSError):
            tally.expect(file.stat().st_size if isinstance(file, Path) else file.nbytes)
    with pool_of(worker_count(threads)) as pool:
        tasks = (functools.partial(_digest, file, tally.add) for file in files)
        return list(in_turn(pool, tasks, len(files)))


def _opened(name: str) -> Path | RangeFile:
    """Return the file that a name means: of a remote set, the shard with this name."""
    if is_remote(name):
        return files_of(name, shards=False)[0]
    return Path(incoming(name, foreign=True))


def _listed(name: str) -> Path:
    """Return the local file that a list names: no list may cause a download."""
    path = Path(name)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise FormatError(
            f"the list names {name!r}, which is not a regular file",
            remedy="Name the files to check after the list",
        )
    return path


def _digest(file: Path | RangeFile, tell: Callable[[int], None]) -> str | OSError:
    try:
        return file_digest(file, tell)
    except OSError as error:
        if isinstance(file, Path):
            error.filename = error.filename or str(file)
        return error


def _verdict_of(name: str, digest: str | OSError, listed: DigestList | None) -> str:
    """Return the words of sha256sum for a file; empty where nothing is checked."""
    if isinstance(digest, OSError):
        return "FAILED open or read"
    if listed is None:
        return ""
    expected = listed.of(name)
    if expected is None:
        return "NOT LISTED"
    return "OK" if expected == digest else "FAILED"
