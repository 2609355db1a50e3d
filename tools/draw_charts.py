"""Draw the charts of docs/results.md from the tables in benchmarks/results: `tools/draw_charts.py`.

`charts()` returns the pictures as they should be.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "benchmarks" / "results"
PICTURES: Final = ROOT / "docs" / "pictures"
WIDTH: Final = 760
LABELS: Final = 190  # pixels on the left
BAR: Final = 16
COLOURS: Final = ("#0f766e", "#94a3b8")  # ggufkit, and what it is compared with


class Row(NamedTuple):
    """A label, and the length and the text of each of its bars."""

    label: str
    bars: Sequence[tuple[float, str]]


def table(page: str, heading: str, columns: str) -> list[list[str]]:
    """Return the cells of the first table below a heading whose columns begin like this."""
    text = (RESULTS / page).read_text("utf-8").split(f"\n## {heading}\n")[1]
    rows = text.split(f"\n{columns}")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def number(cell: str) -> float:
    """Return the number in a cell."""
    return float(re.findall(r"-?[\d.]+", cell)[0])


def chart(title: str, legend: Sequence[str], rows: Sequence[Row]) -> str:
    """Return a bar chart as SVG."""
    longest = max(length for row in rows for length, _ in row.bars)
    scale = (WIDTH - LABELS - 90) / longest
    pitch = BAR * len(rows[0].bars) + 12
    height = 64 + pitch * len(rows)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            'font-family="sans-serif" font-size="13">'
        ),
        f"<title>{title}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="22" font-weight="bold">{title}</text>',
    ]
    for index, name in enumerate(legend):
        x = LABELS + 150 * index
        parts += [
            f'<rect x="{x}" y="34" width="12" height="12" fill="{COLOURS[index]}"/>',
            f'<text x="{x + 18}" y="45">{name}</text>',
        ]
    for place, row in enumerate(rows):
        top = 60 + pitch * place
        middle = top + pitch // 2 - 2
        parts.append(f'<text x="{LABELS - 8}" y="{middle}" text-anchor="end">{row.label}</text>')
        for index, (length, text) in enumerate(row.bars):
            y, width = top + BAR * index, max(length * scale, 1)
            parts += [
                (
                    f'<rect x="{LABELS}" y="{y}" width="{width:.1f}" height="{BAR - 2}" '
                    f'fill="{COLOURS[index]}"/>'
                ),
                f'<text x="{LABELS + width + 6:.1f}" y="{y + 12}">{text}</text>',
            ]
    return "\n".join([*parts, "</svg>", ""])


def charts() -> dict[Path, str]:
    """Return the text of each chart by its path."""
    speed = table("speed.md", "Quantize", "| recipe |")
    jobs = [
        Row(name.split(",")[0], [(number(own), own), (number(other), other)])
        for name, other, own, *_ in speed
    ]
    hessian = table("quality.md", "Errors fed back", "| type | search | models |")
    gains = [Row(cells[0], [(-number(cells[-1]), cells[-1])]) for cells in hessian]
    return {
        PICTURES / "chart-speed.svg": chart(
            "Seconds to quantize a model of 1.2 GiB on two cores", ("ggufkit", "llama.cpp"), jobs
        ),
        PICTURES / "chart-hessian.svg": chart(
            "Divergence with a Hessian, compared with llama-quantize", ("mean over models",), gains
        ),
    }


if __name__ == "__main__":
    for path, text in charts().items():
        path.write_text(text, "utf-8")
