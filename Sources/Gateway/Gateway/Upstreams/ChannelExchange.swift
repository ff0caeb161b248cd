// SPDX-License-Identifier: MIT

import Companion
import Documents
import EventLoop
import JSON
import Messaging
import Relay
import Store
import Timing
import UntrustedText

/// Two gateways in different places, one channel: each sends the other's messages once, with a mark before them. No hub
/// and no gateway forwards a marked message, so there is no loop. Source: docs/hub-protocol.md.
final class ChannelExchange {
  struct Settings: Equatable, Sendable {
    /// `relay.messages_from_hub`
    var isOn = false
    /// Names of channels; documents can add and remove some.
    var channels: [String] = []
    /// Messages that arrive later than this after they were sent are not transmitted.
    var longestAge: Duration = .seconds(1800)
    /// Gateways whose messages are wanted; empty: all.
    var gateways: [String] = []
    /// The limit of messages a minute for each of them.
    var perMinute = 6
  }

  private let messenger: Messenger
  private let store: Store
  private let log: Log
  private let clock: WallClock
  var settings: Settings
  private var rates = SourceRates()

  init(_ settings: Settings, _ messenger: Messenger, _ store: Store, log: Log) {
    self.settings = settings
    self.messenger = messenger
    self.store = store
    self.log = log
    clock = messenger.loop.wallClock
  }

  /// Digests of the exchanged channels, according to configuration and documents.
  func digests() -> [String] {
    guard settings.isOn, isNameWhole() else { return [] }
    var wanted: [String] = []
    do throws(StoreError) {
      for channel in try store.channels() where !channel.secret.isZero {
        let digest = channel.secret.digest
        let named = try isNamed(channel)
        if try saysDocument(digest) ?? named, !wanted.contains(digest) { wanted.append(digest) }
      }
    } catch {
      log.warning("channels are not exchanged: \(error)")
      return []
    }
    return wanted
  }

  /// A message of a radio named `a: b` would arrive as a text of `a` that begins with `b: `. `IdleSetting` reports it.
  private func isNameWhole() -> Bool { messenger.ownName.map { !RelayMark.splits(name: $0.bytes) } ?? true }

  /// A name that two channels have means neither, except the name of a `#channel`.
  private func isNamed(_ channel: Channel) throws(StoreError) -> Bool {
    for name in settings.channels {
      if try ChannelName(name).means(channel.secret.digest, name: channel.name.string, store) { return true }
    }
    return false
  }

  private func saysDocument(_ digest: String) throws(StoreError) -> Bool? {
    guard let value = try store.document(DocumentKey.relay(digest: digest).text)?.value else { return nil }
    // `try?`: the value was valid JSON when it arrived.
    return (try? JSONValue(parsing: value))?.bool
  }

  func take(_ update: ChannelUpdate) -> ChannelUpdateFate {
    guard settings.isOn, isNameWhole(), !RelayMark.isIn(update.text, from: update.senderName),
      update.gateway != store.gatewayID
    else {
      return .skipped
    }
    guard settings.gateways.isEmpty || settings.gateways.contains(where: { $0.isExactly(update.gateway) }) else {
      return .leftOut(.notAccepted)
    }
    guard !update.isOfUnknownAge else { return .leftOut(.unknownAge) }
    let age = age(update)
    guard age < settings.longestAge else { return .leftOut(.tooOld) }
    guard !mayBeOnAir(update) else { return .leftOut(.beforeRestore) }
    do throws(StoreError) {
      guard let channel = try channel(update.channel) else { return .skipped }
      // Identified by its content: whatever id a server gives it, it is sent once.
      let identity = Store.identity(
        ofMessageOn: update.channel, senderName: Text(update.senderName), senderTime: update.senderTime,
        text: Text(update.text))
      let key = RelayMark.sign + identity
      if try store.hasHeard(identity) { return .known }
      // Another gateway on this mesh has heard our own radio, and reported the message.
      if try store.hasSaid(Text(update.text), on: update.channel, senderTime: update.senderTime) { return .known }
      if try store.hasOutgoing(key: key) { return .known }
      guard mayHaveSent(update.gateway, key) else { return .leftOut(.tooMany) }
      return send(update, key, on: channel, within: settings.longestAge - min(age, settings.longestAge))
    } catch {
      return .later("\(error)")
    }
  }

  /// The time in milliseconds since 1970, by this gateway's synchronised clock and by the hub's, which has dated the message. Either may be wrong.
  private func times(_ update: ChannelUpdate) -> [Int64] {
    [clock.isSynchronised ? clock.milliseconds : nil, update.now].compactMap(\.self)
  }

  /// As young as it can be.
  private func age(_ update: ChannelUpdate) -> Duration {
    let ages = times(update).map { now in
      let (passed, overflow) = now.subtractingReportingOverflow(update.at)
      return overflow ? settings.longestAge : .milliseconds(max(0, passed))
    }
    return ages.min() ?? .zero
  }

  /// A restored gateway does not know the messages sent since the backup. The age limit covers earlier ones. By any clock: a message that is not sent
  /// is counted, and one that is sent again is on the air.
  private func mayBeOnAir(_ update: ChannelUpdate) -> Bool {
    guard let since = store.identity.sinceOthers(messenger.loop.clocks), .milliseconds(since) < settings.longestAge
    else { return false }
    return times(update).contains { update.at < $0 - since }
  }

  private func mayHaveSent(_ gateway: String, _ key: String) -> Bool {
    switch rates.take(gateway, key, perMinute: settings.perMinute, now: messenger.loop.now) {
    case .allowed: return true
    case .refused(let told):
      if let told {
        log.warning(
          "relay: \(told) of gateway \(gateway)'s messages not sent: it has more than \(settings.perMinute) a minute "
            + "(relay.messages_per_minute; logged at most once an hour)")
      }
      return false
    }
  }

  private func channel(_ digest: String) throws(StoreError) -> Channel? {
    try store.channels().first { $0.secret.digest == digest }
  }

  private func send(
    _ update: ChannelUpdate, _ key: String, on channel: Channel, within lifetime: Duration
  ) -> ChannelUpdateFate {
    guard
      let words = RelayMark.text(sender: update.senderName, gateway: update.gateway, text: update.text)
    else { return .skipped }
    let text = Text(words)
    do throws(Refusal) {
      do throws(Refusal) {
        try post(text, update, key, channel, lifetime)
      } catch {
        guard case .tooLong(_, let limit) = error else { throw error }
        try post(Self.cut(text, to: limit), update, key, channel, lifetime)
      }
      return .sent
    } catch {
      return fate(error)
    }
  }

  /// Queues the message in one transaction with the bucket's position: if that fails, it comes again.
  private func post(
    _ text: Text, _ update: ChannelUpdate, _ key: String, _ channel: Channel, _ lifetime: Duration
  ) throws(Refusal) {
    // The digest, not the name: a node or another channel may have the same name.
    var request = SendRequest(to: channel.secret.digest, saying: text)
    (request.key, request.lifetime, request.priority) = (key, lifetime, .relayed)
    request.origin = "\(update.upstream)/\(update.gateway)"
    try messenger.post(request)
  }

  private func fate(_ refusal: Refusal) -> ChannelUpdateFate {
    switch refusal {
    // Other gateways' messages fill half of the queue: more than can be transmitted before they are too old.
    case .full: return .leftOut(.tooMany)
    case .store(let error): return .later("\(error)")
    default:
      log.warning("relayed channel message not sent: \(refusal)")
      return .skipped
    }
  }

  private static func cut(_ text: Text, to limit: Int) -> Text {
    var bytes = Array(text.bytes.prefix(max(0, limit - 3)))
    // Do not cut a character.
    while let last = bytes.last, last & 0xC0 == 0x80 { bytes.removeLast() }
    if let last = bytes.last, last & 0xC0 == 0xC0 { bytes.removeLast() }
    return Text(bytes: bytes + Array("…".utf8))
  }
}
