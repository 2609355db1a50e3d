"""Draws where bytes are, the types of layers, quality against size, and sensitivities, as SVG."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from xml.etree.ElementTree import Element, tostring

from ggufkit.evaluation.quality_rows import QualityRow
from ggufkit.quantization.losses.sensitivities import Sensitivity
from ggufkit.reports.elements import element

_BITS: Final = (1, 2, 3, 4, 5, 6, 8, 16, 32)  # the classes of colours in report.css
_LABEL: Final = 90.0  # units of the grid for names of roles
_CELL: Final = 12.0
_FEWEST_UNITS: Final = 14.0  # of a rectangle with a label
_CHART: Final = (640.0, 300.0)
_MARGIN: Final = (70.0, 30.0, 50.0, 20.0)  # left, right, bottom, top
_TICKS: Final = 4
_LINE: Final = 14.0  # units from one label to the next
_STYLE: Final = (
    "text{font:12px sans-serif;fill:#1c1d22}circle,rect{fill:#4653c9}"
    ".axis{fill:none;stroke:#5b5e6b}"
)


def svg_file(drawing: Element) -> str:
    """Return the text of an SVG file with a drawing: a chart or bars."""
    drawing.set("xmlns", "http://www.w3.org/2000/svg")
    return tostring(drawing, "unicode").replace("><", f"><style>{_STYLE}</style><", 1) + "\n"


def sensitivity_drawing(sensitivity: Sensitivity) -> Element:
    """Return a bar for each level of each group: the mean KLD, and a line for its error."""
    levels = [(group.name, level) for group in sensitivity.groups for level in group.levels]
    most = max((level.divergence + level.standard_error for _, level in levels), default=0) or 1
    title = element("title", "Mean KLD with the tensors of one group quantized")
    size = f"0 0 {_CHART[0]:.0f} {_LINE * (len(levels) + 1):.0f}"
    svg = element("svg", title, viewBox=size, class_="chart", role="img")
    left, unit = _CHART[0] * 0.4, _CHART[0] * 0.4 / most
    for row, (name, level) in enumerate(levels):
        y, end = _LINE * (row + 1), left + unit * level.divergence
        reach = unit * level.standard_error
        svg.append(element("text", f"{name} {level.type}", x=f"{left - 6}", y=f"{y}",
                           text_anchor="end"))  # fmt: skip
        svg.append(element("rect", x=f"{left}", y=f"{y - 10}", width=f"{end - left:.2f}",
                           height="10"))  # fmt: skip
        line = f"M{end - reach:.2f} {y - 5}H{end + reach:.2f}"
        svg.append(element("path", d=line, class_="axis"))
        figure = f"{level.divergence:.6f}"
        svg.append(element("text", figure, x=f"{end + reach + 6:.2f}", y=f"{y}"))
    return svg


def bits_class(bits: float) -> str:
    """Return the class of a colour for a number of bits per weight."""
    return f"b{min(_BITS, key=lambda shade: abs(shade - bits))}"


def treemap_drawing(drawn: dict[str, Any]) -> Element:
    """Return the treemap: a rectangle for each tensor, coloured by bits per weight."""
    size = f"0 0 {drawn['width']} {drawn['height']}"
    svg = element("svg", viewBox=size, class_="map", role="img")
    svg.append(element("title", "Where the bytes are: areas are shares of all bytes"))
    for group in drawn["groups"]:
        svg.extend(_rectangle(group["name"], cell) for cell in group["cells"])
    for group in drawn["groups"]:
        x, top, width, height = group["place"]
        if width >= _FEWEST_UNITS and height >= _FEWEST_UNITS / 2:
            svg.append(element("text", group["name"], x=f"{x + 1.5:.2f}", y=f"{top + 4.5:.2f}"))
    return svg


def _rectangle(group: str, cell: dict[str, Any]) -> Element:
    x, top, width, height = cell["place"]
    what = cell.get("name") or f"{cell['count']} small tensors"
    kind = f" ({cell['type']})" if "type" in cell else ""
    return element(
        "rect",
        element("title", f"{group}: {what}{kind}, {cell['nbytes'] / 1e6:,.3f} MB"),
        x=f"{x:.3f}",
        y=f"{top:.3f}",
        width=f"{width:.3f}",
        height=f"{height:.3f}",
        class_=bits_class(cell["bits"]) if "bits" in cell else "rest",
    )


def grid_drawing(drawn: dict[str, Any]) -> Element:
    """Return the grid of layers by role, coloured by the bits of each tensor's type."""
    roles, layers, types = drawn["roles"], drawn["layers"], drawn["types"]
    width = _LABEL + _CELL * len(layers)
    svg = element(
        "svg",
        element("title", "The type of each tensor, by layer and role"),
        viewBox=f"0 0 {width:.0f} {_CELL * (len(roles) + 1):.0f}",
        width=f"{width * 1.4:.0f}",
        class_="grid",
        role="img",
    )
    for index, role in enumerate(roles):
        svg.append(element("text", role, x=f"{_LABEL - 3}", y=f"{_CELL * (index + 1.75):.1f}",
                            text_anchor="end"))  # fmt: skip
    for index in range(0, len(layers), 5):
        x = f"{_LABEL + _CELL * (index + 0.5):.1f}"
        svg.append(element("text", str(layers[index]), x=x, y="9", text_anchor="middle"))
    for role, layer, _, kind in drawn["cells"]:
        svg.append(_grid_cell(roles[role], layers[layer], role, layer, types[kind]))
    return svg


def _grid_cell(role: str, number: int, down: int, along: int, kind: dict[str, Any]) -> Element:
    return element(
        "rect",
        element("title", f"layer {number}, {role}: {kind['name']}"),
        x=f"{_LABEL + _CELL * along + 0.5}",
        y=f"{_CELL * (down + 1) + 0.5}",
        width=f"{_CELL - 1}",
        height=f"{_CELL - 1}",
        class_=bits_class(kind["bits"]),
    )


def quality_drawing(qualities: Sequence[QualityRow]) -> Element | None:
    """Return the chart of divergence, else perplexity, against size; None for too few points."""
    points = [(model, model.divergence) for model in qualities if model.divergence is not None]
    label = "mean KLD"
    if not points:
        points = [(model, model.perplexity) for model in qualities if model.perplexity is not None]
        label = "perplexity"
    placed = [(model, value) for model, value in points if value is not None]
    if len(placed) < 2:  # noqa: PLR2004 (a line needs two points)
        return None
    across = _Axis.of([model.nbytes / 1e6 for model, _ in placed])
    up = _Axis.of([value for _, value in placed])
    svg = element("svg", viewBox=f"0 0 {_CHART[0]} {_CHART[1]}", class_="chart", role="img")
    svg.append(element("title", f"{label} against size"))
    svg.extend(_axes(label, across, up))
    taken: list[tuple[float, float]] = []
    for quality, value in sorted(placed, key=lambda row: -row[1]):
        x, y = _place(across.share(quality.nbytes / 1e6), up.share(value))
        svg.append(element("circle", element("title", f"{quality.name}: {value:.6g}"),
                            cx=f"{x:.1f}", cy=f"{y:.1f}", r="5"))  # fmt: skip
        below = y - 6
        while any(
            abs(x - left) < _CHART[0] / 3 and abs(below - top) < _LINE for left, top in taken
        ):
            below += _LINE
        taken.append((x, below))
        is_right = x > _CHART[0] / 2
        svg.append(element("text", quality.name.rsplit("/", 1)[-1],
                            x=f"{x - 8 if is_right else x + 8:.1f}", y=f"{below:.1f}",
                            text_anchor="end" if is_right else "start"))  # fmt: skip
    return svg


class _Axis(NamedTuple):
    """Two round numbers around all values, and the round step between ticks."""

    low: float
    high: float
    step: float

    @classmethod
    def of(cls, values: Sequence[float]) -> _Axis:
        least, most = min(values), max(values)
        span = (most - least) or abs(most)
        if not sys.float_info.min * _TICKS < span < sys.float_info.max:  # 10 to no power is near
            return cls(least, least + 1, 1.0)
        power = 10.0 ** math.floor(math.log10(span / _TICKS))
        step = next(power * n for n in (1, 2, 2.5, 5, 10) if power * n * _TICKS >= span)
        low = math.floor(least / step) * step
        return cls(low, low + step * max(math.ceil((most - low) / step), 1), step)

    def share(self, value: float) -> float:
        """Return the place of a value, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Return the numbers to write."""
        return [
            self.low + n * self.step for n in range(round((self.high - self.low) / self.step) + 1)
        ]


def _place(along: float, up: float) -> tuple[float, float]:
    x0, right, bottom, top = _MARGIN
    width, height = _CHART[0] - x0 - right, _CHART[1] - bottom - top
    return x0 + along * width, top + (1 - up) * height


def _axes(label: str, across: _Axis, up: _Axis) -> list[Element]:
    (x0, bottom), (end, above) = _place(0, 0), _place(1, 1)
    axes = [element("path", d=f"M{x0} {above}V{bottom}H{end}", class_="axis")]
    for tick in across.ticks():
        x, _ = _place(across.share(tick), 0)
        axes.append(element("text", f"{tick:,.6g} MB", x=f"{x:.1f}", y=f"{bottom + 18}",
                            text_anchor="middle"))  # fmt: skip
    for tick in up.ticks():
        _, y = _place(0, up.share(tick))
        axes.append(element("text", f"{tick:.4g}", x=f"{x0 - 8}", y=f"{y + 4:.1f}",
                            text_anchor="end"))  # fmt: skip
    axes.append(element("text", label, x=f"{x0}", y=f"{above - 6}"))
    return axes
