"""Draw the picture of a terminal that the README shows: `tools/draw_terminal.py`.

It runs the commands on SmolLM2 and writes docs/pictures/terminal.svg. Look at it before you commit
it.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import real  # noqa: E402 (of the tests)

PICTURE = ROOT / "docs" / "pictures" / "terminal.svg"
WIDTH = 92
# Each command, and how many lines of its output the picture shows.
COMMANDS = (
    ("inspect model.gguf --no-tensors", 13),
    ("check model.gguf", 4),
    ("estimate model.gguf --context 4k", 6),
    ("plan model.gguf", 8),
    ("quantize model.gguf small.gguf Q8_0 --allow-requantize --quiet", 0),
)


def output(command: str, folder: Path) -> list[str]:
    """Return the lines that a command prints."""
    environment = os.environ | {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    arguments = [sys.executable, "-m", "ggufkit", *command.split()]
    done = subprocess.run(
        arguments, cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    return (done.stdout + done.stderr).splitlines()


def main() -> None:
    """Run the commands, and write the picture."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.gguf").symlink_to(real.smollm2())
        for command, count in COMMANDS:
            lines = output(command, folder)
            console.print(Text.assemble(("$ ", "bold green"), (f"ggufkit {command}", "bold")))
            visible = [*lines[:count], *["…"][: len(lines) > count]]
            console.print(Text("\n".join([*visible, ""])))
    picture = console.export_svg(title="ggufkit", unique_id="terminal")
    picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)  # no request to a server
    PICTURE.write_text("\n".join(line.rstrip() for line in picture.splitlines()) + "\n", "utf-8")
    print(f"{PICTURE}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
