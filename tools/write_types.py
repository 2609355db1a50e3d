"""Write the tables and the chart of docs/types.md: `tools/write_types.py`.

The facts are those of the code, the errors those of benchmarks/results/tensor-types.json.
`pages()` returns the page and the chart as they should be.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from ggufkit import quants
from ggufkit.errors import TensorTypeError
from ggufkit.format.types import DIALECTS, IK, TENSOR_TYPES, TensorType
from ggufkit.quants.codec import can_decode
from ggufkit.quants.search import is_searched

ROOT: Final = Path(__file__).resolve().parents[1]

PAGE: Final = ROOT / "docs" / "types.md"
CHART: Final = ROOT / "docs" / "pictures" / "chart-types.svg"
RESULTS: Final = ROOT / "benchmarks" / "results" / "tensor-types.json"
MARK: Final = "<!-- tools/write_types.py -->\n"
NOT_OF_IK: Final = frozenset({"TQ1_0", "TQ2_0", "NVFP4", "Q2_0"})  # that ik_llama.cpp lacks

HEAD: Final = (
    "| type | number | bits per weight | read by | ggufkit "
    "| error | with `--search best` | encodes | decodes |\n"
    "|---|---|---|---|---|---|---|---|---|\n"
)
LEFT, TOP, WIDE, HIGH = 60.0, 50.0, 660.0, 760.0  # of the chart's plane, in pixels
BITS: Final = (1.0, 9.0)
FACTORS: Final = (1.2, 3.0)
TICKS: Final = (1.5, 2.0, 2.5, 3.0)
TITLE: Final = "How many times the least possible error: plain (ring), and with --search best (dot)"
LINE: Final = 13.0  # pixels from one label to the next

Figures = dict[str, dict[str, float]]


def types() -> Iterator[TensorType]:
    """Yield all types, also those of other programs whose numbers llama.cpp uses otherwise."""
    yield from TENSOR_TYPES.values()
    for rows in DIALECTS.values():
        yield from rows


def can_encode(kind: TensorType) -> bool:
    """Whether ggufkit writes a type."""
    try:
        return quants.encodable(kind) == kind
    except TensorTypeError:
        return False


def readers(kind: TensorType) -> str:
    """Return the names of the programs that read a type."""
    if kind.program or kind.is_opaque:
        return kind.program or "old programs"
    return "llama.cpp" if kind.name in NOT_OF_IK else f"llama.cpp, {IK}"


def abilities(kind: TensorType) -> str:
    """Return what ggufkit does with a type."""
    can_write = can_encode(kind)
    does = {
        "reads": can_decode(kind),
        "writes": can_write,
        "searches": can_write and is_searched(kind),
    }
    return ", ".join(name for name, can in does.items() if can) or "copies"


def row(kind: TensorType, figures: dict[str, float]) -> str:
    """Return the row of a type."""
    bits = f"{kind.bits_per_weight:.4g}" if kind.bits_per_weight else ""
    if kind.row_prefix:
        bits += f", and {kind.row_prefix} bytes a row"
    numbers = [f"{100 * figures[key]:.2f} %" if key in figures else "" for key in ("plain", "best")]
    rates = [
        f"{figures[key]:,.0f}" if key in figures else "" for key in ("plain_rate", "decoding_rate")
    ]
    cells = [f"`{kind}`", str(kind.id), bits, readers(kind), abilities(kind), *numbers, *rates]
    return f"| {' | '.join(cells)} |\n".replace("  |", " |")


def table(kinds: Iterable[TensorType], figures: Figures) -> str:
    """Return the table of some types, from few bits to many."""
    ordered = sorted(kinds, key=lambda kind: (kind.bits_per_weight, kind.name))
    return HEAD + "".join(row(kind, figures.get(kind.name, {})) for kind in ordered)


def tables(figures: Figures) -> str:
    """Return all tables, each below its heading."""
    groups: dict[str, list[TensorType]] = {
        "Types of llama.cpp": [],
        "Types of ik_llama.cpp": [],
        "Types with interleaved rows": [],
        "Types of other programs": [],
        "Removed types": [],
    }
    for kind in types():
        if kind.program == IK:
            is_plain = kind.interleaved == 1
            name = "Types of ik_llama.cpp" if is_plain else "Types with interleaved rows"
        elif kind.program:
            name = "Types of other programs"
        else:
            name = "Removed types" if kind.is_opaque else "Types of llama.cpp"
        groups[name].append(kind)
    parts = (f"## {name}\n\n{table(kinds, figures)}" for name, kinds in groups.items())
    return "\n".join(parts)


def across(bits: float) -> float:
    """Return the x of a number of bits per weight."""
    return LEFT + WIDE * (bits - BITS[0]) / (BITS[1] - BITS[0])


def factor(kind: TensorType, error: float) -> float:
    """Return an error divided by the least that any code of this size has for Gaussian weights."""
    return float(error * 2**kind.bits_per_weight)


def down(factor: float) -> float:
    """Return the y of a factor."""
    low, high = FACTORS
    return TOP + HIGH * (high - factor) / (high - low)


def chart(figures: Figures) -> str:
    """Return the factors of all measured types against their bits per weight, as SVG."""
    points = [(kind, figures[kind.name]) for kind in types() if kind.name in figures]
    drawn = [
        (kind, row)
        for kind, row in points
        if kind.bits_per_weight < BITS[1] and factor(kind, row["plain"]) < FACTORS[1]
    ]
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDE + 70:.0f} '
            f'{TOP + HIGH + 50:.0f}" font-family="sans-serif" font-size="12">'
        ),
        f"<title>{TITLE}</title>",
        f'<rect width="{LEFT + WIDE + 70:.0f}" height="{TOP + HIGH + 50:.0f}" fill="#ffffff"/>',
        f'<text x="12" y="22" font-weight="bold">{TITLE}</text>',
        *_axes(),
    ]
    taken: list[tuple[float, float]] = []
    for kind, errors in sorted(drawn, key=lambda point: -factor(point[0], point[1]["plain"])):
        parts += _point(kind, errors, taken)
    return "\n".join([*parts, "</svg>", ""])


def _axes() -> Iterator[str]:
    bottom, right = TOP + HIGH, LEFT + WIDE
    for bits in range(int(BITS[0]), int(BITS[1]) + 1):
        x = across(bits)
        yield f'<path d="M{x:.0f} {TOP:.0f}V{bottom:.0f}" stroke="#e2e8f0"/>'
        yield f'<text x="{x:.0f}" y="{bottom + 18:.0f}" text-anchor="middle">{bits}</text>'
    for tick in TICKS:
        y = down(tick)
        yield f'<path d="M{LEFT:.0f} {y:.1f}H{right:.0f}" stroke="#e2e8f0"/>'
        yield f'<text x="{LEFT - 8:.0f}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
    x = (LEFT + right) / 2
    yield f'<text x="{x:.0f}" y="{bottom + 38:.0f}" text-anchor="middle">bits per weight</text>'


def _point(
    kind: TensorType, errors: dict[str, float], taken: list[tuple[float, float]]
) -> Iterator[str]:
    """Yield a ring for the plain error, a line down to a dot for the best, and the name."""
    x, y = across(kind.bits_per_weight), down(factor(kind, errors["plain"]))
    colour = "#b45309" if kind.program else "#0f766e"
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#ffffff" stroke="{colour}"/>'
    label = y
    if "best" in errors:
        end = down(factor(kind, errors["best"]))
        yield f'<path d="M{x:.1f} {y:.1f}V{end:.1f}" stroke="{colour}"/>'
        yield f'<circle cx="{x:.1f}" cy="{end:.1f}" r="4" fill="{colour}"/>'
        label = (y + end) / 2
    while any(abs(x - left) < 7 * LINE and abs(label - top) < LINE for left, top in taken):
        label += LINE / 4
    taken.append((x, label))
    yield f'<text x="{x + 8:.1f}" y="{label + 4:.1f}">{kind}</text>'


def pages() -> dict[Path, str]:
    """Return the right content of the page and of its chart."""
    figures: Figures = json.loads(RESULTS.read_text("utf-8"))
    before, _, after = PAGE.read_text("utf-8").split(MARK)
    page = f"{before}{MARK}\n{tables(figures)}\n{MARK}{after}"
    return {PAGE: page, CHART: chart(figures)}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, "utf-8")
