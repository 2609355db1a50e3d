// Two models side by side: keys, types, and the error of each tensor.

import { get } from "../api.js";
import { choice, h, name, table } from "../dom.js";
import { bytes, distinct, percent, real, whole } from "../format.js";
import { errorsOf, heatMaps, measure } from "../heat.js";
import { picture } from "../picture.js";
import { kld } from "../quality.js";
import { link, note } from "../state.js";

const SHOWN = 500; // rows
const SORTS = { damage: "damage", name: "order of the file", size: "bytes" };

export async function show(state) {
  if (state.models.length < 2) {
    return h("div", { class: "grid" }, h("section", { class: "card" }, h("h1", null, "Compare"), h("p", null, "Open two files: "), h("p", null, h("code", null, "ggufkit view FILE OTHER"))));
  }
  const { base, quants } = await get("family", { model: state.model });
  const isOfBase = state.other === undefined && quants.length > 0; // the base is the reference
  const before = isOfBase ? base : state.model;
  const other = Number(state.other ?? (isOfBase ? (state.model === base ? quants[0] : state.model) : before === 0 ? 1 : 0));
  const comparison = await get("comparison", { model: before, other });
  const short = distinct(state.models.map((model) => model.name));
  const others = state.models.map((model, number) => [number, short[number]]).filter(([number]) => number !== before);
  const chooser = h("label", { class: "field" }, h("span", null, "Compared with"), choice(others, other, (value) => { location.hash = link({ view: "compare", model: before, other: value }); }));
  const pair = { ...state, model: before, other };
  const isFamily = before === base && quants.includes(other);
  const heat = isFamily ? heatMaps(await get("layers", { model: base }), pair, base, quants) : null;
  return h("div", { class: "grid" }, heat?.section, drawSides(comparison, chooser, heat ? "h2" : "h1", [before, other].map((number) => ({ ...state.models[number], name: short[number] }))), drawTensors(comparison, pair, heat, quants), drawKeys(comparison));
}

function drawSides(comparison, chooser, heading, files) {
  const klds = files.map(({ quality }) => kld(quality) || "–");
  const rows = [["Bytes of tensors", (side) => bytes(side.nbytes)], ["Recipe", (side) => side.recipe ?? "–"], ["Bits per weight", (side) => real(side.bits_per_weight, 3)], ["Parameters", (side) => whole(side.parameters)]];
  return h("section", { class: "card wide" }, h(heading, null, heading === "h1" ? "Compare" : "Two models"), chooser,
    table("Two models", [[""], ...files.map((side) => [name(side.name)])], [...rows.map(([label, value]) => [label, ...comparison.models.map(value)]), ...(files.some(({ quality }) => kld(quality)) ? [["Mean KLD", ...klds]] : [])]),
    h("p", { class: "muted" }, comparison.models[0].nbytes ? `The second has ${percent(comparison.models[1].nbytes / comparison.models[0].nbytes)} of the bytes of the first.` : ""));
}

// Tensors: measured one after the other, because each is read whole.

function drawTensors(comparison, state, heat, quants) {
  if (!comparison.tensors.some((row) => row.comparable)) {
    return h("section", { class: "card wide" }, h("h2", null, "Tensors"), h("p", { class: "warning-text" }, "These models are unrelated: no tensor has the same name and shape in both."));
  }
  const errors = errorsOf(state.model, state.other);
  const rows = comparison.tensors;
  const measurable = rows.filter((row) => row.comparable);
  let sort = SORTS[state.sort] ? state.sort : "damage";
  let stopped = true;
  let wasShown = false;
  const list = h("div");
  const progress = h("span", { class: "muted", role: "status" }, `${whole(rows.length)} tensors`);
  const difference = h("div");
  const chart = h("div");
  const damage = (row) => {
    const error = errors.get(row.before);
    if (!row.comparable) return -1e7; // after all that were measured: they may be very many
    if (!error) return -1e9;
    return error.snr_db === "Infinity" ? -1e8 : -Number(error.snr_db);
  };
  const draw = () => {
    const sorted = sort === "name" ? rows : [...rows].sort(sort === "damage" ? (a, b) => damage(b) - damage(a) : (a, b) => b.before_nbytes - a.before_nbytes);
    list.replaceChildren(table("Tensors of both models", [["Tensor"], ["First"], ["Second"], ["RMSE", "number"], ["SNR (dB)", "number"], ["Cosine", "number"], ["Largest error", "number"]],
      sorted.slice(0, SHOWN).map((row) => drawRow(row, errors.get(row.before), () => drawPicture(row)))), rows.length > SHOWN && h("p", { class: "muted" }, `The first ${SHOWN} of this order are shown.`) || "");
  };
  const drawPicture = async (row) => {
    note({ t: row.before });
    const facts = (await get("tensor", { model: state.model, tensor: row.before })).picture;
    const error = errors.get(row.before) ?? await get("error", { model: state.model, other: state.other, tensor: row.before });
    difference.replaceChildren(h("h3", null, "Second minus first: ", name(row.name)), picture({ facts, route: "error-tile", parameters: { model: state.model, other: state.other, tensor: row.before },
      range: Promise.resolve(Number(error.rmse) * 3 || 1), state: {} }));
    difference.scrollIntoView({ block: "nearest" });
  };
  const goes = () => !stopped && (!wasShown || list.isConnected);
  const tell = () => {
    wasShown ||= list.isConnected;
    progress.textContent = `${whole(errors.size)} of ${whole(measurable.length)} tensors measured`;
    if (errors.size % 20 === 0) draw();
    heat?.paint();
  };
  const start = async () => {
    stopped = !stopped;
    button.textContent = stopped ? "Measure errors" : "Stop";
    if (stopped || !await measure(state.model, state.other, measurable.map((row) => row.before), goes, tell)) return;
    draw();
    chart.replaceChildren(...drawQuality(comparison, errors));
    for (const quant of heat ? quants : []) {
      const { tensors } = await get("comparison", { model: state.model, other: quant });
      const numbers = tensors.filter((row) => row.comparable).map((row) => row.before);
      if (!await measure(state.model, quant, numbers, goes, heat.paint)) return;
    }
    stopped = true;
    button.hidden = true;
    progress.textContent = "All errors are measured";
  };
  const button = h("button", { type: "button", onclick: start }, "Measure errors");
  draw();
  if ([state.model, state.other].every((number) => state.models[number].local)) start();
  if (state.t !== undefined) {
    const row = rows.find((candidate) => String(candidate.before) === state.t && candidate.comparable);
    if (row) drawPicture(row);
  }
  return h("section", { class: "card wide" }, h("h2", null, "Tensors"), h("div", { class: "bar-row" }, measurable.length > 0 && button, progress,
    h("label", { class: "field" }, h("span", null, "Sort by"), choice(Object.entries(SORTS), sort, (value) => { sort = value; note({ sort: value === "damage" ? "" : value }); draw(); }))),
  chart, difference, list);
}

function drawRow(row, error, open) {
  const differs = row.before_type !== row.after_type;
  const side = (type) => (type === null ? h("b", { class: "warning-text" }, "none") : differs ? h("b", null, type) : type);
  const isOther = !row.comparable && row.before !== null && row.after !== null;
  const figure = (key, digits = 4) => (error ? (error.same ? "same" : real(error[key], digits)) : "");
  return [row.comparable ? h("button", { type: "button", class: "linklike", onclick: open, title: "Show the difference" }, name(row.name)) : name(row.name),
    side(row.before_type), side(row.after_type), isOther ? h("small", null, "other shape") : figure("rmse"), figure("snr_db"), figure("cosine", 6), figure("max_abs")];
}

/** Overall: the signal and the noise of all tensors that differ. */
function drawQuality(comparison, errors) {
  let [signal, noise] = [0, 0];
  for (const row of comparison.tensors) {
    const error = errors.get(row.before);
    if (!error || error.same || typeof error.snr_db !== "number") continue;
    const power = error.rmse ** 2 * (row.elements ?? 1);
    noise += power;
    signal += power * 10 ** (error.snr_db / 10);
  }
  if (!noise) return [h("p", { class: "good" }, "No tensor that both have differs.")];
  const overall = 10 * Math.log10(signal / noise);
  return [h("p", null, h("b", null, `Overall SNR ${real(overall)} dB`), ` over all tensors that differ: the error is ${percent(Math.sqrt(noise / signal))} of the signal. `,
    h("small", null, "Only a run of the model shows what this does to its answers."))];
}

function drawKeys(comparison) {
  const value = (item) => (item === null ? h("span", { class: "muted" }, "missing") : name(typeof item === "string" ? item : JSON.stringify(item), "value"));
  return h("section", { class: "card wide" }, h("h2", null, `Keys that differ (${whole(comparison.changed_keys)})`),
    comparison.keys.length ? table("Keys that differ", [["Key"], ["First"], ["Second"]], comparison.keys.map((key) => [name(key.key),
      [h("small", null, `${key.before_type} `), value(key.before)], [h("small", null, `${key.after_type} `), value(key.after)]].map((cell) => (Array.isArray(cell) ? h("span", null, cell) : cell))))
      : h("p", { class: "good" }, "All keys are the same."));
}
