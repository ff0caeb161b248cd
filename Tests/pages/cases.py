"""The tests in the browser. Each waits for an element, never for a fixed time."""
import gzip
import json
import pathlib
import re
import secrets
import threading
import time

from browser import Stuck
from run import test

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent.parent
PUBLIC = "channel:1155f1870f917786"
VIEWS = ("/conversations", f"/conversations/{PUBLIC}", "/nodes", "/map", "/air", "/gateway")
SHOWN = "a.conversation, .node-link, .card .facts, article"
# The most that the first view may have, as it is and as it goes over the line.
MOST_BYTES = 100_000


def fresh(words="said"):
    return f"{words} {secrets.token_hex(4)}"


def write(browser, text):
    field = browser.find(".composer-field")
    field.click()
    field.send_keys(text)
    browser.click(".composer .send")


def chat(world, id=PUBLIC, **options):
    """Opens a chat at its end, not at the unread messages."""
    browser = world.open(f"/conversations/{id}", **options)
    browser.find(".composer-field")
    browser.until("its messages", lambda: not browser.all(".chat-shapes"))
    to_the_end(browser)
    return browser


def to_the_end(browser):
    browser.until("the end of the chat", lambda: browser.script("""
      const jump = document.querySelector(".jump"); if (jump.hidden) return true; jump.click(); return jump.hidden"""))


def r1(world):
    return next(one for one in world.gateway.ask("GET", "/v1/contacts") if one["name"] == "r1")


@test
def catalogues_are_whole(world):
    """Each language has the same keys as English, with the same placeholders, and all keys that the pages use."""
    folder = CHECKOUT / "Sources/Pages"
    browser = world.open("/conversations")
    words = {}
    both = """return Promise.all(["-gateway", "-more", "-views", "-alerts", "-hub", "-hub-views"].map((end) => import(`/pages/languages/${arguments[0]}${end}.js`)))
      .then((all) => Object.assign({}, ...all.map((one) => one.default.words ?? one.default)))"""
    for name in browser.script("return import('/pages/languages/index.js').then((module) => Object.keys(module.default))"):
        words[name] = browser.script(both, name)
    for name, own in words.items():
        assert own.keys() == words["en"].keys(), f"{name}: {own.keys() ^ words['en'].keys()}"
        for key, value in own.items():
            forms = value if isinstance(value, dict) else {"other": value}
            other = words["en"][key]
            wanted = set(re.findall(r"\{\w+\}", other["other"] if isinstance(other, dict) else other))
            for number, form in forms.items():
                named = set(re.findall(r"\{\w+\}", form))
                # One may be said without a figure.
                assert named <= wanted if number == "one" else named == wanted, f"{name}: {key}"
    asked = set()
    for file in folder.rglob("*.js"):
        asked |= set(re.findall(r'\bt[n]?\("([\w.-]+)"', file.read_text()))
    assert asked <= words["en"].keys(), asked - words["en"].keys()


# Where one literal of a source ends, or one of its sentences.
LITERALS = r'"|\\\(|\)|(?<=[.:;]) |\n'


@test
def sentences_of_alerts_are_those_of_the_programs(world):
    """Each rule has a form, and what is fixed in a form are whole literals of the programs' sources: words that change there change here."""
    rules = re.findall(r'case (\w+)(?: = "(\w+)")?$', (CHECKOUT / "Sources/Shared/Alerts/AlertRule.swift").read_text(), re.M)
    forms = world.open("/conversations").script("return import('/pages/languages/en-alerts.js').then((one) => one.default)")
    missing = {name or case for case, name in rules} - {name.split(".")[0] for name in forms}
    assert not missing, f"rules without a form: {missing}"
    fixed = {words: name for name, form in forms.items() for words in re.split(r"\{\w+\}|" + LITERALS, form)}
    everything, said = "\n".join(fixed), set()
    for file in (file for room in ("Gateway", "Hub", "Shared/Alerts") for file in (CHECKOUT / "Sources" / room).rglob("*.swift")):
        literals = set(re.split(LITERALS, re.sub(r'"\s*\+ "', "", file.read_text()).replace('\\"', '"')))
        if any(len(words) >= 16 and words in everything for words in literals):
            said |= literals
    for words, name in fixed.items():
        # One may be made of several, as where a plural has another ending.
        ends = {0}
        for at in range(len(words)):
            if at in ends:
                ends |= {end for end in range(at + 1, len(words) + 1) if words[at:end] in said or words[at:end].isdigit()}
        assert len(words) in ends, f"{name}: the programs do not say {words!r}"


@test
def first_view_is_small(world):
    world.browser()  # signs in; the one that is measured has been nowhere yet
    browser = world.browser()
    browser.command("Network.enable")
    browser.command("Network.setCacheDisabled", cacheDisabled=True)
    browser.command("Network.emulateNetworkConditions", offline=False, latency=100, downloadThroughput=50_000, uploadThroughput=50_000)
    browser.go(f"{world.host.base}/conversations")
    browser.until("conversations", lambda: browser.all("a.conversation"), 60)
    times = browser.script("""return performance.getEntriesByType("paint").filter((one) => one.name.includes("content")).map((one) => ["first words", one.startTime])
      .concat([["list", performance.now()]])""")
    # On a slow machine, what comes after it may have begun as well.
    entries = browser.script("""const all = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
      const later = all.find((one) => one.name.endsWith("/shell/later.js"))?.startTime ?? Infinity;
      return all.filter((one) => one.startTime < later && !one.name.includes("/v1/")).map((one) => [new URL(one.name).pathname, one.decodedBodySize, one.encodedBodySize])""")
    entries = list({path: (path, size, sent) for path, size, sent in entries}.values())
    total = sum(size for _, size, _ in entries)
    sent = sum(sent for _, _, sent in entries)
    print(f"        first view: {len(entries)} files, {total} bytes, {sent} over the line; at 50 KB/s and 100 ms: " + ", ".join(f"{name} {time:.0f} ms" for name, time in times))
    assert total > 50_000, "not all of it was counted"
    assert not [path for path, _, _ in entries if "/hub" in path or "-hub" in path], "files of the hub's pages"
    assert total < MOST_BYTES, sorted(entries, key=lambda one: -one[1])


@test
def a_deep_link_is_small_as_the_package_has_it(world):
    """The size over the network: each file has a .gz."""
    world.browser()
    browser = world.browser()
    browser.command("Network.enable")
    browser.command("Network.setCacheDisabled", cacheDisabled=True)
    browser.go(f"{world.host.base}/conversations/{PUBLIC}")
    browser.find(".composer-field")
    browser.until("its messages", lambda: not browser.all(".chat-shapes"))
    entries = browser.script("""return performance.getEntriesByType("resource").map((one) => [new URL(one.name).pathname, one.decodedBodySize])""")
    folder = CHECKOUT / "Sources/Pages"
    sizes = {path: len(gzip.compress((folder / path.removeprefix("/pages/")).read_bytes(), 9)) for path, _ in entries if path.startswith("/pages/")}
    data = sum(size for path, size in entries if path.startswith("/v1/") and path != "/v1/live")
    print(f"        a chat: {len(sizes)} files, {sum(sizes.values())} bytes packed, {data} bytes of data")
    assert len(sizes) > 25, "not all of it was counted"
    assert sum(sizes.values()) + data < MOST_BYTES, sizes


@test
def a_message_arrives_in_another_browser_with_its_marks(world):
    one, other = chat(world), chat(world)
    text = fresh("from one browser to another")
    one.find(".composer-field")
    other.find(".composer-field")
    write(one, text)
    for browser in (one, other):
        browser.shows(text, ".chat-scroll")
        browser.until("its mark", lambda: browser.script(
            "return [...document.querySelectorAll('article.own')].filter((row) => row.innerText.includes(arguments[0])).some((row) => row.querySelector('.mark.sent'))", text))
    assert len(world.gateway.texts(text)) == 1
    # The mark opens to the rest.
    one.script("[...document.querySelectorAll('article.own')].find((row) => row.innerText.includes(arguments[0])).querySelector('.mark').click()", text)
    one.shows("Attempts", ".details")
    one.shows("Sent by", ".details")
    assert "message=" in one.path()
    # A message from the mesh arrives at both.
    answer = fresh("from the mesh")
    world.gateway.say(f"chan r1 0 {answer}")
    for browser in (one, other):
        browser.shows(answer, ".chat-scroll")


@test
def a_direct_message_is_delivered(world):
    key = r1(world)["key"]
    browser = world.open(f"/nodes/{key}")
    browser.click(".details a.button.primary")
    browser.until("the chat", lambda: browser.path() == f"/conversations/node:{key[:12]}")
    text = fresh("to one node")
    write(browser, text)
    browser.until("two ticks", lambda: browser.script(
        "return [...document.querySelectorAll('article.own')].filter((row) => row.innerText.includes(arguments[0])).some((row) => row.querySelector('.mark.delivered'))", text))


@test
def unread_mentions_and_reading_on(world):
    browser = world.open("/nodes")
    browser.until("conversations", lambda: browser.all("a.conversation"))
    text = fresh("look at this @[r0]")
    world.gateway.say(f"chan r2 0 {text}")
    browser.until("the mention", lambda: browser.all(f'a.conversation[data-id="{PUBLIC}"] .mentioned'))
    other = world.open("/nodes")
    other.until("the mention in the other", lambda: other.all(f'a.conversation[data-id="{PUBLIC}"] .mentioned'))
    browser.click(f'a.conversation[data-id="{PUBLIC}"]')
    browser.shows("new", ".new-line")
    browser.until("the mention marked", lambda: browser.all(".message.for-us .mention.own"))
    # Who answers has read it.
    write(browser, fresh("an answer"))
    browser.until("no such line", lambda: not browser.all(".new-line"))
    for one in (browser, other):
        one.until("nothing unread", lambda: not one.all(f'a.conversation[data-id="{PUBLIC}"] .badge'))


@test
def reactions_are_shown_and_sent(world):
    browser = chat(world)
    text = fresh("react to this")
    world.gateway.say(f"chan r1 0 {text}")
    browser.shows(text, ".chat-scroll")
    cursor = browser.script("return [...document.querySelectorAll('article')].find((row) => row.innerText.includes(arguments[0])).dataset.cursor", text)
    browser.script("document.querySelector(`article[data-cursor=\"${arguments[0]}\"] .message-tools button`).click()", cursor)
    browser.click("dialog .sign")
    browser.until("the reaction", lambda: browser.all(f'article[data-cursor="{cursor}"] .reaction.ours'))
    assert "👍" in browser.text(f'article[data-cursor="{cursor}"]')


# Answers to second reads, after the beginning of the stream, are held back until `release()`, as on a slow line.
HOLD = """
const real = window.fetch;
const times = {};
window.held = {};
window.asked = [];
window.fetch = async (path, ...more) => {
  window.asked.push(`${Math.round(performance.now())} ${path}`);
  const answer = await real(path, ...more);
  const name = /^\\/v1\\/(messages|conversations)\\b/.exec(path)?.[1];
  if (name && (times[name] = (times[name] ?? 0) + 1) === 2) await new Promise((resolve) => { window.held[name] = resolve; });
  return answer;
};
window.release = () => { for (const one of Object.values(window.held)) one(); };
"""


@test
def what_the_stream_tells_during_a_reading_stays(world):
    browser = world.browser()
    browser.command("Page.addScriptToEvaluateOnNewDocument", source=HOLD)
    browser.go(f"{world.host.base}/conversations/{PUBLIC}")
    browser.find(".composer-field")
    try:
        browser.until("the second readings", lambda: browser.script("return Object.keys(window.held).length") == 2)
    except Stuck as trouble:
        raise Stuck(f"{trouble}; asked: {browser.script('return window.asked')}") from None
    browser.script("return import('/pages/stores/live.js').then(({ live }) => { window.told = []; live.on('message', (row) => told.push(row.text)); })")
    text = fresh("while it is read")
    world.gateway.say(f"chan r1 0 {text}")
    browser.until("the message by the stream", lambda: text in browser.script("return window.told"))
    browser.script("window.release()")
    browser.shows(text, ".chat-scroll")
    # Both answers are older than that message; the page has handled them when a later one is there.
    later = fresh("and after")
    world.gateway.say(f"chan r1 0 {later}")
    for place in (".chat-scroll", f'a.conversation[data-id="{PUBLIC}"]'):
        browser.shows(later, place)
    assert text in browser.text(".chat-scroll")


# The first reading is from before the messages were sent, and the stream begins after that.
BEFORE = """
const real = window.fetch;
let isFirst = true;
window.fetch = async (path, ...more) => {
  const answer = await real(path, ...more);
  if (!isFirst || !String(path).startsWith("/v1/messages")) return answer;
  isFirst = false;
  return new Response((await answer.text()).replace(/"state": ?"sent"/g, '"state":"sending"'));
};
"""


@test
def what_became_of_a_message_before_the_stream_is_shown(world):
    first = chat(world)
    text = fresh("sent meanwhile")
    write(first, text)
    browser = world.browser()
    state = "const row = [...document.querySelectorAll('article.own')].find((row) => row.innerText.includes(arguments[0])); return row?.querySelector('.mark')?.className"
    first.until("it to be sent", lambda: first.script(state, text) == "mark sent")
    browser.command("Page.addScriptToEvaluateOnNewDocument", source=BEFORE)
    browser.go(f"{world.host.base}/conversations/{PUBLIC}")
    browser.until("it as it was", lambda: browser.script(state, text) in ("mark sending", "mark sent"))
    browser.until("it as it is", lambda: browser.script(state, text) == "mark sent")


@test
def long_texts_are_counted_and_split(world):
    browser = chat(world)
    browser.shows("0 of 156 B", ".composer")
    mark = secrets.token_hex(4)
    text = " ".join([mark] + ["word"] * 60)
    browser.script("const field = document.querySelector('.composer-field'); field.value = arguments[0]; field.dispatchEvent(new Event('input'))", text)
    browser.shows("goes in 3 parts", ".composer")
    browser.click(".composer .send")
    browser.shows(f"[1/3] {mark}", ".chat-scroll")
    browser.shows("[3/3] ", ".chat-scroll")


@test
def reload_back_and_deep_links(world):
    key = r1(world)["key"]
    browser = chat(world)
    browser.find(".composer-field")
    browser.click('[data-tab="nodes"]')
    browser.find(".table")
    browser.type(".filters .field", "r1")
    browser.until("the filter in the address", lambda: "find=r1" in browser.path())
    browser.click(f'.node-row[data-key="{key}"] a')
    browser.shows(key, ".details")
    path = browser.path()
    assert path.startswith(f"/nodes/{key}") and "find=r1" in path
    browser.driver.refresh()
    browser.shows(key, ".details")
    assert browser.path() == path and browser.find(".filters .field").get_attribute("value") == "r1"
    browser.driver.back()
    browser.driver.back()
    browser.find(".composer-field")
    assert browser.path() == f"/conversations/{PUBLIC}"
    browser.go(f"{world.host.base}/gateway")
    browser.shows("Doctor")


@test
def ages_go_by_the_gateways_clock(world):
    browser = world.browser()
    # As on a machine whose clock is nine hours ahead.
    browser.command("Page.addScriptToEvaluateOnNewDocument", source="""window.real = Date.now.bind(Date); window.ahead = 9 * 3600000; Date.now = () => window.real() + window.ahead;""")
    browser.go(f"{world.host.base}/conversations")
    look = """return Promise.all([import('/pages/stores/live.js'), import('/pages/parts/times.js')]).then(([{ live }, { ago, now }]) =>
      [live.isLinked, ago(window.real() + arguments[0] - 600000), Math.abs(now() - window.real() - arguments[0])])"""
    browser.until("a line", lambda: browser.script(look, 0)[0])
    _, words, error = browser.script(look, 0)
    assert "10 min" in words and error < 60_000, (words, error)
    # Asleep for an hour, which only that clock shows; then the stream, of which nothing was heard for so long, begins anew, and its host tells the time.
    _, words, error = browser.script("window.ahead += 3600000;" + look, 3_600_000)
    assert "10 min" in words and error < 60_000, (words, error)
    browser.until("the host's time", lambda: browser.script(look, 0)[2] < 60_000)


@test
def charts_say_what_they_leave_out(world):
    browser = world.open("/nodes")
    browser.script("""const real = window.fetch; const rows = Array.from({ length: 500 }, (_, index) => JSON.stringify({ at: 1700000000000 + index, kind: "node_clock", body: { offset_s: index } }));
      window.fetch = (path, ...more) => (path.startsWith("/v1/readings?node=") ? Promise.resolve(new Response(rows.join("\\n"))) : real(path, ...more));""")
    browser.press(".node-link", "r1")
    browser.shows("Only the newest 500 are drawn.", ".details .readings")


@test
def charts_have_times_and_gaps(world):
    browser = world.open("/nodes")
    # Each minute for half an hour, then a day of nothing, then once.
    drawn, ends = browser.script("""return import("/pages/parts/chart.js").then(({ chart }) => {
      const begin = Date.now() - 90_000_000; const points = Array.from({ length: 30 }, (_, index) => ({ at: begin + index * 60_000, value: index }));
      const figure = chart("x", [...points, { at: begin + 88_000_000, value: 5 }]);
      const alone = chart("x", points.slice(0, 1));
      return [[figure, alone].map((one) => one.querySelector(".chart-path").getAttribute("d")), [figure, alone].map((one) => one.querySelectorAll(".chart-ends time").length)]; })""")
    assert drawn[0].count("M") == 2 and drawn[1].count("M") == 1 and "NaN" not in "".join(drawn), drawn
    assert ends == [2, 1]


@test
def what_came_late_says_so(world):
    browser = chat(world)
    late = "return import('/pages/views/marks.js').then(({ signal }) => signal({ hops: 2, age_s: arguments[0] }).textContent)"
    assert browser.script(late, 172_800) == "2 hops · 2 d 0 h late"
    assert browser.script(late, 20) == "2 hops"


@test
def ways_that_could_not_be_read_are_read_again(world):
    text = fresh("whose ways are read again")
    world.gateway.say(f"chan r3 0 {text}")
    browser = chat(world)
    browser.shows(text, ".chat-scroll")
    cursor = world.gateway.ask("GET", "/v1/messages?direction=both&limit=1")[0]["cursor"]
    browser.script("""const real = window.fetch; window.fails = true;
      window.fetch = (path, ...more) => (window.fails && path.includes("ways=1") ? Promise.resolve(new Response("{}", { status: 500 })) : real(path, ...more));
      import("/pages/shell/route.js").then(({ route }) => route.go(`/map?message=${arguments[0]}`));""".replace("arguments[0]", cursor))
    browser.shows("(500)", ".map-ways")
    browser.script("window.fails = false; return import('/pages/stores/live.js').then(({ live }) => live.tell('linked'))")
    browser.until("its ways", lambda: browser.all(".map-ways") and "(500)" not in browser.text(".map-ways"))


# Each form with values, as a gateway may carry it, and what becomes of it: the same, in words of the other catalogue.
SENTENCES = """
return Promise.all(["parts/sentence", "languages/en-alerts", "languages/de-alerts"].map((name) => import(`/pages/${name}.js`))).then(([{ sentence }, { default: carried }, { default: own }]) => {
  const plain = (rule) => Object.keys(carried).findLast((name) => name.startsWith(`${rule}.`) && !/\\{(own|some)/.test(carried[name]));
  const made = (words, name, rule) => words[name].replace(/\\{(\\w+?)(\\d*)\\}/g, (_, kind, digit) => {
    if (kind === "own" || kind === "some") return made(words, plain(rule), rule);
    return { count: `4${digit}`, time: `5${digit || 0} min`, volts: words === own ? "3,31 V" : "3.310 V", why: words["why.silent"], what: words["what.node_noisy"] }[kind] ?? `<b>${kind}${digit}</b>`;
  });
  const say = (rule, text) => { const place = document.createElement("p"); place.append(...[sentence({ rule, text }, (id) => id)].flat()); return [text, place.textContent, place.querySelectorAll("b").length]; };
  return Object.keys(carried).filter((name) => !/^(why|what)\\./.test(name)).map((name) => {
    const rule = name.startsWith("any.") ? "gateway_conflict" : name.split(".")[0];
    return [name, ...say(rule, made(carried, name, rule)), made(own, name, rule)];
  }).concat(Object.keys(carried).filter((name) => /^why\\./.test(name)).map((name) => [name, ...say("hub_database", `the database of h is away: ${made(carried, name, "why")}`), `Die Datenbank von h fehlt: ${made(own, name, "why")}`]));
});"""


@test
def alerts_speak_the_readers_language(world):
    """Every form, with all of its values as text; one that no page knows stays in English, and no text takes long."""
    browser = world.open("/gateway", language="de")
    browser.find(".tabs")
    for name, carried, said, marks, wanted in browser.script(SENTENCES):
        assert said == wanted and not marks, f"{name}: {carried!r} became {said!r}, not {wanted!r}"
    name = "return import('/pages/parts/sentence.js').then(({ sentence }) => [sentence({ rule: 'gateway_silent', text: 'nothing has come from 0a1b for 2 hours' }, () => 'Ridge')].flat().map((one) => one.textContent ?? one).join(''))"
    assert browser.script(name) == "Von Ridge kam seit 2 h 0 min nichts"
    assert world.open("/gateway", language="en").script(name) == "nothing has come from Ridge for 2 hours"
    say = "return import('/pages/parts/sentence.js').then(({ sentence }) => [sentence({ rule: arguments[0], text: arguments[1] })].flat().map((one) => one.outerHTML ?? one).join(''))"
    assert browser.script(say, "radio_lost", "a newer <b>sentence</b>") == '<bdi lang="en">a newer &lt;b&gt;sentence&lt;/b&gt;</bdi>'
    assert 'lang="en"' in browser.script(say, "store_lost", "x. Further: y. Before that, : ; . Every upstream had all of it" * 60)


@test
def open_alerts_are_not_pushed_out_by_those_that_are_over(world):
    browser = world.open("/conversations")
    browser.script("""const real = window.fetch; const now = Date.now();
      const open = { id: 1, rule: "battery_low", text: "an old one that is open", began_at: now - 9e8 };
      const over = Array.from({ length: 100 }, (_, index) => ({ id: 200 - index, rule: "radio_lost", text: "away", began_at: now - index * 1000, ended_at: now }));
      window.fetch = (path, ...more) => (path.startsWith("/v1/alerts") ? Promise.resolve(new Response(JSON.stringify({ alerts: path.includes("state=open") ? [open] : over }))) : real(path, ...more));""")
    browser.click('[data-tab="gateway"]')
    browser.shows("an old one that is open", ".alerts")


@test
def a_read_mark_that_was_refused_is_set_with_the_line(world):
    browser = chat(world)
    browser.script("""const real = window.fetch; window.fails = true; window.marks = 0;
      window.fetch = (path, ...more) => {
        if (path !== "/v1/conversations/read") return real(path, ...more);
        window.marks += 1;
        return window.fails ? Promise.resolve(new Response("{}", { status: 500 })) : real(path, ...more);
      };""")
    text = fresh("read while the disk was full")
    world.gateway.say(f"chan r3 0 {text}")
    browser.shows(text, ".chat-scroll")
    browser.until("the mark to be refused", lambda: browser.script("return window.marks") > 0)
    browser.script("window.fails = false")
    unread = lambda: next(one for one in world.gateway.ask("GET", "/v1/conversations") if one["conversation"] == PUBLIC).get("unread")  # noqa: E731
    again = "return import('/pages/stores/live.js').then(({ live }) => live.tell('linked'))"
    browser.until("nothing unread", lambda: (browser.script(again), not unread())[1])


@test
def drafts_stay(world):
    browser = chat(world)
    text = fresh("not sent yet")
    browser.type(".composer-field", text)
    browser.driver.refresh()
    browser.until("the draft", lambda: browser.find(".composer-field").get_attribute("value") == text)
    browser.script("localStorage.clear()")


@test
def a_draft_is_the_same_in_each_tab(world):
    browser = chat(world)
    text = fresh("begun in one tab")
    browser.type(".composer-field", text)
    browser.script("document.activeElement.blur()")
    first = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    browser.go(f"{world.host.base}/conversations/{PUBLIC}")
    browser.until("the draft", lambda: browser.find(".composer-field").get_attribute("value") == text)
    browser.find(".composer-field").send_keys(" and ended in another")
    browser.click(".composer .send")
    browser.shows(f"{text} and ended in another", ".chat-scroll")
    browser.driver.close()
    browser.driver.switch_to.window(first)
    # It would be sent once more.
    browser.until("no draft", lambda: browser.find(".composer-field").get_attribute("value") == "")
    browser.until("the message", lambda: world.gateway.texts(f"{text} and ended in another"))


@test
def what_a_closed_tab_wrote_goes_out_from_another(world):
    browser = chat(world)
    browser.until("a line", lambda: browser.script("return import('/pages/stores/live.js').then(({ live }) => live.isLinked)"))
    text = fresh("from a closed tab")
    first = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    browser.go(f"{world.host.base}/pages/icon.svg")
    browser.script("localStorage.setItem('meshpost.outbox', JSON.stringify([{ id: arguments[0], gateway: '', conversation: arguments[1], text: arguments[2], split: false, at: Date.now() }]))",
        secrets.token_hex(16), PUBLIC, text)
    browser.driver.close()
    browser.driver.switch_to.window(first)
    browser.until("it at the gateway", lambda: world.gateway.texts(text))
    browser.until("nothing that waits", lambda: browser.script("return JSON.parse(localStorage.getItem('meshpost.outbox')).length === 0"))


@test
def a_reaction_that_nobody_answered_is_sent_again_under_its_id(world):
    browser = chat(world)
    text = fresh("react after a cut")
    world.gateway.say(f"chan r1 0 {text}")
    browser.shows(text, ".chat-scroll")
    # It reaches the gateway, and the answer is lost.
    browser.script("""const real = window.fetch; window.cuts = 1; window.ids = [];
      window.fetch = async (path, ...more) => {
        const answer = await real(path, ...more);
        if (path !== "/v1/react") return answer;
        window.ids.push(JSON.parse(more[0].body).id);
        window.cuts -= 1;
        if (window.cuts >= 0) throw new TypeError("cut");
        return answer;
      };""")
    row = "[...document.querySelectorAll('article')].find((row) => row.innerText.includes(arguments[0]))"
    for times in (1, 2):
        browser.script(f"{row}.querySelector('.message-tools button').click()", text)
        browser.click("dialog .sign")
        browser.until("an answer", lambda: len(browser.script("return window.ids")) == times)
        browser.until("the dialog closed", lambda: not browser.all("dialog"))
    first, second = browser.script("return window.ids")
    assert first == second


@test
def drafts_that_the_browser_has_no_room_for_are_told(world):
    browser = chat(world)
    browser.script("""const { setItem } = Storage.prototype; window.isFull = true;
      Storage.prototype.setItem = function (...values) { if (window.isFull) throw new DOMException("full", "QuotaExceededError"); return setItem.apply(this, values); };""")
    leaves = "return dispatchEvent(new Event('beforeunload', { cancelable: true }))"
    text = fresh("for this page alone")
    browser.type(".composer-field", text)
    browser.shows("no room to keep drafts", ".composer")
    assert not browser.script(leaves)
    # It stays in the page.
    browser.click(".tabs [data-tab=nodes]")
    browser.find(".node-link")
    browser.driver.back()
    browser.until("the draft", lambda: browser.find(".composer-field").get_attribute("value") == text)
    browser.script("window.isFull = false")
    browser.find(".composer-field").send_keys("!")
    browser.until("no such words", lambda: "no room" not in browser.text(".composer"))
    assert browser.script(leaves) and text in browser.script("return localStorage.getItem('meshpost.drafts')")
    browser.script("localStorage.clear()")


@test
def words_that_are_apart_are_found(world):
    first, second = secrets.token_hex(4), secrets.token_hex(4)
    world.gateway.say(f"chan r3 0 {first} stands far from {second}")
    browser = chat(world)
    browser.shows(second, ".chat-scroll")
    browser.type("#list-search", f"{second} {first}")
    browser.shows("stands far from", ".list-found")


@test
def a_list_that_was_refused_is_asked_for_again(world):
    # The gateway's data cannot be read for a while, and its stream goes on.
    refuse = """const real = window.fetch; window.fails = true;
      window.fetch = (path, ...more) => (window.fails && /^\\/v1\\/(conversations|messages|contacts|doctor|alerts|outbox)/.test(path) ? Promise.resolve(new Response("{}", { status: 500 })) : real(path, ...more));"""
    for path, place, what in (("/conversations", ".list-scroll", "a.conversation"), (f"/conversations/{PUBLIC}", ".chat-scroll", "article"), ("/nodes", ".table-scroll", ".node-link"),
                              ("/map", ".map-empty", ".map-row, .map-empty .empty:not([role])"), ("/gateway", ".card.alerts", ".findings")):
        for isByHand in (False, True):
            browser = world.browser()
            browser.command("Page.addScriptToEvaluateOnNewDocument", source=refuse)
            browser.go(world.host.base + path)
            browser.until(f"{path}: what is wrong", lambda: "500" in browser.text(f"{place} [role=alert]"))
            assert not browser.all(what), path
            # Told once, and not with each attempt.
            browser.script("window.told = document.querySelector(arguments[0]); return import('/pages/stores/live.js').then(({ live }) => live.tell('again'))", f"{place} [role=alert]")
            assert browser.script("return window.told.isConnected"), path
            browser.script("window.fails = false")
            if isByHand:
                browser.script("document.querySelector(arguments[0])?.click()", f"{place} [role=alert] button")
            browser.until(f"{path}: what it shows", lambda: browser.all(what) and not browser.all(f"{place} [role=alert]"))
            browser.close()
            world.browsers.remove(browser)


@test
def names_of_objects_are_no_views(world):
    # The second part of such an address names no conversation, and a view of a hub is none of a gateway.
    for path in ("/constructor", "/__proto__", "/toString/x", "/nothing/here", "/fleet/x"):
        browser = world.open(path)
        browser.until(f"{path}: conversations", lambda: browser.all("a.conversation"))
        browser.shows("Choose a conversation", ".main")


@test
def who_is_called_the_same_is_told_apart(world):
    browser = world.browser()
    browser.command("Page.addScriptToEvaluateOnNewDocument", source="""const real = window.fetch;
      const one = (digits, name) => JSON.stringify({ conversation: `node:${digits.repeat(6)}`, kind: "direct", name, key: digits.repeat(32), unread: 0, read: "0" });
      window.fetch = (path, ...more) => (path === "/v1/conversations" ? Promise.resolve(new Response([one("aa", "Ana"), one("bb", "ana\\u200b"), one("cc", "Jo\\u202e")].join("\\n"))) : real(path, ...more));""")
    browser.go(f"{world.host.base}/conversations/node:{'cc' * 6}")
    browser.until("three", lambda: len(browser.all("a.conversation")) == 3)
    # No name turns the words around it.
    browser.until("its name in the title", lambda: browser.script("return document.title").startswith("Jo –"))
    names = browser.script("return [...document.querySelectorAll('.conversation-name')].map((one) => one.textContent)")
    assert sorted(" ".join(name.split()[1:]) for name in names) == ["", "aaaaaa", "bbbbbb"], names
    # A colour is the key's, however much of it is told.
    assert browser.script("return import('/pages/parts/author.js').then(({ hue }) => ['aa'.repeat(6), 'aa'.repeat(32)].map(hue).every((one) => one === hue('aa'.repeat(4))))")


@test
def a_search_goes_on_after_a_failure(world):
    word = secrets.token_hex(6)
    world.gateway.say(f"chan r3 0 look for {word}")
    browser = chat(world)
    browser.shows(word, ".chat-scroll")
    browser.script("""const real = window.fetch; window.fails = true;
      window.fetch = (path, ...more) => (window.fails && path.includes("q=") ? Promise.resolve(new Response("{}", { status: 500 })) : real(path, ...more));""")
    browser.type("#list-search", word)
    browser.find(".list-found .hits-more .button")
    browser.script("window.fails = false")
    browser.click(".list-found .hits-more .button")
    browser.shows(word, ".list-found .hits")


@test
def search_within_and_across(world):
    word = "findable" + secrets.token_hex(3)
    world.gateway.say(f"chan r3 0 a {word} word")
    browser = chat(world)
    browser.shows(word, ".chat-scroll")
    browser.click('.chat-head [aria-label="Search in this conversation"]')
    browser.type(".chat-search .field", word)
    browser.shows(word, ".chat-search .hits")
    browser.click(".chat-search .hit")
    browser.until("its place", lambda: "at=" in browser.path())
    browser.type("#list-search", word)
    browser.shows(word, ".list-found")


@test
def what_is_written_while_cut_off_goes_out_once(world):
    if not world.host.command:
        return
    browser = chat(world)
    browser.find(".composer-field")
    browser.until("a line", lambda: browser.script("return import('/pages/stores/live.js').then(({live}) => live.isLinked)"))
    browser.until("what is kept", lambda: browser.script("return import('/pages/stores/known.js').then(({ all }) => all.has('/v1/conversations') && all.has('/session'))"))
    browser.until("the files of the service worker", lambda: browser.script("""
      const files = performance.getEntriesByType('resource').map(({name}) => name).filter((name) => name.startsWith(`${location.origin}/pages/`));
      // What was asked for before the worker was there is kept once it is asked for again.
      return Promise.all(['/', ...files].map((file) => caches.match(file).then((kept) => kept || fetch(file).then(() => false)))).then((found) => files.length > 0 && found.every(Boolean))"""))
    texts = [fresh("first while cut"), fresh("second while cut")]
    world.host.kill()
    browser.shows("No connection since", ".bar")
    for text in texts:
        write(browser, text)
        browser.shows(text, ".message.waiting")
    browser.shows("2 messages wait", ".bar")
    # The page opens without a connection: the service worker has it, and the typed text is still there.
    browser.driver.refresh()
    browser.shows("No connection. What was there at", ".bar")
    browser.shows("2 messages wait", ".bar")
    for text in texts:
        browser.shows(text, ".message.waiting")
    world.host.start()
    world.cookies = None
    # A restarted host knows no session, and the page finds that out by itself: its reload would stop another navigation. Waiting messages are kept over the new sign-in.
    browser.find(".signin-card")
    world.sign_in(browser)
    browser.go(f"{world.host.base}/conversations/{PUBLIC}")
    browser.find(".composer-field")
    for text in texts:
        browser.until(f"{text} sent", lambda: browser.script(
            "return [...document.querySelectorAll('article.own:not(.waiting)')].some((row) => row.innerText.includes(arguments[0]))", text))
    browser.until("nothing that waits", lambda: browser.script("return JSON.parse(localStorage.getItem('meshpost.outbox') ?? '[]').length === 0"))
    browser.driver.refresh()
    browser.shows(texts[1], ".chat-scroll")
    for text in texts:
        assert len(world.gateway.texts(text)) == 1, f"{text}: {len(world.gateway.texts(text))} times"


@test
def what_was_written_for_another_gateway_waits_for_it(world):
    browser = chat(world)
    browser.until("a line", lambda: browser.script("return import('/pages/stores/live.js').then(({live}) => live.isLinked)"))
    theirs, ours = fresh("for another hill"), fresh("for this one")
    browser.script("""localStorage.setItem('meshpost.outbox', JSON.stringify([
      {id: arguments[0], gateway: 'ffffffffffffffff', conversation: arguments[1], text: arguments[2], split: false, at: Date.now()}]))""",
      secrets.token_hex(16), PUBLIC, theirs)
    browser.driver.refresh()
    write(browser, ours)
    # It would have gone before this one.
    browser.until(f"{ours} sent", lambda: browser.script(
        "return [...document.querySelectorAll('article.own:not(.waiting)')].some((row) => row.innerText.includes(arguments[0]))", ours))
    assert theirs not in browser.text()
    assert not world.gateway.texts(theirs)
    browser.until("it to wait alone", lambda: browser.script("return JSON.parse(localStorage.getItem('meshpost.outbox')).map((one) => one.text)") == [theirs])
    browser.script("localStorage.removeItem('meshpost.outbox')")


@test
def two_people_at_once(world):
    browsers = [chat(world), chat(world)]
    texts = [[fresh(f"person {number}, line {line}") for line in range(4)] for number in range(2)]
    for browser in browsers:
        browser.find(".composer-field")

    def talk(number):
        for text in texts[number]:
            write(browsers[number], text)

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for browser in browsers:
        for text in texts[0] + texts[1]:
            browser.shows(text, ".chat-scroll")
    orders = [re.findall(r"person \d, line \d \w+", browser.text(".chat-scroll")) for browser in browsers]
    wanted = [text for text in orders[0] if any(text in mine for mine in texts)]
    assert wanted == [text for text in orders[1] if any(text in mine for mine in texts)], orders


ATTACKS = [
    "<script>window.hit=1</script>", "<img src=x onerror=window.hit=1>", "<svg onload=window.hit=1>", "javascript:window.hit=1", "\u0600<b>bold</b>", "\u202egnp.exe\u202c",
    "Z" + "\u0301\u0323\u0330" * 20, "\u2066\u2067\u2068", "</bdi></p><style>*{display:none}</style>", "{{7*7}}${window.hit=1}", "&lt;b&gt;&#60;", "a\u0000b\u0007c",
]


@test
def what_attacks_is_shown_as_text(world):
    node = r1(world)
    browser = world.browser()
    mark = secrets.token_hex(3)
    for attack in ATTACKS:
        if "\u0000" not in attack:
            world.gateway.say(f"chan r1 0 {mark} {attack}")
            world.gateway.say(f"dm r1 r0 {mark} {attack}")
    heard = [attack for attack in ATTACKS if "\u0000" not in attack]
    # They are transmitted one by one: later messages would scroll the first ones out of sight.
    browser.until("all to be heard", lambda: sum(row.get("text", "").startswith(mark) for row in world.gateway.ask("GET", "/v1/messages?limit=200")) >= 2 * len(heard), patience=120)
    world.gateway.ask("POST", "/v1/node/alias", {"node": node["key"], "value": "<img src=x onerror=window.hit=1>"})
    world.gateway.ask("POST", "/v1/node/note", {"node": node["key"], "value": "<script>window.hit=1</script>" + "\u0301" * 400})
    world.gateway.ask("POST", "/v1/node/tags", {"node": node["key"], "value": ["<b>x</b>", "\u0600<i>"]})
    try:
        for path in (f"/conversations/{PUBLIC}", f"/conversations/node:{node['key'][:12]}", f"/conversations/node:{node['key'][:12]}?details=1",
                     f"/nodes/{node['key']}", "/nodes?find=%3Cscript%3E", "/gateway", f"/conversations/{PUBLIC}?find=%3Cimg%20src%3Dx%20onerror%3Dwindow.hit%3D1%3E",
                     f"/conversations/{PUBLIC}?q=%3Cscript%3E", "/conversations/%3Cscript%3Ewindow.hit=1%3C%2Fscript%3E", "/nodes/%3Cb%3E", "/conversations/%D8%80%3Cb%3E"):
            browser.go(world.host.base + path)
            browser.until("conversations", lambda: browser.all("a.conversation"))
            if path == f"/conversations/{PUBLIC}":
                to_the_end(browser)
                # Upwards from the end: of many rows only those in sight are in the page.
                for attack in reversed(ATTACKS[:4]):
                    browser.until(attack, lambda: attack in browser.text(".chat-scroll") or browser.script("document.querySelector('.chat-scroll').scrollTop -= 120"))
            if path == f"/nodes/{node['key']}":
                browser.shows("<img src=x onerror=window.hit=1>", ".details")
            # Ten kilobytes, which no radio sends, and a host may: as if the stream had brought them.
            browser.script("""return Promise.all(["written", "text"].map((name) => import(`/pages/parts/${name}.js`))).then(([{ written }, { named, line, cut }]) => {
              for (const text of [("<b>".repeat(3500)), "\\u0301".repeat(10000), "a\\u0000b\\u0007c"]) {
                const place = document.createElement("div"); place.append(written(text), named(text), line(text)); document.querySelector("main").append(place);
                if (place.querySelector("b") || cut(text, 64).length > 1000) throw new Error("not text");
                place.remove();
              }})""")
            assert browser.script("return window.hit") is None, path
            assert not browser.all("main img, .list img, .details img, main script, .details script, .details b"), path
            assert not browser.refusals(), f"{path}: {browser.refusals()}"
            wide = browser.script("return document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{path} is {wide} pixels too wide"
    finally:
        for field in ("alias", "note", "tags"):
            world.gateway.ask("POST", f"/v1/node/{field}", {"node": node["key"]})


@test
def a_phone(world):
    for width in (320, 390):
        browser = world.open("/conversations", width=width, height=700, touch=True)
        browser.until("conversations", lambda: browser.all("a.conversation"))
        for path in VIEWS:
            browser.go(world.host.base + path)
            browser.find(".main h1, a.conversation")
            wide = browser.script("return document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{path} is {wide} pixels too wide at {width}"
        browser.go(f"{world.host.base}/conversations")
        browser.click(f'a.conversation[data-id="{PUBLIC}"]')
        text = fresh(f"from a phone of {width}")
        write(browser, text)
        browser.shows(text, ".chat-scroll")
        browser.click('.chat-head [aria-label="Back"]')
        browser.until("the list", lambda: browser.path() == "/conversations" and browser.find("a.conversation"))
        small = browser.script("""return [...document.querySelectorAll("button, a, input, select, textarea")].filter((one) => one.checkVisibility({ visibilityProperty: true }))
          .map((one) => [one.className || one.tagName, one.getBoundingClientRect()]).filter(([, box]) => box.width && (box.height < 43.5 || box.width < 43.5)).map(([name, box]) => `${name} ${box.width}x${box.height}`)""")
        assert not small, f"targets that are too small for a finger: {small}"


@test
def keyboard_only(world):
    browser = world.open("/nodes")
    browser.until("nodes", lambda: browser.all(".node-link"))
    Keys = __import__("browser").Keys
    browser.script("document.activeElement.blur()")
    browser.keys("g", "c")
    browser.until("conversations", lambda: browser.path() == "/conversations")
    browser.find(".main .empty")
    browser.keys("/")
    browser.until("the search field", lambda: browser.script("return document.activeElement.id") == "list-search")
    browser.keys("Public")
    browser.until("only that one", lambda: len(browser.all("a.conversation")) == 1)
    browser.keys(Keys.ENTER)
    browser.until("the writing field", lambda: browser.script("return document.activeElement.className") == "composer-field")
    assert "find=" not in browser.path()
    text = fresh("typed without a mouse")
    browser.keys(text, Keys.ENTER)
    browser.shows(text, ".chat-scroll")
    browser.keys(Keys.ESCAPE)
    browser.until("out of the field", lambda: browser.script("return document.activeElement.className") != "composer-field")
    browser.keys("k")
    browser.until("a message", lambda: browser.script("return document.activeElement.tagName") == "ARTICLE")
    browser.keys("k", Keys.ENTER)
    browser.find(".details-inside")
    browser.keys(Keys.ESCAPE)
    browser.until("details closed", lambda: "message=" not in browser.path())
    browser.keys("?")
    browser.find("dialog .keys")
    browser.keys(Keys.ESCAPE)
    browser.until("the list closed", lambda: not browser.all("dialog"))
    browser.keys("r")
    browser.until("the writing field again", lambda: browser.script("return document.activeElement.className") == "composer-field")


# What is read of a chat is held back until `release()`, and so is what is sent, while `isSending` is false.
LATE = """
const real = window.fetch;
window.held = [];
window.isSending = true;
window.fetch = async (path, ...more) => {
  if (path === "/v1/send" && !window.isSending) await new Promise((resolve) => { window.send = resolve; });
  const answer = await real(path, ...more);
  if (String(path).startsWith("/v1/messages") && window.held) await new Promise((resolve) => { window.held.push(resolve); });
  return answer;
};
window.release = () => { for (const one of window.held) one(); window.held = null; };
"""


@test
def a_key_pressed_before_the_messages_are_there_is_not_lost(world):
    browser = world.browser()
    browser.command("Page.addScriptToEvaluateOnNewDocument", source=LATE)
    browser.go(f"{world.host.base}/conversations/{PUBLIC}")
    Keys = __import__("browser").Keys
    focused = "const row = document.activeElement; return row.tagName === 'ARTICLE' && (arguments[0] in row.dataset) && row.innerText.includes(arguments[1])"
    browser.until("the writing field", lambda: browser.script("return document.activeElement.className") == "composer-field")
    text = fresh("before it was read")
    # Its row goes when the stream brings it, which no chat shows that is not read.
    browser.script("window.isSending = false")
    browser.keys(text, Keys.ENTER)
    browser.shows(text, ".chat-scroll")
    browser.until("it to be on its way", lambda: browser.script("return Boolean(window.send)"))
    browser.script("window.isSending = true; window.send(); window.send = null")
    # Escape takes Enter back: no details are opened later.
    browser.keys(Keys.ESCAPE, "k", "j", Keys.ENTER, Keys.ESCAPE)
    assert browser.script("return document.activeElement.tagName") != "ARTICLE" and browser.all(".chat-shapes")
    browser.script("window.release()")
    browser.until("a message", lambda: browser.script("return document.activeElement.tagName") == "ARTICLE")
    assert "message=" not in browser.path()
    browser.until("all of it sent", lambda: world.gateway.texts(text) and not browser.all(".message.waiting"))
    # What waits is a row as others are, and keeps the focus when it is stored under another key.
    text = fresh("focused while it waits")
    browser.script("window.isSending = false")
    browser.keys("r")
    browser.until("the writing field again", lambda: browser.script("return document.activeElement.className") == "composer-field")
    browser.keys(text, Keys.ENTER)
    browser.until("it to be on its way", lambda: browser.script("return Boolean(window.send)"))
    # From the message before on to the last one, whatever came in between.
    browser.keys(Keys.ESCAPE, *"jjjjj")
    browser.until("the row that waits", lambda: browser.script(focused, "waiting", text))
    browser.script("window.isSending = true; window.send()")
    browser.until("the same row, stored", lambda: browser.script(focused, "cursor", text))


@test
def what_is_made_anew_keeps_the_focus(world):
    browser = chat(world)
    Keys = __import__("browser").Keys
    label = "return document.activeElement.getAttribute('aria-label')"
    browser.until("a button that mutes", lambda: browser.all(".chat-head [aria-pressed]"))
    browser.script("document.querySelector('.chat-head [aria-pressed]').focus()")
    first = browser.script(label)
    browser.keys(Keys.ENTER)
    browser.until("the other word", lambda: browser.script(label) not in (None, first))
    browser.keys(Keys.ENTER)
    browser.until("the first word again", lambda: browser.script(label) == first)
    # Its details open beside it, and the button stays the one with the focus.
    browser.script("document.querySelector('.chat-head [aria-expanded]').focus()")
    browser.keys(Keys.ENTER)
    browser.find(".details-inside")
    browser.until("the button", lambda: browser.script("return document.activeElement.getAttribute('aria-expanded')") == "true")


@test
def what_is_typed_into_a_search_does_not_follow_who_leaves(world):
    browser = world.open("/nodes")
    browser.until("nodes", lambda: browser.all(".node-link"))
    # In one turn of the page: the search would be in the address a moment after the view was left.
    browser.script("""const field = document.querySelector("#list-search"); field.focus(); field.value = "Public"; field.dispatchEvent(new Event("input"));
      field.blur(); document.querySelector('[data-tab="air"]').click(); window.left = performance.now();""")
    browser.until("more than that moment", lambda: browser.script("return performance.now() - window.left > 400"))
    assert browser.path() == "/air", browser.path()
    # Who goes on typing stays in the field when the view behind it changes.
    browser.type("#list-search", "Pub")
    browser.until("the conversations", lambda: browser.path().startswith("/conversations?find="))
    browser.find(".main .empty")
    browser.keys("lic")
    browser.until("all of it in the field", lambda: browser.path() == "/conversations?find=Public")


@test
def each_view_opens(world):
    """What `make quick` tries after an edit of a page: each view shows what it is for, and no script fails."""
    browser = world.open("/conversations")
    for path in (*VIEWS, f"/nodes/{r1(world)['key']}", f"/conversations/{PUBLIC}?details=1"):
        browser.go(world.host.base + path)
        browser.until(f"what {path} shows", lambda: browser.all(SHOWN))
        browser.until(f"the rest of {path}", lambda: not browser.all(".shape"))
        refused = browser.refusals()
        assert not refused, f"{path}: {refused}"


@test
def axe_finds_nothing_serious(world):
    from axe_selenium_python import Axe
    key = r1(world)["key"]
    found = []
    for options in ({}, {"width": 390, "height": 844, "touch": True}):
        browser = world.open("/conversations", **options)
        for dark in (False, True):
            browser.scheme(dark)
            for path in (*VIEWS, f"/nodes/{key}", f"/conversations/{PUBLIC}?details=1"):
                browser.go(world.host.base + path)
                browser.until("the view's content", lambda: browser.all(SHOWN))
                browser.until("the rest", lambda: not browser.all(".shape"))
                axe = Axe(browser.driver)
                axe.inject()
                for one in axe.run()["violations"]:
                    if one["impact"] in ("serious", "critical"):
                        found.append(f"{path} {'dark' if dark else 'light'} {'phone' if options else 'wide'}: {one['id']}: " + "; ".join(node["html"][:160] for node in one["nodes"][:3]))
                # Axe is a separate script and may violate the policy: the page is not at fault.
                browser.script("window.refused = []")
        browser.close()
        world.browsers.remove(browser)
    assert not found, "\n" + "\n".join(found)


@test
def a_hundred_thousand_messages(world):
    """Scrolls back; only visible rows are in the page. The rows are made in the browser, in place of the gateway's."""
    browser = world.open("/conversations")
    browser.script("""
      window.real = window.fetch; window.pages = 0;
      window.fetch = (path, options) => {
        const url = new URL(path, location);
        if (url.pathname !== "/v1/messages") return window.real(path, options);
        window.pages += 1;
        const limit = Number(url.searchParams.get("limit"));
        const before = url.searchParams.has("before") ? Number(url.searchParams.get("before")) : url.searchParams.has("after") ? Math.min(100001, Number(url.searchParams.get("after")) + limit + 1) : 100001;
        const rows = [];
        for (let id = Math.max(1, before - limit); id < before; id += 1) rows.push(JSON.stringify({ id, kind: "channel", sender_name: "n" + id % 7, channel: "x", text: "message " + id + " word".repeat(id % 40),
          hops: 1, snr: 5, direct: false, direction: "received", cursor: String(id), received_at: 1700000000000 + id * 60000, clock_trusted: true, copies: 1 }));
        return Promise.resolve(new Response(rows.join("\\n") + "\\n"));
      };""")
    browser.click(f'a.conversation[data-id="{PUBLIC}"]')
    browser.find("article[data-cursor]")
    browser.until("the newest", lambda: browser.script("const jump = document.querySelector('.jump'); if (!jump.hidden) jump.click(); return true") and "message 100000" in browser.text(".chat-scroll"))
    pages = browser.script("return window.pages")
    assert pages < 20, f"{pages} pages were read before anybody scrolled"
    most = browser.driver.execute_async_script("""
      const done = arguments[0]; const place = document.querySelector(".chat-scroll"); let most = 0; let frames = 0; const began = performance.now(); window.pages = 0;
      const step = () => {
        most = Math.max(most, document.querySelectorAll("article").length); frames += 1;
        if (window.pages > 30 || performance.now() - began > 40000) { done([most, frames, performance.now() - began]); return; }
        place.scrollTop = Math.max(0, place.scrollTop - 900);
        requestAnimationFrame(step);
      };
      step();""")
    print(f"        {int(most[0])} rows in the page at most, {most[1] / most[2] * 1000:.0f} frames a second while scrolling through 1800")
    assert most[0] < 150
    assert most[1] > 60, f"{most[1]:.0f} steps of 900 pixels went through it all: it does not stay where one reads"
    # The visible text keeps its place.
    assert re.search(r"message \d+", browser.text(".chat-scroll"))


@test
def five_thousand_nodes(world):
    browser = world.open("/conversations")
    browser.script("""
      window.real = window.fetch;
      window.fetch = (path, options) => {
        if (new URL(path, location).pathname !== "/v1/contacts") return window.real(path, options);
        const rows = Array.from({ length: 5000 }, (_, index) => JSON.stringify({ key: index.toString(16).padStart(64, "0"), name: "Node " + index, type: ["chat", "repeater", "room", "sensor"][index % 4],
          favourite: false, flags: 0, hops: index % 5, path: "", lat: 47 + index / 1e4, lon: 8, last_advert: 1, on_radio: true, first_seen: 1, last_heard: Date.now() - index * 1000 }));
        return Promise.resolve(new Response(rows.join("\\n") + "\\n"));
      };""")
    browser.click('[data-tab="nodes"]')
    browser.shows("5000 nodes", ".view-head")
    assert len(browser.all(".node-row")) < 150
    browser.type(".filters .field", "Node 4999")
    browser.shows("1 of 5000 nodes", ".view-head")


@test
def german_and_right_to_left(world):
    browser = world.open("/gateway", language="de")
    browser.shows("Funkgerät")
    assert browser.script("return document.documentElement.lang") == "de"
    for path in VIEWS:
        browser.go(world.host.base + path)
        browser.until("the shell", lambda: browser.all(".tabs"))
        browser.script("document.documentElement.dir = 'rtl'")
        wide = browser.script("return document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{path} is {wide} pixels too wide from right to left"


@test
def the_gateway_is_told_what_to_do(world):
    browser = world.open("/gateway")
    browser.shows("Doctor")
    browser.click(".view-head .button")
    browser.shows("Sent an advert", ".toast")
    upstream = world.gateway.ask("GET", "/v1/status")["upstreams"][0]["name"]
    browser.click(f'[data-does="{upstream} pause"]')
    browser.find(f'[data-does="{upstream} resume"]')
    assert world.gateway.ask("GET", "/v1/status")["upstreams"][0]["state"] == "paused"
    browser.click(f'[data-does="{upstream} resume"]')
    browser.find(f'[data-does="{upstream} pause"]')


@test
def a_lost_database_and_a_wrong_region_are_told(world):
    browser = world.open("/gateway")
    browser.shows("Doctor")
    shown = browser.script("""return import("/pages/stores/gateway.js").then(({ gateway }) => {
      const { status } = gateway;
      gateway.status = { ...status, radio: { ...status.radio, region_error: "it stays in #elsewhere" }, store: { ...status.store, loss: "the database was removed" } };
      gateway.changed();
    }).then(() => document.querySelector(".cards").innerText)""")
    assert "it stays in #elsewhere" in shown and "the database was removed" in shown, shown


@test
def notes_of_a_node_are_edited(world):
    key = r1(world)["key"]
    browser, other = world.open(f"/nodes/{key}"), world.open("/nodes?find=r1")
    alias = fresh("Birch")
    browser.type("#node-alias", alias + "\n")
    other.shows(alias, ".table")
    assert json.loads(json.dumps(r1(world))).get("alias") == alias
    world.gateway.ask("POST", "/v1/node/alias", {"node": key})


@test
def a_chat_without_messages_is_headed_by_its_nodes_name(world):
    node = r1(world)
    browser = world.browser()
    browser.command("Page.addScriptToEvaluateOnNewDocument", source="""const real = window.fetch;
      window.fetch = (path, ...more) => (path === "/v1/conversations" ? Promise.resolve(new Response("")) : real(path, ...more));""")
    browser.go(f"{world.host.base}/conversations/node:{node['key'][:12]}")
    browser.until("its name", lambda: browser.text(".chat-head h1").strip() == (node.get("alias") or node["name"]))


OFFLINE = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}


@test
def a_cut_line_keeps_neither_the_menu_nor_a_view_for_good(world):
    browser = world.open("/conversations")
    browser.until("conversations", lambda: browser.all("a.conversation"))
    browser.until("what comes later", lambda: browser.script("""const names = performance.getEntriesByType("resource").map(({ name }) => name);
      return ["shell/dialog.js", "parts/drawings.js", "later.css", "-more.js"].every((one) => names.some((name) => name.endsWith(one)))"""))
    browser.command("Network.enable")
    browser.command("Network.setCacheDisabled", cacheDisabled=True)
    browser.command("Network.setBypassServiceWorker", bypass=True)
    line = """return import("/pages/stores/live.js").then(({ live }) => {
      [live.isLinked, live.since] = arguments[0] ? [true, null] : [false, Date.now()];
      if (arguments[0]) live.tell("linked");
      live.changed();
    })"""
    browser.command("Network.emulateNetworkConditions", **OFFLINE)
    browser.script(line, False)
    browser.shows("No connection", ".bar")
    browser.shows("not known", ".head .state")
    assert not browser.all(".head .dot.up")
    browser.click('.head [aria-label="Menu"]')
    browser.shows("Language", "dialog")
    browser.keys(__import__("browser").Keys.ESCAPE)
    browser.until("it closed", lambda: not browser.all("dialog"))
    browser.keys("?")
    browser.find("dialog .keys")
    browser.keys(__import__("browser").Keys.ESCAPE)
    browser.until("it closed", lambda: not browser.all("dialog"))
    browser.click('.tabs [data-tab="nodes"]')
    browser.shows("This view could not be loaded.", ".main")
    assert "module" not in browser.text(".main"), "in the browser's language"
    browser.command("Network.emulateNetworkConditions", **{**OFFLINE, "offline": False})

    def view():
        # The page's own stream may have been cut as well, and be back first: then the page is loaded anew already.
        if browser.all("#main [role=alert]"):
            browser.script(line, True)
        return browser.all(".node-link")

    browser.until("the view", view)


@test
def a_note_that_could_not_be_saved_is_kept(world):
    key = r1(world)["key"]
    note, left = fresh("key under the stone"), fresh("left in the field")
    browser = world.open(f"/nodes/{key}")
    browser.find("#node-note")
    browser.until("a line", lambda: browser.script("return import('/pages/stores/live.js').then(({ live }) => live.isLinked)"))
    browser.command("Network.enable")
    browser.command("Network.emulateNetworkConditions", **OFFLINE)
    browser.type("#node-note", note)
    browser.keys("\t")
    browser.shows("Not saved yet", ".details .notes")
    browser.command("Network.emulateNetworkConditions", **{**OFFLINE, "offline": False})
    # By itself, with the line.
    browser.until("it at the gateway", lambda: r1(world).get("note") == note)
    browser.until("no draft", lambda: "document " not in browser.script("return localStorage['meshpost.drafts'] ?? ''"))
    # Written, and the page is gone before anybody has left the field.
    browser.type("#node-alias", left)
    browser.until("a draft", lambda: left in browser.script("return localStorage['meshpost.drafts'] ?? ''"))
    browser.go(f"{world.host.base}/nodes/{key}")
    browser.until("what was written", lambda: browser.find("#node-alias").get_attribute("value") == left)
    browser.until("it at the gateway", lambda: r1(world).get("alias") == left)
    for field in ("alias", "note"):
        world.gateway.ask("POST", f"/v1/node/{field}", {"node": key})


@test
def a_newer_version_of_a_note_is_shown(world):
    key = r1(world)["key"]
    own, theirs = fresh("bo's note"), fresh("ana's note")
    browser = world.open(f"/nodes/{key}")
    browser.type("#node-note", own)
    # Into the next field: the notes keep the focus.
    browser.keys("\t")
    browser.shows("Saved.", ".details .notes")
    world.gateway.ask("POST", "/v1/node/note", {"node": key, "value": theirs})
    world.gateway.ask("POST", "/v1/node/tags", {"node": key, "value": ["hut"]})
    browser.until("the newer one", lambda: browser.find("#node-note").get_attribute("value") == theirs)
    browser.until("the tags", lambda: browser.find("#node-tags").get_attribute("value") == "hut")
    browser.shows("Changed elsewhere", ".details .notes")
    browser.shows("At the gateway.", ".details .notes")
    assert "Saved." not in browser.text(".details .notes")
    # Who is writing sees both.
    browser.type("#node-alias", "half a na")
    world.gateway.ask("POST", "/v1/node/alias", {"node": key, "value": "Birch"})
    browser.shows("Changed elsewhere meanwhile, to “Birch”", ".details .notes")
    assert browser.find("#node-alias").get_attribute("value").endswith("half a na")
    browser.keys(__import__("browser").Keys.ESCAPE)
    browser.until("theirs", lambda: browser.find("#node-alias").get_attribute("value") == "Birch")
    for field in ("alias", "note", "tags"):
        world.gateway.ask("POST", f"/v1/node/{field}", {"node": key})


@test
def the_air_is_shown_as_it_is_heard(world):
    browser = world.open("/air")
    browser.until("packets", lambda: (world.gateway.say("chan r1 0 " + fresh("on the air")), browser.all(".air-row .p-channel"))[1])
    browser.until("its channel", lambda: any("Public" in one.text for one in browser.all(".air-row .from")))
    browser.click('[aria-label="Pause"]')
    browser.until("packets that are held", lambda: (world.gateway.say("chan r1 0 " + fresh("held")), re.search(r"Paused: [1-9]", browser.text(".view-head")))[1])
    browser.click('[aria-label="Go on"]')
    browser.shows("since this view was opened", ".view-head")
    browser.until("a kind to filter by", lambda: browser.all(".chips .chip"))
    browser.click(".chips .chip")
    browser.until("the filter in the address", lambda: "kind=" in browser.path())


@test
def the_air_is_heard_only_while_it_is_shown(world):
    browser = world.open("/air")
    browser.until("packets", lambda: (world.gateway.say("chan r1 0 " + fresh("on the air")), browser.all(".air-row"))[1])
    browser.script("window.asked = []; const real = fetch; window.fetch = (path, ...rest) => { window.asked.push(String(path)); return real(path, ...rest); }")
    browser.click('[data-tab="nodes"]')
    browser.find(".node-row")
    # It would be asked for again after three seconds.
    time.sleep(4)
    assert not browser.script("return window.asked.filter((path) => path.includes('/v1/packets'))")


@test
def two_of_one_name_are_told_apart_on_the_map(world):
    browser = world.browser()
    browser.command("Page.addScriptToEvaluateOnNewDocument", source="""const real = window.fetch; window.drawn = [];
      const { fillText } = CanvasRenderingContext2D.prototype;
      CanvasRenderingContext2D.prototype.fillText = function (words, ...more) { window.drawn.push(words); return fillText.call(this, words, ...more); };
      const one = (digits, name, lat) => JSON.stringify({ key: digits.repeat(32), name, type: "chat", lat, lon: 7, last_heard: Date.now(), hops: 1 });
      window.fetch = (path, ...more) => (String(path).startsWith("/v1/contacts") ? Promise.resolve(new Response([one("aa", "Ana", 47), one("bb", "Ana", 49), one("cc", "Jo", 51)].join("\\n"))) : real(path, ...more));""")
    browser.go(f"{world.host.base}/map")
    browser.until("their labels", lambda: {"Ana aaaaaa", "Ana bbbbbb", "Jo"} <= set(browser.script("return window.drawn")))
    assert "Ana" not in browser.script("return window.drawn")


@test
def the_map_moves_with_its_list(world):
    browser = world.open("/map")
    browser.shows("with a position", ".view-head")
    browser.until("its list", lambda: len(browser.all(".map-row")) > 3)
    many = int(re.search(r"\d+", browser.text(".view-head")).group(0))
    browser.click('.map-buttons [aria-label="Closer"]')
    browser.click('.map-buttons [aria-label="Closer"]')
    browser.click('.map-buttons [aria-label="Closer"]')
    browser.until("the place in the address", lambda: "at=" in browser.path())
    browser.until("fewer in sight", lambda: 0 < browser.script("return import('/pages/stores/nodes.js').then(() => document.querySelectorAll('.map-row').length)") < many)
    browser.click(".map-row")
    browser.find(".details .node-sub")
    path = browser.path()
    assert path.startswith("/map/")
    browser.driver.refresh()
    browser.find(".details .node-sub")
    browser.click(".chips .chip")
    browser.until("the legend filters", lambda: "kind=" in browser.path())
