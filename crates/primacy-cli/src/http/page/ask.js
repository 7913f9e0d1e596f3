// How the server is asked, and what is made of its silence.

/** No question waits longer for its answer. The server itself gives the store 3 s. */
const WITHIN = 6000;
/** An order waits its turn for 10 s at most. */
const ORDER_WITHIN = 20_000;
/** How long after the server has refused a stream another is asked for. */
const STREAM_AGAIN = 5000;

/** A moment by two clocks. The steady one stands still while the machine is suspended, and the other one may be set back. */
export function now() {
  return { steady: performance.now(), wall: Date.now() };
}

/** How many milliseconds ago a moment was: no less than that by either clock. */
export function ago(moment) {
  return Math.max(performance.now() - moment.steady, Date.now() - moment.wall, 0);
}

/** Why there is no answer that can be shown. */
export class Trouble extends Error {
  /** `kind` is "unreachable", "store" or "none" (there is no such thing here); `status` that of HTTP, if there was an answer. */
  constructor(kind, says, status) {
    super(says);
    this.kind = kind;
    this.status = status;
  }
}

/** Tokens have 63 bits, which numbers have not: they stay strings of digits. */
export function read(json) {
  return JSON.parse(json.replace(/"(token|known_from)":\s*(\d+)/g, '"$1":"$2"'));
}

async function fetched(path, options, within) {
  try {
    const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(within), ...options });
    return [response, await response.text()];
  } catch (error) {
    throw new Trouble("unreachable", error.name === "TimeoutError" ? "it does not answer" : "it cannot be reached");
  }
}

function meaning(response, body) {
  let told = null;
  try {
    told = read(body);
  } catch {
    // Said below.
  }
  if (response.ok && told) return told;
  const kind = response.status === 404 ? "none" : response.ok ? "unreachable" : "store";
  const says = told?.error ?? `it answers with ${response.status} and without a sentence`;
  throw new Trouble(kind, says, response.status);
}

/** What the server answers, when it was asked, and how far the server's clock of the day is ahead of this one. */
export async function ask(path) {
  const asked = now();
  const [response, body] = await fetched(path, {}, WITHIN);
  const told = meaning(response, body);
  const date = Date.parse(response.headers.get("date"));
  // The field has whole seconds.
  const ahead = Math.abs(date - Date.now()) > 2000 ? date - Date.now() : 0;
  return { told, asked, ahead: Number.isNaN(date) ? 0 : ahead };
}

export function path(election, rest = "") {
  return `/v1/elections/${encodeURIComponent(election)}${rest}`;
}

/** Gives an order. `token` is a string of digits. */
export async function order(election, word, secret, candidate, token) {
  const fields = [];
  if (candidate !== undefined) fields.push(`"candidate":${JSON.stringify(candidate)}`);
  if (token !== undefined) fields.push(`"token":${token}`);
  const options = { method: "POST", headers: { Authorization: `Bearer ${secret}` }, body: `{${fields.join(",")}}` };
  const [response, body] = await fetched(path(election, `/${word}`), options, ORDER_WITHIN);
  return meaning(response, body);
}

/** Asks again and again, while the tab can be seen. */
export class Poll {
  #work;
  #pause;
  #timer;
  #runs = false;
  #again = false;
  #ended = false;

  /** `work` asks; `pause` says how many milliseconds after that it is asked again. */
  constructor(work, pause) {
    this.#work = work;
    this.#pause = pause;
    document.addEventListener("visibilitychange", this.soon);
    this.soon();
  }

  /** Asks now, or as soon as the present question has been answered. */
  soon = async () => {
    clearTimeout(this.#timer);
    if (this.#ended || document.hidden) return;
    if (this.#runs) {
      this.#again = true;
      return;
    }
    this.#runs = true;
    try {
      await this.#work();
    } finally {
      this.#runs = false;
      const pause = this.#again ? 0 : this.#pause();
      this.#again = false;
      if (!this.#ended) this.#timer = setTimeout(this.soon, pause);
    }
  };

  end() {
    this.#ended = true;
    clearTimeout(this.#timer);
    document.removeEventListener("visibilitychange", this.soon);
  }
}

/** The changes of an election as they come, while the tab can be seen. A server that gives no stream is asked again later. */
export class Changes {
  #election;
  #told;
  #cut;
  #source;
  #timer;

  constructor(election, told, cut) {
    this.#election = election;
    this.#told = told;
    this.#cut = cut;
    document.addEventListener("visibilitychange", this.#open);
    this.#open();
  }

  #open = () => {
    this.#close();
    // Browsers have few connections to one host, so a tab that nobody sees keeps none.
    if (document.hidden) return;
    this.#source = new EventSource(path(this.#election, "/events"));
    this.#source.addEventListener("change", (event) => {
      let line;
      try {
        line = read(event.data);
      } catch {
        return;
      }
      this.#told(line);
    });
    this.#source.addEventListener("term", () => this.#cut());
    this.#source.addEventListener("error", () => {
      if (this.#source.readyState === EventSource.CLOSED) {
        this.#timer = setTimeout(this.#open, STREAM_AGAIN);
      }
      // The end of a stream may be that of the server.
      this.#cut();
    });
  };

  #close() {
    clearTimeout(this.#timer);
    this.#source?.close();
  }

  end() {
    this.#close();
    document.removeEventListener("visibilitychange", this.#open);
  }
}
