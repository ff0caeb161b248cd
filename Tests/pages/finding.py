"""Tests that find: as one types, by person, place and day; a day to go to; the day of what is read."""
from cases import PUBLIC
from run import test


@test
def conversations_are_found_by_words_in_any_order(world):
    browser = world.open("/conversations?find=LIC%20%20pub")
    browser.until("the channel alone", lambda: [one.get_attribute("data-id") for one in browser.all("a.conversation")] == [PUBLIC])
    browser.go(world.host.base + "/conversations?find=pub%20nothing")
    browser.shows("No conversation is called", ".list")
