// The tensors: a tree of the model's parts, or one list that is sorted; search, filter by type.

import { get } from "../api.js";
import { choice, h, later, name } from "../dom.js";
import { bitsClass, bytes, percent, shape, whole } from "../format.js";
import { pager, searchField } from "../parts.js";
import { link, note } from "../state.js";

const COUNT = 100; // parts, or tensors of one part
const COLUMNS = [["name", "Name"], ["type", "Type"], ["bits", "Bits"], ["", "Shape"], ["nbytes", "Bytes"], ["offset", "Offset"], ["", "Share"]];
const CLASSES = { nbytes: "number", offset: "number minor", bits: "number minor" };

export async function show(state) {
  const { model } = state;
  const place = { start: Number(state.start ?? 0), search: state.q ?? "", type: state.type ?? "", group: state.group ?? "", sort: state.sort ?? "" };
  const opened = new Set((state.open ?? "").split(",").filter(Boolean));
  const facts = await get("overview", { model });
  const list = h("div");
  const draw = async () => {
    note({ start: place.start || "", q: place.search, type: place.type, group: place.group, sort: place.sort });
    const table = place.sort ? drawList : drawTree;
    list.replaceChildren(...await table({ model, place, opened, nbytes: facts.nbytes, restart, to: (start) => { place.start = start; draw(); } }));
  };
  const restart = (changes) => { Object.assign(place, changes, { start: 0 }); return draw(); };
  await draw();
  const types = facts.summary.types.map((share) => [share.type, `${share.type} (${whole(share.tensors)})`]);
  return h("div", { class: "grid" }, h("section", { class: "card wide" }, h("h1", null, "Tensors"),
    h("div", { class: "bar-row" },
      searchField("Search names", place.search, later((search) => restart({ search }))),
      h("label", { class: "field" }, h("span", null, "Type"), choice([["", "all types"], ...types], place.type, (type) => restart({ type }))),
      place.group && chip(place.group, restart)),
    list));
}

/** The group that the list is limited to; a click shows all. */
function chip(group, restart) {
  const button = h("button", { type: "button", class: "quiet", "aria-label": `Show all groups, not only ${group}`, onclick: () => { button.remove(); restart({ group: "" }); } }, name(group, ""), " ×");
  return button;
}

function drawHead([key, text], place, restart) {
  const direction = key && place.sort === key ? "ascending" : key && place.sort === `-${key}` ? "descending" : "none";
  const next = { none: key, ascending: `-${key}`, descending: "" }[direction];
  const arrow = { none: "", ascending: " ↑", descending: " ↓" }[direction];
  return h("th", { scope: "col", class: CLASSES[key], "aria-sort": key ? direction : null },
    key ? h("button", { type: "button", class: "sort", onclick: () => restart({ sort: next }) }, text, h("span", { "aria-hidden": "true" }, arrow)) : text);
}

function drawTable({ place, restart }, ...bodies) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Tensors" }, h("table", { class: "tensors" },
    h("thead", null, h("tr", null, COLUMNS.map((column) => drawHead(column, place, restart)))), bodies));
}

// One list, in the order of a column.

async function drawList(view) {
  const { model, place, to, nbytes } = view;
  const page = await get("tensors", { model, ...place, count: COUNT });
  const largest = Math.max(...page.rows.map((row) => row.nbytes));
  return [pager(page, COUNT, `tensors, ${bytes(page.nbytes)}`, to),
    drawTable(view, h("tbody", null, page.rows.map((row) => drawRow(row, model, { largest, nbytes }))))];
}

function drawRow(row, model, scale) {
  return h("tr", null,
    h("td", null, h("a", { href: link({ view: "tensor", model, t: row.number }) }, name(row.name)), !row.whole && h("b", { class: "warning-text" }, " missing")),
    h("td", null, h("span", { class: `tag ${bitsClass(row.bits)}` }, row.type)),
    h("td", { class: "number minor" }, row.bits.toFixed(2)),
    h("td", { class: "shape" }, shape(row.shape)),
    h("td", { class: "number" }, whole(row.nbytes)),
    h("td", { class: "number minor" }, row.offset === null ? "–" : whole(row.offset)),
    share(row.nbytes, scale, "share minor"));
}

/** A cell with the share of all bytes, and a bar that the largest neighbour fills. */
function share(part, { largest, nbytes }, className = "share") {
  const bar = h("span", { class: "bytes-bar", "aria-hidden": "true" });
  bar.style.width = `${largest ? (100 * part) / largest : 0}%`; // not an attribute, which the page's policy forbids
  return h("td", { class: className }, h("span", { class: "bytes-track" }, bar), h("span", { class: "part" }, percent(nbytes ? part / nbytes : 0)));
}

// The tree: each part of the model opens.

async function drawTree(view) {
  const { model, place, to, opened } = view;
  const page = await get("tensor-parts", { model, ...place, count: COUNT });
  const isShort = page.tensors <= COUNT; // all fit on a page: what a search finds is seen at once
  const parts = page.rows.map((part) => drawPart(part, view, page.largest));
  await Promise.all(parts.filter(({ part }) => isShort || opened.has(part.name)).map(({ open }) => open(true)));
  const all = h("button", { type: "button", class: "quiet", onclick: async () => {
    const isOpening = !parts.every(({ isOpen }) => isOpen());
    for (const { open } of parts) await open(isOpening);
    keep(parts, opened);
    tell();
  } });
  const tell = () => { all.textContent = parts.every(({ isOpen }) => isOpen()) ? "Close all" : "Open all"; };
  parts.forEach(({ button, open, isOpen }) => button.addEventListener("click", async () => {
    await open(!isOpen());
    keep(parts, opened);
    tell();
  }));
  tell();
  return [h("div", { class: "bar-row" }, pager(page, COUNT, `parts with ${whole(page.tensors)} tensors, ${bytes(page.nbytes)}`, to), parts.length > 0 && all),
    drawTable(view, parts.map(({ bodies }) => bodies))];
}

/** Keeps in the address which parts are open. */
function keep(parts, opened) {
  parts.forEach(({ part, isOpen }) => (isOpen() ? opened.add(part.name) : opened.delete(part.name)));
  note({ open: [...opened].join(",") });
}

function drawPart(part, { model, place, nbytes }, largest) {
  const rows = h("tbody", { hidden: true });
  const button = h("button", { type: "button", class: "twist", "aria-expanded": "false" }, h("span", { class: "triangle", "aria-hidden": "true" }), name(part.name, ""));
  const isOpen = () => !rows.hidden;
  const fill = async (start) => {
    const page = await get("tensors", { model, ...place, part: part.name, start, count: COUNT });
    const most = Math.max(...page.rows.map((row) => row.nbytes));
    rows.replaceChildren(...page.rows.map((row) => drawRow(row, model, { largest: most, nbytes })));
    if (page.total > COUNT) rows.append(h("tr", { class: "more" }, h("td", { colspan: COLUMNS.length }, pager(page, COUNT, "tensors", fill))));
  };
  const open = async (opens) => {
    if (opens && !rows.firstChild) await fill(0);
    rows.hidden = !opens;
    button.setAttribute("aria-expanded", String(opens));
  };
  const head = h("tbody", { class: "branch" }, h("tr", null, h("th", { scope: "rowgroup" }, button),
    h("td", { colspan: 3, class: "muted" }, `${whole(part.tensors)} tensor${part.tensors === 1 ? "" : "s"}`),
    h("td", { class: "number" }, whole(part.nbytes)), h("td", { class: "minor" }), share(part.nbytes, { largest, nbytes })));
  return { part, button, open, isOpen, bodies: [head, rows] };
}
