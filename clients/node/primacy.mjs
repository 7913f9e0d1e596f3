// Leader election for Node programs, through the agent of primacy on this host.

import fs from 'node:fs';
import net from 'node:net';

const PROTOCOL = 1;
// What a frame of a program has at most, with the newline at its end.
const FRAME_BYTES_MAX = 16 * 1024;
// What a frame of an agent has at most.
const ANSWER_BYTES_MAX = 4 * 1024 * 1024;
const DATA_BYTES_MAX = 1024;
// A longer path does not fit into an address of the system.
const PATH_BYTES_MAX = 107;
// Within this time the agent speaks first.
const GREETING_MS = 5000;
// An agent gives an order for 10 s at most.
const ANSWER_MS = 15000;
// Timers stand still while the host is suspended, so a leader looks at the clock so often at least.
const LOOK_MS = 1000;
// A connection that has held for so long has worked, and the next attempt is made at once.
const WORKED_MS = 1000;
const BACK_OFF_FIRST_MS = 50;
const BACK_OFF_LAST_MS = 1000;
const PROOFS = ['none', 'process', 'cgroup'];
// After these refusals it is of use to ask again later.
const PASSING_CODES = ['busy', 'ending', 'unavailable'];

// What goes wrong.

/** Any error of this package, but for wrong arguments and aborted waits. */
export class PrimacyError extends Error {
  get name() {
    return this.constructor.name;
  }
}

/** The agent refuses what it was asked for. */
export class RefusedError extends PrimacyError {
  constructor(code, why) {
    super(`${why} (${code})`);
    this.code = code;
    this.why = why;
  }
}

/** No agent was reached, or it has not answered as it should. */
export class AgentError extends PrimacyError {
  constructor(why, isSent = false) {
    super(why);
    // Whether the request was sent: if so, an order may have been carried out.
    this.isSent = isSent;
  }
}

/** The candidate was closed. */
export class ClosedError extends PrimacyError {}

/** Why a leadership was lost. It is the reason of its `signal`. */
export class LostError extends PrimacyError {
  constructor(reason, why) {
    super(`${why} (${reason})`);
    this.reason = reason;
    this.why = why;
  }
}

// The agent has sent what is no frame. It ends the connection, and no caller sees it.
class MalformedFrame extends Error {}

// The clock.

// /proc/uptime is CLOCK_BOOTTIME in steps of 10 ms, truncated. So it is at most this much later.
const STEP_NS = 10_000_000;
const uptime = { file: undefined, text: Buffer.alloc(64) };

/** CLOCK_BOOTTIME, at most 10 ms too early. */
function bootNs() {
  uptime.file ??= fs.openSync('/proc/uptime', 'r');
  const length = fs.readSync(uptime.file, uptime.text, 0, uptime.text.length, 0);
  const found = /^(\d+)\.(\d\d) /.exec(uptime.text.latin1Slice(0, length));
  if (found === null) {
    throw new PrimacyError('/proc/uptime does not tell the time since the host has started');
  }
  return (Number(found[1]) * 100 + Number(found[2])) * STEP_NS;
}

/** CLOCK_BOOTTIME, at most 10 ms too late and never too early: deadlines are compared with it. */
function latestNs() {
  return bootNs() + STEP_NS;
}

// Frames.

function encode(frame) {
  const line = `${JSON.stringify(frame)}\n`;
  const length = Buffer.byteLength(line);
  if (length > FRAME_BYTES_MAX) {
    throw new RangeError(`a frame has at most ${FRAME_BYTES_MAX} bytes, and this has ${length}`);
  }
  return line;
}

/** Cuts what is received into lines. */
class LineReader {
  #parts = [];
  #length = 0;

  *feed(data) {
    let begin = 0;
    while (true) {
      const end = data.indexOf(0x0a, begin);
      const length = this.#length + (end < 0 ? data.length : end) - begin;
      if (length >= ANSWER_BYTES_MAX) {
        throw new MalformedFrame(`a frame of the agent has more than ${ANSWER_BYTES_MAX} bytes`);
      }
      this.#parts.push(data.subarray(begin, end < 0 ? data.length : end));
      this.#length = length;
      if (end < 0) {
        return;
      }
      const line = this.#parts.length === 1 ? this.#parts[0] : Buffer.concat(this.#parts);
      this.#parts = [];
      this.#length = 0;
      begin = end + 1;
      yield line;
    }
  }
}

// A string with the whole number that it names, or any other string.
const NAMED_NUMBER = /"([^"\\]*(?:\\.[^"\\]*)*)"\s*:\s*(\d+)(?=\s*[,}])|"[^"\\]*(?:\\.[^"\\]*)*"/g;
// What the agent tells of elections has tokens as numbers.
const EXACT_TYPES = ['seen', 'ordered', 'holds'];

function decode(line) {
  let text;
  let frame;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(line);
    frame = JSON.parse(text);
    if (EXACT_TYPES.includes(frame?.type)) {
      frame = parseExactly(text);
    }
  } catch (error) {
    throw new MalformedFrame(`the agent has sent what is no JSON: ${error.message}`);
  }
  if (typeof frame !== 'object' || typeof frame?.type !== 'string') {
    throw new MalformedFrame('the agent has sent what is no object with a type');
  }
  return frame;
}

/** Tokens become of type bigint: a number of JavaScript does not hold all of their digits. */
function parseExactly(text) {
  const quoted = text.replace(NAMED_NUMBER, (all, name, digits) =>
    name === 'token' ? `"token":"${digits}"` : all,
  );
  return JSON.parse(quoted, (name, value) =>
    name === 'token' && typeof value === 'string' && /^\d+$/.test(value) ? BigInt(value) : value,
  );
}

function malformed(frame, field, lack) {
  return new MalformedFrame(`${field} of a frame ${frame.type} is ${lack}`);
}

function textOf(frame, field) {
  const value = frame[field] ?? '';
  if (typeof value !== 'string') {
    throw malformed(frame, field, 'no text');
  }
  return value;
}

function numberOf(frame) {
  if (!Number.isSafeInteger(frame.n) || frame.n < 0) {
    throw malformed(frame, 'n', 'no whole number');
  }
  return frame.n;
}

/** A point in time, never later than the agent has said. */
function pointOf(frame, field) {
  const value = frame[field];
  if (!Number.isInteger(value) || value < 0) {
    throw malformed(frame, field, 'no whole number');
  }
  // A larger number was rounded, perhaps up. This is at least one step down.
  return Number.isSafeInteger(value) ? value : value - value * Number.EPSILON;
}

function tokenOf(frame) {
  if (typeof frame.token !== 'string' || !/^\d{1,20}$/.test(frame.token)) {
    throw malformed(frame, 'token', 'no number in digits');
  }
  return BigInt(frame.token);
}

function standingOf(frame) {
  const { position = null, leader = null } = frame;
  if (position !== null && !Number.isSafeInteger(position)) {
    throw malformed(frame, 'position', 'no whole number');
  }
  if (leader !== null && typeof leader !== 'object') {
    throw malformed(frame, 'leader', 'no object');
  }
  const named = leader && { type: frame.type, name: leader.name, token: leader.token };
  return {
    position,
    leader: named && {
      name: textOf(named, 'name'),
      token: (named.token ?? null) === null ? null : tokenOf(named),
    },
    why: textOf(frame, 'why'),
  };
}

// Connections.

function agentPath(given) {
  const runtime = process.env.XDG_RUNTIME_DIR;
  let path = given ?? process.env.PRIMACY_AGENT;
  // In a folder of another user, as after `sudo -E`, or in one for all, as /tmp, anybody could be
  // the agent.
  const isOwn = (folder) => {
    const found = fs.statSync(folder, { throwIfNoEntry: false });
    return found?.uid === process.geteuid() && (found.mode & 0o022) === 0;
  };
  const isSafe = () => isOwn(runtime) && isOwn(`${runtime}/primacy`);
  if (!path && runtime && fs.existsSync(`${runtime}/primacy/agent.sock`) && isSafe()) {
    path = `${runtime}/primacy/agent.sock`;
  }
  return path || '/run/primacy/agent.sock';
}

function checkPath(given) {
  if (given !== undefined && typeof given !== 'string') {
    throw new TypeError('the path of the socket is no string');
  }
  const path = agentPath(given);
  if (Buffer.byteLength(path) > PATH_BYTES_MAX) {
    throw new RangeError(`a path of a socket has at most ${PATH_BYTES_MAX} bytes: ${path}`);
  }
}

function checkElection(election) {
  if (typeof election !== 'string') {
    throw new TypeError('the name of the election is no string');
  }
}

/** The time until the next attempt: from 50 ms, doubling, to 1 s, less some jitter. */
class BackOff {
  #nextMs = BACK_OFF_FIRST_MS;

  reset() {
    this.#nextMs = BACK_OFF_FIRST_MS;
  }

  next() {
    const delay = this.#nextMs * (0.5 + 0.5 * Math.random());
    this.#nextMs = Math.min(BACK_OFF_LAST_MS, this.#nextMs * 2);
    return delay;
  }
}

/**
 * One connection with one request. Its owner is told `received(frame)`, which may throw a
 * `MalformedFrame`, `settled()` after the frames that came together, and once
 * `ended(error, isBad)`: a `RefusedError` or an `AgentError`, bad if the agent does not keep the
 * protocol.
 */
class Connection {
  isSent = false;
  isEnded = false;
  #owner;
  #socket;
  #request;
  #reader = new LineReader();
  #greeting;

  constructor(given, request, owner) {
    const path = agentPath(given);
    this.#owner = owner;
    this.#request = request;
    this.#greeting = setTimeout(() => {
      this.#end(new AgentError('the agent has not spoken within 5 s'), true);
    }, GREETING_MS);
    this.#socket = net.createConnection({ path });
    this.#socket.on('data', (data) => this.#receive(data));
    this.#socket.on('error', ({ message }) => {
      this.#end(this.#error(`the connection to the agent at ${path} failed: ${message}`));
    });
    const over = () => this.#end(this.#error('the agent has ended the connection'));
    this.#socket.on('end', over);
    this.#socket.on('close', over);
  }

  #error(why) {
    return new AgentError(why, this.isSent);
  }

  #receive(data) {
    if (this.isEnded) {
      return;
    }
    try {
      for (const line of this.#reader.feed(data)) {
        this.#take(decode(line));
        if (this.isEnded) {
          return;
        }
      }
    } catch (error) {
      if (!(error instanceof MalformedFrame)) {
        throw error;
      }
      this.#end(this.#error(error.message), true);
      return;
    }
    this.#owner.settled?.();
  }

  /** Takes note of a frame first and answers it then: the agent reckons with what was answered. */
  #take(frame) {
    if (frame.type === 'refused') {
      this.#end(new RefusedError(textOf(frame, 'code'), textOf(frame, 'why')));
    } else if (this.isSent) {
      const number = frame.n === undefined ? undefined : numberOf(frame);
      this.#owner.received(frame);
      if (number !== undefined) {
        this.send({ type: 'read', n: number });
      }
    } else if (frame.type === 'agent') {
      clearTimeout(this.#greeting);
      this.send(this.#request());
      this.isSent = true;
    }
  }

  #end(error, isBad = false) {
    if (!this.isEnded) {
      this.close();
      this.#owner.ended(error, isBad);
    }
  }

  /** Sends a frame. `done` is called when the system has taken it, or nobody can. */
  send(frame, done = undefined) {
    if (this.isEnded) {
      done?.();
    } else {
      this.#socket.write(encode(frame), done && (() => done()));
    }
  }

  /** Ends it, after what was sent. The owner is not told. */
  close() {
    if (this.isEnded) {
      return;
    }
    this.isEnded = true;
    clearTimeout(this.#greeting);
    this.#socket.unref();
    if (this.#socket.connecting) {
      this.#socket.destroy();
    } else {
      // The agent hangs up when it has read all, unless it stands still.
      this.#socket.end();
      setTimeout(() => this.#socket.destroy(), WORKED_MS).unref();
    }
  }

  /** Whether the process goes on for it. */
  keepAlive(isKept) {
    if (isKept && !this.isEnded) {
      this.#socket.ref();
    } else {
      this.#socket.unref();
    }
  }
}

// Candidates.

/** A leadership as its candidate knows it. */
class Term {
  // It does not lead any more, whatever the deadline is.
  isOver = false;
  // The agent knows that it ends, and does not extend it.
  isTold = false;
  // The program has said that its work has stopped.
  isLeft = false;
  // While draining: when the work must have stopped.
  byNs = Infinity;
  reason = null;
  why = '';
  // It is there once the leadership was handed out.
  tellLoss = undefined;

  constructor(candidate, connection, frame) {
    this.candidate = candidate;
    this.connection = connection;
    this.token = tokenOf(frame);
    this.stopNs = pointOf(frame, 'stop_ns');
    this.deadlineNs = pointOf(frame, 'deadline_ns');
  }

  isCurrent() {
    this.judge();
    return !this.isOver;
  }

  remainingNs() {
    const end = Math.min(this.deadlineNs, this.byNs);
    return this.isOver ? 0 : Math.max(0, end - latestNs());
  }

  /** A loss that was told stays, and the time to stop does not get longer by an extension. */
  extend(stopNs, deadlineNs) {
    if (this.reason === null && latestNs() < this.deadlineNs) {
      this.stopNs = stopNs;
      this.deadlineNs = deadlineNs;
    }
  }

  /** Finds a loss that nobody else tells. */
  judge() {
    if (this.isOver) {
      return;
    }
    const now = latestNs();
    this.isOver = now >= this.deadlineNs;
    if (this.isOver || now >= this.stopNs) {
      if (this.connection.isEnded) {
        this.lose('disconnected', 'the connection to the agent has ended');
      } else {
        this.lose('silent', 'the agent has not extended the leadership in time');
      }
      this.tellLoss?.();
    }
  }

  /** The work is to stop. The first reason counts. */
  lose(reason, why) {
    if (this.reason === null) {
      this.reason = reason;
      this.why = why;
    }
  }
}

/** The right to act as leader, until its deadline. */
export class Leadership {
  #term;
  #abort = new AbortController();
  #close;

  constructor(term, onLost) {
    this.#term = term;
    this.lost = new Promise((resolve) => {
      term.tellLoss = () => {
        term.tellLoss = undefined;
        const { reason, why } = term;
        resolve(reason);
        if (onLost !== undefined && reason !== 'resigned') {
          queueMicrotask(() => onLost(this, reason));
        }
        this.#abort.abort(new LostError(reason, why));
      };
    });
  }

  get token() {
    return this.#term.token;
  }

  isCurrent() {
    return this.#term.isCurrent();
  }

  remaining() {
    return this.#term.remainingNs() / 1e6;
  }

  get signal() {
    return this.#abort.signal;
  }

  get reason() {
    this.#term.judge();
    return this.#term.reason;
  }

  get why() {
    this.#term.judge();
    return this.#term.why;
  }

  close() {
    this.#close ??= new Promise((resolve) => this.#term.candidate.left(this.#term, resolve));
    return this.#close;
  }
}

/** What a candidate does, over as many connections as it takes. */
class Engine {
  standing = null;
  trouble = 'not connected yet';
  #request;
  #options;
  #connection;
  // Since when the agent knows the hold.
  #heldSince;
  #hasElected = false;
  #backOff = new BackOff();
  #attempt;
  #clock;
  // What was handed out and not left yet.
  #out;
  // What nobody has asked for yet.
  #kept;
  #waiting = new Set();
  #accepted;
  #failure;
  // The program has closed it, and has not left its leadership yet.
  #isClosing = false;

  constructor(request, options) {
    this.#request = request;
    this.#options = options;
    this.accepted = new Promise((resolve, reject) => {
      this.#accepted = { resolve, reject };
    });
    this.accepted.catch(() => {});
    this.#connect();
  }

  // What the program asks of it.

  elected(signal) {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const abort = () => {
        this.#waiting.delete(waiter);
        reject(signal.reason);
      };
      const leave = () => signal?.removeEventListener('abort', abort);
      const waiter = {
        resolve: (leadership) => (leave(), resolve(leadership)),
        reject: (error) => (leave(), reject(error)),
      };
      this.#waiting.add(waiter);
      signal?.addEventListener('abort', abort);
      this.settled();
    });
  }

  /** The program's work of this term has stopped. */
  left(term, done) {
    // Before the agent learns of it: from then on somebody else may lead.
    term.isOver = true;
    term.isLeft = true;
    term.lose('resigned', 'the program has closed the leadership');
    if (this.#out === term) {
      this.#out = undefined;
    }
    const { connection } = term;
    connection.keepAlive(true);
    this.#sayStopped(term, () => {
      connection.keepAlive(this.#failure === undefined);
      done();
    });
    if (this.#isClosing) {
      this.#finish();
    }
    term.tellLoss?.();
    this.settled();
  }

  /**
   * The program does not want to lead any more. While it has not left its leadership the connection
   * stays, to say so when it does; but no longer than until the deadline, which is not extended.
   */
  close() {
    if (this.#failure !== undefined) {
      return;
    }
    this.#discard();
    this.#failure = new ClosedError('the candidate is closed');
    this.#out?.lose('closed', 'the program has closed its candidate');
    this.#isClosing = this.#out !== undefined && !this.#out.connection.isEnded;
    if (this.#isClosing) {
      this.#connection.keepAlive(false);
    } else {
      this.#finish();
    }
    this.settled();
  }

  // What its connection tells it.

  received(frame) {
    switch (frame.type) {
      case 'waiting':
        numberOf(frame);
        this.standing = standingOf(frame);
        break;
      case 'elected':
        numberOf(frame);
        this.#elected(new Term(this, this.#connection, frame));
        break;
      case 'extended': {
        numberOf(frame);
        const [stopNs, deadlineNs] = [pointOf(frame, 'stop_ns'), pointOf(frame, 'deadline_ns')];
        this.#termOf(frame)?.extend(stopNs, deadlineNs);
        break;
      }
      case 'draining':
      case 'lost': {
        numberOf(frame);
        const [reason, why] = [textOf(frame, 'reason'), textOf(frame, 'why')];
        const byNs = frame.type === 'draining' ? pointOf(frame, 'by_ns') : undefined;
        const term = this.#termOf(frame);
        if (term !== undefined) {
          term.isTold = true;
          term.byNs = byNs ?? term.byNs;
          term.isOver ||= frame.type === 'lost';
          term.lose(reason, why);
        }
        break;
      }
      default:
        return;
    }
    this.#heldSince ??= performance.now();
    this.trouble = this.#failure?.message ?? null;
    this.#accepted.resolve();
  }

  /** Something has changed, and frames are answered: does all that is due. */
  settled() {
    const terms = [this.#out, this.#kept].filter((term) => term !== undefined);
    terms.forEach((term) => term.judge());
    if (this.#kept !== undefined && this.#kept.reason !== null) {
      this.#discard();
    }
    this.#endUnleft();
    if (this.#failure !== undefined) {
      this.#waiting.forEach((waiter) => waiter.reject(this.#failure));
      this.#waiting.clear();
    }
    const [waiter] = this.#waiting;
    if (waiter !== undefined && this.#kept !== undefined && this.#out === undefined) {
      this.#waiting.delete(waiter);
      this.#out = this.#kept;
      this.#kept = undefined;
      waiter.resolve(new Leadership(this.#out, this.#options.onLost));
    }
    this.#setClock();
    const lost = this.#out;
    if (lost !== undefined && lost.reason !== null) {
      lost.tellLoss?.();
    }
  }

  ended(error, isBad) {
    this.standing = null;
    this.#connection = undefined;
    // Nobody works by it, and it cannot be extended: it is as good as lost.
    this.#kept = undefined;
    if (this.#isClosing) {
      this.#finish();
    } else if (error instanceof RefusedError && !PASSING_CODES.includes(error.code)) {
      this.#failure = error;
      this.#accepted.reject(error);
      this.#finish();
    } else {
      const hasHeld = performance.now() - (this.#heldSince ?? Infinity) >= WORKED_MS;
      const hasWorked = this.#hasElected || hasHeld;
      if (hasWorked) {
        this.#backOff.reset();
      }
      const isAtOnce = hasWorked && !isBad && !(error instanceof RefusedError);
      this.trouble = error.message;
      this.#attempt = setTimeout(() => this.#connect(), isAtOnce ? 0 : this.#backOff.next());
    }
    this.#heldSince = undefined;
    this.#hasElected = false;
    this.settled();
  }

  // How it gets there.

  #connect() {
    const request = () => ({ ...this.#request, now_ns: bootNs() });
    this.#connection = new Connection(this.#options.socket, request, this);
  }

  #elected(term) {
    this.standing = null;
    this.#discard();
    if (this.#out?.connection === term.connection) {
      // It was not left, and the agent says by this that it is over.
      this.#out.isOver = this.#out.isTold = true;
      this.#out.lose('lost', 'another leadership has begun');
    }
    this.#hasElected = true;
    this.#kept = term;
    if (this.#failure !== undefined) {
      this.#discard();
    }
  }

  #termOf(frame) {
    const token = tokenOf(frame);
    return [this.#out, this.#kept].find(
      (term) => term?.token === token && term.connection === this.#connection,
    );
  }

  /** Gives back what nobody has asked for: no work has begun. */
  #discard() {
    const term = this.#kept;
    this.#kept = undefined;
    if (term !== undefined) {
      this.#sayStopped(term);
    }
  }

  #sayStopped(term, done = undefined) {
    term.connection.send({ type: 'stopped', token: String(term.token) }, done);
  }

  /** A leadership that the program has not left by its deadline: the agent is not to extend it. */
  #endUnleft() {
    const term = this.#out;
    if (term === undefined || term.reason === null || term.connection.isEnded) {
      return;
    }
    if ((this.#isClosing || !term.isTold) && latestNs() >= term.deadlineNs) {
      term.connection.close();
      this.ended(new AgentError('the work was not stopped by the deadline'), true);
    }
  }

  #setClock() {
    clearTimeout(this.#clock);
    const due = [this.#out, this.#kept]
      .filter((term) => term !== undefined && !(term.isOver && term.connection.isEnded))
      .map((term) => (term.reason === null ? term.stopNs : term.deadlineNs));
    if (due.length > 0) {
      const delay = Math.ceil((Math.min(...due) - latestNs()) / 1e6);
      const look = delay > 0 ? Math.min(delay, LOOK_MS) : LOOK_MS;
      this.#clock = setTimeout(() => this.settled(), look);
      if (this.#failure !== undefined) {
        this.#clock.unref();
      }
    }
  }

  /** Ends the connection, and makes no other. */
  #finish() {
    this.#isClosing = false;
    clearTimeout(this.#attempt);
    this.#connection?.close();
    this.#connection = undefined;
    this.standing = null;
    this.trouble = this.#failure.message;
    this.#accepted.reject(this.#failure);
  }
}

/** One that wants to lead an election, until it is closed. */
export class Candidate {
  #engine;

  constructor(engine) {
    this.#engine = engine;
  }

  elected({ signal } = {}) {
    return this.#engine.elected(signal);
  }

  get standing() {
    return this.#engine.standing;
  }

  get trouble() {
    return this.#engine.trouble;
  }

  async close() {
    this.#engine.close();
  }
}

export async function campaign(election, options = {}) {
  const { name, data, proof, socket, onLost, signal } = options;
  checkElection(election);
  checkPath(socket);
  if (proof !== undefined && !PROOFS.includes(proof)) {
    throw new TypeError(`proof is one of ${PROOFS.join(', ')}`);
  }
  if (data !== undefined && Buffer.byteLength(data) > DATA_BYTES_MAX) {
    throw new RangeError(`data has at most ${DATA_BYTES_MAX} bytes`);
  }
  const request = { type: 'hold', protocol: PROTOCOL, election, name, data, proof };
  encode({ ...request, now_ns: bootNs() });
  signal?.throwIfAborted();
  const engine = new Engine(request, { socket, onLost });
  const abort = () => engine.close();
  signal?.addEventListener('abort', abort);
  try {
    await engine.accepted;
  } catch (error) {
    throw signal?.aborted ? signal.reason : error;
  } finally {
    signal?.removeEventListener('abort', abort);
  }
  return new Candidate(engine);
}

// Looking at elections.

/** How an election stands, at once and after each change: an async iterator. */
export class Observation {
  trouble = 'not connected yet';
  #request;
  #socket;
  #signal;
  #connection;
  #attempt;
  #backOff = new BackOff();
  #seen;
  #waiting = [];
  #isClosed = false;
  #failure;
  #abort = () => this.#fail(this.#signal.reason);

  constructor(election, { socket, signal } = {}) {
    checkElection(election);
    checkPath(socket);
    this.#request = { type: 'observe', protocol: PROTOCOL, election };
    encode(this.#request);
    this.#socket = socket;
    this.#signal = signal;
    if (signal?.aborted) {
      this.#fail(signal.reason);
    }
    signal?.addEventListener('abort', this.#abort);
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  next() {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      if (!this.#isClosed && this.#connection === undefined && this.#attempt === undefined) {
        this.#connect();
      }
      this.#serve();
    });
  }

  async return() {
    this.#finish();
    return { done: true, value: undefined };
  }

  async close() {
    this.#finish();
  }

  #connect() {
    this.#attempt = undefined;
    this.#connection = new Connection(this.#socket, () => this.#request, {
      received: (frame) => this.#received(frame),
      ended: (error) => this.#ended(error),
    });
  }

  #received(frame) {
    if (frame.type === 'seen') {
      numberOf(frame);
      if (typeof frame.status !== 'object' || frame.status === null) {
        throw malformed(frame, 'status', 'no object');
      }
      this.#seen = frame.status;
      this.trouble = null;
      this.#backOff.reset();
      this.#serve();
    }
  }

  #ended(error) {
    this.trouble = error.message;
    this.#connection = undefined;
    if (error instanceof RefusedError && !PASSING_CODES.includes(error.code)) {
      this.#fail(error);
    } else {
      this.#attempt = setTimeout(() => this.#connect(), this.#backOff.next());
    }
  }

  #serve() {
    if (this.#waiting.length > 0 && this.#seen !== undefined) {
      this.#waiting.shift().resolve({ done: false, value: this.#seen });
      this.#seen = undefined;
    }
    while (this.#isClosed && this.#waiting.length > 0) {
      const { resolve, reject } = this.#waiting.shift();
      if (this.#failure === undefined) {
        resolve({ done: true, value: undefined });
      } else {
        reject(this.#failure);
        this.#failure = undefined;
      }
    }
  }

  #fail(error) {
    this.#failure = error;
    this.#finish();
  }

  #finish() {
    this.#isClosed = true;
    this.#seen = undefined;
    this.trouble = 'closed';
    clearTimeout(this.#attempt);
    this.#connection?.close();
    this.#signal?.removeEventListener('abort', this.#abort);
    this.#serve();
  }
}

export function observe(election, options = {}) {
  return new Observation(election, options);
}

// Orders, and the agent itself.

/** The one answer to a request. */
async function ask(request, type, { socket, timeout = ANSWER_MS, signal } = {}) {
  checkPath(socket);
  encode(request);
  signal?.throwIfAborted();
  return new Promise((resolve, reject) => {
    const settle = (settlement, value) => {
      clearTimeout(patience);
      signal?.removeEventListener('abort', abort);
      connection.close();
      settlement(value);
    };
    const connection = new Connection(socket, () => request, {
      received: (frame) => frame.type === type && settle(resolve, frame),
      ended: (error) => settle(reject, error),
    });
    const abort = () => settle(reject, signal.reason);
    const patience = setTimeout(() => {
      settle(reject, new AgentError('the agent has not answered in time', connection.isSent));
    }, timeout);
    signal?.addEventListener('abort', abort);
  });
}

async function give(order, election, candidate, { token, ...options }) {
  checkElection(election);
  const request = { type: 'order', protocol: PROTOCOL, election, order, candidate };
  if (token !== undefined) {
    request.token = String(BigInt(token));
  }
  const { outcome } = await ask(request, 'ordered', options);
  if (typeof outcome !== 'object' || outcome === null) {
    throw new AgentError('the answer of the agent has no outcome', true);
  }
  return outcome;
}

export async function promote(election, candidate, options = {}) {
  if (typeof candidate !== 'string') {
    throw new TypeError('the name of the candidate is no string');
  }
  return give('promote', election, candidate, options);
}

export async function depose(election, options = {}) {
  return give('depose', election, undefined, options);
}

export async function pause(election, options = {}) {
  return give('pause', election, undefined, options);
}

export async function resume(election, options = {}) {
  return give('resume', election, undefined, options);
}

export async function holds(options = {}) {
  const { holds: listed } = await ask({ type: 'list', protocol: PROTOCOL }, 'holds', options);
  if (!Array.isArray(listed)) {
    throw new AgentError('the answer of the agent has no holds', true);
  }
  return listed;
}

// `await using` and `using`, where the runtime has them.

function define(type, symbol, dispose) {
  if (symbol !== undefined) {
    const property = { value: dispose, configurable: true, writable: true };
    Object.defineProperty(type.prototype, symbol, property);
  }
}

for (const type of [Leadership, Candidate, Observation]) {
  define(type, Symbol.asyncDispose, function asyncDispose() {
    return this.close();
  });
  define(type, Symbol.dispose, function dispose() {
    this.close();
  });
}
