"""Answer with llama.cpp's converter, one JSON line for each on stdin.

    python asked.py LLAMA_CPP < REQUESTS

A request is `{"folder", "out", "type", "metadata"}`; the answer is `{"error"}`, empty if the file
was made. Runs in the environment of requirements.txt.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import reference


def main(llama_cpp: str) -> None:
    convert = reference.converter(llama_cpp)
    import convert_hf_to_gguf as converter

    parse = converter.parse_args
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        paths = Path(request["folder"]), Path(request["out"])
        converter.parse_args = partial(with_metadata, parse, request["metadata"])
        error = convert(*paths, request["type"])
        print(json.dumps({"error": error[-600:]}), file=answers, flush=True)


def with_metadata(parse: Callable[[], Any], path: str) -> Any:
    """Return the arguments of the command line with a file for `--metadata`, unless it is ""."""
    arguments = parse()
    arguments.metadata = Path(path) if path else None
    return arguments


if __name__ == "__main__":
    main(*sys.argv[1:])
