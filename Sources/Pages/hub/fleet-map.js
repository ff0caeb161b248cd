// Gateways on a map: who is linked, who is silent.
import { fill, make } from "../parts/page.js";
import { cut } from "../parts/text.js";
import { t } from "../parts/words.js";
import { clusters, Ground } from "../parts/ground.js";
import { route } from "../shell/route.js";
import { contact, gatewayName } from "./live.js";
import { legend, openMark, paintMany, shape } from "./marks.js";

const INKS = ["good", "warn", "bad", "quiet", "text", "line", "accent", "surface"];
/** Each state has a colour and a shape, on the map and in the legend. */
const INK = { linked: "good", quiet: "warn", silent: "bad" };
const SHAPE = { linked: "circle", quiet: "diamond", silent: "square" };
const SIGN = { linked: "●", quiet: "◆", silent: "■" };

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
        else openMark(this.#ground, mark, { open: ({ row }) => open(row), nameOf });
      },
      extras: [legend(Object.keys(INK).map((state) => make("span", { class: `kind is-${state}` }, make("span", { class: "kind-shape", "aria-hidden": "true", text: SIGN[state] }), make("span", { text: t(`map.${state}`) }))))],
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
      if (items.length > 1) { paintMany(paper, ground, mark, { ink: INK[worst], isChosen }); continue; }
      paper.globalAlpha = 1;
      paper.fillStyle = ground.inks[INK[worst]];
      paper.strokeStyle = isChosen ? ground.inks.text : ground.inks.surface;
      paper.lineWidth = isChosen ? 3 : 1.5;
      shape(paper, SHAPE[worst], x, y, isChosen ? 10 : 8);
      paper.fill();
      paper.stroke();
      ground.name(paper, nameOf(items[0]), mark, names, isChosen, mark);
    }
  }
}

function nameOf({ row }) { return cut(gatewayName(row.gateway), 64); }
