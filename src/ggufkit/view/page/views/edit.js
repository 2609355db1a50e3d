// Changes keys: a form, the changes that it would make, then the edit itself; and undo.

import { get, post, Refusal } from "../api.js";
import { choice, field, h, lines, name } from "../dom.js";
import { whole } from "../format.js";

const NUMBERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64"];
const TYPES = ["string", "bool", ...NUMBERS, ...["string", "bool", ...NUMBERS].map((type) => `array[${type}]`)];

/** Whether the server was started to edit, and this file is one that it may edit. */
export const canEdit = (state) => Boolean(state.models[state.model]?.editable);

/** What stands above the list of keys: a new key, and undo. */
export async function editBar(state) {
  const facts = await get("edit", { model: state.model }, { keep: false });
  if (facts.reason) return h("p", { class: "muted" }, "This file cannot be edited here: ", name(facts.reason, ""));
  const holder = h("div", { "aria-live": "polite" });
  const close = () => holder.replaceChildren();
  const undo = () => preview(state, { undo: true }, holder, close);
  return h("div", null, h("p", { class: "bar-row" },
    h("button", { type: "button", class: "quiet", onclick: () => holder.replaceChildren(newKey(state, close)) }, "Add a key"),
    h("button", { type: "button", class: "quiet", disabled: !facts.undo.length, onclick: undo }, "Undo the last edit")), holder);
}

function newKey(state, close) {
  const key = h("input", { type: "text", spellcheck: "false", autocomplete: "off" });
  let type = "string";
  const types = choice(TYPES.map((title) => [title]), type, (value) => { type = value; });
  const isItem = () => key.value.endsWith("]"); // of an array, whose type it has
  const request = (value) => ({ set: [{ key: key.value, value, ...(isItem() ? {} : { type }) }] });
  return form(state, "", [field("Key", key), field("Type", types)], request, close);
}

/** A form for the value of a key in the list. */
export async function editKey(state, row, close) {
  const { key, text } = await get("edit-text", { model: state.model, key: row.number }, { keep: false });
  const remove = h("button", { type: "button", class: "quiet", onclick: () => preview(state, { drop: [key] }, holder, close) }, "Remove this key");
  const holder = h("div", null, form(state, text, [remove], (value) => ({ set: [{ key, value }] }), close));
  return holder;
}

function form(state, text, fields, request, close) {
  const area = h("textarea", { rows: Math.min(text.split("\n").length + 1, 24), spellcheck: "false", "aria-label": "Value", value: text });
  const changes = h("div", { "aria-live": "polite" });
  const end = text.includes("\r\n") ? "\r\n" : "\n"; // which a text area does not keep
  const show = () => preview(state, request(area.value.replaceAll("\n", end)), changes, () => changes.replaceChildren());
  return h("div", { class: "fix edit" }, area, h("p", { class: "bar-row" }, fields,
    h("button", { type: "button", onclick: show }, "Show the changes"),
    h("button", { type: "button", class: "quiet", onclick: close }, "Cancel")), changes);
}

/** Shows what a request would change; the button carries out just this. */
async function preview(state, request, holder, close) {
  try {
    const planned = await post("edit-preview", { model: state.model }, request);
    const carryOut = async () => {
      try {
        await post("edit-apply", { model: state.model }, { ...request, state: planned.state });
        location.reload(); // everything that was shown may be different now
      } catch (error) {
        holder.replaceChildren(refused(error));
      }
    };
    holder.replaceChildren(h("div", { class: "fix" }, h("h3", null, "Changes"),
      planned.changes.length ? h("ul", { class: "changes" }, planned.changes.map(drawChange)) : h("p", null, "Nothing would change."),
      h("p", { class: "bar-row" }, planned.changes.length > 0 && h("button", { type: "button", onclick: carryOut }, request.undo ? "Undo" : "Apply"),
        h("button", { type: "button", class: "quiet", onclick: close }, "Close"))));
  } catch (error) {
    holder.replaceChildren(refused(error));
  }
}

function refused(error) {
  if (!(error instanceof Refusal)) throw error;
  return h("p", { class: "warning-text", role: "alert" }, name(`${error.message}. ${error.remedy}`, ""));
}

function drawChange(change) {
  const value = (type, short) => [`${type} `, name(JSON.stringify(short), "")];
  const before = change.kind !== "added" && h("del", null, value(change.before_type, change.before));
  const after = change.kind !== "removed" && h("ins", null, value(change.after_type, change.after));
  return h("li", null, h("b", null, change.kind), " ", name(change.key), " ", drawDetails(change) ?? [before, " ", after]);
}

function drawDetails(change) {
  const isLong = change.lines?.length > 2 || JSON.stringify([change.before, change.after]).length > 160;
  if (change.lines && isLong) {
    const isShown = change.lines.some((line) => line.in !== "both");
    return h("pre", { class: "text", tabindex: "0" }, !isShown && "Only the ends of lines differ.\n", change.lines.map((line) => {
      const [tag, mark] = { both: ["span", "  "], before: ["del", "− "], after: ["ins", "+ "] }[line.in];
      return h(tag, { class: "line" }, mark, lines(line.text), "\n");
    }));
  }
  if (!change.item_count) return null;
  const items = change.items.map(([index, before, after]) => h("li", null, `[${whole(index)}] `, h("del", null, name(JSON.stringify(before), "")), " ", h("ins", null, name(JSON.stringify(after), ""))));
  return h("ul", null, items, change.item_count > items.length && h("li", null, `${whole(change.item_count)} items in all`));
}
