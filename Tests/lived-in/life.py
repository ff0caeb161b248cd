"""What a mesh has lived through: nodes, people, messages of a year, readings, alerts; all drawn from a seed.

The same seed, sizes and end give the same content. Nothing here knows a database or a program.
"""
import dataclasses
import hashlib
import pathlib
import random
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent.parent / "Benchmarks"))
import texts  # noqa: E402

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
YEAR = 365 * DAY
COMPANION, REPEATER, ROOM, SENSOR = 1, 2, 3, 4
PUBLIC_SECRET = bytes.fromhex("8b3387e9c5cdea6ac9e5edbaa115cd72")
# What people call their radios, at its worst: 31 bytes (the most) without a blank, wide and narrow; marks joined of many; from right to left; no letters;
# the same name twice; one that differs in its case alone, or in a mark; one that could be markup, or the end of a name in a channel; none at all.
HARD_NAMES = [
    "Donaudampfschifffahrtsgesellsch", "WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW", "iiiiiiiiiiiiiiiiiiiiiiiiiiiiiii", "🏔️🦊👩‍👩‍👦", "🇨🇭🇩🇪🇫🇷",
    "محطة الجبل", "תחנת ההר 7", "山の上の中継局", "สถานีบนเขา", "Ridge", "Ridge", "ridge", "Café Bär", "Cafe\u0301 Ba\u0308r", "<b>Zug</b>", "Tal: unten", "42", "-", "Q", "",
    "  Thun  ", "a" + "\u0301" * 14, "Zürich Hauptbahnhof Gleis 4+5", "OE9/HB9XYZ/P",
]
HARD_TEXTS = [
    "👍", "🏔️🦊👩‍👩‍👧‍👦🇨🇭", "W" * 150, "https://example.org/" + "a" * 110, "صباح الخير من الجبل، الثلج كثير اليوم", "בוקר טוב, שלג היום על ההר", "山の上は晴れています。風が強いです。", "?",
    "one\ntwo\nthree\n\nfive", "<script>window.hit=1</script>", "a" + "\u0301" * 60, "  ", "@[Ridge] which of you is it?", "@[Donaudampfschifffahrtsgesellsch] 73",
]
CHANNELS = ["#hilltop", "#wetter-und-lawinen-der-alpen", "#جبل", "#🦊"]


def key_of(*words):
    return hashlib.sha256("/".join(map(str, words)).encode()).digest()


def secret_of(name):
    """Of a channel whose name is its secret; docs/protocol/app-conventions.md."""
    return PUBLIC_SECRET if name == "Public" else hashlib.sha256(name.encode()).digest()[:16]


def digest_of(name):
    return hashlib.sha256(secret_of(name)).hexdigest()[:16]


@dataclasses.dataclass
class Node:
    key: bytes
    name: str
    type: int
    lat: float
    lon: float
    first_seen: int
    last_heard: int | None
    path: bytes | None


@dataclasses.dataclass
class Message:
    """`at`: when it was received, milliseconds. `late`: seconds since it was sent. `sender`, `author`: a node."""
    at: int
    kind: str
    text: str
    sender_name: str
    sender: Node | None
    author: Node | None
    channel: str | None
    sender_time: int
    snr: int
    hops: int | None
    late: int | None
    copies: int


class Life:
    """`end`: the newest moment, milliseconds since 1970."""

    def __init__(self, seed, end, messages=100_000, nodes=1_000, days=365):
        self.seed, self.end, self.days = seed, end, days
        self.start = end - days * DAY
        self.nodes = self._nodes(random.Random(f"{seed} nodes"), nodes)
        self.people = [node for node in self.nodes if node.type == COMPANION]
        self.rooms = [node for node in self.nodes if node.type == ROOM]
        self.repeaters = [node for node in self.nodes if node.type == REPEATER]
        self.gaps = self._gaps(random.Random(f"{seed} gaps"))
        self.messages = self._messages(random.Random(f"{seed} messages"), messages)

    def _nodes(self, chance, count):
        found = []
        for number in range(count):
            if number < len(HARD_NAMES):
                name = HARD_NAMES[number]
            else:
                name = chance.choice([f"{chance.choice(texts.PLACES)} {chance.choice(['Nord', 'Süd', 'R1', 'R2', 'mobil', 'Dach', '🏠', 'T-Deck'])}", f"{chance.choice(texts.NAMES)} {number}",
                                      f"HB9{''.join(chance.choices('ABCDEFGHIJKLMNOPQRSTUVWXYZ', k=3))}", chance.choice(texts.PLACES)])
            type = chance.choices([COMPANION, REPEATER, ROOM, SENSOR], [60, 30, 4, 6])[0] if number >= 20 else [COMPANION, REPEATER][number % 7 == 0]
            if number in (20, 21):
                type = [ROOM, SENSOR][number - 20]
            # A tenth has never told where it is; many stand in one town, two of them on one roof.
            near = chance.random() < 0.6
            lat, lon = (47.37 + chance.gauss(0, 0.03), 8.54 + chance.gauss(0, 0.04)) if near else (47 + chance.gauss(0, 0.8), 8.2 + chance.gauss(0, 1.2))
            if chance.random() < 0.1:
                lat, lon = 0, 0
            elif found and chance.random() < 0.03:
                lat, lon = found[-1].lat, found[-1].lon
            first = self.start + round(chance.random() ** 2 * (self.end - self.start - HOUR))
            heard = None if chance.random() < 0.05 else self.end - round(chance.random() ** 6 * (self.end - first))
            hops = chance.choice([None, 0, 1, 1, 2, 2, 3, 4, 7])
            found.append(Node(key_of(self.seed, "node", number), name, type, round(lat, 5), round(lon, 5), first, heard, None if hops is None else bytes(chance.randrange(1, 255) for _ in range(hops))))
        return found

    def _gaps(self, chance):
        """Spans in which nothing was heard: a holiday, a winter's week without power, nights."""
        spans = []
        for days in (14, 6, 1.3, 0.5, 0.2):
            length = round(days * DAY * self.days / 365)
            begin = self.start + chance.randrange(max(1, self.end - self.start - 3 * length))
            spans.append((begin, begin + length))
        return spans

    def _messages(self, chance, count):
        times = []
        while len(times) < count:
            at = self.start + round(chance.random() ** 0.8 * (self.end - self.start))
            hour = at // HOUR % 24
            if chance.random() > (0.08 if hour < 5 else 0.5 if hour < 7 else 1.0 if hour > 16 else 0.6) or any(begin <= at < end for begin, end in self.gaps):
                continue
            # Words call for words.
            for _ in range(min(chance.choice([1, 1, 1, 2, 3, 8, 30]), count - len(times))):
                times.append(min(at, self.end))
                at += round(chance.expovariate(1 / 40_000)) + 1
        times.sort()
        weights = [1 / (rank + 1) for rank in range(len(self.people))]
        ranked = sorted(range(len(self.people)), key=lambda number: key_of(self.seed, "rank", number))
        people = [self.people[number] for number in ranked]
        partners = people[:max(2, len(people) // 12)]
        drawn = [texts.text(chance) for _ in range(min(4000, count))]
        speakers = chance.choices(people, weights, k=count)
        said = []
        for number, at in enumerate(times):
            luck = chance.random()
            who = speakers[number]
            text = chance.choice(HARD_TEXTS) if luck < 0.02 else chance.choice(drawn)
            late = None
            if chance.random() < 0.01:
                late = chance.choice([2 * 86_400 + chance.randrange(3600), chance.randrange(600, 20_000)])
            sent = at // 1000 - (late or chance.randrange(1, 4))
            if chance.random() < 0.002:
                # A clock that was never set.
                sent, late = 1_715_770_351 + number, None
            kind, sender, author, channel = "channel", None, None, "Public"
            if luck > 0.9:
                kind, sender, channel = "direct", chance.choice(partners), None
            elif luck > 0.87 and self.rooms:
                kind, sender, author, channel = "room", chance.choice(self.rooms[:3]), who, None
            elif luck > 0.7:
                channel = chance.choice(CHANNELS)
            said.append(Message(at, kind, text, sender.name if sender else who.name or "?", sender, author, channel, sent, chance.randrange(-60, 50), None if kind == "direct" and luck > 0.95 else
                                chance.choice([0, 1, 1, 2, 2, 3, 5, 9]), late, chance.choice([1, 1, 1, 2, 4])))
        return said

    def sent(self, count):
        """Our own words: (the number of the message before it, its time, its recipient or `None`, text, state, reason)."""
        chance = random.Random(f"{self.seed} sent")
        partners = sorted({id(one.sender): one.sender for one in self.messages if one.kind == "direct"}.values(), key=lambda node: node.key)
        places = sorted(chance.sample(range(len(self.messages)), min(count, len(self.messages))))
        for place in places:
            to = chance.choice(partners) if partners and chance.random() < 0.5 else None
            state, reason = ("sent", None) if to is None else chance.choices([("delivered", None), ("failed", "no_acknowledgement")], [9, 1])[0]
            yield place, self.messages[place].at + 5000, to, texts.text(chance), state, reason

    def readings(self, count):
        """(node, kind, at, what it told): one node has told one thing, another all the rest, each a little later than the one before."""
        chance = random.Random(f"{self.seed} readings")
        single, many = self.repeaters[0], self.repeaters[-1]
        for number in range(count):
            node = single if number == 0 else many
            at = self.start + (self.end - self.start) * number // max(1, count)
            if any(begin <= at < end for begin, end in self.gaps):
                at = next(begin for begin, end in self.gaps if begin <= at < end)
            battery = 3700 + round(300 * ((at // HOUR % 24) - 12) / 12) + chance.randrange(-30, 30)
            yield node, "node_status", at, {
                "node": node.key.hex(), "name": node.name, "battery_mv": battery, "queue": 0, "noise_floor_dbm": -118 + chance.randrange(12), "last_rssi_dbm": -90, "last_snr": chance.randrange(-40, 40) / 4,
                "received": number * 7, "sent": number * 5, "airtime_s": number * 3, "uptime_s": number * 3600, "sent_flood": number, "sent_direct": number, "received_flood": number,
                "received_direct": number, "error_flags": 0, "duplicates_direct": 0, "duplicates_flood": number}

    def alerts(self):
        """Those that are over: (rule, subject, text, value, begin, end, who acknowledged it, with which note)."""
        chance = random.Random(f"{self.seed} alerts")
        for number, (begin, end) in enumerate(sorted(self.gaps)):
            yield "radio_lost", "", "the radio is lost: it was unplugged", None, begin, end, "Ana 🦊" if number % 2 else None, "Cable mended. " * (1 + 9 * (number == 1))
        for _ in range(20):
            node, begin = chance.choice(self.repeaters), self.start + chance.randrange(self.end - self.start - DAY)
            yield "node_silent", node.key.hex(), f"{node.name} has not been heard for 24 h", None, begin, begin + chance.randrange(HOUR, DAY), None, None
