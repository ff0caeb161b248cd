"""Tests of single views, and of signing in, in the browser. See cases.py."""
import json
import pathlib
import re
import secrets
import shutil
import tempfile

import rigs
from browser import Browser, Keys
from cases import PUBLIC, VIEWS, chat, fresh, r1, write
from run import test

# A picture of one point.
POINT = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cf000000030101004b9b6a5c0000000049454e44ae426082")


def first_conversation(browser, id):
    return f'a.conversation[data-id="{id}"]'


@test
def a_password_lets_in(world):
    if not world.host.command:
        return
    with rigs.with_password(world, "correct horse") as host:
        browser = Browser()
        world.browsers.append(browser)
        browser.go(host.base + f"/conversations/{PUBLIC}")
        field = browser.find("#signin-field")
        assert field.get_attribute("autocomplete") == "current-password"
        browser.shows("meshpost web password", ".signin-card")
        browser.type("#signin-field", "wrong horse" + Keys.ENTER)
        browser.shows("This password is not right.", ".trouble-line")
        browser.find("#signin-field").clear()
        browser.type("#signin-field", "correct horse" + Keys.ENTER)
        browser.find(".composer-field")
        assert browser.path() == f"/conversations/{PUBLIC}", "it goes on where one wanted to go"
        browser.script("window.refused = []")


@test
def signing_in_lets_other_tabs_in(world):
    if not world.host.command:
        return
    with rigs.with_password(world, "correct horse") as host:
        browser = Browser()
        world.browsers.append(browser)
        browser.go(host.base + "/conversations")
        browser.find("#signin-field")
        first = browser.driver.current_window_handle
        browser.driver.switch_to.new_window("tab")
        browser.go(host.base + "/conversations")
        browser.type("#signin-field", "correct horse" + Keys.ENTER)
        browser.until("the shell", lambda: browser.all(".app[data-state=open] .tabs"))
        browser.driver.close()
        browser.driver.switch_to.window(first)
        browser.script("dispatchEvent(new Event('focus'))")
        browser.until("the shell in the other", lambda: browser.all(".app[data-state=open] .tabs"))
        browser.script("window.refused = []")


# As if the host were not reached: what is asked for early, and the page's own question.
SESSIONS = """
const real = window.fetch;
let sessions = 0;
window.fetch = async (path, ...more) => {
  if (path !== "/session") return real(path, ...more);
  sessions += 1;
  if (sessions < 3) throw new TypeError("cut");
  const answer = await real(path, ...more);
  const json = answer.json.bind(answer);
  answer.json = async () => { const value = await json(); setTimeout(() => { window.isKnown = true; }); return value; };
  return answer;
};
"""


@test
def who_began_without_a_line_can_sign_out(world):
    browser = world.browser()
    browser.command("Page.addScriptToEvaluateOnNewDocument", source=SESSIONS)
    browser.go(world.host.base + "/conversations")
    browser.until("its session", lambda: browser.script("return window.isKnown"))
    browser.click('.head [aria-label="Menu"]')
    browser.shows("Sign out", "dialog")


@test
def a_muted_conversation_shows_no_number_anywhere(world):
    one, other = world.open(f"/conversations/{PUBLIC}"), world.open("/nodes")
    place = first_conversation(one, PUBLIC)
    one.click('.chat-head [aria-label^="Mute:"]')
    other.until("it to be grey", lambda: other.all(f"{place}.muted"))
    one.go(world.host.base + "/nodes")
    one.until("the list", lambda: one.all(place))
    count = '[data-tab="conversations"] .count'
    before = other.text(count)
    world.gateway.say(f"chan r2 0 {(text := fresh('nobody looks'))}")
    for browser in (one, other):
        browser.until("the message", lambda: text in browser.text(place))
        assert not browser.all(f"{place} .badge")
        assert browser.text(count) == before
    # It is the gateway's: a browser that comes later sees it, too.
    later = world.open("/nodes")
    later.until("it to be grey", lambda: later.all(f"{place}.muted"))
    later.click(place)
    later.click('.chat-head [aria-label^="Muted:"]')
    for browser in (one, other):
        browser.until("it to be as before", lambda: browser.all(place) and not browser.all(f"{place}.muted"))
    # The level that it had comes back.
    level = lambda: next(row["level"] for row in world.gateway.ask("GET", "/v1/conversations") if row["conversation"] == PUBLIC)  # noqa: E731
    world.gateway.ask("POST", "/v1/conversations/level", {"conversation": PUBLIC, "level": "mentions"})
    one.go(f"{world.host.base}/conversations/{PUBLIC}")
    for label, then in (("Mute:", "none"), ("Muted:", "mentions")):
        one.click(f'.chat-head [aria-label^="{label}"]')
        one.until(f"the level {then}", lambda: level() == then)
    world.gateway.ask("POST", "/v1/conversations/level", {"conversation": PUBLIC, "level": "all"})


@test
def a_message_that_the_browser_has_no_room_for_is_told(world):
    browser = chat(world)
    browser.until("a line", lambda: browser.script("return import('/pages/stores/live.js').then(({ live }) => live.isLinked)"))
    browser.script("""
      const { setItem } = Storage.prototype; const real = window.fetch; window.isFull = window.isCut = true;
      Storage.prototype.setItem = function (...values) { if (window.isFull) throw new DOMException("full", "QuotaExceededError"); return setItem.apply(this, values); };
      window.fetch = (path, ...more) => (window.isCut && path === "/v1/send" ? Promise.reject(new TypeError("cut")) : real(path, ...more));""")
    leaves = "return dispatchEvent(new Event('beforeunload', { cancelable: true }))"
    kept = "return (localStorage.getItem('meshpost.outbox') ?? '').includes(arguments[0])"
    first, second = fresh("while it is full"), fresh("with space again")
    write(browser, first)
    browser.shows("has no room to keep it", ".message.waiting")
    assert not browser.script(leaves) and not browser.script(kept, first)
    # With room again, what waited is kept as well, in its order.
    browser.script("window.isFull = false")
    write(browser, second)
    browser.until("both to be kept", lambda: browser.script(kept, first) and browser.script(kept, second))
    browser.until("no such words", lambda: "has no room" not in browser.text(".message.waiting"))
    assert browser.script(leaves)
    browser.script("window.isCut = false; return import('/pages/stores/outbox.js').then(({ outbox }) => { outbox.flush(); })")
    browser.until("both at the gateway", lambda: world.gateway.texts(first) and world.gateway.texts(second))


@test
def a_mark_opens_to_its_attempts(world):
    key = r1(world)["key"]
    browser = chat(world, f"node:{key[:12]}")
    text = fresh("how did it go")
    write(browser, text)
    row = "[...document.querySelectorAll('article.own')].find((row) => row.innerText.includes(arguments[0]))"
    browser.until("two ticks", lambda: browser.script(f"return {row}?.querySelector('.mark.delivered')", text))
    browser.script(f"{row}.querySelector('.mark').click()", text)
    browser.until("its attempt", lambda: browser.all(".attempts [data-attempt='1']"))
    words = browser.text(".attempts")
    outgoing = next(one for one in world.gateway.ask("GET", "/v1/outgoing?limit=20") if one.get("text") == text)
    told = world.gateway.ask("GET", f"/v1/outgoing/attempts?id={outgoing['id']}")
    assert len(told["attempts"]) == outgoing["attempts"] and told["attempts"][0]["at"] >= outgoing["created_at"], told
    assert told["codes"][0] in words and ("flooded" in words or "along the path" in words), words
    assert "Round trip" in browser.text(".details .facts")


@test
def a_path_is_forgotten_and_found(world):
    key = r1(world)["key"]
    world.gateway.ask("POST", "/v1/contacts/path", {"contact": key, "path": "aa"})
    browser = world.open(f"/nodes/{key}")
    browser.click('[data-path="discover"]')
    # It is a companion whose owner does not allow that, and the page says so.
    browser.until("an answer", lambda: "does not answer" in browser.text(".details .bad-words"), 120)
    browser.until("a path", lambda: browser.all('[data-path="reset"]:not([hidden])'))
    browser.click('[data-path="reset"]')
    browser.until("none", lambda: "path" not in r1(world))
    browser.shows("messages are flooded", ".details")
    world.gateway.say(f"dm r1 r0 {fresh('heard well')}")
    world.gateway.say(f"dm r1 r0 {fresh('heard again')}")
    browser.until("them at the gateway", lambda: len(world.gateway.ask("GET", f"/v1/messages?from={key}&limit=5")) > 1)
    browser.driver.refresh()
    browser.shows("How it is heard", ".details")
    assert browser.all(".details .chart-line")


@test
def a_repeater_is_asked(world):
    if not world.host.command:
        return
    with rigs.mesh_with_servers(world) as site:
        key = next(one["key"] for one in site.gateway.ask("GET", "/v1/contacts") if one["name"] == "Ridge")
        browser = site.open(f"/nodes/{key}")
        browser.type("#node-password", "wrong" + Keys.ENTER)
        browser.until("a refusal", lambda: browser.all(".login .bad-words"), 120)
        browser.find("#node-password").clear()
        browser.type("#node-password", "password" + Keys.ENTER)
        browser.until("to be let in", lambda: browser.all(".login .good-words"), 120)
        assert browser.find("#node-password").get_attribute("value") == ""

        def asked(name):
            browser.press(".asks > .row .button", name)
            return browser.until(name, lambda: browser.all(f'.answer[data-ask="{name.lower()}"] dl, .answer[data-ask="{name.lower()}"] ul, .answer[data-ask="{name.lower()}"] p:not(.bad-words)'), 120)

        browser.click('[data-path="discover"]')
        browser.until("a path", lambda: browser.all(".details .plain .good-words, .details .plain .bad-words"), 120)
        asked("Status")
        browser.shows("4.015", '.answer[data-ask="status"]')
        asked("Telemetry")
        asked("Neighbours")
        browser.type(".terminal-field", "ver" + Keys.ENTER)
        browser.until("a reply", lambda: browser.all(".terminal-output .reply"), 120)
        browser.type(".terminal-field", "password again" + Keys.ENTER)
        browser.until("a second reply", lambda: len(browser.all(".terminal-output .reply, .terminal-output .bad-words")) > 1, 120)
        browser.find(".terminal-field").send_keys(Keys.ARROW_UP)
        assert browser.find(".terminal-field").get_attribute("value") == "ver", "a password that was typed is not offered again"


@test
def dead_letters_are_retried_and_deleted(world):
    isRefusing = {"now": True}
    # A server that refuses everything makes no event a dead letter, so this one accepts others.
    with rigs.Answering(lambda *asked: (422, {}, b"no") if isRefusing["now"] and b"letter" in asked[3] else (200, {}, b"")) as server:
        name = "refuser" + secrets.token_hex(2)
        world.gateway.ask("POST", "/v1/upstreams/add", {"name": name, "kind": "webhook", "url": server.base + "/in", "kinds": ["message"]})
        try:
            for number in range(3):
                world.gateway.say(f"chan r1 0 {fresh(f'letter {number}')}")
                world.gateway.say(f"chan r1 0 {fresh(f'another {number}')}")
            browser = world.open("/gateway")
            letters = ".letters li"
            browser.until("three letters", lambda: len(browser.all(letters)) == 3)
            assert "422" in browser.text(letters)
            browser.click(f"{letters} summary")
            browser.shows('"text"', ".letters pre")
            browser.click(f"{letters} .button.danger")
            browser.until("two letters", lambda: len(browser.all(letters)) == 2)
            isRefusing["now"] = False
            browser.click(f"{letters} .button:not(.danger)")
            browser.until("one letter", lambda: len(browser.all(letters)) == 1)
            browser.click("#dead-letters > .row .button.danger")
            browser.click("dialog .button.danger")
            browser.until("none", lambda: not browser.script("return document.querySelector('#dead-letters').checkVisibility()"))
        finally:
            world.gateway.ask("POST", f"/v1/upstreams/remove?upstream={name}")


@test
def settings_are_changed_with_a_warning(world):
    browser = world.open("/gateway")
    setting = '[data-setting="{}"] .field'.format
    button = '[data-setting="{}"] .button'.format
    before = world.gateway.ask("GET", "/v1/radio")["settings"]
    try:
        field = browser.find(setting("name"))
        assert field.get_attribute("value") == before["name"]
        field.clear()
        browser.type(setting("name"), "Hilltop")
        browser.click(button("name"))
        browser.until("the name", lambda: world.gateway.ask("GET", "/v1/radio")["settings"]["name"] == "Hilltop")
        browser.shows("Saved.", '[data-setting="name"]')
        browser.shows("Hilltop", ".state-name")
        field = browser.find(setting("power"))
        field.clear()
        browser.type(setting("power"), "14")
        browser.click(button("power"))
        browser.until("the power", lambda: world.gateway.ask("GET", "/v1/radio")["settings"]["power"] == 14)
        # A preset can be changed only after reading its meaning.
        browser.script("const field = document.querySelector(arguments[0]); field.value = 'Hungary'", setting("preset"))
        browser.click(button("preset"))
        browser.shows("The radio then hears only nodes with the same settings", "dialog")
        browser.shows("SF7", "dialog")
        browser.keys(Keys.ESCAPE)
        browser.until("no dialog", lambda: not browser.all("dialog"))
        assert world.gateway.ask("GET", "/v1/radio")["settings"]["sf"] == before["sf"]
        browser.click(button("preset"))
        browser.click("dialog .button.danger")
        browser.until("the preset", lambda: world.gateway.ask("GET", "/v1/radio")["settings"]["sf"] == 7)
        # The documents.
        browser.script("const field = document.querySelector(arguments[0]); field.value = 'debug'", setting("log_level"))
        browser.click(button("log_level"))
        browser.until("the document", lambda: [one["value"] for one in world.gateway.ask("GET", "/v1/documents?prefix=settings/")["documents"] if one["value"] is not None] == ["debug"])
        # A backup is not handed out.
        browser.shows("meshpost backup FILE", ".settings")
        assert browser.script("return fetch('/v1/backup').then((one) => one.status)") == 403
    finally:
        world.gateway.ask("POST", "/v1/radio/set", {"name": before["name"], "power": before["power"], "preset": "EU/UK (Narrow)"})
        world.gateway.ask("POST", "/v1/documents", {"key": "settings/log_level"})


@test
def settings_that_others_change_are_shown(world):
    before = world.gateway.ask("GET", "/v1/radio")["settings"]
    browser = world.open("/gateway")
    value = lambda name: browser.script("return document.querySelector(`[data-setting='${arguments[0]}'] .field`).value", name)
    browser.until("the settings", lambda: value("name") == before["name"] and value("log_level") == "")
    browser.until("a line", lambda: browser.script("return import('/pages/stores/live.js').then(({ live }) => live.isLinked)"))
    # What somebody is about to change stays.
    browser.script("document.querySelector('[data-setting=position] .field').value = '47.5, 8.5'")
    try:
        world.gateway.ask("POST", "/v1/documents", {"key": "settings/log_level", "value": "debug"})
        browser.until("the document", lambda: value("log_level") == "debug")
        world.gateway.ask("POST", "/v1/radio/set", {"name": "Elsewhere"})
        browser.until("the name", lambda: value("name") == "Elsewhere")
        assert value("position") == "47.5, 8.5"
    finally:
        world.gateway.ask("POST", "/v1/radio/set", {"name": before["name"]})
        world.gateway.ask("POST", "/v1/documents", {"key": "settings/log_level"})


@test
def alerts_are_shown_and_acknowledged(world):
    """The rows are made in the browser, in place of the gateway's; a gateway without alerts shows none."""
    browser = world.open("/conversations")
    browser.script("""
      window.real = window.fetch; window.acknowledged = [];
      const alerts = [{ id: 2, rule: "battery_low", text: "the battery of <b>Ridge</b> is low: 3.31 V", began_at: Date.now() - 60000 },
        { id: 1, rule: "radio_lost", text: "the radio was away", began_at: Date.now() - 7200000, ended_at: Date.now() - 3600000 }];
      window.fetch = (path, options) => {
        const { pathname } = new URL(path, location);
        if (window.fails && pathname.startsWith("/v1/alerts")) return Promise.resolve(new Response("{}", { status: 500 }));
        if (pathname === "/v1/alerts") return Promise.resolve(new Response(JSON.stringify({ alerts })));
        if (pathname !== "/v1/alerts/acknowledge") return window.real(path, options);
        const { id } = JSON.parse(options.body); alerts.find((one) => one.id === id).acknowledged_at = Date.now(); window.acknowledged.push(id);
        return Promise.resolve(new Response("{}"));
      };""")
    browser.click('[data-tab="gateway"]')
    browser.shows("the battery of <b>Ridge</b> is low", ".alerts")
    browser.shows("1 open", ".alerts")
    browser.script("window.fails = true")
    browser.click('[data-alert="2"] .button')
    browser.find(".toast")
    browser.until("to be able to try again", lambda: browser.script("""return !document.querySelector('[data-alert="2"] .button').hasAttribute("aria-disabled")"""))
    browser.script("window.fails = false; document.querySelector('.toast').remove()")
    browser.click('[data-alert="2"] .button')
    browser.until("it to be acknowledged", lambda: browser.script("return window.acknowledged.length") == 1 and not browser.all('[data-alert="2"] .button'))
    browser.shows("1 is over", ".alerts")


# Each message has come by three hops, of which two nodes have the last one's hash.
WAYS = """
window.real = window.fetch;
window.fetch = async (path, ...more) => {
  const answer = await window.real(path, ...more);
  if (typeof path !== "string" || !/[?&]ways=1/.test(path)) return answer;
  const rows = (await answer.text()).trim().split("\\n").filter(Boolean).map((line) => JSON.parse(line));
  const told = { ways: [{ at: Date.now(), path: ["aa", "bb", "cc"], snr: 5, rssi: -90 }], ways_more: 2, way_nodes: WAY_NODES };
  return new Response(rows.map((row) => JSON.stringify({ ...row, ...told })).join("\\n"), { status: 200, headers: answer.headers });
};
"""


@test
def ways_of_a_message_are_drawn_on_the_map(world):
    placed = [one for one in world.gateway.ask("GET", "/v1/contacts") if one.get("lat")][:4]
    candidates = [{"hash": name, "nodes": [{"key": one["key"][:12], "name": one["name"]} for one in some]} for name, some in (("aa", placed[:1]), ("bb", placed[1:2]), ("cc", placed[2:]))]
    browser = world.browser()
    browser.command("Page.addScriptToEvaluateOnNewDocument", source=WAYS.replace("WAY_NODES", json.dumps(candidates)))
    text = fresh("by many ways")
    world.gateway.say(f"chan r1 0 {text}")
    browser.go(f"{world.host.base}/conversations/{PUBLIC}")
    browser.shows(text, ".chat-scroll")
    browser.script("""const row = [...document.querySelectorAll("article.message")].find((one) => one.textContent.includes(arguments[0]));
      row.querySelector("button[aria-label='Details of the message']").click()""", text)
    browser.shows("and 2 more that are not kept", ".details .ways")
    assert browser.text(".details .ways").count("?") == 3, "no name is a fact"
    message = browser.path()
    # By keyboard to the map, and back.
    browser.find(".details .ways a").send_keys(Keys.ENTER)
    browser.shows("1 full line", ".map-ways")
    browser.shows("dashed", ".map-ways")
    browser.shows(text, ".map-ways")
    assert "message=" in browser.path()
    drawn = browser.script("""return import("/pages/parts/ways.js").then(({ lines }) => {
      const places = { a: { lat: 1, lon: 1 }, b: { lat: 2, lon: 2 }, c: { lat: 3, lon: 3 } };
      const told = { ways: [{ path: ["1", "2"] }, { path: ["1", "3", "2"] }, { path: ["1"], route: "direct" }, { path: ["1"], hops: 9 }],
        way_nodes: [{ hash: "1", nodes: [{ key: "a" }] }, { hash: "2", nodes: [{ key: "b" }, { key: "c" }] }] };
      const found = lines(told, { placeOf: (key) => places[key] ?? null, begin: null, end: { lat: 9, lon: 9 } });
      return [found.lines.map((one) => [one.from.lat, one.to.lat, one.isSure]), found.unplaced]; })""")
    assert drawn == [[[1, 2, False], [1, 3, False], [2, 9, False], [3, 9, False]], 1], drawn
    drawn = browser.script("""return Promise.all(["ways", "times"].map((name) => import(`/pages/parts/${name}.js`))).then(([{ lines, wayList }, { when }]) => {
      const told = { ways: [{ path: ["1"], guess: true }, { path: ["1"] }], way_nodes: [{ hash: "1", nodes: [{ key: "a", name: "A" }] }] };
      const options = { placeOf: () => ({ lat: 1, lon: 1 }), begin: null, end: { lat: 9, lon: 9 } };
      const one = lines(told, options).lines.concat(lines({ ...told, ways: [told.ways[1]] }, options).lines).map((one) => one.isSure);
      const other = lines({ ...told, ways: [told.ways[1]] }, { ...options, isOnly: () => false }).lines.map((one) => one.isSure);
      const odd = wayList({ ways: [{ at: 9e15, path: ["a0"], route: "direct" }, { at: NaN, path: [] }] }).textContent;
      return [one, other, odd, when(1e300).textContent]; })""")
    assert drawn[:2] == [[False, True], [False]] and drawn[3] == "–", drawn
    assert "on its way to a0" in drawn[2] and "NaN" not in drawn[2], drawn
    browser.driver.refresh()
    browser.shows("1 full line", ".map-ways")
    browser.find(".map-canvas").send_keys(Keys.ESCAPE)
    browser.until("the map alone", lambda: not browser.all(".map-ways") and "message=" not in browser.path() or browser.path() == message)


@test
def tiles_come_from_the_server_that_was_named_and_from_no_other(world):
    if not world.host.command:
        return
    asked = []

    def give(method, path, headers, body):
        asked.append((path, dict(headers)))
        return 200, {"Content-Type": "image/png", "Cache-Control": "max-age=600"}, POINT

    # Cookies do not tell ports apart: a server of tiles under our own name gets none all the same.
    with rigs.Answering(give) as server, rigs.host_of(world, "--tiles", f"'{server.base}/t/{{z}}/{{x}}/{{y}}.png'") as site:
        browser = site.open("/map")
        browser.until("tiles to be asked for", lambda: len(asked) > 3)
        assert not [headers for _, headers in asked if "Cookie" in headers or "Referer" in headers]
        browser.until("the grid, as it may not be shown", lambda: browser.all(".map-bar"))
    asked.clear()
    with rigs.Answering(give) as server, rigs.host_of(world, "--tiles", f"'{server.base.replace('127.0.0.1', 'localhost')}/t/{{z}}/{{x}}/{{y}}.png'", "--tiles-credit", "'© Somebody'") as site:
        browser = site.open("/map")
        browser.until("tiles", lambda: len(asked) > 3)
        browser.shows("© Somebody", ".map-credit")
        for path, headers in asked:
            zoom, x, y = map(int, re.fullmatch(r"/t/(\d+)/(\d+)/(\d+)\.png", path).groups())
            assert 0 <= x < 2 ** zoom and 0 <= y < 2 ** zoom
            assert not {name.lower() for name in headers} & {"referer", "origin", "cookie"}, headers
        assert browser.script("return fetch(arguments[0]).then(() => 'fetched', () => 'refused')", server.base + "/t/0/0/0.png") == "refused", "images alone"
        browser.script("window.refused = []")
        # Nodes lie where they lie on the tiles: the middle of the map is in the tile that it says.
        browser.go(site.host.base + "/map?at=47.37690,8.54170,20")
        browser.until("the tile of Zurich", lambda: any(re.match(r"/t/12/2145/1434\.", path) for path, _ in asked) or any(re.match(r"/t/13/429[01]/286[89]\.", path) for path, _ in asked))
    # Without one there is the grid, and the policy names no server.
    browser = world.open("/map")
    browser.shows("with a position", ".view-head")
    assert not browser.all(".map-credit:not(:empty)")
    assert browser.script("return fetch('/').then((one) => one.headers.get('content-security-policy'))").count("img-src 'self' data:;") == 1


def pseudo(text):
    """As if it were written from right to left, and longer: Hebrew letters for Latin ones; values stay."""
    letters = "אבגדהוזחטיכלמנסעפצקרשתאבגד"

    def other(part):
        return "".join(letters[ord(one.lower()) - 97] if one.isascii() and one.isalpha() else one for one in part) + ("אא" if len(part) > 8 else "")
    return "".join(part if part.startswith("{") or part.startswith("`") else other(part) for part in re.split(r"(\{\w+\}|`[^`]*`)", text))


@test
def right_to_left(world):
    """A language from right to left: nothing is too wide, and arrows along the line are mirrored."""
    if not world.host.command:
        return
    folder = pathlib.Path(tempfile.mkdtemp(prefix="meshpost-pages-"))
    try:
        pages = folder / "pages"
        shutil.copytree(rigs.CHECKOUT / "Sources/Pages", pages)
        (pages / "languages/index.js").write_text('export default { en: "English", xr: "אבגד" };\n')
        browser = world.open("/conversations")
        for end in ("-gateway", "-more", "-views", "-alerts"):
            words = browser.script("return import(`/pages/languages/en${arguments[0]}.js`).then((one) => one.default)", end)
            table = words["words"] if end == "-gateway" else words
            table = {key: {form: pseudo(one) for form, one in value.items()} if isinstance(value, dict) else pseudo(value) for key, value in table.items()}
            whole = {"name": "xr", "direction": "rtl", "isWhole": True, "words": table} if end == "-gateway" else table
            (pages / f"languages/xr{end}.js").write_text(f"export default {json.dumps(whole)};\n")
        key = r1(world)["key"]
        with rigs.host_of(world, "--pages", str(pages)) as site:
            for options in ({}, {"width": 390, "height": 844, "touch": True}, {"width": 320, "height": 640, "touch": True}):
                browser = site.open("/conversations", **options)
                browser.script("localStorage.setItem('meshpost.language', 'xr')")
                for path in (*VIEWS, f"/nodes/{key}", f"/conversations/{PUBLIC}?details=1"):
                    browser.go(site.host.base + path)
                    browser.until("the view's content", lambda: browser.all("a.conversation, .node-link, .card .facts, article, .map-canvas, .air-row"))
                    browser.until("the rest", lambda: not browser.all(".shape"))
                    assert browser.script("return document.documentElement.dir") == "rtl"
                    where = f"{path} at {options.get('width', 1440)}"
                    wide = browser.script("return document.documentElement.scrollWidth - innerWidth")
                    assert wide <= 0, f"{where} is {wide} pixels too wide"
                    out = browser.script("""return [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility({ visibilityProperty: true }) && !one.closest(".unseen, .skip, svg, dialog, .filters .chips, .map-legend"))
                      .map((one) => [one, one.getBoundingClientRect()]).filter(([one, box]) => box.width && (box.left < -1 || box.right > innerWidth + 1) && !one.closest(".name, .line, .written, .message-time"))
                      .map(([one, box]) => `${one.tagName}.${one.className} ${Math.round(box.left)}..${Math.round(box.right)}`).slice(0, 5)""")
                    assert not out, f"{where}: {out}"
                if not options:
                    # The list is on the right, details on the left.
                    assert browser.script("return document.querySelector('.list').getBoundingClientRect().left > document.querySelector('.main').getBoundingClientRect().left")
                    assert browser.script("return document.querySelector('.details').getBoundingClientRect().left < 2")
                icons = lambda: browser.script("""const seen = {}; for (const one of document.querySelectorAll(".icon")) {
                    if (!one.checkVisibility()) continue;
                    const name = one.classList.contains("along") ? "along" : "still"; (seen[name] ??= new Set()).add(getComputedStyle(one).transform); }
                  return Object.fromEntries(Object.entries(seen).map(([name, all]) => [name, [...all]]))""")
                # They are drawn together with their neighbours.
                turned = browser.until("an icon that points along", lambda: (found := icons()).get("along") and found)
                assert turned.get("along") == ["matrix(-1, 0, 0, 1, 0, 0)"], turned
                assert turned.get("still", ["none"]) == ["none"], turned
    finally:
        shutil.rmtree(folder, ignore_errors=True)
