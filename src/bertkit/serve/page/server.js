// The server's routes: a body in, the answer out with what it took; refusals in the server's own words.

let key = null;
export const useKey = (text) => { key = text; };

export class Refusal extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

const headers = () => (key === null ? {} : { authorization: `Bearer ${key}` });

async function fetchText(path, options) {
  try {
    const response = await fetch(path, { cache: "no-store", ...options });
    return [response, await response.text()];
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("The server cannot be reached. Is it still running?", 0);
  }
}

function parse(response, text) {
  let answer = null;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new Refusal(`The server answered ${response.status} without JSON.`, response.status);
  }
  if (response.ok) return answer;
  const said = typeof answer.error === "string" ? answer.error : JSON.stringify(answer);
  throw new Refusal(said, response.status);
}

export async function info() {
  const [response, text] = await fetchText("info", { headers: headers() });
  return parse(response, text);
}

const number = (response, name) => {
  const text = response.headers.get(name);
  return text === null || text === "" || Number.isNaN(Number(text)) ? null : Number(text);
};

export async function ask(route, body, signal) {
  const started = performance.now();
  const options = { method: "POST", body: JSON.stringify(body), signal, headers: { "content-type": "application/json", ...headers() } };
  const [response, text] = await fetchText(route, options);
  const answer = parse(response, text);
  const figures = {
    total: performance.now() - started,
    server: number(response, "x-total-time"),
    compute: number(response, "x-inference-time"),
    tokens: number(response, "x-compute-tokens"),
    truncated: number(response, "x-bertkit-truncated"),
    windows: number(response, "x-bertkit-windows"),
  };
  return { answer, figures };
}
