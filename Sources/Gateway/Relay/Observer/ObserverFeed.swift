// SPDX-License-Identifier: MIT

import Companion
import Glibc
import JSON
import MQTT
import MeshCrypto
import Store

/// Encodes every packet that the radio heard for analyzers and maps of the mesh. Values are texts, and keys have the spelling that they expect.
/// Source: docs/mqtt.md, "Observer feed".
struct ObserverFeed {
  let settings: UpstreamSettings.MQTTSettings.Observer
  /// The attached radio's token permits only packets of this radio.
  let isSigned: Bool
  let client: String
  let facts: RadioFacts

  /// The radio that a message is about.
  private struct Origin {
    var key: String
    var name: String
  }

  private var present: Origin { Origin(key: facts.key.uppercased(), name: facts.name) }

  private func topic(_ name: String, of origin: Origin) -> String {
    "meshcore/\(settings.iata)/\(origin.key)/\(name)"
  }

  // MARK: Packets

  /// Empty for other events, and for packets of another radio if the token permits only this one's.
  func messages(for event: JournalEvent, _ store: Store) -> [MQTTMessage] {
    // `try?`: damaged bytes are no packet.
    guard event.kind == EventKind.packet.rawValue, let body = event.json,
      let raw = body["raw"]?.string, let bytes = Hex.bytes(raw), let packet = try? Packet(decoding: bytes),
      let origin = origin(of: body, store)
    else { return [] }
    var messages = [
      MQTTMessage(
        topic: topic("packets", of: origin), payload: payload(event, body, raw, bytes.count, packet, origin))
    ]
    guard settings.sendsRaw else { return messages }
    let payload = JSONWriter.object { json in
      write(origin, at: event.at, to: &json)
      json.field("type", "RAW")
      json.field("data", raw.uppercased())
    }
    messages.append(MQTTMessage(topic: topic("raw", of: origin), payload: payload))
    return messages
  }

  /// The radio that heard the packet, which may have been replaced since.
  private func origin(of body: JSONValue, _ store: Store) -> Origin? {
    guard let radio = store.radio(inEvent: body["radio"]?.string) else { return nil }
    let key = Hex.string(radio.key.bytes)
    if key == facts.key { return present }
    return isSigned ? nil : Origin(key: key.uppercased(), name: "\(radio.name)")
  }

  private func payload(
    _ event: JournalEvent, _ body: JSONValue, _ raw: String, _ count: Int, _ packet: Packet, _ origin: Origin
  ) -> [UInt8] {
    let time = ObserverTime(milliseconds: event.at)
    return JSONWriter.object { json in
      write(origin, at: event.at, to: &json)
      json.field("type", "PACKET")
      json.field("direction", "rx")
      json.field("time", time.clock)
      json.field("date", time.date)
      json.field("len", String(count))
      json.field("packet_type", String(packet.type.rawValue))
      json.field("route", Self.letter(packet.route))
      json.field("payload_len", String(packet.payload.count))
      json.field("raw", raw.uppercased())
      json.field("SNR", body["snr"]?.number.map(Self.number) ?? "Unknown")
      json.field("RSSI", body["rssi"]?.integer.map(String.init) ?? "Unknown")
      json.field("hash", Hex.string(packet.identity).uppercased())
      if packet.route == .direct, !packet.path.isEmpty { json.field("path", Self.hops(packet)) }
    }
  }

  private func write(_ origin: Origin, at milliseconds: Int64, to json: inout JSONWriter) {
    json.field("origin", origin.name)
    json.field("origin_id", origin.key)
    json.field("timestamp", ObserverTime(milliseconds: milliseconds).stamp)
  }

  private static func letter(_ route: Packet.Route) -> String {
    switch route {
    case .flood: "F"
    case .direct: "D"
    case .transportFlood, .transportDirect: "T"
    }
  }

  private static func hops(_ packet: Packet) -> String {
    let size = max(1, packet.pathLength.bytesPerHop)
    return stride(from: 0, to: packet.path.count, by: size).map { start in
      Hex.string(Array(packet.path[start..<min(start + size, packet.path.count)]))
    }.joined(separator: ",")
  }

  /// `12.5`, `-7`: without needless digits.
  private static func number(_ value: Double) -> String {
    value == value.rounded() && abs(value) < 1e6 ? String(Int(value)) : String(value)
  }

  // MARK: Status

  func status(_ word: String, _ stats: RadioStats?, at milliseconds: Int64) -> MQTTMessage {
    let payload = JSONWriter.object { json in
      json.field("status", word)
      json.field("timestamp", ObserverTime(milliseconds: milliseconds).stamp + "+00:00")
      json.field("origin", present.name)
      json.field("origin_id", present.key)
      json.field("model", facts.model)
      json.field("firmware_version", facts.version)
      json.field("radio", radio)
      json.field("client_version", client)
      if let stats { json.objectField("stats") { Self.write(stats, to: &$0) } }
    }
    return MQTTMessage(topic: topic("status", of: present), payload: payload, retain: true)
  }

  /// `869.525,250.0,11,5`: MHz, kHz, spreading factor, coding rate.
  private var radio: String {
    let radio = facts.parameters
    return
      "\(Double(radio.frequency) / 1000),\(Double(radio.bandwidth) / 1000),\(radio.spreadingFactor),\(radio.codingRate)"
  }

  private static func write(_ stats: RadioStats, to json: inout JSONWriter) {
    json.field("battery_mv", stats.core.batteryMillivolts)
    json.field("uptime_secs", stats.core.uptime)
    json.field("queue_len", stats.core.queueLength)
    json.field("noise_floor", stats.radio?.noiseFloor)
    json.field("last_rssi", stats.radio?.lastRSSI)
    json.field("last_snr", stats.radio?.lastSNR.decibels)
    json.field("tx_air_secs", stats.radio?.secondsSent)
    json.field("rx_air_secs", stats.radio?.secondsReceived)
  }
}

/// A moment as the feed writes it, in UTC.
struct ObserverTime {
  private let milliseconds: Int64

  init(milliseconds: Int64) { self.milliseconds = max(0, milliseconds) }

  private func text(_ form: String) -> String {
    var (seconds, parts, buffer) = (time_t(milliseconds / 1000), tm(), [CChar](repeating: 0, count: 64))
    gmtime_r(&seconds, &parts)
    let count = strftime(&buffer, buffer.count, form, &parts)
    return String(decoding: buffer.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  var clock: String { text("%H:%M:%S") }
  var date: String { text("%d/%m/%Y") }
  /// `2026-11-20T12:00:00.000000`
  var stamp: String { "\(text("%Y-%m-%dT%H:%M:%S")).\(String(1000 + milliseconds % 1000).dropFirst())000" }
}
