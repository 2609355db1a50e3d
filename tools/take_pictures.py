"""Take the pictures of docs/view.md: `ggufkit view` of a real model, in Chromium.

    python tools/take_pictures.py [FOLDER]

Run it in the environment of `make test-browser`, and look at the pictures before you commit them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import real  # noqa: E402 (of the tests)

# Name, state of the page, colours, what must be there, width and height.
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
        ".big",
        1000,
        560,
    ),
)


def take(page: Page, url: str, picture: tuple[str, str, str, str, int, int], folder: Path) -> None:
    """Take one picture."""
    name, state, scheme, selector, width, height = picture
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto("about:blank")
    page.goto(f"{url}#{state}")
    page.wait_for_selector(selector)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1000)
    path = folder / f"view-{name}.png"
    page.screenshot(path=path)
    print(f"{path}: {path.stat().st_size:,} bytes")


def main() -> None:
    """Serve the models, and take every picture."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures"
    folder.mkdir(exist_ok=True)
    models = [path.name for path in (real.smollm2(), real.gemma3())]
    command = [sys.executable, "-m", "ggufkit", "view", *models, "--no-browser"]
    with (
        subprocess.Popen(command, cwd=real.CACHE, stdout=subprocess.PIPE, text=True) as served,
        sync_playwright() as playwright,
    ):
        url = served.stdout.readline().strip() if served.stdout else ""
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page()
        for picture in PICTURES:
            take(page, url, picture, folder)
        browser.close()
        served.terminate()


if __name__ == "__main__":
    main()
