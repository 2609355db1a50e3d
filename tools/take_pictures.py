"""Take the pictures of docs/view.md: `ggufkit view` of a real model, in Chromium.

    python tools/take_pictures.py [FOLDER]

Run it in the environment of `make test-browser`, and look at the pictures before you commit them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

import ggufkit

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import real  # noqa: E402 (of the tests)

# Name, state of the page, colours, what must be there, width and height.
Picture = tuple[str, str, str, str, int, int]
PICTURES = (
    ("overview", "overview?model=1&colour=deviation", "light", ".layers", 1000, 1330),
    ("overview-dark", "overview?model=0&group=attention", "dark", ".layers", 1000, 700),
    ("overview-narrow", "overview?model=0", "light", ".layers", 390, 1000),
    ("tensors-narrow", "tensors?model=0", "dark", ".tensors", 390, 1000),
    ("tensors", "tensors?model=0&q=blk.0.", "light", ".tensors", 1000, 560),
    ("metadata", "metadata?model=0", "light", ".keys-list", 1000, 560),
    (
        "tensor",
        "tensor?model=1&t=2&row=3&column=40&z=-6&x=32&y=0",
        "light",
        "[aria-live] td",
        1000,
        800,
    ),
    ("template", "template?model=0", "dark", ".prompt", 1000, 640),
    ("tokenizer", "tokenizer?model=0", "light", ".token", 1000, 640),
    (
        "memory",
        "memory?model=1&context=32768&cache=Q8_0&devices=0.75,0.75",
        "dark",
        ".curve",
        1000,
        960,
    ),
)
COMPARISONS = (
    ("compare", "compare?model=0", "light", "text=All errors are measured", 1000, 640),
    ("compare-narrow", "compare?model=0", "dark", "text=All errors are measured", 390, 1000),
)


def take(page: Page, url: str, picture: Picture, folder: Path) -> None:
    """Take one picture."""
    name, state, scheme, selector, width, height = picture
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto("about:blank")
    page.goto(f"{url}#{state}")
    page.wait_for_selector(selector, timeout=120_000)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1000)
    path = folder / f"view-{name}.png"
    page.screenshot(path=path)
    print(f"{path}: {path.stat().st_size:,} bytes")


def take_all(models: list[Path], pictures: Sequence[Picture], folder: Path) -> None:
    """Serve models, and take pictures of them."""
    names = [path.name for path in models]
    command = [sys.executable, "-m", "ggufkit", "view", *names, "--no-browser"]
    with (
        subprocess.Popen(
            command, cwd=models[0].parent, stdout=subprocess.PIPE, text=True
        ) as served,
        sync_playwright() as playwright,
    ):
        url = served.stdout.readline().strip() if served.stdout else ""
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page()
        for picture in pictures:
            take(page, url, picture, folder)
        browser.close()
        served.terminate()


def main() -> None:
    """Take every picture."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures"
    folder.mkdir(exist_ok=True)
    base = real.smollm2()
    take_all([base, real.gemma3()], PICTURES, folder)
    with tempfile.TemporaryDirectory() as quants:
        names = ("Q8_0", "Q4_K_M", "Q3_K_M", "Q2_K")
        paths = [Path(quants) / f"smollm2-135m-{name}.gguf" for name in names]
        for name, path in zip(names, paths, strict=True):
            ggufkit.open(base).quantize(name, allow_requantize=True).write(path)
        take_all(paths, COMPARISONS, folder)


if __name__ == "__main__":
    main()
