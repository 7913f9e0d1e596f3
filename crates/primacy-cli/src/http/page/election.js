// One election: who leads, who is next and why, the store or the voters, and the leaderships so far.

import { Changes, Poll, Trouble, ago, ask, now, path } from "./ask.js";
import { attribute, copy, id, list, show, text } from "./dom.js";
import { History } from "./history.js";
import { STATES, exact, leaderless, named, short, shown, span } from "./words.js";

/** How often the lease that remains is asked for: this many times in a lease, within bounds. */
const ASKED_PER_LEASE = 8;
const ASK_LEAST = 250;
const ASK_MOST = 1000;
/** A shorter lease runs out between two questions. */
const LEASE_LEAST = 1000;
/** An answer that is older than this tells of the past alone. */
const OLD_AFTER = 5000;
/** What was known before a change is told for a moment after it. */
const KNOWN_FOR = 300;
/** How often the lease that remains is drawn anew. */
const DRAW_EVERY = 50;
const DRAW_SELDOM = 1000;

const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class Election {
  #told = null;
  #at = null;
  /** When the last change was told. */
  #changed = null;
  #trouble = null;
  #lagging = false;
  #claimed = null;
  #ended = false;
  #frame;
  #drawn = -Infinity;

  /** `page` shows troubles and news, and knows whether orders are taken. */
  constructor(name, page) {
    this.name = name;
    this.page = page;
    text(id("name"), shown(name));
    ["who", "data", "keeper-says", "next-why"].forEach((part) => text(id(part), ""));
    ["sentences", "candidates", "namesakes", "voters"].forEach((part) => id(part).replaceChildren());
    id("election").classList.add("blank");
    id("election").classList.remove("old");
    ["state", "lease", "paused", "pending", "orders", "why"].forEach((part) => show(id(part), false));
    this.history = new History(name);
    this.poll = new Poll(() => this.#ask(), () => this.#pause());
    this.changes = new Changes(name, (line) => this.#change(line), () => this.poll.soon());
    this.#tick();
  }

  end() {
    this.#ended = true;
    cancelAnimationFrame(this.#frame);
    this.poll.end();
    this.changes.end();
    this.history.end();
  }

  /** The election as it was told last; `null` while that is old, or nothing was told. */
  get told() {
    return this.#trouble || this.#isOld() ? null : this.#told;
  }

  #pause() {
    if (this.#lagging) return KNOWN_FOR;
    const lease = this.#told?.lease_ms ?? Infinity;
    return Math.min(ASK_MOST, Math.max(ASK_LEAST, lease / ASKED_PER_LEASE));
  }

  async #ask() {
    let answer;
    try {
      answer = await ask(path(this.name));
    } catch (trouble) {
      if (!(trouble instanceof Trouble)) throw trouble;
      if (!this.#ended) this.#fail(trouble);
      return;
    }
    // Another view has taken its place on the page.
    if (this.#ended) return;
    this.page.reached();
    this.history.ahead = answer.ahead;
    // It may have been learnt before a change of which a stream has told already.
    this.#lagging = this.#changed !== null && ago(answer.asked) + answer.told.answer_age_ms > ago(this.#changed);
    if (this.#lagging) return;
    this.#trouble = null;
    this.#take(answer.told, answer.asked);
  }

  /** A change that a stream has told. The lease is counted from when it came: less may be left of it, never more. */
  #change(line) {
    if (line.now === null) {
      this.poll.soon();
      return;
    }
    this.#changed = now();
    this.#trouble = null;
    this.page.reached();
    const same = this.#told && line.now.token === this.#told.token && line.now.state === this.#told.state;
    const more = same ? this.#told : {};
    this.#take({ store: this.#told?.store, support: more.support, explanation: more.explanation, ...line.now }, this.#changed);
    this.poll.soon();
  }

  #fail(trouble) {
    this.#trouble = trouble;
    this.page.lost(trouble);
    this.#draw();
  }

  #take(told, at) {
    const before = this.#told;
    id("election").classList.remove("blank");
    this.#told = told;
    this.#at = at;
    if (!before || before.token !== told.token || before.state !== told.state) this.history.changed();
    this.#draw();
  }

  #isOld() {
    return this.#at === null || ago(this.#at) > OLD_AFTER;
  }

  /** What is left of the lease: never more than was told. `null` if nobody is told to lead. */
  #left() {
    if (this.#told?.state !== "led" || this.#told.remaining_ms === null) return null;
    return Math.max(0, this.#told.remaining_ms - ago(this.#at));
  }

  #isFleeting() {
    return this.#told.lease_ms < LEASE_LEAST;
  }

  #isOut() {
    return this.#left() === 0 && !this.#isFleeting();
  }

  // ---- drawing ----

  #tick = () => {
    const since = performance.now() - this.#drawn;
    if (since >= (calm.matches ? DRAW_SELDOM : DRAW_EVERY)) {
      this.#drawn = performance.now();
      if (this.#told) this.#drawNow();
    }
    this.#frame = requestAnimationFrame(this.#tick);
  };

  #draw() {
    if (!this.#told) return;
    this.#drawNow();
    this.#drawWhy();
    this.#drawNext();
    this.#drawKeeper();
    this.history.draw(this.told);
  }

  /** Who leads, and for how long still. */
  #drawNow() {
    const told = this.#told;
    const isPast = this.told === null;
    const isOut = this.#isOut();
    id("election").classList.toggle("old", isPast);
    const state = isPast || isOut ? "unknown" : told.state;
    show(id("state"), true);
    attribute(id("state"), "class", `state ${state}`);
    text(id("state"), isPast ? "not known now" : STATES[state]);
    show(id("paused"), told.paused && !isPast);
    text(id("who"), this.#who(isPast, isOut));
    const data = told.leader && !isPast && !isOut ? shown(told.leader.data) : "";
    text(id("data"), data);
    const word = isPast || isOut ? STATES.unknown : told.leader ? `${named(told.leader)} leads` : STATES[told.state];
    this.page.title(`${shown(this.name)}: ${word}`);
    this.#drawLease(isPast);
    this.#drawOrders(isPast);
    this.#announce(isPast ? null : isOut ? "out" : `${told.state} ${told.token} ${told.leader?.id}`);
  }

  #who(isPast, isOut) {
    const told = this.#told;
    const holder = told.leader ?? told.silent_holder;
    const name = holder && named(holder);
    if (isPast) {
      const last = told.leader ? `${name} led with token ${told.token}` : leaderless(told);
      return `Who leads is not known now. ${span(ago(this.#at))} ago: ${last}.`;
    }
    if (isOut) {
      return `The lease of ${name} with token ${told.token} has run out; who leads is unknown.`;
    }
    if (told.leader) {
      const since = told.held_for_ms === null ? "" : ` for ${span(told.held_for_ms + ago(this.#at))}`;
      return `${name} ${this.#isFleeting() ? "led when last asked" : "leads"} with token ${told.token}${since}.`;
    }
    if (told.state === "unknown" && holder) {
      return `Who leads is unknown: ${name} had token ${told.token}, and has not renewed its lease.`;
    }
    const last = told.token === null || told.token === "0" ? "" : ` The last token is ${told.token}.`;
    return `${leaderless(told)}.${last}`;
  }

  #drawLease(isPast) {
    const left = this.#left();
    const lease = this.#told.lease_ms;
    show(id("lease"), left !== null && !isPast);
    if (left === null || isPast) return;
    const meter = id("left");
    const fleeting = this.#isFleeting();
    show(meter, !fleeting);
    if (fleeting) {
      text(id("left-text"), `of ${exact(lease)}: too short to be followed here`);
      return;
    }
    attribute(meter, "max", String(lease));
    meter.value = left;
    const says = left === 0 ? "has run out" : `${short(left)} left of ${exact(lease)}`;
    text(id("left-text"), calm.matches ? says.replace(/\.\d s left/, " s left") : says);
  }

  #drawOrders(isPast) {
    const told = this.#told;
    show(id("orders"), this.page.takesOrders && !isPast);
    show(id("pause"), !told.paused);
    show(id("resume"), told.paused);
    show(id("depose"), told.state === "led" || told.state === "unknown");
    const pending = isPast ? null : told.order;
    show(id("pending"), pending !== null);
    if (pending) {
      const whom = pending.successor === null ? "another candidate" : this.#successor(pending.successor);
      const first = told.leader ? ` ${named(told.leader)} stops its work first.` : "";
      text(id("pending"), `An operator has ordered that ${whom} leads.${first}`);
    }
  }

  /** An order has a label, or an id. */
  #successor(name) {
    const all = [...this.#told.candidates, ...(this.#told.leader ? [this.#told.leader] : [])];
    const meant = all.find((who) => who.id === name);
    return meant ? named(meant) : shown(name);
  }

  /** Tells of a change of the leadership, once. */
  #announce(claim) {
    if (claim === null || claim === this.#claimed) return;
    if (this.#claimed !== null) this.page.news(id("who").textContent);
    this.#claimed = claim;
  }

  #drawWhy() {
    const sentences = this.told?.explanation ?? [];
    show(id("why"), sentences.length > 0);
    list(
      id("sentences"),
      sentences,
      (_, index) => index,
      () => document.createElement("li"),
      (item, sentence) => text(item, shown(sentence)),
    );
  }

  #drawNext() {
    const told = this.#told;
    const able = told.candidates.filter((candidate) => candidate.rank !== null);
    text(id("next-why"), `${this.told ? "" : "When it was last told: "}${this.#whyNext(able)}`);
    const first = this.told && !told.paused && !told.order ? able[0] : undefined;
    const kept = list(
      id("candidates"),
      told.candidates,
      (candidate) => candidate.id,
      () => {
        const item = copy("candidate");
        item.querySelector("button").addEventListener("click", () => this.page.order("promote", this, item.candidate));
        return item;
      },
      (item, candidate) => {
        item.candidate = candidate;
        const [label, tag, rank, note, data, button] = item.querySelectorAll(".label, .tag, .rank, .note, .told, button");
        text(label, named(candidate));
        show(tag, candidate === first);
        text(rank, candidate.rank === null ? "never leads" : candidate.rank === "0" ? "" : `rank ${shown(candidate.rank)}`);
        const when = candidate.said_ago_ms === null ? "" : ` (${span(candidate.said_ago_ms)} ago)`;
        text(note, candidate.note ? `${shown(candidate.note)}${when}` : "");
        text(data, shown(candidate.data));
        attribute(button, "aria-label", `Promote ${named(candidate)}…`);
        show(button, this.page.takesOrders && this.told !== null);
      },
    );
    if (!kept && document.activeElement === document.body) id("next-title").focus();
    list(
      id("namesakes"),
      told.namesakes,
      (twins) => twins.label,
      () => document.createElement("li"),
      (item, twins) => text(item, `${twins.ids.length} candidates are called ${shown(twins.label)}: give each a name of its own.`),
    );
  }

  #whyNext(able) {
    const told = this.#told;
    const count = told.candidates.length;
    if (count === 0) return "No candidate waits.";
    if (told.paused) return "Nobody is next: an operator has paused the election.";
    if (told.order?.successor) return `${this.#successor(told.order.successor)} is to be next, as an operator has ordered.`;
    if (able.length === 0) return "Nobody is next: all that wait never lead.";
    const name = named(able[0]);
    if (able.length === 1) return `${name} is next: no other candidate waits that may lead.`;
    if (able[1].rank !== able[0].rank) return `${name} is next: its rank is the smallest.`;
    return `${name} is next: it is the first in the waiting order of ${able.length}.`;
  }

  #drawKeeper() {
    const told = this.#told;
    const support = told.support;
    const isPeers = Boolean(support) || String(told.store).startsWith("peers:");
    text(id("keeper-title"), isPeers ? "Voters" : "Store");
    text(id("keeper-says"), this.#keeper(support));
    list(
      id("voters"),
      support?.voters ?? [],
      (voter, index) => voter.voter ?? index,
      () => copy("voter"),
      (item, voter) => {
        const [state, label, note] = item.children;
        const word = this.told === null ? "unknown" : voter.supports ? "supports" : voter.answers ? "answers" : "silent";
        attribute(state, "class", `state ${word}`);
        text(state, this.told === null ? "not known now" : word === "answers" ? "supports another" : word);
        text(label, shown(voter.voter));
        text(note, voter.obstacle ? shown(voter.obstacle) : "");
      },
    );
  }

  #keeper(support) {
    if (this.#trouble) return "No answer now.";
    if (support) {
      const spare = support.is_majority ? `${support.spare} more may be lost` : "they are no majority";
      return `${support.supporting} of ${support.voters.length} support the leader; ${spare}.`;
    }
    return this.told ? `${shown(this.#told.store)} answers.` : "No answer now.";
  }
}
