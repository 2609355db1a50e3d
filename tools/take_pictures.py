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
from urllib.parse import quote

from playwright.sync_api import Page, sync_playwright

import ggufkit

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import real  # noqa: E402 (of the tests)

# Name, state of the page, colours, what must be there, width and height.
Picture = tuple[str, str, str, str, int, int]
TEXT = (
    "The quick brown fox \u2013 na\u00efve caf\u00e9, \u0395\u03bb\u03bb\u03ac\u03b4\u03b1, "
    "and code:\n\tfor (int i = 0; i < 10; i++) { }"
)
PICTURES = (
    ("overview", "overview?model=1&colour=deviation", "light", ".layers", 1000, 1330),
    ("overview-dark", "overview?model=0&group=attention", "dark", ".layers", 1000, 700),
    ("overview-narrow", "overview?model=0", "light", ".layers", 390, 1000),
    ("tensors-narrow", "tensors?model=0&open=block+0", "dark", ".tensors a", 390, 1000),
    ("tensors", "tensors?model=0&open=block+0", "light", ".tensors a", 1000, 640),
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
    ("tokenizer", f"tokenizer?model=0&text={quote(TEXT)}", "light", ".token", 1000, 640),
    (
        "memory",
        "memory?model=1&context=32768&cache=Q8_0&devices=0.8,0.8",
        "dark",
        ".curve",
        1000,
        960,
    ),
)
COMPARISONS = (
    ("models", "overview?model=1", "light", ".all-models", 1000, 640),
    (
        "pair",
        "tensor?model=0&t=2&other=2&show=difference&row=3&column=40&z=-6&x=32&y=0",
        "light",
        ".pair td",
        1000,
        1420,
    ),
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


def take_all(models: list[Path], pictures: Sequence[Picture], folder: Path, *results: Path) -> None:
    """Serve models with results of `eval`, and take pictures of them."""
    names = [path.name for path in models]
    command = [sys.executable, "-m", "ggufkit", "view", *names, "--no-browser"]
    command += [word for result in results for word in ("--eval", result.name)]
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
    """Take every picture; those with KLD show a measurement on few tokens."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures"
    folder.mkdir(exist_ok=True)
    base = real.smollm2()
    take_all([base, real.gemma3()], PICTURES, folder)
    with tempfile.TemporaryDirectory() as quants:
        names = ("Q8_0", "Q4_K_M", "Q3_K_M", "Q2_K")
        paths = [Path(quants) / f"smollm2-135m-{name}.gguf" for name in names]
        for name, path in zip(names, paths, strict=True):
            ggufkit.open(base).quantize(name, allow_requantize=True).write(path)
        text = next(real.django().rglob("tutorial01.txt"))
        measure = ("eval", *paths, "--base", base, "--text", text, "--chunks", "4")
        result = Path(quants) / "quality.json"
        subprocess.run([sys.executable, "-m", "ggufkit", *measure, "-o", result], check=True)
        take_all(paths, COMPARISONS, folder, result)


if __name__ == "__main__":
    main()
