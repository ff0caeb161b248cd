// Drawings that no first view needs.
import { shapes } from "./page.js";

Object.assign(shapes, {
  back: "M15 5l-7 7 7 7", close: "M6 6l12 12M18 6L6 18", details: "M4 5h16v14H4zM14 5v14", send: "M4 12l16-7-6 15-3-6z",
  reply: "M10 7L5 12l5 5M5 12h9a5 5 0 0 1 5 5v1", down: "M6 9l6 7 6-7", tick: "M5 13l4 4 10-11", ticks: "M2 13l4 4 9-11M11 16l1 1 9-11",
  smile: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM9 10h.01M15 10h.01M8.5 14c2 2.5 5 2.5 7 0",
  star: "M12 4l2.5 5.2 5.5.8-4 4 1 5.7-5-2.8-5 2.8 1-5.7-4-4 5.5-.8z", copy: "M9 9h10v10H9zM5 15V5h10", pause: "M9 6v12M15 6v12", play: "M8 5l11 7-11 7z",
});
