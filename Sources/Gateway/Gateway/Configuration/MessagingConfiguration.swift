// SPDX-License-Identifier: MIT

import Companion
import Delivery
import Messaging
import OwnFiles
import Store
import TOML

/// `[messaging]` and `[[poll]]`.
public struct MessagingConfiguration: Sendable {
  public var messenger = Messenger.Settings()
  public var routine = NodePolling.Settings()
  public var credentialsFile: String
  public var keeper = ContactEviction.Settings()

  init(reading table: inout TOMLReader, store: String) {
    var delivery = DeliverySettings()
    delivery.maxAttempts = Int(table.integer("attempts", in: 1...16, default: 4))
    delivery.floodAfter = Int(table.integer("flood_after", in: 0...16, default: 2))
    delivery.maxFloods = Int(table.integer("floods", in: 0...8, default: 2))
    delivery.timeoutFactor = Double(table.integer("timeout_percent", in: 100...1000, default: 120)) / 100
    delivery.maxInFlight = Int(table.integer("in_flight", in: 1...8, default: 8))
    delivery.repeatsUnheard = table.bool("repeat_unheard", default: false)
    delivery.discoversPaths = table.bool("path_discovery", default: true)
    if delivery.floodAfter == 0, delivery.maxFloods == 0 {
      table.note("floods", "flood_after = 0 and floods = 0 allow no attempt")
    }
    let seconds = table.integer("airtime_per_hour_s", in: 1...3600, default: 180)
    delivery.budget.airtime = seconds * 1000
    // As many for each second as by default: who allows more air time wants it to be used.
    let messages = table.integer("messages_per_hour", in: 1...3600, default: min(max(600, seconds * 10 / 3), 3600))
    delivery.budget.messages = Int(messages)
    delivery.budget.channelAirtime = table.integer("channel_airtime_per_hour_s", in: 1...3600, default: 60) * 1000
    delivery.budget.channelMessages = Int(table.integer("channel_messages_per_hour", in: 1...3600, default: 60))
    delivery.busyPercent = Int(table.integer("busy_percent", in: 1...100, default: 25))
    messenger.delivery = delivery
    messenger.maxWaiting = Int(table.integer("queue", in: 1...10_000, default: 1000))
    messenger.lifetime = .seconds(3600 * table.integer("lifetime_h", in: 1...720, default: 24))
    routine.roomInterval = .seconds(60 * table.integer("room_interval_min", in: 0...10_080, default: 60))
    let credentials = table.string("credentials_file")
    if let credentials, !credentials.hasPrefix("/") {
      table.note("credentials_file", "\"\(credentials)\" is not absolute")
    }
    credentialsFile = credentials ?? OwnSuffix.credentials.of(store)
  }

  /// `[contacts]`.
  mutating func readContacts(_ table: inout TOMLReader) {
    keeper.evicts = table.bool("evict", default: true)
    keeper.keepFree = Int(table.integer("keep_free", in: 1...100, default: 10))
    keeper.minimumAge = .seconds(86_400 * table.integer("min_age_days", in: 0...3650, default: 2))
    guard let words = table.optionalStrings("types") else { return }
    let known: [String: NodeType] = ["chat": .chat, "repeater": .repeater, "room": .room, "sensor": .sensor]
    for word in words where known[word] == nil {
      table.note("types", "\"\(word)\" is not allowed: chat, repeater, room, sensor")
    }
    keeper.types = Set(words.compactMap { known[$0]?.rawValue })
  }

  /// `[radio]`: when the gateway advertises the radio.
  static func advert(_ table: inout TOMLReader) -> SelfAdvert.Settings {
    var advert = SelfAdvert.Settings()
    advert.whenNew = table.bool("advert_when_new", default: false)
    advert.every = .seconds(3600 * table.integer("advert_every_h", in: 0...720, default: 0))
    return advert
  }

  static let maxPolls = 64

  mutating func readPolls(_ root: inout TOMLReader) {
    for var table in root.tables("poll") {
      let node = table.string("node")
      if node == nil || node == "" { table.note("node", "the name or key of a node is required") }
      let kind = table.choice("kind", of: NodePolling.Poll.Kind.allCases.map(\.rawValue), default: "telemetry")
      let minutes = table.integer("every_min", in: 1...10_080, default: 60)
      if routine.polls.count >= Self.maxPolls { table.note("node", "more than \(Self.maxPolls) polls") }
      table.finish()
      root.note(table.errors)
      guard let node, let kind = NodePolling.Poll.Kind(rawValue: kind) else { continue }
      routine.polls.append(NodePolling.Poll(node: node, kind: kind, every: .seconds(60 * minutes)))
    }
  }
}
