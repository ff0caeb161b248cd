// SPDX-License-Identifier: MIT

import Companion
import Delivery
import EventLoop
import Store
import Timing

/// Makes the radio send its signed advert, from which others learn its key and name.
///
/// Companion firmware sends an advert only on command. A node that has heard none cannot read this radio's messages, and cannot write to it. Source:
/// docs/protocol/companion.md § 9.14; firmware `MyMesh.cpp`, `CMD_SEND_SELF_ADVERT`.
public final class SelfAdvert {
  public struct Settings: Equatable, Sendable {
    /// Whether a radio that this gateway has not advertised yet is advertised once, to direct neighbours.
    public var whenNew = false
    /// Interval of adverts to direct neighbours; zero: none.
    public var every: Duration = .zero

    public init() {}
  }

  /// A report for `status` and the doctor.
  public struct Report: Equatable, Sendable {
    /// Milliseconds since 1970; `nil`: this gateway has not advertised this radio.
    public var at: Int64?
    public var isFlood: Bool
    /// Name and position are still those in the advert.
    public var isCurrent: Bool
  }

  /// Seconds after the sync, so that gateways whose power returns together do not send together.
  private static let spread: ClosedRange<Double> = 1...5
  /// The pause after a refusal by the air-time budget or the radio.
  private static let retry: Duration = .seconds(600)
  /// The pause after a flood before one with the same content, because every repeater sends each of them on.
  private static let floodPause: Duration = .seconds(60)

  private let messenger: Messenger
  private let log: Log
  private let startedAt: MonotonicTime
  private var settings: Settings
  private var record: AdvertRecord?
  /// When `record` was made, if this program made it.
  private var madeAt: MonotonicTime?
  /// The last flood that this program knows of.
  private var flooded: (radio: PublicKey, content: String, at: MonotonicTime)?
  /// Whether the radio has been asked for a flood, and has not answered yet.
  private var isFlooding = false
  /// Advertises at intervals while the link is up.
  private var task: LoopTask?
  private var isUp = false
  private var refusalLogged: Refusal?

  init(_ messenger: Messenger, _ settings: Settings) {
    self.messenger = messenger
    self.settings = settings
    log = messenger.log
    startedAt = messenger.loop.now
    do {
      record = try messenger.store.lastAdvert()
    } catch {
      log.error("the time of the last advert cannot be read: \(error)")
    }
    messenger.advert = self
  }

  private var info: SelfInfo? { messenger.synchronizer.connection.identity?.info }

  /// The last advert of the attached radio; `nil`: no radio was attached yet.
  public var report: Report? {
    guard let info else { return nil }
    let own = record.flatMap { $0.radio == info.key ? $0 : nil }
    return Report(
      at: own?.at.milliseconds, isFlood: own?.isFlood ?? false, isCurrent: own?.content == Self.content(info))
  }

  /// The content of this radio's advert.
  private static func content(_ info: SelfInfo) -> String {
    info.locationPolicy == 0 ? info.name.string : "\(info.latitude),\(info.longitude) \(info.name.string)"
  }

  // MARK: Sending

  /// Why the radio does not flood its advert now; `nil`: it may. An advert with another name or position is news, and need not wait.
  var floodRefusal: Refusal? {
    guard !isFlooding else { return .full("an advert is being sent to the mesh already") }
    guard let info, let flooded, flooded.radio == info.key, flooded.content == Self.content(info) else { return nil }
    let age = messenger.loop.now - flooded.at
    guard age < Self.floodPause else { return nil }
    let (ago, again) = (Int64(age.inSeconds), Int64((Self.floodPause - age).inSeconds.rounded(.up)))
    return .full("this advert was sent to the mesh \(ago) s ago; it can be sent again in \(again) s")
  }

  /// `isFlood`: through the whole mesh, in the radio's default scope; else to direct neighbours.
  public func send(isFlood: Bool, _ priority: DeliveryPriority = .interactive) async throws(Refusal) {
    guard messenger.synchronizer.connection.state == .up, let info else { throw .linkDown }
    if isFlood {
      if let refusal = floodRefusal { throw refusal }
      isFlooding = true
    }
    defer { if isFlood { isFlooding = false } }
    let bytes = PacketLength.advert(name: info.name.bytes.count, hasPosition: info.locationPolicy != 0)
    do { try await messenger.untilCalm(priority, since: messenger.loop.now) } catch { throw .cancelled }
    try await messenger.sendAtOnce(.sendSelfAdvert(flood: isFlood), bytes: bytes, priority, for: .advert)
    wasSent(isFlood: isFlood)
  }

  /// The radio was advertised, from here or by a program that shares it.
  func wasSent(isFlood: Bool) {
    guard let info else { return }
    let fresh = AdvertRecord(
      radio: info.key, at: messenger.synchronizer.now, isFlood: isFlood, content: Self.content(info))
    (record, madeAt, refusalLogged) = (fresh, messenger.loop.now, nil)
    if isFlood { flooded = (fresh.radio, fresh.content, messenger.loop.now) }
    log.info("the radio was advertised \(isFlood ? "through the mesh" : "to its direct neighbours")")
    messenger.store.post("when the radio was advertised") { store throws(SQLiteError) in
      try store.setLastAdvert(fresh)
    }
  }

  // MARK: Automatic adverts

  func change(_ settings: Settings) {
    self.settings = settings
    plan()
  }

  func linkUp() {
    isUp = true
    plan()
  }

  func linkDown() {
    isUp = false
    task?.cancel()
    task = nil
  }

  private func plan() {
    task?.cancel()
    task = nil
    guard isUp, due != nil else { return }
    // `try?`: the link is down, or the settings have changed.
    task = messenger.loop.begin { try? await self.advertise() }
  }

  private func advertise() async throws(CancellationError) {
    while let wait {
      try await messenger.loop.sleep(for: wait)
      // An operator, or a program that shares the radio, may have advertised it meanwhile.
      guard let due, due <= .zero else { continue }
      do throws(Refusal) {
        try await send(isFlood: false, .bulk)
      } catch {
        guard !Task.isCancelled else { throw CancellationError() }
        if refusalLogged != error { log.info("advert not sent: \(error)") }
        refusalLogged = error
        try await messenger.loop.sleep(for: Self.retry)
      }
    }
  }

  /// How long until the next advert; `nil`: there is none.
  var wait: Duration? {
    due.map { max($0, .milliseconds(Int64(Double.random(in: Self.spread) * 1000))) }
  }

  /// Time until the next advert, without the pause after the sync.
  private var due: Duration? {
    guard let info else { return nil }
    guard let record, record.radio == info.key else {
      return settings.whenNew || settings.every > .zero ? .zero : nil
    }
    return settings.every > .zero ? settings.every - age(of: record) : nil
  }

  /// Without comparable clocks, an advert of an earlier run is as old as this run.
  private func age(of record: AdvertRecord) -> Duration {
    if let madeAt { return messenger.loop.now - madeAt }
    let now = messenger.synchronizer.now
    let isComparable = now.trusted && record.at.trusted && record.at.milliseconds <= now.milliseconds
    return isComparable
      ? .milliseconds(now.milliseconds - record.at.milliseconds) : messenger.loop.now - startedAt
  }
}
