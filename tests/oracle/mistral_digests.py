"""Record what llama.cpp's converter makes with --mistral-format, in mistral_digests.json.

    python mistral_digests.py LLAMA_CPP [CASE ...]

converts the named cases of tests/support/mistral_folders.py, or all. Runs in the environment of
requirements-mistral.txt. With GGUFKIT_KEEP the files stay in the folder that it names.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import mistral_folders

RECORD = Path(__file__).with_name("mistral_digests.json")
TYPES = ("auto", "f32", "q8_0")
PROJECTOR = "mmproj"
NO_TEMPLATE = "no template"  # instead of the name of one that llama.cpp has built in
NAMED = ("spm-v3", "tekken-v7")  # cases that have such a name
UNNAMED = "--disable-mistral-community-chat-template"
# The converter's templates for these versions are not in ggufkit.
UNTEMPLATED = ("v11", "v13")


def digest(path: Path) -> str:
    """Return the digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def recorded() -> dict[str, dict[str, str]]:
    """Return the digests by case and type."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def main(llama_cpp: str, *names: str) -> None:
    """Convert cases and record the digests."""
    sys.path[:0] = [llama_cpp, f"{llama_cpp}/gguf-py"]
    import convert_hf_to_gguf as converter

    logging.disable(logging.WARNING)
    cases = mistral_folders.cases()
    record = {case: digests for case, digests in recorded().items() if names and case in cases}
    for case in names or cases:
        with tempfile.TemporaryDirectory() as temporary:
            place = Path(os.environ.get("GGUFKIT_KEEP", temporary))
            folder = mistral_folders.make(cases[case], place / case)
            params = cases[case].get("params", {})
            if "moe" in params:  # the converter opens this file, and uses nothing
                (folder / "config.json").write_text('{"architectures": [null]}')
            record[case] = {}
            has_projector = "vision_encoder" in params
            more = [PROJECTOR] * has_projector + [NO_TEMPLATE] * (case in NAMED)
            for kind in (*TYPES, *more):
                out = place / f"{case}-{kind}.gguf"
                options = {PROJECTOR: ["--mmproj"], NO_TEMPLATE: [UNNAMED]}.get(
                    kind, ["--outtype", kind]
                )
                if params:
                    options += ["--mistral-format"]
                if cases[case].get("tekken") in UNTEMPLATED:
                    options += [UNNAMED]
                sys.argv = ["convert_hf_to_gguf.py", str(folder), "--outfile", str(out), *options]
                converter.main()
                record[case][kind] = digest(out)
    lines = [f"{json.dumps(case)}: {json.dumps(record[case])}" for case in sorted(record)]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
