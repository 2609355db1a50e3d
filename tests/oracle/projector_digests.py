"""Record what llama.cpp's converter makes of projectors, as digests in projector_digests.json.

    python projector_digests.py LLAMA_CPP [CASE ...]

converts the named cases of the folder `projectors`, or all, with --mmproj. Runs in the environment
of requirements.txt. With GGUFKIT_KEEP the files stay in the folder that it names.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import tempfile
import traceback
from fnmatch import fnmatchcase
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from departures import PROJECTORS as ROUNDED

import projector_folders

RECORD = Path(__file__).with_name("projector_digests.json")
TYPES = ("auto", "f32", "f16", "q8_0")


def digest(path: Path) -> str:
    """Return the digest of a file, but for numbers that differ between processors."""
    import gguf

    data = bytearray(path.read_bytes())
    kind = next(word for word in (*map(str.encode, ROUNDED), b"") if word in data)
    for tensor in gguf.GGUFReader(path).tensors if kind else ():
        if any(fnmatchcase(tensor.name, pattern) for pattern in ROUNDED[kind.decode()]):
            start = int(tensor.data_offset)
            data[start : start + int(tensor.n_bytes)] = bytes(int(tensor.n_bytes))
    return hashlib.sha256(data).hexdigest()[:16]


def recorded() -> dict[str, dict[str, str]]:
    """Return the digests by case and type."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def main(llama_cpp: str, *names: str) -> None:
    """Convert cases and record the digests."""
    sys.path[:0] = [llama_cpp, f"{llama_cpp}/gguf-py"]
    import convert_hf_to_gguf as converter
    from gguf.tensor_mapping import TensorNameMap

    # The map of an architecture changes that of all others for the rest of the process.
    names_of_tensors = dict(TensorNameMap.block_mappings_cfg)
    logging.disable(logging.WARNING)
    cases = projector_folders.cases()
    record = {case: digests for case, digests in recorded().items() if names and case in cases}
    for case in names or cases:
        with tempfile.TemporaryDirectory() as temporary:
            place = Path(os.environ.get("GGUFKIT_KEEP", temporary))
            folder = projector_folders.make(cases[case], place / case)
            record[case] = {}
            for kind in TYPES:
                out = place / f"{case}-{kind}.gguf"
                sys.argv = ["convert_hf_to_gguf.py", str(folder), "--mmproj",
                            "--outfile", str(out), "--outtype", kind]  # fmt: skip
                TensorNameMap.block_mappings_cfg = dict(names_of_tensors)
                try:
                    converter.main()
                except (Exception, SystemExit):
                    print(f"{case}: {traceback.format_exc(limit=-3)}", file=sys.stderr)
                    break
                record[case][kind] = digest(out)
    lines = [f"{json.dumps(case)}: {json.dumps(record[case])}" for case in sorted(record)]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
