// Facts, where the bytes are, the grid of layers, files, and findings.

import { get } from "../api.js";
import { card, choice, h, name, svg, table, visible } from "../dom.js";
import { bitsClass, bytes, percent, real, short, whole } from "../format.js";
import { go, note } from "../state.js";

export async function show(state) {
  const { model } = state;
  const [facts, map, grid] = await Promise.all([
    get("overview", { model }), get("treemap", { model }), get("layers", { model })]);
  const found = h("div", { "aria-busy": "true" }, h("p", { class: "muted" }, "Checking…"));
  get("faults", { model }).then((faults) => found.replaceChildren(drawFaults(faults, facts.name)),
    (error) => found.replaceChildren(h("p", null, name(error.message, ""))))
    .finally(() => found.removeAttribute("aria-busy"));
  return h("div", { class: "grid" },
    drawFacts(facts),
    h("section", { class: "card wide" }, h("h2", null, "Findings"), found),
    map.groups.length > 0 && drawMap(map, facts, model),
    grid.cells.length > 0 && drawGrid(grid, state),
    facts.files.length > 1 && drawFiles(facts));
}

function perLayer(value) {
  if (value === null) return null;
  return Array.isArray(value) ? `${whole(Math.min(...value))} to ${whole(Math.max(...value))}, by layer` : whole(value);
}

function drawFacts(facts) {
  const summary = facts.summary;
  const known = [
    ["Architecture", summary.architecture], ["Recipe", summary.recipe],
    ["Parameters", `${short(summary.parameters)} (${whole(summary.parameters)})`],
    ["Size of tensors", bytes(facts.nbytes)],
    ["Bits per weight", summary.bits_per_weight === null ? null : real(summary.bits_per_weight, 3)],
    ["Context", perLayer(summary.context)], ["Layers", perLayer(summary.layers)],
    ["Embedding", perLayer(summary.embedding)], ["Feed forward", perLayer(summary.feed_forward)],
    ["Heads", perLayer(summary.heads)], ["Heads of keys and values", perLayer(summary.kv_heads)],
    ["Experts", perLayer(summary.experts)], ["Experts used", perLayer(summary.experts_used)],
    ["Vocabulary", perLayer(summary.vocabulary)], ["Tokenizer", summary.tokenizer],
    ["Chat template", summary.chat_template ? "yes" : summary.tokenizer ? "none" : null],
    ["Licence", summary.license], ["Kind", summary.kind],
    ["Format", `GGUF version ${facts.version}, ${facts.byte_order} endian, aligned to ${facts.alignment} bytes`],
    ["Holds", `${whole(facts.keys)} keys, ${whole(facts.tensors)} tensors`],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
  const types = summary.types;
  return h("section", { class: "card wide facts" },
    h("h1", null, name(summary.name || facts.name.split("/").pop(), "")),
    h("p", { class: "muted path" }, name(facts.name)),
    facts.missing.map((each) => h("p", { class: "warning-text" }, name(`${each.message}. ${each.remedy}`, ""))),
    h("dl", { class: "facts-list" }, known.map(([label, value]) => h("div", null, h("dt", null, label), h("dd", null, name(value, ""))))),
    types.length > 0 && h("details", null, h("summary", null, `Types of tensors: ${types.map((share) => share.type).join(", ")}`),
      table("Types of tensors", [["Type"], ["Tensors", "number"], ["Elements", "number"], ["Bytes", "number"], ["Share", "number"]],
        types.map((share) => [share.type, whole(share.tensors), whole(share.elements), whole(share.nbytes), percent(facts.nbytes ? share.nbytes / facts.nbytes : 0)]))));
}

// Findings.

function drawFaults(found, file) {
  if (!found.findings.length) {
    return h("p", { class: "good" }, "No findings in the header. Tensor data was not read: ", h("code", null, "ggufkit check --data"), " does that.");
  }
  return h("div", null,
    h("ul", { class: "findings" }, found.findings.map(drawFinding)),
    found.total > found.findings.length && h("p", { class: "muted" }, `${whole(found.total)} findings in all; ggufkit check lists them.`),
    found.changes.length > 0 && h("div", { class: "fix" },
      h("h3", null, "What --fix would change"),
      h("ul", { class: "changes" }, found.changes.map((change) => h("li", null, name(change.key), " ",
        h("del", null, `${change.before_type} `, name(JSON.stringify(change.before), "")), " ",
        h("ins", null, change.kind === "removed" ? "removed" : [`${change.after_type} `, name(JSON.stringify(change.after), "")])))),
      h("p", null, h("code", null, "ggufkit check ", name(file, ""), " --fix"))));
}

function drawFinding(each) {
  return h("li", { class: each.severity },
    h("p", null, h("b", { class: "severity" }, each.severity), " ", name(each.message, ""), " ", h("code", null, each.rule)),
    h("p", { class: "muted" }, name(`${each.remedy}.`, ""), each.fixable && h("b", null, " ggufkit can fix this.")),
    h("details", null, h("summary", null, `Why ${each.rule} matters`), h("p", null, each.explanation),
      h("p", { class: "muted" }, `At byte ${whole(each.offset)} of `, name(each.file))));
}

// Where the bytes are.

function drawMap(map, facts, model) {
  const part = (group) => percent(group.nbytes / facts.nbytes);
  const cells = map.groups.flatMap((group) => group.cells.map((cell) => drawCell(cell, model)));
  const frames = map.groups.map(({ place: [x, y, width, height] }) => svg("rect", { x, y, width, height, class: "frame" }));
  const labels = map.groups.filter(({ place: [, , width, height] }) => width > 16 && height > 6).map((group) => {
    const [left, top] = group.place;
    const text = `${group.name} ${part(group)}`;
    return svg("g", null, svg("rect", { x: left + 0.7, y: top + 0.7, width: text.length * 1.55 + 1.6, height: 4, rx: 0.8, class: "label-back" }),
      svg("text", { x: left + 1.5, y: top + 3.6, class: "group-label" }, text));
  });
  return h("section", { class: "card wide" },
    h("h2", null, "Where the bytes are"),
    h("p", { class: "muted" }, "Areas are bytes; colours are bits per weight. Choose a tensor to look at it."),
    svg("svg", { viewBox: `0 0 ${map.width} ${map.height}`, class: "treemap", role: "img",
      "aria-label": `Treemap: ${map.groups.map((group) => `${group.name} ${part(group)}`).join(", ")}` }, cells, frames, labels),
    legend(),
    h("details", null, h("summary", null, "Bytes by group"), table("Bytes by group", [["Group"], ["Tensors", "number"], ["Bytes", "number"], ["Share", "number"]],
      map.groups.map((group) => [name(group.name, ""), whole(group.tensors), whole(group.nbytes), part(group)]))));
}

function drawCell(cell, model) {
  const [x, y, width, height] = cell.place;
  const kind = cell.number === null ? "rest" : bitsClass(cell.bits);
  const text = cell.number === null ? `${whole(cell.count)} smaller tensors, ${bytes(cell.nbytes)}` : `${cell.name}\n${cell.type}, ${bytes(cell.nbytes)}`;
  const open = cell.number === null ? null : () => go({ view: "tensor", model, t: cell.number });
  return svg("rect", { x, y, width, height, class: `cell ${kind}${open ? " opens" : ""}`, onclick: open }, svg("title", null, visible(text, "\n")));
}

const LEGEND = [["b1", "under 2"], ["b2", "2"], ["b3", "3"], ["b4", "4"], ["b5", "5"], ["b6", "6"], ["b8", "8"], ["b16", "16"], ["b32", "32"]];

function legend() {
  return h("ul", { class: "legend", "aria-label": "Colours by bits per weight" }, h("li", { class: "muted" }, "bits per weight"),
    LEGEND.map(([kind, text]) => h("li", null, h("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), text)));
}

// The grid of layers.

const STATISTICS = { deviation: "standard deviation", largest: "largest magnitude", zeros: "share of zeros" };
const CELL = 14;
const AT_ONCE = 8; // samples

function drawGrid(grid, state) {
  const samples = new Map();
  const key = h("div");
  const rects = grid.cells.map(([role, layer]) => svg("rect", { x: layer * CELL, y: role * CELL, width: CELL - 1, height: CELL - 1, rx: 2 }));
  const { board, readout } = drawBoard(grid, rects, samples, state);
  const colour = (by) => {
    note({ colour: by === "bits" ? "" : by });
    key.dataset.by = by;
    if (STATISTICS[by]) sampled({ grid, rects, samples, by, state, key });
    else byClass(grid, rects, by, key);
  };
  const choices = [["bits", "bits per weight"], ["type", "type"], ...Object.entries(STATISTICS)];
  const chosen = choices.some(([by]) => by === state.colour) ? state.colour : "bits";
  colour(chosen);
  return h("section", { class: "card wide" }, h("h2", null, "Layers"),
    h("div", { class: "bar-row" }, h("label", { class: "field" }, h("span", null, "Colour by"), choice(choices, chosen, colour)), readout),
    board, key, grid.left_out > 0 && h("p", { class: "muted" }, `${whole(grid.left_out)} more tensors are not in this grid.`));
}

function drawBoard(grid, rects, samples, state) {
  const cellAt = new Map(grid.cells.map((cell) => [`${cell[0]},${cell[1]}`, cell]));
  const [width, height] = [grid.layers.length * CELL, grid.roles.length * CELL];
  const readout = h("output", { class: "readout", "aria-live": "polite" }, "Arrows move, Enter opens the tensor.");
  const cursor = svg("rect", { width: CELL, height: CELL, rx: 2, class: "cursor", x: -99, y: -99 });
  let place = [0, 0];
  const move = (role, layer) => {
    place = [Math.min(Math.max(role, 0), grid.roles.length - 1), Math.min(Math.max(layer, 0), grid.layers.length - 1)];
    cursor.setAttribute("x", place[1] * CELL - 0.5);
    cursor.setAttribute("y", place[0] * CELL - 0.5);
    const cell = cellAt.get(place.join());
    const sample = cell && samples.get(cell[2]);
    readout.replaceChildren(`layer ${grid.layers[place[1]]}, `, name(grid.roles[place[0]]), cell ? `: ${grid.types[cell[3]].name}` : ": none",
      sample ? `, deviation ${real(sample.deviation)}, largest ${real(sample.largest)}, zeros ${percent(sample.zeros ?? 0)}` : "");
  };
  const open = () => {
    const cell = cellAt.get(place.join());
    if (cell) go({ view: "tensor", model: state.model, t: cell[2] });
  };
  const pointed = (event) => {
    const box = picture.getBoundingClientRect();
    move(Math.floor(((event.clientY - box.top) / box.height) * grid.roles.length), Math.floor(((event.clientX - box.left) / box.width) * grid.layers.length));
  };
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "layers", role: "img",
    "aria-label": `Grid of ${grid.layers.length} layers by ${grid.roles.length} roles`, onmousemove: pointed, onclick: open }, rects, cursor);
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const board = h("div", { class: "scroll board", tabindex: "0", role: "group", "aria-label": "Layer grid: arrows move, Enter opens the tensor",
    onkeydown: (event) => {
      const step = steps[event.key];
      if (step) move(place[0] + step[0], place[1] + step[1]);
      else if (event.key === "Enter") open();
      else return;
      event.preventDefault();
    } },
  h("div", { class: "roles", "aria-hidden": "true" }, grid.roles.map((role) => h("div", null, name(role)))),
  h("div", null, picture, h("div", { class: "layer-numbers", "aria-hidden": "true" }, h("span", null, `layer ${grid.layers[0]}`), h("span", null, grid.layers.at(-1)))));
  return { board, readout };
}

function byClass(grid, rects, by, key) {
  grid.cells.forEach((cell, at) => {
    rects[at].setAttribute("class", `cell ${by === "type" ? `k${cell[3] % 10}` : bitsClass(grid.types[cell[3]].bits)}`);
    rects[at].removeAttribute("fill-opacity");
  });
  key.replaceChildren(by === "type" ? h("ul", { class: "legend" }, grid.types.map((type, at) => h("li", null,
    h("span", { class: `swatch k${at % 10}`, "aria-hidden": "true" }), `${type.name} `, h("small", null, `${real(type.bits)} bits`)))) : legend());
}

/** Colours by a statistic: samples come a few at a time, and the colours follow. */
async function sampled({ grid, rects, samples, by, state, key }) {
  const paint = () => {
    const values = grid.cells.map((cell) => samples.get(cell[2])?.[by]).map((value) => (typeof value === "number" ? value : null));
    const most = Math.max(...values.filter((value) => value !== null), 0);
    values.forEach((value, at) => {
      rects[at].setAttribute("class", `cell ${value === null ? "rest" : "heat"}`);
      if (value !== null) rects[at].setAttribute("fill-opacity", (0.06 + 0.94 * Math.sqrt(most ? value / most : 0)).toFixed(3));
    });
    key.replaceChildren(h("p", { class: "muted" }, `Full colour is ${real(most)}: ${STATISTICS[by]} of a sample of each tensor, ${whole(samples.size)} of ${whole(grid.cells.length)} read.`));
  };
  paint();
  const left = grid.cells.map((cell) => cell[2]).filter((number) => !samples.has(number));
  let wasShown = false;
  for (let at = 0; at < left.length && key.dataset.by === by; at += AT_ONCE) {
    await Promise.all(left.slice(at, at + AT_ONCE).map((number) => get("sample", { model: state.model, tensor: number })
      .then((found) => samples.set(number, found), () => samples.set(number, {}))));
    if (wasShown && !key.isConnected) return; // another view is shown
    wasShown = key.isConnected;
    if (key.dataset.by === by) paint();
  }
}

function drawFiles(facts) {
  const made = card(`Files (${whole(facts.files.length)})`, table("Files", [["File"], ["Bytes", "number"], ["Of tensors", "number"]],
    facts.files.map((file) => [name(file.name), whole(file.nbytes), whole(file.data_nbytes)])));
  made.classList.add("wide");
  return made;
}
