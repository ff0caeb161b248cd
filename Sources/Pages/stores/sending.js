// What is written goes to the gateway.
import { order } from "./api.js";
import { freshID } from "./fresh.js";
import { live } from "./live.js";
import { outbox } from "./outbox.js";

/**
 * An entry is for the gateway at which it was written, if that was known, and waits for that when this address leads to another. `{id, gateway, conversation, text,
 * split, at, region?, trouble?: {words, remedy, code}, unsure?}`, `unsure`: the status of an answer that was not the gateway's. It goes when its message comes by
 * the stream.
 */
export function write(conversation, text, split = false, region = "") {
  outbox.add({ id: freshID(), gateway: live.gateway, conversation, text, split, at: Date.now(), ...(region ? { region } : {}) });
}

/** In the order in which it was written; stops at a cut. */
export async function send() {
  for (let entry = outbox.next; entry; entry = outbox.next) {
    try {
      // By the channel's digest or the key's first digits, which no name is taken for.
      await order("/v1/send", { to: entry.conversation.replace(/^(channel|node):/, ""), text: entry.text, id: entry.id, ...(entry.split ? { split: true } : {}), ...(entry.region ? { region: entry.region } : {}) });
      outbox.took(entry.id);
    } catch (trouble) {
      if (trouble.isCut || trouble.status === 401) {
        // Nobody knows whether it is there. Under its id it is asked for again; who does not want to wait can take it away.
        if (trouble.isForeign && entry.unsure !== trouble.status) outbox.set(entry.id, { unsure: trouble.status });
        live.retry();
        outbox.later();
        return;
      }
      const { message: words, remedy, code } = trouble;
      outbox.set(entry.id, { trouble: { words, remedy, code }, unsure: undefined });
    }
  }
}
