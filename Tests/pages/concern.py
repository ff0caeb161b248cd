"""Whom messages concern, in the browser: blocked senders and levels of conversations. See cases.py."""
from cases import PUBLIC, chat, fresh
from run import test
from views import first_conversation


def details_of(browser, text):
    browser.until("the row of the message", lambda: browser.script("""
      const row = [...document.querySelectorAll("article.message")].find((one) => one.textContent.includes(arguments[0]));
      if (!row) return false;
      row.querySelector("button[aria-label='Details of the message']").click();
      return true""", text))


@test
def a_blocked_sender_is_hidden_everywhere_and_comes_back(world):
    browser = chat(world)
    place = first_conversation(browser, PUBLIC)
    world.gateway.say(f"chan r2 0 {(first := fresh('noise'))}")
    browser.shows(first, ".chat-scroll")
    details_of(browser, first)
    try:
        browser.press(".details button", "Block sender")
        browser.until("it to be folded", lambda: first not in browser.text(".chat-scroll"))
        browser.shows("the sender is blocked", "article.message details")
        browser.shows("Unblock sender", ".details")
        other = world.open("/nodes")
        other.until("the list", lambda: other.all(place))
        count = '[data-tab="conversations"] .count'
        before = other.text(count)
        world.gateway.say(f"chan r2 0 {(second := fresh('more noise'))}")
        rows = lambda: [row for row in world.gateway.texts(second) if row.get("filtered") == "blocked"]
        other.until("the message at the gateway", rows)
        other.until("it in the list", lambda: "…" in other.text(f"{place} .conversation-last"))
        assert second not in other.text(place) and other.text(count) == before
        # Who looks for it finds where it is.
        other.go(f"{world.host.base}/conversations")
        other.type("#list-search", second)
        other.until("its place", lambda: [second in one.text or "…" not in one.text for one in other.all(".list-found .hit")] == [False])
        # It is there, and can be read.
        browser.until("it in the chat", lambda: browser.script("""
          const row = [...document.querySelectorAll("article.message details")].find((one) => one.textContent.includes(arguments[0]));
          row?.querySelector("summary").click();
          return Boolean(row)""", second))
        browser.shows(second, ".chat-scroll")
        browser.press(".details button", "Unblock sender")
        browser.shows(first, ".chat-scroll")
        browser.until("nothing to be folded", lambda: not browser.all("article.message details"))
        assert not world.gateway.ask("GET", "/v1/blocks")
    finally:
        world.gateway.ask("POST", "/v1/blocks/remove", {"whom": "r2", "channel": PUBLIC.split(":")[1]})


@test
def a_conversation_counts_only_mentions_if_somebody_says_so(world):
    one, other = chat(world), world.open("/nodes")
    place = first_conversation(other, PUBLIC)
    other.until("the list", lambda: other.all(place))
    one.click('.chat-head [aria-label="Details"]')
    one.find("#level").send_keys("Mentions of this radio")
    one.press(".details button", "Set")
    one.shows("Saved.", ".details")
    one.go(world.host.base + "/nodes")
    one.until("the list", lambda: one.all(place))
    try:
        world.gateway.say(f"chan r2 0 {(text := fresh('for nobody'))}")
        other.shows(text, place)
        assert not other.all(f"{place} .badge")
        world.gateway.say(f"chan r2 0 @[r0] {(text := fresh('for us'))}")
        other.shows(text, place)
        other.until("one that counts", lambda: other.text(f"{place} .badge").startswith("1"))
    finally:
        world.gateway.ask("POST", "/v1/conversations/level", {"conversation": PUBLIC, "level": "all"})
