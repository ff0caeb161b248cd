"""The views with what a mesh has lived through (Tests/lived-in), where it is narrow."""
from run import test

PUBLIC = "channel:1155f1870f917786"
LONG = "Donaudampfschifffahrtsgesellsch"
# Elements that are drawn over more than one line, or cut.
WRAPPED = "return [...document.querySelectorAll(arguments[0])].filter((one) => one.getBoundingClientRect().height > 1.9 * parseFloat(getComputedStyle(one).fontSize)).map((one) => one.textContent)"
CUT = "return [...document.querySelectorAll(arguments[0])].filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)"


@test
def nothing_is_cut_or_squeezed_at_320_pixels(world):
    node = next(one for one in world.gateway.ask("GET", "/v1/contacts") if one["name"] == LONG)
    browser = world.open("/conversations", width=320, height=640)
    # A node that is not on the radio keeps its name: the words go to a line of their own.
    browser.until("conversations", lambda: browser.all("a.conversation .conversation-name > .quiet"))
    assert not browser.script(WRAPPED, ".conversation-name > .quiet")
    browser.go(f"{world.host.base}/conversations/{PUBLIC}")
    browser.until("messages", lambda: len(browser.all("article")) > 10 and not browser.all(".chat-shapes"))
    assert not browser.script(WRAPPED, ".message-head time")
    # A message that is joined to the one before shows no name. A width in whole pixels may be rounded up.
    narrow = browser.script("return [...document.querySelectorAll('.message-name')].filter((one) => !one.closest('.unseen') && one.getClientRects().length && one.getBoundingClientRect().width < Math.min(16, one.scrollWidth) - 1).map((one) => one.textContent)")
    assert not narrow, narrow
    browser.go(f"{world.host.base}/nodes/{node['key']}")
    browser.shows(LONG, ".details-head")
    assert not browser.script(CUT, ".details-head .name")
    for path in ("/conversations", f"/conversations/{PUBLIC}", "/nodes", f"/nodes/{node['key']}", "/map", "/air", "/gateway"):
        browser.go(world.host.base + path)
        browser.until("its content", lambda: browser.all("article, a.conversation, .node-row[data-key], .details .facts, .map-row, .air-row, .card .facts"))
        assert browser.script("return document.documentElement.scrollWidth") <= 320, path
