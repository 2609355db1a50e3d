// Draws the view that the address names, and listens to keys.

import { get, Refusal } from "./api.js";
import { h, name, visible } from "./dom.js";
import { basename, bytes, distinct } from "./format.js";
import { go, link, read } from "./state.js";
import * as compare from "./views/compare.js";
import * as memory from "./views/memory.js";
import * as metadata from "./views/metadata.js";
import * as overview from "./views/overview.js";
import * as template from "./views/template.js";
import * as tensor from "./views/tensor.js";
import * as tensors from "./views/tensors.js";
import * as tokenizer from "./views/tokenizer.js";

const VIEWS = { overview, metadata, tensors, tokenizer, template, memory, compare, tensor };
const LISTED = ["overview", "metadata", "tensors", "tokenizer", "template", "memory", "compare"];
const THEMES = ["auto", "light", "dark"];
const content = document.getElementById("content");
const status = document.getElementById("status");
let models = [];
let drawn = 0;
let shownView = "";

function say(text) {
  status.textContent = text;
  status.classList.toggle("shown", Boolean(text));
  clearTimeout(say.timer);
  say.timer = setTimeout(() => status.classList.remove("shown"), 2500);
}

function problem(error) {
  const remedy = error instanceof Refusal ? error.remedy : "";
  return h("section", { class: "card problem", role: "alert" },
    h("h2", null, "This cannot be shown"),
    h("p", null, name(error.message, "")), remedy && h("p", null, name(remedy, "")));
}

function drawNavigation(state) {
  const chosen = Number(state.model ?? 0);
  const several = models.length > 1;
  const listed = LISTED.filter((view) => several || view !== "compare");
  document.getElementById("views").replaceChildren(h("ul", null, listed.map((view, number) => {
    const current = view === state.view || (view === "tensors" && state.view === "tensor");
    const href = link({ view, model: state.model });
    return h("li", null, h("a", { href, "aria-current": current ? "page" : null, "data-key": number + 1 },
      view[0].toUpperCase() + view.slice(1)));
  })));
  document.querySelector("#views [aria-current=page]")?.scrollIntoView({ inline: "center", block: "nearest" });
  const short = distinct(models.map((file) => file.name));
  const label = ({ nbytes }, number) => h("span", { class: "model" }, name(short[number]), " ", h("small", null, bytes(nbytes)));
  document.getElementById("models").replaceChildren(...(several
    ? models.map((file, number) => h("a", {
      href: link({ view: state.view === "tensor" ? "tensors" : state.view, model: number }),
      "aria-current": number === chosen ? "true" : null, title: visible(file.name) }, label(file, number)))
    : models.map(label)));
}

async function draw() {
  const state = read();
  const view = VIEWS[state.view] ? state.view : "overview";
  const run = ++drawn;
  drawNavigation({ ...state, view });
  const model = Math.min(Number(state.model ?? 0) || 0, Math.max(models.length - 1, 0));
  document.title = `${view} – ${visible(basename(models[model]?.name ?? "ggufkit"))}`;
  content.setAttribute("aria-busy", "true");
  let drawing;
  try {
    drawing = await VIEWS[view].show({ ...state, model, models, say });
  } catch (error) {
    if (!(error instanceof Refusal)) console.error(error);
    drawing = problem(error);
  }
  if (run !== drawn) return; // another view was asked for meanwhile
  content.replaceChildren(drawing);
  content.className = `view-${view}`;
  content.removeAttribute("aria-busy");
  content.dispatchEvent(new CustomEvent("shown"));
  if (shownView && shownView !== view) {
    content.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  shownView = view;
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.getElementById("theme").textContent = `Theme: ${theme}`;
  try {
    localStorage.setItem("ggufkit-theme", theme);
  } catch { /* private windows may refuse */ }
  dispatchEvent(new CustomEvent("theme"));
}

function nextTheme() {
  const current = THEMES.indexOf(document.documentElement.dataset.theme);
  setTheme(THEMES[(current + 1) % THEMES.length]);
}

const KEYS = {
  "?": () => document.getElementById("help").showModal(),
  "/": () => (content.querySelector("input[type=search]") ?? content.querySelector("textarea"))?.focus(),
  "[": () => content.querySelector("[data-go=previous]:not([disabled])")?.click(),
  "]": () => content.querySelector("[data-go=next]:not([disabled])")?.click(),
  t: nextTheme,
  m: () => {
    const state = read();
    if (models.length > 1) go({ ...state, view: state.view === "tensor" ? "tensors" : state.view, t: "", model: (Number(state.model ?? 0) + 1) % models.length });
  },
};

addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select, dialog");
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping) return;
  const action = KEYS[event.key];
  const chosen = document.querySelector(`#views a[data-key="${CSS.escape(event.key)}"]`);
  if (!action && !chosen) return;
  event.preventDefault();
  if (action) action();
  else chosen.click();
});

document.getElementById("theme").addEventListener("click", nextTheme);
document.getElementById("keys").addEventListener("click", KEYS["?"]);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash is the state
  content.focus();
});
let stored = "auto";
try {
  stored = localStorage.getItem("ggufkit-theme") ?? "auto";
} catch { /* private windows may refuse */ }
setTheme(THEMES.includes(stored) ? stored : "auto");
addEventListener("hashchange", draw);
get("models").then((drawing) => {
  models = drawing.models;
  return draw();
}).catch((error) => content.replaceChildren(problem(error)));
