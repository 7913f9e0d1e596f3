// The client against an agent that does what the test says.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import * as primacy from './primacy.mjs';

const LONG_MS = 3_600_000;
const PATIENCE_MS = 20_000;
const ANSWER_BYTES_MAX = 4 * 1024 * 1024;

function bootNs() {
  return Math.round(Number(fs.readFileSync('/proc/uptime', 'latin1').split(' ')[0]) * 100) * 1e7;
}

const inMs = (ms) => bootNs() + ms * 1e6;

async function within(promise, what = 'it') {
  const patience = new AbortController();
  const late = sleep(PATIENCE_MS, undefined, patience).then(() => assert.fail(`${what} is late`));
  late.catch(() => {});
  try {
    return await Promise.race([promise, late]);
  } finally {
    patience.abort();
  }
}

async function until(holds) {
  const late = Date.now() + PATIENCE_MS;
  while (!holds()) {
    assert.ok(Date.now() < late, `${holds} is late`);
    await sleep(2);
  }
}

const isPending = async (promise, ms = 60) =>
  (await Promise.race([promise, sleep(ms, 'pending')])) === 'pending';

/** Keeps timers and sockets waiting, too. */
const block = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

class Queue {
  #items = [];
  #waiting = [];

  put(item) {
    const waiter = this.#waiting.shift();
    if (waiter === undefined) {
      this.#items.push(item);
    } else {
      waiter(item);
    }
  }

  get length() {
    return this.#items.length;
  }

  take(what) {
    return this.#items.length > 0
      ? this.#items.shift()
      : within(new Promise((resolve) => this.#waiting.push(resolve)), what);
  }
}

/** The agent's end of a connection. */
class Peer {
  frames = new Queue();
  #socket;
  #n = 0;
  #text = '';

  constructor(socket) {
    this.#socket = socket;
    this.over = new Promise((resolve) => socket.on('close', resolve));
    socket.on('error', () => {});
    socket.on('data', (data) => {
      const lines = (this.#text + data).split('\n');
      this.#text = lines.pop();
      lines.forEach((line) => this.frames.put(JSON.parse(line)));
    });
    socket.on('end', () => this.frames.put('end'));
  }

  raw(text) {
    this.#socket.write(text);
  }

  send(frame) {
    this.raw(`${JSON.stringify(frame)}\n`);
  }

  async expect(frame) {
    assert.deepEqual(await this.frames.take(`a frame ${JSON.stringify(frame)}`), frame);
  }

  /** Sends a frame with a number, and expects it to be answered. */
  async tell(frame) {
    this.#n += 1;
    this.send({ n: this.#n, ...frame });
    await this.expect({ type: 'read', n: this.#n });
  }

  waiting() {
    return this.tell({ type: 'waiting', position: 1, leader: null, why: 'wait' });
  }

  span(type, token, stopMs = LONG_MS, deadlineMs = LONG_MS) {
    const [stop_ns, deadline_ns] = [inMs(stopMs), inMs(deadlineMs)];
    return this.tell({ type, token: String(token), stop_ns, deadline_ns });
  }

  draining(token, byMs = LONG_MS) {
    const [reason, why] = ['deposed', 'somebody else shall lead'];
    return this.tell({ type: 'draining', token: String(token), reason, why, by_ns: inMs(byMs) });
  }

  lost(token) {
    return this.tell({ type: 'lost', token: String(token), reason: 'expired', why: 'it is over' });
  }

  stopped(token) {
    return this.expect({ type: 'stopped', token: String(token) });
  }

  close() {
    this.#socket.destroy();
  }
}

class FakeAgent {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'primacy-'));
  path = path.join(this.folder, 'agent.sock');
  peers = new Queue();
  #all = [];

  constructor(t) {
    t.after(async () => {
      await this.stop();
      fs.rmSync(this.folder, { recursive: true });
    });
  }

  async start() {
    this.server = net.createServer({ allowHalfOpen: false }, (socket) => {
      const peer = new Peer(socket);
      this.#all.push(peer);
      this.peers.put(peer);
    });
    this.server.listen(this.path);
    await once(this.server, 'listening');
    return this;
  }

  async stop() {
    this.#all.forEach((peer) => peer.close());
    if (this.server?.listening) {
      await new Promise((resolve) => this.server.close(resolve));
    }
  }

  /** A connection whose request was read. */
  async asked() {
    const peer = await this.peers.take('a connection');
    peer.send({ type: 'agent', protocol: 1, now_ns: bootNs() });
    return [peer, await peer.frames.take('a request')];
  }
}

async function begin(t, options = {}) {
  const agent = await new FakeAgent(t).start();
  const accepted = primacy.campaign('billing', { socket: agent.path, ...options });
  const [peer] = await agent.asked();
  await peer.waiting();
  const candidate = await within(accepted);
  t.after(() => candidate.close());
  return { agent, peer, candidate };
}

async function lead(t, options = {}, stopMs = LONG_MS, deadlineMs = LONG_MS) {
  const begun = await begin(t, options);
  await begun.peer.span('elected', 7, stopMs, deadlineMs);
  return { ...begun, leadership: await within(begun.candidate.elected()) };
}

/** Returns when it is over. It is current until its deadline, which lies between these two. */
async function untilOver(leadership, earliest, latest) {
  // The reading is from before the comparison, and the client's is one step later.
  for (let now = bootNs(); leadership.isCurrent(); now = bootNs()) {
    assert.ok(now + 1e7 < latest);
    await sleep(1);
  }
  assert.ok(bootNs() + 1e7 >= earliest);
}

async function again(agent) {
  const [peer] = await agent.asked();
  await peer.waiting();
  return peer;
}

// These mostly wait, and do so at the same time.
const slowTests = [];
const slow = (...words) => slowTests.push(words);

test('the request says what the options say', async (t) => {
  const agent = await new FakeAgent(t).start();
  const options = { name: 'web-1', data: '10.0.0.1', proof: 'process', socket: agent.path };
  const accepted = primacy.campaign('billing', options);
  const before = bootNs();
  const [peer, { now_ns, ...request }] = await agent.asked();
  assert.ok(Number.isInteger(now_ns) && now_ns >= before && now_ns <= bootNs());
  const said = { name: 'web-1', data: '10.0.0.1', proof: 'process' };
  assert.deepEqual(request, { type: 'hold', protocol: 1, election: 'billing', ...said });
  await peer.waiting();
  await (await accepted).close();
});

test('the request leaves out what is not said', async (t) => {
  const agent = await new FakeAgent(t).start();
  const refused = assert.rejects(primacy.campaign('billing', { socket: agent.path }));
  const [peer, request] = await agent.asked();
  assert.deepEqual(Object.keys(request), ['type', 'protocol', 'election', 'now_ns']);
  peer.send({ type: 'refused', code: 'clock', why: 'no' });
  await refused;
});

test('the socket is where the environment says', async (t) => {
  const agent = await new FakeAgent(t).start();
  const { PRIMACY_AGENT, XDG_RUNTIME_DIR } = process.env;
  t.after(() => {
    Object.entries({ PRIMACY_AGENT, XDG_RUNTIME_DIR }).forEach(([name, value]) => {
      delete process.env[name];
      Object.assign(process.env, value === undefined ? {} : { [name]: value });
    });
  });
  process.env.PRIMACY_AGENT = agent.path;
  let asked = primacy.holds();
  (await agent.asked())[0].send({ type: 'holds', holds: [] });
  assert.deepEqual(await asked, []);
  delete process.env.PRIMACY_AGENT;
  process.env.XDG_RUNTIME_DIR = agent.folder;
  fs.mkdirSync(path.join(agent.folder, 'primacy'), { mode: 0o700 });
  fs.symlinkSync(agent.path, path.join(agent.folder, 'primacy', 'agent.sock'));
  asked = primacy.holds();
  (await agent.asked())[0].send({ type: 'holds', holds: [] });
  assert.deepEqual(await asked, []);
  // Not in a folder to which others may write.
  for (const folder of [agent.folder, path.join(agent.folder, 'primacy')]) {
    for (const mode of [0o1777, 0o770, 0o702]) {
      fs.chmodSync(folder, mode);
      await assert.rejects(primacy.holds(), /\/run\/primacy\/agent\.sock/);
    }
    fs.chmodSync(folder, 0o755);
  }
  asked = primacy.holds();
  (await agent.asked())[0].send({ type: 'holds', holds: [] });
  assert.deepEqual(await asked, []);
  // Not in a folder of somebody else.
  t.mock.method(process, 'geteuid', () => 40005);
  await assert.rejects(primacy.holds(), /\/run\/primacy\/agent\.sock/);
});

test('what cannot be sent is an error before any connection', async () => {
  const socket = '/nowhere';
  for (const options of [
    { data: 'ä'.repeat(513) },
    { name: 'x'.repeat(16 * 1024) },
    { proof: 'honour' },
    { socket: `/${'x'.repeat(107)}` },
    { signal: AbortSignal.abort() },
  ]) {
    await assert.rejects(within(primacy.campaign('billing', { socket, ...options })));
  }
  await assert.rejects(primacy.campaign(undefined, { socket }), TypeError);
  await assert.rejects(primacy.promote('billing', undefined, { socket }), TypeError);
});

test('a candidate tells how it stands', async (t) => {
  const { peer, candidate } = await begin(t);
  assert.equal(candidate.trouble, null);
  const leader = { name: 'web-2', token: '9223372036854775807', more: 1 };
  await peer.tell({ type: 'waiting', position: 2, leader, why: 'web-2 leads' });
  const told = { name: 'web-2', token: 9223372036854775807n };
  assert.deepEqual(candidate.standing, { position: 2, leader: told, why: 'web-2 leads' });
  await peer.tell({ type: 'waiting', position: null, leader: null });
  assert.deepEqual(candidate.standing, { position: null, leader: null, why: '' });
});

test('unknown frames are answered by their number and ignored', async (t) => {
  const { peer, candidate } = await begin(t);
  peer.send({ type: 'weather' });
  await peer.tell({ type: 'weather', token: 5, position: 'high' });
  await peer.span('elected', 7);
  assert.equal((await candidate.elected()).token, 7n);
});

test('frames come in pieces and together', async (t) => {
  const { peer, candidate } = await begin(t);
  const text = '{"type":"waiting","n":8,"why":"ä"}\n';
  for (const byte of Buffer.from(text)) {
    peer.raw(Buffer.from([byte]));
    await sleep(1);
  }
  await peer.expect({ type: 'read', n: 8 });
  assert.equal(candidate.standing.why, 'ä');
  const points = '"stop_ns":9223372036854775807,"deadline_ns":9223372036854775807';
  const elected = `{"type":"elected","n":10,"token":"9223372036854775807",${points}}`;
  peer.raw(`{"type":"waiting","n":9}\n  ${elected}\r\n{"type":"extended","n":11,"token":"1",${points}}\n`);
  for (const n of [9, 10, 11]) {
    await peer.expect({ type: 'read', n });
  }
  const leadership = await candidate.elected();
  assert.equal(leadership.token, 9223372036854775807n);
  assert.ok(leadership.isCurrent() && leadership.remaining() > LONG_MS);
});

test('the longest frame is read', async (t) => {
  const { peer } = await begin(t);
  const text = '{"type":"waiting","n":5,"why":""}\n';
  peer.raw(text.replace('""', `"${'x'.repeat(ANSWER_BYTES_MAX - text.length)}"`));
  await peer.expect({ type: 'read', n: 5 });
});

const points = '"stop_ns":1,"deadline_ns":1';
for (const [name, text] of Object.entries({
  'no JSON': 'hello\n',
  'a list': '[]\n',
  null: 'null\n',
  'an empty line': '\n',
  'no type': '{"n":2}\n',
  'a wrong number': '{"type":"waiting","n":-2}\n',
  'a wrong number of an unknown frame': '{"type":"weather","n":"2"}\n',
  'no number': '{"type":"lost","token":"7"}\n',
  'a numeric token': `{"type":"elected","n":2,"token":7,${points}}\n`,
  'a wrong token': `{"type":"elected","n":2,"token":"7x",${points}}\n`,
  'no deadline': '{"type":"elected","n":2,"token":"7","stop_ns":1}\n',
  'a broken deadline': '{"type":"elected","n":2,"token":"7","stop_ns":1,"deadline_ns":1.5}\n',
  'a wrong leader': '{"type":"waiting","n":2,"leader":"web-2"}\n',
  'no UTF-8': Buffer.from('{"type":"waiting","n":2,"why":"\xff"}\n', 'latin1'),
  'a long one': `{"type":"waiting","n":2,"why":"${'x'.repeat(ANSWER_BYTES_MAX)}"}\n`,
  'one without end': 'x'.repeat(ANSWER_BYTES_MAX),
})) {
  test(`a malformed frame ends the connection: ${name}`, async (t) => {
    const { agent, peer, candidate } = await begin(t);
    peer.raw(text);
    assert.equal(await peer.frames.take('the end'), 'end');
    await again(agent);
    assert.equal(candidate.trouble, null);
  });
}

slow('a leadership is extended', async (t) => {
  const { peer, leadership } = await lead(t, {}, 2000, 3000);
  assert.ok(leadership.isCurrent() && leadership.remaining() <= 3000);
  for (let i = 0; i < 5; i++) {
    await sleep(900);
    await peer.span('extended', 7, 2000, 3000);
  }
  assert.ok(leadership.isCurrent() && leadership.reason === null && !leadership.signal.aborted);
  await peer.span('extended', 6, LONG_MS, LONG_MS);
  assert.ok(leadership.remaining() <= 3000, 'an extension of another token counts for nothing');
});

slow('without an extension it is lost at its point to stop, and leads until its deadline', async (t) => {
  const losses = [];
  const { peer, candidate } = await begin(t, { onLost: (...loss) => losses.push(loss) });
  const [stop, earliest] = [inMs(1500), inMs(3000)];
  await peer.span('elected', 7, 1500, 3000);
  const latest = inMs(3000);
  const leadership = await within(candidate.elected());
  assert.equal(await within(leadership.lost), 'silent');
  assert.ok(bootNs() + 1e7 >= stop && bootNs() < stop + 1060e6);
  assert.ok(leadership.signal.aborted && leadership.signal.reason instanceof primacy.LostError);
  assert.ok(leadership.isCurrent());
  await peer.span('extended', 7, LONG_MS, LONG_MS);
  assert.ok(leadership.remaining() < 3000, 'what was lost is not extended');
  await untilOver(leadership, earliest, latest);
  assert.equal(leadership.remaining(), 0);
  assert.deepEqual(losses, [[leadership, 'silent']]);
  assert.equal(await peer.frames.take('the end'), 'end', 'it was not closed by its deadline');
});

test('the 10 ms steps of the clock are on the safe side', async (t) => {
  const { peer, leadership } = await lead(t);
  const deadline_ns = inMs(200);
  await peer.tell({ type: 'extended', token: '7', stop_ns: deadline_ns, deadline_ns });
  // A test that comes too late sees it at no time.
  let last = 0;
  for (let now = bootNs(); leadership.isCurrent() && last < deadline_ns; now = bootNs()) {
    last = now;
  }
  assert.ok(last + 1e7 < deadline_ns, `${deadline_ns - last} ns before the deadline`);
});

test('timers that are late change nothing: isCurrent compares the clock', async (t) => {
  const { peer, leadership } = await lead(t);
  await peer.span('extended', 7, 100, 2000);
  block(150);
  assert.ok(leadership.isCurrent());
  assert.equal(leadership.reason, 'silent');
  assert.ok(leadership.signal.aborted, 'the loss is found by the clock');
  block(2000);
  assert.equal(leadership.isCurrent(), false);
});

test('draining tells the loss, and the leadership is current until its deadline', async (t) => {
  const losses = [];
  const { peer, leadership } = await lead(t, { onLost: (...loss) => losses.push(loss) });
  await peer.draining(7, 1000);
  assert.equal(await within(leadership.lost), 'deposed');
  assert.equal(leadership.why, 'somebody else shall lead');
  assert.ok(leadership.isCurrent() && leadership.remaining() <= 1000);
  await peer.lost(7);
  assert.equal(leadership.isCurrent(), false);
  assert.equal(leadership.reason, 'deposed');
  assert.deepEqual(losses, [[leadership, 'deposed']], 'the loss is told once');
  leadership.close();
  await peer.stopped(7);
});

test('lost ends it at once', async (t) => {
  const { peer, leadership } = await lead(t);
  await peer.lost(6);
  assert.ok(leadership.isCurrent(), 'another token was lost');
  await peer.lost(7);
  assert.equal(leadership.isCurrent(), false);
  assert.equal(await within(leadership.lost), 'expired');
  assert.equal(leadership.signal.reason.why, 'it is over');
});

test('frames are answered before the program is told', async (t) => {
  const { peer, leadership } = await lead(t);
  let answered;
  leadership.signal.addEventListener('abort', () => {
    block(50);
    answered = performance.now();
  });
  await peer.lost(7);
  assert.ok(answered !== undefined);
  await leadership.close();
  await peer.stopped(7);
});

test('closing says stopped once, and the next leadership comes after it', async (t) => {
  const { peer, candidate, leadership } = await lead(t);
  const next = candidate.elected();
  await leadership.close();
  await leadership.close();
  assert.equal(leadership.isCurrent(), false);
  assert.equal(await leadership.lost, 'resigned');
  await peer.stopped(7);
  await peer.waiting();
  await peer.span('elected', 8);
  assert.equal((await within(next)).token, 8n);
  assert.equal(peer.frames.length, 0);
});

test('onLost is not called for what the program has closed', async (t) => {
  const { leadership } = await lead(t, { onLost: () => assert.fail('it was called') });
  await leadership.close();
  await sleep(20);
});

test('a new leadership waits until the one before was closed', async (t) => {
  const { agent, peer, candidate, leadership } = await lead(t, {}, LONG_MS, LONG_MS);
  peer.close();
  const next = candidate.elected();
  const other = await again(agent);
  await other.span('elected', 8);
  assert.ok(await isPending(next));
  assert.ok(leadership.isCurrent());
  await leadership.close();
  assert.equal((await within(next)).token, 8n);
  assert.equal(other.frames.length, 0, 'the other connection is told nothing of token 7');
});

slow('an elected that nobody awaits is kept', async (t) => {
  const { peer, candidate } = await begin(t);
  await peer.span('elected', 7, 2000, 2500);
  await sleep(600);
  await peer.span('extended', 7, LONG_MS, LONG_MS);
  await sleep(2000);
  assert.ok((await within(candidate.elected())).isCurrent());
});

for (const end of ['draining', 'lost', 'silence']) {
  test(`an elected that nobody awaits is given back after ${end}`, async (t) => {
    const onLost = ({ token }) => assert.equal(token, 8n);
    const { peer, candidate } = await begin(t, { onLost });
    await peer.span('elected', 7, end === 'silence' ? 60 : LONG_MS, LONG_MS);
    if (end !== 'silence') {
      await peer[end](7);
    }
    await peer.stopped(7);
    const next = candidate.elected();
    await peer.span('elected', 8);
    assert.equal((await within(next)).token, 8n);
  });
}

test('an elected that nobody awaits ends with its connection', async (t) => {
  const { agent, peer, candidate } = await begin(t);
  await peer.span('elected', 7);
  peer.close();
  await again(agent);
  assert.ok(await isPending(candidate.elected()));
});

test('a wait can be aborted, and what was not taken is kept', async (t) => {
  const { peer, candidate } = await begin(t);
  await assert.rejects(candidate.elected({ signal: AbortSignal.timeout(20) }), { name: 'TimeoutError' });
  const abort = new AbortController();
  const aborted = candidate.elected({ signal: abort.signal });
  const other = candidate.elected();
  abort.abort(new Error('enough'));
  await assert.rejects(aborted, /enough/);
  await assert.rejects(candidate.elected({ signal: abort.signal }), /enough/);
  await peer.span('elected', 7);
  assert.equal((await within(other)).token, 7n);
});

slow('after the connection the leadership lasts until its last deadline', async (t) => {
  const { agent, peer, leadership } = await lead(t, {}, 1500, 2000);
  const earliest = inMs(4500);
  await peer.span('extended', 7, 3000, 4500);
  const latest = inMs(4500);
  peer.close();
  const other = await again(agent);
  await other.span('extended', 7, LONG_MS, LONG_MS);
  await other.lost(7);
  assert.ok(leadership.isCurrent(), 'another connection says nothing of it');
  assert.equal(await within(leadership.lost), 'disconnected');
  assert.ok(leadership.isCurrent());
  await untilOver(leadership, earliest, latest);
});

test('it connects anew at once, as another hold', async (t) => {
  const { agent, peer } = await lead(t);
  // By this the first pause would be of 5 s.
  t.mock.method(Math, 'random', () => 199);
  const begin = performance.now();
  peer.close();
  const [, request] = await agent.asked();
  assert.ok(performance.now() - begin < 3000);
  assert.equal(request.type, 'hold');
});

test('a missing agent is awaited with growing pauses', async (t) => {
  const agent = new FakeAgent(t);
  const accepted = primacy.campaign('billing', { socket: agent.path });
  assert.ok(await isPending(accepted, 200));
  await agent.start();
  await again(agent);
  const candidate = await within(accepted);
  await candidate.close();
  const signal = AbortSignal.timeout(50);
  const socket = `${agent.path}x`;
  await assert.rejects(primacy.campaign('billing', { socket, signal }), { name: 'TimeoutError' });
});

for (const code of ['busy', 'ending', 'unavailable']) {
  slow(`it tries again after ${code}`, async (t) => {
    const agent = await new FakeAgent(t).start();
    const accepted = primacy.campaign('billing', { socket: agent.path });
    const times = [];
    for (let i = 0; i < 5; i++) {
      const [peer] = await agent.asked();
      times.push(performance.now());
      peer.send({ type: 'refused', code, why: 'later' });
      peer.close();
    }
    const gaps = times.slice(1).map((time, i) => time - times[i]);
    gaps.forEach((gap, i) => assert.ok(gap >= 24 * 2 ** i && gap < 50 * 2 ** i + 1040, String(gaps)));
    await again(agent);
    await (await within(accepted)).close();
  });
}

test('other refusals reject', async (t) => {
  const agent = await new FakeAgent(t).start();
  const accepted = primacy.campaign('billing', { socket: agent.path });
  const [peer] = await agent.asked();
  peer.send({ type: 'refused', code: 'not-allowed', why: 'user 1000 may not' });
  await assert.rejects(within(accepted), (error) => {
    assert.ok(error instanceof primacy.RefusedError && error instanceof primacy.PrimacyError);
    assert.deepEqual([error.name, error.code, error.why], ['RefusedError', 'not-allowed', 'user 1000 may not']);
    return true;
  });
});

test('a refusal of the next agent rejects elected, and the leadership lasts', async (t) => {
  const { agent, peer, candidate, leadership } = await lead(t);
  const next = candidate.elected();
  peer.close();
  const [other] = await agent.asked();
  other.send({ type: 'refused', code: 'no-such-election', why: 'no' });
  await assert.rejects(within(next), { code: 'no-such-election' });
  await assert.rejects(candidate.elected(), { code: 'no-such-election' });
  assert.match(candidate.trouble, /no-such-election/);
  assert.ok(leadership.isCurrent());
});

test('closing a candidate that waits ends the connection', async (t) => {
  const { peer, candidate } = await begin(t);
  const elected = candidate.elected();
  candidate.close();
  await assert.rejects(within(elected), primacy.ClosedError);
  await assert.rejects(candidate.elected(), primacy.ClosedError);
  assert.equal(await peer.frames.take('the end'), 'end');
});

test('closing a candidate gives back what nobody awaits', async (t) => {
  const { peer, candidate } = await begin(t);
  await peer.span('elected', 7);
  await candidate.close();
  await peer.stopped(7);
  assert.equal(await peer.frames.take('the end'), 'end');
});

test('closing a candidate that leads waits for its work', async (t) => {
  const { peer, candidate, leadership } = await lead(t);
  await candidate.close();
  assert.equal(await within(leadership.lost), 'closed');
  assert.ok(leadership.isCurrent());
  await peer.span('extended', 7);
  await leadership.close();
  await peer.stopped(7);
  assert.equal(await peer.frames.take('the end'), 'end');
});

test('closing a candidate that leads ends the connection at the deadline', async (t) => {
  const { peer, candidate, leadership } = await lead(t);
  await peer.span('extended', 7, 100, 200);
  await candidate.close();
  assert.equal(await peer.frames.take('the end'), 'end');
  assert.equal(leadership.isCurrent(), false);
});

test('they can be disposed of', { skip: Symbol.asyncDispose === undefined }, async (t) => {
  const { peer, candidate, leadership } = await lead(t);
  await leadership[Symbol.asyncDispose]();
  await peer.stopped(7);
  assert.equal(candidate[Symbol.dispose](), undefined);
  assert.equal(await peer.frames.take('the end'), 'end');
});

for (const last of [
  'await candidate.close()',
  'const l = await candidate.elected(); await candidate.close()',
  'const l = await candidate.elected(); await candidate.close(); await l.close()',
  'const l = await candidate.elected(); await l.close(); await candidate.close()',
]) {
  slow(`a closed candidate does not keep the process alive: ${last}`, async (t) => {
    const agent = await new FakeAgent(t).start();
    const program = `import { campaign } from ${JSON.stringify(new URL('./primacy.mjs', import.meta.url))};
      const candidate = await campaign('billing', { socket: ${JSON.stringify(agent.path)} }); ${last};`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: 'inherit' });
    t.after(() => child.kill('SIGKILL'));
    const exit = once(child, 'exit');
    const [peer] = await agent.asked();
    await peer.span('elected', 7);
    assert.deepEqual(await within(exit), [0, null]);
    const frames = [];
    while (frames.at(-1) !== 'end') {
      frames.push(await peer.frames.take('the end'));
    }
    const isGivenBack = !last.endsWith('elected(); await candidate.close()');
    assert.equal(frames.filter((frame) => frame.type === 'stopped').length, isGivenBack ? 1 : 0);
  });
}

test('an observation tells the latest status, with all digits of its token', async (t) => {
  const agent = await new FakeAgent(t).start();
  const seen = primacy.observe('billing', { socket: agent.path });
  let next = seen.next();
  const [peer, request] = await agent.asked();
  assert.deepEqual(request, { type: 'observe', protocol: 1, election: 'billing' });
  const status = String.raw`{"token":9223372036854775807,"a":"\"token\":1","support":{"token" : 5 ,"b":"\\"}}`;
  peer.raw(`{"type":"seen","n":1,"status":${status}}\n`);
  await peer.expect({ type: 'read', n: 1 });
  assert.deepEqual(await within(next), {
    done: false,
    value: { token: 9223372036854775807n, a: '"token":1', support: { token: 5n, b: '\\' } },
  });
  for (const n of [2, 3]) {
    peer.send({ type: 'seen', n, status: { token: n } });
    await peer.expect({ type: 'read', n });
  }
  assert.equal((await seen.next()).value.token, 3n);
  next = seen.next();
  peer.close();
  const [other] = await agent.asked();
  other.send({ type: 'seen', n: 1, status: { token: 4, more: 'x'.repeat(3_000_000) } });
  assert.equal((await within(next)).value.token, 4n);
  next = seen.next();
  await seen.close();
  assert.deepEqual(await within(next), { done: true, value: undefined });
  await other.expect({ type: 'read', n: 1 });
  assert.equal(await other.frames.take('the end'), 'end');
});

test('leaving the loop ends an observation', async (t) => {
  const agent = await new FakeAgent(t).start();
  const loop = (async () => {
    for await (const status of primacy.observe('billing', { socket: agent.path })) {
      return status;
    }
  })();
  const [peer] = await agent.asked();
  await peer.tell({ type: 'seen', status: { token: 1 } });
  assert.equal((await within(loop)).token, 1n);
  assert.equal(await peer.frames.take('the end'), 'end');
});

test('an observation ends by a refusal, and by its signal', async (t) => {
  const agent = await new FakeAgent(t).start();
  const next = primacy.observe('billing', { socket: agent.path }).next();
  const [busy] = await agent.asked();
  busy.send({ type: 'refused', code: 'busy', why: 'later' });
  const [peer] = await agent.asked();
  peer.send({ type: 'refused', code: 'no-such-election', why: 'no' });
  await assert.rejects(within(next), { code: 'no-such-election' });
  const signal = AbortSignal.timeout(20);
  const seen = primacy.observe('billing', { socket: agent.path, signal });
  await assert.rejects(within(seen.next()), { name: 'TimeoutError' });
  assert.deepEqual(await seen.next(), { done: true, value: undefined });
});

test('orders are given', async (t) => {
  const agent = await new FakeAgent(t).start();
  const socket = agent.path;
  const basis = { type: 'order', protocol: 1, election: 'billing' };
  for (const [call, expected] of [
    [() => primacy.promote('billing', 'web-2', { socket, token: 42n }), { order: 'promote', candidate: 'web-2', token: '42' }],
    [() => primacy.depose('billing', { socket, token: 42 }), { order: 'depose', token: '42' }],
    [() => primacy.pause('billing', { socket }), { order: 'pause' }],
    [() => primacy.resume('billing', { socket }), { order: 'resume' }],
  ]) {
    const called = call();
    const [peer, request] = await agent.asked();
    assert.deepEqual(request, { ...basis, ...expected });
    peer.send({ type: 'ordered', outcome: { result: 'written', after: { token: 43 } } });
    assert.deepEqual(await within(called), { result: 'written', after: { token: 43n } });
  }
});

test('orders fail', async (t) => {
  const agent = await new FakeAgent(t).start();
  const socket = agent.path;
  let called = primacy.depose('billing', { socket });
  let [peer] = await agent.asked();
  peer.send({ type: 'refused', code: 'refused', why: 'nobody waits' });
  await assert.rejects(within(called), { code: 'refused', why: 'nobody waits' });
  called = primacy.depose('billing', { socket });
  [peer] = await agent.asked();
  peer.close();
  await assert.rejects(within(called), { name: 'AgentError', isSent: true });
  await assert.rejects(primacy.depose('billing', { socket, timeout: 20 }), { isSent: false });
  await assert.rejects(primacy.depose('billing', { socket: `${socket}x` }), { isSent: false });
  const signal = AbortSignal.timeout(20);
  await assert.rejects(primacy.depose('billing', { socket, signal }), { name: 'TimeoutError' });
});

test('holds are listed', async (t) => {
  const agent = await new FakeAgent(t).start();
  const called = primacy.holds({ socket: agent.path });
  const [peer, request] = await agent.asked();
  assert.deepEqual(request, { type: 'list', protocol: 1 });
  const hold = { election: 'billing', pid: 4711, standing: 'leads', deadline_ns: 94e9 };
  peer.send({ type: 'holds', holds: [{ ...hold, token: '42' }, { ...hold, token: null }] });
  assert.deepEqual(await within(called), [{ ...hold, token: 42n }, { ...hold, token: null }]);
});

slow('an agent that does not speak is left', async (t) => {
  const agent = await new FakeAgent(t).start();
  const accepted = primacy.campaign('billing', { socket: agent.path });
  const peer = await agent.peers.take('a connection');
  await sleep(4500);
  assert.equal(await peer.frames.take('the end'), 'end');
  await again(agent);
  await (await within(accepted)).close();
});

test('what takes its time', { concurrency: true }, async (t) => {
  await Promise.all(slowTests.map((words) => t.test(...words)));
});
