"""The model card of a release: README.md with a table and a chart, from the journal alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ggufkit._version import __version__
from ggufkit.conversion.card.front_matter import yaml_lines
from ggufkit.errors import FormatError
from ggufkit.evaluation.quality_rows import QualityRow
from ggufkit.frameworks.extras import library
from ggufkit.llama_cpp.library import version
from ggufkit.quantization.recipe_files import RECIPE_SUFFIX
from ggufkit.release.journal import Facts, Journal
from ggufkit.release.sidecars import ADAPTER, DRAFT, PROJECTOR
from ggufkit.release.source import HUB
from ggufkit.reports.drawings import quality_drawing, svg_file
from ggufkit.reports.report import escaped, table_lines
from ggufkit.system.text_file import Most, decoded, read_small

CARD: Final = "README.md"
CHART: Final = "quality.svg"
# What a sidecar is, and how to run it.
_SIDECARS: Final = {
    PROJECTOR: ("projector for pictures or sound", "`llama-mtmd-cli -m {model} --mmproj {file}`"),
    DRAFT: ("draft model", "`llama-server -m {model} -md {file} --spec-type {drafting}`"),
    ADAPTER: ("LoRA adapter", "`llama-cli -m {model} --lora {file}`"),
}
PREFERRED: Final = "Q4_K_M"  # in examples
MEMORIES: Final = (2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 192, 256, 512)
_MEASURES: Final = ("KLD", "99.9 % KLD", "same top token")
_QUANTIZE: Final = "- `ggufkit quantize {base_file} {output}{options} --provenance`"
_MEASURE: Final = "- `ggufkit eval {name}-*.gguf --base {base_file} --text {text}`"
_PROOF: Final = (
    "\nThe original has the digest `{content}` (`ggufkit hash --content`). SHA256SUMS has the "
    "digest of each file, and `ggufkit reproduce` proves that a file derives from the original. "
    "llama.cpp came from xllamacpp {llama_cpp}.\n"
)


def document_of(journal: Journal) -> Facts:
    """Return everything that a card says, from the steps of a journal, as plain data."""
    base, chosen = journal.facts("base"), journal.facts("set")
    texts = chosen["texts"]
    return {
        **chosen,
        "title": chosen["name"],
        **{key: chosen[key] or base[key] for key in ("license", "languages", "base_model")},
        **{key: base[key] for key in ("architecture", "parameters", "content")},
        "importance": journal.facts("importance data"),
        "base_quality": list(filter(None, (journal.facts(f"base on {text}") for text in texts))),
        "files": [_file(journal, name, texts) for name in chosen["rungs"]],
        "sidecars": [_sidecar(journal, step) for step in chosen["sidecars"] if journal.files(step)],
        "ggufkit": __version__,
        "llama_cpp": version(),
    }


def _file(journal: Journal, name: str, texts: Sequence[str]) -> Facts:
    step = journal.steps[f"quantize {name}"]
    qualities = (journal.facts(f"measure {name} on {text}") for text in texts)
    return {
        **step["facts"],
        "name": name,
        "files": sorted(step["files"]),
        "sha256": {file: entry["sha256"] for file, entry in step["files"].items()},
        "qualities": list(filter(None, qualities)),
    }


def _sidecar(journal: Journal, step: str) -> Facts:
    files = journal.steps[step]["files"]
    nbytes = sum(entry["nbytes"] for entry in files.values())
    return {**journal.facts(step), "file": min(files), "nbytes": nbytes}


def card_of(document: Facts, template: Path | None = None) -> str:
    """Return the text of the card; with `template`, a file for Jinja, what that makes of it.

    Raises FormatError for a template that is wrong, MissingExtraError without Jinja.
    """
    head = "\n".join(("---", *yaml_lines(_front_matter(document)), "---", ""))
    if template is None:
        return f"{head}\n" + "\n".join(_lines(document)) + "\n"
    with _template_errors(template):
        text: str = template_of(template).render(**document, front_matter=head)
    return text


def template_of(path: Path) -> Any:  # noqa: ANN401 (Jinja's)
    """Return a template for Jinja; FormatError if it is wrong, MissingExtraError without Jinja."""
    with _template_errors(path):
        environment = library("jinja2.sandbox", "templates").ImmutableSandboxedEnvironment(
            undefined=library("jinja2", "templates").StrictUndefined, keep_trailing_newline=True
        )
        return environment.from_string(decoded(read_small(path, Most.RECIPE)))


@contextlib.contextmanager
def _template_errors(path: Path) -> Iterator[None]:
    jinja2 = library("jinja2", "templates")
    try:
        yield
    except (jinja2.TemplateError, UnicodeDecodeError, TypeError) as error:
        raise FormatError(f"the template of the card fails: {error}", path=str(path)) from None


def _front_matter(document: Facts) -> Facts:
    base = document["base_model"]
    tags = ["gguf", "quantized", *([document["architecture"]] if document["architecture"] else [])]
    fields = {
        "base_model": base,
        "base_model_relation": "quantized" if base else "",
        "license": document["license"],
        "language": document["languages"],
        "library_name": "gguf",
        "pipeline_tag": document["pipeline_tag"],
        "quantized_by": document["quantized_by"],
        "tags": list(dict.fromkeys([*tags, *document["tags"]])),
        "datasets": document["datasets"],
    }
    return {key: value for key, value in fields.items() if value}


def _lines(document: Facts) -> Iterator[str]:
    base = document["base_model"]
    origin = f"[{escaped(base)}]({HUB}{base})" if base else "a model"
    yield f"# {escaped(document['title'])} as GGUF\n"
    yield (
        f"Quantized files of {origin}, made with ggufkit {document['ggufkit']}. Every program that "
        "uses llama.cpp reads them.\n"
    )
    yield from _choices(document["files"])
    yield "## Files\n"
    yield from _file_table(document["files"])
    if rows := [*map(_sidecar_row, document["sidecars"])]:
        yield "These files go with them:\n"
        yield from table_lines(("file", "what it is", "size", "origin"), rows)
    if any(file["qualities"] for file in document["files"]):
        yield f"![Quality against size]({CHART})\n"
        yield from _explanation(document)
    yield from _how_made(document)
    yield from _how_to_run(document)


def _sidecar_row(sidecar: Facts) -> tuple[str, ...]:
    kind = _SIDECARS[sidecar["kind"]][0]
    return sidecar["file"], kind, _gigabytes(sidecar["nbytes"]), sidecar["origin"]


def _gigabytes(nbytes: int) -> str:
    """Return a size in GB, as all of a card: with two decimals, or three digits if it is small."""
    return f"{nbytes / 1e9:{'.2f' if nbytes >= 10**9 else '.3g'}} GB"


def _choices(files: Sequence[Facts]) -> Iterator[str]:
    """Yield which file to choose for which memory: the largest that fits."""
    rows: list[tuple[str, str]] = []
    sized = sorted((f for f in files if f["memory"]), key=lambda file: int(file["memory"]))
    for memory in MEMORIES:
        fitting = [file for file in sized if file["memory"] <= memory * 10**9]
        if fitting and (not rows or rows[-1][1] != fitting[-1]["name"]):
            rows.append((f"{memory} GB", fitting[-1]["name"]))
    if rows:
        yield "## Which file\n"
        yield (
            "The largest file that fits with a context of 8,192 tokens. Smaller files are faster, "
            "and predict worse.\n"
        )
        yield from table_lines(("memory", "file"), rows)


def _file_table(files: Sequence[Facts]) -> Iterator[str]:
    is_measured = any(file["qualities"] for file in files)
    rows = [
        (
            file["files"][0],
            file["recipe"],
            _gigabytes(file["nbytes"]),
            f"{file['bits_per_weight']:.2f}",
            *(_figures(file["qualities"]) if is_measured else ()),
        )
        for file in sorted(files, key=lambda file: -int(file["nbytes"]))
    ]
    measures = _MEASURES if is_measured else ()
    yield from table_lines(("file", "recipe", "size", "bits per weight", *measures), rows)


def _figures(qualities: Sequence[Facts]) -> Sequence[str]:
    """Return the cells of the first text."""
    divergence = qualities[0]["quality"]["divergence"] if qualities else None
    if not divergence:
        return ("",) * len(_MEASURES)
    mean, top = (
        _measured(divergence["kld"]["mean"], 1, 6),
        _measured(divergence["same_top"], 100, 3),
    )
    return (mean, f"{divergence['kld']['percentiles']['99.9']:.6f}", f"{top} %")


def _measured(figure: Facts, factor: float, digits: int) -> str:
    error = "" if figure["error"] is None else f" ± {figure['error'] * factor:.{digits}f}"
    return f"{figure['value'] * factor:.{digits}f}{error}"


def _explanation(document: Facts) -> Iterator[str]:
    first = document["files"][0]["qualities"][0]
    yield (
        f"KLD is the Kullback-Leibler divergence from the probabilities of the original, on "
        f"{first['positions']:,} tokens of {escaped(document['texts'][0])}: 0 means equal. The "
        "number after ± is one standard error.\n"
    )
    if len(document["texts"]) > 1:
        rows = [
            (file["name"], *(_figures([quality])[0] for quality in file["qualities"]))
            for file in document["files"]
        ]
        yield "KLD by text:\n"
        yield from table_lines(("file", *document["texts"]), rows)


def _how_made(document: Facts) -> Iterator[str]:
    yield "## How they were made\n"
    importance = document["importance"]
    if importance:
        cosine = importance["cosine"]
        similar = f" Half of the text gives the same data (cosine {cosine:.3f})." if cosine else ""
        texts = ", ".join(map(escaped, importance["texts"])) or "a text"
        yield (
            f"The importance matrix comes from {importance['tokens']:,} tokens of {texts}; they "
            f"reached {importance['matrices'] - importance['unseen']:,} of "
            f"{importance['matrices']:,} matrices.{similar}\n"
        )
    names = [file["recipe"] for file in document["files"]]
    recipes = [name for name in names if name.endswith(RECIPE_SUFFIX) or not name[0].isdigit()]
    data = {"imatrix": f"{document['name']}.imatrix.gguf"} if importance else {}
    outputs = [(f". {','.join(recipes)}", data)] if recipes else []
    for name in (name for name in names if name not in recipes):
        is_rate = name.lower().endswith("bpw")
        goal = {"target-bpw": name[:-3]} if is_rate else {"target-size": name}
        outputs.append((f"{document['name']}-{name}.gguf", goal | data))
    for output, goals in outputs:
        options = "".join(f" --{option} {value}" for option, value in goals.items())
        yield _QUANTIZE.format(base_file=document["base_file"], output=output, options=options)
    for text in document["texts"]:
        yield _MEASURE.format(**document, text=text)
    yield _PROOF.format(**document)


def _how_to_run(document: Facts) -> Iterator[str]:
    names = [file["name"] for file in document["files"]]
    if not names:
        return
    name = PREFERRED if PREFERRED in names else names[len(names) // 2]
    file = next(file for file in document["files"] if file["name"] == name)["files"][0]
    yield "## How to run them\n"
    if repository := document["repository"]:
        yield f"- llama.cpp: `llama-cli -hf {repository}:{name}`"
        yield f"- Ollama: `ollama run hf.co/{repository}:{name}`"
        yield f"- LM Studio: `lms get {repository}`"
        yield f'- Python: `llama_cpp.Llama.from_pretrained("{repository}", "{file}")`'
    else:
        yield f"- llama.cpp: `llama-cli -m {file}`"
        yield f'- Python: `llama_cpp.Llama("{file}")`'
    for sidecar in document["sidecars"]:
        name, command = _SIDECARS[sidecar["kind"]]
        yield f"- With the {name}: {command.format(model=file, **sidecar)}"


def chart_of(document: Facts) -> str | None:
    """Return the chart of quality against size as SVG, None if fewer than two files are known."""
    rows = [
        QualityRow(file["name"], file["nbytes"], None, divergence["kld"]["mean"]["value"])
        for file in document["files"]
        for quality in file["qualities"][:1]
        if (divergence := quality["quality"]["divergence"])
    ]
    drawing = quality_drawing(rows)
    return None if drawing is None else svg_file(drawing)


def evaluations(document: Facts) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of a file for each text, in the form of `eval --json`."""
    for number, text in enumerate(document["texts"]):
        qualities = [file["qualities"][number] for file in document["files"] if file["qualities"]]
        base = document["base_quality"][number : number + 1]
        first = (qualities or [{}])[0]
        content = {key: first.get(key) for key in ("context", "chunks", "positions")}
        content["base"] = base[0]["quality"] if base else None
        content["models"] = [quality["quality"] for quality in qualities]
        written = json.dumps(content, allow_nan=False, sort_keys=True)
        yield f"quality-{Path(text).stem}.json", f"{written}\n"
