// Chat templates: render a conversation, and compare with another file's template.

import { get, post, Refusal } from "../api.js";
import { choice, copy, h, later, lines, name } from "../dom.js";
import { basename, whole } from "../format.js";
import { link, note } from "../state.js";
import { canEdit } from "./edit.js";

const MESSAGES = [{ role: "system", content: "Answer briefly." }, { role: "user", content: "What is the capital of Portugal?" }];
const ROLES = ["system", "user", "assistant", "tool"];
const TOOL = [{ type: "function", function: { name: "weather", description: "The weather of a city", parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } } }];

export async function show(state) {
  const facts = await get("templates", { model: state.model });
  const names = Object.keys(facts.templates);
  if (!names.length) {
    return h("div", { class: "grid" }, h("section", { class: "card" }, h("h1", null, "Chat template"), h("p", null, "This file has no chat template."),
      h("p", { class: "muted" }, "Add one: ", editLink(state) || h("code", null, "ggufkit edit FILE --chat-template template.jinja"))));
  }
  return h("div", { class: "grid" }, ...drawEditor(state, names), drawText(facts, names, state), ...(state.models.length > 1 ? [await drawDifference(state, facts)] : []));
}

function stored(text) {
  try {
    const messages = JSON.parse(text);
    return Array.isArray(messages) && messages.every((message) => message && typeof message === "object") ? messages : MESSAGES;
  } catch {
    return MESSAGES;
  }
}

function drawEditor(state, names) {
  let messages = stored(state.messages ?? "");
  const result = h("div", { "aria-live": "polite" });
  const rows = h("div", { class: "messages" });
  const tools = h("textarea", { rows: 5, spellcheck: "false", placeholder: "A list of JSON schemas", value: state.tools ?? "" });
  const opens = h("input", { type: "checkbox", checked: state.open !== "no" });
  let template = state.template ?? "";
  const draw = async () => {
    const text = JSON.stringify(messages);
    note({ messages: text === JSON.stringify(MESSAGES) ? "" : text.slice(0, 4000), tools: tools.value.slice(0, 4000), open: opens.checked ? "" : "no", template });
    try {
      const request = { messages, tools: tools.value.trim() ? JSON.parse(tools.value) : null, add_generation_prompt: opens.checked, name: template };
      result.replaceChildren(...drawPrompt(await post("prompt", { model: state.model }, request), state));
    } catch (error) {
      const isKnown = error instanceof Refusal || error instanceof SyntaxError;
      if (!isKnown) throw error;
      const reason = error instanceof SyntaxError ? `The tools are not JSON: ${error.message}` : `${error.message}. ${error.remedy}`;
      result.replaceChildren(h("p", { class: "warning-text", role: "alert" }, name(reason, "")));
    }
  };
  const soon = later(draw, 250);
  const list = () => rows.replaceChildren(...messages.map((message, index) => h("div", { class: "message" },
    choice(ROLES.includes(message.role) ? ROLES.map((role) => [role]) : [...ROLES, message.role].map((role) => [role]), message.role, (role) => { messages[index] = { ...message, role }; list(); draw(); }, { "aria-label": `Role of message ${index + 1}` }),
    h("textarea", { rows: 2, "aria-label": `Text of message ${index + 1}`, value: typeof message.content === "string" ? message.content : JSON.stringify(message.content),
      oninput: (event) => { messages[index] = { ...messages[index], content: event.target.value }; soon(); } }),
    h("button", { type: "button", class: "quiet", "aria-label": `Remove message ${index + 1}`, onclick: () => { messages = messages.filter((_, other) => other !== index); list(); draw(); } }, "×"))));
  const add = () => {
    messages = [...messages, { role: messages.at(-1)?.role === "user" ? "assistant" : "user", content: "" }];
    list();
    draw();
  };
  tools.addEventListener("input", soon);
  opens.addEventListener("change", draw);
  list();
  draw();
  return [h("section", { class: "card" }, h("h1", null, "Chat template"), h("h2", null, "Conversation"), rows,
    h("p", { class: "bar-row" }, h("button", { type: "button", onclick: add }, "Add a message"),
      names.length > 1 && h("label", { class: "field" }, h("span", null, "Template"), choice([["", "as transformers chooses"], ...names.map((title) => [title])], template, (value) => { template = value; draw(); }))),
    h("label", { class: "check" }, opens, " End where the model's answer begins"),
    h("details", { open: Boolean(state.tools) }, h("summary", null, "Tools"), h("label", { class: "block-label" }, "Tools as JSON", tools),
      h("button", { type: "button", onclick: () => { tools.value = JSON.stringify(TOOL, null, 2); draw(); } }, "Insert an example"))),
  h("section", { class: "card" }, h("h2", null, "Prompt"), result)];
}

function drawPrompt(prompt, state) {
  const special = prompt.parts.filter((part) => part.special).length;
  return [h("p", { class: "bar-row muted" }, `${whole(Array.from(prompt.text).length)} characters, ${whole(special)} special tokens`,
    h("button", { type: "button", onclick: () => copy(prompt.text, state.say) }, "Copy")),
  h("pre", { class: "text prompt", tabindex: "0" }, prompt.parts.map((part) => (part.special ? h("mark", null, lines(part.text)) : lines(part.text))))];
}

function editLink(state) {
  return canEdit(state) && h("a", { href: link({ view: "metadata", model: state.model, q: "tokenizer.chat_template" }) }, "edit tokenizer.chat_template");
}

function drawText(facts, names, state) {
  return h("section", { class: "card wide" }, h("h2", null, "Template"), h("p", { class: "bar-row" }, editLink(state)), names.map((title) => h("details", { open: names.length === 1 },
    h("summary", null, name(title), ` · ${whole(facts.templates[title].length)} characters`), h("pre", { class: "text", tabindex: "0" }, lines(facts.templates[title])))),
  h("dl", { class: "facts-list" }, Object.entries(facts.special_tokens).map(([role, text]) => h("div", null, h("dt", null, role), h("dd", null, name(text))))));
}

async function drawDifference(state, facts) {
  const others = state.models.map((model, number) => [number, basename(model.name)]).filter(([number]) => number !== state.model);
  const holder = h("div");
  const draw = async (other) => {
    const theirs = await get("templates", { model: other });
    const [before, after] = [facts, theirs].map((model) => Object.values(model.templates)[0] ?? "");
    const compared = await post("template-lines", {}, { before, after });
    holder.replaceChildren(compared.same ? h("p", { class: "good" }, "Both templates are the same.") : compared.lines === null
      ? h("p", null, "The templates differ, and are too long to compare line by line.")
      : h("pre", { class: "text", tabindex: "0" }, compared.lines.map((line) => {
        const [tag, mark] = { both: ["span", "  "], before: ["del", "− "], after: ["ins", "+ "] }[line.in];
        return h(tag, { class: "line" }, mark, lines(line.text), "\n");
      })));
  };
  await draw(others[0][0]);
  return h("section", { class: "card wide" }, h("h2", null, "Difference to another file's template"),
    h("label", { class: "field" }, h("span", null, "Other file"), choice(others, others[0][0], draw)), holder);
}
