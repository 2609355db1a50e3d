// Tokens: search them, and see how a text is split.

import { get, post, Refusal } from "../api.js";
import { h, later, lines, name, visible } from "../dom.js";
import { real, whole } from "../format.js";
import { pager, searchField } from "../parts.js";
import { note } from "../state.js";

const COUNT = 50;
const SHOWN = 3000; // tokens of a text
const COLOURS = 6;
const SAMPLE = "The quick brown fox – 日本語, emoji 🙂 and code:\n\tfor (int i = 0; i < 10; i++) { }";

export async function show(state) {
  const facts = await get("tokenizer", { model: state.model });
  if (!facts.tokens) {
    return h("div", { class: "grid" }, h("section", { class: "card" }, h("h1", null, "Tokenizer"), h("p", null, "This file has no vocabulary.")));
  }
  return h("div", { class: "grid" }, drawFacts(facts), drawSplit(state), await drawSearch(state));
}

function drawFacts(facts) {
  const known = [["Kind", facts.kind], ["Pre-tokenizer", facts.pre], ["Tokens", whole(facts.tokens)], ["Merges", facts.merges ? whole(facts.merges) : ""]];
  return h("section", { class: "card wide" }, h("h1", null, "Tokenizer"),
    h("dl", { class: "facts-list" }, known.filter(([, value]) => value).map(([label, value]) => h("div", null, h("dt", null, label), h("dd", null, name(value, "")))),
      facts.special.map((token) => h("div", null, h("dt", null, token.key), h("dd", null, `${token.id} `, name(token.text))))));
}

function drawSplit(state) {
  const result = h("div", { "aria-live": "polite" });
  const special = h("input", { type: "checkbox", checked: state.special !== "no" });
  const area = h("textarea", { rows: 4, spellcheck: "false", value: state.text ?? SAMPLE });
  let run = 0;
  const draw = async () => {
    const call = ++run;
    note({ text: area.value === SAMPLE ? "" : area.value.slice(0, 1000), special: special.checked ? "" : "no" });
    try {
      const split = await post("split", { model: state.model }, { text: area.value, special: special.checked });
      if (call === run) result.replaceChildren(...drawTokens(split, area.value));
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      result.replaceChildren(h("p", { class: "warning-text" }, name(`${error.message}. ${error.remedy}`, "")));
    }
  };
  const soon = later(draw, 200);
  area.addEventListener("input", soon);
  special.addEventListener("change", draw);
  result.append(h("p", { class: "muted" }, "Building the tokenizer…"));
  draw();
  return h("section", { class: "card wide" }, h("h2", null, "A text in tokens"),
    h("label", { class: "block-label" }, "Text", area),
    h("label", { class: "check" }, special, " Add the tokens that llama.cpp adds at the beginning and end"), result);
}

function drawTokens(split, text) {
  const characters = Array.from(text); // positions count characters, not UTF-16 units
  let last = 0;
  const spans = split.tokens.slice(0, SHOWN).map((token, index) => {
    const covered = characters.slice(Math.max(token.start, last), token.stop).join("");
    last = Math.max(last, token.stop);
    const isAdded = token.start === token.stop;
    const label = isAdded ? token.text : covered || "·";
    return h("span", { class: `token t${index % COLOURS}${isAdded ? " added" : ""}`, title: `${token.id}: ${visible(token.text)}` },
      h("bdi", null, marked(label)), h("small", null, token.id));
  });
  return [h("p", { class: "muted" }, `${whole(split.count)} tokens, ${whole(split.characters)} characters`,
    split.count ? `, ${real(split.characters / split.count, 3)} characters a token` : ""),
  h("div", { class: "tokens" }, spans), split.count > SHOWN && h("p", { class: "muted" }, `The first ${whole(SHOWN)} are shown.`),
  h("details", null, h("summary", null, "Ids"), h("pre", { class: "text", tabindex: "0" }, JSON.stringify(split.tokens.map((token) => token.id))))].filter(Boolean);
}

const marked = (text) => lines(text).replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll(" ", "\u00a0");

async function drawSearch(state) {
  const place = { start: Number(state.start ?? 0), search: state.q ?? "" };
  const list = h("div");
  const draw = async () => {
    note({ start: place.start || "", q: place.search });
    const page = await get("tokens", { model: state.model, search: place.search, start: place.start, count: COUNT });
    list.replaceChildren(pager(page, COUNT, "tokens", (start) => { place.start = start; draw(); }),
      h("ul", { class: "keys-list token-list" }, page.rows.map((row) => drawRow(row, state))));
  };
  await draw();
  return h("section", { class: "card wide" }, h("h2", null, "Vocabulary"),
    searchField("Search by text or id", place.search, later((search) => { Object.assign(place, { search, start: 0 }); draw(); })), list);
}

function drawRow(row, state) {
  const holder = h("div", { class: "value-full" });
  const details = h("details", { ontoggle: () => {
    if (details.open && !holder.firstChild) drawToken(row, state, holder);
  } }, h("summary", null, h("span", { class: "number id" }, row.id), h("span", { class: "key" }, name(row.text)),
    h("span", { class: "kind" }, row.type ?? ""), h("code", { class: "short" }, row.bytes)), holder);
  return h("li", null, details);
}

async function drawToken(row, state, holder) {
  const token = await get("token", { model: state.model, id: row.id });
  const merges = (label, list) => list.length > 0 && h("div", null, h("h3", null, label),
    h("ul", { class: "merges" }, list.map((merge) => h("li", null, h("small", null, `${whole(merge.rank)} `), name(merge.left), " + ", name(merge.right)))));
  const known = [["Text in the file", token.text], ["Stands for", token.shown], ["Bytes", token.bytes], ["Type", token.type], ["Score", token.score === null ? null : real(token.score, 7)]];
  holder.replaceChildren(h("dl", { class: "facts-list" }, known.filter(([, value]) => value !== null).map(([label, value]) => h("div", null, h("dt", null, label), h("dd", null, name(value, ""))))),
    ...[merges("Merged from", token.made), merges("Merged into", token.used)].filter(Boolean));
}
