#!/usr/bin/env python3
"""A client of a shared radio, on the PyPI library `meshcore` with its event loop.

    python3 clients.py --port 5000 --commands 4000 --messages 300

Gives so many mixed commands, one after the other, and looks at each answer: is it this client's, and is it right? Meanwhile it
takes messages as they are announced, until it has had so many different ones. Prints one JSON object: how many commands, what
was wrong, and the texts in the order in which they came.
"""
import argparse
import asyncio
import json
import random

from meshcore import EventType, MeshCore


class Client:
    def __init__(self, core, seed):
        self.core = core
        self.random = random.Random(seed)
        self.wrong = []
        self.texts = []
        self.keys = []

    async def take(self, event):
        self.texts.append(event.payload["text"])

    def expect(self, what, event, kind, **fields):
        """The answer is of this kind and says this."""
        got = {name: event.payload.get(name) for name in fields} if isinstance(event.payload, dict) else {}
        if event.type != kind or got != fields:
            self.wrong.append(f"{what}: {event.type} {event.payload}")

    async def channel(self):
        slot = self.random.randrange(8)
        name = "Public" if slot == 0 else f"#ch{slot}"
        event = await self.core.commands.get_channel(slot)
        self.expect(f"channel {slot}", event, EventType.CHANNEL_INFO, channel_idx=slot, channel_name=name)

    async def contact(self):
        key = self.random.choice(self.keys)
        event = await self.core.commands.get_contact_by_key(bytes.fromhex(key))
        self.expect(f"contact {key}", event, EventType.NEXT_CONTACT, public_key=key)

    async def time(self):
        self.expect("time", await self.core.commands.get_time(), EventType.CURRENT_TIME)

    async def battery(self):
        self.expect("battery", await self.core.commands.get_bat(), EventType.BATTERY)

    async def statistics(self):
        self.expect("stats", await self.core.commands.get_stats_core(), EventType.STATS_CORE)

    async def tuning(self):
        self.expect("tuning", await self.core.commands.get_tuning(), EventType.TUNING_PARAMS)

    async def start(self):
        self.expect("start", await self.core.commands.send_appstart(), EventType.SELF_INFO, name="r0")

    async def list(self):
        event = await self.core.commands.get_contacts()
        self.expect("contacts", event, EventType.CONTACTS)
        if event.type == EventType.CONTACTS and set(event.payload) != set(self.keys):
            self.wrong.append(f"contacts: {len(event.payload)} of {len(self.keys)}")

    async def refused(self):
        """The private key is nobody's business."""
        self.expect("private key", await self.core.commands.export_private_key(), EventType.ERROR)

    async def run(self, commands):
        self.keys = list((await self.core.commands.get_contacts()).payload)
        often = [self.channel, self.contact, self.time, self.battery, self.statistics, self.tuning]
        for number in range(commands):
            if number % 500 == 499:
                await self.list()
            elif number % 100 == 99:
                await self.random.choice([self.start, self.refused])()
            else:
                await self.random.choice(often)()


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--commands", type=int, default=100)
    parser.add_argument("--messages", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    core = await MeshCore.create_tcp("127.0.0.1", options.port)
    client = Client(core, options.seed)
    core.subscribe(EventType.CONTACT_MSG_RECV, client.take)
    core.subscribe(EventType.CHANNEL_MSG_RECV, client.take)
    await core.start_auto_message_fetching()
    print(json.dumps({"started": True}), flush=True)
    await client.run(options.commands)
    while len(set(client.texts)) < options.messages:
        await asyncio.sleep(0.05)
    print(json.dumps({"commands": options.commands, "wrong": client.wrong, "texts": client.texts}), flush=True)
    await core.disconnect()


asyncio.run(main())
