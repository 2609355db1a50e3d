"""Record what llama.cpp makes of adapters, as digests in lora_digests.json.

    python lora_digests.py LLAMA_CPP CHECKPOINTS [CASE ...]

makes adapters for each checkpoint in the folder CHECKPOINTS, or for the named ones, and converts
them with LLAMA_CPP's convert_lora_to_gguf.py; a row that it refuses is absent. Runs in the
environment of requirements.txt. `adapter_for` makes the same adapters in tests.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import runpy
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import adapters

RECORD = Path(__file__).with_name("lora_digests.json")
TYPES = ("f32", "f16", "q8_0")  # "auto" fails in its own script
DTYPES = ("<f4", "<f2")
WHOLE = "whole"  # the adapter of all matrices
# Cases whose linear layers are adapted in all types.
OFTEN = ("bert", "bloom", "falcon", "gemma2", "glm4", "gpt-oss", "gpt2", "gptneox", "llama", "mpt",
         "phi2", "qwen2", "qwen3moe", "t5")  # fmt: skip


def adapter_for(checkpoint: Path, folder: Path, dtype: str, *, whole: bool = False) -> Path:
    """Write the adapter for a checkpoint."""
    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(checkpoint.glob("*.safetensors")):
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        shapes |= {name: tuple(e["shape"]) for name, e in header.items() if name[:2] != "__"}
    tensors = adapters.factors(shapes, dtype, whole=whole)
    return adapters.write_adapter(folder / f"{checkpoint.name}-lora", tensors)


def jobs(case: str) -> Iterator[tuple[str, str, str, bool]]:
    """Yield the row of the record, dtype, type, and whether all matrices are adapted."""
    yield WHOLE, DTYPES[0], TYPES[0], True
    pairs = itertools.product(DTYPES, TYPES)
    for dtype, kind in pairs if case in OFTEN else ((DTYPES[0], TYPES[0]), (DTYPES[1], TYPES[2])):
        yield f"{dtype[1:]}-{kind}", dtype, kind, False


def digest(path: Path) -> str:
    """Return the digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def main(llama_cpp: str, checkpoints: str, *names: str) -> None:
    import reference

    forget = reference.prepared(llama_cpp)
    record: dict[str, dict[str, str]] = json.loads(RECORD.read_text()) if names else {}
    for case in names or sorted(path.name for path in Path(checkpoints).glob("[a-z]*")):
        rows: dict[str, str] = {}
        for row, dtype, kind, whole in jobs(case):
            with tempfile.TemporaryDirectory() as place:
                checkpoint = Path(checkpoints) / case
                folder = adapter_for(checkpoint, Path(place), dtype, whole=whole)
                out = Path(place) / "theirs.gguf"
                sys.argv = ["convert_lora_to_gguf.py", str(folder), "--base", str(checkpoint),
                            "--outfile", str(out), "--outtype", kind]  # fmt: skip
                forget()
                try:
                    runpy.run_path(f"{llama_cpp}/convert_lora_to_gguf.py", run_name="__main__")
                except (Exception, SystemExit) as error:
                    print(f"{case}: {row}: {type(error).__name__}: {error}"[:200], flush=True)
                    continue
                rows[row] = digest(out)
        record[case] = rows
    lines = [f"{json.dumps(case)}: {json.dumps(rows)}" for case, rows in sorted(record.items())]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
