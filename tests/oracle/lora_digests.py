"""Record what llama.cpp makes of adapters, as digests in lora_digests.json.

    python lora_digests.py LLAMA_CPP CHECKPOINTS

makes an adapter for each checkpoint in the folder CHECKPOINTS, and converts it with LLAMA_CPP's
convert_lora_to_gguf.py. Runs in the environment of requirements.txt. `adapter_for` makes the same
adapter in tests.
"""

from __future__ import annotations

import hashlib
import json
import logging
import runpy
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import adapters

RECORD = Path(__file__).with_name("lora_digests.json")
TYPES = ("f32", "f16", "q8_0")  # "auto" fails in its own script
DTYPES = ("<f4", "<f2")


def adapter_for(checkpoint: Path, folder: Path, dtype: str) -> Path:
    """Write the adapter for a checkpoint."""
    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(checkpoint.glob("*.safetensors")):
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        shapes |= {name: tuple(e["shape"]) for name, e in header.items() if name[:2] != "__"}
    arrays = adapters.factors(shapes, dtype)
    return adapters.write_adapter(folder / f"{checkpoint.name}-lora", arrays)


def digest(path: Path) -> str:
    """Return the digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def main(llama_cpp: str, checkpoints: str) -> None:
    sys.path.insert(0, llama_cpp)
    logging.disable(logging.WARNING)
    record: dict[str, dict[str, str]] = {}
    for checkpoint in sorted(Path(checkpoints).glob("[a-z]*")):
        for dtype in DTYPES:
            with tempfile.TemporaryDirectory() as place:
                folder = adapter_for(checkpoint, Path(place), dtype)
                for kind in TYPES:
                    out = Path(place) / f"{kind}.gguf"
                    sys.argv = ["convert_lora_to_gguf.py", str(folder), "--base", str(checkpoint),
                                "--outfile", str(out), "--outtype", kind]  # fmt: skip
                    try:
                        runpy.run_path(f"{llama_cpp}/convert_lora_to_gguf.py", run_name="__main__")
                    except (Exception, SystemExit) as error:
                        print(f"{checkpoint.name}: {type(error).__name__}: {error}"[:200])
                        continue
                    record.setdefault(checkpoint.name, {})[f"{dtype[1:]}-{kind}"] = digest(out)
    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
