// The stretch of a conversation that a page has is the gateway's own: nothing is missing in it, twice, out of order or old, whatever order answers and the stream come in.
import assert from "node:assert/strict";
import test from "node:test";
// First: what the stores begin with.
import { host, pass, randomOf } from "./browser.mjs";
import { live } from "../../../Sources/Pages/stores/live.js";
import { Chat } from "../../../Sources/Pages/stores/chat.js";
import { compare } from "../../../Sources/Pages/stores/cursor.js";

const ID = "channel:00112233445566778899aabbccddeeff";

/** A gateway's conversation behind a line that delays, loses and cuts. */
class Gateway {
  rows = [];
  /** What the stream has not told yet. */
  events = [];

  constructor(random) { this.random = random; }

  add() {
    const [message, outgoing] = (this.rows.at(-1)?.cursor ?? "0.0").split(".").map(Number);
    const isOurs = this.random.is(0.3);
    const cursor = isOurs ? `${message}.${(outgoing || this.sent || 0) + 1}` : `${message + 1 + this.random.upTo(3)}`;
    if (isOurs) this.sent = Number(cursor.split(".")[1]);
    this.rows.push({ cursor, id: this.rows.length, version: 0, conversation: ID });
    this.events.push(this.rows.at(-1));
  }

  change() {
    if (!this.rows.length) return;
    const at = Math.max(0, this.rows.length - 1 - this.random.upTo(80));
    this.rows[at] = { ...this.rows[at], version: this.rows[at].version + 1 };
    this.events.push(this.rows[at]);
  }

  tell(count) { if (live.isLinked) for (const row of this.events.splice(0, count)) live.tell("message", row); }

  /** The line is back: the stream goes on behind what it told, or begins anew. */
  link() {
    live.isLinked = true;
    const isAfresh = this.random.is(0.4);
    if (isAfresh) {
      this.events = [];
      live.tell("afresh", false);
    }
    live.tell("linked");
  }

  async answer(_, path) {
    const asked = new URL(path, "http://gateway").searchParams;
    const wait = () => new Promise((done) => { setTimeout(done, this.random.upTo(1500)); });
    await wait();
    if (!live.isLinked || this.random.is(0.1)) return this.random.is(0.5) ? null : { status: 503, text: '{"error":"busy","code":"gateway"}' };
    const [limit, before, after] = [Number(asked.get("limit")), asked.get("before"), asked.get("after")];
    const found = this.rows.filter(({ cursor }) => (before === null || compare(cursor, before) < 0) && (after === null || compare(cursor, after) > 0));
    const text = (after === null ? found.slice(-limit) : found.slice(0, limit)).map((row) => `${JSON.stringify(row)}\n`).join("");
    await wait();
    return this.random.is(0.05) ? { text: text.slice(0, -3) } : { text };
  }
}

for (let seed = 1; seed <= 60; seed += 1) {
  test(`a chat is what the gateway has: seed ${seed}`, async () => {
    const random = randomOf(seed);
    const gateway = new Gateway(random);
    host.answer = (...asked) => gateway.answer(...asked);
    for (let count = random.upTo(400); count > 0; count -= 1) gateway.add();
    gateway.events = [];
    live.isLinked = true;
    const chat = new Chat(ID);
    chat.newest();
    for (let step = 0; step < 60; step += 1) {
      const what = random.upTo(10);
      if (what < 2) gateway.add();
      else if (what === 2) gateway.change();
      else if (what < 5) gateway.tell(random.upTo(4));
      else if (what === 5) chat.older();
      else if (what === 6) chat.newer();
      else if (what === 7 && random.is(0.4)) chat.newest();
      else if (what === 8 && random.is(0.4) && gateway.rows.length) chat.around(random.of(gateway.rows).cursor);
      else if (what === 9 && random.is(0.3)) { if (live.isLinked) live.isLinked = false; else gateway.link(); }
      if (random.is(0.8)) await pass(random.upTo(2500));
    }
    if (!live.isLinked) gateway.link();
    gateway.random = { ...random, is: () => false };
    for (let turn = 0; turn < 30; turn += 1) {
      gateway.tell(Infinity);
      live.tell("again");
      await pass(5000);
      // What could not be read at an edge is read when one scrolls there again.
      if (chat.trouble && !chat.isWanting) await Promise.all([chat.older(), chat.newer(), pass(5000)]);
    }
    chat.close();
    const { rows } = chat;
    const from = gateway.rows.findIndex(({ cursor }) => cursor === rows[0]?.cursor);
    assert.deepEqual(rows, rows.length ? gateway.rows.slice(from, from + rows.length) : []);
    if (!chat.hasNewer) assert.equal(rows.at(-1)?.cursor, gateway.rows.at(-1)?.cursor);
    if (!chat.hasOlder) assert.equal(rows[0]?.cursor, gateway.rows[0]?.cursor);
    assert.equal(chat.trouble, null);
  });
}
