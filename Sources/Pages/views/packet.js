// A packet as it goes over the air, as far as anybody can read it: header, path, and whom it names. The rest is encrypted.
// Layout: the firmware's Packet.h. Unchecked: the radio shows what it demodulates.

/** By the header's number. */
const TYPES = ["request", "response", "text", "ack", "advert", "channel", "datagram", "anonymous", "path", "trace", "multipart", "control"];
export const KINDS = [...TYPES, "raw", "other"];

/** `{at, raw, bytes, snr, rssi, kind, isFlood, path: [digits], from?, to?, channel?, name?}` of a row of /v1/packets. */
export function decoded({ at, raw, snr, rssi }) {
  const bytes = raw.length / 2;
  const packet = { at, raw, bytes, snr, rssi, kind: "other", isFlood: false, path: [] };
  const header = parseInt(raw.slice(0, 2), 16);
  if (Number.isNaN(header)) return packet;
  const way = header & 3;
  const type = (header >> 2) & 15;
  packet.kind = TYPES[type] ?? (type === 15 ? "raw" : "other");
  packet.isFlood = way < 2;
  // With transport codes, two of 16 bits are in front of the path.
  let place = way === 0 || way === 3 ? 10 : 2;
  const lengths = parseInt(raw.slice(place, place + 2), 16);
  if (Number.isNaN(lengths)) return packet;
  place += 2;
  const width = ((lengths >> 6) + 1) * 2;
  const hops = lengths & 63;
  if (type !== 9) for (let hop = 0; hop < hops && place + width <= raw.length; hop += 1, place += width) packet.path.push(raw.slice(place, place + width));
  const payload = raw.slice(place);
  if (type === 4 && payload.length >= 64) {
    packet.from = payload.slice(0, 64);
    packet.name = nameOf(payload);
  } else if (type === 5 || type === 6) packet.channel = payload.slice(0, 2);
  else if (type === 7) { packet.to = payload.slice(0, 2); packet.from = payload.slice(2, 66); }
  else if ([0, 1, 2, 8].includes(type)) { packet.to = payload.slice(0, 2); packet.from = payload.slice(2, 4); }
  return packet;
}

/** The name at the end of an advert: behind key, time, signature, flags, and what the flags say is there. */
function nameOf(payload) {
  const flags = parseInt(payload.slice(200, 202), 16);
  if (!(flags & 0x80)) return undefined;
  const start = 202 + (flags & 0x10 ? 16 : 0) + (flags & 0x20 ? 4 : 0) + (flags & 0x40 ? 4 : 0);
  const bytes = Uint8Array.from((payload.slice(start).match(/../g) ?? []).map((pair) => parseInt(pair, 16)));
  return new TextDecoder().decode(bytes) || undefined;
}

/** Milliseconds on the air of so many bytes; 0 where the radio's settings are not known. As Sources/Companion/OverTheAir/Airtime.swift. */
export function airtime(bytes, { bandwidth_hz: bandwidth, spreading_factor: spreading, coding_rate: coding }) {
  if (!bandwidth || !spreading || !coding) return 0;
  const symbol = (2 ** spreading / bandwidth) * 1000;
  const low = symbol >= 16 ? 1 : 0;
  const blocks = Math.max(0, Math.ceil((8 * bytes - 4 * spreading + 44) / (4 * (spreading - 2 * low))));
  return (16 + 4.25 + 8 + blocks * coding) * symbol;
}
