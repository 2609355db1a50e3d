// One tensor: facts, its picture, histograms, and the block at a place.

import { get } from "../api.js";
import { histogram } from "../charts.js";
import { h, name, table } from "../dom.js";
import { bytes, percent, real, shape, whole } from "../format.js";
import { picture } from "../picture.js";
import { pairOf } from "../pair.js";
import { go, link, note } from "../state.js";

export async function show(state) {
  const { model } = state;
  const number = Number(state.t ?? 0);
  const [tensor, facts] = await Promise.all([get("tensor", { model, tensor: number }), get("overview", { model })]);
  const pair = await pairOf(state, tensor, number);
  const block = h("section", { class: "card", "aria-live": "polite" }, h("h2", null, "Block"),
    h("p", { class: "muted" }, tensor.quantized ? "Choose a value in the picture to decode its block." : `${tensor.type} stores each value by itself.`));
  const chosen = async (row, column) => {
    note({ row, column });
    pair.choose(row, column);
    if (tensor.quantized) block.replaceChildren(...await drawBlock(state, number, row, column));
  };
  if (state.row !== undefined && tensor.picture) {
    chosen(Number(state.row), Number(state.column ?? 0)).catch((error) => block.append(h("p", null, name(error.message, ""))));
  }
  const step = (label, to, key) => h("button", { type: "button", class: "quiet", "data-go": key, disabled: to < 0 || to >= facts.tensors,
    onclick: () => go({ view: "tensor", model, t: to, other: state.other }) }, label);
  const values = tensor.picture && picture({ facts: tensor.picture, ...pair.source, state, chosen, blockSize: tensor.block_size });
  return h("div", { class: "grid" },
    h("section", { class: "card wide" },
      h("div", { class: "bar-row" }, h("a", { href: link({ view: "tensors", model }) }, "All tensors"),
        h("span", { class: "buttons" }, step("Previous", number - 1, "previous"), step("Next", number + 1, "next"))),
      h("h1", null, name(tensor.name)), drawFacts(tensor)),
    values && h("section", { class: "card" }, h("h2", null, "Values"), pair.choices, values), values && block, pair.section,
    h("section", { class: "card wide" }, h("h2", null, "Statistics"), statisticsOf(tensor, state, number)));
}

function list(known) {
  return h("dl", { class: "facts-list" }, known.filter(([, value]) => value !== null && value !== undefined)
    .map(([label, value]) => h("div", null, h("dt", null, label), h("dd", null, name(value, "")))));
}

function drawFacts(tensor) {
  return list([["Type", `${tensor.type}, ${real(tensor.bits)} bits per weight`], ["Shape", shape(tensor.shape)], ["Elements", whole(tensor.elements)],
    ["Bytes", `${whole(tensor.nbytes)} (${bytes(tensor.nbytes)})`], ["Offset", tensor.offset === null ? null : whole(tensor.offset)],
    ["Blocks", tensor.quantized ? `${tensor.block_size} values in ${tensor.block_bytes} bytes` : null], ["Group", tensor.group], ["File", tensor.file]]);
}

function statisticsOf(tensor, state, number) {
  const holder = h("div", { class: "statistics" });
  if (!tensor.decodable) holder.append(h("p", { class: "muted" }, "The values of this tensor cannot be decoded."));
  else if (tensor.reads_at_once) drawStatistics(state, number, holder);
  else holder.append(h("p", null, `Statistics read all ${bytes(tensor.nbytes)}.`), h("button", { type: "button", onclick: () => drawStatistics(state, number, holder) }, "Read them"));
  return holder;
}

async function drawStatistics(state, number, holder) {
  holder.replaceChildren(h("p", { class: "muted" }, "Reading…"));
  let figures;
  try {
    figures = await get("statistics", { model: state.model, tensor: number });
  } catch (error) {
    holder.replaceChildren(h("p", null, name(error.message, "")));
    return;
  }
  const levels = Object.entries(figures.levels ?? {}).map(([level, count]) => [Number(level), count]).sort((a, b) => a[0] - b[0]);
  const charts = [["Values", figures.histogram.edges, figures.histogram.counts], ["Scales of groups", figures.scales?.edges ?? [], figures.scales?.counts ?? []],
    ["Levels", levels.map(([level]) => level), levels.map(([, count]) => count)]];
  holder.replaceChildren(
    list([["Min", real(figures.min, 6)], ["Max", real(figures.max, 6)], ["Mean", real(figures.mean, 6)], ["Standard deviation", real(figures.std, 6)],
      ["Norm", real(figures.norm, 6)], ["Zeros", `${percent(figures.zero_share)} (${whole(figures.zeros)})`],
      ["NaN", figures.nan ? whole(figures.nan) : null], ["Infinite", figures.infinite ? whole(figures.infinite) : null]]),
    h("div", { class: "charts" }, charts.filter(([, , counts]) => counts.length).map((chart) => histogram(...chart))));
}

async function drawBlock(state, number, row, column) {
  const block = await get("block", { model: state.model, tensor: number, row, column });
  const groups = block.scales.length;
  const size = block.levels.length / groups;
  const columns = [["Column", "number"], ["Scale", "number"], ["Level", "number"], block.offsets && ["Offset", "number"], ["Value", "number"]].filter(Boolean);
  const line = (level, index) => {
    const group = Math.floor(index / size);
    return [whole(block.column + index), real(block.scales[group], 6), real(level), block.offsets && real(block.offsets[group], 6), real(block.values[index], 6)].filter((cell) => cell !== null);
  };
  return [h("h2", null, "Block"),
    h("p", { class: "muted" }, `Row ${whole(block.row)}, columns ${whole(block.column)} to ${whole(block.column + block.levels.length - 1)}${block.offset === null ? "" : `, at byte ${whole(block.offset)}`}`),
    h("h3", null, "Fields"),
    h("dl", { class: "fields" }, Object.entries(block.fields).map(([field, values]) => h("div", null, h("dt", null, field), h("dd", null, values.map((value) => real(value, 6)).join("  "))))),
    h("details", null, h("summary", null, "Bytes"), h("pre", { class: "text", tabindex: "0" }, block.bytes.match(/../g).join(" "))),
    h("h3", null, "Values"),
    h("p", { class: "muted" }, `value = scale × level${block.offsets ? " + offset" : ""}; ${groups === 1 ? "one scale" : `${groups} scales, each for ${size} values`}`),
    table("Values of the block", columns, block.levels.map(line))];
}
