"""What a release refuses before long work begins, and what it misses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ggufkit.errors import OutputError, ValueTypeError
from ggufkit.evaluation.base_file import LEAST_CONTEXT
from ggufkit.imatrix.matrix import Imatrix
from ggufkit.release.card import template_of
from ggufkit.release.journal import Facts, file_name
from ggufkit.release.rungs import Rung, name_of
from ggufkit.release.runner import ReleaseJob
from ggufkit.system.staging import require_space

PAGES_BYTES: Final = 20_000  # the journal, the log and the card grow
SCORE_BYTES: Final = 20  # of a token, in the file from which a stopped measurement continues


def require_sensible(job: ReleaseJob) -> None:
    """Raise ValueTypeError, FormatError, MissingExtraError or OSError for what cannot work."""
    for is_refused, message, remedy in _refusals(job):
        if is_refused:
            raise ValueTypeError(message, remedy=remedy)
    file_name(job.settings.name)
    for name in job.settings.imatrix:
        Imatrix.open(name)
    if job.card:
        template_of(job.card)


def _refusals(job: ReleaseJob) -> Sequence[tuple[bool, str, str]]:
    """Return what is refused: whether it is, a message, and a remedy."""
    settings = job.settings
    names, context = [Path(text).name for text in settings.texts], settings.context
    texts = (*settings.texts, *filter(None, [settings.calibration]))
    short = [text for text in texts if Path(text).stat().st_size < context - 1]  # a token is added
    rungs = [name_of(rung).casefold() for rung in settings.rungs]
    return (
        (len({*names}) < len(names), "two texts have the same name", "Rename one of them"),
        (len({*rungs}) < len(rungs), "two rungs have the same name", "Name each rung once"),
        (not rungs, "there are no rungs", "Name some: Q8_0,Q4_K_M"),
        (
            settings.calibration in settings.texts,
            f"{settings.calibration} is for calibration and for measuring quality",
            "Use two texts: the files would fit the first one too closely",
        ),
        (
            job.disk is not None and not job.upload,
            "a limit of disk space needs a place to publish",
            "Name it (upload=...)",
        ),
        (job.folder.is_file(), f"{job.folder} is a file", "Name a folder"),
        (
            context < LEAST_CONTEXT or min(settings.calibration_chunks, settings.text_chunks) < 0,
            "the numbers of tokens and chunks are too small",
            f"Set context to {LEAST_CONTEXT} or more, and chunks to 0 or more",
        ),
        (
            bool(short),
            f"{', '.join(short)}: this text is shorter than a chunk of {context} tokens",
            "Use a longer text, or set a smaller context",
        ),
    )


def require_room(job: ReleaseJob, rungs: Sequence[Rung], base: int) -> None:
    """Raise OutputError if the disk, or its limit, has too little space; the model has `base`."""
    room_for(job, rungs, base)
    total = base + sum(rung.plan.nbytes for rung in rungs)
    needed = total if job.disk is None else min(total, job.disk)
    folder = job.folder.absolute()
    place = next(path for path in (folder, *folder.parents) if path.exists())
    remedy = "Free some space, or publish, with a limit (disk=...)"
    require_space(place, needed - bytes_in(folder), remedy)


def bytes_in(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def room_for(job: ReleaseJob, rungs: Sequence[Rung], taken: int) -> int | None:
    """Return the bytes for rungs, None without a limit; OutputError if one does not fit."""
    if job.disk is None:
        return None
    chunks = job.settings.text_chunks
    most = chunks * job.settings.context if chunks else job.disk  # tokens
    sizes = (min(Path(text).stat().st_size, most) for text in job.settings.texts)
    room = job.disk - taken - PAGES_BYTES - SCORE_BYTES * max(sizes, default=0)
    largest = max((rung.plan.nbytes for rung in rungs), default=0)
    if largest > room:
        raise OutputError(
            f"a rung has {largest:,} bytes, and the limit leaves {max(room, 0):,}",
            remedy="Raise the limit (disk=...), or leave out the rung",
        )
    return room


def missing(job: ReleaseJob, source_facts: Facts) -> Iterator[str]:
    """Yield what a user may have forgotten; `source_facts` is what the source says of itself."""
    settings = job.settings
    data = settings.calibration or settings.imatrix
    licence = settings.license or source_facts["license"]
    original = settings.base_model or source_facts["base_model"]
    for value, text in (
        (data, "a text for importance data: set calibration"),
        (settings.texts, "a text to measure quality on: set texts"),
        (licence, "the licence of the original: set license in the settings"),
        (original, "the original on the Hub: set base_model in the settings"),
    ):
        if not value:
            yield text
