// The ground under the map: square images of a server that the operator has named (`{z}/{x}/{y}`, 256 pixels a side). Nothing is told of who looks: no referrer,
// no cookies, and the policy lets pages load images from there and nothing else.

const SIDE = 256;
/** What the common servers have. */
const DEEPEST = 19;
/** Kept at once: some screens full. */
const MOST = 200;
/** At once from the server; the rest waits for these. */
const MOST_ASKED = 6;

export class Tiles {
  #url;
  #changed;
  /** By `z/x/y`, in the order of use: `{image, isThere, isGone}`. */
  #known = new Map();
  #wanted = [];
  #asked = 0;
  #isClosed = false;
  #isOurs;
  hasAny = false;

  /** `changed`: another one is there. */
  constructor({ url }, changed) {
    this.#url = url;
    this.#isOurs = new URL(url).hostname === location.hostname;
    this.#changed = changed;
  }

  close() {
    this.#isClosed = true;
    for (const tile of this.#known.values()) tile.image.src = "";
    this.#known.clear();
  }

  /** `world`: pixels around the world; `left`, `top`: where the paper begins on it. A tile that is not there yet is drawn from a larger one that is. */
  paint(paper, { wide, tall, world, left, top }) {
    const zoom = Math.max(0, Math.min(DEEPEST, Math.round(Math.log2(world / SIDE) + (devicePixelRatio > 1.5 ? 0.5 : 0))));
    const many = 2 ** zoom;
    const side = world / many;
    this.#wanted = [];
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    paper.save();
    paper.globalAlpha = dark ? 0.55 : 0.9;
    for (let row = Math.max(0, Math.floor(top / side)); row <= Math.min(many - 1, Math.floor((top + tall) / side)); row += 1) {
      for (let column = Math.floor(left / side); column <= Math.floor((left + wide) / side); column += 1) {
        const at = [column * side - left, row * side - top];
        this.#paintOne(paper, zoom, ((column % many) + many) % many, row, /** @type {[number, number]} */ (at), side);
      }
    }
    paper.restore();
    this.#ask();
  }

  #paintOne(paper, zoom, column, row, [x, y], side) {
    const tile = this.#tile(zoom, column, row);
    // Half a pixel more: no seams.
    if (tile.isThere) { paper.drawImage(tile.image, x, y, side + 0.5, side + 0.5); return; }
    for (let up = 1; up <= Math.min(4, zoom); up += 1) {
      const larger = this.#known.get(`${zoom - up}/${column >> up}/${row >> up}`);
      if (!larger?.isThere) continue;
      const part = SIDE / 2 ** up;
      paper.drawImage(larger.image, (column - ((column >> up) << up)) * part, (row - ((row >> up) << up)) * part, part, part, x, y, side + 0.5, side + 0.5);
      return;
    }
  }

  #tile(zoom, column, row) {
    const key = `${zoom}/${column}/${row}`;
    let tile = this.#known.get(key);
    if (tile) this.#known.delete(key);
    else tile = { image: new Image(), isThere: false, isAsked: false, isOver: false, url: this.#url.replace("{z}", zoom).replace("{x}", column).replace("{y}", row) };
    this.#known.set(key, tile);
    if (!tile.isAsked) this.#wanted.push(tile);
    for (const [old, one] of this.#known) {
      if (this.#known.size <= MOST) break;
      one.image.src = "";
      this.#known.delete(old);
    }
    return tile;
  }

  /** Those of the last painting alone: what was passed by is not asked for. */
  #ask() {
    while (this.#asked < MOST_ASKED && this.#wanted.length && !this.#isClosed) {
      const tile = this.#wanted.shift();
      tile.isAsked = true;
      this.#asked += 1;
      // Once: that its image is emptied when it is given up is no second answer.
      const over = (isThere) => {
        if (tile.isOver) return;
        tile.isOver = true;
        this.#asked -= 1;
        if (this.#isClosed) return;
        tile.isThere = isThere;
        this.hasAny ||= isThere;
        this.#ask();
        if (isThere) this.#changed();
      };
      tile.image.addEventListener("load", () => over(true), { once: true });
      // Not there, or not reached: the grid or a larger one stays.
      tile.image.addEventListener("error", () => over(false), { once: true });
      tile.image.referrerPolicy = "no-referrer";
      // Cookies do not tell ports apart: another server of this machine would get that of our session.
      if (this.#isOurs) tile.image.crossOrigin = "anonymous";
      tile.image.decoding = "async";
      tile.image.src = tile.url;
    }
  }
}
