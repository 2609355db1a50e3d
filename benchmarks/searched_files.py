"""Whole files made with and without a search or a Hessian, read by llama.cpp, in three domains.

For each model and type, the matrices of all layers are quantized as llama-quantize does and with
each search, with the same importance data; other tensors stay as they are. `Q4_K_M` is the whole
recipe, and with a Hessian every type is one. llama.cpp reads the written files and the unquantized
one. Importance data and Hessian come from the calibration part of `texts.py`, all domains together,
the text to measure from the held-out part. Results are kept in the folder as JSON, and a later run
goes on from there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from target import widened
from texts import CALIBRATION, DOMAINS, HELD_OUT, documents

import ggufkit
from ggufkit.evaluation.evaluate import Evaluation
from ggufkit.evaluation.statistics import CONFIDENCE, interval
from ggufkit.imatrix.compute import compute_imatrix
from ggufkit.models.layers import layer_of
from ggufkit.models.model import Model, Tensor
from ggufkit.models.sources import from_array
from ggufkit.quants.search import EFFORTS

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import real

RULE: Final = "rule"  # llama-quantize's
MIX: Final = "Q4_K_M"
TYPES: Final = ("Q4_0", "Q5_0", "Q3_K", "IQ4_XS", "IQ4_NL", MIX)
FED_BACK: Final = "hessian"  # llama-quantize's, with errors fed back
HESSIAN: Final = "hessian.gguf"
RECIPES: Final = (MIX, "Q3_K_M", "IQ3_S", "Q2_K")
# Gemma's rows of 640 have no blocks of 256, and its weights are on the grid of that recipe.
EXCLUDED: Final = {("Gemma 3", kind) for kind in ("Q3_K", "IQ4_XS", MIX)}


@dataclass(frozen=True)
class Figures:
    """What one file loses on one text: divergence of each chunk, and of the whole."""

    chunks: list[float]
    tail: float  # the divergence that one position in a thousand exceeds
    perplexity: float  # relative to that of the unquantized model


def decoded(model: Model) -> Model:
    """Return a quantized model in F16: its weights stay on the grid that they were rounded to."""
    tensors = (
        from_array(t.name, t.numpy().astype(np.float16)) if len(t.shape) > 1 else t
        for t in model.tensors.values()
    )
    metadata = model.metadata.without("general.quantization_version")
    return model.replace(metadata=metadata.updated({"general.file_type": 1}), tensors=tensors)


def sources(options: argparse.Namespace) -> dict[str, Callable[[], Model]]:
    """Return the models by name; the trained one only if its file is given."""
    models: dict[str, Callable[[], Model]] = {}
    for name in ("trained", "experts"):
        path = getattr(options, name)
        if path:
            models[name] = lambda path=path: ggufkit.open(path)
    models["SmolLM2"] = lambda: widened(ggufkit.open(real.smollm2()))
    models["Gemma 3"] = lambda: decoded(ggufkit.open(real.gemma3()))
    return {name: make for name, make in models.items() if name in options.models}


def text_of_all_domains(options: argparse.Namespace) -> str:
    """Return a text to calibrate with: as much of each domain."""
    share = options.context * options.calibration * 4 // len(DOMAINS)  # in characters
    return "\n".join("\n".join(documents(domain, CALIBRATION))[:share] for domain in DOMAINS)


def calibrated(model: Path, options: argparse.Namespace, folder: Path, content: str) -> Path:
    """Compute importance data and, on request, a Hessian of a text, where they are missing."""
    path = folder / "imatrix.gguf"
    if path.exists():
        return path
    context, chunks = options.context, options.calibration
    text = folder / "calibration.txt"
    text.write_text(content)
    compute_imatrix(
        model,
        text,
        chunks=chunks,
        context=context,
        batch=context,
        hessian=folder / HESSIAN if options.hessian else None,
        threads=options.threads,
    ).save(path)
    return path


def treatment(search: str, folder: Path) -> dict[str, Any]:
    """Return the options of `quantize` for a search, a Hessian, or both: `hessian+best`."""
    effort = search.rpartition("+")[2]
    chosen: dict[str, Any] = {"hessian": folder / HESSIAN} if search.startswith(FED_BACK) else {}
    return chosen | ({"search": effort} if effort in EFFORTS else {})


class SearchedFiles:
    """The files of one model, and what is known of them."""

    domains: tuple[str, ...] = tuple(DOMAINS)

    def __init__(
        self, name: str, make: Callable[[], Model], options: argparse.Namespace, folder: Path
    ) -> None:
        """Write the unquantized model and the importance data, where they are missing."""
        self.name, self.options = name, options
        self.shared = folder / name.replace(" ", "-").lower() / (FED_BACK * options.hessian)
        self.folder = self.own_folder()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.shared / "unquantized.gguf"
        if not self.path.exists():
            ggufkit.write(make(), self.path, threads=options.threads)
        self.results_path = self.folder / "results.json"
        self.known: dict[str, dict[str, Any]] = (
            json.loads(self.results_path.read_text()) if self.results_path.exists() else {}
        )
        text = self.calibration_text()
        self.imatrix = calibrated(self.calibration_model(), options, self.folder, text)

    def own_folder(self) -> Path:
        """Return the folder of importance data and results; `shared` has the model and bases."""
        return self.shared

    def calibration_model(self) -> Path:
        """Return the file that reads the text to calibrate with."""
        return self.path

    def calibration_text(self) -> str:
        """Return the text that importance data and Hessian come from."""
        return text_of_all_domains(self.options)

    def test_text(self, domain: str) -> str:
        """Return the text of a domain that files are measured on."""
        return "\n".join(documents(domain, HELD_OUT))

    def figures(self, type: str, search: str) -> dict[str, Figures]:
        """Return what a file loses in each domain; make the file if that is not known."""
        key = f"{type} {search}"
        if key not in self.known:
            begin = time.process_time()
            self._write(type, search)
            seconds = time.process_time() - begin
            self.known[key] = {domain: asdict(self._measured(domain)) for domain in self.domains}
            self.results_path.write_text(json.dumps(self.known, indent=1))
            means = {d: statistics.fmean(v["chunks"]) for d, v in self.known[key].items()}
            print(self.name, key, means, f"{seconds:.1f} s", flush=True)
        return {domain: Figures(**self.known[key][domain]) for domain in self.domains}

    @property
    def quantized(self) -> Path:
        """The file to measure, which the next one replaces."""
        return self.folder / "quantized.gguf"

    def _write(self, type: str, search: str) -> None:
        with ggufkit.open(self.path) as model:
            matrices = [t.name for t in model.tensors.values() if is_layer_matrix(t)]
            is_recipe = type == MIX or self.options.hessian
            quantized = ggufkit.quantize(
                model,
                type if is_recipe else None,
                types=None if is_recipe else dict.fromkeys(matrices, type),
                imatrix=self.imatrix,
                **treatment(search, self.folder),
            )
            ggufkit.write(quantized, self.quantized, threads=self.options.threads)

    def _measured(self, domain: str) -> Figures:
        base = self.shared / f"{domain}.base"
        if not base.exists():
            text = self.shared / f"{domain}.txt"
            text.write_text(self.test_text(domain))
            evaluation = self._evaluated(text=text, base=self.path, base_logits=base)
        else:
            evaluation = self._evaluated(base_logits=base)
        (quality,) = evaluation.models
        assert quality.divergence is not None  # noqa: S101 (for mypy)
        return Figures(
            [float(value) for value in quality.scores.field("divergence").mean(axis=1)],
            quality.divergence.kld.percentiles[99.9],
            quality.divergence.ratio.value,
        )

    def _evaluated(self, **inputs: Path) -> Evaluation:
        chunks, context = self.options.chunks, self.options.context
        threads = self.options.threads
        return ggufkit.evaluate(
            self.quantized, chunks=chunks, context=context, threads=threads, **inputs
        )


def is_layer_matrix(tensor: Tensor) -> bool:
    """Whether a tensor is quantized here: matrices of layers, but no router of experts."""
    is_router = tensor.name.endswith("ffn_gate_inp.weight")
    return layer_of(tensor.name) is not None and len(tensor.shape) > 1 and not is_router


@dataclass(frozen=True)
class Change:
    """A change of divergence, as a share of that of llama-quantize's file; and its interval."""

    mean: float
    reach: float

    def __str__(self) -> str:
        """Return it in percent."""
        return f"{100 * self.mean:+.1f} ± {100 * self.reach:.1f} %"


def change(rule: list[float], searched: list[float]) -> Change:
    """Compare the same chunks, pairwise."""
    whole = statistics.fmean(rule)
    gaps = np.array(searched) - np.array(rule)
    return Change(*(bound / whole for bound in interval(gaps, CONFIDENCE)))


def table(options: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Yield the lines of two tables: of each model, and of each domain over all models."""
    names = list(DOMAINS)
    all_files = [SearchedFiles(*source, options, folder) for source in sources(options).items()]
    yield "| model | type | divergence | search | " + " | ".join(names) + " | 99.9 % | perplexity |"
    yield "|---" * (6 + len(names)) + "|"
    shares: dict[tuple[str, str], list[list[float]]] = {}
    for files in all_files:
        for kind in options.types:
            if (files.name, kind) in EXCLUDED:
                continue
            rule = files.figures(kind, RULE)
            for search in options.searches:
                figures = files.figures(kind, search)
                changes = [change(rule[d].chunks, figures[d].chunks) for d in names]
                shares.setdefault((kind, search), []).append([change.mean for change in changes])
                yield _line(files.name, kind, search, changes, rule, figures)
    yield ""
    yield "| type | search | models | " + " | ".join(names) + " | all |"
    yield "|---" * (4 + len(names)) + "|"
    for (kind, search), of_models in shares.items():
        means = [statistics.fmean(column) for column in zip(*of_models, strict=True)]
        cells = [f"{100 * mean:+.1f} %" for mean in (*means, statistics.fmean(means))]
        yield f"| {kind} | `{search}` | {len(of_models)} | {' | '.join(cells)} |"


def _line(  # noqa: PLR0913 (the cells of a line)
    name: str,
    kind: str,
    search: str,
    changes: list[Change],
    rule: dict[str, Figures],
    figures: dict[str, Figures],
) -> str:
    tail, ratio, divergence = (
        statistics.fmean(f(d) for d in DOMAINS)
        for f in (
            lambda d: figures[d].tail / rule[d].tail - 1,
            lambda d: figures[d].perplexity / rule[d].perplexity - 1,
            lambda d: statistics.fmean(rule[d].chunks),
        )
    )
    cells = [name, kind, f"{divergence:.4f}", f"`{search}`", *map(str, changes)]
    return f"| {' | '.join(cells)} | {100 * tail:+.0f} % | {100 * ratio:+.2f} % |"
