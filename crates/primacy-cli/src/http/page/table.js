// Many elections, in a table that can be searched.

import { Poll, Trouble, ago, ask, now } from "./ask.js";
import { attribute, copy, id, list, show, text } from "./dom.js";
import { STATES, named, shown, span } from "./words.js";

const EVERY = 2000;
/** An answer that is older than this tells of the past alone. */
const OLD_AFTER = 6000;

export class Table {
  #told = null;
  #at = null;
  #trouble = null;
  #clock;
  #ended = false;

  /** `page` shows troubles, and goes to the only election if there is one. */
  constructor(page) {
    this.page = page;
    id("search").oninput = () => this.#filter();
    id("find").onsubmit = (event) => event.preventDefault();
    this.poll = new Poll(() => this.#ask(), () => EVERY);
    // A question that is not answered must not leave what was told before it as if it were so now.
    this.#clock = setInterval(() => this.#told && this.#isOld() && this.#draw(), EVERY / 2);
  }

  end() {
    this.#ended = true;
    this.poll.end();
    clearInterval(this.#clock);
  }

  async #ask() {
    try {
      const { told } = await ask("/v1/elections");
      // Another view has taken its place on the page.
      if (this.#ended) return;
      this.#trouble = null;
      this.#at = now();
      this.#told = told.elections.sort((one, other) => (one.election < other.election ? -1 : 1));
      this.page.reached();
      if (this.page.only(this.#told)) return;
    } catch (trouble) {
      if (!(trouble instanceof Trouble)) throw trouble;
      if (this.#ended) return;
      this.#trouble = trouble;
      this.page.lost(trouble);
    }
    if (this.#told) this.#measured(() => this.#draw());
  }

  /** Takes down how long the drawing lasts until it can be seen. */
  #measured(draw) {
    performance.clearMeasures("draw");
    const start = performance.now();
    draw();
    requestAnimationFrame(() => setTimeout(() => performance.measure("draw", { start })));
  }

  #isOld() {
    return this.#trouble !== null || ago(this.#at) > OLD_AFTER;
  }

  #draw() {
    const isOld = this.#isOld();
    id("table").classList.toggle("old", isOld);
    list(
      id("rows"),
      this.#told,
      (told) => told.election,
      () => copy("row"),
      (row, told) => {
        const [name, state, leader, token, held, next] = row.cells;
        const link = name.firstElementChild;
        attribute(link, "href", `#/election/${encodeURIComponent(told.election)}`);
        text(link, shown(told.election));
        const word = isOld ? "unknown" : told.state;
        const words = isOld ? "not known now" : told.paused ? `${STATES[told.state]}, paused` : STATES[told.state];
        attribute(state.firstElementChild, "class", `state ${word}`);
        text(state.firstElementChild, words);
        const holder = isOld ? null : told.leader;
        text(leader.firstElementChild, holder ? named(holder) : "–");
        text(token, told.token ?? "–");
        text(held, holder && told.held_for_ms !== null ? span(told.held_for_ms) : "–");
        const first = told.paused ? undefined : told.candidates.find((candidate) => candidate.rank !== null);
        text(next.firstElementChild, first ? named(first) : "–");
        row.search = `${told.election}\n${told.leader?.label ?? ""}\n${words}`.toLowerCase();
      },
    );
    text(id("none"), "This process takes part in no election at the moment.");
    show(id("none"), this.#told.length === 0);
    this.page.title(`${this.#told.length} elections`);
    this.#filter();
  }

  #filter() {
    const words = id("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const row of id("rows").rows) {
      const is = words.every((word) => row.search.includes(word));
      show(row, is);
      found += Number(is);
    }
    const all = this.#told?.length ?? 0;
    const led = (this.#told ?? []).filter((told) => told.state === "led").length;
    const count = words.length > 0 ? `${found} of ${all} elections` : `${all} elections, ${led} of them led`;
    text(id("count"), this.#isOld() ? `${found} of ${all} elections` : count);
  }
}
