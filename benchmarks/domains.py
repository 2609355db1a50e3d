"""Measure what importance data and Hessians gain on text of another kind than they come from.

Each calibration text comes from other packages than each test: llama.cpp's manuals, Python's
library, a corpus of conversations, Sphinx's messages in many languages, and a mixture of all four.
The tests are Django's manual, code, translated messages, and web pages. For each pair, files of a
recipe are made with importance data and with the Hessian of the same text, and compared on the same
chunks. The mean off the diagonal comes first: pairs of different kinds, without the mixture.

What takes long is kept in `--folder`, and a later run goes on from there. By default there are 8192
tokens of each of five texts, four tests of 1024 tokens and three recipes: about 40 minutes of one
core that does nothing else.
"""

from __future__ import annotations

import argparse
import gettext
import statistics
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from searched_files import (
    FED_BACK,
    RULE,
    Change,
    Figures,
    SearchedFiles,
    change,
    sources,
)
from texts import HELD_OUT, LANGUAGES, Document, documents, files, shuffled

import ggufkit
from ggufkit.models.model import Model

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import real

MIXTURE: Final = "mixture"
TYPES: Final = ("Q4_K_M", "Q3_K_M", "Q2_K")
EXCERPT: Final = 2000  # characters of a document in one piece: many topics in few tokens


def _library() -> Iterator[Document]:
    folder = Path(sysconfig.get_path("stdlib"))
    for name, text in files(folder, "*.py"):
        if not name.startswith(("test/", "site-packages/", "idlelib/", "lib2to3/")):
            yield name, text


def _conversations() -> Iterator[Document]:
    for name, text in files(real.conversations(), "*.yml"):
        lines = (line.lstrip("- ") for line in text.splitlines() if line.lstrip().startswith("-"))
        yield name, "\n".join(lines)


def _messages() -> Iterator[Document]:
    folder = Path(real.installed("sphinx")) / "locale"
    for language in LANGUAGES:
        for path in folder.glob(f"{language}/LC_MESSAGES/*.mo"):
            with path.open("rb") as file:
                known = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined] # noqa: SLF001
            yield language, "\n".join(text for key, text in known.items() if key)


def _web() -> Iterator[Document]:
    for pattern in ("*.html", "*.css", "*.js"):
        for name, text in files(real.django() / "django", pattern):
            if "/vendor/" not in name:  # minified
                yield name, text


CALIBRATIONS: Final[dict[str, Callable[[], Iterator[Document]]]] = {
    "manuals": lambda: files(real.manuals(), "*.md"),
    "code": _library,
    "conversations": _conversations,
    "languages": _messages,
}
TESTS: Final[dict[str, Callable[[], list[str]]]] = {
    "manuals": lambda: documents("prose", HELD_OUT),
    "code": lambda: documents("code", HELD_OUT),
    "languages": lambda: documents("translations", HELD_OUT),
    "web": lambda: shuffled(_web()),
}


def excerpts(name: str) -> list[str]:
    """Return pieces of the documents of a calibration set, in an order that has no topics in it."""
    return shuffled(
        (document, text[start : start + EXCERPT])
        for document, text in CALIBRATIONS[name]()
        for start in range(0, len(text), EXCERPT)
    )


def calibration_text(name: str) -> str:
    """Return the text of a calibration set; the mixture takes one piece of each in turn."""
    if name != MIXTURE:
        return "\n".join(excerpts(name))
    return "\n".join(
        text for group in zip(*map(excerpts, CALIBRATIONS), strict=False) for text in group
    )


class DomainFiles(SearchedFiles):
    """The files of one model that come from one calibration text."""

    domains = tuple(TESTS)

    def __init__(
        self,
        source: tuple[str, Callable[[], Model]],
        options: argparse.Namespace,
        folder: Path,
        calibration: str,
    ) -> None:
        """Write what is missing, as the base class does."""
        self.calibration = calibration
        super().__init__(*source, options, folder)

    def own_folder(self) -> Path:
        """Return the folder of what comes from this text."""
        return self.shared / self.calibration

    def calibration_model(self) -> Path:
        """Return the model in Q8_0."""
        path = self.shared / "q8_0.gguf"  # read twice as fast, with nearly the same inputs
        if not path.exists():
            with ggufkit.open(self.path) as model:
                ggufkit.write(model.quantize("Q8_0"), path, threads=self.options.threads)
        return path

    def calibration_text(self) -> str:
        """Return the text of this set."""
        return calibration_text(self.calibration)

    def test_text(self, domain: str) -> str:
        """Return the text of a test."""
        return "\n".join(TESTS[domain]())


@dataclass
class Pairs:
    """What files of one recipe lose, by calibration text and test."""

    recipe: str
    losses: dict[str, dict[str, dict[str, Figures]]]  # by treatment, calibration and test

    def changes(self, before: str, after: str) -> dict[tuple[str, str], Change]:
        """Return the change of divergence from one treatment to another for each pair."""
        return {
            (calibration, test): change(
                self.losses[before][calibration][test].chunks, figures.chunks
            )
            for calibration, of_tests in self.losses[after].items()
            for test, figures in of_tests.items()
        }


def measured(options: argparse.Namespace, folder: Path) -> Iterator[Pairs]:
    """Make and measure the files of each recipe."""
    ((name, make),) = sources(options).items()
    by_text = {c: DomainFiles((name, make), options, folder, c) for c in options.calibrations}
    for recipe in options.types:
        yield Pairs(
            recipe,
            {
                treatment: {c: files.figures(recipe, treatment) for c, files in by_text.items()}
                for treatment in (RULE, *options.searches)
            },
        )


def is_off_diagonal(pair: tuple[str, str]) -> bool:
    """Whether the calibration text is of another kind than the test; the mixture is of all."""
    calibration, test = pair
    return calibration not in (test, MIXTURE)


KINDS: Final[dict[str, Callable[[tuple[str, str]], bool]]] = {
    "other kind": is_off_diagonal,
    "mixture": lambda pair: pair[0] == MIXTURE,
    "same kind": lambda pair: pair[0] == pair[1],
}


def mean_change(changes: Iterable[Change]) -> str:
    """Return the mean of changes, and its interval over pairs and their chunks."""
    cells = list(changes)
    if not cells:
        return ""
    reach = float(np.linalg.norm([cell.reach for cell in cells])) / len(cells)
    return str(Change(statistics.fmean(cell.mean for cell in cells), reach))


def table(options: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Yield the lines of two tables: the means by kind of pair, and all pairs."""
    recipes = list(measured(options, folder))
    yield f"| recipe | {' | '.join(f'`{s}`: {kind}' for s in options.searches for kind in KINDS)} |"
    yield "|---" * (1 + len(KINDS) * len(options.searches)) + "|"
    for pairs in recipes:
        cells = [
            mean_change(c for pair, c in pairs.changes(RULE, search).items() if belongs(pair))
            for search in options.searches
            for belongs in KINDS.values()
        ]
        yield f"| {pairs.recipe} | {' | '.join(cells)} |"
    yield ""
    yield f"| recipe | calibration | search | {' | '.join(TESTS)} |"
    yield "|---" * (3 + len(TESTS)) + "|"
    for pairs in recipes:
        for search in options.searches:
            changes = pairs.changes(RULE, search)
            for calibration in options.calibrations:
                cells = [str(changes[calibration, test]) for test in TESTS]
                yield f"| {pairs.recipe} | {calibration} | `{search}` | {' | '.join(cells)} |"


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs=1, default=["SmolLM2"], help="SmolLM2 or Gemma 3")
    parser.add_argument("--types", nargs="+", default=TYPES, help="which recipes")
    parser.add_argument("--searches", nargs="+", default=(FED_BACK,), help="compared with the rule")
    parser.add_argument("--calibrations", nargs="+", default=(*CALIBRATIONS, MIXTURE))
    parser.add_argument("--chunks", type=int, default=4, help="chunks of each test")
    parser.add_argument("--calibration", type=int, default=32, help="chunks to calibrate with")
    parser.add_argument("--context", type=int, default=256, help="tokens of a chunk")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where to keep what is made")
    options = parser.parse_args(arguments)
    options.hessian, options.trained, options.experts = True, None, None
    with tempfile.TemporaryDirectory() as temporary:
        for line in table(options, options.folder or Path(temporary)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
