// What `eval` measured of the opened models, next to their sizes.

import { h, name, svg, table } from "./dom.js";
import { bytes, distinct, real } from "./format.js";
import { link } from "./state.js";

const NORMAL_95 = 1.96; // standard errors on each side of a mean

const isNumber = (value) => typeof value === "number";
const DIGITS = 6; // as `eval` prints them

/** A mean and its standard error, as `eval` prints them. */
export function mean(value, error, digits = DIGITS) {
  if (!isNumber(value)) return "–";
  return isNumber(error) ? `${value.toFixed(digits)} ± ${error.toFixed(digits)}` : value.toFixed(digits);
}

/** The divergence of a model, "" if `eval` did not measure it. */
export const kld = (quality) => (isNumber(quality?.divergence) ? mean(quality.divergence, quality.divergence_error) : "");

/** The lower and the upper end of the 95% interval of a divergence. */
function interval({ divergence, divergence_error: error }) {
  const half = NORMAL_95 * (error ?? 0);
  return [Math.max(divergence - half, 0), divergence + half];
}

/** A tile of the overview; null without a measurement. */
export function qualityTile(quality, tile) {
  if (!quality) return null;
  const perplexity = isNumber(quality.perplexity) ? `PPL ${mean(quality.perplexity, quality.perplexity_error, 3)}` : "";
  if (!isNumber(quality.divergence)) return perplexity && tile("Perplexity", real(quality.perplexity, 4), `± ${real(quality.perplexity_error, 2)}, ${quality.file}`);
  const ends = isNumber(quality.divergence_error) && quality.divergence ? interval(quality).map((end) => real(end, 3)).join(" to ") : "";
  return tile("Mean KLD", real(quality.divergence, 3), [ends && `95%: ${ends}`, perplexity].filter(Boolean).join("; "));
}

/** Size, divergence with its interval, and perplexity of several models, the largest first; null if none was measured. */
export function modelsTable({ models, model }) {
  if (models.length < 2 || !models.some(({ quality }) => quality)) return null;
  const short = distinct(models.map((file) => file.name));
  const rows = models.map((file, number) => ({ ...file, number })).sort((a, b) => b.nbytes - a.nbytes);
  const largest = Math.max(...rows.filter(({ quality }) => isNumber(quality?.divergence)).map(({ quality }) => interval(quality)[1]), 0);
  const hasPerplexity = rows.some(({ quality }) => isNumber(quality?.perplexity));
  const columns = [["Model"], ["Size", "number"], largest > 0 && ["Mean KLD", "number"], largest > 0 && ["95% interval", "interval"], hasPerplexity && ["Perplexity", "number"]];
  const line = ({ number, nbytes, quality }) => [
    h("a", { href: link({ view: "overview", model: number }), "aria-current": number === model ? "true" : null }, name(short[number])), bytes(nbytes),
    largest > 0 && (kld(quality) || "–"), largest > 0 && (isNumber(quality?.divergence) ? drawInterval(quality, largest) : ""), hasPerplexity && mean(quality?.perplexity, quality?.perplexity_error, 4)];
  const files = [...new Set(rows.map(({ quality }) => quality?.file).filter(Boolean))];
  return h("section", { class: "card wide all-models" }, h("h2", null, "Models"),
    table("Models", columns.filter(Boolean), rows.map((row) => line(row).filter((cell) => cell !== false))),
    h("p", { class: "muted" }, "Measured by eval, in ", name(files.join(", ")), ". ± is one standard error."));
}

function drawInterval(quality, largest) {
  const [low, high] = interval(quality);
  const x = (value) => (100 * value) / largest;
  return svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": `${real(low, 4)} to ${real(high, 4)}` },
    svg("title", null, `${real(low, 4)} to ${real(high, 4)}`),
    svg("line", { x1: 0, x2: 100, y1: 5, y2: 5, class: "axis" }),
    svg("line", { x1: x(low), x2: x(high), y1: 5, y2: 5, class: "whisker" }),
    svg("line", { x1: x(quality.divergence), x2: x(quality.divergence), y1: 1, y2: 9, class: "whisker" }));
}
