// The same tensor in two files: a choice of what the picture shows, and the values next to each other.

import { get } from "./api.js";
import { choice, field, h, name, table } from "./dom.js";
import { distinct, real, whole } from "./format.js";
import { go, read } from "./state.js";

/** What the picture of a tensor shows, and what compares it with the tensor of another file. */
export async function pairOf(state, tensor, number) {
  const { model } = state;
  const own = { route: "tile", parameters: { model, tensor: number } };
  const usual = () => get("sample", own.parameters).then((sample) => Number(sample.range) || Number(sample.largest) || 1);
  const others = tensor.picture && state.models.length > 1 ? await get("same-tensors", own.parameters) : [];
  if (!others.length) return { source: tensor.picture && { ...own, range: usual() }, choose: () => {} };
  const files = distinct(state.models.map((file) => file.name));
  const other = others.find((candidate) => candidate.model === Number(state.other ?? -1));
  const change = (changes) => go({ ...read(), view: "tensor", model, t: number, ...changes });
  const chooser = field("Compare with", choice([["", "no other file"], ...others.map((candidate) => [candidate.model, `${files[candidate.model]}, ${candidate.type}`])],
    other?.model ?? "", (value) => change({ other: value, show: "" })));
  if (!other) return { source: { ...own, range: usual() }, choices: h("div", { class: "bar-row" }, chooser), choose: () => {} };
  const parameters = { model, other: other.model, tensor: number };
  const show = ["other", "difference"].includes(state.show) ? state.show : "";
  const reads = tensor.reads_at_once || show === "difference";
  const error = reads ? get("error", parameters) : Promise.reject(new Error("The picture of the difference reads both tensors and measures their error."));
  const sources = {
    "": { text: files[model], source: () => ({ ...own, range: usual() }) },
    other: { text: files[other.model], source: () => ({ route: "tile", parameters: { model: other.model, tensor: other.number }, range: usual() }) },
    difference: { text: "difference", source: () => ({ route: "error-tile", parameters, range: error.then(({ rmse }) => Number(rmse) * 3 || 1) }) },
  };
  const shower = field("Show", choice(Object.entries(sources).map(([key, { text }]) => [key, text]), show, (value) => change({ show: value })));
  const [figures, values] = [h("p", { class: "muted", role: "status" }, "Measuring…"), h("div", { "aria-live": "polite" }, h("p", { class: "muted" }, "Choose a value in the picture to see the values of both files."))];
  const fail = ({ message }) => figures.replaceChildren(name(message, ""));
  error.then((known) => figures.replaceChildren(known.same ? "Both are the same." :
    `RMSE ${real(known.rmse)}, SNR ${real(known.snr_db)} dB, cosine ${real(known.cosine, 6)}, largest error ${real(known.max_abs)}; ${whole(known.unequal)} of ${whole(tensor.elements)} values differ.`), fail);
  const columns = [["Column", "number"], [name(files[model], ""), "number"], [name(files[other.model], ""), "number"], ["Difference", "number"]];
  const choose = (row, column) => get("values-of-both", { ...parameters, row, column }).then((both) => values.replaceChildren(
    h("p", { class: "muted" }, `Row ${whole(both.row)}. Difference: second minus first.`),
    table("Values of both files", columns, both.before.map((value, index) => [whole(both.column + index), ...[value, both.after[index], both.difference[index]].map((item) => real(item, 6))]))), fail);
  return { source: sources[show].source(), choices: h("div", { class: "bar-row" }, chooser, shower), choose,
    section: h("section", { class: "card wide pair" }, h("h2", null, "Both files"), figures, values) };
}
