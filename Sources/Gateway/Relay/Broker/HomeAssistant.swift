// SPDX-License-Identifier: MIT

import Companion
import JSON
import MQTT
import Store

/// Describes nodes and the gateway to Home Assistant: retained descriptions of entities, and retained states of nodes.
/// Source: Home Assistant's MQTT discovery.
struct HomeAssistant {
  /// Describes a number: its displayed name, unit, and Home Assistant's classes.
  private struct Measure {
    var name: String
    var unit: String?
    var deviceClass: String?
    var stateClass = "measurement"
  }

  /// The most entities to remember as described; beyond it they are described again, which is harmless.
  private static let maxDescribed = 4096

  /// Home Assistant's `discovery_prefix`.
  let prefix: String
  /// Nodes and channels that get an entity for sending.
  let notify: [String]
  /// The upstream's filter includes alerts.
  let showsAlerts: Bool
  let gateway: String
  let statusTopic: String
  let commandTopic: String?
  /// The topics of published descriptions.
  private(set) var described: Set<String> = []

  /// Ids of devices and entities have letters, digits, `-` and `_`.
  private static func id(_ text: String) -> String {
    String(
      text.unicodeScalars.map { scalar -> Character in
        let isPlain = scalar.isASCII && (Character(scalar).isLetter || Character(scalar).isNumber)
        return isPlain || scalar == "-" || scalar == "_" ? Character(scalar) : "_"
      })
  }

  private var ownDevice: String { "meshpost_\(Self.id(gateway))" }

  // MARK: The gateway

  /// Sent at each connection: the entities of the gateway, its radio and its alerts, and the entities for sending.
  mutating func greeting(_ store: Store) -> [MQTTMessage] {
    described = []
    let isThere = describe(
      state: "online", "Connected", "connectivity", at: statusTopic, "value_json.status", "online", "offline")
    let alerts = showsAlerts ? [problem, alerts(store)] : noAlerts
    return [isThere] + radioEntities() + alerts + notify.compactMap(describe(recipient:))
  }

  // MARK: Alerts

  private var alertTopic: String { "\(prefix)/meshpost/\(ownDevice)/alerts" }

  /// Whether an alert is open; the open alerts are its attributes.
  private var problem: MQTTMessage {
    describe(
      state: "alerts", "Alerts", "problem", at: alertTopic, "'ON' if value_json.open > 0 else 'OFF'",
      hasAttributes: true)
  }

  /// An empty description removes an entity: an earlier configuration may have described it.
  private var noAlerts: [MQTTMessage] {
    [problem.topic, alertTopic].map { MQTTMessage(topic: $0, payload: [], retain: true) }
  }

  /// Home Assistant keeps attributes of up to 16 KiB.
  private static let mostAlerts = 32
  private static let mostBytes = 14_000
  /// The highest count.
  private static let mostOpen = 1024
  /// Bytes of an alert, without its texts.
  private static let envelope = 160

  private func alerts(_ store: Store) -> MQTTMessage {
    let open = store.ifReadable { try store.alerts(openOnly: true, limit: Self.mostOpen) } ?? []
    let payload = JSONWriter.object { json in
      json.field("open", open.count)
      json.arrayField("alerts") { json in
        var bytes = 0
        for alert in open.prefix(Self.mostAlerts) {
          let words = [alert.text, alert.subject, alert.acknowledgedBy ?? ""]
          bytes += words.reduce(Self.envelope) { $0 + $1.utf8.count }
          if bytes > Self.mostBytes { break }
          json.object { json in
            json.field("rule", alert.rule)
            json.field("subject", alert.subject.isEmpty ? nil : alert.subject)
            json.field("text", alert.text)
            json.field("since", alert.beganAt)
            json.field("acknowledged_by", alert.acknowledgedBy)
          }
        }
      }
    }
    return MQTTMessage(topic: alertTopic, payload: payload, retain: true)
  }

  private var radioTopic: String { "\(prefix)/meshpost/\(ownDevice)/radio" }

  private func radioEntities() -> [MQTTMessage] {
    [describe(state: "radio_link", "Radio link", "connectivity", at: radioTopic, "value_json.link", "up", "down")]
      + Self.radioMeasures.map { field, measure in
        describe(
          measure, ownDevice, field, at: radioTopic, "value_json.\(field) | default(None)", writeOwnDevice)
      }
  }

  /// The state of the gateway's own radio. `stats`: `nil` while the radio is disconnected.
  func state(_ stats: RadioStats?, _ facts: RadioFacts?, _ store: Store, at milliseconds: Int64) -> [MQTTMessage] {
    // If the count cannot be read, the message leaves it out.
    let today = store.ifReadable { try store.messageCount(since: milliseconds - milliseconds % 86_400_000) }
    let payload = JSONWriter.object { json in
      json.field("link", stats == nil ? "down" : "up")
      json.field("name", facts?.name)
      json.field("battery_mv", stats?.core.batteryMillivolts)
      json.field("uptime_s", stats?.core.uptime)
      json.field("queue", stats?.core.queueLength)
      json.field("noise_floor_dbm", stats?.radio?.noiseFloor)
      json.field("last_rssi_dbm", stats?.radio?.lastRSSI)
      json.field("last_snr", stats?.radio?.lastSNR.decibels)
      json.field("airtime_s", stats?.radio?.secondsSent)
      json.field("messages_today", today)
    }
    return [MQTTMessage(topic: radioTopic, payload: payload, retain: true)]
  }

  private func describe(recipient target: String) -> MQTTMessage? {
    guard let commandTopic else { return nil }
    return describe("notify", ownDevice, "send_\(Self.id(target))") { json in
      json.field("name", "Send to \(target)")
      json.field("command_topic", commandTopic)
      json.field(
        "command_template",
        #"{"id":"{{ now().timestamp() }}","command":"send","to":\#(JSONValue.string(target).text),"text":{{ value | tojson }}}"#
      )
      json.field("qos", 1)
      writeAvailability(to: &json)
      writeOwnDevice(to: &json)
    }
  }

  private func writeOwnDevice(to json: inout JSONWriter) {
    json.objectField("device") { json in
      json.arrayField("identifiers") { $0.value(ownDevice) }
      json.field("name", "Meshpost \(gateway)")
      json.field("manufacturer", "Meshpost")
      json.field("model", "MeshCore gateway")
    }
  }

  private func writeAvailability(to json: inout JSONWriter) {
    json.field("availability_topic", statusTopic)
    json.field("availability_template", "{{ value_json.status }}")
  }

  private func describe(
    _ component: String, _ device: String, _ object: String, _ fields: (inout JSONWriter) -> Void
  ) -> MQTTMessage {
    let payload = JSONWriter.object { json in
      json.field("unique_id", "\(device)_\(object)")
      fields(&json)
    }
    return MQTTMessage(
      topic: "\(prefix)/\(component)/\(device)/\(object)/config", payload: payload, retain: true)
  }

  /// One of two states of the gateway. The gateway's own presence cannot depend on it.
  private func describe(
    state object: String, _ name: String, _ deviceClass: String, at topic: String, _ value: String, _ on: String? = nil,
    _ off: String? = nil, hasAttributes: Bool = false
  ) -> MQTTMessage {
    describe("binary_sensor", ownDevice, object) { json in
      json.field("name", name)
      json.field("device_class", deviceClass)
      json.field("entity_category", "diagnostic")
      json.field("state_topic", topic)
      json.field("value_template", "{{ \(value) }}")
      json.field("payload_on", on)
      json.field("payload_off", off)
      json.field("json_attributes_topic", hasAttributes ? topic : nil)
      if topic != statusTopic { writeAvailability(to: &json) }
      writeOwnDevice(to: &json)
    }
  }

  private func describe(
    _ measure: Measure, _ device: String, _ object: String, at topic: String, _ value: String,
    _ writeDevice: (inout JSONWriter) -> Void
  ) -> MQTTMessage {
    describe("sensor", device, object) { json in
      json.field("name", measure.name)
      json.field("unit_of_measurement", measure.unit)
      json.field("device_class", measure.deviceClass)
      json.field("state_class", measure.stateClass)
      json.field("state_topic", topic)
      json.field("value_template", "{{ \(value) }}")
      writeAvailability(to: &json)
      writeDevice(&json)
    }
  }

  // MARK: Nodes

  /// A message was published. Before that a description does not count as sent: after a refusal the rest of a batch is
  /// made again.
  mutating func published(_ message: MQTTMessage) {
    guard isDescription(message) else { return }
    if described.count >= Self.maxDescribed { described = [] }
    described.insert(message.topic)
  }

  /// Another event of the same batch has described it.
  func isDescribed(_ message: MQTTMessage) -> Bool { isDescription(message) && described.contains(message.topic) }

  private func isDescription(_ message: MQTTMessage) -> Bool {
    message.retain && message.topic.hasSuffix("/config") && message.topic.hasPrefix("\(prefix)/sensor/")
  }

  /// The messages for an event: new descriptions and the node's state, or the gateway's alerts.
  func messages(for event: JournalEvent, _ store: Store) -> [MQTTMessage] {
    if event.kind == EventKind.alert.rawValue || event.kind == EventKind.power.rawValue {
      return showsAlerts ? [alerts(store)] : []
    }
    guard event.kind == EventKind.telemetry.rawValue || event.kind == EventKind.status.rawValue,
      let body = event.json, let key = body["node"]?.string, key.utf8.count == 64
    else { return [] }
    let values = event.kind == EventKind.telemetry.rawValue ? Self.readings(body) : Self.status(body)
    guard !values.isEmpty else { return [] }
    let device = "meshcore_\(Self.id(String(key.prefix(12))))"
    let stateTopic = "\(prefix)/meshpost/\(device)/\(event.kind)"
    var messages: [MQTTMessage] = []
    for (object, measure, _) in values {
      let description = describe(measure, device, object, at: stateTopic, "value_json.\(object)") { json in
        json.objectField("device") { json in
          json.arrayField("identifiers") { $0.value("meshcore_\(key)") }
          json.field("name", body["name"]?.string ?? String(key.prefix(12)))
          json.field("manufacturer", "MeshCore")
          json.field("via_device", ownDevice)
        }
      }
      if !isDescribed(description) { messages.append(description) }
    }
    let state = JSONWriter.object { json in
      for (object, _, value) in values { json.field(object, value) }
      json.field("at", event.at)
    }
    return messages + [MQTTMessage(topic: stateTopic, payload: state, retain: true)]
  }

  private typealias Value = (object: String, measure: Measure, value: Double)

  /// Several readings of one type can have the same channel: the second one is `_n2`.
  private static func readings(_ body: JSONValue) -> [Value] {
    var values: [Value] = []
    for reading in (body["readings"]?.array ?? []).prefix(64) {
      guard let type = reading["type"]?.string, let channel = reading["channel"]?.integer,
        let value = reading["value"]?.number
      else { continue }
      var object = "\(id(type))_\(channel)"
      let count = values.count { $0.object == object || $0.object.hasPrefix("\(object)_n") }
      if count > 0 { object += "_n\(count + 1)" }
      var measure = measures[type] ?? Measure(name: type)
      if channel != 1 || count > 0 { measure.name += " \(channel)\(count > 0 ? ".\(count + 1)" : "")" }
      values.append((object, measure, value))
    }
    return values
  }

  private static func status(_ body: JSONValue) -> [Value] {
    statusMeasures.compactMap { field, measure in
      (body[field]?.number).map { (field, measure, $0) }
    }
  }

  private static let measures: [String: Measure] = [
    "voltage": Measure(name: "Voltage", unit: "V", deviceClass: "voltage"),
    "current": Measure(name: "Current", unit: "A", deviceClass: "current"),
    "power": Measure(name: "Power", unit: "W", deviceClass: "power"),
    "energy": Measure(name: "Energy", unit: "kWh", deviceClass: "energy", stateClass: "total_increasing"),
    "temperature": Measure(name: "Temperature", unit: "°C", deviceClass: "temperature"),
    "humidity": Measure(name: "Humidity", unit: "%", deviceClass: "humidity"),
    "pressure": Measure(name: "Pressure", unit: "hPa", deviceClass: "atmospheric_pressure"),
    "luminosity": Measure(name: "Light", unit: "lx", deviceClass: "illuminance"),
    "distance": Measure(name: "Distance", unit: "m", deviceClass: "distance"),
    "altitude": Measure(name: "Altitude", unit: "m", deviceClass: "distance"),
    "concentration": Measure(name: "Concentration", unit: "ppm"),
    "percentage": Measure(name: "Percentage", unit: "%"),
    "frequency": Measure(name: "Frequency", unit: "Hz", deviceClass: "frequency"),
    "direction": Measure(name: "Direction", unit: "°"),
  ]

  private static let radioMeasures =
    statusMeasures + [
      ("messages_today", Measure(name: "Messages today", unit: "messages", stateClass: "total_increasing"))
    ]

  private static let statusMeasures: [(String, Measure)] = [
    ("battery_mv", Measure(name: "Battery", unit: "mV", deviceClass: "voltage")),
    ("noise_floor_dbm", Measure(name: "Noise floor", unit: "dBm", deviceClass: "signal_strength")),
    ("last_rssi_dbm", Measure(name: "Last RSSI", unit: "dBm", deviceClass: "signal_strength")),
    ("last_snr", Measure(name: "Last SNR", unit: "dB", deviceClass: "signal_strength")),
    ("queue", Measure(name: "Queue")),
    ("airtime_s", Measure(name: "Air time", unit: "s", deviceClass: "duration", stateClass: "total_increasing")),
    ("uptime_s", Measure(name: "Uptime", unit: "s", deviceClass: "duration", stateClass: "total_increasing")),
  ]
}
