// Calls the service's JSON endpoints. Answers are cached, so that going back costs nothing.

const kept = new Map();
const LARGEST = 80;

export class NeedsKey extends Error {}

async function ask(path, body, signal) {
  const headers = body ? { "content-type": "application/json" } : {};
  const key = sessionStorage.getItem("key");
  if (key) headers.authorization = `Bearer ${key}`;
  const response = await fetch(path, { method: body ? "POST" : "GET", headers, body, signal });
  const content = await response.json().catch(() => ({}));
  if (response.ok) return content;
  const message = content.error?.message ?? `The service answered with status ${response.status}.`;
  throw response.status === 401 ? new NeedsKey(message) : new Error(message);
}

export async function models() {
  return (await ask("v1/models")).models;
}

/** The answers of a classifier to many texts, in order. */
export async function classify(model, texts) {
  return (await ask("v1/classify", JSON.stringify({ model, texts }))).classifications;
}

/** The explanation of a text by a model and a parser, with the seconds that it took. */
export async function explain(request, signal) {
  const body = JSON.stringify(request);
  if (kept.has(body)) return { answer: kept.get(body), seconds: 0 };
  const start = performance.now();
  const answer = await ask("v1/explain", body, signal);
  if (kept.size >= LARGEST) kept.delete(kept.keys().next().value);
  kept.set(body, answer);
  return { answer, seconds: (performance.now() - start) / 1000 };
}
