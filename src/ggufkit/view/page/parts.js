// Parts that several views share.

import { h } from "./dom.js";
import { whole } from "./format.js";

/** "1 to 100 of 272 tensors", and buttons for the parts before and after. */
export function pager({ total, start }, count, what, to) {
  const stop = Math.min(start + count, total);
  const text = total > count ? `${whole(start + 1)} to ${whole(stop)} of ${whole(total)} ${what}` : `${whole(total)} ${what}`;
  const button = (label, go, target, usable) => h("button", { type: "button", class: "quiet", "data-go": go, disabled: !usable, onclick: () => to(target) }, label);
  return h("div", { class: "pager" }, h("span", { role: "status" }, text), total > count && h("span", null,
    button("Previous", "previous", Math.max(start - count, 0), start > 0),
    button("Next", "next", start + count, stop < total),
    button("Last", "last", Math.floor((total - 1) / count) * count, stop < total)));
}

export function searchField(label, value, onchange) {
  return h("label", { class: "search" }, h("span", { class: "hidden" }, label),
    h("input", { type: "search", placeholder: `${label}  ( / )`, value, autocomplete: "off", spellcheck: "false",
      oninput: (event) => onchange(event.target.value) }));
}

/** A slider with its value in words. */
export function slider(label, { min, max, step = 1, value, text, onchange }) {
  const out = h("output", null, text(value));
  const input = h("input", { type: "range", min, max, step, oninput: () => {
    out.textContent = text(Number(input.value));
    input.setAttribute("aria-valuetext", out.textContent);
    onchange(Number(input.value));
  } });
  input.value = value;
  input.setAttribute("aria-valuetext", text(value));
  return h("label", { class: "slider" }, h("span", null, label, " ", out), input);
}
