"""A MeshCore-like radio on a virtual Bluetooth controller, and the controller that BlueZ drives.

Each write to the radio's RX characteristic is one companion frame to the backend, each frame from the
backend one notification. The backend is a companion radio on TCP ($BENCH_BACKEND, HOST:PORT, with the
serial framing); without one the radio echoes every frame. Control: lines written to /run/bench/radio.ctl
    drop                 cut the link, as a radio that went out of range
    silence / advertise  stop and start advertising
    delay MS             hold each notification back
    deaf / hear          stop answering frames, and start again
    unpair               forget the bond, as a radio that was reset
"""
import asyncio
import os

from bumble.controller import Controller
from bumble.core import UUID, AdvertisingData
from bumble.device import Device
from bumble.gatt import Characteristic, CharacteristicValue, Service
from bumble.hci import (
    HCI_REMOTE_USER_TERMINATED_CONNECTION_ERROR,
    HCI_UNKNOWN_CONNECTION_IDENTIFIER_ERROR,
    Address,
    HCI_LE_Connection_Complete_Event,
    LeFeatureMask,
)
from bumble.host import Host
from bumble.link import LocalLink
from bumble.pairing import PairingConfig, PairingDelegate
from bumble.transport import open_transport

UART, RX, TX = (f"6E40000{n}-B5A3-F393-E0A9-E50E24DCCA9E" for n in (1, 2, 3))
NAME, ADDRESS = os.environ.get("BENCH_NAME", "MeshCore-BENCH"), "C0:FF:EE:00:00:01"
PIN = int(os.environ.get("BENCH_PIN", "123456"))


class Adapter(Controller):
    """BlueZ's adapter: bumble's controller, with what the kernel's way of connecting needs besides.

    It has its public address alone, whatever random one the kernel sets; it connects by the filter
    accept list; and a connection attempt that is cancelled ends.
    """

    @property
    def random_address(self):
        return self._public_address

    @random_address.setter
    def random_address(self, address):
        pass

    accepted = ()

    def on_hci_le_clear_filter_accept_list_command(self, command):
        self.accepted = ()
        return super().on_hci_le_clear_filter_accept_list_command(command)

    def on_hci_le_add_device_to_filter_accept_list_command(self, command):
        self.accepted += (command.address,)
        return super().on_hci_le_add_device_to_filter_accept_list_command(command)

    def on_hci_le_remove_device_from_filter_accept_list_command(self, command):
        self.accepted = tuple(a for a in self.accepted if a != command.address)
        return super().on_hci_le_remove_device_from_filter_accept_list_command(command)

    def on_hci_le_create_connection_command(self, command):
        if command.initiator_filter_policy == 1 and self.accepted:
            command.peer_address = self.accepted[-1]
        return super().on_hci_le_create_connection_command(command)

    def on_hci_le_create_connection_cancel_command(self, command):
        if pending := self.pending_le_connection:
            self.pending_le_connection = None
            asyncio.get_running_loop().call_soon(self.send_hci_packet, HCI_LE_Connection_Complete_Event(
                status=HCI_UNKNOWN_CONNECTION_IDENTIFIER_ERROR, connection_handle=0, role=0,
                peer_address_type=pending.peer_address.address_type, peer_address=pending.peer_address,
                connection_interval=0, peripheral_latency=0, supervision_timeout=0, central_clock_accuracy=0))
        return super().on_hci_le_create_connection_cancel_command(command)


class PinDisplay(PairingDelegate):
    def __init__(self):
        key = PairingDelegate.KeyDistribution
        # Only the radio hands out a key, and none to resolve private addresses: it has a static one.
        super().__init__(PairingDelegate.IoCapability.DISPLAY_OUTPUT_ONLY, key(0), key.DISTRIBUTE_ENCRYPTION_KEY)

    async def generate_passkey(self):
        return PIN

    async def display_number(self, number, digits):
        print(f"PIN on the radio's display: {number:06}", flush=True)


class BondedDevice(Device):
    """After a legacy pairing, bumble 0.0.236 looks up the central's own key; the one to answer with is the radio's.

    While it pairs, the key is that of the pairing, whatever bond there was before.
    """

    async def get_long_term_key(self, connection_handle, rand, ediv):
        connection = self.lookup_connection(connection_handle)
        if connection and (key := self.smp_manager.get_long_term_key(connection, rand, ediv)):
            return key
        keys = connection and await self.keystore.get(str(connection.peer_address))
        if keys and keys.ltk_central:
            return keys.ltk_central.value
        return await super().get_long_term_key(connection_handle, rand, ediv)


class Radio:
    def __init__(self, device):
        self.device, self.delay, self.deaf, self.backend = device, 0.0, False, None
        self.notifications = asyncio.Queue()
        allow = Characteristic.Permissions
        does = Characteristic.Properties
        self.tx = Characteristic(TX, does.NOTIFY | does.READ, allow.READABLE | allow.READ_REQUIRES_AUTHENTICATION, b"")
        # ESP32 boards take writes with response only, nRF52 boards both.
        writes = does.WRITE if os.environ.get("BENCH_ESP32") else does.WRITE | does.WRITE_WITHOUT_RESPONSE
        rx = Characteristic(RX, writes,
                            allow.WRITEABLE | allow.WRITE_REQUIRES_AUTHENTICATION, CharacteristicValue(write=self.on_write))
        device.add_service(Service(UART, [rx, self.tx]))
        self.silent = False
        device.on("connection", self.on_connection)
        device.pairing_config_factory = lambda _: PairingConfig(sc=False, mitm=True, bonding=True, delegate=PinDisplay())

    def on_connection(self, connection):
        print("connected", flush=True)
        connection.on("disconnection", lambda reason: self.on_disconnection(reason))

    def on_disconnection(self, reason):
        print(f"disconnected: {reason}", flush=True)
        if not self.silent:
            asyncio.get_running_loop().create_task(self.readvertise())

    async def readvertise(self):
        """The radio advertises again a second after its client left, whoever ended the connection."""
        await asyncio.sleep(1)
        try:
            await self.device.stop_advertising()
        finally:
            await self.advertise()
        print("advertising", flush=True)

    async def advertise(self):
        # As the firmware: the service in the advertisement, the name in the scan response. Here the first 8 letters of the
        # name as well: what fits.
        flags, short = (AdvertisingData.FLAGS, b"\x06"), (AdvertisingData.SHORTENED_LOCAL_NAME, NAME.encode()[:8])
        uart = (AdvertisingData.COMPLETE_LIST_OF_128_BIT_SERVICE_CLASS_UUIDS, bytes(UUID(UART)))
        self.device.advertising_data = bytes(AdvertisingData([flags, uart, short]))
        self.device.scan_response_data = bytes(
            AdvertisingData([(AdvertisingData.COMPLETE_LOCAL_NAME, NAME.encode())]))
        await self.device.start_advertising(auto_restart=False)

    async def on_write(self, connection, frame):
        print(f"frame to radio: {bytes(frame).hex()}", flush=True)
        if self.deaf:
            return
        if self.backend:
            self.backend.write(b"<" + len(frame).to_bytes(2, "little") + bytes(frame))
        else:
            self.notifications.put_nowait(bytes(frame))

    async def notify(self):
        while True:
            frame = await self.notifications.get()
            await asyncio.sleep(self.delay)
            print(f"frame from radio: {frame.hex()}", flush=True)
            await self.device.notify_subscribers(self.tx, frame)

    async def follow_backend(self, host, port):
        while True:
            try:
                reader, self.backend = await asyncio.open_connection(host, port)
                while True:
                    while await reader.readexactly(1) != b">":
                        pass
                    length = int.from_bytes(await reader.readexactly(2), "little")
                    self.notifications.put_nowait(await reader.readexactly(length))
            except (OSError, asyncio.IncompleteReadError):
                self.backend = None
                await asyncio.sleep(0.2)

    async def obey(self, line):
        verb, *rest = line.split()
        if verb == "drop":
            for connection in list(self.device.connections.values()):
                await connection.disconnect(HCI_REMOTE_USER_TERMINATED_CONNECTION_ERROR)
        elif verb == "silence":
            self.silent = True
            await self.device.stop_advertising()
        elif verb == "advertise":
            self.silent = False
            await self.advertise()
        elif verb == "delay":
            self.delay = int(rest[0]) / 1000
        elif verb in ("deaf", "hear"):
            self.deaf = verb == "deaf"
        elif verb == "unpair":
            await self.device.keystore.delete_all()
        print(f"control: {line}", flush=True)


async def main():
    link = LocalLink()
    async with await open_transport("vhci") as (source, sink):
        adapter = Adapter("adapter", host_source=source, host_sink=sink, link=link, public_address="F0:F1:F2:F3:F4:F5")
        # With either, Linux waits for an "enhanced" event that bumble does not send: it takes connections for pending, and
        # cannot end them.
        adapter.le_features &= ~(LeFeatureMask.LL_PRIVACY | LeFeatureMask.LE_EXTENDED_ADVERTISING)
        host = Host()
        host.controller = Controller("radio", link=link, public_address=ADDRESS)
        radio = Radio(BondedDevice(name=NAME, address=Address(ADDRESS), host=host))
        await radio.device.power_on()
        await radio.advertise()
        asyncio.create_task(radio.notify())
        if backend := os.environ.get("BENCH_BACKEND"):
            asyncio.create_task(radio.follow_backend(*backend.rsplit(":", 1)))
        os.mkfifo("/run/bench/radio.ctl")
        control = asyncio.StreamReader()
        pipe = os.fdopen(os.open("/run/bench/radio.ctl", os.O_RDWR), "rb", 0)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(control), pipe)
        open("/run/bench/ready", "w").close()
        while line := (await control.readline()).decode().strip():
            try:
                await radio.obey(line)
            except Exception as error:  # a control line that fails must not end the radio
                print(f"control failed: {line}: {error!r}", flush=True)


asyncio.run(main())
