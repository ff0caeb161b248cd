// SPDX-License-Identifier: MIT

import Documents
import EventLoop
import Store
import UntrustedText

/// All upstreams of the gateway. None holds up another.
public final class Relay {
  public private(set) var upstreams: [Upstream] = []
  /// The settings of each upstream, and the state of its files, when it was built.
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

  /// Builds new and changed upstreams, then stops those that they replace; the others continue. Returns the new ones. If it throws, nothing has
  /// changed.
  @discardableResult
  public func change(to wanted: [UpstreamSettings]) throws(StoreError) -> [Upstream] {
    // The positions of upstreams must be on disk before their successors read them.
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
        "\(removed.name): removed; events that it had not received: \(removed.pending). An upstream of this name goes on there "
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
        "\(upstream.name): back, and goes on where it was when it was removed; events to send: \(upstream.pendingEvents)"
      )
    }
    upstream.host = host
    upstream.carrier.radio = radio
    upstream.health.observer = self
    // Another database does not know that the upstream is paused.
    if upstreams.contains(where: { $0.name == upstream.name && $0.isPaused }) { upstream.setPaused(true) }
    return upstream
  }

  /// Carries out the servers' commands, and receives their updates.
  public weak var host: (any RelayHost)? { didSet { for upstream in upstreams { upstream.host = host } } }

  /// The radio, for upstreams that report on it or let it sign.
  public weak var radio: (any RadioAccess)? {
    didSet { for upstream in upstreams { upstream.carrier.radio = radio } }
  }

  /// An upstream's trouble has begun, changed or ended.
  public var troubleChanged: () -> Void = {}

  public var historyFound: (_ upstream: String, HistoryFinding) -> Void = { _, _ in }

  /// Upstreams with waiting events, and the number of these.
  public var pending: [(upstream: String, events: Int64)] {
    upstreams.map { ($0.name, $0.pendingEvents) }.filter { $0.events > 0 }
  }

  /// The largest number of events that wait for one upstream.
  public var mostPending: Int64 { upstreams.reduce(0) { max($0, $1.pendingEvents) } }

  /// Whether an upstream takes the events that wait for it.
  public enum Progress: Equatable, Sendable {
    case fine
    /// The upstream was not tried yet, or its allowance permits nothing.
    case unknown
    case stuck(events: Int64, reason: String)
  }

  /// The progress of each upstream; a paused one counts as fine.
  public var progress: [(name: String, progress: Progress)] {
    upstreams.map { ($0.name, $0.progress) }
  }

  /// The radio is connected: upstreams that waited for it try at once.
  public func radioIsUp() { for upstream in upstreams { upstream.radioIsUp() } }

  /// The radio has no more stored messages: upstreams now fetch the messages of other gateways.
  public func radioWasRead() { for upstream in upstreams { upstream.bucketSync?.radioWasRead() } }

  /// Whether an upstream wants every packet that the radio receives.
  public var wantsPackets: Bool {
    upstreams.contains { $0.settings.filter.kinds.contains(EventKind.packet.rawValue) }
  }

  public func channelsChanged() { for upstream in upstreams { upstream.bucketSync?.wantsChanged() } }
  public func refresh() { for upstream in upstreams { upstream.bucketSync?.refresh() } }
  public func setState(_ name: String, _ body: [UInt8]) { for upstream in upstreams { upstream.setState(name, body) } }
  public func networkChanged() { for upstream in upstreams { upstream.networkChanged() } }

  public func wake() { for upstream in upstreams { upstream.wake() } }
  public func resume() { for upstream in upstreams { upstream.resume() } }
  /// Stops all upstreams for good; `change` builds their successors.
  public func stop() { for upstream in upstreams { upstream.stop() } }
}

extension Relay: UpstreamObserver {
  func upstreamTroubleChanged() { troubleChanged() }
  func upstream(_ name: String, found finding: HistoryFinding) { historyFound(name, finding) }
  var uncountedUpstreams: [String] { upstreams.filter { !$0.carrier.serverKeepsCount }.map(\.name) }
}
