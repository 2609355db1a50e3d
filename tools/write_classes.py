"""Write docs/classes.md: every class that llama.cpp's converter converts, and what ggufkit does.

`tools/write_classes.py` reads the converter's source, the architecture files and the record of
`make test-oracle` in tests/oracle/digests.json. `page()` returns the page as it should be.
"""

from __future__ import annotations

import ast
import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "classes.md"
RECORD: Final = ROOT / "tests" / "oracle" / "digests.json"
FLAGS: Final = RECORD.with_name("flag_digests.json")
KINDS: Final = ("auto", "f32", "q8_0")
REFUSED: Final = ROOT / "tests" / "oracle" / "refused.py"
DRAFTS: Final = ("DFLASH", "EAGLE3", "ASSISTANT", "DEEPSEEK4_DSPARK")  # in a name of llama.cpp's
HEADER: Final = """# Classes

`ggufkit convert` finds the architecture of a checkpoint by the class name in its `config.json`.
This page lists every class that llama.cpp's converter converts, and what `make test-oracle` proves
for it with tiny random checkpoints:

| column | means |
|---|---|
| architecture | the files of the architecture; empty if ggufkit does not convert the class yet |
| identical | the file is byte-identical to the converter's |
| logits | llama.cpp computes the same logits from it as transformers from the checkpoint |
| round trip | `convert` makes the same file from what `export` writes |
| projector | with `--mmproj`: identical if ggufkit writes the same, yes if only the converter can |
| draft | the converter writes a head that predicts tokens, with `--mtp` or as a model |

The weights of BitNet's classes are -1, 0 or 1 times a number in the file, and stay so in an export:
the numbers before the rounding do not come back.

A class without an architecture of its own is often a small change of a known one:
[architectures.md](architectures.md) shows how to add it without a new release.

"""

FOOTER: Final = """
## Classes that the converter cannot convert

llama.cpp's converter knows the names of these classes, but makes no file of them that
llama.cpp can load, or only one of two:

| class | why |
|---|---|
"""


class Registered(NamedTuple):
    """A class of the converter: the names that it is registered for, its bases and its values."""

    names: tuple[str, ...]
    bases: tuple[str, ...]
    values: dict[str, str]


def registered(conversion: Path) -> dict[str, Registered]:
    """Return the classes of the converter's source, by their names in it."""
    classes = {}
    for path in sorted(conversion.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                classes[node.name] = Registered(
                    tuple(_names(node)), tuple(map(ast.unparse, node.bases)), dict(_values(node))
                )
    return classes


def _names(node: ast.ClassDef) -> Iterator[str]:
    for call in node.decorator_list:
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "ModelBase.register":
            yield from (str(arg.value) for arg in call.args if isinstance(arg, ast.Constant))


def _values(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for line in node.body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            yield line.targets[0].id, ast.unparse(line.value)


def value(name: str, word: str, classes: dict[str, Registered]) -> str:
    """Return the value of a class or of the first of its bases that has one."""
    if name not in classes:
        return ""
    own = classes[name].values.get(word)
    if own is not None:
        return own
    return next((v for base in classes[name].bases if (v := value(base, word, classes))), "")


def rows(conversion: Path) -> list[list[str]]:
    """Return the cells of the table, one row for each name that the converter knows."""
    from ggufkit.conversion.architecture.architecture import architectures  # noqa: PLC0415

    homes: dict[str, list[str]] = {}
    for stem, entry in architectures().items():
        for served in entry.classes:
            homes.setdefault(served, []).append(stem)
    classes = registered(conversion)
    projectors = set()
    texts: dict[str, str] = {}
    for own, entry in classes.items():
        if value(own, "model_arch", classes).endswith(".MMPROJ"):
            projectors.update(entry.names)
        else:
            texts.update(dict.fromkeys(entry.names, own))
    record = json.loads(RECORD.read_text(encoding="utf-8")) | _drafts()
    identical = compared_projectors()
    cells = []
    for name in sorted({*texts, *projectors}, key=lambda name: (name.lower(), name)):
        cases = [case for case in record.values() if case["class"] == name]
        row = [
            f"`{name}`",
            ", ".join(homes.get(name, [])) or ("" if name in texts else "(projector only)"),
            _yes(any(kind in case for case in cases for kind in KINDS)),
            _yes(any(case["logits"] for case in cases)),
            _yes(any(case["round trip"] for case in cases)),
            "identical" if name in identical else _yes(name in projectors),
            _draft(name, texts.get(name, ""), classes),
        ]
        cells.append(row)
    return cells


def compared_projectors() -> set[str]:
    """Return the classes whose projectors are compared with the converter's."""
    import projector_folders  # noqa: PLC0415 (of the tests)
    from ggufkit.conversion.architecture.architecture import classes  # noqa: PLC0415

    cases = projector_folders.cases().values()
    return {case.get("class") or classes(case["config"], "vision_config")[0] for case in cases}


def _drafts() -> dict[str, dict[str, object]]:
    """Return the record of draft models, which the converter converts with their targets."""
    sys.path.insert(0, str(RECORD.parent))
    import drafts  # noqa: PLC0415 (of the oracle's tests)

    recorded = json.loads(FLAGS.read_text(encoding="utf-8"))
    names = {case: draft.config["architectures"][0] for case, draft in drafts.DRAFTS.items()}
    names |= dict.fromkeys(recorded["--dspark"], "DeepseekV4DSparkModel")
    cases_of_drafts = recorded["--target-model-dir"] | recorded["--dspark"]
    return {
        f"{case} (draft)": {
            "class": names[case],
            "logits": False,
            "round trip": False,
            "auto": digest,
        }
        for case, digest in cases_of_drafts.items()
    }


def _yes(is_so: bool) -> str:  # noqa: FBT001
    return "yes" if is_so else ""


def _draft(name: str, own: str, classes: dict[str, Registered]) -> str:
    if "Eagle3" in name or any(word in value(own, "model_arch", classes) for word in DRAFTS):
        return "model"
    return "`--mtp`" if value(own, "supports_mtp_export", classes) == "True" else ""


def page(llama_cpp: Path) -> str:
    """Return docs/classes.md as it should be."""
    title = "| class | architecture | identical | logits | round trip | projector | draft |\n"
    lines = (f"| {' | '.join(row)} |\n" for row in rows(llama_cpp / "conversion"))
    table = "".join(lines).replace("|  |", "| |").replace("|  |", "| |")
    refused = "".join(f"| `{name}` | {why} |\n" for name, why in sorted(refusals().items()))
    return HEADER + title + "|---|---|---|---|---|---|---|\n" + table + FOOTER + refused


def refusals() -> dict[str, str]:
    """Return the classes that the converter itself cannot convert, and why."""
    scope = runpy.run_path(str(REFUSED))
    return dict(scope["REFUSED"])


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "support")]
    import real

    PAGE.write_text(page(real.llama_cpp_source()), encoding="utf-8")
