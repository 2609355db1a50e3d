"""The first steps of a release: the base model, its projector, and importance data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ggufkit.imatrix.matrix import Imatrix
from ggufkit.models.open import open as open_model
from ggufkit.quantization.provenance import content_digest
from ggufkit.quantization.quantize import QuantizeOptions
from ggufkit.release.calibration import Calibration, coverage, merged
from ggufkit.release.journal import Facts, digest_of, identity_of
from ggufkit.release.runner import Runner, StepOutcome
from ggufkit.release.source import ReleaseSource, about, type_of


def base_model(run: Runner, source: ReleaseSource) -> Facts:
    """Convert or fetch the model, unless it is a file on this disk; return what it says of itself.

    `path` is where it is, `content` its content digest.
    """
    settings = run.settings

    def make() -> StepOutcome:
        with source.open() as model:
            facts: dict[str, Any] = about(source, model.metadata) | {"parameters": model.parameters}
            path = run.folder / f"{settings.name}-{type_of(model)}.gguf"
            paths = [] if source.is_local_file else run.written(model, path)
        place = paths[0] if paths else Path(source.name)
        with open_model(place) as model, run.bar("hashing") as progress:
            content = content_digest(model, run.job.threads, progress)
        return paths, facts | {"file": place.name, "content": content}

    choices = (settings.outtype, settings.name, settings.shard_bytes)
    facts = run.step("base", (source.identity, *choices), make)
    path = Path(source.name) if source.is_local_file else run.folder / facts["file"]
    return facts | {"path": path}


def projector(run: Runner, source: ReleaseSource) -> list[Path]:
    """Convert the projector, if the source has one; return its files."""

    def make() -> StepOutcome:
        model = source.projector()
        if model is None:
            return [], {}
        with model:
            path = run.folder / f"mmproj-{run.settings.name}-{type_of(model)}.gguf"
            return run.written(model, path), {}

    inputs = (source.identity, run.settings.projector, run.settings.outtype)
    run.trying("projector", lambda: run.step("projector", inputs, make))
    return run.files("projector")


def quantize_options(run: Runner, base: Facts) -> QuantizeOptions:
    """Make the importance data and the Hessian, if asked for; return the options of `quantize`."""
    settings = run.settings
    options: dict[str, Any] = {"search": settings.search or None}
    if settings.imatrix or settings.calibration:
        target = run.folder / f"{settings.name}.imatrix.gguf"
        hessian = run.folder / f"{settings.name}.hessian.gguf" if settings.hessian else None
        facts = _importance(run, base, target, hessian)
        if facts["cosine"] is not None and facts["cosine"] < settings.gate:
            run.problem(
                "importance data",
                f"half of the text and all of it differ in {facts['weakest']} (cosine "
                f"{facts['cosine']:.3f}); use a longer text",
            )
        options["imatrix"] = replace(Imatrix.open(target), path=Path(target.name))
        options |= {"hessian": str(hessian)} if hessian else {}
    checked: QuantizeOptions = options  # type: ignore[assignment]
    return checked


def _importance(run: Runner, base: Facts, target: Path, hessian: Path | None) -> Facts:
    settings = run.settings
    names = settings.imatrix or (settings.calibration,)
    choices = (settings.context, settings.calibration_chunks, bool(hessian))
    inputs = (base["content"], [identity_of(Path(name)) for name in names], *choices)

    def make() -> StepOutcome:
        if settings.imatrix:
            parts = [Imatrix.open(name) for name in settings.imatrix]
        else:
            key = digest_of(*inputs)
            text = Calibration(base["path"], settings, run.work, key, run.job.threads)
            with run.bar("computing", in_bytes=False) as progress:
                parts = text.compute(progress, hessian)
        texts = dict.fromkeys(Path(name).name for part in parts for name in part.datasets)
        whole = merged(parts, list(texts))
        whole.save(target)
        return [target, *([hessian] if hessian else [])], coverage(parts, whole)

    return run.step("importance data", inputs, make)
