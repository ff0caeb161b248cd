"""How many clicks everyday tasks take: docs/pages.md has them as a table."""
import secrets

from run import test

COUNTED = "window.clicks = 0; addEventListener('click', (event) => { if (event.isTrusted) window.clicks++; }, true)"


@test
def everyday_tasks_take_at_most_three_clicks(world):
    words = [secrets.token_hex(4), secrets.token_hex(4)]
    world.gateway.say(f"chan r1 0 {words[0]} between {words[1]}")
    name, key = f"Larch {secrets.token_hex(3)}", secrets.token_hex(32)
    world.gateway.ask("POST", "/v1/contacts/add", {"key": key, "name": name, "type": "chat"})
    browser = world.open("/conversations")
    browser.script(COUNTED)

    def at_most_three():
        taken = browser.script("const taken = window.clicks; window.clicks = 0; return taken")
        assert 1 <= taken <= 3, taken

    def follow(link, place):
        # By the keyboard, which counts as a click: what comes above a link moves it from under a pointer.
        browser.until(link, lambda: browser.find(link).send_keys("\ue007") is None)
        browser.until(place, lambda: place in browser.path())

    # What was said, by two of its words.
    browser.type("#list-search", f"{words[1]} {words[0]}")
    follow(".list-found .hit", "at=")
    browser.shows(words[0], ".chat-scroll")
    at_most_three()
    # To somebody who never wrote.
    browser.find("#list-search").clear()
    browser.type("#list-search", name.lower())
    browser.shows(name, ".list-found")
    browser.keys("\ue007")
    browser.until("the chat", lambda: browser.path() == f"/conversations/node:{key[:12]}")
    browser.type(".composer-field", "hello\ue007")
    browser.until("the message", lambda: any("hello" in one.text for one in browser.all("article.own")))
    at_most_three()
    # Why it waits.
    browser.click('.tabs [data-tab="gateway"]')
    follow('a[href="/gateway/waiting"]', "/gateway/waiting")
    browser.shows(name, ".waiting")
    browser.until("why", lambda: any(name in one.text and len(one.text.replace(name, "").strip()) > 20 for one in browser.all("[data-waits]")))
    at_most_three()
    # A channel, from its link.
    channel = f"#t{secrets.token_hex(4)}"
    browser.click('.tabs [data-tab="gateway"]')
    browser.type("#channel-name", f"meshcore://channel/add?name=%23{channel[1:]}\ue007")
    browser.until("the channel", lambda: any(one["name"] == channel for one in world.gateway.ask("GET", "/v1/channels")))
    at_most_three()
    for one in world.gateway.ask("GET", "/v1/outgoing?limit=1"):
        if not one["ended"] and one.get("recipient") == key:
            world.gateway.ask("POST", f"/v1/outgoing/cancel?id={one['id']}")
    world.gateway.ask("POST", f"/v1/contacts/remove?contact={key}")
