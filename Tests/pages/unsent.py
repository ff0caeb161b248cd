"""Tests of what is in the browser alone: drafts, and messages that are not at the gateway. See cases.py."""
import secrets

from cases import PUBLIC, chat, fresh, write
from run import test

KEPT = "return JSON.stringify(localStorage)"


@test
def signing_out_ends_it_and_asks_what_is_kept(world):
    browser = world.open("/conversations")
    browser.type(".list-search .field", "x")
    # Of another gateway: it is not sent meanwhile.
    browser.script("""localStorage.setItem('meshpost.drafts', JSON.stringify({x: 'secret plans'}));
      localStorage.setItem('meshpost.outbox', JSON.stringify([{id: arguments[0], gateway: 'ffffffffffffffff', conversation: 'x', text: 'secret words', split: false, at: Date.now()}]))""",
      secrets.token_hex(16))
    status = "return fetch('/v1/status').then((one) => one.status)"

    def sign_out(answer):
        browser.click('.head [aria-label="Menu"]')
        browser.press("dialog .button", "Sign out")
        browser.shows("1 message is not at the gateway yet. 1 draft is in this browser.", "dialog")
        browser.press("dialog .button", answer)

    sign_out("Close")
    browser.until("no question", lambda: not browser.all("dialog"))
    assert browser.script(status) == 200
    sign_out("Keep, and sign out")
    browser.find(".signin-card")
    assert browser.script(status) == 401
    assert all(words in browser.script(KEPT) for words in ("secret plans", "secret words"))
    world.cookies = None
    world.host.kill()  # no browser knows its next secret
    world.host.start()
    world.sign_in(browser)
    sign_out("Discard, and sign out")
    browser.find(".signin-card")
    assert not any(words in browser.script(KEPT) for words in ("secret plans", "secret words"))
    world.cookies = None
    world.host.kill()
