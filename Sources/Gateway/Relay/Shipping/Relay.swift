// SPDX-License-Identifier: MIT

import Documents
import EventLoop
import Store
import UntrustedText

/// All upstreams of the gateway. Each goes its own way: none holds up another.
public final class Relay {
  public private(set) var upstreams: [Upstream] = []
  /// What each was built from: its settings, and the files that they name as they were then.
  private var origins: [ObjectIdentifier: Origin] = [:]
  private let store: Store
  private let loop: EventLoop
  private let log: Log
  private let carriers: Carriers

  public init(
    _ settings: [UpstreamSettings], carriers: Carriers = .toServers, store: Store, on loop: EventLoop, log: Log
  ) throws(StoreError) {
    (self.store, self.loop, self.log, self.carriers) = (store, loop, log, carriers)
    try change(to: settings)
  }

  /// Builds what is new or changed, then lets go of what it takes the place of; the others go on running. Returns those that are
  /// new. When it throws, nothing has changed.
  @discardableResult
  public func change(to wanted: [UpstreamSettings]) throws(StoreError) -> [Upstream] {
    // How far an upstream has come is on disk before another takes its place.
    store.settle()
    var (all, fresh): ([Upstream], [Upstream]) = ([], [])
    var origins: [ObjectIdentifier: Origin] = [:]
    for settings in wanted {
      let origin = Origin(settings: settings, files: settings.fileStamps())
      let kept = upstreams.first { !$0.isClosed && self.origins[ObjectIdentifier($0)]?.isExactly(origin) ?? false }
      let upstream: Upstream
      if let kept { upstream = kept } else { upstream = try build(settings) }
      all.append(upstream)
      origins[ObjectIdentifier(upstream)] = origin
      if kept == nil { fresh.append(upstream) }
    }
    for removed in try store.keepOnlyCursors(of: all.map(\.name)) where removed.pending > 0 {
      log.warning(
        "\(removed.name): removed, with \(removed.pending) events that it had not received. An upstream of this name goes on there "
          + "while the journal has them; under another name it begins as a new one")
    }
    let gone = upstreams.filter { old in !all.contains { $0 === old } }
    (upstreams, self.origins) = (all, origins)
    for upstream in gone { upstream.stop() }
    return fresh
  }

  private struct Origin {
    let settings: UpstreamSettings
    let files: [UpstreamSettings.FileStamp?]

    func isExactly(_ other: Origin) -> Bool { settings.isExactly(other.settings) && files == other.files }
  }

  private func build(_ settings: UpstreamSettings) throws(StoreError) -> Upstream {
    let isReturning = try store.removedUpstreams().contains { $0.name.isExactly(settings.name) }
    let upstream = try Upstream(settings, carriers: carriers, store: store, on: loop, log: log)
    if isReturning {
      log.notice(
        "\(upstream.name): back, and goes on where it was when it was removed: \(upstream.pendingEvents) events to send"
      )
    }
    upstream.host = host
    upstream.radio = radio
    upstream.health.observer = self
    // Where the database is another one, it does not know.
    if upstreams.contains(where: { $0.name == upstream.name && $0.isPaused }) { upstream.setPaused(true) }
    return upstream
  }

  /// Who carries out what servers ask for, and gets what they send.
  public weak var host: (any RelayHost)? { didSet { for upstream in upstreams { upstream.host = host } } }

  /// The radio, for those who tell of it or have it sign.
  public weak var radio: (any RadioAccess)? {
    didSet { for upstream in upstreams { upstream.radio = radio } }
  }

  /// Something at an upstream goes wrong, or has ceased to.
  public var troubleChanged: () -> Void = {}

  /// An upstream has taken events. That need not write anything.
  public var acknowledged: () -> Void = {}

  public var historyFound: (_ upstream: String, HistoryFinding) -> Void = { _, _ in }

  /// Upstreams for which events wait, and how many.
  public var pending: [(upstream: String, events: Int64)] {
    upstreams.map { ($0.name, $0.pendingEvents) }.filter { $0.events > 0 }
  }

  /// Events that wait for the upstream for which the most do.
  public var mostPending: Int64 { upstreams.reduce(0) { max($0, $1.pendingEvents) } }

  /// Whether events are taken that wait.
  public enum Progress: Equatable, Sendable {
    case fine
    /// It has not been tried yet, or its allowance lets nothing be sent.
    case unknown
    case stuck(events: Int64, reason: String)
  }

  /// Of each upstream. Nobody expects anything of one that is paused.
  public var progress: [(name: String, progress: Progress)] {
    upstreams.map { ($0.name, $0.progress) }
  }

  /// The radio is there: who waited for it tries at once.
  public func radioIsUp() { for upstream in upstreams { upstream.radioIsUp() } }

  /// Messages of other places, which waited for those that the radio held, are fetched.
  public func radioWasRead() { for upstream in upstreams { upstream.radioWasRead() } }

  /// Whether an upstream wants every packet that the radio receives.
  public var wantsPackets: Bool { upstreams.contains(where: \.wantsPackets) }

  public func channelsChanged() { for upstream in upstreams { upstream.channelsChanged() } }
  public func refresh() { for upstream in upstreams { upstream.refresh() } }
  public func setState(_ name: String, _ body: [UInt8]) { for upstream in upstreams { upstream.setState(name, body) } }
  public func networkChanged() { for upstream in upstreams { upstream.networkChanged() } }

  public func start() { for upstream in upstreams { upstream.wake() } }
  public func resume() { for upstream in upstreams { upstream.resume() } }
  /// Stops all upstreams for good; `change` builds their successors.
  public func stop() { for upstream in upstreams { upstream.stop() } }
}

extension Relay: UpstreamObserver {
  func upstreamTroubleChanged() { troubleChanged() }
  func upstreamAcknowledged() { acknowledged() }
  func upstream(_ name: String, found finding: HistoryFinding) { historyFound(name, finding) }
  var uncountedUpstreams: [String] { upstreams.filter { !$0.carrier.serverKeepsCount }.map(\.name) }
}
