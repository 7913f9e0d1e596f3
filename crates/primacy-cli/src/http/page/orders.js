// Orders: what they will do is said first, and then they take the token of orders and a press of a button.

import { Trouble, order } from "./ask.js";
import { id, show, text } from "./dom.js";
import { named, shown } from "./words.js";

/** The token of orders, for as long as this tab is open. It is written nowhere. */
let secret = null;

/** What the order does to a leader that works, or to a lease that nobody gives back. */
function first(told) {
  if (told.leader) {
    return `${named(told.leader)} leads with token ${told.token}. It is told to stop its work, and when that has stopped, `;
  }
  if (told.state === "unknown") {
    const holder = told.silent_holder ? named(told.silent_holder) : "The last leader";
    return `${holder} had token ${told.token} and has gone silent. Its lease is waited out, and then `;
  }
  return "Nobody leads now. When the order is seen, ";
}

const GAP = " Clients see no leader until then.";

const ORDERS = {
  promote: (told, whom) => ({
    title: `Promote ${named(whom)}`,
    says: `${first(told)}${named(whom)} leads.${told.state === "led" ? GAP : ""}`,
    done: `${named(whom)} is to lead.`,
  }),
  depose: (told) => {
    const next = told.candidates.find((candidate) => candidate.rank !== null);
    const who = next ? `another candidate leads: ${named(next)} is next.${GAP}` : "nobody leads: no other candidate waits, so the order will be refused.";
    return { title: "Depose the leader", says: first(told) + who, done: "Another candidate is to lead." };
  },
  pause: (told) => {
    const now = told.leader ? `${named(told.leader)} leads on with token ${told.token}. When its leadership ends, nobody` : "Nobody";
    return {
      title: "Pause the election",
      says: `${now} takes the lease until the election is resumed: not even if the leader dies.`,
      done: "The election is paused.",
    };
  },
  resume: (told) => {
    const now = told.leader ? `${named(told.leader)} leads on.` : "Nobody leads now, and a candidate that waits takes the lease at once.";
    return { title: "Resume the election", says: `${now} Candidates take over again when a leadership ends.`, done: "The election goes on." };
  },
};

export class Orders {
  #given = null;
  #busy = false;

  /** `said` is told what an order came to. */
  constructor(said) {
    this.said = said;
    id("order-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#give();
    });
    id("order-cancel").addEventListener("click", () => id("order").close());
    id("order-forget").addEventListener("click", () => this.#forget());
    id("order").addEventListener("close", () => this.#closed());
  }

  /** Asks whether this order is meant. It is about the leadership that is shown now, and refused if another has begun meanwhile. */
  confirm(word, election, whom) {
    const told = election.told;
    if (!told || id("order").open) return;
    this.#given = { word, election, whom, token: told.token, ...ORDERS[word](told, whom) };
    const { title, says } = this.#given;
    text(id("order-title"), title);
    text(id("order-says"), says);
    text(id("order-give"), title);
    text(id("order-refused"), "");
    show(id("order-give"), true);
    show(id("order-plain"), !isSecureContext);
    this.#askToken();
    id("order").showModal();
    (secret === null ? id("order-token") : id("order-cancel")).focus();
  }

  #askToken() {
    id("order-token").value = "";
    show(id("order-ask"), secret === null);
    show(id("order-kept"), secret !== null);
  }

  #forget() {
    secret = null;
    this.#askToken();
    id("order-token").focus();
  }

  async #give() {
    if (this.#busy) return;
    const typed = id("order-token").value.trim();
    const token = secret ?? typed;
    // What is no such token cannot be sent in a field of HTTP.
    if (!/^[!-~]{16,512}$/.test(token)) {
      this.#refuse("The order token has 16 to 512 printable characters without spaces.");
      id("order-token").focus();
      return;
    }
    const given = this.#given;
    const { word, election, whom } = given;
    this.#busy = true;
    text(id("order-refused"), "");
    try {
      const hasToken = word === "promote" || word === "depose";
      const told = await order(election.name, word, token, whom?.id, hasToken ? given.token ?? undefined : undefined);
      secret = token;
      this.said(told.result === "already" ? "That is so already; nothing was changed." : given.done);
      if (this.#given === given) id("order").close();
    } catch (trouble) {
      if (!(trouble instanceof Trouble)) throw trouble;
      this.#failed(given, trouble, token);
    } finally {
      this.#busy = false;
      election.poll.soon();
    }
  }

  #failed(given, trouble, token) {
    if (trouble.status === 401) secret = null;
    else if (trouble.status !== undefined) secret = token;
    const why = shown(trouble.message);
    const says =
      trouble.kind === "unreachable"
        ? "There is no answer, and it is not known whether the order was given: see who leads."
        : trouble.status === 503
          ? `The store gives no answer: ${why}.`
          : `Refused: ${why}.`;
    if (this.#given !== given) {
      this.said(says);
      return;
    }
    this.#refuse(says);
    this.#askToken();
    if (trouble.status === 401) {
      id("order-token").focus();
    } else {
      // The same order again would be about the same leadership, which is over.
      show(id("order-give"), trouble.status === 503);
      id("order-cancel").focus();
    }
  }

  #refuse(says) {
    text(id("order-refused"), says);
  }

  #closed() {
    this.#given = null;
    id("order-token").value = "";
    // Where the button was that had opened it, if that is gone.
    if (document.activeElement === document.body) document.querySelector("#election h1").focus();
  }
}
