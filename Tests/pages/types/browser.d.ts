// What browsers have and the checker's own library does not know yet, and what `deploy/pages/pack` sets.
interface MapConstructor {
  groupBy<Item, Key>(items: Iterable<Item>, key: (item: Item, index: number) => Key): Map<Key, Item[]>;
}

interface Array<T> {
  findLast(is: (item: T, index: number) => unknown): T | undefined;
  with(index: number, item: T): T[];
}

interface HTMLElement {
  checkVisibility(): boolean;
}

// All that these pages have is HTML or SVG.
interface Element extends HTMLOrSVGElement {}

interface EventTarget {
  closest?(selectors: string): any;
}

interface Navigator {
  standalone?: boolean;
}

declare class BarcodeDetector {
  constructor(options: { formats: string[] });
  detect(image: HTMLVideoElement): Promise<{ rawValue: string }[]>;
}

declare const WORDS: Record<string, Record<string, string>>;
