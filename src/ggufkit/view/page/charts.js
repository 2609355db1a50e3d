// Charts as SVG, each with its numbers as text for those who do not see it.

import { h, svg, table } from "./dom.js";
import { bytes, percent, real, whole } from "./format.js";

/** Bars of counts between edges, or for single values. */
export function histogram(label, edges, counts) {
  const width = 480;
  const height = 110;
  const most = Math.max(...counts, 1);
  const step = width / Math.max(counts.length, 1);
  const linear = (count) => count / most;
  const logarithmic = (count) => Math.log1p(count) / Math.log1p(most);
  const tallOf = (count, scaled) => (count ? Math.max(height * scaled(count), 1) : 0);
  const bars = counts.map((count, index) => {
    const tall = tallOf(count, linear);
    const to = edges.length > counts.length ? ` to ${real(edges[index + 1])}` : "";
    return svg("rect", { x: index * step, y: height - tall, width: Math.max(step - (step > 4 ? 1 : 0), 0.5), height: tall, class: "bar" },
      svg("title", null, `${real(edges[index])}${to}: ${whole(count)}`));
  });
  const toggle = h("label", { class: "log" }, h("input", { type: "checkbox", onchange: (event) => counts.forEach((count, index) => {
    const tall = tallOf(count, event.target.checked ? logarithmic : linear);
    bars[index].setAttribute("y", height - tall);
    bars[index].setAttribute("height", tall);
  }) }), " log axis");
  const zero = edges[0] < 0 && edges[edges.length - 1] > 0
    ? (width * (0 - edges[0])) / (edges[edges.length - 1] - edges[0]) : null;
  const rows = counts.map((count, index) => [edges.length > counts.length ? `${real(edges[index])} to ${real(edges[index + 1])}` : real(edges[index]), whole(count)]);
  return h("figure", { class: "chart" },
    h("figcaption", null, label, toggle),
    svg("svg", { viewBox: `0 0 ${width} ${height + 1}`, role: "img", "aria-label": `${label}: ${counts.length} bars, from ${real(edges[0])} to ${real(edges[edges.length - 1])}`, preserveAspectRatio: "none" },
      zero !== null && edges.length > counts.length && svg("line", { x1: zero, x2: zero, y1: 0, y2: height, class: "zero" }), bars,
      svg("line", { x1: 0, x2: width, y1: height + 0.5, y2: height + 0.5, class: "axis" })),
    h("div", { class: "axis-labels", "aria-hidden": "true" }, h("span", null, real(edges[0])), h("span", null, real(edges[edges.length - 1]))),
    h("details", null, h("summary", null, "Numbers"), table(label, [["Value"], ["Count", "number"]], rows)));
}

/** One bar of parts, [label, bytes, class], with a legend. */
export function stack(label, parts, whole_) {
  const total = whole_ ?? parts.reduce((sum, [, nbytes]) => sum + nbytes, 0);
  let start = 0;
  const rects = parts.map(([text, nbytes, kind]) => {
    const part = total ? (100 * nbytes) / total : 0;
    const rect = svg("rect", { x: start, y: 0, width: Math.max(part, 0), height: 10, class: kind }, svg("title", null, `${text}: ${bytes(nbytes)}`));
    start += part;
    return rect;
  });
  return h("figure", { class: "stack" },
    svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": `${label}: ${parts.map(([text, nbytes]) => `${text} ${bytes(nbytes)}`).join(", ")}` },
      svg("rect", { x: 0, y: 0, width: 100, height: 10, class: "empty" }), rects),
    h("ul", { class: "legend" }, parts.map(([text, nbytes, kind]) => h("li", null,
      h("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), `${text} `, h("b", null, bytes(nbytes)), h("small", null, ` ${percent(total ? nbytes / total : 0)}`)))));
}
