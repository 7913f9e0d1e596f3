// Which view is shown, what all views share, and what is said when the server is silent.

import { Poll, Trouble, ask } from "./ask.js";
import { id, show, text } from "./dom.js";
import { Election } from "./election.js";
import { Orders } from "./orders.js";
import { Table } from "./table.js";
import { clock, shown } from "./words.js";

/** How often it is asked which process this is: another may have been started at its address. */
const PROCESS_EVERY = 10_000;

const ELECTION = "#/election/";

class Page {
  takesOrders = false;
  #view = null;
  #trouble = null;
  /** Where the table was left. */
  #left = null;
  #part = "starting";
  #isAnswered = false;
  #orders = new Orders((says) => text(id("outcome"), says));

  constructor() {
    addEventListener("hashchange", () => this.#route(true));
    for (const word of ["depose", "pause", "resume"]) {
      id(word).addEventListener("click", () => this.order(word, this.#view));
    }
    this.process = new Poll(() => this.#askProcess(), () => PROCESS_EVERY);
    this.#route(false);
  }

  /** The election that the address names. */
  #named() {
    if (!location.hash.startsWith(ELECTION)) return null;
    try {
      return decodeURIComponent(location.hash.slice(ELECTION.length));
    } catch {
      return null;
    }
  }

  #route(moves) {
    const name = this.#named();
    if (name === null) this.#open("table", () => new Table(this));
    else this.#open("election", () => new Election(name, this));
    if (!moves) return;
    if (name === null && this.#left !== null) {
      const link = [...id("rows").rows].find((row) => row.dataset.key === this.#left)?.querySelector("a");
      (link ?? id("table-title")).focus();
    } else if (name !== null) {
      document.querySelector("#election h1").focus();
    }
    this.#left = name;
  }

  #open(part, make) {
    this.#view?.end();
    id("order").close();
    text(id("outcome"), "");
    text(id("news"), "");
    this.#part = part;
    this.#view = make();
    show(id("back"), this.#named() !== null);
    this.#showPart();
  }

  /** Nothing is shown before something was told: an empty table would say that there are no elections. */
  #showPart() {
    const part = this.#isAnswered ? this.#part : "starting";
    for (const name of ["starting", "table", "election"]) show(id(name), name === part);
  }

  // ---- for the views ----

  /** Shows the only election there is, unless the address asks for another. Whether that was done. */
  only(elections) {
    if (elections.length !== 1 || this.#named() !== null) return false;
    this.#open("election", () => new Election(elections[0].election, this));
    return true;
  }

  title(says) {
    const wanted = `${says} – primacy`;
    if (document.title !== wanted) document.title = wanted;
  }

  news(says) {
    text(id("news"), says);
  }

  order(word, election, whom) {
    text(id("outcome"), "");
    this.#orders.confirm(word, election, whom);
  }

  reached() {
    this.#answered();
    if (this.#trouble === null) return;
    this.#trouble = null;
    text(id("trouble"), "");
    this.process.soon();
  }

  #answered() {
    if (this.#isAnswered) return;
    this.#isAnswered = true;
    this.#showPart();
  }

  /** Says what is wrong since when, once. */
  lost(trouble) {
    if (trouble.kind === "none") this.#answered();
    if (this.#trouble?.kind === trouble.kind) return;
    this.#trouble = { kind: trouble.kind };
    const since = clock(Date.now());
    const why = shown(trouble.message);
    const says = {
      unreachable: `No answer from the server since ${since}: ${why}. What is shown is old; the page comes back by itself.`,
      store: `The store does not answer since ${since}: ${why}. What is shown is old; the page comes back by itself.`,
      none: `Not here: ${why}.`,
    };
    text(id("trouble"), says[trouble.kind]);
  }

  // ---- which process this is ----

  async #askProcess() {
    try {
      const { told } = await ask("/v1/process");
      this.takesOrders = told.takes_orders === true;
      text(id("store"), shown(told.store));
      const candidates = told.candidates ?? [];
      const who = candidates.length === 1 ? `, the process of ${shown(candidates[0].label)}` : "";
      text(id("process"), `primacy ${shown(told.version)}${who}${this.takesOrders ? "" : "; it takes no orders"}`);
    } catch (trouble) {
      if (!(trouble instanceof Trouble)) throw trouble;
      // An earlier version says nothing of itself, and takes orders from others than this page.
      if (trouble.kind === "none") this.takesOrders = false;
    }
    await this.#askWhetherOnly();
  }

  /** The only election is shown without being named in the address: until there are others. */
  async #askWhetherOnly() {
    if (this.#named() !== null || !(this.#view instanceof Election)) return;
    try {
      const { told } = await ask("/v1/elections");
      const is = told.elections.length === 1 && told.elections[0].election === this.#view.name;
      if (!is && this.#named() === null) this.#route(false);
    } catch (trouble) {
      // The view says what is wrong.
      if (!(trouble instanceof Trouble)) throw trouble;
    }
  }
}

new Page();
