// SPDX-License-Identifier: MIT

import Companion
import Delivery
import EventLoop
import Store
import Timing

/// Polls nodes, keeps logins to rooms alive and advertises the radio, by the clock. The work is spread over time, one after another, within the air
/// time that is left: a question that does not fit, or gets no answer, is asked again at its next time.
public final class NodePolling {
  public struct Poll: Equatable, Sendable {
    public enum Kind: String, Sendable, CaseIterable { case status, telemetry, neighbours, clock, owner }

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
    /// The interval of signs of life to rooms with a stored password; zero: none.
    public var roomInterval: Duration = .seconds(3600)
    public var advert = SelfAdvert.Settings()

    public init() {}
  }

  /// The result of a poll, for `status`.
  public struct Report: Sendable {
    public var poll: Poll
    public var lastSuccess: Int64?
    public var trouble: String?
  }

  public let advert: SelfAdvert
  /// Called after each poll that the node answered, or that was met with silence.
  public var polled: (PublicKey, Poll.Kind, _ isAnswered: Bool) -> Void = { _, _, _ in }
  private let messenger: Messenger
  private let service: NodeService
  private let log: Log
  private var settings: Settings
  public private(set) var reports: [Report] = []
  private let rooms: RoomKeeping
  /// A task for each poll, while the link is up.
  private var tasks: [LoopTask] = []
  private var isUp = false

  public init(_ messenger: Messenger, _ service: NodeService, _ settings: Settings) {
    self.messenger = messenger
    self.service = service
    self.settings = settings
    log = messenger.log
    reports = settings.polls.map { Report(poll: $0) }
    advert = SelfAdvert(messenger, settings.advert)
    rooms = RoomKeeping(messenger, service, interval: settings.roomInterval)
  }

  public func change(_ settings: Settings) {
    guard settings != self.settings else { return }
    self.settings = settings
    advert.change(settings.advert)
    reports = settings.polls.map { Report(poll: $0) }
    let wasUp = isUp
    linkDown()
    rooms.interval = settings.roomInterval
    if wasUp { linkUp() }
  }

  public func linkUp() {
    // The sync may have brought rooms.
    rooms.linkUp()
    guard !isUp else { return }
    isUp = true
    advert.linkUp()
    for place in reports.indices { begin { () throws(CancellationError) in try await self.poll(place) } }
  }

  /// Begins work that ends when the link is down.
  private func begin(_ work: @escaping () async throws(CancellationError) -> Void) {
    // `try?`: the link is down, or the settings have changed.
    tasks.append(messenger.loop.begin { try? await work() })
  }

  /// Another radio is attached: it has to log in to its rooms itself.
  public func radioReplaced() {
    linkDown()
    rooms.radioReplaced()
  }

  /// A contact's record has come from the radio.
  public func contactCame(_ contact: Contact) {
    if contact.type == .room { rooms.lookSoon() }
  }

  public func linkDown() {
    isUp = false
    advert.linkDown()
    rooms.linkDown()
    for task in tasks { task.cancel() }
    tasks = []
  }

  private func part(of duration: Duration, _ range: ClosedRange<Double>) -> Duration {
    .milliseconds(Int64(duration.inSeconds * 1000 * Double.random(in: range)))
  }

  private func sleep(for duration: Duration) async throws(CancellationError) {
    try await messenger.loop.sleep(for: duration)
  }

  // MARK: Polls

  private func poll(_ place: Int) async throws(CancellationError) {
    let poll = reports[place].poll
    // At a random time of the interval, so that polls do not come together.
    try await sleep(for: part(of: poll.every, 0...1))
    while true {
      let next = messenger.loop.now + part(of: poll.every, 0.9...1.1)
      var key: PublicKey?
      let refusal = await refusal { () async throws(Refusal) in
        let stored = try Addressing(messenger.store).contact(poll.node)
        key = stored.contact.key
        try await service.poll(poll.kind, stored)
      }
      guard !Task.isCancelled else { throw CancellationError() }
      note(refusal, place)
      if let key {
        switch refusal {
        case nil: polled(key, poll.kind, true)
        case .silence: polled(key, poll.kind, false)
        // The gateway, its radio or its air time was the cause.
        default: break
        }
      }
      try await messenger.loop.sleep(until: next)
    }
  }

  /// `nil`: the node has answered.
  private func refusal(_ ask: () async throws(Refusal) -> Void) async -> Refusal? {
    do throws(Refusal) { try await ask() } catch { return error }
    return nil
  }

  private func note(_ refusal: Refusal?, _ place: Int) {
    let poll = reports[place].poll
    switch refusal {
    case nil:
      if reports[place].trouble != nil { log.notice("\(poll.node) answers again (\(poll.kind.rawValue))") }
      reports[place].trouble = nil
      reports[place].lastSuccess = messenger.synchronizer.now.milliseconds
    case .linkDown, .unknown: break
    case .some(let refusal):
      let words = "\(refusal)"
      if reports[place].trouble != words { log.warning("polling \(poll.node) (\(poll.kind.rawValue)): \(words)") }
      reports[place].trouble = words
    }
  }

  /// Nodes that are polled, or whose password is stored; `nil`: the passwords or the nodes cannot be read.
  public var needed: Set<PublicKey>? {
    // `try?`: the error is told when a password is needed.
    guard let polledKinds, let passwords = try? service.credentials.read() else { return nil }
    return Set(passwords.keys).union(polledKinds.keys)
  }

  /// The kinds of polls of each node that is polled; `nil`: the nodes cannot be read.
  public var polledKinds: [PublicKey: Set<String>]? {
    var kinds: [PublicKey: Set<String>] = [:]
    for poll in reports.map(\.poll) {
      do throws(Refusal) {
        kinds[try Addressing(messenger.store).contact(poll.node).contact.key, default: []].insert(poll.kind.rawValue)
      } catch {
        if case .store = error { return nil }
        // No known node has this name, or several have it: none is polled.
      }
    }
    return kinds
  }
}
