"""Defines `--provenance` of `ggufkit quantize`, and adds the keys that it asks for."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ggufkit.cli.options import SharedOption
from ggufkit.cli.progress import progress_bar
from ggufkit.models.model import Model
from ggufkit.quantization.provenance import UNREAD, content_digest, with_provenance
from ggufkit.quantization.quantize import Quantization, QuantizeOptions

provenance_option: SharedOption = click.option(
    "--provenance",
    is_flag=True,
    help="Record digests of IN and the importance matrix, and all settings, for `reproduce`.",
)


def with_keys(
    source: Model,
    made: Sequence[Quantization],
    options: QuantizeOptions,
    *,
    dry_run: bool,
    threads: int | None,
) -> list[Quantization]:
    """Return the results with keys that say what they derive from; reads the source once."""
    content = UNREAD  # as long, so that a dry run shows the size of the file
    if not dry_run:
        with progress_bar("hashing") as bar:
            content = content_digest(source, threads, bar)
    return [with_provenance(done, options, content) for done in made]
