// The client against real agents: two hosts with a store of their own, and a program on each.
// PRIMACY names the binary.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import * as primacy from './primacy.mjs';

const PATIENCE_MS = 20_000;
const HERE = fileURLToPath(import.meta.url);

/** The boot clock as the client compares it with deadlines: one step later than it is read. */
function latestNs() {
  const seconds = Number(fs.readFileSync('/proc/uptime', 'latin1').split(' ')[0]);
  return Math.round(seconds * 100) * 1e7 + 1e7;
}

// The program. It writes down when it believes in its leadership, and says what happens.

async function program(socket, name, proof, witness) {
  const file = fs.openSync(witness, 'a');
  const candidate = await primacy.campaign('billing', {
    socket,
    name,
    proof,
    onLost: ({ token }, reason) => console.log('lost', String(token), reason),
  });
  console.log('ready');
  while (true) {
    const leadership = await candidate.elected();
    let isTold = false;
    // It works until the last moment where the agent does not speak, and stops where it does.
    const isToWork = () => [null, 'silent', 'disconnected'].includes(leadership.reason);
    // The reading is from before the comparison, which is not of an earlier moment.
    for (let now = latestNs(); leadership.isCurrent() && isToWork(); now = latestNs()) {
      fs.writeSync(file, `${name} ${leadership.token} ${now}\n`);
      if (!isTold) {
        console.log('leads', String(leadership.token));
        isTold = true;
      }
      await sleep(1);
    }
    await leadership.close();
    console.log('closed', String(leadership.token));
  }
}

// The tests.

class Process {
  #lines = [];
  #wake = () => {};

  constructor(command, args, env = {}) {
    const environment = { ...process.env, ...env };
    delete environment.NODE_TEST_CONTEXT;
    const stdio = ['ignore', 'pipe', 'pipe'];
    this.child = spawn(command, args, { env: environment, stdio });
    this.exit = once(this.child, 'exit');
    this.errors = '';
    this.child.stderr.on('data', (data) => (this.errors += data));
    createInterface({ input: this.child.stdout }).on('line', (line) => {
      this.#lines.push(line.split(' '));
      this.#wake();
    });
  }

  get isRunning() {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  /** The rest of the next line with this word. Lines before it are passed over. */
  async expect(word) {
    const late = Date.now() + PATIENCE_MS;
    const seen = [];
    while (true) {
      const line = this.#lines.shift();
      if (line?.[0] === word) {
        return line.slice(1);
      }
      if (line !== undefined) {
        seen.push(line);
        continue;
      }
      assert.ok(Date.now() < late, `no '${word}', but ${JSON.stringify(seen)}: ${this.errors}`);
      const woken = new Promise((resolve) => (this.#wake = resolve));
      await Promise.race([woken, sleep(50)]);
    }
  }

  signal(name) {
    this.child.kill(name);
  }

  /**
   * Stops it, and returns when it stands still. One that stood still in a transaction of SQLite would keep all others from the
   * store, and nobody could lead. It goes on a little then.
   */
  async freeze() {
    const late = Date.now() + PATIENCE_MS;
    for (;;) {
      this.signal('SIGSTOP');
      while (!this.#isFrozen()) {
        assert.ok(Date.now() < late, 'it does not stand still');
        await sleep(1);
      }
      if (!this.#hasWriteLock()) {
        return;
      }
      assert.ok(Date.now() < late, 'it does not stand still without a lock');
      this.signal('SIGCONT');
      await sleep(5);
    }
  }

  /** Whether all of its threads stand still. */
  #isFrozen() {
    const tasks = `/proc/${this.child.pid}/task`;
    try {
      return fs.readdirSync(tasks).every((task) => /\) T /.test(fs.readFileSync(`${tasks}/${task}/stat`, 'latin1')));
    } catch (error) {
      // A thread that has just ended.
      assert.ok(this.isRunning && ['ENOENT', 'ESRCH'].includes(error.code), error);
      return false;
    }
  }

  /** Whether it has a lock of SQLite that excludes others. */
  #hasWriteLock() {
    // As "1: POSIX  ADVISORY  WRITE 4711 fe:01:1234 120 120".
    const held = new RegExp(`POSIX +ADVISORY +WRITE ${this.child.pid} `);
    return held.test(fs.readFileSync('/proc/locks', 'latin1'));
  }

  async kill() {
    if (this.isRunning) {
      this.signal('SIGKILL');
    }
    await this.exit;
  }
}

class Site {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'primacy-'));
  witness = path.join(this.folder, 'witness');
  #env = { PRIMACY_STORE: `sqlite:${this.folder}/primacy.db` };
  #processes = [];
  #lease;

  constructor(t, lease = '4s') {
    this.#lease = lease;
    t.after(async () => {
      await Promise.all(this.#processes.map((process) => process.kill()));
      fs.rmSync(this.folder, { recursive: true });
    });
  }

  #start(command, args) {
    const started = new Process(command, args, this.#env);
    this.#processes.push(started);
    return started;
  }

  socket(host) {
    return path.join(this.folder, `${host}.sock`);
  }

  async agent(host) {
    const words = ['agent', '--socket', this.socket(host), '--name', host, '--lease', this.#lease];
    const agent = this.#start(process.env.PRIMACY, words);
    const late = Date.now() + PATIENCE_MS;
    while (true) {
      const probe = net.createConnection(this.socket(host));
      const isThere = await once(probe, 'connect').then(() => true, () => false);
      probe.destroy();
      if (isThere) {
        return agent;
      }
      assert.ok(agent.isRunning && Date.now() < late, `the agent is not there: ${agent.errors}`);
      await sleep(10);
    }
  }

  async program(host, name, proof = 'none') {
    const words = [HERE, 'program', this.socket(host), name, proof, this.witness];
    const started = this.#start(process.execPath, words);
    await started.expect('ready');
    return started;
  }

  /** Returns when the program with this name waits, as the other host sees it. */
  async waits(host, name) {
    const signal = AbortSignal.timeout(PATIENCE_MS);
    for await (const status of primacy.observe('billing', { socket: this.socket(host), signal })) {
      if (status.candidates.some(({ label }) => label === name)) {
        return status;
      }
    }
    return assert.fail('the observation has ended');
  }

  async command(...words) {
    const started = this.#start(process.env.PRIMACY, [...words, '--election', 'billing']);
    const [code] = await started.exit;
    assert.equal(code, 0, started.errors);
  }

  /** Two hosts. The program `a` leads on the one, and `b` waits on the other. */
  async two(proof = 'none') {
    const [agentA, agentB] = await Promise.all([this.agent('host-a'), this.agent('host-b')]);
    const a = await this.program('host-a', 'a', proof);
    const [token] = await a.expect('leads');
    const b = await this.program('host-b', 'b', proof);
    await this.waits('host-a', 'b');
    return { agentA, agentB, a, b, token: BigInt(token) };
  }

  /** No two leaderships were believed in at the same time. */
  checkSpans(countMin) {
    const spans = new Map();
    for (const line of fs.readFileSync(this.witness, 'utf8').trim().split('\n')) {
      const [name, token, now] = line.split(' ');
      const span = spans.get(token) ?? { name, token, first: Number(now), last: Number(now) };
      assert.equal(span.name, name, `two programs have the token ${token}`);
      span.last = Math.max(span.last, Number(now));
      spans.set(token, span);
    }
    const all = [...spans.values()].sort((x, y) => x.first - y.first);
    assert.ok(all.length >= countMin, JSON.stringify(all));
    all.slice(1).forEach((span, i) => {
      assert.ok(all[i].last <= span.first, `they overlap: ${JSON.stringify([all[i], span])}`);
      assert.ok(BigInt(all[i].token) < BigInt(span.token), JSON.stringify(all));
    });
  }
}

async function testKilledProgram(t) {
  // The lease is long, so that nobody takes its end for the proof.
  const site = new Site(t, '60s');
  const { a, b, token } = await site.two('process');
  const begin = performance.now();
  await a.kill();
  const [next] = await b.expect('leads');
  assert.ok(performance.now() - begin < 10_000, `after ${performance.now() - begin} ms`);
  assert.ok(BigInt(next) > token);
  site.checkSpans(2);
}

async function testKilledAgent(t) {
  const site = new Site(t);
  const { agentA, a, b, token } = await site.two();
  await agentA.kill();
  assert.deepEqual(await a.expect('lost'), [String(token), 'disconnected']);
  const [second] = await b.expect('leads');
  await a.expect('closed');
  await site.agent('host-a');
  await site.waits('host-b', 'a');
  await b.kill();
  const [third] = await a.expect('leads');
  assert.ok(BigInt(third) > BigInt(second));
  site.checkSpans(3);
}

async function testFrozenAgent(t) {
  const site = new Site(t);
  const { agentA, a, b, token } = await site.two();
  await agentA.freeze();
  assert.deepEqual(await a.expect('lost'), [String(token), 'silent']);
  await b.expect('leads');
  agentA.signal('SIGCONT');
  await site.waits('host-b', 'a');
  await b.kill();
  await a.expect('leads');
  site.checkSpans(3);
}

async function testFrozenProgram(t) {
  const site = new Site(t);
  const { a, b, token } = await site.two('process');
  await a.freeze();
  await b.expect('leads');
  a.signal('SIGCONT');
  assert.equal((await a.expect('lost'))[0], String(token));
  await a.expect('closed');
  await site.waits('host-b', 'a');
  await b.kill();
  await a.expect('leads');
  site.checkSpans(3);
}

async function testDeposed(t) {
  const site = new Site(t);
  const { a, b, token } = await site.two();
  await site.command('depose');
  assert.deepEqual(await a.expect('lost'), [String(token), 'deposed']);
  await b.expect('leads');
  site.checkSpans(2);
}

async function testEndedAgent(t) {
  const site = new Site(t);
  const { agentA, a, b } = await site.two();
  agentA.signal('SIGTERM');
  await a.expect('lost');
  await b.expect('leads');
  await agentA.exit;
  await site.agent('host-a');
  await site.waits('host-b', 'a');
  site.checkSpans(2);
}

async function testOrders(t) {
  const site = new Site(t);
  const { a, b, token } = await site.two();
  const socket = site.socket('host-b');
  const listed = await primacy.holds({ socket: site.socket('host-a') });
  assert.deepEqual(
    listed.map(({ name, pid, standing, token }) => ({ name, pid, standing, token })),
    [{ name: 'a', pid: a.child.pid, standing: 'leads', token }],
  );
  const status = await site.waits('host-a', 'b');
  assert.deepEqual([status.state, status.leader.label, status.token], ['led', 'a', token]);
  await assert.rejects(primacy.promote('billing', 'nobody', { socket }), primacy.RefusedError);
  await assert.rejects(primacy.depose('billing', { socket, token: token + 1n }), { code: 'refused' });
  assert.equal((await primacy.promote('billing', 'b', { socket, token })).result, 'written');
  await a.expect('lost');
  await b.expect('leads');
  assert.equal((await primacy.pause('billing', { socket })).result, 'written');
  await b.kill();
  const seen = primacy.observe('billing', { socket, signal: AbortSignal.timeout(PATIENCE_MS) });
  for await (const { paused, state } of seen) {
    if (paused && state !== 'led') {
      break;
    }
  }
  assert.equal((await primacy.resume('billing', { socket })).result, 'written');
  await a.expect('leads');
  site.checkSpans(3);
}

if (process.argv[2] === 'program') {
  await program(...process.argv.slice(3));
} else if (process.env.PRIMACY || process.env.CI) {
  assert.ok(process.env.PRIMACY, 'PRIMACY does not name the binary');
  // These mostly wait, and some do so at the same time.
  test('real agents', { concurrency: 3 }, async (t) => {
    const tests = {
      'after SIGKILL of a program with a proof another leads at once': testKilledProgram,
      'after SIGKILL of its agent a program leads on, and again by the next': testKilledAgent,
      'a program loses while its agent stands still': testFrozenAgent,
      'a program that stands still loses': testFrozenProgram,
      'a deposed program makes way': testDeposed,
      'an agent that ends has its programs make way': testEndedAgent,
      'orders, holds and observations': testOrders,
    };
    await Promise.all(Object.entries(tests).map((words) => t.test(...words)));
  });
} else {
  test('real agents', { skip: 'PRIMACY does not name the binary' }, () => {});
}
