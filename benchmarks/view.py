"""Measure `ggufkit view`: time to the first picture, and time for a tile of a picture.

    python benchmarks/view.py [--repeats N]

The first picture is what the page asks for when it opens: from the start of the command until the
facts, the map of the bytes and the layer grid are there. The set has 500 shards and 1 TB, as sparse
files. Tiles are those of each level of a matrix of 16,384 x 16,384, whose pages are in memory.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import ggufkit
import real
import shapes
from ggufkit.format.types import tensor_type
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.output.layout import layout
from ggufkit.view.picture import TILE, TilePlace, picture_facts, tile
from ranged_server import Served

SHARDS = 500
WIDE = 16_384
ROUTES = ("", "api/models", "api/overview", "api/treemap", "api/layers")


def sparse_set(folder: Path) -> Path:
    """Write a set of 500 shards with two tensors of 1 GB in each."""
    shape = (32_768, 16_384)
    names = [f"blk.{n // 8}.part{n % 8}.weight" for n in range(2 * SHARDS)]
    kind = tensor_type("F16")
    tensors = Tensors(Tensor.over(name, kind, shape, shapes.Hole()) for name in names)
    model = Model(ggufkit.Metadata({"general.architecture": "llama"}), tensors)
    files = layout(model, "huge.gguf", shard_tensors=2).files
    for plan in files:
        with (folder / plan.name).open("wb") as file:
            file.write(plan.head)
            file.truncate(plan.nbytes)
    return folder / files[0].name


def first_picture(path: str) -> float:
    """Return seconds from the start of the command until the first view has its data."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "ggufkit", "view", path, "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip() if process.stdout else ""
        for route in ROUTES:
            with urllib.request.urlopen(url + route) as answer:  # noqa: S310 (our own server)
                answer.read()
        took = time.perf_counter() - start
        process.terminate()
    return took


def tile_seconds(kind: str, repeats: int) -> list[float]:
    """Return the seconds of tiles of each level."""
    values = np.random.default_rng(1).standard_normal((64, WIDE)).astype(np.float32)
    packed = np.tile(ggufkit.quants.quantize(values, kind), (WIDE // 64, 1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        rows = ((WIDE, WIDE), kind, lambda start, stop: packed[start:stop])
        ggufkit.model({"a": rows}).write(path)
        with ggufkit.open(path) as model:
            tensor = model["a"]
            seconds = []
            for level in range(picture_facts(tensor)["levels"]):
                place = TilePlace(level, 0, 0)
                tile(tensor, place)
                for _ in range(repeats):
                    start = time.perf_counter()
                    tile(tensor, place)
                    seconds.append(time.perf_counter() - start)
            return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        huge = sparse_set(Path(folder))
        path = real.gemma3()
        with Served({"/m.gguf": path.read_bytes()}, latency=0.03) as served:
            for name, place in (
                ("Gemma 3", str(path)),
                ("500 shards, 1 TB", str(huge)),
                ("Gemma 3 on a server, 30 ms away", served.url("/m.gguf")),
            ):
                took = statistics.median(first_picture(place) for _ in range(repeats))
                print(f"first picture, {name:34} {took:6.2f} s")
    for kind in ("F32", "F16", "Q8_0", "Q4_K", "Q6_K", "IQ4_XS"):
        milliseconds = [1000 * seconds for seconds in tile_seconds(kind, repeats)]
        print(
            f"tile of {TILE} x {TILE}, {kind:8} median {statistics.median(milliseconds):6.1f} ms, "
            f"slowest {max(milliseconds):6.1f} ms"
        )


if __name__ == "__main__":
    main()
