// Makes elements. Text is always a text node: nothing from a file becomes markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

function set(element, properties) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  return element;
}

/** An element of HTML: h("a", {href: "#"}, "text"). */
export function h(tag, properties, ...children) {
  return fill(set(document.createElement(tag), properties), children);
}

/** An element of SVG. */
export function svg(tag, attributes, ...children) {
  return fill(set(document.createElementNS(SVG, tag), attributes), children);
}

// Characters that would hide, or turn the direction of what stands beside them.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** Text with hidden characters spelled out. */
export function visible(text, keep = "") {
  return String(text).replace(HIDDEN, (character) => {
    if (keep.includes(character)) return character;
    const code = character.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return `‹${code.toString(16).toUpperCase().padStart(4, "0")}›`;
  });
}

/** A name from a file: isolated, so that its direction stays its own. */
export function name(text, className = "name") {
  return h("bdi", { class: className }, visible(text).split(/(?<=[._/])(?=.)/).flatMap((part, index) => (index ? [h("wbr"), part] : part)));
}

/** A text of several lines from a file. */
export function lines(text) {
  return visible(text, "\n\t");
}

/** A labelled field. */
export function field(label, input) {
  return h("label", { class: "field" }, h("span", null, label), input);
}

/** A choice among values. */
export function choice(options, chosen, onchange, attributes = {}) {
  const select = h("select", { ...attributes, onchange: () => onchange(select.value) },
    options.map(([value, text]) => h("option", { value }, text ?? value)));
  select.value = chosen;
  return select;
}

/** A section with a heading. */
export function card(title, ...children) {
  return h("section", { class: "card" }, title && h("h2", null, title), children);
}

/** A table: columns are [heading, class]; cells may be nodes. */
export function table(caption, columns, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", null, h("caption", { class: "hidden" }, caption),
      h("thead", null, h("tr", null, columns.map(([heading, kind]) => h("th", { scope: "col", class: kind }, heading)))),
      h("tbody", null, rows.map((row) => h("tr", null, row.map((cell, index) => h("td", { class: columns[index][1] }, cell)))))));
}

/** Runs `task` when there were no calls for a moment. */
export function later(task, wait = 150) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => task(...values), wait);
  };
}

/** Copies a text, and says so. */
export async function copy(text, say) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
  } catch {
    say("The browser does not allow copying here");
  }
}
