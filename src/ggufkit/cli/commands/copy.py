"""`ggufkit copy`: split or merge a model, or change its layout."""

from __future__ import annotations

from typing import Final

import click

import ggufkit
from ggufkit.cli.model_argument import MODEL
from ggufkit.cli.options import (
    cluster_option,
    dry_run_option,
    json_option,
    no_clobber_option,
    parse_size,
    resume_option,
    threads_option,
)
from ggufkit.cli.output import examples
from ggufkit.cli.write_model import deliver

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
        "curl -L https://example.org/model.gguf | ggufkit copy - model.gguf",
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
    threads: int | None,
    resume: bool,
    cluster: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Copy the model IN to OUT, and change only what the options say.

    IN is a file, any shard of a set, a folder that holds one set, or - for stdin. Without a shard
    limit OUT is one file, so copying a set merges it. With a limit OUT names the set: its shards
    are called OUT-00001-of-00003.gguf and so on. Sizes are in bytes, or like 500M and 2G (powers of
    1000) or 512MiB (powers of 1024). OUT may be - for stdout.
    """
    with ggufkit.open(source) as model:
        laid = {
            "alignment": alignment,
            "byte_order": endian,
            "version": None if version is None else int(version),
            "shard_size": shard_size,
            "shard_tensors": shard_tensors,
        }
        modes = {"dry_run": dry_run, "as_json": as_json}
        deliver(model, out, laid=laid, **modes, threads=threads, resume=resume, cluster=cluster)
