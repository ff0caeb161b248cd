"""Tests of what changes the radio's own tables, in the browser. See cases.py."""
import hashlib

from run import test

# SHA-256 of the squares, row by row, by the Python package `qrcode`: versions 1, 4, 9 (two blocks, the version is written in it) and 11 (four blocks).
CODES = {
    "meshcore": "35fc461028058810",
    "meshcore://channel/add?name=%23test&secret=8b3387e9c5cdea6ac9e5edbaa115cd72": "4c8a0fdb4cd33840",
    "meshcore://" + "1100c0ffee" * 20: "e7ba0d4dc4b87fe4",
    "meshcore://" + "0123456789abcdef" * 18: "46c22ded72eef88a",
}


@test
def codes_of_links_are_right(world):
    browser = world.open("/conversations")
    squares = """return import("/pages/parts/qr.js").then(({ squares }) => squares(arguments[0])?.map((row) => row.map(Number).join("")).join("") ?? null)"""
    for text, wanted in CODES.items():
        drawn = browser.script(squares, text)
        assert hashlib.sha256(drawn.encode()).hexdigest().startswith(wanted), text
    assert browser.script(squares, "x" * 459) is None, "what is too long has none"
