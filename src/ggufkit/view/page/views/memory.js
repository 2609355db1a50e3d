// Memory: context, cache types, devices, and what fits.

import { get, post, Refusal } from "../api.js";
import { curves, stack } from "../charts.js";
import { choice, h, later, name, table } from "../dom.js";
import { bytes, whole } from "../format.js";
import { slider } from "../parts.js";
import { note } from "../state.js";

const GB = 1e9;
const LEAST = 512; // tokens
const MOST_DEVICES = 16;

export async function show(state) {
  const facts = await get("memory", { model: state.model });
  const most = Math.max(facts.default_context, LEAST);
  const request = {
    context: Math.min(Number(state.context) || Math.min(most, 8192), 2 ** 31 - 1), cache_type: state.cache ?? "F16", sequences: Number(state.sequences) || 1,
    devices: (state.devices ?? "8").split(",").map(Number).filter((size) => size >= 0).slice(0, MOST_DEVICES), layers: state.layers === undefined ? null : Number(state.layers), cpu_experts: Number(state.experts) || 0,
  };
  const result = h("div", { "aria-live": "polite" });
  const controls = h("div", { class: "controls" });
  const lines = h("div");
  const draw = async () => {
    note({ context: request.context, cache: request.cache_type === "F16" ? "" : request.cache_type, sequences: request.sequences > 1 ? request.sequences : "",
      devices: request.devices.join(","), layers: request.layers ?? "", experts: request.cpu_experts || "" });
    try {
      const estimate = await post("memory", { model: state.model }, { ...request, devices: request.devices.map((size) => Math.round(size * GB)) });
      if (!controls.firstChild) drawControls(controls, request, facts, most, estimate, draw);
      result.replaceChildren(...drawResult(estimate, facts));
      drawCurves(lines, await post("memory-curves", { model: state.model }, { ...request, devices: request.devices.map((size) => Math.round(size * GB)) }), request, facts);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      result.replaceChildren(h("p", { class: "warning-text", role: "alert" }, name(`${error.message}. ${error.remedy}`, "")));
    }
  };
  await draw();
  return h("div", { class: "grid" }, h("section", { class: "card" }, h("h1", null, "Memory"),
    h("p", { class: "muted" }, "What llama.cpp takes. Weights and caches are exact, the compute buffer is an estimate."), controls),
  h("section", { class: "card" }, h("h2", null, "Needed"), result),
  h("section", { class: "card wide" }, h("h2", null, "Memory by context"), lines));
}

/** Context against memory, for the model as it is and for recipes that make it smaller. */
function drawCurves(holder, { contexts, curves: rows }, request, facts) {
  const device = request.devices.reduce((sum, size) => sum + size, 0) * GB;
  const longest = ({ largest_context: tokens, fits_more: more }) => (tokens === null ? "–" : tokens ? `${more ? "at least " : ""}${whole(tokens)} tokens` : "does not fit");
  const kind = (index) => `p${index + 1}`;
  holder.replaceChildren(
    curves("Memory by context", contexts, rows.map((row, index) => [row.recipe, row.totals, kind(index)]), { device, at: request.context }),
    h("p", { class: "muted" }, `The right edge is ${facts.trained_context ? "the context that the model was trained with" : "a common context: the file does not say how long its training context was"}. `,
      device && "“Longest context” is the longest with which all layers fit in the devices together."),
    table("Recipes", [["Recipe"], [`${whole(contexts[0])} tokens`, "number"], [`${whole(contexts.at(-1))} tokens`, "number"], ["Longest context", "number"]],
      rows.map((row, index) => [h("span", null, h("span", { class: `swatch ${kind(index)}`, "aria-hidden": "true" }), row.recipe), bytes(row.totals[0]), bytes(row.totals.at(-1)), longest(row)])));
}

function drawControls(holder, request, facts, most, estimate, now) {
  const soon = later(now, 60);
  const change = (name_, value) => { request[name_] = value; soon(); };
  const steps = Math.round(4 * Math.log2(most / LEAST));
  const tokens = (step) => (step >= steps ? most : Math.round((LEAST * 2 ** (step / 4)) / 256) * 256);
  const index = request.context >= most ? steps : Math.max(Math.round(4 * Math.log2(request.context / LEAST)), 0);
  const all = estimate.layers.length + 1;
  const devices = h("div", { class: "devices" });
  const drawDevices = () => devices.replaceChildren(...request.devices.map((size, number) => h("label", { class: "field" }, h("span", null, `Device ${number + 1} (GB)`),
    h("input", { type: "number", min: 0, max: 4096, step: 0.5, value: size, oninput: (event) => { request.devices[number] = Math.min(Math.max(Number(event.target.value) || 0, 0), 4096); soon(); } }))),
  h("span", { class: "buttons" }, h("button", { type: "button", class: "quiet", disabled: request.devices.length >= MOST_DEVICES, onclick: () => { request.devices.push(8); drawDevices(); soon(); } }, "Add a device"),
    h("button", { type: "button", class: "quiet", disabled: !request.devices.length, onclick: () => { request.devices.pop(); drawDevices(); soon(); } }, "Remove one")));
  drawDevices();
  holder.append(
    slider("Context", { min: 0, max: steps, value: index, text: (step) => `${whole(tokens(step))} tokens`, onchange: (step) => change("context", tokens(step)) }),
    slider("Texts at once", { min: 1, max: 64, value: request.sequences, text: (count) => whole(count), onchange: (count) => change("sequences", count) }),
    slider("Layers on devices", { min: 0, max: all, value: Math.min(request.layers ?? all, all), text: (count) => (count >= all ? "all" : `${whole(count)} of ${whole(all)}`), onchange: (count) => change("layers", count >= all ? null : count) }),
    ...(facts.expert_bytes ? [slider("Layers with experts on the processor", { min: 0, max: all - 1, value: request.cpu_experts, text: (count) => whole(count), onchange: (count) => change("cpu_experts", count) })] : []),
    h("label", { class: "field" }, h("span", null, "Type of keys and values"), choice(facts.cache_types.map((type) => [type]), request.cache_type, (type) => change("cache_type", type))),
    devices);
}

const PARTS = [["weights", "weights", "p1"], ["cache", "keys and values", "p2"], ["state", "state", "p3"], ["compute", "compute buffer", "p4"], ["output", "output", "p5"]];

function longestOf({ largest_context: longest, fits_more: more }, { trained_context: trained }) {
  if (!longest) return " No context is short enough for all to fit.";
  const beyond = trained && longest > trained ? `, though the model was trained with ${whole(trained)}` : "";
  return ` The longest context with which all fits: ${more ? "at least " : ""}${whole(longest)} tokens${beyond}.`;
}

function drawResult(estimate, facts) {
  const parts = PARTS.filter(([key]) => estimate[key]).map(([key, text, kind]) => [text, estimate[key], kind]);
  const split = estimate.split;
  return [
    h("p", { class: "big" }, bytes(estimate.total)), h("p", { class: "muted" }, `for ${whole(estimate.context)} tokens`), stack("All memory", parts),
    split && h("div", null, h("h3", null, "Devices"),
      h("p", { class: split.fits ? "good" : "warning-text" }, split.fits ? (split.layers === split.all_layers ? "All layers fit." : `The ${whole(split.layers)} layers fit.`) : `${whole(split.layers)} of ${whole(split.wanted)} layers fit.`,
        estimate.largest_context !== null && split.devices.length === 1 ? longestOf(estimate, facts) : ""),
      split.devices.map((device, index) => stack(`Device ${index + 1}: ${whole(device.layers)} layers`, [[`device ${index + 1}, ${whole(device.layers)} layers`, device.nbytes, "p1"]], Math.max(device.room, device.nbytes))),
      h("p", null, `On the processor: ${bytes(split.host)}`), h("p", null, h("code", null, `--n-gpu-layers ${split.layers}`))),
    h("details", null, h("summary", null, "By layer"), table("Memory by layer", [["Layer", "number"], ["Weights", "number"], ["Keys and values", "number"], ["State", "number"]],
      estimate.layers.map((layer) => [layer.number, whole(layer.weights), whole(layer.cache), whole(layer.state)])))].filter(Boolean);
}
