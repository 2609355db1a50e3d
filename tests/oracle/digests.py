"""What llama.cpp's converter made of each checkpoint, recorded as digests in digests.json.

    python digests.py FOLDER [CASE ...]

records the named cases, or all. FOLDER holds `checkpoints`, `references` and `computed`, as `make
test-oracle` makes them. A file has three digests: of its keys, of its tensors' outlines and of
their bytes. While the digest of a checkpoint is the recorded one, its references need not be made
again: the tests compare with the digests.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import known
from departures import KEYS
from departures import TENSORS as ROUNDED

RECORD = Path(__file__).with_name("digests.json")
TYPES = ("auto", "f32", "q8_0")
LETTERS = 16  # of a digest: enough for files that nobody forges


def recorded() -> dict[str, dict[str, Any]]:
    """Return the record of each case, nothing if GGUFKIT_ORACLE_ANEW asks for references of all."""
    if "GGUFKIT_ORACLE_ANEW" in os.environ or not RECORD.exists():
        return {}
    return json.loads(RECORD.read_text())


def of_checkpoint(folder: Path) -> str:
    """Return the digest of a checkpoint's files."""
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        whole.update(f"{path.relative_to(folder)} {path.stat().st_size}\n".encode())
        whole.update(path.read_bytes())
    return whole.hexdigest()[:LETTERS]


def is_recorded(case: str, folder: Path) -> bool:
    """Whether the record tells all that the converter makes of a checkpoint."""
    record = recorded().get(case)
    if record is None or record["rounded"]:  # numbers that depend on the machine
        return False
    return bool(record["checkpoint"] == of_checkpoint(folder / case))


def of_file(path: Path, case: str = "", without: Collection[str] = ()) -> list[str]:
    """Return the digests of a file's keys, of its tensors' outlines and of their bytes.

    Keys `without`, and those that depart from the converter's in this case, do not count.
    """
    import ggufkit

    with ggufkit.open(path) as model:
        values = model.metadata
        keys = [(key, values.type_name(key), _exact(values.typed(key))) for key in values]
        keys = [row for row in keys if row[0] not in (*KEYS.get(case, ()), *without)]
        tensors = list(model.tensors.values())
        outlines = [(tensor.name, tensor.type.name, tensor.shape) for tensor in tensors]
        data = hashlib.sha256()
        for tensor in tensors:
            if not tensor.name.endswith(ROUNDED):
                data.update(tensor.raw().tobytes())
    texts = (repr(keys), repr(outlines))
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    return [digest[:LETTERS] for digest in (*digests, data.hexdigest())]


def of_whole(path: Path) -> str:
    """Return the digest of all bytes of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:LETTERS]


def _exact(value: Any) -> Any:
    """Return a typed value as Python's, to the last bit."""
    return value if isinstance(value, str | bool) else value.tolist()


def record_of(folder: Path, case: str) -> dict[str, Any]:
    """Return what is recorded of a case."""
    import ggufkit
    from ggufkit.conversion.architecture.architecture import classes
    from ggufkit.conversion.checkpoint.folder import open_checkpoint

    checkpoint = folder / "checkpoints" / case
    opened = open_checkpoint(checkpoint)
    opened.close()
    files = {kind: folder / "references" / f"{case}-{kind}.gguf" for kind in TYPES}
    existing = {kind: path for kind, path in files.items() if path.exists()}
    rounded = False
    for path in existing.values():
        with ggufkit.open(path) as model:
            rounded = any(name.endswith(ROUNDED) for name in model.tensors)
    adapters = {  # Jina 3's for tasks; all types of the base have the same
        path.name[len("lora-") : -len(f"-{case}-auto.gguf")]: of_whole(path)
        for path in sorted((folder / "references").glob(f"lora-*-{case}-auto.gguf"))
    }
    return {
        "class": classes(opened.config)[0],
        "checkpoint": of_checkpoint(checkpoint),
        "rounded": rounded,
        "logits": case in known.computed(folder),
        "round trip": case in known.exported(folder),
        **{kind: of_file(path, case) for kind, path in existing.items()},
        **({"adapters": adapters} if adapters else {}),
    }


def main(folder: str, *names: str) -> None:
    """Write the record of the named cases, or of all."""
    place = Path(folder)
    there = {path.name for path in (place / "checkpoints").glob("[a-z]*")}
    record = {case: old for case, old in recorded().items() if names or case in there}
    for case in names or sorted(there):
        new = record_of(place, case)
        old = record.get(case, {})
        if any(kind in new for kind in TYPES) or old.get("checkpoint") != new["checkpoint"]:
            record[case] = new
    lines = [f"{json.dumps(case)}: {json.dumps(record[case])}" for case in sorted(record)]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
