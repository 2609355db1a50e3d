// Errors of all quants of one base: measured one tensor after the other, kept, and drawn by layer.

import { get, Refusal } from "./api.js";
import { h, name, svg } from "./dom.js";
import { bytes, distinct, percent } from "./format.js";
import { kld } from "./quality.js";
import { go } from "./state.js";

const errorsByModels = new Map(); // errors of two models, by the number of the first one's tensor
const UNKNOWN = { rmse: "NaN", snr_db: "NaN", cosine: "NaN", max_abs: "NaN" };
const [LOWEST, HIGHEST] = [0.003, 0.3]; // errors in parts of the signal, without and with full colour
const CELL = 13; // height; the width follows from the number of layers
const [NARROW, WIDE, ROOM] = [8, 18, 540];

export function errorsOf(before, after) {
  const key = `${before},${after}`;
  if (!errorsByModels.has(key)) errorsByModels.set(key, new Map());
  return errorsByModels.get(key);
}

/** Measures the tensors of `numbers` while `goes()`, and tells each. */
export async function measure(before, after, numbers, goes, tell) {
  const errors = errorsOf(before, after);
  for (const number of numbers) {
    if (!goes()) return false;
    if (errors.has(number)) continue;
    try {
      errors.set(number, await get("error", { model: before, other: after, tensor: number }, { keep: false }));
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      errors.set(number, UNKNOWN);
    }
    tell(number);
  }
  return true;
}

/** The error in parts of the signal; null if it is not a number. */
export function errorPart(error) {
  if (error?.same || error?.snr_db === "Infinity") return 0;
  return typeof error?.snr_db === "number" ? 10 ** (-error.snr_db / 20) : null;
}

/** A grid of layer by kind for each quant, and what paints it. */
export function heatMaps(grid, state, base, quants) {
  const short = distinct(state.models.map((model) => model.name));
  const maps = quants.map((quant) => heatMap(grid, base, quant, { ...state.models[quant], name: short[quant] }, quant === state.other));
  const ramp = h("span", { class: "ramp errors", "aria-hidden": "true" });
  return { paint: () => maps.forEach((map) => map.paint()),
    section: h("section", { class: "card wide" }, h("h1", null, "Error by layer"),
      h("p", { class: "muted" }, "Layers from left to right, kinds of tensors from top to bottom; against ", name(short[base]), ". Choose a cell to see the difference."),
      h("div", { class: "heats" }, maps.map((map) => map.figure)),
      h("div", { class: "key-line" }, `${percent(LOWEST)} of the signal or less`, ramp, `${percent(HIGHEST)} or more`)) };
}

function heatMap(grid, base, quant, { name: short, nbytes, quality }, current) {
  const errors = errorsOf(base, quant);
  const wide = Math.min(Math.max(Math.floor(ROOM / grid.layers.length), NARROW), WIDE);
  const rects = grid.cells.map(([role, layer, number]) => svg("rect", { x: layer * wide, y: role * CELL, width: wide - 1, height: CELL - 1, class: "cell rest",
    onclick: () => go({ view: "compare", model: base, other: quant, t: number }) }, svg("title")));
  const [width, height] = [grid.layers.length * wide, grid.roles.length * CELL];
  const worst = h("p", { class: "muted" });
  const paint = () => {
    let most = [0, null];
    grid.cells.forEach(([role, layer, number], index) => {
      const part = errorPart(errors.get(number));
      const text = `layer ${grid.layers[layer]}, ${grid.roles[role]}`;
      rects[index].firstChild.textContent = `${text}: ${part === null ? "not measured" : part ? `error ${percent(part)} of the signal` : "same"}`;
      if (part === null) return;
      if (part > most[0]) most = [part, text];
      rects[index].setAttribute("class", "cell error-cell");
      rects[index].setAttribute("fill-opacity", (0.06 + 0.94 * Math.min(Math.max(Math.log(part / LOWEST) / Math.log(HIGHEST / LOWEST), 0), 1)).toFixed(3));
    });
    worst.replaceChildren(most[1] ? h("span", null, `Largest: ${percent(most[0])} in `, name(most[1])) : errors.size ? "No error so far" : "Not measured yet");
  };
  paint();
  return { paint, figure: h("figure", { class: current ? "current" : null }, h("figcaption", null, name(short), h("small", null, [bytes(nbytes), kld(quality) && `KLD ${kld(quality)}`].filter(Boolean).join(", "))),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Errors of ${short} by layer` },
      svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `Errors of ${grid.roles.length} kinds of tensors in ${grid.layers.length} layers` }, rects)), worst) };
}
