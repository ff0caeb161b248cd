"""Messages such as people write, drawn by a seed: common words of six languages, places, readings, and who writes.

Texts that repeat each other compress far better than a mesh's do. Here the words come from nearly five hundred, frequent ones more often (as in
languages, the n-th about as 1/n), with numbers, capitals, punctuation and marks between them. 48 bytes on average (5,000 of seed 1), 116 at most.
"""
import os
import random
import select
import struct
import tty

WORDS = {
    "en": """the to a and I you it of in is that on for we have not be are this what with at so can just will my but your good do from
all here now get no there out up was like if one about me time see know some back they how going did down think he then when today work has
anyone today still got right need much day over more off well who looks morning really thanks maybe where time she too had home again very
works after long tonight signal hello weather test around last tomorrow little nice way road try better check could leave later started hear north water
evening turn send many two snow first left their before any small rain side which since never new hill pretty power every night camp even always wind""",
    "de": """der die und in ich das ist nicht du zu ein es mit auf den wir auch so was von noch hier dem eine hat für aber jetzt mal habe an
bei ja wie im heute nur da sind dann schon kann wenn oder gut mir wieder aus um nach immer sehr mich doch alle bin morgen am war vom uns einen
gerade dich geht über nichts mehr Wetter kommt Abend alles weiter unten oben leider zurück wohl Stunde Netz Antenne draußen vielleicht Grüße danke
bitte unterwegs Strecke Hütte kalt warm Regen Schnee Straße Berg Tal Wald Dorf Bahn Fenster Dach Zeit Leute neue läuft""",
    "fr": """de la le et les des en un du une est que pour qui dans a par plus pas au sur ne se ce il sont avec nous vous je mais ou on bien
tout fait ça ici aussi comme être très après encore demain bonjour soir merci matin maintenant peut toujours quand rien deux sans chez route pluie
neige montagne village temps froid chaud relais antenne réseau personne départ arrivé gauche droite haut bas""",
    "es": """que no a la el es y en lo un por me una te los se con para mi está si bien pero yo eso las su tu aquí del al como le más esto ya
todo esta vamos muy hay ahora algo estoy tengo nada nos cuando sabe estás así puedo cómo quiero sólo gracias bueno hoy mañana noche tarde lluvia
calle casa monte camino valle antena señal lejos cerca norte agua""",
    "nl": """ik je het de is dat een niet en van we in op te zijn er maar met voor die me hier wat ook aan als om dan nog naar goed nu heb jij
zo kan daar weer mijn bij over moet uit nee meer wel gaan komt hoe morgen vandaag straks bedankt groeten weer regen fiets huis dijk haven bereik""",
    "pl": """nie to się w na i że z jest do co tak jak o ja mnie ale po mi za już tylko dobrze ma być dla mam tu teraz może czy jestem wiem
tym był jutro dziś dzięki bardzo dom góra droga deszcz śnieg pogoda zasięg wieczorem rano dobry""",
}
PLACES = """Feldberg Schauinsland Belchen Kandel Blauen Hornisgrinde Ballon Hohneck Donon Säntis Rigi Pilatus Napf Weissenstein Chasseral Jungfrau
Freiburg Colmar Basel Mulhouse Titisee Todtnau Staufen Breisach Riehen Liestal Olten Thun Bern Zug Kamień Rysy Śnieżka Gdynia Utrecht Hoorn Breda Teide
Huesca Jaca Ronda Snowdon Helvellyn Skiddaw Keswick Whitby Malham Otley""".split()
NAMES = ["Hilde T-Deck", "Jörg", "mobil 7", "DL4KX", "Wanda", "Café Bär", "Piotr", "🦊 Fuchs", "van Dijk", "Marie-Claude", "Ben", "basecamp", "Iñigo",
         "Tower Rd", "OE9 Sepp"]
MARKS = ["73", "QSL?", "👍", "😀", "lol", "ok", "hm", "73 de DL4KX", "❄️", "snr?"]
WEIGHTS = {language: [1 / (rank + 2) for rank in range(1, len(words.split()) + 1)] for language, words in WORDS.items()}


def text(chance):
    """One message of some fifty bytes, at most 120, in the drawn language."""
    language = chance.choice(["en", "en", "en", "de", "de", "de", "fr", "es", "nl", "pl"])
    words = chance.choices(WORDS[language].split(), WEIGHTS[language], k=max(1, min(22, round(chance.gauss(10, 4)))))
    if chance.random() < 0.5:
        words.insert(chance.randrange(len(words) + 1), chance.choice(PLACES))
    if chance.random() < 0.35:
        words.insert(chance.randrange(len(words) + 1), chance.choice([
            f"{chance.uniform(3.3, 4.2):.2f}V", f"{chance.randrange(24)}:{chance.randrange(60):02}", f"{chance.randrange(2, 90)} km",
            f"{chance.randrange(-20, 35)}°C", f"{chance.randrange(1, 100)}%", f"{chance.randrange(100, 3000)} m", f"-{chance.randrange(60, 125)} dBm"]))
    said = " ".join(words)
    if chance.random() < 0.6:
        said = said[0].upper() + said[1:]
    said += chance.choice(["", "", "", ".", "!", "?", " ..."])
    if chance.random() < 0.15:
        said += " " + chance.choice(MARKS)
    while len(said.encode()) > 120:
        said = said.rsplit(" ", 1)[0]
    return said


class Talk:
    """Who says what, as lines for meshpost-radio, whose radios r1, r2, … then have the names of `NAMES`."""

    def __init__(self, seed, people=len(NAMES)):
        self.chance, self.said, self.names = random.Random(seed), set(), NAMES[:people]
        self.weights = [1 / rank for rank in range(1, people + 1)]

    def options(self, place):
        """Of meshpost-radio: the gateway's radio, and one for each name, which has a pseudo-terminal in the folder."""
        return ["--nodes", str(1 + len(self.names)), "--airtime", "0",
                *(word for number in range(1, len(self.names) + 1) for word in ("--tty", f"r{number}={place}/r{number}"))]

    def is_there(self, place):
        return os.path.exists(f"{place}/r{len(self.names)}")

    def introduce(self, place):
        """Tells each radio its name, as its app would (CMD_SET_ADVERT_NAME); waits for its OK."""
        for number, name in enumerate(self.names, 1):
            app = os.open(f"{place}/r{number}", os.O_RDWR | os.O_NOCTTY)
            try:
                tty.setraw(app)
                frame = b"\x08" + name.encode()
                os.write(app, b"<" + struct.pack("<H", len(frame)) + frame)
                answer = b""
                while b">\x01\x00\x00" not in answer:
                    if not select.select([app], [], [], 10)[0]:
                        raise RuntimeError(f"the radio does not take the name {name}: {answer!r}")
                    answer += os.read(app, 4096)
            finally:
                os.close(app)

    def line(self, ending=""):
        """The next message on the public channel; some write far more than others."""
        who = self.chance.choices(range(1, len(self.names) + 1), self.weights)[0]
        while (said := text(self.chance) + ending) in self.said:
            pass
        self.said.add(said)
        return f"chan r{who} 0 {said}"
