"""Compare reading models on a server with huggingface.js's gguf package and huggingface_hub.

    python benchmarks/remote.py [--latency MS] [--rate MB/S] [--peers FOLDER]

A server on this machine answers each request, and each new connection, after the latency, and
sends all bytes together at the rate. FOLDER is where `npm install @huggingface/gguf` was run and
where a virtual environment `venv` has huggingface_hub; without it, only ggufkit is measured.
Each reader runs in a process of its own, and the time to start it is left out.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import numpy as np

import real
from hub_server import HubServer, Repo

QUANTS = 25
SHARDS = 64
LAYER = "blk.10."
REPO = "org/model"

# Each program prints the seconds that its work took.
GGUFKIT = """
import sys, time, concurrent.futures as futures
task, *urls = sys.argv[1:]
import ggufkit, ggufkit.quantization.plan, ggufkit.remote.remote_file
begun = time.perf_counter()
if task == "headers":
    with futures.ThreadPoolExecutor(len(urls)) as pool:
        models = list(pool.map(ggufkit.open, urls))
    assert all(len(model.tensors) for model in models)
elif task == "shards":
    assert len(ggufkit.open(urls[0]).tensors) >= len(urls)
elif task == "layer":
    with ggufkit.open(urls[0]) as model:
        names = [name for name in model.tensors if name.startswith("blk.10.")]
        assert sum(model.tensors[name].numpy().nbytes for name in names)
print(time.perf_counter() - begun)
"""
GGUF_JS = """
import { gguf, ggufAllShards } from "@huggingface/gguf";
const [task, ...urls] = process.argv.slice(2);
const begun = performance.now();
if (task === "headers") await Promise.all(urls.map((url) => gguf(url)));
else if (task === "shards") await ggufAllShards(urls[0]);
console.log((performance.now() - begun) / 1000);
"""
DOWNLOAD = """
import sys, time
from pathlib import Path
from huggingface_hub import hf_hub_download
import gguf
task, name = sys.argv[1:3]
begun = time.perf_counter()
reader = gguf.GGUFReader(hf_hub_download("org/model", name))
held = [t.data.sum() for t in reader.tensors if t.name.startswith("blk.10.")]
print(time.perf_counter() - begun)
"""


def made_shards(folder: Path) -> dict[str, bytes]:
    """Return a set of shards with a real vocabulary."""
    import ggufkit  # noqa: PLC0415 (the server needs it here only)

    with ggufkit.open(real.smollm2()) as model:
        tensors = {f"t{n}": np.zeros(1024, "f4") for n in range(SHARDS)}
        ggufkit.save(folder / "one.gguf", tensors, model.metadata)
    ggufkit.write(ggufkit.open(folder / "one.gguf"), folder / "set.gguf", shard_tensors=1)
    return {path.name: path.read_bytes() for path in sorted(folder.glob("set-*"))}


def serve(latency: float, rate: float, pipe: Any) -> None:  # noqa: ANN401
    """Serve until the other end closes; tell the address, and count requests when asked."""
    content = real.smollm2().read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        files = made_shards(Path(folder))
    files |= {f"m-Q{n}.gguf": content for n in range(QUANTS)}
    with HubServer({REPO: Repo(files)}, latency=latency, rate=rate) as server:
        pipe.send((server.hub.url(""), sorted(files)))
        while pipe.recv():
            seen = [*server.hub.requests, *server.cdn.requests]
            pipe.send((len(seen), sum(request.sent for request in seen)))
            server.hub.forget()
            server.cdn.forget()


@contextmanager
def served(latency: float, rate: float) -> Iterator[tuple[str, list[str], Any]]:
    """Run the server in a process of its own."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(latency, rate, there))
    process.start()
    try:
        yield (*here.recv(), here)
    finally:
        here.send(None)
        process.join()


def seconds(command: list[str], environment: dict[str, str], folder: Path) -> float:
    """Return what a program measured."""
    done = subprocess.run(
        command,
        env=os.environ | environment,
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout.split()[-1])


def readers(peers: Path | None) -> dict[str, Callable[[str, list[str]], list[str]]]:
    """Return the command of each reader that is there, by name."""
    argv: dict[str, Callable[[str, list[str]], list[str]]] = {
        "ggufkit": lambda task, urls: [sys.executable, "-c", GGUFKIT, task, *urls]
    }
    if peers and shutil.which("node"):
        (peers / "read.mjs").write_text(GGUF_JS, encoding="utf-8")
        argv["huggingface.js"] = lambda task, urls: ["node", str(peers / "read.mjs"), task, *urls]
    if peers and (peers / "venv").exists():
        python = str(peers / "venv" / "bin" / "python")
        argv["huggingface_hub"] = lambda task, urls: [
            python,
            "-c",
            DOWNLOAD,
            task,
            urls[0].rpartition("/")[2],
        ]
    return argv


def main() -> None:
    """Measure each task with each reader that can do it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", type=float, default=50, help="milliseconds")
    parser.add_argument("--rate", type=float, default=100, help="MB per second")
    parser.add_argument("--peers", type=Path, help="folder with the peers")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with served(options.latency / 1000, options.rate * 1e6) as (address, names, pipe):
        urls = {name: f"{address}/{REPO}/resolve/main/{name}" for name in names}
        quants = [url for name, url in urls.items() if name.startswith("m-")]
        shards = [url for name, url in urls.items() if name.startswith("set-")]
        tasks = {
            "one header": ("headers", quants[:1], ("ggufkit", "huggingface.js")),
            f"{QUANTS} headers": ("headers", quants, ("ggufkit", "huggingface.js")),
            f"{SHARDS} shards": ("shards", shards, ("ggufkit", "huggingface.js")),
            "one layer": ("layer", quants[:1], ("ggufkit", "huggingface_hub")),
        }
        known = readers(options.peers)
        for title, (task, addresses, able) in tasks.items():
            for name in (reader for reader in able if reader in known):
                best, counts = None, (0, 0)
                for _ in range(options.repeats):
                    with tempfile.TemporaryDirectory() as home:
                        environment = {
                            "HF_ENDPOINT": address,
                            "HF_HOME": home,
                            "HOME": home,
                            "XDG_CACHE_HOME": home,
                            "HF_HUB_DISABLE_XET": "1",
                        }
                        elapsed = seconds(known[name](task, addresses), environment, Path(home))
                    pipe.send("count")
                    counts = pipe.recv()
                    best = elapsed if best is None else min(best, elapsed)
                row = {
                    "task": title,
                    "reader": name,
                    "seconds": round(best or 0, 3),
                    "requests": counts[0],
                    "MB": round(counts[1] / 1e6, 2),
                }
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
