// What the client makes of the boot clock, which the test sets.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';

import * as primacy from './primacy.mjs';

const HOUR_MS = 3_600_000;
// What /proc/uptime says, in steps of 10 ms. The client reads nothing else with this function.
const host = { ms: 100 * HOUR_MS };
fs.readSync = (_file, buffer) => buffer.write(`${(host.ms / 1000).toFixed(2)} 1.00\n`, 'latin1');

const pointsIn = (stopNs, deadlineNs) => ({ stop_ns: host.ms * 1e6 + stopNs, deadline_ns: host.ms * 1e6 + deadlineNs });

/** A program that leads by a fake agent. Points are nanoseconds after what the host says. */
async function lead(t, stopNs, deadlineNs) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'primacy-'));
  const server = net.createServer();
  t.after(() => {
    server.close();
    fs.rmSync(folder, { recursive: true });
  });
  server.listen(path.join(folder, 'agent.sock'));
  await once(server, 'listening');
  const campaign = primacy.campaign('billing', { socket: path.join(folder, 'agent.sock') });
  const [stream] = await once(server, 'connection');
  t.after(() => stream.destroy());
  const lines = createInterface({ input: stream });
  const tell = (frame) => stream.write(`${JSON.stringify(frame)}\n`);
  tell({ type: 'agent', protocol: 1, now_ns: host.ms * 1e6 });
  const [request] = await once(lines, 'line');
  assert.equal(JSON.parse(request).now_ns, host.ms * 1e6);
  tell({ type: 'elected', n: 1, token: '7', ...pointsIn(stopNs, deadlineNs) });
  const candidate = await campaign;
  t.after(() => candidate.close());
  return { leadership: await candidate.elected(), lines, tell };
}

test('a moment may be a step of the clock later than it is read', async (t) => {
  // The first stands for 100 h and up to 10 ms: the deadline may have come, and the other has not.
  const { leadership } = await lead(t, 10e6 + 1, 20e6);
  assert.equal(leadership.isCurrent(), true);
  assert.ok(leadership.remaining() > 0 && leadership.remaining() <= 10);
  host.ms += 10;
  assert.equal(leadership.isCurrent(), false);
  assert.equal(leadership.remaining(), 0);
  assert.equal(leadership.reason, 'silent');
  await leadership.close();
});

test('a host that was suspended does not lead', { timeout: 10_000 }, async (t) => {
  const { leadership } = await lead(t, HOUR_MS * 1e6, 2 * HOUR_MS * 1e6);
  assert.equal(leadership.isCurrent(), true);
  // Timers have stood still for all that time.
  host.ms += 3 * HOUR_MS;
  assert.equal(await leadership.lost, 'silent');
  assert.equal(leadership.isCurrent(), false);
  await leadership.close();
});

test('an extension that is read after the deadline comes too late', { timeout: 10_000 }, async (t) => {
  const { leadership, lines, tell } = await lead(t, HOUR_MS * 1e6, 2 * HOUR_MS * 1e6);
  const over = new Promise((resolve) => {
    // The client may find the loss first, and ends the connection then.
    lines.on('line', (line) => JSON.parse(line).n === 2 && resolve()).on('close', resolve);
  });
  host.ms += 3 * HOUR_MS;
  tell({ type: 'extended', n: 2, token: '7', ...pointsIn(HOUR_MS * 1e6, 2 * HOUR_MS * 1e6) });
  await over;
  assert.equal(leadership.isCurrent(), false);
  assert.equal(leadership.reason, 'silent');
  await leadership.close();
});
