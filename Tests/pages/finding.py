"""Tests that find: as one types, by person, place and day; a day to go to; the day of what is read."""
import datetime
import secrets

from browser import Keys

from cases import PUBLIC, chat, to_the_end
from run import test

# A conversation of one day and of another, three days later, in place of the gateway's.
TWO_DAYS = """
const day = (number) => new Date(2024, 2, number, 12).getTime();
const all = Array.from({ length: 300 }, (_, index) => ({ id: index + 1, kind: "channel", sender_name: "n" + index % 7, channel: "x", text: "message " + (index + 1), hops: 1, snr: 5,
  direct: false, direction: "received", cursor: String(index + 1), received_at: day(index < 100 ? 1 : 4) + index * 1000, clock_trusted: true, copies: 1 }));
window.real = window.fetch; window.fails = window.loses = false;
window.fetch = (path, options) => {
  const url = new URL(path, location);
  if (url.pathname !== "/v1/messages") return window.real(path, options);
  if (window.fails || window.loses && url.searchParams.has("before")) return Promise.resolve(new Response("{}", { status: 500 }));
  const asked = (name, other) => Number(url.searchParams.get(name) ?? other);
  const rows = all.filter((row) => row.id > asked("after", 0) && row.id < asked("before", 1e9) && row.received_at >= asked("since", 0));
  const found = url.searchParams.has("after") ? rows.slice(0, asked("limit", 100)) : rows.slice(-asked("limit", 100));
  return Promise.resolve(new Response(found.map((row) => JSON.stringify(row) + "\\n").join("")));
};"""


# Two answers, as two clients write them, one to nobody, one to our radio, r0, which has reacted since, and somebody who is called like it.
ANSWERS = """
Object.assign(all[290], { direction: "sent", state: "sent" }); Object.assign(all[292], { direction: "sent", state: "sent", text: "\U0001f44d@[n3]\\nabcdefgh" });
Object.assign(all[294], { text: "@[r0] indeed" });
Object.assign(all[295], { text: "@[nobody] hello" }); Object.assign(all[297], { sender_name: "R\u200b0" });
Object.assign(all[298], { text: "@[n2] <b>yes</b>" }); Object.assign(all[299], { text: "@[n3]\\n>message 200..\\nno" });"""


def choose(browser, selector, value):
    """As a picker of days does: what is typed into one depends on the language."""
    browser.find(selector)
    browser.script("const field = document.querySelector(arguments[0]); field.value = arguments[1]; field.dispatchEvent(new Event('change'))", selector, value)


@test
def words_are_found_as_they_are_typed_with_their_senders(world):
    word = "narrow" + secrets.token_hex(4)
    for radio in ("r2", "r3"):
        world.gateway.say(f"chan {radio} 0 of {radio} {word}")
    browser = chat(world)
    for radio in ("r2", "r3"):
        browser.shows(f"of {radio} {word}", ".chat-scroll")
    hits = lambda number: browser.until(f"{number} messages", lambda: len(browser.all(".list-found .hit")) == number)  # noqa: E731
    browser.type("#list-search", word[:-2])
    hits(2)
    # The name is a word as those of the text are, in any order.
    browser.keys(word[-2:] + " r3")
    hits(1)
    browser.shows("of r3", ".list-found .hit")
    browser.keys(*[Keys.BACKSPACE] * 3)
    hits(2)


@test
def a_search_is_narrowed_by_person_place_and_day(world):
    word = "narrow" + secrets.token_hex(4)
    for radio in ("r2", "r3"):
        world.gateway.say(f"chan {radio} 0 of {radio} {word}")
    browser = chat(world)
    for radio in ("r2", "r3"):
        browser.shows(f"of {radio} {word}", ".chat-scroll")
    key = next(one["key"] for one in world.gateway.ask("GET", "/v1/contacts") if one["name"] == "r2")
    hits = lambda number: browser.until(f"{number} messages", lambda: len(browser.all(".list-found .hit")) == number)  # noqa: E731
    browser.type("#list-search", word)
    hits(2)
    browser.click(".list-found summary")
    browser.type("#list-from", "R2")
    browser.until("the name, offered", lambda: browser.script("return [...document.querySelectorAll('#list-people option')].some((one) => one.value === 'r2')"))
    browser.keys(Keys.ENTER)
    hits(1)
    browser.shows("of r2", ".list-found .hit")
    assert f"find-from={key}" in browser.path(), browser.path()
    # The address is the state: also without words, which are not needed then.
    browser.go(world.host.base + f"/conversations?find-from={key}&find-in={PUBLIC}")
    browser.shows(f"of r2 {word}", ".list-found .hit")
    browser.until("its name", lambda: browser.find("#list-from").get_attribute("value") == "r2")
    assert browser.find("#list-in").get_attribute("value") == PUBLIC
    assert not any("of r3" in one.text for one in browser.all(".list-found .hit"))
    tomorrow = (datetime.date.today() + datetime.timedelta(days=2)).isoformat()
    choose(browser, "#list-since", tomorrow)
    browser.shows("No message fits.", ".list-found")
    assert f"find-since={tomorrow}" in browser.path(), browser.path()
    # By the keyboard: names that come above the link move it from under a pointer.
    browser.find(".list-found .narrow .link").send_keys(Keys.ENTER)
    browser.until("no filter", lambda: "find-" not in browser.path() and not browser.all(".list-found .hit"))
    # Nobody's name is looked for as words.
    browser.go(world.host.base + f"/conversations/{PUBLIC}?q={word}&from=of%20r3")
    browser.shows("No single node has this name", ".chat-search")
    browser.until("the one", lambda: [f"of r3 {word}" in one.text for one in browser.all(".chat-search .hit")] == [True])


@test
def an_answer_leads_to_what_it_may_be_about_and_our_name_of_others_is_marked(world):
    browser = world.open("/conversations")
    browser.script(TWO_DAYS + ANSWERS)
    browser.click(f'a.conversation[data-id="{PUBLIC}"]')
    browser.shows("message", ".chat-scroll")
    to_the_end(browser)
    browser.shows("not from this radio", 'article[data-cursor="298"]')
    assert len(browser.all(".not-ours")) == 1
    link = lambda cursor: browser.find(f'article[data-cursor="{cursor}"] a.mention')  # noqa: E731
    assert "guess" in link(299).get_attribute("title")
    link(296).click()
    browser.shows("No earlier message of this name was found.", ".toast")
    browser.script("document.querySelector('.toast').remove()")
    # By the keyboard, also a second time.
    for _ in range(2):
        link(299).send_keys(Keys.ENTER)
        browser.until("the newest of that name", lambda: browser.script("return document.activeElement.dataset.cursor") == "297" and "at=297" in browser.path())
    # A reaction is no row.
    link(295).click()
    browser.until("what we wrote", lambda: browser.script("return document.activeElement.dataset.cursor") == "291")
    browser.script("window.fails = true")
    link(300).click()
    browser.shows("500", ".toast")
    browser.script("window.fails = false")
    # It is not among the rows that were read.
    link(300).click()
    browser.until("the one with these words", lambda: browser.script("return document.activeElement.dataset.cursor") == "200")


@test
def a_day_of_a_chat_is_gone_to_and_told_while_one_scrolls(world):
    browser = world.open("/conversations")
    browser.script(TWO_DAYS)
    browser.click(f'a.conversation[data-id="{PUBLIC}"]')
    browser.shows("message", ".chat-scroll")
    to_the_end(browser)
    browser.shows("message 300", ".chat-scroll")
    browser.until("no day at the end", lambda: not any(one.is_displayed() for one in browser.all(".day-now")))
    browser.script("document.querySelector('.chat-scroll').scrollTop -= 900")
    browser.until("the day", lambda: "March" in browser.text(".day-now") and "4" in browser.text(".day-now"))
    browser.click('.chat-head [aria-label="Search in this conversation"]')

    def go(day, cursor, told):
        choose(browser, "#chat-day", day)
        browser.click(".day-field .button")
        browser.until(f"what is told of {day}", lambda: told in (words := browser.text(".day-field [role=status]")) and bool(words) == bool(told))
        if cursor:
            browser.until(f"message {cursor}", lambda: browser.script("return document.activeElement.dataset.cursor") == cursor and f"at={cursor}" in browser.path())

    go("2024-03-01", "1", "")
    # A day without messages is the next one, and says so; and a place where one was already is gone to again.
    go("2024-03-02", "101", "this is the next one")
    browser.script("document.querySelector('.chat-scroll').scrollTop += 900; document.activeElement.blur()")
    go("2024-03-03", "101", "this is the next one")
    go("2024-03-09", None, "or later")
    browser.script("window.fails = true")
    go("2024-03-01", None, "500")
    browser.script("window.fails = false")
    go("2024-03-01", "1", "")
    # A place that cannot be read is told, and gone to once it can be: by itself and by the button.
    for again in (lambda: None, lambda: browser.press(".main > [role=alert] .button", "Try again")):
        browser.click(".jump")
        browser.shows("message 300", ".chat-scroll")
        browser.script("window.loses = true")
        choose(browser, "#chat-day", "2024-03-01")
        browser.click(".day-field .button")
        browser.shows("500", ".main > [role=alert]")
        browser.script("window.loses = false")
        again()
        browser.until("message 1", lambda: browser.script("return document.activeElement.dataset.cursor") == "1" and not browser.all(".main > [role=alert]"))


@test
def conversations_are_found_by_words_in_any_order(world):
    browser = world.open("/conversations?find=LIC%20%20pub")
    browser.until("the channel alone", lambda: [one.get_attribute("data-id") for one in browser.all("a.conversation")] == [PUBLIC])
    browser.go(world.host.base + "/conversations?find=pub%20nothing")
    browser.shows("No conversation is called", ".list")


@test
def an_address_with_a_place_that_is_none_shows_the_newest(world):
    word = "newest" + secrets.token_hex(4)
    world.gateway.say(f"chan r3 0 a {word}")
    browser = world.open(f"/conversations/{PUBLIC}?at=nowhere")
    browser.until("an address without it", lambda: "at=" not in browser.path())
    to_the_end(browser)
    browser.shows(word, ".chat-scroll")
