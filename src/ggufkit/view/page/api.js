// Asks the server; answers that never change are kept.

const kept = new Map();

export class Refusal extends Error {
  constructor(message, remedy) {
    super(message);
    this.remedy = remedy;
  }
}

/** The answer, or the refusal that it holds: about a model (with status 200) or about the request. */
async function checked(response) {
  const isJson = response.headers.get("Content-Type")?.startsWith("application/json");
  const found = isJson ? await response.json() : response;
  if (found?.error !== undefined) throw new Refusal(found.error, found.remedy);
  if (!response.ok) throw new Refusal(`the server answered ${response.status}`, "");
  return found;
}

async function reached(url, options) {
  try {
    return await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("the server does not answer", "Start ggufkit view again");
  }
}

export function get(route, parameters = {}, { keep = true } = {}) {
  const url = `api/${route}?${new URLSearchParams(parameters)}`;
  if (!kept.has(url) || !keep) {
    const asked = reached(url).then(checked);
    kept.set(url, asked);
    asked.catch(() => kept.delete(url));
  }
  if (kept.size > 500) kept.delete(kept.keys().next().value);
  return kept.get(url);
}

export async function post(route, parameters, body) {
  const url = `api/${route}?${new URLSearchParams(parameters)}`;
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return checked(await reached(url, options));
}

export async function tile(route, parameters, signal) {
  const response = await checked(await reached(`api/${route}?${new URLSearchParams(parameters)}`, { signal }));
  const [rows, columns] = response.headers.get("X-Shape").split(",").map(Number);
  const data = await response.arrayBuffer();
  const rowAt = new Float64Array(data, 0, rows); // where each value is stored
  const columnAt = new Float64Array(data, 8 * rows, columns);
  return { rows, columns, rowAt, columnAt, values: new Float32Array(data, 8 * (rows + columns)) };
}
