// SPDX-License-Identifier: MIT

import Documents
import EventLoop
import Store
import UntrustedText

/// A server that gets the journal.
public protocol Upstream: AnyObject {
  var name: String { get }
  var status: UpstreamStatus { get }
  /// Carries out the server's commands; `nil`: all are refused.
  var host: (any RelayHost)? { get set }
  /// Something may be new to send.
  func wake()
  /// Try at once, with fresh credentials: the operator says so.
  func resume()
  /// Send nothing until told otherwise; kept over restarts.
  func setPaused(_ paused: Bool)
  /// Talks to the server without the journal: is it there, does it take us? `nil`: yes; else what is wrong.
  func test() async -> String?
  /// How far the server's buckets are known; `nil`: it has none.
  var updates: UpdatesReport? { get }
  /// Asks the server for updates at once.
  func refresh()
  /// Channels were joined or left, or may now be exchanged.
  func channelsChanged()
  /// The radio has no more messages.
  func radioWasRead()
  /// The newest state of its name, for servers that show it.
  func setState(_ name: String, _ body: [UInt8])
  func networkChanged()
  /// What it has of a message.
  func standing(of message: ConversationRow) throws(StoreError) -> MessageStanding
  /// Close the connection; what is in flight is sent again after the next start.
  func stop()
}

/// What `meshpost status` shows of an upstream.
public struct UpstreamStatus: Equatable, Sendable {
  public enum State: String, Sendable { case idle, sending, waiting, stopped, paused }

  public var name: String
  public var kind: String
  public var url: String
  /// How a hub is connected: `live` or `http`.
  public var link: String?
  public var state: State
  /// Every lane is acknowledged up to here.
  public var cursor: Int64
  /// Each lane by itself; `nil`: the server knows none, and gets the whole journal in order.
  public var lanes: ByLane<LaneStatus>?
  /// Not acknowledged; of these, sent.
  public var pending: Int64
  public var inFlight: Int
  public var deadLetters: Int64
  /// Events that were given up before it had them, and how old its oldest pending one is (seconds).
  public var lost: Int64
  public var age: Int64?
  /// The same since it was added, and events that were older than `max_age_s` when their turn came.
  public var givenUp: Int64 = 0
  public var tooOld: Int64 = 0
  /// Why it waits or is stopped.
  public var reason: String?
  /// Milliseconds since 1970 of the last acknowledgement of an event, or when it was said first, since the start, that it has all.
  public var lastSuccess: Int64?
  public var batches: UInt64
  public var bytesSent: UInt64
  /// Until when its certificate is good, seconds since 1970.
  public var certificateExpiry: Int64?
  /// Bytes of events that it acknowledges a second, before compression; `nil`: not known.
  public var rate: Int64?
  /// `nil`: it may use any number of bytes at any hour.
  public var allowance: AllowanceStatus?
  /// Commands of the server, since the start, that were refused without an event.
  public var refusedCommands: Int64 = 0
}

/// How far a lane is at an upstream, and what waits in it.
public struct LaneStatus: Equatable, Sendable {
  public var acknowledged: Int64
  public var pending: LaneAmount
  /// Seconds until it has what waits here, at the present rate: what waits in the lanes before goes first. `nil`: not known, or nothing waits.
  public var seconds: Int64?
}

/// All upstreams of the gateway. Each goes its own way: none holds up another.
public final class Relay {
  public private(set) var upstreams: [any Upstream] = []
  private let store: Store
  private let loop: EventLoop
  private let log: Log

  public init(_ settings: [UpstreamSettings], store: Store, on loop: EventLoop, log: Log) throws(StoreError) {
    (self.store, self.loop, self.log) = (store, loop, log)
    try change(to: settings)
  }

  /// Builds what is new or changed, then lets go of what it takes the place of; the others go on running. Returns those that are
  /// new. When it throws, nothing has changed.
  @discardableResult
  public func change(to wanted: [UpstreamSettings]) throws(StoreError) -> [any Upstream] {
    // How far an upstream has come is on disk before another takes its place.
    store.settle()
    var (all, fresh): ([any Upstream], [any Upstream]) = ([], [])
    for settings in wanted {
      if let kept = upstreams.first(where: { ($0 as? JournalUpstream)?.isBuilt(from: settings) ?? false }) {
        all.append(kept)
      } else {
        let returning = try store.removedUpstreams().first { $0.name.isExactly(settings.name) }
        let made = try JournalUpstream(settings, store: store, on: loop, log: log)
        if returning != nil {
          log.notice(
            "\(made.name): back, and goes on where it was when it was removed: \(made.pendingEvents) events to send")
        }
        made.host = host
        made.radio = radio
        made.troubleChanged = { [weak self] in self?.troubleChanged() }
        made.acknowledged = { [weak self] in self?.acknowledged() }
        made.unrelated = { [weak self] in
          self?.upstreams.filter { ($0 as? JournalUpstream)?.carrier.kind != "hub" }.map(\.name) ?? []
        }
        made.historyFound = { [weak self, name = made.name] in self?.historyFound(name, $0) }
        // Where the database is another one, it does not know.
        if upstreams.contains(where: { $0.name == made.name && ($0 as? JournalUpstream)?.isPaused == true }) {
          made.setPaused(true)
        }
        all.append(made)
        fresh.append(made)
      }
    }
    for removed in try store.keepOnlyCursors(of: all.map(\.name)) where removed.pending > 0 {
      log.warning(
        "\(removed.name): removed, with \(removed.pending) events that it had not received. An upstream of this name goes on there "
          + "while the journal has them; under another name it begins as a new one")
    }
    let gone = upstreams.filter { old in !all.contains { $0 === old } }
    upstreams = all
    for upstream in gone { upstream.stop() }
    return fresh
  }

  /// Who carries out what servers ask for, and gets what they send.
  public weak var host: (any RelayHost)? { didSet { for upstream in upstreams { upstream.host = host } } }

  /// The radio, for those who tell of it or have it sign.
  public weak var radio: (any RadioAccess)? {
    didSet { for case let upstream as JournalUpstream in upstreams { upstream.radio = radio } }
  }

  /// Something at an upstream goes wrong, or has ceased to.
  public var troubleChanged: () -> Void = {}

  /// An upstream has taken events. That need not write anything.
  public var acknowledged: () -> Void = {}

  public var historyFound: (_ upstream: String, HistoryFinding) -> Void = { _, _ in }

  /// Upstreams for which events wait, and how many.
  public var pending: [(upstream: String, events: Int64)] {
    upstreams.compactMap { upstream in
      guard let events = (upstream as? JournalUpstream)?.pendingEvents, events > 0 else { return nil }
      return (upstream.name, events)
    }
  }

  /// Events that wait for the upstream for which the most do.
  public var mostPending: Int64 { upstreams.reduce(0) { max($0, ($1 as? JournalUpstream)?.pendingEvents ?? 0) } }

  /// Whether events are taken that wait.
  public enum Progress: Equatable, Sendable {
    case fine
    /// It has not been tried yet, or its allowance lets nothing be sent.
    case unknown
    case stuck(events: Int64, reason: String)
  }

  /// Of each upstream. Nobody expects anything of one that is paused.
  public var progress: [(name: String, progress: Progress)] {
    upstreams.map { ($0.name, ($0 as? JournalUpstream)?.progress ?? .fine) }
  }

  /// The radio is there: who waited for it tries at once.
  public func radioIsUp() { for case let upstream as JournalUpstream in upstreams { upstream.radioIsUp() } }

  /// Messages of other places, which waited for those that the radio held, are fetched.
  public func radioWasRead() { for upstream in upstreams { upstream.radioWasRead() } }

  /// Whether an upstream wants every packet that the radio receives.
  public var wantsPackets: Bool { upstreams.contains { ($0 as? JournalUpstream)?.wantsPackets ?? false } }

  public func channelsChanged() { for upstream in upstreams { upstream.channelsChanged() } }
  public func refresh() { for upstream in upstreams { upstream.refresh() } }
  public func setState(_ name: String, _ body: [UInt8]) { for upstream in upstreams { upstream.setState(name, body) } }
  public func networkChanged() { for upstream in upstreams { upstream.networkChanged() } }

  public func start() { for upstream in upstreams { upstream.wake() } }
  public func resume() { for upstream in upstreams { upstream.resume() } }
  /// Stops all upstreams for good; `change` builds their successors.
  public func stop() { for upstream in upstreams { upstream.stop() } }
}
