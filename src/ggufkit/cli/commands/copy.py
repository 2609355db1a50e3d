"""`ggufkit copy`: split or merge a model, or change its layout."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

import ggufkit
from ggufkit.cli.model_argument import MODEL
from ggufkit.cli.options import (
    cluster_option,
    dry_run_option,
    json_option,
    no_clobber_option,
    no_tensor_first_split_option,
    parse_size,
    resume_option,
    threads_option,
)
from ggufkit.cli.output import examples, note
from ggufkit.cli.progress import progress_bar
from ggufkit.cli.write_model import PIPE, deliver, may_replace, report
from ggufkit.errors import NoRangesError, OutputError
from ggufkit.output.download import download
from ggufkit.remote.url import PORTS, scheme_of

SECTION: Final = "Change"  # of the help


@click.command(
    "copy",
    short_help="Split, merge, convert byte order, version or alignment.",
    epilog=examples(
        "ggufkit copy model.gguf model-split.gguf --shard-size 2G",
        "ggufkit copy model.gguf model-split.gguf --shard-size 2G --dry-run",
        "ggufkit copy model-00001-of-00009.gguf model.gguf",
        "ggufkit copy big-endian.gguf model.gguf --endian little",
        "ggufkit copy model.gguf - | ssh host 'cat > model.gguf'",
        "ggufkit copy https://example.org/model.gguf model.gguf --resume",
    ),
)
@click.argument("source", metavar="IN", type=MODEL)
@click.argument("out", metavar="OUT")
@click.option("--alignment", type=int, metavar="N", help="Align tensors to this many bytes.")
@click.option("--endian", type=click.Choice(("little", "big")), help="Byte order of the output.")
@click.option("--version", type=click.Choice(("2", "3")), help="GGUF version of the output.")
@click.option(
    "--shard-size",
    type=parse_size,
    metavar="SIZE",
    help="Write shards with at most this much tensor data each.",
)
@click.option(
    "--shard-tensors",
    type=int,
    metavar="N",
    help="Write shards with at most this many tensors each.",
)
@no_tensor_first_split_option
@no_clobber_option
@threads_option
@resume_option
@cluster_option
@dry_run_option
@json_option
def command(  # noqa: PLR0913 (click passes each option)
    source: str,
    out: str,
    *,
    alignment: int | None,
    endian: str | None,
    version: str | None,
    shard_size: int | None,
    shard_tensors: int | None,
    no_tensor_first_split: bool,
    threads: int | None,
    resume: bool,
    cluster: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Copy the model IN to OUT, and change only what the options say.

    IN is a file, any shard of a set, a folder that holds one set, a URL, or - for stdin. Without a
    shard limit OUT is one file, so copying a set merges it. With a limit OUT names the set: its
    shards are called OUT-00001-of-00003.gguf and so on. Sizes are in bytes, or like 500M and 2G
    (powers of 1000) or 512MiB (powers of 1024). OUT may be - for stdout.
    """
    laid = {
        "alignment": alignment,
        "byte_order": endian,
        "version": None if version is None else int(version),
        "shard_size": shard_size,
        "shard_tensors": shard_tensors,
        "no_tensor_first_split": no_tensor_first_split,
    }
    modes = {"dry_run": dry_run, "as_json": as_json}
    is_plain = not (any(laid.values()) or any(modes.values()) or resume or out == PIPE)
    try:
        opened = ggufkit.open(source)
    except NoRangesError as error:
        if not is_plain or scheme_of(source) not in PORTS:
            raise
        note(error.message.partition(", so ")[0])
        _download(source, out)
        return
    with opened as model:
        deliver(model, out, laid=laid, **modes, threads=threads, resume=resume, cluster=cluster)


def _download(source: str, out: str) -> None:
    """Download a whole file: it cannot be read in parts."""
    if Path(out).exists() and not may_replace():
        raise OutputError(f"{out} exists already", remedy="Use another name")
    with progress_bar("downloading") as progress:
        path = download(source, out, progress=progress)
    report([path])
