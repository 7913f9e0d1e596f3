// How spans, points in time, states and reasons are said, and how foreign text is shown.

// As the command escapes them: what is invisible, or changes the direction of what stands around it.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** Foreign text with the characters escaped that are invisible or steer. */
export function shown(text) {
  return String(text ?? "").replace(UNSEEN, (character) => `\\u{${character.codePointAt(0).toString(16)}}`);
}

/** A span of time in milliseconds, in its largest one or two units. */
export function span(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 1) return "less than 1 s";
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 === 0 || hours >= 10 ? `${hours} h` : `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} days`;
}

/** How long a lease still lasts, or lasts at all: with tenths while they matter. */
export function short(ms) {
  if (ms < 60_000) return `${(Math.max(0, Math.floor(ms / 100)) / 10).toFixed(1)} s`;
  return span(ms);
}

/** A whole length of time, such as that of a lease: exact, and without zeros behind it. */
export function exact(ms) {
  return ms < 1000 ? `${ms} ms` : ms < 60_000 ? `${ms / 1000} s` : span(ms);
}

/** The time of day of this moment. */
export function clock(wall) {
  return new Date(wall).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

/** Date and time of this moment, as titles have it. */
export function date(wall) {
  const at = new Date(wall);
  const two = (number) => String(number).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(wall)}`;
}

export const STATES = {
  led: "led",
  vacant: "nobody leads",
  unknown: "unknown",
  never: "never led",
  forgotten: "forgotten",
};

/** Why a leadership ended, to follow on "because". */
const REASONS = {
  finished: "its work was finished",
  withdrawn: "it was asked to stop",
  resigned: "it resigned",
  deposed: "an operator asked for a new election",
  promoted: "an operator asked for another leader",
  expired: "it could not renew its lease in time",
  lost: "another candidate held the lease",
  removed: "the record was emptied or deleted",
  "store-regressed": "the store went back to an older state",
  suspended: "its machine was suspended",
  died: "its process died",
  "taken-over": "it went silent and its lease was taken over",
};

export function because(word) {
  return REASONS[word] ?? shown(word);
}

/** What is said of a state in which nobody is known to lead. */
export function leaderless(told) {
  switch (told.state) {
    case "vacant":
      return "Nobody leads";
    case "never":
      return "Nobody has ever led";
    case "forgotten":
      return "Nobody leads: the election is forgotten";
    default:
      return "Who leads is unknown";
  }
}

// Letters that are written from right to left.
const TURNS = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/** A leader's or candidate's name in a sentence, whose order it does not change. */
export function named(who) {
  const name = shown(who.label);
  return TURNS.test(name) ? `\u2068${name}\u2069` : name;
}
