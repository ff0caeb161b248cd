// SPDX-License-Identifier: MIT

import Foundation
import TestSupport
import Testing

extension WholeProgramTests {
  /// The data for analyzers and Home Assistant, judged by their own code.
  @Suite struct Observers {
    static let python = Checkout.folder.appending(path: ".build/home-assistant/bin/python").path()

    static let isReady = FileManager.default.fileExists(
      atPath: Checkout.folder.appending(path: ".build/home-assistant/ready").path())

    /// A broker that prints its input: CONNECT's user and password, and each publication.
    private static let broker = """
      \(Program.say)
      import base64, json, socket, sys, threading, time
      from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
      def text(data, at): size = int.from_bytes(data[at:at + 2], "big"); return data[at + 2:at + 2 + size], at + 2 + size
      def packet(file):
          head = file.read(1)
          if not head: sys.exit()
          size = shift = 0
          while True:
              byte = file.read(1)[0]; size |= (byte & 127) << shift; shift += 7
              if byte < 128: break
          return head[0], file.read(size)
      def part(text): return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
      def check(user, password):
          header, claims, signature = password.split(".")
          header_, body = part(header), part(claims)
          assert header_ == {"alg": "Ed25519", "typ": "JWT"}, header_
          assert user == "v1_" + body["publicKey"] and body["publicKey"].isupper(), user
          assert body["aud"] == "127.0.0.1" and body["owner"] == "me" and body["exp"] > time.time() > body["iat"] - 5, body
          key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(body["publicKey"]))
          key.verify(bytes.fromhex(signature), f"{header}.{claims}".encode())
      def serve(connection):
          file = connection.makefile("rb")
          kind, data = packet(file)
          version, flags = data[6], data[7]
          at = 10
          if version == 5: at += 1 + data[at]
          _, at = text(data, at)
          if flags & 4:
              if version == 5: at += 1 + data[at]
              _, at = text(data, at); _, at = text(data, at)
          user, at = text(data, at); password, at = text(data, at)
          check(user.decode(), password.decode())
          say("token verified")
          connection.sendall(bytes([0x20, 3, 0, 0, 0]))
          while True:
              kind, data = packet(file)
              if kind >> 4 == 3:
                  topic, at = text(data, 0)
                  number = data[at:at + 2]; at += 2
                  at += 1 + data[at]
                  say("got " + topic.decode() + " " + data[at:].decode())
                  connection.sendall(bytes([0x40, 2]) + number)
              elif kind >> 4 == 12: connection.sendall(bytes([0xD0, 0]))
      server = socket.create_server(("127.0.0.1", 0))
      print("port", server.getsockname()[1], flush=True)
      while True: threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
      """

    private func configure(_ rig: Rig, _ upstream: String) {
      _ = rig.scratch.write(
        "gw.toml",
        """
        [gateway]
        id = "hill"
        [radio]
        link = "\(rig.link)"
        [store]
        location = "\(rig.scratch.location("gw.db"))"
        [control]
        socket = "\(rig.socket)"
        [[upstream]]
        name = "analyzer"
        kind = "mqtt"
        \(upstream)
        """)
    }

    /// As analyzers compute it, from the facts in docs/mqtt.md, without our code.
    private static let judge = """
      import hashlib, json, re, sys
      count = 0
      for line in sys.stdin:
          topic, _, payload = line.strip().partition(" ")
          match = re.fullmatch("meshcore/([A-Z]{3})/([0-9A-F]{64})/(packets|status|raw)", topic)
          assert match, topic
          message = json.loads(payload)
          assert message["origin_id"] == match[2] and message["origin"] == "r0", message
          if match[3] != "packets": continue
          raw = bytes.fromhex(message["raw"])
          assert message["raw"] == message["raw"].upper() and message["len"] == str(len(raw))
          route, kind, at = raw[0] & 3, raw[0] >> 2 & 15, 1
          if route in (0, 3): at += 4
          length = raw[at]; hops, size = length & 63, (length >> 6) + 1
          path = raw[at + 1:at + 1 + hops * size]; body = raw[at + 1 + hops * size:]
          digest = hashlib.sha256(bytes([kind]) + (length.to_bytes(2, "little") if kind == 9 else b"") + body)
          assert message["hash"] == digest.hexdigest()[:16].upper(), message
          assert message["packet_type"] == str(kind) and message["payload_len"] == str(len(body)), message
          assert message["route"] == {0: "T", 1: "F", 2: "D", 3: "T"}[route], message
          assert ("path" in message) == (route == 2 and hops > 0), message
          assert re.fullmatch(r"\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{6}", message["timestamp"]), message
          assert float(message["SNR"]) is not None and int(message["RSSI"]) < 0, message
          count += 1
      print("packets", count)
      """

    @Test(.enabled(if: isReady, "the Python that checks it could not be prepared here"))
    func `the radio signs its token, and each packet is published as analysers compute it`() throws {
      let rig = try Rig()
      let broker = try Program(Self.python, ["-c", Self.broker])
      let port = try broker.line(with: "port ").split(separator: " ").last.map(String.init) ?? ""
      configure(
        rig,
        """
        url = "mqtt://127.0.0.1:\(port)"
        observer = true
        iata = "ZRH"
        observer_raw = true
        radio_token = true
        token_owner = "me"
        """)
      try rig.startRadio(["--contacts", "3"])
      try rig.startGateway()
      try broker.line(with: "token verified")
      try rig.waitForSync()
      for number in 1...5 { rig.radio?.write("chan r1 0 packet \(number)") }
      rig.radio?.write("advert r1")
      try untilTrue("six packets: \(broker.lines.suffix(3))") { broker.lines.count { $0.contains("/packets ") } >= 6 }
      try untilTrue("the radio's counters") { broker.lines.contains { $0.contains("\"battery_mv\"") } }
      let file = rig.scratch.write(
        "told", broker.lines.filter { $0.hasPrefix("got ") }.map { $0.dropFirst(4) + "\n" }.joined())
      let judge = try Program("/bin/sh", ["-c", "exec \(Self.python) -c '\(Self.judge)' < \(file)"])
      #expect(try judge.ended() == 0, "\(judge.lines)")
      let status = try #require(broker.lines.last { $0.contains("/status ") && $0.contains("stats") })
      #expect(status.contains(#""client_version":"meshpost/"#) && status.contains(#""status":"online""#))
      #expect(!rig.gateway!.lines.joined().contains("eyJ"), "a token is a secret")
    }

    /// Home Assistant's own schemas, and its own tables of units.
    static let schemas = """
      import json, sys
      from homeassistant.components.mqtt import binary_sensor, sensor
      from homeassistant.components.sensor import DEVICE_CLASS_STATE_CLASSES, DEVICE_CLASS_UNITS
      schemas, seen = {"sensor": sensor.DISCOVERY_SCHEMA, "binary_sensor": binary_sensor.DISCOVERY_SCHEMA}, {}
      for line in sys.stdin:
          topic, _, payload = line.strip().partition(" ")
          parts = topic.split("/")
          if parts[0] != "homeassistant" or parts[-1] != "config": continue
          if parts[1] not in schemas: continue
          config = schemas[parts[1]](json.loads(payload))
          if parts[1] == "sensor" and (kind := config.get("device_class")):
              assert config["unit_of_measurement"] in DEVICE_CLASS_UNITS[kind], (topic, payload)
              assert config["state_class"] in DEVICE_CLASS_STATE_CLASSES[kind], (topic, payload)
          seen[parts[1]] = seen.get(parts[1], 0) + 1
      print("valid", seen)
      """

    @Test(.enabled(if: isReady, "Home Assistant could not be prepared here"))
    func `the discovery messages pass Home Assistant's own schemas`() throws {
      let rig = try Rig()
      // With only a WebSocket this mosquitto reports that it does not listen.
      let (free, taken) = try LoopbackPort.take()
      close(free)
      let broker = try TestBroker(
        rig, extra: "\(TestBroker.anonymous)\nlistener \(taken) 127.0.0.1\nprotocol websockets")
      configure(
        rig,
        """
        url = "ws://127.0.0.1:\(taken)/mqtt"
        allow = ["send"]
        home_assistant = true
        home_assistant_notify = ["Public"]
        """)
      try rig.startRadio()
      try rig.startGateway()
      try rig.waitForSync()
      try broker.program?.line(with: "homeassistant/sensor/meshpost_hill/messages_today/config")
      // Read back by a foreign client, over the same WebSocket.
      let reader = try Program(Self.python, ["-c", Self.reader, "\(taken)"])
      try reader.line(with: "homeassistant/meshpost/meshpost_hill/radio {")
      reader.kill9()
      let words = try Self.judge(reader.lines, in: rig)
      #expect(words.contains("'sensor': 8") && words.contains("'binary_sensor': 3"), "\(words)")
      let state = try #require(reader.lines.last { $0.contains("meshpost_hill/radio ") })
      #expect(state.contains(#""link":"up""#) && state.contains(#""battery_mv""#))
    }

    /// Checks lines of topic and payload as Home Assistant does; returns the number of descriptions of each kind.
    static func judge(_ lines: [String], in rig: Rig) throws -> String {
      let told = rig.scratch.write("told", lines.map { $0 + "\n" }.joined())
      let judge = try Program("/bin/sh", ["-c", "exec \(python) -c '\(schemas)' < \(told)"])
      #expect(try judge.ended() == 0, "\(judge.lines.suffix(5))")
      print("Home Assistant: \(judge.lines.last ?? "")")
      return judge.lines.last ?? ""
    }

    private static let reader = """
      import asyncio, sys
      import aiohttp
      def field(data): return len(data).to_bytes(2, "big") + data
      async def main():
          async with aiohttp.ClientSession() as session:
              async with session.ws_connect(f"http://127.0.0.1:{sys.argv[1]}/mqtt", protocols=["mqtt"]) as socket:
                  hello = field(b"MQTT") + bytes([4, 2, 0, 60]) + field(b"reader")
                  await socket.send_bytes(bytes([0x10, len(hello)]) + hello)
                  wish = bytes([0, 1]) + field(b"#") + b"\\0"
                  await socket.send_bytes(bytes([0x82, len(wish)]) + wish)
                  data = b""
                  async for message in socket:
                      data += message.data
                      while len(data) > 1:
                          size = shift = 0; at = 1
                          while at < len(data):
                              byte = data[at]; size |= (byte & 127) << shift; shift += 7; at += 1
                              if byte < 128: break
                          if len(data) < at + size: break
                          body, kind, data = data[at:at + size], data[0], data[at + size:]
                          if kind >> 4 == 3:
                              size = int.from_bytes(body[:2], "big")
                              print(body[2:2 + size].decode(), body[2 + size:].decode(), flush=True)
      asyncio.run(main())
      """
  }
}
