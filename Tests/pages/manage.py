"""Tests of what changes the radio's own tables, channels and contacts, in the browser. See cases.py."""
import hashlib
import secrets

from browser import Keys
from cases import r1
from run import test

# SHA-256 of the squares, row by row, by the Python package `qrcode`: versions 1, 4, 9 (two blocks, the version is written in it) and 11 (four blocks).
CODES = {
    "meshcore": "35fc461028058810",
    "meshcore://channel/add?name=%23test&secret=8b3387e9c5cdea6ac9e5edbaa115cd72": "4c8a0fdb4cd33840",
    "meshcore://" + "1100c0ffee" * 20: "e7ba0d4dc4b87fe4",
    "meshcore://" + "0123456789abcdef" * 18: "46c22ded72eef88a",
}


def channels(world):
    return {one["name"]: one for one in world.gateway.ask("GET", "/v1/channels") if one["name"]}


def leave(browser, name):
    place = f'[data-leaves="{name}"]'
    browser.script("document.querySelector(arguments[0]).closest('details').open = true", place)
    browser.click(place)
    browser.click("dialog .button.danger")


@test
def a_channel_is_joined_changed_and_left(world):
    browser = world.open("/gateway/channels")
    name = f"#t{secrets.token_hex(4)}"
    browser.type("#channel-name", "ä" * 16 + Keys.ENTER)
    browser.shows("32 bytes", "#channels")
    field = browser.find("#channel-name")
    assert field.get_attribute("value") == "ä" * 16 and field.get_attribute("aria-invalid") == "true"
    field.clear()
    # What the radio's gateway refuses is said as well.
    browser.type("#channel-name", "no key" + Keys.ENTER)
    browser.shows("requires its secret", "#channels")
    field.clear()
    browser.type("#channel-name", name + Keys.ENTER)
    browser.until("the channel", lambda: name in channels(world))
    browser.until("its row", lambda: browser.all(f'[data-leaves="{name}"]'))
    digest = channels(world)[name]["channel"]
    browser.press("#channels summary", name)
    browser.type(f"#region-{digest}", "valley" + Keys.ENTER)
    browser.until("its region", lambda: channels(world)[name].get("region") == "valley")
    browser.shows("valley", "#channels summary")
    browser.script("const one = document.getElementById(arguments[0]); one.value = 'false'; one.form.requestSubmit()", f"relay-{digest}")
    relayed = lambda: world.gateway.ask("GET", f"/v1/documents?prefix=channel/{digest}/")["documents"]  # noqa: E731
    browser.until("that it is not exchanged", lambda: relayed() and relayed()[0]["value"] is False)
    browser.shows("not exchanged", "#channels summary")
    leave(browser, name)
    browser.until("it to be gone", lambda: name not in channels(world) and not browser.all(f'[data-leaves="{name}"]'))


@test
def a_private_channel_is_created_once_though_the_answer_is_lost(world):
    browser = world.open("/gateway/channels")
    name = f"private {secrets.token_hex(3)}"
    browser.find("#channel-new")
    browser.script("""const real = window.fetch; window.cuts = 1; window.keys = [];
      window.fetch = async (path, ...more) => {
        const answer = await real(path, ...more);
        if (path !== "/v1/channels/add") return answer;
        window.keys.push(JSON.parse(more[0].body).secret);
        window.cuts -= 1;
        if (window.cuts >= 0) throw new TypeError("cut");
        return answer;
      };""")
    browser.type("#channel-new", name + Keys.ENTER)
    browser.shows("it gets the same key", "#channels")
    assert name in channels(world) and not browser.all("#channels svg[role=img]")
    browser.type("#channel-new", Keys.ENTER)
    browser.find("#channels svg[role=img]")
    first, second = browser.script("return window.keys")
    assert first == second and len(first) == 32
    link = browser.text("#channels .copyable code")
    digest = channels(world)[name]["channel"]
    leave(browser, name)
    browser.until("it to be gone", lambda: name not in channels(world))
    # The link is that of the channel.
    browser.script("document.querySelector('#channel-name').value = arguments[0]; document.querySelector('#channel-name').form.requestSubmit()", link)
    browser.until("it again", lambda: channels(world).get(name, {}).get("channel") == digest)
    browser.press("#channels button", "Hide the link")
    assert second not in browser.text()
    leave(browser, name)
    browser.until("it to be gone again", lambda: name not in channels(world))


@test
def what_is_typed_while_a_change_is_under_way_stays(world):
    browser = world.open("/gateway/channels")
    hold = """const real = window.fetch; let held = new Promise((resolve) => { window.release = resolve; });
      window.fetch = async (path, ...more) => { const answer = await real(path, ...more); if (/^[/]v1[/](channels[/](add|region)|radio[/]set)$/.test(path)) await held; return answer; };"""
    value = lambda id: browser.script("return document.getElementById(arguments[0]).value", id)  # noqa: E731
    name, field = f"#t{secrets.token_hex(4)}", browser.find("#channel-name")
    browser.script(hold)
    browser.type("#channel-name", name + Keys.ENTER)
    browser.until("the channel", lambda: name in channels(world))
    field.clear()
    browser.type("#channel-name", "#another")
    browser.script("window.release()")
    browser.shows("is in slot", "#channels")
    assert value("channel-name") == "#another", value("channel-name")
    browser.until("its row", lambda: browser.all(f'[data-leaves="{name}"]'))
    region = f"region-{channels(world)[name]['channel']}"
    browser.press("#channels summary", name)
    browser.script(hold)
    browser.type(f"#{region}", "valley" + Keys.ENTER)
    browser.until("its region", lambda: channels(world)[name].get("region") == "valley")
    browser.type(f"#{region}", "s")
    browser.script("window.release()")
    browser.shows("valley", "#channels summary")
    assert value(region) == "valleys", value(region)
    leave(browser, name)
    browser.until("it to be gone", lambda: name not in channels(world))
    before = world.gateway.ask("GET", "/v1/radio")["settings"]["name"]
    try:
        browser.go(f"{world.host.base}/gateway")
        browser.find("#set-name").clear()
        browser.script(hold)
        browser.type("#set-name", "Hill" + Keys.ENTER)
        browser.until("the name", lambda: world.gateway.ask("GET", "/v1/radio")["settings"]["name"] == "Hill")
        browser.type("#set-name", "top")
        browser.script("window.release()")
        browser.shows("Saved.", '[data-setting="name"]')
        assert value("set-name") == "Hilltop", value("set-name")
    finally:
        world.gateway.ask("POST", "/v1/radio/set", {"name": before})


@test
def codes_of_links_are_right(world):
    browser = world.open("/conversations")
    squares = """return import("/pages/parts/qr.js").then(({ squares }) => squares(arguments[0])?.map((row) => row.map(Number).join("")).join("") ?? null)"""
    for text, wanted in CODES.items():
        drawn = browser.script(squares, text)
        assert hashlib.sha256(drawn.encode()).hexdigest().startswith(wanted), text
    assert browser.script(squares, "x" * 459) is None, "what is too long has none"


# A camera, and a reader of codes that finds what is in `window.seen`.
CAMERA = """
window.BarcodeDetector = class { async detect() { return window.seen ? [{ rawValue: window.seen }] : []; } };
navigator.mediaDevices.getUserMedia = async () => {
  const canvas = document.createElement("canvas");
  canvas.getContext("2d").fillRect(0, 0, 10, 10);
  window.stream = canvas.captureStream(10);
  return window.stream;
};
"""


@test
def a_code_is_read_by_the_camera(world):
    browser = world.open("/gateway/channels")
    browser.shows("can be pasted here", "#channels")
    browser.command("Page.addScriptToEvaluateOnNewDocument", source=CAMERA)
    browser.driver.refresh()
    browser.press("#channels button", "Scan a QR code")
    browser.find("#channels video")
    browser.script("window.seen = 'https://elsewhere.example'")
    browser.press("#channels button", "Stop")
    browser.until("the camera to be off", lambda: browser.script("return window.stream.getTracks().every((one) => one.readyState === 'ended')"))
    assert browser.find("#channel-name").get_attribute("value") == ""
    browser.script("window.seen = 'meshcore://channel/add?name=%23seen'")
    browser.press("#channels button", "Scan a QR code")
    browser.until("the link", lambda: browser.find("#channel-name").get_attribute("value") == "meshcore://channel/add?name=%23seen")
    browser.until("the camera to be off", lambda: browser.script("return window.stream.getTracks().every((one) => one.readyState === 'ended')") and not browser.all("#channels video"))


@test
def a_contact_is_removed_added_and_handed_on(world):
    key = secrets.token_hex(32)
    browser = world.open("/nodes")
    contact = lambda: next((one for one in world.gateway.ask("GET", "/v1/contacts") if one["key"] == key), {})  # noqa: E731
    browser.click('[data-does="add"]')
    browser.type("#contact-link", "meshcore://channel/add?name=%23x" + Keys.ENTER)
    browser.shows("a channel's link", "dialog")
    browser.find("#contact-link").clear()
    browser.type("#contact-link", f"meshcore://contact/add?name=Passer%20by&public_key={key}&type=1" + Keys.ENTER)
    browser.until("its details", lambda: browser.path() == f"/nodes/{key}" and not browser.all("dialog"))
    browser.shows("Passer by", ".details")
    assert contact()["on_radio"]
    # The radio has heard no advert of it.
    browser.click('.details [data-contact="link"]')
    browser.shows("it must be heard first", ".details")
    browser.click('.details [data-contact="remove"]')
    browser.click("dialog .button.danger")
    browser.until("it to be removed", lambda: not contact()["on_radio"])
    browser.click('.details [data-contact="add"]')
    browser.until("it again", lambda: contact()["on_radio"])
    browser.click('.details [data-contact="remove"]')
    browser.click("dialog .button.danger")
    browser.until("it to be removed", lambda: not contact()["on_radio"])
    browser.go(f"{world.host.base}/nodes/{r1(world)['key']}")
    browser.click('.details [data-contact="link"]')
    browser.find(".details svg[role=img]")
    browser.shows("meshcore://1", ".details")
    browser.click('.details [data-contact="share"]')
    browser.shows("Sent its advert", ".details")


@test
def somebody_who_never_wrote_is_found_by_name(world):
    name, key = f"Larch {secrets.token_hex(3)}", secrets.token_hex(32)
    world.gateway.ask("POST", "/v1/contacts/add", {"key": key, "name": name, "type": "chat"})
    browser = world.open("/conversations")
    browser.type("#list-search", name.lower())
    browser.shows("Nodes to write to", ".list-found")
    browser.find("#list-search").send_keys(Keys.ENTER)
    browser.until("the chat", lambda: browser.path() == f"/conversations/node:{key[:12]}")
    browser.until("its name", lambda: browser.text(".chat-head h1").strip() == name)
    world.gateway.ask("POST", f"/v1/contacts/remove?contact={key}")
