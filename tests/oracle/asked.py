"""Answer with llama.cpp's converter, one JSON line for each on stdin.

    python asked.py LLAMA_CPP < REQUESTS

A request is `{"folder", "out", "type", "options"}`; the answer is `{"error"}`, empty if the file
was made. Runs in the environment of requirements.txt.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import reference


def main(llama_cpp: str) -> None:
    convert = reference.converter(llama_cpp)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        paths = Path(request["folder"]), Path(request["out"])
        error = convert(*paths, request["type"], *request["options"])
        print(json.dumps({"error": error[-600:]}), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
