// A picture of a matrix: tiles of a pyramid on a canvas, to pan and to zoom down to numbers.

import { tile } from "./api.js";
import { h } from "./dom.js";
import { real, whole } from "./format.js";
import { slider } from "./parts.js";
import { note } from "./state.js";

const MAX_TILES = 48;
const DEEPEST = -6; // 64 pixels for one value
const NUMBERS = -5.75; // from here on, values are written too

/** One axis: its length, and its place and scale in the view. */
class Axis {
  constructor(count, fit, start) {
    Object.assign(this, { count, fit, start });
  }

  /** Elements in one pixel of the screen: an axis that fits is not thinned out further. */
  per(zoom) {
    return 2 ** Math.min(zoom, this.fit);
  }

  /** Elements in one pixel of a tile. */
  step(level) {
    return 2 ** Math.min(level, this.fit);
  }

  keepInside(zoom, pixels) {
    const span = pixels * this.per(zoom);
    this.start = span >= this.count ? (this.count - span) / 2 : Math.min(Math.max(this.start, 0), this.count - span);
  }
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  const read = (text) => style.getPropertyValue(text).trim().match(/[0-9a-f]{2}/gi).map((pair) => parseInt(pair, 16));
  const [low, middle, high, odd] = ["--low", "--middle", "--high", "--odd"].map(read);
  const table = new Uint8ClampedArray(257 * 4);
  for (let shade = 0; shade <= 255; shade += 1) {
    const part = Math.abs(shade - 127.5) / 127.5;
    const end = shade < 127.5 ? low : high;
    for (let channel = 0; channel < 3; channel += 1) table[4 * shade + channel] = middle[channel] + (end[channel] - middle[channel]) * part ** 0.8;
    table[4 * shade + 3] = 255;
  }
  table.set([...odd, 255], 256 * 4);
  return table;
}

function painted({ rows, columns, values }, range, table) {
  const canvas = new OffscreenCanvas(Math.max(columns, 1), Math.max(rows, 1));
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  for (let place = 0; place < values.length; place += 1) {
    const value = values[place];
    const index = Number.isFinite(value) ? Math.round(127.5 + 127.5 * Math.min(Math.max(value / range, -1), 1)) : 256;
    for (let channel = 0; channel < 4; channel += 1) image.data[4 * place + channel] = table[4 * index + channel];
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** How many rows or columns a pixel stands for: neighbours may show the same one. */
function covered(places, pixel, start, step, count) {
  let [first, last] = [pixel, pixel];
  while (first > 0 && places[first - 1] === places[pixel]) first -= 1;
  while (last + 1 < places.length && places[last + 1] === places[pixel]) last += 1;
  return Math.min(start + (last + 1) * step, count) - (start + first * step);
}

export function picture({ facts, route, parameters, range: largest, state, chosen, blockSize = 1 }) {
  const top = facts.levels - 1;
  const rows = new Axis(facts.rows, facts.row_level, Number(state.y ?? 0));
  const columns = new Axis(facts.columns, facts.column_level, Number(state.x ?? 0));
  const canvas = h("canvas", { class: "picture", height: 420, role: "img", "aria-label": `Picture of ${whole(facts.rows)} rows of ${whole(facts.columns)} values` });
  const readout = h("output", { class: "readout", "aria-live": "polite" }, " ");
  const tiles = new Map();
  let zoom = state.z === undefined ? null : Math.min(Math.max(Number(state.z) || 0, DEEPEST), top);
  let range = 1;
  let contrast = 1;
  let cursor = state.row === undefined ? null : [Number(state.row), Number(state.column ?? 0)];
  let block = cursor; // the chosen value, whose block has an outline
  let isChoosing = false;
  let waiting = false;

  const currentLevel = () => Math.max(Math.ceil(zoom - 1e-9), 0);

  /** The zoom that shows all of the matrix as large as it fits. */
  function fitting() {
    const fits = (next) => rows.count / rows.per(next) <= canvas.clientHeight && columns.count / columns.per(next) <= canvas.clientWidth;
    let smallest = top;
    while (smallest > DEEPEST && fits(smallest - 0.25)) smallest -= 0.25;
    return smallest;
  }

  function tileAt(level, row, column) {
    const key = `${level}/${row}/${column}`;
    let entry = tiles.get(key);
    if (!entry) {
      entry = { canvas: null };
      tiles.set(key, entry);
      tile(route, { ...parameters, level, row, column }).then((values) => {
        entry.values = values;
        redraw();
      }, (error) => { readout.textContent = error.message; });
      if (tiles.size > MAX_TILES) tiles.delete(tiles.keys().next().value);
    } else {
      tiles.delete(key);
      tiles.set(key, entry); // the last used stay
    }
    return entry;
  }

  function redraw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      if (canvas.isConnected) draw();
    });
  }

  function draw() {
    const scale = devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const context = canvas.getContext("2d");
    zoom ??= fitting();
    context.scale(scale, scale);
    context.imageSmoothingEnabled = false;
    rows.keepInside(zoom, height);
    columns.keepInside(zoom, width);
    const level = currentLevel();
    const table = painting();
    const [rowSize, columnSize] = [facts.tile * rows.step(level), facts.tile * columns.step(level)];
    const last = (axis, size, pixels) => Math.min(Math.floor((axis.start + pixels * axis.per(zoom)) / size), Math.floor((axis.count - 1) / size));
    const overview = tiles.get(`${top}/0/0`); // shown until the tiles of this level are there
    if (level < top && overview?.values) paint(context, overview, table, 0, 0, top);
    for (let row = Math.max(Math.floor(rows.start / rowSize), 0); row <= last(rows, rowSize, height); row += 1) {
      for (let column = Math.max(Math.floor(columns.start / columnSize), 0); column <= last(columns, columnSize, width); column += 1) {
        const entry = tileAt(level, row, column);
        if (!entry.values?.values.length) continue;
        const [x, y] = paint(context, entry, table, row * rowSize, column * columnSize, level);
        if (zoom <= NUMBERS) write(context, entry.values, x, y);
      }
    }
    drawPlaces(context);
    tell();
    if (isChoosing) choose();
    canvas.dataset.drawn = [...tiles.values()].every((entry) => entry.values) ? "yes" : "";
  }

  /** Draws a tile that begins at a row and a column; returns where on the canvas. */
  function paint(context, entry, table, row, column, level) {
    if (entry.painted !== table) [entry.canvas, entry.painted] = [painted(entry.values, range / contrast, table), table];
    const [x, y] = pixelOf([row, column]);
    const end = pixelOf([row + entry.values.rows * rows.step(level), column + entry.values.columns * columns.step(level)]);
    context.drawImage(entry.canvas, x, y, end[0] - x, end[1] - y);
    return [x, y];
  }

  let lastTable = null;
  function painting() {
    const key = `${range}/${contrast}/${matchMedia("(prefers-color-scheme: dark)").matches}/${document.documentElement.dataset.theme}`;
    if (lastTable?.key !== key) lastTable = Object.assign(colours(), { key });
    return lastTable;
  }

  function write(context, { values, rows: down, columns: across }, x, y) {
    const size = 1 / columns.per(zoom);
    const isDark = getComputedStyle(document.documentElement).getPropertyValue("--middle").trim() < "#8";
    context.font = "12px ui-monospace, monospace";
    context.textAlign = "center";
    context.textBaseline = "middle";
    const from = [Math.max(Math.floor(-y / size), 0), Math.max(Math.floor(-x / size), 0)];
    for (let row = from[0]; row < down && y + row * size < canvas.clientHeight; row += 1) {
      for (let column = from[1]; column < across && x + column * size < canvas.clientWidth; column += 1) {
        const value = values[row * across + column];
        const isStrong = Math.abs(value) > (range / contrast) * 0.6;
        context.fillStyle = isStrong === isDark ? "#111" : "#fff";
        const text = real(Number.isFinite(value) ? value : String(value), 2);
        context.fillText(text, x + (column + 0.5) * size, y + (row + 0.5) * size);
      }
    }
  }

  function drawPlaces(context) {
    if (block && chosen) outline(context, block[0], Math.floor(block[1] / blockSize) * blockSize, blockSize);
    if (cursor) outline(context, ...cursor, 1);
  }

  function outline(context, row, column, count) {
    const [x, y] = pixelOf([row, column]);
    const width = Math.max(Math.min(count, columns.count - column) / columns.per(zoom), 7);
    const height = Math.max(1 / rows.per(zoom), 7);
    context.lineWidth = 2;
    for (const [style, grow] of [["#fff", 2], ["#111", 0.5]]) {
      context.strokeStyle = style;
      context.strokeRect(x - grow, y - grow, width + 2 * grow, height + 2 * grow);
    }
  }

  /** The stored value that the picture shows at the cursor, if its tile is there. */
  function valueAtCursor() {
    const level = currentLevel();
    const axes = [rows, columns].map((axis, number) => {
      const pixel = Math.floor(cursor[number] / axis.step(level));
      return { axis, tile: Math.floor(pixel / facts.tile), pixel: pixel % facts.tile };
    });
    const entry = tileAt(level, axes[0].tile, axes[1].tile).values; // also of a cursor outside the view
    if (!entry?.values.length) return null;
    const places = [entry.rowAt, entry.columnAt];
    const counts = axes.map(({ axis, tile: number, pixel }, which) => covered(places[which], pixel, number * facts.tile * axis.step(level), axis.step(level), axis.count));
    const value = entry.values[axes[0].pixel * entry.columns + axes[1].pixel];
    return { row: entry.rowAt[axes[0].pixel], column: entry.columnAt[axes[1].pixel], value, counts };
  }

  function tell() {
    if (!cursor) return;
    const cell = valueAtCursor();
    const many = cell && cell.counts[0] * cell.counts[1] > 1 ? `, shown for ${cell.counts.map(whole).join(" × ")} values` : "";
    const text = cell ? `row ${whole(cell.row)}, column ${whole(cell.column)}: ${real(Number.isFinite(cell.value) ? cell.value : String(cell.value), 6)}${many}` : "…";
    if (readout.textContent !== text) readout.textContent = text; // announced when it changes
  }

  /** Chooses the value that is shown at the cursor, as soon as its tile is there. */
  function choose() {
    const cell = valueAtCursor();
    isChoosing = !cell;
    if (!cell || !chosen) return;
    block = [cell.row, cell.column];
    redraw();
    chosen(...block);
  }

  const placed = () => {
    const isWhole = zoom === fitting();
    note({ z: isWhole ? "" : Number(zoom.toFixed(2)), x: isWhole ? "" : Math.round(columns.start), y: isWhole ? "" : Math.round(rows.start) });
  };
  const elementAt = (x, y) => [
    Math.min(Math.max(Math.floor(rows.start + y * rows.per(zoom)), 0), rows.count - 1),
    Math.min(Math.max(Math.floor(columns.start + x * columns.per(zoom)), 0), columns.count - 1)];

  function zoomTo(next, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
    const [row, column] = [rows.start + y * rows.per(zoom), columns.start + x * columns.per(zoom)];
    zoom = Math.min(Math.max(next, DEEPEST), top);
    rows.start = row - y * rows.per(zoom);
    columns.start = column - x * columns.per(zoom);
    redraw();
    placed();
  }

  function show(row, column) {
    cursor = [Math.min(Math.max(row, 0), rows.count - 1), Math.min(Math.max(column, 0), columns.count - 1)];
    for (const [axis, value, pixels] of [[rows, cursor[0], canvas.clientHeight], [columns, cursor[1], canvas.clientWidth]]) {
      if (value < axis.start || value >= axis.start + pixels * axis.per(zoom)) axis.start = value - (pixels * axis.per(zoom)) / 2;
    }
    redraw();
  }

  /** Shows one value among its neighbours, and chooses it. */
  function jump(row, column) {
    if (zoom > -3) zoomTo(-4);
    show(row, column);
    for (const [axis, value, pixels] of [[rows, cursor[0], canvas.clientHeight], [columns, cursor[1], canvas.clientWidth]]) axis.start = value - (pixels * axis.per(zoom)) / 2;
    block = cursor;
    placed();
    chosen?.(...cursor);
  }

  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.offsetX, y: event.offsetY, row: rows.start, column: columns.start, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag && (drag.moved || Math.hypot(event.offsetX - drag.x, event.offsetY - drag.y) > 4)) {
      drag.moved = true;
      rows.start = drag.row - (event.offsetY - drag.y) * rows.per(zoom);
      columns.start = drag.column - (event.offsetX - drag.x) * columns.per(zoom);
      redraw();
    } else if (!drag) {
      cursor = elementAt(event.offsetX, event.offsetY);
      redraw();
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    const ended = drag;
    drag = null;
    if (ended?.moved) {
      placed();
      return;
    }
    cursor = elementAt(event.offsetX, event.offsetY);
    redraw();
    choose();
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoomTo(zoom + Math.sign(event.deltaY) * 0.5, event.offsetX, event.offsetY);
  }, { passive: false });

  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  function key(event) {
    const start = cursor ?? elementAt(canvas.clientWidth / 2, canvas.clientHeight / 2);
    const step = steps[event.key];
    const far = event.shiftKey ? 16 : 1;
    if (step) show(start[0] + step[0] * far * rows.step(currentLevel()), start[1] + step[1] * far * columns.step(currentLevel()));
    else if (event.key === "+" || event.key === "=") zoomTo(zoom - 1, ...pixelOf(start));
    else if (event.key === "-") zoomTo(zoom + 1, ...pixelOf(start));
    else if (event.key === "0") zoomTo(fitting());
    else if (event.key === "Enter") {
      cursor = start;
      choose();
    }
    else return;
    event.preventDefault();
  }
  const pixelOf = ([row, column]) => [(column - columns.start) / columns.per(zoom), (row - rows.start) / rows.per(zoom)];
  const place = (label, most) => h("input", { type: "number", min: 0, max: most - 1, "aria-label": label, placeholder: label, required: true });
  const [rowInput, columnInput] = [place("Row", facts.rows), place("Column", facts.columns)];
  const jumper = h("form", { class: "jump", onsubmit: (event) => { event.preventDefault(); jump(Number(rowInput.value), Number(columnInput.value)); } },
    rowInput, columnInput, h("button", { class: "quiet" }, "Go"));
  const button = (text, label, action) => h("button", { type: "button", class: "quiet", "aria-label": label, onclick: action }, text);
  const frame = h("div", { class: "picture-frame", tabindex: "0", role: "group", "aria-label": "Picture: arrows move the cursor, plus and minus zoom, 0 shows all, Enter decodes the block", onkeydown: key }, canvas);

  Promise.resolve(largest).then((value) => {
    range = value || 1;
    redraw();
  }, (error) => { readout.textContent = error.message; });
  new ResizeObserver(redraw).observe(canvas);
  addEventListener("theme", redraw);
  return h("div", null,
    h("div", { class: "bar-row" }, h("span", { class: "buttons" }, button("+", "Zoom in", () => zoomTo(zoom - 1)), button("−", "Zoom out", () => zoomTo(zoom + 1)), button("All", "Show all", () => zoomTo(fitting()))),
      slider("Contrast", { min: -3, max: 4, step: 0.25, value: 0, text: (value) => `× ${real(2 ** value, 2)}`, onchange: (value) => { contrast = 2 ** value; redraw(); } }), jumper),
    frame, readout,
    h("p", { class: "muted key-line" }, h("span", { class: "ramp", "aria-hidden": "true" }), "negative, zero, positive. An overview shows one stored value of each group; nothing is averaged.",
      facts.is_sampled_by_rows && " Rows of this tensor are slow to read, so neighbours share one."));
}
