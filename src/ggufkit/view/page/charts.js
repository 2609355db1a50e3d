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

/** Lines of bytes over contexts (on a log axis), [label, bytes, class], with the device across them. */
export function curves(label, contexts, lines, { device, at }) {
  const largest = Math.max(...lines.flatMap(([, values]) => values), 1);
  const most = 1.06 * (device && device < 2 * largest ? Math.max(device, largest) : largest);
  const [first, last] = [Math.log(contexts[0]), Math.log(contexts.at(-1))];
  const x = (tokens) => (100 * (Math.log(tokens) - first)) / (last - first || 1);
  const y = (nbytes) => 100 - (100 * nbytes) / most;
  const ticks = [0.25, 0.5, 0.75, 1].map((part) => (part * most) / 1.06);
  const tag = (text, top, side) => {
    const element = h("span", { class: `scale ${side}` }, text);
    element.style.top = `${top}%`;
    return element;
  };
  const text = lines.map(([recipe, values]) => `${recipe} from ${bytes(values[0])} to ${bytes(values.at(-1))}`).join(", ");
  return h("figure", { class: "curves" },
    h("div", { class: "plot" }, svg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": `${label}: ${text}` },
      ticks.map((nbytes) => svg("line", { x1: 0, x2: 100, y1: y(nbytes), y2: y(nbytes), class: "axis" })),
      at >= contexts[0] && at <= contexts.at(-1) && svg("line", { x1: x(at), x2: x(at), y1: 0, y2: 100, class: "zero" }),
      device > 0 && device <= most && svg("line", { x1: 0, x2: 100, y1: y(device), y2: y(device), class: "device" }),
      lines.map(([recipe, values, kind]) => svg("polyline", { class: `curve ${kind}`, points: values.map((nbytes, index) => `${x(contexts[index])},${y(nbytes)}`).join(" ") }, svg("title", null, recipe)))),
    ticks.map((nbytes) => tag(bytes(nbytes), y(nbytes), "start")),
    device > 0 && device <= most && tag(`devices: ${bytes(device)}`, y(device), "end")),
    h("div", { class: "axis-labels" }, h("span", null, `${whole(contexts[0])} tokens`), h("span", null, `${whole(contexts.at(-1))} tokens`)),
    device > most && h("p", { class: "good" }, `All of this fits in ${bytes(device)}.`));
}
