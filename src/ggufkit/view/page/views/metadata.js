// Keys and values; long values in parts.

import { get, Refusal } from "../api.js";
import { copy, h, later, lines, name, visible } from "../dom.js";
import { real, whole } from "../format.js";
import { pager, searchField } from "../parts.js";
import { link, note } from "../state.js";
import { canEdit, editBar, editKey } from "./edit.js";

const COUNT = 100;
const ITEMS = 200;
const CHARACTERS = 20_000;

export async function show(state) {
  const place = { start: Number(state.start ?? 0), search: state.q ?? "" };
  const list = h("div");
  const draw = async () => {
    note({ start: place.start || "", q: place.search });
    const page = await get("metadata", { model: state.model, search: place.search, start: place.start, count: COUNT });
    list.replaceChildren(
      pager(page, COUNT, "keys", (start) => { place.start = start; draw(); }),
      h("ul", { class: "keys-list" }, page.rows.map((row) => drawRow(row, state))));
    if (!page.rows.length) list.append(h("p", { class: "muted" }, "No key or value contains this."));
  };
  await draw();
  const chosen = state.key !== undefined && list.querySelector(`[data-number="${CSS.escape(state.key)}"]`);
  if (chosen) chosen.open = true;
  return h("div", { class: "grid" }, h("section", { class: "card wide" }, h("h1", null, "Metadata"), canEdit(state) && await editBar(state),
    searchField("Search keys and values", place.search, later((text) => { Object.assign(place, { search: text, start: 0 }); draw(); })), list));
}

function drawRow(row, state) {
  const holder = h("div", { class: "value-full" });
  const details = h("details", { "data-number": row.number, ontoggle: () => {
    if (details.open && !holder.firstChild) drawValue(row, state, holder);
  } }, h("summary", null,
    h("span", { class: "key" }, name(row.key)), h("span", { class: "kind" }, row.type, row.length === null ? "" : ` · ${whole(row.length)}`),
    h("span", { class: "short" }, name(shortText(row.value), ""))), holder);
  return h("li", null, details);
}

function shortText(value) {
  if (Array.isArray(value)) return value.map((item) => (typeof item === "string" ? JSON.stringify(item) : real(item, 6))).join(", ");
  return typeof value === "string" ? value : typeof value === "number" ? real(value, 9) : String(value);
}

async function drawValue(row, state, holder) {
  const body = h("div");
  const edit = async () => {
    try {
      body.replaceChildren(await editKey(state, row, () => draw(0)));
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      state.say(`${error.message}. ${error.remedy}`);
    }
  };
  holder.append(h("p", { class: "bar-row" },
    h("button", { type: "button", onclick: () => copyDocument(row, state) }, "Copy as JSON"),
    canEdit(state) && h("button", { type: "button", class: "quiet", onclick: edit }, "Edit"),
    h("a", { href: link({ view: "metadata", model: state.model, q: state.q, key: row.number }) }, "Link to this key")), body);
  const [count, what] = row.type === "string" ? [CHARACTERS, "characters"] : [ITEMS, "items"];
  const draw = async (start) => {
    const value = await get("value", { model: state.model, key: row.number, start, count });
    const parts = value.length === null ? [] : [pager({ total: value.length, start }, count, what, draw)];
    body.replaceChildren(...parts, drawPart(value, start));
  };
  await draw(0);
}

function drawPart(part, start) {
  if (!Array.isArray(part.value)) {
    return h("pre", { class: "text", tabindex: "0" }, typeof part.value === "string" ? lines(part.value) : String(part.value));
  }
  const item = (value) => (typeof value === "number" ? String(value) : visible(typeof value === "string" ? value : JSON.stringify(value)));
  return h("ol", { class: "items", start }, part.value.map((value) => h("li", null, h("bdi", null, item(value)))));
}

async function copyDocument(row, state) {
  const value = await get("document", { model: state.model, key: row.number }, { keep: false });
  if (value === null) state.say("The value is too long to copy; ggufkit inspect --key prints it");
  else await copy(JSON.stringify(value, null, 2), state.say);
}
