// Gateways on a map: who is linked, who is silent.
import { fill } from "../parts/page.js";
import { number } from "../parts/numbers.js";
import { cut } from "../parts/text.js";
import { t } from "../parts/words.js";
import { clusters, Ground } from "../parts/ground.js";
import { route } from "../shell/route.js";
import { contact, gatewayName } from "./live.js";

const INKS = ["good", "warn", "bad", "quiet", "text", "line", "accent", "surface"];
const INK = { linked: "good", quiet: "warn", silent: "bad" };

export class FleetMap {
  #ground;
  /** `{lat, lon, row}` */
  #placed = [];

  /** `open(row)`, `shut()`: what was pointed at. */
  constructor(place, tiles, { open, shut }) {
    this.#ground = new Ground({
      label: t("fleet.map-label"), tiles, inks: INKS, places: () => this.#placed, paint: (paper, wide, tall) => this.#paint(paper, wide, tall),
      picked: (mark) => {
        if (!mark) shut();
        else if (mark.items.length > 1 && this.#ground.metres > 0.5) this.#ground.approach(mark.items[0]);
        else open(mark.items[0].row);
      },
    });
    fill(place, this.#ground.element);
    this.#ground.begin();
  }

  close() { this.#ground.close(); }

  draw(rows) {
    this.#placed = rows.filter((row) => row.position).map((row) => ({ lat: row.position.lat, lon: row.position.lon, row }));
    this.#ground.fit();
    this.#ground.draw();
  }

  #paint(paper, wide, tall) {
    const ground = this.#ground;
    ground.marks = clusters(ground.inSight(this.#placed, wide, tall));
    const names = [];
    for (const mark of ground.marks) {
      const { x, y, items } = mark;
      const isChosen = items.some((one) => one.row.gateway === route.id);
      // The one that is worst off gives a cluster its colour.
      const worst = ["silent", "quiet", "linked"].find((state) => items.some((one) => contact(one.row) === state));
      paper.globalAlpha = 1;
      paper.fillStyle = items.length > 1 ? ground.inks.surface : ground.inks[INK[worst]];
      paper.strokeStyle = items.length > 1 ? ground.inks[INK[worst]] : isChosen ? ground.inks.text : ground.inks.surface;
      paper.lineWidth = isChosen ? 3 : items.length > 1 ? 2 : 1.5;
      paper.beginPath();
      const size = items.length > 1 ? Math.min(22, 11 + Math.log2(items.length) * 1.5) : isChosen ? 10 : 8;
      // A shape for each state as well: who is silent is a square.
      if (items.length === 1 && worst === "silent") paper.rect(x - size + 1, y - size + 1, 2 * size - 2, 2 * size - 2);
      else paper.arc(x, y, size, 0, 7);
      paper.fill();
      paper.stroke();
      if (items.length > 1) {
        paper.fillStyle = ground.inks.text;
        paper.textBaseline = "middle";
        paper.fillText(number(items.length), x, y + 0.5);
      } else ground.name(paper, cut(gatewayName(items[0].row.gateway), 20), mark, names, isChosen, mark);
    }
  }
}
