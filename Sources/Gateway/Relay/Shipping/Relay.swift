// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing
import UntrustedText

/// All upstreams of the gateway. None holds up another.
public final class Relay {
  public private(set) var upstreams: [Upstream] = []
  /// The settings of each upstream, and the state of its files, when it was built.
  private var origins: [ObjectIdentifier: Origin] = [:]
  /// Upstreams that were removed or replaced, or end with the gateway, and wait for the answers to their last requests: of each name at most one.
  private var leaving: [Upstream] = []
  /// Resumed when one of them has ended.
  private let left = Waiter()
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

  /// Builds new and changed upstreams, then ends those that they replace; the others continue. Returns the new ones. If it throws, nothing has
  /// changed.
  @discardableResult
  public func change(to wanted: [UpstreamSettings]) throws(StoreError) -> [Upstream] {
    // The positions of upstreams must be on disk before their successors read them.
    store.settle()
    var (all, fresh): ([Upstream], [Upstream]) = ([], [])
    var origins: [ObjectIdentifier: Origin] = [:]
    let returning: [RemovedUpstream]
    let removed: [RemovedUpstream]
    do throws(StoreError) {
      returning = try store.removedUpstreams()
      for settings in wanted {
        let origin = Origin(settings: settings, files: settings.fileStamps())
        let kept = upstreams.first { !$0.isClosed && self.origins[ObjectIdentifier($0)]?.isExactly(origin) ?? false }
        let upstream: Upstream
        if let kept {
          upstream = kept
        } else {
          upstream = try Upstream(settings, carriers: carriers, store: store, on: loop, log: log)
          fresh.append(upstream)
        }
        all.append(upstream)
        origins[ObjectIdentifier(upstream)] = origin
      }
      // This commits the positions of new upstreams, too.
      removed = try store.keepOnlyCursors(of: all.map(\.name))
    } catch {
      store.rollBack(error)
      throw error
    }
    for one in removed where one.pending > 0 {
      log.warning(
        "\(one.name): removed; events that it had not received: \(one.pending). An upstream of this name goes on there "
          + "while the journal has them; under another name it begins as a new one")
    }
    let before = upstreams
    (upstreams, self.origins) = (all, origins)
    for (upstream, settings) in zip(all, wanted) { upstream.carrier.keepApart(from: settings.foreignCommandTopics) }
    for upstream in before where !all.contains(where: { $0 === upstream }) { end(upstream) }
    for upstream in fresh {
      if returning.contains(where: { $0.name.isExactly(upstream.name) }) {
        log.notice(
          "\(upstream.name): back, and goes on where it was when it was removed; events to send: \(upstream.pendingEvents)"
        )
      }
      // Another database does not know that the upstream is paused.
      if before.contains(where: { $0.name.isExactly(upstream.name) && $0.isPaused }) { upstream.setPaused(true) }
      if leaving.contains(where: { $0.name.isExactly(upstream.name) }) { upstream.shipment.hold(.succeeding) }
      upstream.health.observer = self
      upstream.carrier.radio = radio
      upstream.host = host
    }
    return fresh
  }

  /// Ends an upstream, and lets its last requests end first: a server that keeps no count would get their events again. `limit`: the longest wait for
  /// that, if less time is left than usual.
  private func end(_ upstream: Upstream, within limit: Duration? = nil) {
    guard upstream.hasUncountedRequests else { return upstream.stop() }
    leaving.append(upstream)
    upstream.leave(within: limit) { [weak self, weak upstream] in
      guard let self, let upstream else { return }
      self.leaving.removeAll { $0 === upstream }
      self.upstreams.first { $0.name.isExactly(upstream.name) }?.succeed(upstream)
      self.left.resume()
    }
  }

  /// The upstream is forgotten: what becomes of its last requests does not matter.
  public func forget(_ name: String) {
    for upstream in leaving where upstream.name.isExactly(name) { upstream.stop() }
  }

  private struct Origin {
    let settings: UpstreamSettings
    let files: [UpstreamSettings.FileStamp?]

    /// The topics of other upstreams are no reason to connect again: see `Carrier.keepApart`.
    func isExactly(_ other: Origin) -> Bool {
      settings.withoutOthers.isExactly(other.settings.withoutOthers) && files == other.files
    }
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

  /// Upstreams that lack events, and the number of these: what waits, and dead letters, which an operator could have sent again. `nil`: unknown.
  public var lacking: [(upstream: String, events: Int64?)] {
    upstreams.map { (upstream) -> (upstream: String, events: Int64?) in
      let letters = store.ifReadable { try store.deadLetterCounts(of: upstream.name) }
      return (upstream.name, letters.map { $0.all + upstream.pendingEvents })
    }.filter { $0.events != 0 }
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

  /// Marks dead letters for another attempt: of all upstreams (`nil`), of one, or with `seq` one of these. `kept`: so many are not marked, because the
  /// upstream's filter leaves them out now.
  public func retryLetters(of upstream: Upstream?, seq: Int64?) throws(StoreError) -> (retried: Int, kept: Int) {
    var kept: [(upstream: String, seq: Int64)] = []
    for one in upstream.map({ [$0] }) ?? upstreams {
      for left in try one.journal.lettersLeftOut(seq) { kept.append((upstream: one.name, seq: left)) }
    }
    return (try store.retryDeadLetters(of: upstream?.name, seq: seq, except: kept), kept.count)
  }

  /// Ends all upstreams with the gateway: they send nothing more, and their last requests may end first, within the limit.
  public func finish(within limit: Duration) async {
    let end = loop.now + limit
    for upstream in upstreams { self.end(upstream, within: limit) }
    while !leaving.isEmpty, loop.now < end {
      // Cancelled: there is no time for them.
      do { try await left.wait(until: end, on: loop) } catch { break }
    }
    for upstream in leaving { upstream.takeParts() }
    stop()
  }
  /// Stops all upstreams for good; `change` builds their successors.
  public func stop() { for upstream in upstreams + leaving { upstream.stop() } }
}

extension Relay: UpstreamObserver {
  func upstreamTroubleChanged() { troubleChanged() }
  func upstream(_ name: String, found finding: HistoryFinding) { historyFound(name, finding) }
  var uncountedUpstreams: [String] { upstreams.filter { !$0.carrier.serverKeepsCount }.map(\.name) }
}
