// What is written in a browser reaches its gateway once, and in its order, whatever becomes of the line, the answers and the storage.
import assert from "node:assert/strict";
import test from "node:test";
// First: what the stores begin with.
import { host, pass, randomOf } from "./browser.mjs";
import { live } from "../../../Sources/Pages/stores/live.js";
import { outbox } from "../../../Sources/Pages/stores/outbox.js";
import { write } from "../../../Sources/Pages/stores/sending.js";

live.retry = () => {};

/** A gateway behind a line that loses requests, answers, and what the stream tells. */
class Gateway {
  rows = [];
  told = 0;

  constructor(random) { this.random = random; }

  async answer(method, path, body) {
    assert.deepEqual([method, path], ["POST", "/v1/send"]);
    await new Promise((done) => { setTimeout(done, this.random.upTo(3000)); });
    if (this.random.is(0.2)) return null;
    if (this.random.is(0.1)) return { status: this.random.of([502, 503, 429]), text: this.random.of(["<html>busy</html>", "", '{"error":"busy","code":"gateway"}']) };
    if (this.random.is(0.05)) return { status: 401, text: '{"error":"who are you?"}' };
    if (body.text.startsWith("wrong")) return { status: 400, text: '{"error":"no","code":"invalid"}' };
    // Under an id that it knows, it is the same message.
    if (!this.rows.some(({ id }) => id === body.id)) this.rows.push(body);
    return this.random.is(0.2) ? null : { status: 200, text: this.random.is(0.1) ? '{"id' : "{}" };
  }

  /** The stream tells what came, or loses it. */
  tell() {
    for (const { id } of this.rows.slice(this.told)) if (!this.random.is(0.2)) live.tell("message", { outgoing: `${id}/1` });
    this.told = this.rows.length;
  }
}

for (let seed = 1; seed <= 100; seed += 1) {
  test(`each text reaches the gateway once and in order: seed ${seed}`, async () => {
    const random = randomOf(seed);
    const gateway = new Gateway(random);
    host.answer = (...asked) => gateway.answer(...asked);
    outbox.clear();
    const written = [];
    for (let step = 0; step < 40; step += 1) {
      const what = random.upTo(6);
      if (what < 2) {
        written.push(`${random.is(0.1) ? "wrong" : "text"} ${step}`);
        write("node:112233445566", written.at(-1));
      } else if (what === 2) {
        live.isLinked = !live.isLinked;
        if (live.isLinked) live.tell("linked");
      } else if (what === 3) gateway.tell();
      else if (what === 4) localStorage.isFull = random.is(0.3);
      await pass(random.upTo(20_000));
      assert.equal(new Set(gateway.rows.map(({ id }) => id)).size, gateway.rows.length);
    }
    localStorage.isFull = false;
    live.isLinked = true;
    live.tell("linked");
    for (let turn = 0; turn < 400 && outbox.count; turn += 1) await pass(10_000);
    const right = written.filter((text) => !text.startsWith("wrong"));
    assert.deepEqual(gateway.rows.map(({ text }) => text), right);
    assert.deepEqual(outbox.all.map(({ text, trouble }) => [text, trouble.words]), written.filter((text) => text.startsWith("wrong")).map((text) => [text, "no"]));
    assert.deepEqual(JSON.parse(localStorage.getItem("meshpost.outbox") ?? "[]").map(({ text }) => text), outbox.all.filter((one) => outbox.isKept(one)).map(({ text }) => text));
  });
}
