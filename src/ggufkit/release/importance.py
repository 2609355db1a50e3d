"""Importance data of a release: computed in parts, so that a stopped run continues."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from ggufkit.errors import ValueTypeError
from ggufkit.imatrix import compute
from ggufkit.imatrix.coverage import cosines
from ggufkit.imatrix.matrix import Imatrix, merge
from ggufkit.llama_cpp.session import Session
from ggufkit.quantization.quantize import QuantizeOptions
from ggufkit.release.journal import Facts, digest_of, identity_of
from ggufkit.release.runner import Runner, StepOutcome
from ggufkit.system.cpu import worker_count
from ggufkit.system.text_file import Most, read_small
from ggufkit.system.threads import Progress

PART: Final = 16  # chunks: what a stopped run computes again at most


def count_tokens(run: Runner, base: Facts) -> Sequence[int]:
    """Return the tokens of the text for calibration, then of the others.

    Raises ValueTypeError for a text that is shorter than a chunk, before long work.
    """
    settings = run.settings
    texts = list(filter(None, ("" if settings.imatrix else settings.calibration, *settings.texts)))

    def make() -> StepOutcome:
        threads = worker_count(run.job.threads)
        with Session(base["path"], length=16, batch=16, threads=threads) as session:
            contents = (read_small(Path(text), Most.CALIBRATION) for text in texts)
            tokens = [len(session.tokenize(content.removesuffix(b"\n"))) for content in contents]
        for text, count in zip(texts, tokens, strict=True):
            if count < settings.context:
                raise ValueTypeError(
                    f"{text} has {count} tokens, but a chunk needs {settings.context}",
                    remedy="Use a longer text, or set a smaller context",
                )
        return (), {"tokens": tokens}

    inputs = (base["content"], settings.context, [identity_of(Path(text)) for text in texts])
    return run.step("texts", inputs, make)["tokens"] if texts else ()


def quantize_options(run: Runner, base: Facts, tokens: Sequence[int]) -> QuantizeOptions:
    """Make the importance data and the Hessian, if asked for; return the options of `quantize`.

    `tokens` are those of the text for calibration, then of others.
    """
    settings = run.settings
    options: dict[str, Any] = {"search": settings.search or None}
    if settings.imatrix or settings.calibration:
        target = run.folder / f"{settings.name}.imatrix.gguf"
        hessian = run.folder / f"{settings.name}.hessian.gguf" if settings.hessian else None
        facts = _importance(run, base, target, hessian, tokens)
        if facts["cosine"] is not None and facts["cosine"] < settings.gate:
            run.problem(
                "importance data",
                f"half of the text and all of it differ in {facts['weakest']} (cosine "
                f"{facts['cosine']:.3f}); use a longer text",
            )
        options["imatrix"] = replace(Imatrix.open(target), path=Path(target.name))
        options |= {"hessian": str(hessian)} if hessian else {}
    return cast("QuantizeOptions", options)


def _importance(
    run: Runner, base: Facts, target: Path, hessian: Path | None, tokens: Sequence[int]
) -> Facts:
    settings = run.settings
    names = settings.imatrix or (settings.calibration,)
    choices = (settings.context, settings.calibration_chunks, bool(hessian))
    inputs = (base["content"], [identity_of(Path(name)) for name in names], *choices)

    def make() -> StepOutcome:
        if settings.imatrix:
            parts = [Imatrix.open(name) for name in settings.imatrix]
        else:
            chunks = tokens[0] // settings.context
            chunks = min(chunks, settings.calibration_chunks or chunks)
            parts = _computed(run, base["path"], digest_of(*inputs)[:16], hessian, chunks)
        texts = dict.fromkeys(Path(name).name for part in parts for name in part.datasets)
        whole = merge(parts) if len(parts) > 1 else parts[0]
        whole = replace(whole, datasets=tuple(texts), path=None)  # without paths of this machine
        whole.save(target)
        return [target, *([hessian] if hessian else [])], _coverage(parts, whole)

    return run.step("importance data", inputs, make)


def _computed(
    run: Runner, model: Path, key: str, hessian: Path | None, total: int
) -> list[Imatrix]:
    """Return the data of each part of the text, which is one part where a Hessian is written too.

    What a stopped run computed, in files whose names begin with `key`, is kept. The parts go to the
    cluster, if there is one.
    """
    settings = run.settings
    text = Path(settings.calibration)
    options: dict[str, Any] = {"context": settings.context, "threads": run.job.threads}
    if hessian:
        options |= {"chunks": total, "hessian": hessian, "resume": run.work / key}
        with run.bar("computing", in_bytes=False) as progress:
            return [compute.compute_imatrix(model, text, progress=progress, **options)]
    paths = {first: run.work / f"{key}-{first:07}.gguf" for first in range(0, total, PART)}
    missing = {
        path.absolute(): options | {"from_chunk": first, "chunks": min(PART, total - first)}
        for first, path in paths.items()
        if not path.exists()
    }
    if run.executor:
        write = functools.partial(_write_part, model.absolute(), text.absolute())
        run.results([run.executor.submit(write, *part) for part in missing.items()], "computing")
    else:
        with run.bar("computing", in_bytes=False) as progress:
            for path, chosen in missing.items():
                shifted = _shifted(progress, chosen["from_chunk"], total)
                _write_part(model, text, path, chosen | {"progress": shifted})
    return list(map(Imatrix.open, paths.values()))


def _write_part(model: Path, text: Path, path: Path, options: dict[str, Any]) -> None:
    compute.compute_imatrix(model, text, **options).save(path)


def _shifted(progress: Progress | None, first: int, total: int) -> Progress | None:
    return progress and (lambda done, _: progress(first + done, total))


def _coverage(parts: Sequence[Imatrix], whole: Imatrix) -> dict[str, Any]:
    """Return how well the text covers the model.

    `unseen` of `matrices` (experts count each) had no token. `cosine` is the least cosine between
    the first half of the text and all of it, and `weakest` its tensor; None for a single part.
    """
    counts = [entry.counts for entry in whole.entries.values()]
    similar: dict[str, float] = {}
    if len(parts) > 1:
        half = merge(parts[: (len(parts) + 1) // 2])
        sums = {name: entry.sums for name, entry in half.entries.items()}
        similar = cosines(sums, whole.entries)
    weakest = min(similar, key=lambda name: similar[name], default=None)
    return {
        "chunks": whole.chunk_count,
        "tokens": whole.chunk_count * whole.chunk_size,
        "texts": list(whole.datasets),
        "matrices": sum(map(len, counts)),
        "unseen": sum(int((count == 0).sum()) for count in counts),
        "cosine": similar[weakest] if weakest else None,
        "weakest": weakest,
    }
