"""Compare ggufkit with llama.cpp's converter on spelled checkpoints, and record what it makes.

    python spelling_digests.py FOLDER FIRST END     tries seeds of all cases, and prints differences
    python spelling_digests.py FOLDER record        records the cases of spelling_digests.json again

FOLDER holds `checkpoints` and the environment `venv`, as `make test-oracle` makes them. A row of
the record has the digests of the converter's file. A row that departs names the row of
departures.json, and either the `keys` that differ (none if only bytes of tensors do) or why ggufkit
refuses (`refused`). The digests `file` leave out the keys that differ, `whole` does not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import digests
import spellings

RECORD: Final = Path(__file__).with_name("spelling_digests.json")
PRE_TOKENIZER: Final = "gpt-2"
MANY: Final = 500  # requests to one process of the converter, which grows


class Converter:
    """llama.cpp's converter in a process of the environment of requirements.txt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests = 0
        self.process: subprocess.Popen[str] | None = None

    def convert(self, checkpoint: Path, out: Path) -> str:
        """Convert a checkpoint to a file; return the error, empty if there is none."""
        if self.requests % MANY == 0:
            self._start()
        self.requests += 1
        overrides = checkpoint / spellings.OVERRIDES
        request = {"folder": str(checkpoint), "out": str(out), "type": "auto"}
        request["metadata"] = str(overrides) if overrides.exists() else ""
        process = self.process
        assert process
        assert process.stdin
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        assert process.stdout
        return str(json.loads(process.stdout.readline())["error"])

    def _start(self) -> None:
        import real

        if self.process:
            self.process.kill()
        program = Path(__file__).with_name("asked.py")
        self.process = subprocess.Popen(
            [self.folder / "venv" / "bin" / "python", program, real.llama_cpp_source()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": ""},
        )


def converted(checkpoint: Path, out: Path, *, exactly: bool = False) -> str:
    """Convert a checkpoint with ggufkit; return the error, empty if there is none."""
    import ggufkit
    from ggufkit.errors import GGUFError

    path = checkpoint / spellings.OVERRIDES
    chosen = {"overrides": json.loads(path.read_text("utf-8")) if path.exists() else None}
    try:
        with ggufkit.convert(checkpoint, pre=PRE_TOKENIZER, exactly=exactly, **chosen) as model:
            ggufkit.write(model, out)
    except GGUFError as error:
        return str(error)
    return ""


def differences(ours: Path, theirs: Path) -> Iterator[str]:
    """Yield the keys and tensors that differ between two files."""
    import ggufkit
    from ggufkit.format.coerce import plain

    with ggufkit.open(ours) as a, ggufkit.open(theirs) as b:
        for key in {**a.metadata, **b.metadata}:
            pair = [plain(m.metadata[key]) if key in m.metadata else None for m in (a, b)]
            if repr(pair[0]) != repr(pair[1]):
                yield f"{key}: {str(pair[0])[:60]} | {str(pair[1])[:60]}"
        for name in {**a.tensors, **b.tensors}:
            if name not in a.tensors or name not in b.tensors:
                yield f"only one has {name}"
            elif a.tensors[name].raw().tobytes() != b.tensors[name].raw().tobytes():
                yield f"bytes of {name}"
        if list(a.metadata) != list(b.metadata) or list(a.tensors) != list(b.tensors):
            yield "order"


def verdict(converter: Converter, case: str, seed: int, place: Path) -> str:
    """Return "same", or how ggufkit and the converter differ on a checkpoint."""
    import llama_loads

    names = spellings.write_spelled(converter.folder / "checkpoints", case, str(seed), place)
    ours, theirs = place / "ours.gguf", place / "theirs.gguf"
    wrong = converted(place / case, ours)
    if converter.convert(place / case, theirs):
        return "both refuse" if wrong else "only ggufkit converts"
    if not wrong and digests.of_file(ours, case) == digests.of_file(theirs, case):
        return "same"
    if refused := llama_loads.refusals([theirs]):
        return f"llama.cpp does not load the converter's: {refused[theirs]}"
    return f"{names}: {wrong or '; '.join(differences(ours, theirs))}"


def main(folder: str, *seeds: str) -> None:
    place = Path(folder)
    converter = Converter(place)
    with tempfile.TemporaryDirectory() as temporary:
        if seeds == ("record",):
            _record(converter, Path(temporary))
            return
        checkpoints = sorted(path.parent.name for path in place.glob("checkpoints/*/config.json"))
        for seed in range(*map(int, seeds)):
            for case in checkpoints:
                outcome = verdict(converter, case, seed, Path(temporary))
                if outcome != "same":
                    print(f"{case} {seed}: {outcome}", flush=True)


def _record(converter: Converter, place: Path) -> None:
    record: dict[str, dict[str, Any]] = json.loads(RECORD.read_text())
    for name, row in record.items():
        case, _, seed = name.rpartition(" ")
        spellings.write_spelled(converter.folder / "checkpoints", case, seed, place)
        error = converter.convert(place / case, place / "theirs.gguf")
        assert not error, f"{name}: {error}"
        row["file"] = digests.of_file(place / "theirs.gguf", case, row.get("keys", ()))
        if "departs" in row:
            row["whole"] = digests.of_file(place / "theirs.gguf")
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(record.items())]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
    main(*sys.argv[1:])
