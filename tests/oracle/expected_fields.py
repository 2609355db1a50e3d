"""What the converter and transformers do with a field that an architecture file `expects`.

    python expected_fields.py FOLDER

changes each such field in a checkpoint of the architecture to a value that the file does not
expect, asks llama.cpp's converter, and records in expected_fields.json whether its file stays the
same and whether transformers' code for the model mentions the field (null: it has no code).
FOLDER holds `checkpoints` and the environment `venv`, as `make test-oracle` makes them.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import digests
from spelling_digests import Converter
from spellings import INNER

RECORD: Final = Path(__file__).with_name("expected_fields.json")
NAME: Final = re.compile(r"\w+(\.\w+)*")
SCALING: Final = {"type": "linear", "factor": 2.0}


def fields(folder: Path) -> Iterator[tuple[str, str, Any]]:
    """Yield case, field and another value for each field that an architecture file expects."""
    from ggufkit.conversion.architecture.architecture import classes, find
    from ggufkit.conversion.architecture.config import IGNORED
    from ggufkit.conversion.checkpoint.folder import open_checkpoint

    seen = set()
    for path in sorted(folder.glob("checkpoints/*/config.json")):
        opened = open_checkpoint(path.parent)
        opened.close()
        architecture = find(classes(opened.config), (), opened.config)
        if architecture.path not in seen:
            seen.add(architecture.path)
            for name, allowed in architecture.expects.items():
                if allowed != IGNORED and NAME.fullmatch(name):
                    yield path.parent.name, name, other_value(name, allowed)


def other_value(name: str, allowed: list[Any] | str) -> Any:
    """Return a value that is not among those allowed."""
    first = next((value for value in allowed if value is not None), None)
    if name == "rope_scaling":
        return SCALING
    if isinstance(allowed, str) or first is None:
        return 7
    if isinstance(first, bool):
        return not first
    return "relu2" if isinstance(first, str) else 7 if isinstance(first, int | float) else [7]


def write_changed(folder: Path, case: str, name: str, value: Any, out: Path) -> Path:
    """Copy the checkpoint of a case to `out/CASE` with another value of a field; return it."""
    place = out / case
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder / "checkpoints" / case, place)
    config = copy.deepcopy(json.loads((place / "config.json").read_text("utf-8")))
    part = text_of(config)
    *outer, last = name.split(".")
    for word in outer:
        part = part.setdefault(word, {})
    part[last] = value
    (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return place


def text_of(config: dict[str, Any]) -> dict[str, Any]:
    """Return the object that describes the text model."""
    inner = next((config[name] for name in INNER if isinstance(config.get(name), dict)), config)
    return inner["text_config"] if isinstance(inner.get("text_config"), dict) else inner


def is_mentioned(folder: Path, case: str, name: str) -> bool | None:
    """Whether transformers' code for the model mentions a field, None if it has no code."""
    config = json.loads((folder / "checkpoints" / case / "config.json").read_text("utf-8"))
    kinds = {str(part.get("model_type")).replace("-", "_") for part in (config, text_of(config))}
    kinds |= {kind.removesuffix("_text") for kind in kinds}
    word = re.compile(rf"\b{name.rpartition('.')[2]}\b")
    libraries = list(folder.glob("venv*/lib/python*/site-packages/transformers"))
    own = [path for kind in kinds for library in libraries
           for path in library.glob(f"models/{kind}/[cm]o*_*.py")]  # fmt: skip
    texts = [path.read_text("utf-8") for path in own]
    if not any(
        f"class {kind}(" in text for text in texts for kind in config.get("architectures", ())
    ):
        return None
    shared = [library / "modeling_rope_utils.py" for library in libraries]
    return any(map(word.search, (*texts, *(path.read_text("utf-8") for path in shared))))


def main(folder: str) -> None:
    place, converter = Path(folder), Converter(Path(folder))
    record: dict[str, dict[str, Any]] = {}
    plain: dict[str, list[str]] = {}
    # Fields that are no longer expected stay in the record.
    values = {name: row["value"] for name, row in json.loads(RECORD.read_text("utf-8")).items()}
    values |= {f"{case} {name}": value for case, name, value in fields(place)}
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "theirs.gguf"
        for key, value in values.items():
            case, _, name = key.partition(" ")
            if case not in plain:
                converter.convert(place / "checkpoints" / case, out)
                plain[case] = digests.of_file(out) if out.exists() else []
            changed = write_changed(place, case, name, value, Path(temporary))
            failed = converter.convert(changed, out)
            record[key] = {
                "value": value,
                "same": not failed and digests.of_file(out) == plain[case],
                "mentioned": is_mentioned(place, case, name),
            }
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(record.items())]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
    main(*sys.argv[1:])
