// Asks the server; keeps the answers that never change.

const answers = new Map();

export class Refusal extends Error {
  constructor(message, remedy) {
    super(message);
    this.remedy = remedy;
  }
}

/** The answer, or the refusal that it holds: about a model (with status 200) or about the request. */
async function checked(response) {
  const isJson = response.headers.get("Content-Type")?.startsWith("application/json");
  const answer = isJson ? await response.json() : response;
  if (answer?.error !== undefined) throw new Refusal(answer.error, answer.remedy);
  if (!response.ok) throw new Refusal(`the server answered ${response.status}`, "");
  return answer;
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
  if (!answers.has(url) || !keep) {
    const answer = reached(url).then(checked);
    answers.set(url, answer);
    answer.catch(() => answers.delete(url));
  }
  if (answers.size > 500) answers.delete(answers.keys().next().value);
  return answers.get(url);
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
