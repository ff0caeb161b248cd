// QR codes of links, as ISO/IEC 18004 has them: bytes, error correction L, versions 1 to 14 (458 bytes). A screen is a clean picture: more correction would
// only make the squares smaller.
import { draw } from "./page.js";

/** By version: bytes of error correction in each block, and the number of blocks. */
const CORRECTION = [7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26, 30];
const BLOCKS = [1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4];
/** Light squares around it, without which no reader finds it. */
const MARGIN = 4;

const [POWERS, LOGARITHMS] = [new Uint8Array(255), new Uint8Array(256)];
for (let index = 0, value = 1; index < 255; index += 1, value = (value << 1) ^ (value & 0x80 ? 0x11d : 0)) [POWERS[index], LOGARITHMS[value]] = [value, index];

function product(a, b) { return a && b ? POWERS[(LOGARITHMS[a] + LOGARITHMS[b]) % 255] : 0; }

/** What is left of the data, divided by the polynomial of Reed and Solomon of so many bytes. */
function correction(data, count) {
  let divisor = [1];
  for (let index = 0; index < count; index += 1) divisor = [...divisor, 0].map((one, at) => one ^ product(divisor[at - 1] ?? 0, POWERS[index]));
  const rest = new Uint8Array(count);
  for (const byte of data) {
    const factor = byte ^ rest[0];
    rest.copyWithin(0, 1);
    rest[count - 1] = 0;
    for (let at = 0; at < count; at += 1) rest[at] ^= product(divisor[at + 1], factor);
  }
  return rest;
}

/** Where the small squares are, across and down. */
function alignments(version) {
  if (version === 1) return [];
  const count = Math.floor(version / 7) + 2;
  const [last, step] = [4 * version + 10, Math.ceil((4 * version + 4) / (count - 1) / 2) * 2];
  return [6, ...Array.from({ length: count - 1 }, (_, index) => last - step * (count - 2 - index))];
}

/** Bytes of data and correction that a version has room for: all squares without its patterns. */
function roomOf(version) {
  const places = alignments(version).length;
  const patterns = places ? 25 * (places * places - 3) - 10 * (places - 2) : 0;
  return Math.floor(((4 * version + 17) ** 2 - 3 * 64 - 2 * (4 * version + 1) - 31 - patterns - (version > 6 ? 36 : 0)) / 8);
}

function dataRoomOf(version) { return roomOf(version) - CORRECTION[version - 1] * BLOCKS[version - 1]; }

/** The bytes as they are laid out: those of all blocks in turn, then their correction in turn. */
function codewords(bytes, version) {
  const room = dataRoomOf(version);
  const lengths = version > 9 ? [bytes.length >> 8, bytes.length & 255] : [bytes.length];
  // Four bits say that bytes follow: all that comes after them is moved by half a byte.
  const halves = [4, ...[...lengths, ...bytes].flatMap((byte) => [byte >> 4, byte & 15]), 0];
  const used = halves.length / 2;
  const data = Uint8Array.from({ length: room }, (_, index) => {
    if (index < used) return (halves[2 * index] << 4) | halves[2 * index + 1];
    return (index - used) % 2 ? 0x11 : 0xec;
  });
  const count = BLOCKS[version - 1];
  const [short, longs] = [Math.floor(room / count), room % count];
  const blocks = Array.from({ length: count }, (_, index) => {
    const start = index * short + Math.max(0, index - (count - longs));
    return data.subarray(start, start + short + (index >= count - longs ? 1 : 0));
  });
  const corrections = blocks.map((block) => correction(block, CORRECTION[version - 1]));
  const inTurn = (all) => Array.from(all.at(-1), (_, at) => all.filter((one) => at < one.length).map((one) => one[at])).flat();
  return [...inTurn(blocks), ...inTurn(corrections)];
}

const MASKS = [(x, y) => (x + y) % 2, (_, y) => y % 2, (x) => x % 3, (x, y) => (x + y) % 3,
  (x, y) => (Math.floor(x / 3) + Math.floor(y / 2)) % 2, (x, y) => ((x * y) % 2) + ((x * y) % 3),
  (x, y) => (((x * y) % 2) + ((x * y) % 3)) % 2, (x, y) => (((x + y) % 2) + ((x * y) % 3)) % 2];

/** A value with the bits that correct it, `bits` of them. */
function coded(value, divisor, bits) {
  let rest = value;
  for (let index = 0; index < bits; index += 1) rest = (rest << 1) ^ ((rest >> (bits - 1)) * divisor);
  return (value << bits) | rest;
}

/** `rows[y][x]`: whether a square is dark; undefined: not set yet. */
function patterns(version) {
  const size = 4 * version + 17;
  const rows = Array.from({ length: size }, () => new Array(size));
  const square = (x, y, reach, isDark) => {
    for (let down = -reach; down <= reach; down += 1) for (let across = -reach; across <= reach; across += 1) {
      if (rows[y + down] && x + across >= 0 && x + across < size) rows[y + down][x + across] = isDark(Math.max(Math.abs(across), Math.abs(down)));
    }
  };
  for (let at = 8; at < size - 8; at += 1) rows[6][at] = rows[at][6] = at % 2 === 0;
  for (const [x, y] of [[3, 3], [size - 4, 3], [3, size - 4]]) square(x, y, 4, (ring) => ring !== 2 && ring !== 4);
  const places = alignments(version);
  const isCorner = (x, y) => x === 6 && (y === 6 || y === size - 7) || y === 6 && x === size - 7;
  for (const x of places) for (const y of places) if (!isCorner(x, y)) square(x, y, 2, (ring) => ring !== 1);
  if (version > 6) {
    const bits = coded(version, 0x1f25, 12);
    for (let index = 0; index < 18; index += 1) {
      const [long, short] = [Math.floor(index / 3), size - 11 + (index % 3)];
      rows[long][short] = rows[short][long] = Boolean((bits >> index) & 1);
    }
  }
  format(rows, 0);
  return rows;
}

/** Which mask and correction, twice, around the corners. */
function format(rows, mask) {
  const size = rows.length;
  const bits = coded(8 | mask, 0x537, 10) ^ 0x5412;
  for (let index = 0; index < 15; index += 1) {
    const isDark = Boolean((bits >> index) & 1);
    const near = index < 6 ? index : index < 8 ? index + 1 : index === 8 ? 7 : 14 - index;
    if (index < 8) [rows[near][8], rows[8][size - 1 - index]] = [isDark, isDark];
    else [rows[8][near], rows[size - 15 + index][8]] = [isDark, isDark];
  }
  rows[size - 8][8] = true;
}

/** Up and down in columns of two, from the right; the column of the line is left out. */
function lay(rows, bytes) {
  const [size, set] = [rows.length, []];
  let bit = 0;
  for (let right = size - 1; right > 0; right -= 2) {
    if (right === 6) right = 5;
    for (let step = 0; step < size; step += 1) for (const x of [right, right - 1]) {
      const y = ((right + 1) & 2) === 0 ? size - 1 - step : step;
      if (rows[y][x] !== undefined) continue;
      rows[y][x] = Boolean(((bytes[bit >> 3] ?? 0) >> (7 - (bit & 7))) & 1);
      set.push([x, y]);
      bit += 1;
    }
  }
  return set;
}

/** How hard it is to read: long runs, blocks, what looks like a corner, and more dark than light. */
function penalty(rows) {
  const size = rows.length;
  let [sum, dark] = [0, 0];
  for (const lines of [rows, rows.map((_, x) => rows.map((row) => row[x]))]) for (const line of lines) {
    const text = line.map((one) => (one ? "1" : "0")).join("");
    for (const [run] of text.matchAll(/0{5,}|1{5,}/g)) sum += run.length - 2;
    for (let at = 0; at <= size - 11; at += 1) if (["10111010000", "00001011101"].includes(text.slice(at, at + 11))) sum += 40;
  }
  for (let y = 0; y < size; y += 1) for (let x = 0; x < size; x += 1) {
    dark += rows[y][x] ? 1 : 0;
    if (y && x && rows[y][x] === rows[y - 1][x] && rows[y][x] === rows[y][x - 1] && rows[y][x] === rows[y - 1][x - 1]) sum += 3;
  }
  return sum + 10 * Math.floor(Math.abs(dark * 20 - size * size * 10) / (size * size));
}

/** The code as rows of booleans; `null`: the text is too long for it. */
export function squares(text) {
  const bytes = new TextEncoder().encode(text);
  const version = CORRECTION.findIndex((_, index) => bytes.length + (index > 8 ? 3 : 2) <= dataRoomOf(index + 1)) + 1;
  if (!version) return null;
  const plain = patterns(version);
  const set = lay(plain, codewords(bytes, version));
  const masked = MASKS.map((mask, number) => {
    const rows = plain.map((row) => [...row]);
    for (const [x, y] of set) if (mask(x, y) === 0) rows[y][x] = !rows[y][x];
    format(rows, number);
    return rows;
  });
  const penalties = masked.map(penalty);
  return masked[penalties.indexOf(Math.min(...penalties))];
}

/** The drawing; dark on light also where the page is dark, as readers want it. `label`: for who does not see it. */
export function qrCode(text, label) {
  const rows = squares(text);
  if (!rows) return null;
  const size = rows.length + 2 * MARGIN;
  const path = rows.flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? [`M${x + MARGIN} ${y + MARGIN}h1v1h-1z`] : []))).join("");
  return draw("svg", { viewBox: `0 0 ${size} ${size}`, width: 240, height: 240, role: "img", "aria-label": label, "shape-rendering": "crispEdges" },
    draw("rect", { width: size, height: size, fill: "#fff" }), draw("path", { d: path, fill: "#000" }));
}
