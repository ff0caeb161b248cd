// Links to channels and nodes that people hand on: shown with a code that a phone reads, and read from such a code.
import { icon, make } from "../parts/page.js";
import { qrCode } from "../parts/qr.js";
import { t } from "../parts/words.js";
import { copyable } from "./details.js";

/** Between two looks at the camera's picture. */
const LOOK_MS = 200;

/** Whether it can be a link of MeshCore's. */
export function isLink(text) { return /^meshcore:\/\//i.test(text); }

/** A link as a code and as text. */
export function shownLink(link) {
  return make("div", { class: "plain" }, qrCode(link, t("link.code")), copyable(link, t("link.name")));
}

/** A button that reads a code by the camera, and gives its link to `read`; where the browser cannot, how to do without. */
export function scanning(read) {
  const canScan = "BarcodeDetector" in window && isSecureContext && navigator.mediaDevices?.getUserMedia;
  if (!canScan) return make("p", { class: "quiet small", text: t("scan.without") });
  const place = make("div", { class: "plain" });
  const trouble = make("p", { class: "small bad-words", role: "alert" });
  let end = null;
  const words = make("span", { text: t("scan.verb") });
  const button = make("button", { type: "button", class: "button", on: { click: async () => {
    if (end) { end(); return; }
    const ending = new AbortController();
    end = () => ending.abort();
    trouble.textContent = "";
    words.textContent = t("scan.stop");
    try {
      const link = await scanned(place, ending.signal);
      if (link) read(link);
    } catch (error) {
      trouble.textContent = t("scan.refused", { why: error.message });
    }
    end = null;
    place.replaceChildren();
    words.textContent = t("scan.verb");
  } } }, icon("search"), words);
  return make("div", { class: "plain" }, make("div", { class: "row" }, button), place, trouble);
}

/** The first link that the camera sees; `null`: one has stopped, or left. */
async function scanned(place, signal) {
  const stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  try {
    const video = make("video", { playsinline: true, width: 240, height: 240, "aria-label": t("scan.hold") });
    video.muted = true;
    video.srcObject = stream;
    place.append(make("p", { class: "small", text: t("scan.hold") }), video);
    const detector = new BarcodeDetector({ formats: ["qr_code"] });
    await video.play();
    while (!signal.aborted && video.isConnected) {
      const link = (await detector.detect(video)).map((one) => one.rawValue).find(isLink);
      if (link) return link;
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
    return null;
  } finally {
    for (const track of stream.getTracks()) track.stop();
  }
}
