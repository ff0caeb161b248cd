// SPDX-License-Identifier: MIT

import Companion
import Delivery
import EventLoop
import Store
import Timing

/// What is done by the clock: nodes are polled, rooms are kept, the radio is advertised. Spread over time, one after another, with what the
/// budget leaves: a question that does not fit, or is met with silence, is asked again at its next time.
public final class NodePolling {
  public struct Poll: Equatable, Sendable {
    public enum Kind: String, Sendable { case status, telemetry }

    public var node: String
    public var kind: Kind
    public var every: Duration

    public init(node: String, kind: Kind, every: Duration) {
      self.node = node
      self.kind = kind
      self.every = every
    }
  }

  public struct Settings: Equatable, Sendable {
    public var polls: [Poll] = []
    /// Rooms with a stored password hear from us so often; zero: never.
    public var roomInterval: Duration = .seconds(3600)
    public var advert = SelfAdvert.Settings()

    public init() {}
  }

  /// How a poll went, for `status`.
  public struct Report: Sendable {
    public var poll: Poll
    public var lastSuccess: Int64?
    public var trouble: String?
  }

  public let advert: SelfAdvert
  private let messenger: Messenger
  private let service: NodeService
  private let log: Log
  private var settings: Settings
  public private(set) var reports: [Report] = []
  private var timers: [LoopTimer] = []
  private var isUp = false
  /// When a room last heard from us: a link that comes and goes is no reason to log in again.
  private var keptAt: [PublicKey: MonotonicTime] = [:]

  /// Rooms are logged in to within so long after the sync.
  private static let roomSpread: Duration = .seconds(20)

  public init(_ messenger: Messenger, _ service: NodeService, _ settings: Settings) {
    self.messenger = messenger
    self.service = service
    self.settings = settings
    log = messenger.log
    reports = settings.polls.map { Report(poll: $0) }
    advert = SelfAdvert(messenger, settings.advert)
  }

  public func change(_ settings: Settings) {
    guard settings != self.settings else { return }
    self.settings = settings
    advert.change(settings.advert)
    reports = settings.polls.map { Report(poll: $0) }
    let wasUp = isUp
    linkDown()
    if wasUp { linkUp() }
  }

  public func linkUp() {
    guard !isUp else { return }
    isUp = true
    advert.linkUp()
    for place in reports.indices {
      // Anywhere in its interval, so that polls do not come in a bunch.
      plan(place, after: part(of: reports[place].poll.every, 0...1))
    }
    for room in rooms() {
      let wait = part(of: Self.roomSpread, 0.1...1)
      guard let last = keptAt[room.contact.key], settings.roomInterval > .zero else {
        if keptAt[room.contact.key] == nil { keep(room, after: wait, isFirst: true) }
        continue
      }
      keep(room, after: max(wait, settings.roomInterval - (messenger.loop.now - last)), isFirst: false)
    }
  }

  /// Another radio is attached: it has to log in to its rooms itself.
  public func radioReplaced() {
    linkDown()
    keptAt = [:]
  }

  public func linkDown() {
    isUp = false
    advert.linkDown()
    for timer in timers { timer.cancel() }
    timers = []
  }

  private func part(of duration: Duration, _ range: ClosedRange<Double>) -> Duration {
    .milliseconds(Int64(duration.inSeconds * 1000 * Double.random(in: range)))
  }

  private func schedule(after wait: Duration, _ action: @escaping () -> Void) {
    timers.removeAll { !$0.isScheduled }
    timers.append(messenger.loop.schedule(after: wait, action))
  }

  // MARK: Polls

  private func plan(_ place: Int, after wait: Duration) {
    schedule(after: wait) { [weak self] in self?.poll(place) }
  }

  private func poll(_ place: Int) {
    guard isUp, reports.indices.contains(place) else { return }
    let poll = reports[place].poll
    plan(place, after: part(of: poll.every, 0.9...1.1))
    do throws(Refusal) {
      let contact = try Addressing(messenger.store).contact(poll.node)
      service.ask(poll.kind == .status ? .status : .telemetry, of: contact, .bulk) { [weak self] result in
        self?.polled(place, poll, result)
      }
    } catch {
      polled(place, poll, .failure(error))
    }
  }

  private func polled(_ place: Int, _ poll: Poll, _ result: Result<NodeAnswer, Refusal>) {
    guard reports.indices.contains(place), reports[place].poll == poll else { return }
    switch result {
    case .success:
      if reports[place].trouble != nil { log.notice("\(poll.node) answers again (\(poll.kind.rawValue))") }
      reports[place].trouble = nil
      reports[place].lastSuccess = messenger.synchronizer.now.milliseconds
    case .failure(.linkDown): break
    case .failure(let refusal):
      let words = "\(refusal)"
      if reports[place].trouble != words { log.warning("polling \(poll.node) (\(poll.kind.rawValue)): \(words)") }
      reports[place].trouble = words
    }
  }

  // MARK: Rooms

  /// Contacts of the radio that are rooms and whose password is stored.
  private func rooms() -> [StoredContact] {
    do {
      var rooms: [StoredContact] = []
      for key in try service.credentials.read().keys {
        guard let stored = try messenger.store.contact(key), stored.onRadio, stored.contact.type == .room else {
          continue
        }
        rooms.append(stored)
      }
      return rooms
    } catch {
      log.error("\(error)")
      return []
    }
  }

  /// Logs in, which makes the room send what it has; later on a sign of life keeps it sending.
  private func keep(_ room: StoredContact, after wait: Duration, isFirst: Bool) {
    schedule(after: wait) { [weak self] in
      guard let self, self.isUp else { return }
      let again = { (isFirst: Bool) in
        // Without signs of life a room that did not let us in is still tried again.
        let interval = self.settings.roomInterval > .zero ? self.settings.roomInterval : .seconds(3600)
        guard self.isUp, isFirst || self.settings.roomInterval > .zero else { return }
        self.keep(room, after: self.part(of: interval, 0.9...1.1), isFirst: isFirst)
      }
      let done: NodeRequests.Done = { [weak self] result in
        if case .failure(let refusal) = result { self?.log.info("room \(room.contact.name.string): \(refusal)") }
        if case .success = result { self?.keptAt[room.contact.key] = self?.messenger.loop.now }
        if case .success = result { again(false) } else { again(true) }
      }
      if isFirst {
        self.service.logIn(room, password: nil, done)
      } else {
        self.service.ask(.keepAlive, of: room, .bulk, done)
      }
    }
  }
}
