// Facts, where the bytes are, the grid of layers, files, and findings.

import { get, post } from "../api.js";
import { card, choice, h, name, svg, table, visible } from "../dom.js";
import { bitsClass, bytes, percent, real, shape, short, whole } from "../format.js";
import { modelsTable, qualityTile } from "../quality.js";
import { go, link, note } from "../state.js";

const DEVICE = 8e9; // bytes of memory that most graphics cards have
const CONTEXT = 8192; // tokens

export async function show(state) {
  const { model } = state;
  const [facts, map, grid] = await Promise.all([
    get("overview", { model }), get("treemap", { model, group: state.group ?? "" }), get("layers", { model })]);
  const findings = h("div", { "aria-busy": "true" }, h("p", { class: "skeleton" }, "Checking…"));
  const verdict = h("a", { href: "#overview", class: "tile", onclick: (event) => { event.preventDefault(); findings.scrollIntoView({ block: "center" }); } },
    h("span", null, "Check"), h("b", { class: "skeleton" }, "…"), h("small", null, "header"));
  get("faults", { model }).then((faults) => {
    findings.replaceChildren(drawFaults(faults, facts.name));
    verdict.replaceChildren(...drawVerdict(faults));
  }, (error) => findings.replaceChildren(h("p", null, name(error.message, "")))).finally(() => findings.removeAttribute("aria-busy"));
  return h("div", { class: "grid" },
    drawFacts(facts, state, verdict),
    modelsTable(state),
    map.groups.length > 0 && drawMap(map, facts, state),
    grid.cells.length > 0 && drawGrid(grid, state),
    map.groups.length > 0 && drawArchitecture(facts, model),
    h("section", { class: "card wide" }, h("h2", null, "Findings"), findings),
    facts.files.length > 1 && drawFiles(facts));
}

function drawVerdict({ total, findings }) {
  const count = (severity) => findings.filter((finding) => finding.severity === severity).length;
  const parts = ["error", "warning", "note"].filter(count).map((severity) => `${whole(count(severity))} ${severity}${count(severity) > 1 ? "s" : ""}`);
  const kind = count("error") ? "bad" : count("warning") ? "warning-text" : "good";
  return [h("span", null, "Check"), h("b", { class: kind }, total ? parts[0] : "Valid"), h("small", null, total ? parts.slice(1).join(", ") || "in the header" : "no findings in the header")];
}

/** The memory for a usual context, when it is known. */
function drawMemory(facts, model) {
  const tile = h("a", { class: "tile", href: link({ view: "memory", model }) }, h("span", null, "Memory"), h("b", { class: "skeleton" }, "…"), h("small", null, "in llama.cpp"));
  const context = Math.min(...[facts.summary.context].flat().filter(Boolean), CONTEXT);
  post("memory", { model }, { context, devices: [DEVICE] }).then(({ total }) => tile.replaceChildren(h("span", null, "Memory"), h("b", null, bytes(total)),
    h("small", { class: total <= DEVICE ? "good" : "warning-text" }, `${total <= DEVICE ? "fits" : "does not fit"} in ${bytes(DEVICE).replace(".0", "")} with ${whole(context)} tokens`)), () => tile.remove());
  return tile;
}

function perLayer(value) {
  if (value === null) return null;
  return Array.isArray(value) ? `${whole(Math.min(...value))} to ${whole(Math.max(...value))}, by layer` : whole(value);
}

function drawFacts(facts, { model, models }, verdict) {
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
  const line = [summary.architecture, summary.recipe, summary.layers && `${perLayer(summary.layers)} layers`, summary.context && `context ${perLayer(summary.context)}`, summary.license].filter(Boolean);
  const disk = facts.files.reduce((sum, file) => sum + file.nbytes, 0) || facts.nbytes;
  const tile = (label, value, more) => h("div", { class: "tile" }, h("span", null, label), h("b", null, value), h("small", null, more));
  return h("section", { class: "card wide facts" },
    h("h1", null, name(summary.name || facts.name.split("/").pop(), "")),
    h("p", { class: "muted" }, name(line.join(" · "), "")),
    facts.missing.map((finding) => h("p", { class: "warning-text" }, name(`${finding.message}. ${finding.remedy}`, ""))),
    h("div", { class: "tiles" }, tile("Size", bytes(disk), `${short(summary.parameters)} parameters`),
      summary.bits_per_weight !== null && tile("Bits per weight", real(summary.bits_per_weight, 3), types.slice(0, 3).map((share) => share.type).join(", ")),
      qualityTile(models[model]?.quality, tile), drawMemory(facts, model), verdict),
    h("details", null, h("summary", null, "All facts"), h("p", { class: "muted path" }, name(facts.name)),
      h("dl", { class: "facts-list" }, known.map(([label, value]) => h("div", null, h("dt", null, label), h("dd", null, name(value, ""))))),
      types.length > 0 && table("Types of tensors", [["Type"], ["Tensors", "number"], ["Elements", "number"], ["Bytes", "number"], ["Share", "number"]],
        types.map((share) => [share.type, whole(share.tensors), whole(share.elements), whole(share.nbytes), percent(facts.nbytes ? share.nbytes / facts.nbytes : 0)]))));
}

// Findings.

function drawFaults(faults, file) {
  if (!faults.findings.length) {
    return h("p", { class: "good" }, "No findings in the header. Tensor data was not read: ", h("code", null, "ggufkit check --data"), " does that.");
  }
  return h("div", null,
    h("ul", { class: "findings" }, faults.findings.map(drawFinding)),
    faults.total > faults.findings.length && h("p", { class: "muted" }, `${whole(faults.total)} findings in all; ggufkit check lists them.`),
    faults.changes.length > 0 && h("div", { class: "fix" },
      h("h3", null, "What --fix would change"),
      h("ul", { class: "changes" }, faults.changes.map((change) => h("li", null, name(change.key), " ",
        h("del", null, `${change.before_type} `, name(JSON.stringify(change.before), "")), " ",
        h("ins", null, change.kind === "removed" ? "removed" : [`${change.after_type} `, name(JSON.stringify(change.after), "")])))),
      h("p", null, h("code", null, "ggufkit check ", name(file, ""), " --fix"))));
}

function drawFinding(finding) {
  return h("li", { class: finding.severity },
    h("p", null, h("b", { class: "severity" }, finding.severity), " ", name(finding.message, ""), " ", h("code", null, finding.rule)),
    h("p", { class: "muted" }, name(`${finding.remedy}.`, ""), finding.fixable && h("b", null, " ggufkit can fix this.")),
    h("details", null, h("summary", null, `Why ${finding.rule} matters`), h("p", null, finding.explanation),
      h("p", { class: "muted" }, `At byte ${whole(finding.offset)} of `, name(finding.file))));
}

// Where the bytes are.

function drawMap(first, facts, state) {
  const holder = h("div");
  const open = async (group) => {
    note({ group });
    draw(await get("treemap", { model: state.model, group }), group);
  };
  const draw = (map, group) => {
    const total = map.groups.reduce((sum, section) => sum + section.nbytes, 0) || 1;
    const part = (section) => percent(section.nbytes / facts.nbytes);
    const tip = h("div", { class: "tip", "aria-hidden": "true" });
    const cells = map.groups.flatMap((section) => section.cells.map((cell) => drawCell(cell, state.model, tip, group ? null : () => open(section.name))));
    const frames = map.groups.map(({ place: [x, y, width, height] }) => svg("rect", { x, y, width, height, class: "frame" }));
    const labels = group ? map.groups.flatMap((section) => section.cells).map((cell) => placed(h("span", { class: "map-label" }, cell.number === null ? `${whole(cell.count)} smaller tensors` : name(cell.name.replace(/^blk\.(\d+)\./, "$1 ").replace(/\.weight$/, ""))), cell.place, map))
      : map.groups.map((section) => placed(h("button", { type: "button", class: "map-label", onclick: () => open(section.name), title: `Show the ${whole(section.tensors)} tensors of ${visible(section.name)}` }, name(section.name, ""), ` ${part(section)}`), section.place, map));
    holder.replaceChildren(
      h("div", { class: "bar-row map-head" }, group ? [h("button", { type: "button", class: "quiet", onclick: () => open("") }, "← All groups"), h("b", null, name(group, "")), h("span", { class: "muted" }, `${bytes(total)} in ${whole(map.groups[0]?.tensors ?? 0)} tensors`)]
        : h("span", { class: "muted" }, "Areas are bytes. Choose a group to see all its tensors, or a tensor to look at it."), legend()),
      h("div", { class: "map", onpointerleave: () => tip.classList.remove("shown") },
        svg("svg", { viewBox: `0 0 ${map.width} ${map.height}`, class: "treemap", role: "img", preserveAspectRatio: "none",
          "aria-label": `Treemap: ${map.groups.map((section) => `${section.name} ${part(section)}`).join(", ")}` }, cells, frames), labels, tip));
  };
  draw(first, state.group ?? "");
  return h("section", { class: "card wide" }, h("h2", null, "Where the bytes are"), holder);
}

/** Puts a label on its place of the map, if it is large enough for one. */
function placed(label, [x, y, width, height], map) {
  if (width < map.width * 0.05 || height < map.height * 0.09) return null;
  Object.assign(label.style, { left: `${(100 * x) / map.width}%`, top: `${(100 * y) / map.height}%`, maxWidth: `calc(${(100 * width) / map.width}% - 8px)`, maxHeight: `calc(${(100 * height) / map.height}% - 6px)` }); // not an attribute, which the page's policy forbids
  return label;
}

function drawCell(cell, model, tip, openGroup) {
  const [x, y, width, height] = cell.place;
  const isOne = cell.number !== null;
  const open = isOne ? () => go({ view: "tensor", model, t: cell.number }) : openGroup;
  const tell = (event) => {
    tip.replaceChildren(...(isOne ? [name(cell.name), h("br"), `${cell.type} · ${shape(cell.shape)} · ${bytes(cell.nbytes)}`] : [`${whole(cell.count)} smaller tensors · ${bytes(cell.nbytes)}`]));
    const box = tip.parentElement.getBoundingClientRect();
    const left = Math.min(event.clientX - box.left + 12, box.width - tip.offsetWidth - 4);
    Object.assign(tip.style, { left: `${Math.max(left, 0)}px`, top: `${event.clientY - box.top + 16}px` });
    tip.classList.add("shown");
  };
  return svg("rect", { x, y, width, height, class: `cell ${isOne ? bitsClass(cell.bits) : "rest"}${open ? " opens" : ""}`, onclick: open, onpointermove: tell });
}

// The parts of the model, in the order in which a token passes them.

function drawArchitecture(facts, model) {
  const holder = h("div", { class: "flow" }, h("p", { class: "skeleton" }, "…"));
  get("treemap", { model }).then(({ groups }) => {
    const box = (group) => h("a", { class: "box", href: link({ view: "tensors", model, group: group.name }) }, h("b", null, name(group.name, "")), h("small", null, `${bytes(group.nbytes)} · ${whole(group.tensors)} tensor${group.tensors > 1 ? "s" : ""}`));
    const ends = { embedding: 0, output: 1, other: 1 };
    const order = ["attention", "state space", "feed forward", "experts", "norms"];
    const inBlocks = groups.filter((group) => order.includes(group.name)).sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name));
    const outside = groups.filter((group) => !order.includes(group.name));
    const layers = perLayer(facts.summary.layers);
    const arrow = () => h("span", { class: "arrow", "aria-hidden": "true" }, "→");
    const stages = [outside.filter((group) => ends[group.name] === 0).map(box),
      inBlocks.length ? [h("div", { class: "blocks" }, h("p", null, layers ? `${layers} blocks` : "blocks", facts.summary.experts ? ` · ${perLayer(facts.summary.experts)} experts, ${perLayer(facts.summary.experts_used) ?? "some"} used` : ""), h("div", null, inBlocks.map(box)))] : [],
      outside.filter((group) => ends[group.name] !== 0).map(box)].filter((stage) => stage.length);
    holder.replaceChildren(...stages.flatMap((stage, index) => [index > 0 && arrow(), h("div", { class: "stage" }, stage)]).filter(Boolean));
  }, () => holder.replaceChildren());
  return h("section", { class: "card wide" }, h("h2", null, "Architecture"), holder);
}

const LEGEND = [["b1", "under 2"], ["b2", "2"], ["b3", "3"], ["b4", "4"], ["b5", "5"], ["b6", "6"], ["b8", "8"], ["b16", "16"], ["b32", "32"]];

function legend() {
  return h("ul", { class: "legend", "aria-label": "Colours by bits per weight" }, h("li", { class: "muted" }, "bits per weight"),
    LEGEND.map(([kind, text]) => h("li", null, h("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), text)));
}

// The grid of layers.

const STATISTICS = { deviation: "standard deviation", largest: "largest magnitude", zeros: "share of zeros" };
const CELL = 16; // height; the width follows from the number of layers
const [NARROW, WIDE, ROOM] = [14, 40, 1000];
const AT_ONCE = 8; // samples

function drawGrid(grid, state) {
  const samples = new Map();
  const key = h("div");
  const wide = Math.min(Math.max(Math.floor(ROOM / grid.layers.length), NARROW), WIDE);
  const rects = grid.cells.map(([role, layer]) => svg("rect", { x: layer * wide, y: role * CELL, width: wide - 1, height: CELL - 1, rx: 2 }));
  const { board, readout } = drawBoard(grid, rects, samples, state, wide);
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

function drawBoard(grid, rects, samples, state, wide) {
  const cellAt = new Map(grid.cells.map((cell) => [`${cell[0]},${cell[1]}`, cell]));
  const [width, height] = [grid.layers.length * wide, grid.roles.length * CELL];
  const readout = h("output", { class: "readout", "aria-live": "polite" }, "Choose a cell, the name of a row, or the number of a layer.");
  const cursor = svg("rect", { width: wide, height: CELL, rx: 2, class: "cursor", x: -99, y: -99 });
  let place = [0, 0];
  const move = (role, layer) => {
    place = [Math.min(Math.max(role, 0), grid.roles.length - 1), Math.min(Math.max(layer, 0), grid.layers.length - 1)];
    cursor.setAttribute("x", place[1] * wide - 0.5);
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
  h("div", { class: "roles" }, grid.roles.map((role) => h("a", { href: link({ view: "tensors", model: state.model, q: role }) }, name(role)))),
  h("div", null, drawLayerNumbers(grid, state, wide), picture));
  return { board, readout };
}

/** The numbers of the layers: each filters the list of tensors. */
function drawLayerNumbers(grid, state, wide) {
  const every = [1, 2, 5, 10, 20, 50].find((step) => step * wide >= 26) ?? 100;
  const numbers = grid.layers.map((layer, index) => (index % every === 0 ? svg("text", { x: index * wide + wide / 2, y: 12, class: "layer-number opens",
    onclick: () => go({ view: "tensors", model: state.model, q: `blk.${layer}.` }) }, layer) : null));
  return svg("svg", { viewBox: `0 0 ${grid.layers.length * wide} 16`, width: grid.layers.length * wide, height: 16, class: "layer-numbers", "aria-hidden": "true" }, numbers);
}

function byClass(grid, rects, by, key) {
  grid.cells.forEach((cell, index) => {
    rects[index].setAttribute("class", `cell ${by === "type" ? `k${cell[3] % 10}` : bitsClass(grid.types[cell[3]].bits)}`);
    rects[index].removeAttribute("fill-opacity");
  });
  key.replaceChildren(by === "type" ? h("ul", { class: "legend" }, grid.types.map((type, index) => h("li", null,
    h("span", { class: `swatch k${index % 10}`, "aria-hidden": "true" }), `${type.name} `, h("small", null, `${real(type.bits)} bits`)))) : legend());
}

/** Colours by a statistic: samples come a few at a time, and the colours follow. */
async function sampled({ grid, rects, samples, by, state, key }) {
  const paint = () => {
    const values = grid.cells.map((cell) => samples.get(cell[2])?.[by]).map((value) => (typeof value === "number" ? value : null));
    const most = Math.max(...values.filter((value) => value !== null), 0);
    values.forEach((value, index) => {
      rects[index].setAttribute("class", `cell ${value === null ? "rest" : "heat"}`);
      if (value !== null) rects[index].setAttribute("fill-opacity", (0.06 + 0.94 * Math.sqrt(most ? value / most : 0)).toFixed(3));
    });
    key.replaceChildren(h("p", { class: "muted" }, `Full colour is ${real(most)}: ${STATISTICS[by]} of a sample of each tensor, ${whole(samples.size)} of ${whole(grid.cells.length)} read.`));
  };
  paint();
  const remaining = grid.cells.map((cell) => cell[2]).filter((number) => !samples.has(number));
  let wasShown = false;
  for (let index = 0; index < remaining.length && key.dataset.by === by; index += AT_ONCE) {
    await Promise.all(remaining.slice(index, index + AT_ONCE).map((number) => get("sample", { model: state.model, tensor: number })
      .then((sample) => samples.set(number, sample), () => samples.set(number, {}))));
    if (wasShown && !key.isConnected) return; // another view is shown
    wasShown = key.isConnected;
    if (key.dataset.by === by) paint();
  }
}

function drawFiles(facts) {
  const section = card(`Files (${whole(facts.files.length)})`, table("Files", [["File"], ["Bytes", "number"], ["Of tensors", "number"]],
    facts.files.map((file) => [name(file.name), whole(file.nbytes), whole(file.data_nbytes)])));
  section.classList.add("wide");
  return section;
}
