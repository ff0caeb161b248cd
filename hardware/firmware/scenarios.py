"""What is tried in a mesh: one function each, with the words that the report shows."""
import asyncio
import hashlib
import json
import time

# 15 May 2024: a companion without a clock chip starts then.
START = 1_715_770_351
NAMES = {"A": "Alder", "B": "Birch", "C": "Cedar", "R": "Ridge", "Q": "Quarry", "S": "Salon"}
DELIVERED = "delivered"


async def judge(world, peer, sent, patience=10):
    """Compares the states that the gateway says with the texts that the peer has."""
    await asyncio.sleep(patience)
    got = await peer.take()
    told = {text: state for text, state in sent}
    lies = [text for text, state in sent if state == DELIVERED and text not in got]
    lost = [text for text, state in sent if state == "failed" and text in got]
    world.tell(f"{sum(state == DELIVERED for state in told.values())} of {len(sent)} delivered, {len(set(got) & set(told))} arrived, "
               f"{len(lost)} failed that arrived, {len(got) - len(set(got))} copies")
    world.expect(not lies, f"said delivered, and are not there: {lies}")
    return got, lost


async def direct(world):
    """Two in reach: each way, once, acknowledged."""
    await world.mesh("AB", "AB")
    birch = await world.client("B")
    await world.start_gateway()
    await world.meet("B")
    state = await world.send("B", "hello Birch")
    world.expect(state["state"] == DELIVERED and state["attempts"] == 1, str(state))
    again = await world.send("B", "by the path now")
    world.expect(again["state"] == DELIVERED, str(again))
    world.tell(f"flood {state['round_trip_ms']} ms, direct {again['round_trip_ms']} ms")
    await judge(world, birch, [("hello Birch", DELIVERED), ("by the path now", DELIVERED)], 1)
    code = await birch.send(await key_of(world), "hello Alder")
    world.expect(await birch.until(lambda: code in birch.confirmed(), 20), "Birch has no acknowledgement")
    await world.until(lambda: has(world, "hello Alder"), 20, "the message of Birch")


async def key_of(world):
    return bytes.fromhex((await world.status())["radio"]["identity"]["key"])


async def has(world, text):
    return text in await world.texts()


async def repeater(world):
    """Out of reach, over a repeater."""
    await world.mesh("ARC", "AR RC")
    cedar = await world.client("C")
    await world.start_gateway()
    await world.meet("C")
    first = await world.send("C", "over the ridge")
    second = await world.send("C", "by the path")
    world.tell(f"flood {first.get('round_trip_ms')} ms after {first['attempts']}, direct {second.get('round_trip_ms')} ms after {second['attempts']}")
    await judge(world, cedar, [("over the ridge", first["state"]), ("by the path", second["state"])], 1)
    world.expect(first["state"] == second["state"] == DELIVERED, "not delivered")
    code = await cedar.send(await key_of(world), "and back")
    world.expect(await cedar.until(lambda: code in cedar.confirmed(), 30), "Cedar has no acknowledgement")
    await world.until(lambda: has(world, "and back"), 20, "the message of Cedar")


async def channel(world):
    """The public channel each way, over a repeater; the repeater's own copy is not a message."""
    await world.mesh("ARC", "AR RC")
    cedar = await world.client("C")
    await world.start_gateway()
    for number in range(3):
        await world.send("Public", f"to all {number}")
        await asyncio.sleep(4)
    await asyncio.sleep(6)
    got = await cedar.take()
    world.expect(got == [f"{(await world.status())['radio']['identity']['name']}: to all {number}" for number in range(3)], str(got))
    for number in range(3):
        await cedar.say(0, f"from Cedar {number}")
        await asyncio.sleep(5)
    await world.until(lambda: has(world, "from Cedar 2"), 20, "what Cedar says")
    texts = await world.texts()
    world.expect(texts == [f"from Cedar {number}" for number in range(3)], str(texts))
    world.tell("3 each way, once")


async def loss(world):
    """A third of the packets is lost: no state that is not true."""
    await world.mesh("ARC", "AR RC")
    cedar = await world.client("C")
    await world.start_gateway()
    await world.meet("C")
    world.lose(0.3)
    sent = []
    for number in range(6):
        state = await world.send("C", f"through rain {number}", timeout=400)
        sent.append((f"through rain {number}", state["state"]))
    world.lose(0)
    got, lost = await judge(world, cedar, sent)
    world.tell(f"failed but arrived: {lost}")


async def hidden(world):
    """The recipient and the repeater do not hear each other: acknowledgement and copy collide at the sender."""
    await world.mesh("ABR", "AB AR")
    birch = await world.client("B")
    await world.start_gateway()
    await world.meet("B")
    sent, tries = [], []
    for number in range(6):
        await world.run("contact", "path", NAMES["B"], "--reset")
        state = await world.send("B", f"crossed {number}", timeout=400)
        sent.append((f"crossed {number}", state["state"]))
        tries.append(state["attempts"])
    world.tell(f"attempts {tries}, lost on the air {world.air.lost}")
    await judge(world, birch, sent)


async def queue(world):
    """Twenty messages for a radio that nobody reads: sixteen stay, and all are acknowledged."""
    await world.mesh("AB", "AB")
    birch = await world.client("B")
    await world.start_gateway()
    await world.meet("B")
    key = await key_of(world)
    await world.stop_gateway()
    codes = {}
    for number in range(20):
        codes[f"kept {number}"] = await birch.send(key, f"kept {number}")
        await birch.until(lambda: codes[f"kept {number}"] in birch.confirmed(), 15)
    confirmed = [text for text, code in codes.items() if code in birch.confirmed()]
    await world.start_gateway()
    await asyncio.sleep(5)
    texts = await world.texts()
    world.tell(f"{len(confirmed)} of 20 acknowledged, {len(texts)} arrived: {texts[0]} to {texts[-1]}")
    world.expect(len(texts) == 16 and len(set(texts)) == 16, str(texts))


async def tcp(world):
    """A radio on TCP holds four frames for its client: the contact list and the messages are whole all the same."""
    await world.mesh("AB", "AB", link="tcp")
    alder = await world.client("A")
    for number in range(60):
        world.expect(await alder.add(made_up(number), f"Node {number}"), "a contact")
    alder.close()
    birch = await world.client("B")
    await world.start_gateway()
    contacts = [row for row in await world.rows("contacts") if row.get("on_radio")]
    world.expect(len(contacts) == 60, f"{len(contacts)} contacts")
    await world.meet("B")
    key = await key_of(world)
    for number in range(5):
        await birch.send(key, f"over TCP {number}")
        await asyncio.sleep(4)
    await world.until(lambda: has(world, "over TCP 4"), 20, "the last message")
    state = await world.send("B", "and out")
    counters = (await world.status())["sync"]["counters"]
    world.tell(f"60 contacts, {len(await world.texts())} of 5 messages, {state['state']}, time-outs {counters['timeouts']}")
    world.expect(state["state"] == DELIVERED and len(await world.texts()) == 5, "messages are missing")


def made_up(number):
    return bytes([number % 250 + 1, number // 250 + 1]) + bytes(29) + bytes([7])


async def clock(world):
    """Companions start in May 2024 and never advertise by themselves; the gateway sets the clock."""
    await world.mesh("AB", "AB")
    birch = await world.client("B")
    before = len(birch.pushes)
    await asyncio.sleep(20)
    world.expect(len(birch.pushes) == before, "somebody advertised")
    await world.start_gateway()
    await world.stop_gateway()
    alder = await world.client("A")
    now = int.from_bytes((await alder.ask(bytes([5])))[1:5], "little")
    world.expect(abs(now - time.time()) < 5, f"the radio's clock is {now - time.time():.0f} s off")
    world.tell(f"silent for 20 s; the clock is right within {abs(now - time.time()):.0f} s")


async def full(world):
    """A full table: what a node that is heard becomes, and a message to it."""
    await world.mesh("AB", "AB")
    alder = await world.client("A")
    number = 0
    while (answer := await alder.add(made_up(number), f"Node {number}")) and answer[0] == 0:
        number += 1
    world.tell(f"refused with {answer.hex()} after {number}")
    birch = await world.client("B")
    mark = len(alder.pushes)
    await birch.advertise()
    await asyncio.sleep(6)
    pushes = [f"{push[0]:02x}" for push in alder.pushes[mark:] if push[0] != 0x88]
    world.tell(f"the advert gives {' '.join(pushes)}")
    alder.close()
    await world.start_gateway()
    await birch.advertise()
    await asyncio.sleep(6)
    rows = {row["name"]: row for row in await world.rows("contacts")}
    world.expect("Birch" in rows, "the gateway does not know Birch")
    world.tell(f"Birch on the radio: {rows['Birch'].get('on_radio', False)}")
    code, _, errors = await world.run("send", NAMES["B"], "no room")
    world.tell(f"a message to it: {code} {errors.strip()}")
    # Somebody leaves the table for the recipient.
    world.expect(pushes == ["8a", "90"] and code == 0, f"{pushes} {code}")


async def reboot(world):
    """The radio is switched off and on in the middle."""
    await world.mesh("AB", "AB")
    birch = await world.client("B")
    await world.start_gateway()
    await world.meet("B")
    sent = []
    for number in range(3):
        sending = asyncio.create_task(world.send("B", f"in the middle {number}", timeout=400))
        await asyncio.sleep(0.4 + number / 2)
        await world.reboot("A")
        sent.append((f"in the middle {number}", (await sending)["state"]))
    await world.synced()
    await judge(world, birch, sent)
    world.expect(all(state == DELIVERED for _, state in sent), str(sent))


async def identity(world):
    """Another radio on the same port: nothing of the one is the other's."""
    world.needs_firmware()
    await world.mesh("AB", "AB")
    birch = await world.client("B")
    await world.start_gateway()
    await world.meet("B")
    await world.send("B", "from the first")
    first = (await world.status())["radio"]["identity"]["key"]
    await world.air.nodes["A"].stop()
    waiting = asyncio.create_task(world.send("B", "meant for the first", timeout=300))
    await asyncio.sleep(1)
    world.air.add("X", "companion", pty=str(world.folder / "A.tty"), epoch=START)
    world.air.join("X", "B")
    await world.air.nodes["X"].start()

    async def is_other():
        status = await world.status()
        return status and (status["radio"].get("identity") or {}).get("key") not in (None, first) and status["sync"]["state"] == "synced"
    await world.until(is_other, 60, "the other radio")
    held = (await world.status())["messaging"]["held"]
    await world.air.nodes["X"].stop()
    await world.air.nodes["A"].start()
    state = await waiting
    world.tell(f"{held} held meanwhile, then {state['state']}")
    world.expect(held == 1 and state["state"] == DELIVERED, str(state))
    await judge(world, birch, [("from the first", DELIVERED), ("meant for the first", state["state"])], 2)


async def room(world):
    """A room over a repeater: login, posts of ours and of others, both once."""
    world.needs_firmware()
    await world.mesh("ARSC", "AR RS RC SC")
    cedar = await world.client("C")
    await world.start_gateway()
    await world.meet("R", "S", "C")
    await world.console("S", "set guest.password hello")
    code, output, errors = await world.run("room", "login", NAMES["S"], password="hello")
    world.expect(code == 0, f"login: {code} {output} {errors}")
    code, output, errors = await world.run("room", "post", NAMES["S"], "a post of ours", "--wait", timeout=300)
    world.expect(code == 0, f"post: {code} {output} {errors}")
    salon = bytes.fromhex(world.air.nodes["S"].key)
    await cedar.ask(bytes([26]) + salon + b"hello")
    world.expect(await cedar.until(lambda: any(push[0] == 0x85 for push in cedar.pushes), 30), "Cedar is not let in")
    await asyncio.sleep(3)
    await cedar.send(salon, "a post of Cedar")
    await world.until(lambda: has(world, "a post of Cedar"), 120, "the post of Cedar")
    await cedar.until(lambda: any(push[0] == 0x83 for push in cedar.pushes), 60)
    await asyncio.sleep(20)
    theirs, ours = await cedar.take(), await world.texts()
    world.tell(f"Cedar has {theirs}, the gateway {ours}")
    world.expect(ours.count("a post of Cedar") == 1 and "a post of ours" in theirs, "posts are missing")


async def admin(world):
    """A repeater, asked and ordered from afar."""
    world.needs_firmware()
    await world.mesh("AR", "AR")
    await world.start_gateway()
    await world.meet("R")
    for words, password, wanted in [
        (("node", "login", "Ridge"), "password", ""), (("node", "status", "Ridge"), None, ""), (("node", "telemetry", "Ridge"), None, ""),
        (("node", "neighbours", "Ridge"), None, ""), (("node", "cli", "Ridge", "get name"), None, "Ridge"),
        (("node", "cli", "Ridge", "set name Ridge Two"), None, "OK"), (("node", "trace", "Ridge"), None, ""),
        (("node", "cli", "Ridge", "no such thing"), None, "Unknown"),
    ]:
        code, output, errors = await world.run(*words, password=password)
        world.expect(code == 0 and wanted in output, f"{' '.join(words)}: {code} {output} {errors}")
    code, output, errors = await world.run("node", "login", "Ridge", password="wrong")
    world.tell(f"a wrong password: {code} {(output + errors).strip()}")
    world.expect(code != 0, "a wrong password is right")


async def settings(world):
    """All settings of a repeater and of a room, before and after a change."""
    world.needs_firmware()
    await world.mesh("ARS", "AR AS RS")
    await world.start_gateway()
    await world.meet("R", "S")
    for name in ("Ridge", "Salon"):
        code, output, errors = await world.run("node", "login", name, password="password")
        world.expect(code == 0, f"login: {output} {errors}")
        start = time.monotonic()
        code, output, errors = await world.run("node", "snapshot", name, "--json", timeout=600)
        world.expect(code == 0, f"snapshot: {code} {output} {errors}")
        row = json.loads(output)
        world.tell(f"{name}: {len(row['settings'])} settings, {len(row.get('unknown', []))} unknown, {time.monotonic() - start:.0f} s")
        world.expect(row["settings"]["name"] == name and "password" not in output, output)
        world.tell(output.strip())
    code, output, errors = await world.run("node", "cli", "Ridge", "set flood.max 32")
    world.expect(code == 0 and "OK" in output, f"{output} {errors}")
    code, output, errors = await world.run("node", "snapshot", "Ridge", timeout=600)
    world.expect(code == 0, f"snapshot: {code} {output} {errors}")
    code, output, errors = await world.run("node", "diff", "Ridge")
    world.expect(code == 1 and output.splitlines()[1:] == ["flood.max: 64 -> 32"], f"diff: {code} {output} {errors}")


async def range_(world):
    """Who is in range, the way of an advert, the board's variables, and who may administer a repeater."""
    world.needs_firmware()
    await world.mesh("ARQ", "AR AQ RQ")
    await world.start_gateway()
    await world.meet("R", "Q")
    found = (await world.rows("radio", "survey", "--seconds", "20"))[0]["nodes"]
    world.tell(f"in range: {[(node['name'], node['snr'], node['snr_there']) for node in found]}")
    world.expect(sorted(node["name"] for node in found) == sorted([NAMES["R"], NAMES["Q"]]), str(found))
    world.expect(all(len(node["key"]) == 64 and node["type"] == "repeater" for node in found), str(found))
    way = (await world.rows("contact", "path", NAMES["R"], "--advert"))[0]
    world.expect("heard_at" in way and way["hops"] <= 1, str(way))
    world.tell(f"the last advert came by {way['hops']} hops")
    code, output, errors = await world.run("radio", "variables")
    world.expect(code == 0, f"variables: {output} {errors}")
    code, output, errors = await world.run("radio", "variables", "nosuch=1")
    world.expect(code != 0 and "no variable" in errors, f"{code} {output} {errors}")
    code, output, errors = await world.run("node", "login", NAMES["R"], password="password")
    world.expect(code == 0, f"login: {code} {output} {errors}")
    entries = (await world.rows("node", "access", NAMES["R"]))[0]["entries"]
    own = (await world.status())["radio"]["identity"]["key"]
    world.tell(f"access list: {[(entry['key'], entry['role']) for entry in entries]}")
    world.expect([(entry["key"], entry["role"]) for entry in entries] == [(own[:12], "admin")], str(entries))


async def ledger(world):
    """The ledger of air time says what the radio's own counter says. Nothing of this world makes the radio send by itself: nobody writes to it."""
    world.needs_firmware()
    await world.mesh("ABR", "AB AR BR")
    await world.start_gateway(extra="[messaging]\nairtime_per_hour_s = 3600\nchannel_airtime_per_hour_s = 3600\nbusy_percent = 100")

    async def counted():
        answer = (await world.rows("airtime"))[0]
        ours = sum(hour["sent_ms"] for hour in answer["hours"])
        return ours / 1000, (await world.rows("radio", "info"))[0]["stats"]["airtime_s"], answer
    ours, theirs, _ = await counted()
    for number in range(20):
        await world.send("Public", f"number {number} " + "x" * (number * 6))
        await asyncio.sleep(2)
    await world.run("radio", "advert", "--flood")
    await asyncio.sleep(6)
    later, counter, answer = await counted()
    ours, theirs = later - ours, counter - theirs
    heard = sum(hour["heard_ms"] for hour in answer["hours"]) / 1000
    world.tell(f"the ledger says {ours:.1f} s, the radio {theirs} s; heard {heard:.1f} s, use {answer['channel_use_percent']} %")
    # The counter is in whole seconds, and the preamble of the advert is that of a packet of unknown length.
    world.expect(theirs > 10 and abs(ours - theirs) <= 1 + 0.03 * theirs, f"{ours} {theirs}")
    world.expect(heard > 0, "repeats were not heard")


async def regions(world):
    """A repeater that carries one region and no flood without one; it says so; and a radio that does not know a region sends nothing."""
    world.needs_firmware()
    await world.mesh("ARC", "AR RC")
    cedar = await world.client("C")
    await world.start_gateway()
    await world.meet("C", "R")
    orders = ["region put valley", "region allowf valley", "region denyf *", "region save"]
    world.tell(" ".join([(await world.console("R", line)).strip() for line in orders]))
    await world.send("Public", "to nobody")
    await asyncio.sleep(8)
    nobody = await cedar.take()
    code, output, errors = await world.run("channel", "region", "Public", "valley")
    world.expect(code == 0, f"region: {output} {errors}")
    await world.send("Public", "to the valley")
    await asyncio.sleep(8)
    valley = await cedar.take()
    world.expect(not nobody and len(valley) == 1, f"{nobody} {valley}")
    await world.run("channel", "region", "Public", "default")
    code, output, errors = await world.run("node", "regions", "Ridge")
    world.expect(code == 0 and output.strip() == "valley", f"node regions: {code} {output} {errors}")
    code, around, errors = await world.run("radio", "regions")
    world.expect(code == 0 and "Ridge" in around and "valley" in around, f"radio regions: {code} {around} {errors}")
    # What Cedar answers is flooded in its own region.
    key = hashlib.sha256(b"#valley").digest()[:16]
    world.expect(await cedar.ask(bytes([63]) + b"valley".ljust(31, b"\0") + key) == bytes([0]), "Cedar has no region")
    sent = []
    for region in ("valley", "hills"):
        await world.run("contact", "path", NAMES["C"], "--reset")
        code, _, errors = await world.run("send", NAMES["C"], f"to the {region}", "--region", region, "--wait")
        sent.append((region, code))
    world.expect(sent[0][1] == 0 and sent[1][1] == 75, str(sent))
    code, _, errors = await world.run("send", "Public", "to none", "--region", "none", "--wait")
    knows = (await world.status())["radio"]["identity"]["version"] >= "v1.16"
    world.expect(code == (0 if knows else 76) and (knows or "region_unknown" in errors + _), f"to none: {code} {_} {errors}")
    await asyncio.sleep(5)
    arrived = await cedar.take()
    world.expect("to the valley" in arrived and all(text.endswith("to the valley") for text in arrived), str(arrived))
    world.tell(f"unscoped is dropped, valley passes; a message to none: {'sent' if knows else 'not sent'}")


async def path(world):
    """The repeater of the path dies, and another is there."""
    world.needs_firmware()
    await world.mesh("ARQC", "AR RC AQ QC RQ")
    cedar = await world.client("C")
    await world.start_gateway()
    await world.meet("C")
    sent = [("by some way", (await world.send("C", "by some way"))["state"])]
    rows = {row["name"]: row for row in await world.rows("contacts")}
    hop = str(rows["Cedar"].get("path", rows["Cedar"].get("out_path")))
    # A path is the first bytes of its repeaters' keys.
    dead = next((letter for letter in "RQ" if world.air.nodes[letter].key[:2] in hop), "R")
    await world.air.nodes[dead].stop()
    state = await world.send("C", "by the other way", timeout=400)
    sent.append(("by the other way", state["state"]))
    world.tell(f"path {hop}, {NAMES[dead]} died: {state['state']} after {state['attempts']} attempts, {state.get('floods')} floods")
    await judge(world, cedar, sent)
    world.expect(state["state"] == DELIVERED, str(state))


async def burst(world):
    """More at once than the radio has room for: sixteen packets. Nothing fails for that, and nothing is lost."""
    await world.mesh("AB", "AB")
    birch = await world.client("B")
    await world.start_gateway(extra="[messaging]\nairtime_per_hour_s = 3600\nchannel_airtime_per_hour_s = 3600")
    await world.meet("B")
    await asyncio.gather(*(world.run("send", "Public", f"at once {number}") for number in range(24)))
    ended = ("sent", "failed", "delivered")
    await world.until(lambda: all_are(world, 24, ended), 200, "all to end")
    states = [row["state"] for row in await world.rows("sent", "list", "--limit", "100")]
    await asyncio.sleep(15)
    got = await birch.take()
    world.tell(f"{states.count('sent')} of 24 sent, {len(got)} arrived, reasons {await reasons(world)}")
    world.expect(states.count("sent") == 24, str(states))


async def recorded(world):
    """Traces: channel texts and a full packet pool; acknowledgements that collide."""
    world.needs_firmware()
    await world.mesh("ABR", "AB AR", link="tcp")
    alder, birch = await world.client("A"), await world.client("B")
    await birch.advertise()
    await asyncio.sleep(6)
    await alder.advertise()
    await asyncio.sleep(6)
    start = len(alder.trace)
    refusals = [await alder.ask(bytes([3, 0, 0]) + (int(time.time()) + number).to_bytes(4, "little") + b"one of many") for number in range(20)]
    world.tell(f"{refusals.count(bytes([0]))} of 20 channel texts fit, then {refusals[-1].hex()}")
    world.write_trace("channel_send_pool_exhausted", alder, start)
    await asyncio.sleep(40)

    start, codes = len(alder.trace), []
    await alder.begin()
    for number in range(6):
        await alder.ask(bytes([13]) + birch.key)
        codes.append(await alder.send(birch.key, f"crossed {number}"))
        await asyncio.sleep(6)
    got = await birch.take()
    world.tell(f"{sum(code in alder.confirmed() for code in codes)} of 6 confirmed, {sum(text.startswith('crossed') for text in got)} arrived")
    world.write_trace("dm_send_hidden_repeater", alder, start)


async def all_are(world, count, states):
    rows = await world.rows("sent", "list", "--limit", "100")
    return len(rows) == count and all(row["state"] in states for row in rows)


async def reasons(world):
    return sorted({row["reason"] for row in await world.rows("sent", "list", "--limit", "100") if row.get("reason")})


ALL = {each.__name__.rstrip("_"): each for each in (direct, repeater, channel, loss, burst, recorded, hidden, queue, tcp, clock, full, reboot, identity, room, admin, settings, range_, ledger, regions, path)}
