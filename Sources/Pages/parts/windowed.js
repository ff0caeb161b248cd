import { make } from "./page.js";

function hold(element) { (element?.matches("[tabindex], a, button") ? element : element?.querySelector("a, button"))?.focus({ preventScroll: true }); }

/** Beyond the edges of what is seen, in pixels: so much is ready before it is scrolled to. */
const AHEAD = 600;

/**
 * A list of any length, of which only what is seen is in the page. Heights are measured as rows appear; until then a row is as high as rows
 * are on average. What one reads stays where it is when something is put above it, or when a row grows.
 *
 * `items`: `{key, version, isLoose?, …}`; a row is made anew when its `version` changes, and one that is loose (a line between days) holds no place. `render(item, index)` returns its element.
 * `isFromBottom`: a chat, which begins at its end and stays there while one is there.
 */
export class Windowed {
  #scroller;
  #render;
  #estimate;
  #isFromBottom;
  #onEdge;
  #items = [];
  #offsets = new Float64Array(1);
  #heights = new Map();
  #shown = new Map();
  #isAtBottom;
  #isCutShort = false;
  #role;
  #isPlaced = false;
  #width = 0;
  #frame = 0;
  #observer;
  #rowObserver;

  constructor(scroller, { render, estimate = 48, isFromBottom = false, onEdge = (_end) => {}, role, label = null }) {
    this.#scroller = scroller;
    this.#render = render;
    this.#estimate = estimate;
    this.#isFromBottom = isFromBottom;
    this.#isAtBottom = isFromBottom;
    this.#onEdge = onEdge;
    this.#role = role;
    this.inside = make("div", { class: "windowed", "aria-label": role === "rowgroup" ? null : label });
    scroller.append(this.inside);
    scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.#observer = new ResizeObserver(() => this.#resized());
    this.#observer.observe(scroller);
    this.#rowObserver = new ResizeObserver(() => this.#settle());
  }

  get isAtBottom() { return this.#isAtBottom; }
  get items() { return this.#items; }

  close() {
    this.#observer.disconnect();
    this.#rowObserver.disconnect();
    cancelAnimationFrame(this.#frame);
  }

  /** Other items. Those with the same key and version keep their elements. `isCutShort`: more is behind the last one. */
  set(items, isCutShort = false) {
    this.#isCutShort = isCutShort;
    if (isCutShort) this.#isAtBottom = false;
    // A list without rows is none to who does not see it.
    if (this.#role) { if (items.length) this.inside.setAttribute("role", this.#role); else this.inside.removeAttribute("role"); }
    const anchor = this.#anchor();
    // A list in which rows come and go for days keeps the heights of those that it has.
    if (this.#heights.size > 2 * items.length + 1000) {
      const keys = new Set(items.map((item) => item.key));
      for (const key of this.#heights.keys()) if (!keys.has(key)) this.#heights.delete(key);
    }
    this.#items = items;
    this.#lay();
    this.#restore(anchor);
    this.#draw();
  }

  /** Other contents begin at their beginning, or their end. */
  reset() {
    this.#isPlaced = false;
    this.#isAtBottom = this.#isFromBottom;
    this.#scroller.scrollTop = 0;
  }

  indexOf(key) { return this.#items.findIndex((item) => item.key === key); }

  element(key) { return this.#shown.get(key)?.element ?? null; }

  toBottom() {
    this.#isAtBottom = true;
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#draw();
  }

  /** Brings a row into sight. `place`: `center` or `nearest`. */
  show(key, place = "nearest") {
    const index = this.indexOf(key);
    if (index < 0) return null;
    // Again: rows on the way may turn out higher or lower.
    for (let turn = 0; turn < 3; turn += 1) {
      const top = this.#offsets[index];
      const bottom = this.#offsets[index + 1];
      const seen = this.#scroller.clientHeight;
      const now = this.#scroller.scrollTop;
      let wanted = now;
      if (place === "center") wanted = top - (seen - (bottom - top)) / 2;
      else if (top < now + 4) wanted = top - 8;
      else if (bottom > now + seen - 4) wanted = bottom - seen + 8;
      this.#isAtBottom = false;
      this.#isPlaced = true;
      if (wanted !== now) this.#scroller.scrollTop = wanted;
      this.#draw();
    }
    this.#noteBottom();
    return this.element(key);
  }

  #height(item) { return this.#heights.get(item.key) ?? this.#estimate; }

  #lay() {
    const offsets = new Float64Array(this.#items.length + 1);
    for (let index = 0; index < this.#items.length; index += 1) offsets[index + 1] = offsets[index] + this.#height(this.#items[index]);
    this.#offsets = offsets;
  }

  /** The first row in sight at this height. */
  #at(y) {
    let low = 0;
    let high = this.#items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#offsets[middle + 1] <= y) low = middle + 1; else high = middle;
    }
    return Math.min(low, Math.max(0, this.#items.length - 1));
  }

  #anchor() {
    if (!this.#items.length || !this.#isPlaced || this.#isAtBottom) return null;
    const top = this.#scroller.scrollTop;
    const index = this.#at(top);
    // Rows in sight, each with its place: the first that is still there afterwards keeps it. One that is loose goes with what is above it.
    const next = [];
    for (let at = index; at < this.#items.length && next.length < 40; at += 1) {
      if (!this.#items[at].isLoose) next.push([this.#items[at].key, this.#offsets[at] - top]);
    }
    return { next };
  }

  #restore(anchor) {
    this.#space();
    if (this.#isAtBottom && this.#isFromBottom) {
      this.#scroller.scrollTop = this.#scroller.scrollHeight;
      this.#isPlaced = this.#items.length > 0;
      return;
    }
    this.#isPlaced = this.#items.length > 0;
    if (!anchor) return;
    for (const [key, from] of anchor.next) {
      const index = this.indexOf(key);
      if (index < 0) continue;
      const wanted = this.#offsets[index] - from;
      if (Math.abs(wanted - this.#scroller.scrollTop) > 0.5) this.#scroller.scrollTop = wanted;
      return;
    }
  }

  #space(first = this.first ?? 0, end = this.end ?? 0) {
    const total = this.#offsets[this.#items.length];
    end = Math.min(end, this.#items.length);
    first = Math.min(first, end);
    this.inside.style.paddingBlockStart = `${this.#offsets[first]}px`;
    this.inside.style.paddingBlockEnd = `${total - this.#offsets[end]}px`;
  }

  first = 0;
  end = 0;

  #draw() {
    if (!this.#scroller.isConnected) return;
    for (let turn = 0; turn < 4; turn += 1) {
      const top = this.#scroller.scrollTop;
      const seen = this.#scroller.clientHeight;
      const first = this.#items.length ? this.#at(top - AHEAD) : 0;
      const end = this.#items.length ? Math.min(this.#items.length, this.#at(top + seen + AHEAD) + 1) : 0;
      this.#place(first, end);
      if (!this.#measure()) break;
    }
    this.#noteBottom();
    if (this.#items.length) {
      if (this.first === 0 && this.#scroller.scrollTop < AHEAD) this.#onEdge("start");
      if (this.end === this.#items.length && this.#scroller.scrollTop + this.#scroller.clientHeight > this.#scroller.scrollHeight - AHEAD) this.#onEdge("end");
    }
  }

  #place(first, end) {
    const wanted = new Map();
    let before = null;
    let focused = this.inside.contains(document.activeElement) ? document.activeElement : null;
    const focusedAt = this.first + [...this.#shown.values()].findIndex(({ element }) => element.contains(focused));
    for (let index = first; index < end; index += 1) {
      const item = this.#items[index];
      let shown = this.#shown.get(item.key);
      if (!shown || shown.version !== item.version) {
        const hadFocus = shown && focused && shown.element.contains(focused);
        const element = this.#render(item, index);
        if (shown) {
          this.#rowObserver.unobserve(shown.element);
          shown.element.replaceWith(element);
          if (hadFocus) { hold(element); focused = document.activeElement; }
        }
        this.#rowObserver.observe(element);
        shown = { element, version: item.version };
      }
      wanted.set(item.key, shown);
      const place = before ? before.nextSibling : this.inside.firstChild;
      if (place !== shown.element) this.inside.insertBefore(shown.element, place);
      before = shown.element;
    }
    for (const [key, { element }] of this.#shown) {
      if (wanted.has(key)) continue;
      this.#rowObserver.unobserve(element);
      element.remove();
    }
    this.#shown = wanted;
    this.first = first;
    this.end = end;
    // A row that left, or had to move, takes the keyboard's place with it.
    const isLost = () => focused && document.activeElement === document.body;
    if (isLost() && focused.isConnected) focused.focus({ preventScroll: true });
    if (isLost()) hold(this.element(this.#items[Math.min(Math.max(focusedAt, first), end - 1)]?.key));
    if (isLost()) hold(this.#scroller);
    this.#space(first, end);
  }

  /** Whether a height is not as was thought. */
  #measure() {
    let isOther = false;
    const anchor = this.#anchor();
    for (const [key, { element }] of this.#shown) {
      const height = element.getBoundingClientRect().height;
      if (height && Math.abs((this.#heights.get(key) ?? -1) - height) > 0.4) {
        this.#heights.set(key, height);
        isOther = true;
      }
    }
    if (!isOther) return false;
    // Rows that were not seen yet are as high as those that were.
    if (this.#heights.size && this.#heights.size < 400) {
      let sum = 0;
      for (const height of this.#heights.values()) sum += height;
      this.#estimate = sum / this.#heights.size;
    }
    this.#lay();
    this.#restore(anchor);
    return true;
  }

  #noteBottom() {
    if (!this.#isFromBottom) return;
    const { scrollTop, clientHeight, scrollHeight } = this.#scroller;
    this.#isAtBottom = !this.#isCutShort && scrollHeight - scrollTop - clientHeight < 24;
  }

  #scrolled() {
    this.#noteBottom();
    this.#settle();
  }

  /** A row's height has changed. */
  #settle() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => { this.#frame = 0; this.#draw(); });
  }

  #resized() {
    const wasAtBottom = this.#isAtBottom;
    const anchor = this.#anchor();
    if (this.#width !== this.#scroller.clientWidth) {
      this.#width = this.#scroller.clientWidth;
      this.#heights.clear();
      this.#lay();
    }
    this.#isAtBottom = wasAtBottom;
    this.#restore(anchor);
    this.#draw();
  }
}
