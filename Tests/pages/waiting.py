"""What waits and why, charts with an axis, and the first steps."""
import itertools
import json
import re

from cases import PUBLIC, fresh
from run import test

WHY = """const [done, rows, radio] = [arguments[3], arguments[0], arguments[1]];
  Promise.all([import("/pages/parts/waits.js"), import("/pages/parts/words.js")]).then(async ([{ whyItWaits }, { needWords }]) => {
    await needWords("more");
    done(rows.map((row) => whyItWaits({ recipient_name: "Birch", kind: "direct", state: "pending", ...row }, { ...radio, isBusy: arguments[2] })));
  });"""


@test
def why_a_message_waits_is_said_in_words(world):
    browser = world.open("/conversations")
    # Noon of today by the browser's clock is shown as a time.
    noon = browser.script("return new Date().setHours(12, 0, 0, 0)")

    def why(*rows, state="up", busy=False):
        return browser.driver.execute_async_script(WHY, list(rows), {"state": state}, busy)

    refused, held, channel, place, airtime, radio, sent, turn, ended = why(
        {"refusals": 17, "next_attempt_at": noon}, {"state": "held_for_recipient", "next_attempt_at": noon}, {"waits_for": "channel"}, {"waits_for": "place"},
        {"waits_for": "airtime"}, {"held_for": "Elm"}, {"state": "sent"}, {}, {"state": "delivered", "ended": True})
    assert "no room for another packet" in refused and "17 times" in refused and re.search(r"Next attempt: 12:00", refused), refused
    assert "Birch has not acknowledged it yet" in held and "12:00" in held and "at the latest" in held, held
    assert "channel's slot" in channel and "contact table" in place and "air time" in airtime, (channel, place, airtime)
    assert "Held for the radio Elm" in radio and "Waits for Birch to acknowledge it" in sent and "waiting for its turn" in turn and ended == "", (radio, sent, turn, ended)
    assert "channel is busy" in why({}, busy=True)[0]
    away = why({"refusals": 2, "next_attempt_at": noon}, state="down")[0]
    assert away.startswith("Waits for the radio") and "Next attempt" not in away, away


@test
def what_waits_is_listed_and_cancelled(world):
    away = next(one for one in world.gateway.ask("GET", "/v1/contacts?on_radio=1") if one["type"] == "chat" and not re.fullmatch(r"r\d", one["name"]))
    text = fresh("are you there")
    sent = world.gateway.ask("POST", "/v1/send", {"to": away["key"], "text": text})["messages"][0]["id"]
    try:
        browser = world.open("/gateway")
        browser.click('a[href="/gateway/waiting"]')
        row = f'[data-waits="{sent}"]'
        browser.shows(text, row)
        browser.shows(away["name"], f"{row} a")
        # Whatever it waits for just now, it is said.
        browser.until("why", lambda: len(browser.text(f"{row} > p").strip()) > 20)
        later = fresh("and now")
        world.gateway.ask("POST", "/v1/send", {"to": away["key"], "text": later})
        browser.shows(later, ".waiting")
        browser.click(f'{row} [data-does="cancel"]')
        browser.until("it to be gone", lambda: not browser.all(row))
        browser.until("its end", lambda: world.gateway.ask("GET", f"/v1/outgoing?id={sent}")[0].get("reason") == "cancelled")
        browser.press(".waiting a", away["name"])
        browser.until("the chat", lambda: browser.path().endswith(f"node:{away['key'][:12]}"))
        # The details say the same, and lead there.
        browser.until("its mark", lambda: browser.script("""const own = [...document.querySelectorAll("article.own")].find((one) => one.innerText.includes(arguments[0]));
          own?.querySelector(".mark").click(); return Boolean(own)""", later))
        browser.find('.details a[href="/gateway/waiting"]').click()
        browser.shows(later, ".waiting")
    finally:
        for one in world.gateway.ask("GET", "/v1/outgoing?limit=1"):
            if not one["ended"] and one.get("recipient") == away["key"]:
                world.gateway.ask("POST", f"/v1/outgoing/cancel?id={one['id']}")


@test
def an_axis_of_time_has_room_for_its_labels(world):
    browser = world.open("/nodes", width=320, height=640)
    # Where the marks are depends on the hour: each length of time ends at several.
    for hours, shift in itertools.product((0.1, 0.7, 3, 11, 26, 60, 100, 300, 900, 9000), range(8)):
        shown = browser.script("""return import("/pages/parts/chart.js").then(({ chart }) => {
          const wide = arguments[0] * 3600000; const end = Date.UTC(2026, 10, 30, 20, 51) + arguments[1] * wide / 20;
          const points = Array.from({ length: 40 }, (_, index) => ({ at: end - (39 - index) * wide / 39, value: index }));
          const place = document.createElement("div"); place.style.inlineSize = "264px"; place.append(chart("x", points)); document.getElementById("main").replaceChildren(place);
          return [...place.querySelectorAll(".chart-axis span")].map((one) => [one.getBoundingClientRect().left - place.getBoundingClientRect().left, one.getBoundingClientRect().right - place.getBoundingClientRect().left]); })""", hours, shift)
        assert 1 <= len(shown) <= 6, (hours, shift, shown)
        assert all(left >= 0 and right <= 264 for left, right in shown), (hours, shift, shown)
        assert all(before[1] <= after[0] for before, after in zip(shown, shown[1:])), (hours, shift, shown)


@test
def the_own_radios_hours_are_drawn(world):
    browser = world.browser()
    browser.command("Page.addScriptToEvaluateOnNewDocument", source="""const real = window.fetch;
      const rows = Array.from({ length: 50 }, (_, index) => JSON.stringify({ at: Date.now() - (50 - index) * 3600000, kind: "node_status", body: { battery_mv: 4000 + index, noise_floor_dbm: -110 } }));
      window.fetch = (path, ...more) => (String(path).startsWith("/v1/readings?node=self") ? Promise.resolve(new Response(rows.join("\\n"))) : real(path, ...more));""")
    browser.go(f"{world.host.base}/gateway")
    browser.shows("Battery and noise")
    browser.until("two charts with an axis", lambda: len(browser.all(".chart-axis")) == 2)
    assert "4.049 V" in browser.text(".chart") and "dBm" in browser.text(".chart")


@test
def first_steps_are_told_until_something_is_said(world):
    only = {"conversation": PUBLIC, "kind": "channel", "name": "Public", "channel": PUBLIC.split(":")[1], "on_radio": True, "unread": 0, "mentioned": False, "read": "0", "level": "all", "muted": False}
    steps = """const real = window.fetch;
      window.examined = 0;
      window.fetch = (path, ...more) => {
        if (path === "/v1/doctor") window.examined += 1;
        return path === "/v1/conversations" ? Promise.resolve(new Response(arguments_[0])) : real(path, ...more);
      };""".replace("arguments_[0]", json.dumps(json.dumps(only)))
    for looks, place in (({}, "#main"), ({"width": 320, "height": 640}, ".list")):
        browser = world.browser(**looks)
        browser.command("Page.addScriptToEvaluateOnNewDocument", source=steps)
        browser.go(f"{world.host.base}/conversations")
        browser.find(f'{place} [data-step="channel"]')
        assert browser.script("return document.documentElement.scrollWidth - innerWidth") <= 0
        # Only there.
        browser.click('[data-tab="gateway"]')
        browser.until("none", lambda: not browser.all(".first-steps"))
        # What was found may be done meanwhile.
        before = browser.script("window.examined = 0; return 0")
        browser.click('[data-tab="conversations"]')
        browser.find(f"{place} .first-steps")
        browser.until("the doctor is asked again", lambda: browser.script("return window.examined") > before)
        browser.script("""return import("/pages/stores/conversations.js").then(({ conversations }) => conversations.update(arguments[0],
          { newest: { cursor: "1", kind: "channel", direction: "received", received_at: Date.now(), text: "hello" } }))""", PUBLIC)
        browser.until("none", lambda: not browser.all(".first-steps"))
