// Asks the server; answers that never change are kept.

const kept = new Map();

export class Refusal extends Error {
  constructor(message, remedy) {
    super(message);
    this.remedy = remedy;
  }
}

async function checked(response) {
  if (response.ok) return response;
  let found = { error: `the server answered ${response.status}`, remedy: "" };
  try {
    found = await response.json();
  } catch { /* not JSON: the server's own text says less than the status */ }
  throw new Refusal(found.error, found.remedy);
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
    const asked = reached(url).then(checked).then((response) => response.json());
    kept.set(url, asked);
    asked.catch(() => kept.delete(url));
  }
  if (kept.size > 500) kept.delete(kept.keys().next().value);
  return kept.get(url);
}

export async function post(route, parameters, body) {
  const url = `api/${route}?${new URLSearchParams(parameters)}`;
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return (await checked(await reached(url, options))).json();
}

export async function tile(route, parameters, signal) {
  const response = await checked(await reached(`api/${route}?${new URLSearchParams(parameters)}`, { signal }));
  const [rows, columns] = response.headers.get("X-Shape").split(",").map(Number);
  return { rows, columns, values: new Float32Array(await response.arrayBuffer()) };
}
