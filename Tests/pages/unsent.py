"""Tests of what is in the browser alone: drafts, and messages that are not at the gateway. See cases.py."""
import secrets

from selenium import webdriver

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
    sign_out("Keep")
    browser.find(".signin-card")
    assert browser.script(status) == 401
    assert all(words in browser.script(KEPT) for words in ("secret plans", "secret words"))
    world.cookies = None
    world.host.kill()  # no browser knows its next secret
    world.host.start()
    world.sign_in(browser)
    sign_out("Discard")
    browser.find(".signin-card")
    assert not any(words in browser.script(KEPT) for words in ("secret plans", "secret words"))
    world.cookies = None
    world.host.kill()


@test
def an_answer_that_is_not_the_gateways_is_no_refusal(world):
    """Something in between answers with an HTML of its own, or breaks off; the id makes each repetition harmless."""
    browser = chat(world)
    browser.until("a line", lambda: browser.script("return import('/pages/stores/live.js').then(({ live }) => live.isLinked)"))
    browser.script("""const real = window.fetch; window.answers = () => Promise.resolve(new Response("<h1>Oops</h1>", { status: window.status_ }));
      window.fetch = (path, ...more) => (window.status_ && path === "/v1/send" ? window.answers() : real(path, ...more));""")
    flush = "return import('/pages/stores/outbox.js').then(({ outbox }) => outbox.flush())"
    for status in (404, 429, 500, 504, 200):
        text = fresh(f"answered with {status}")
        browser.script("window.status_ = arguments[0]", status)
        write(browser, text)
        browser.shows(f"The answer ({status}) was not the gateway's", ".message.waiting")
        assert text in browser.text(".message.waiting") and not browser.all(".message.refused")
        browser.script(flush)
        assert not browser.all(".message.refused") and not world.gateway.texts(text)
        browser.script("window.status_ = 0")
        browser.press(".message.waiting .link", "Retry")
        browser.until("it at the gateway", lambda: world.gateway.texts(text))
        browser.until("nothing that waits", lambda: not browser.all(".message.waiting"))
        assert len(world.gateway.texts(text)) == 1
    # The gateway's own refusal is one.
    browser.script("""window.answers = () => Promise.resolve(new Response('{"error":"no such thing"}', { status: 404 })); window.status_ = 404""")
    write(browser, fresh("refused"))
    browser.shows("no such thing", ".message.refused")
    # Who is elsewhere sees it in the list, before a draft and what waits.
    browser.type(".composer-field", "a draft")
    browser.click('.tabs [data-tab="nodes"]')
    browser.shows("not sent", f'a.conversation[data-id="{PUBLIC}"] .conversation-last')
    browser.click(f'a.conversation[data-id="{PUBLIC}"]')
    browser.find(".composer-field").clear()
    browser.press(".message.refused .link", "Discard")
    browser.until("nothing that waits", lambda: not browser.all(".message.waiting"))
    browser.until("the focus among the messages", lambda: browser.script("return document.querySelector('.chat-scroll').contains(document.activeElement)"))


@test
def what_another_tab_has_sent_is_shown_until_its_row_is(world):
    browser = chat(world)
    text, id = fresh("sent by the other tab"), secrets.token_hex(16)
    browser.until("a line", lambda: browser.script("return import('/pages/stores/live.js').then(({ live }) => live.isLinked)"))
    # As the browser tells it: written while both are cut, and taken away by the other one, which has its line back.
    shown = browser.script("""const [id, text, conversation] = arguments;
      return Promise.all(["live", "outbox"].map((one) => import(`/pages/stores/${one}.js`))).then(async ([{ live }, { outbox }]) => {
        const told = () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
        live.isLinked = false;
        const entry = JSON.stringify([{ id, conversation, text, split: false, at: Date.now(), gateway: live.gateway }]);
        localStorage.setItem("meshpost.outbox", entry);
        dispatchEvent(new StorageEvent("storage", { key: "meshpost.outbox", oldValue: "[]", newValue: entry }));
        await told();
        const seen = () => [...document.querySelectorAll(".message.waiting")].filter((one) => one.innerText.includes(text)).length;
        const before = seen();
        localStorage.setItem("meshpost.outbox", "[]");
        dispatchEvent(new StorageEvent("storage", { key: "meshpost.outbox", oldValue: entry, newValue: "[]" }));
        await told();
        const after = seen();
        live.isLinked = true;
        return [before, after];
      })""", id, text, PUBLIC)
    assert shown == [1, 1], shown
    world.gateway.ask("POST", "/v1/send", {"to": PUBLIC.removeprefix("channel:"), "text": text, "id": id})
    browser.until("its row, once", lambda: not browser.all(".message.waiting") and browser.text(".chat-scroll").count(text) == 1)


@test
def a_double_click_on_send_leaves_the_focus_in_the_field(world):
    browser = chat(world)
    first, second = fresh("clicked twice"), fresh("answer lost")
    browser.type(".composer-field", first)
    button = browser.find(".composer .send")
    webdriver.ActionChains(browser.driver).double_click(button).perform()
    browser.keys(second)
    assert browser.find(".composer-field").get_attribute("value") == second
    # Nor does a click beside it.
    webdriver.ActionChains(browser.driver).click(browser.find(".composer-count")).perform()
    browser.keys(", not")
    assert browser.find(".composer-field").get_attribute("value") == f"{second}, not"
    browser.click(".composer .send")
    browser.until("both at the gateway", lambda: world.gateway.texts(first) and world.gateway.texts(f"{second}, not"))
    assert len(world.gateway.texts(first)) == 1
