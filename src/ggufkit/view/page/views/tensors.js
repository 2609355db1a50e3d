// The list of tensors: search, filter by type, sort.

import { get } from "../api.js";
import { choice, h, later, name } from "../dom.js";
import { bitsClass, bytes, shape, whole } from "../format.js";
import { pager, searchField } from "../parts.js";
import { link, note } from "../state.js";

const COUNT = 100;
const COLUMNS = [["name", "Name"], ["type", "Type"], ["bits", "Bits"], ["", "Shape"], ["nbytes", "Bytes"], ["offset", "Offset"]];
const NUMBERS = ["nbytes", "offset", "bits"];

export async function show(state) {
  const { model } = state;
  const place = { start: Number(state.start ?? 0), search: state.q ?? "", type: state.type ?? "", group: state.group ?? "", sort: state.sort ?? "" };
  const facts = await get("overview", { model });
  const list = h("div");
  const draw = async () => {
    note({ start: place.start || "", q: place.search, type: place.type, group: place.group, sort: place.sort });
    const page = await get("tensors", { model, ...place, count: COUNT });
    list.replaceChildren(
      pager(page, COUNT, `tensors, ${bytes(page.nbytes)}`, (start) => { place.start = start; draw(); }),
      drawTable(page, place, (changes) => restart(changes), model));
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
  return h("th", { scope: "col", class: NUMBERS.includes(key) ? "number" : null, "aria-sort": key ? direction : null },
    key ? h("button", { type: "button", class: "sort", onclick: () => restart({ sort: next }) }, text, h("span", { "aria-hidden": "true" }, arrow)) : text);
}

function drawTable(page, place, restart, model) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Tensors" }, h("table", { class: "tensors" },
    h("thead", null, h("tr", null, COLUMNS.map((column) => drawHead(column, place, restart)))),
    h("tbody", null, page.rows.map((row) => h("tr", null,
      h("td", null, h("a", { href: link({ view: "tensor", model, t: row.number }) }, name(row.name)), !row.whole && h("b", { class: "warning-text" }, " missing")),
      h("td", null, h("span", { class: `tag ${bitsClass(row.bits)}` }, row.type)),
      h("td", { class: "number" }, row.bits.toFixed(2)),
      h("td", { class: "shape" }, shape(row.shape)),
      h("td", { class: "number" }, whole(row.nbytes)),
      h("td", { class: "number" }, row.offset === null ? "–" : whole(row.offset)))))));
}
