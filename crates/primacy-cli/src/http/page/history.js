// The leaderships so far, as a list with bars on one scale of time.

import { Poll, Trouble, ago, ask, now, path } from "./ask.js";
import { attribute, copy, id, list, show, text } from "./dom.js";
import { because, date, named, span } from "./words.js";

const USUAL = 20;
const MOST = 200;
/** How often the leaderships are asked for while nothing changes. */
const SELDOM = 30_000;
/** For how long after a change they are asked for more often: the server tells for a moment longer what it knew. */
const AFTER_CHANGE = 1200;
const OFTEN = 400;

export class History {
  /** How far the server's clock of the day is ahead of this one. */
  ahead = 0;
  #election;
  #limit = USUAL;
  #told = null;
  #changed = null;
  #failed = false;
  #ended = false;
  #current = null;

  constructor(election) {
    this.#election = election;
    id("terms").replaceChildren();
    text(id("past-says"), "");
    id("more").hidden = true;
    id("more").onclick = () => {
      this.#limit = MOST;
      this.poll.soon();
    };
    this.poll = new Poll(() => this.#ask(), () => this.#pause());
  }

  end() {
    this.#ended = true;
    this.poll.end();
  }

  changed() {
    this.#changed = now();
    this.poll.soon();
  }

  #pause() {
    const isNew = this.#changed !== null && ago(this.#changed) < AFTER_CHANGE;
    return isNew || this.#failed ? OFTEN : SELDOM;
  }

  async #ask() {
    try {
      const { told } = await ask(path(this.#election, `/history?limit=${this.#limit}`));
      if (this.#ended) return;
      this.#failed = false;
      this.#told = told;
      this.draw(this.#current);
    } catch (trouble) {
      // The election itself is asked for all the time, and says what is wrong.
      if (!(trouble instanceof Trouble)) throw trouble;
      this.#failed = true;
    }
  }

  /** With the election as it is now, or `null` while that is not known. */
  draw(current) {
    this.#current = current;
    if (!this.#told) return;
    const { terms, known_from: knownFrom } = this.#told;
    text(id("past-says"), this.#says(terms, knownFrom));
    show(id("more"), terms.length >= this.#limit && this.#limit < MOST);
    const wall = Date.now() + this.ahead;
    const begin = Math.min(...terms.map((term) => term.granted_unix_ms));
    const spans = terms.map((term) => this.#span(term, wall));
    const end = Math.max(...spans.map((span) => span.end), begin + 1);
    list(
      id("terms"),
      terms,
      (term) => `${term.token} ${term.leader.id}`,
      () => copy("term"),
      (item, term, index) => {
        const { start, end: over, lasts } = spans[index];
        const bar = item.querySelector(".bar span");
        bar.style.marginLeft = `${((100 * (start - begin)) / (end - begin)).toFixed(2)}%`;
        bar.style.width = `${((100 * (over - start)) / (end - begin)).toFixed(2)}%`;
        attribute(item, "class", lasts ? "lasts" : "");
        text(item.querySelector(".label"), named(term.leader));
        text(item.querySelector(".token"), term.token);
        const time = item.querySelector("time");
        attribute(time, "datetime", new Date(start).toISOString());
        attribute(time, "title", date(start));
        text(time, `began ${span(wall - start)} ago`);
        text(item.querySelector(".end"), this.#end(term, lasts, over - start));
      },
    );
  }

  #says(terms, knownFrom) {
    if (terms.length === 0) return "None so far.";
    return knownFrom === null ? "The newest first." : `The newest first. Those before token ${knownFrom} are not kept.`;
  }

  /** When it began and ended, and whether it lasts. That of one that went silent is known to have begun alone. */
  #span(term, wall) {
    const start = term.granted_unix_ms;
    if (term.ended_unix_ms !== null) return { start, end: Math.max(start, term.ended_unix_ms), lasts: false };
    const lasts = this.#current?.state === "led" && this.#current.token === term.token;
    return { start, end: lasts ? Math.max(start, wall) : start, lasts };
  }

  #end(term, lasts, length) {
    if (term.ended === "forgotten") return ": an operator had the election forgotten.";
    if (term.ended !== null) return `, lasted ${span(term.lasted_ms ?? length)}, ended because ${because(term.ended)}.`;
    if (lasts) return ", leads now.";
    if (this.#current === null) return ". Whether it has ended is not known now.";
    // Of another it will be told in a moment.
    return this.#current.state === "unknown" && this.#current.token === term.token ? ". It went silent." : ".";
  }
}
