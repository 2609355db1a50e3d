"""`ggufkit copy`: split or merge a model, or change its layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

import ggufkit
from ggufkit.cli import options as shared
from ggufkit.cli.model_argument import MODEL
from ggufkit.cli.output import note
from ggufkit.cli.progress import progress_bar
from ggufkit.cli.streams import PIPE
from ggufkit.cli.write_model import deliver, is_folder, report, require_place, stem_of
from ggufkit.edits.interleave import deinterleaved, interleaved
from ggufkit.errors import NoRangesError
from ggufkit.output.download import download
from ggufkit.remote.url import PORTS, scheme_of

_WORK: Final = ("threads", "cluster", "resume", "dry_run", "as_json")
_DOWNLOAD_CANNOT: Final = _WORK[2:]


@shared.new_command(
    "copy",
    "ggufkit copy model.gguf model-split.gguf --shard-size 2G",
    "ggufkit copy model.gguf model-split.gguf --shard-size 2G --dry-run",
    "ggufkit copy model.gguf shards/ --shard-size 2G",
    "ggufkit copy model-00001-of-00009.gguf model.gguf",
    "ggufkit copy big-endian.gguf model.gguf --endian little",
    "ggufkit copy model.gguf - | ssh host 'cat > model.gguf'",
    "ggufkit copy https://example.org/model.gguf model.gguf --resume",
    cls=shared.Command,
)
@click.argument("source", metavar="IN", type=MODEL)
@click.argument("out", metavar="OUT")
@shared.option("--alignment N", "Align tensors to this many bytes.", type=int)
@shared.option(
    "--endian byte_order", "Byte order of the output.", type=click.Choice(("little", "big"))
)
@shared.option("--version", "GGUF version of the output.", type=click.Choice(("2", "3")))
@shared.option(
    "--shard-size SIZE",
    "Write shards with at most this much tensor data each.",
    type=shared.parse_size,
)
@shared.option("--shard-tensors N", "Write shards with at most this many tensors each.", type=int)
@shared.flag(
    "--deinterleave",
    "Write ik_llama.cpp's interleaved types (R4, R8, R16) as their plain types, without loss.",
)
@shared.flag(
    "--interleave",
    "Interleave rows like ik_llama.cpp's llama-quantize --repack: Q4_K becomes Q4_K_R4 ...",
)
@shared.no_tensor_first_split_option
@shared.no_clobber_option
@shared.threads_option
@shared.resume_option
@shared.cluster_option
@shared.dry_run_option
@shared.json_option
def command(source: str, out: str, *, version: str | None, **layout_options: Any) -> None:
    """Copy the model IN to OUT, and change only what the options say.

    IN is a file, any shard of a set, a folder that holds one set, a URL, or - for stdin. Without a
    shard limit OUT is one file, so copying a set merges it. With a limit OUT names the set: its
    shards are called OUT-00001-of-00003.gguf and so on. If OUT is a folder, or ends with /, the
    copy is called like IN. Sizes are in bytes, or like 500M and 2G (powers of 1000) or 512MiB
    (powers of 1024). OUT may be - for stdout.
    """
    work = {key: layout_options.pop(key) for key in _WORK}
    layout_options["version"] = version and int(version)
    deinterleave, interleave = layout_options.pop("deinterleave"), layout_options.pop("interleave")
    if deinterleave and interleave:
        raise click.UsageError("Use either --interleave or --deinterleave, not both")
    change = interleaved if interleave else deinterleaved if deinterleave else None
    if is_folder(out):
        if not work["dry_run"]:
            Path(out).mkdir(parents=True, exist_ok=True)
        out = str(Path(out) / f"{stem_of(source)}.gguf")
    is_plain = not (
        change
        or any(layout_options.values())
        or any(map(work.get, _DOWNLOAD_CANNOT))
        or out == PIPE
    )
    try:
        opened = ggufkit.open(source)
    except NoRangesError as error:
        if not is_plain or scheme_of(source) not in PORTS:
            raise
        note(error.message.partition(", so ")[0])
        require_place(out)
        with progress_bar("downloading") as progress:
            path = download(source, out, progress=progress)
        report([path])
        return
    with opened as model:
        deliver(change(model) if change else model, out, layout_options=layout_options, **work)
