// SPDX-License-Identifier: MIT

import FoundationEssentials
import Glibc

/// The gateways that are linked to any hub on the database, for readers.
///
/// Each hub on a shared database keeps a list of its links there. It writes the list at most every two seconds, after a link opened or closed, and a
/// heartbeat every ten seconds. A list without a heartbeat for half a minute does not count. A hub without peers writes nothing.
actor SharedLinkTable {
  /// Pause between two checks of this hub's links, and of other hubs' lists.
  static let pause: Duration = .seconds(2)
  /// Checks from one heartbeat to the next.
  static let checksPerHeartbeat = 5
  /// A list without a heartbeat for this many milliseconds does not count. The database server's clock sets all times of lists.
  static let validity: Int64 = 30_000

  private let registry: LinkRegistry
  private let stores: HubStores
  private let isShared: Bool
  private let hub = UUID().uuidString
  private var others: [String: HubStore.LinkList] = [:]
  private var refreshedAt: ContinuousClock.Instant?
  /// The version of the list in the database; `nil`: this hub has to write the whole list.
  private var written: Int64?

  /// `isShared`: other hubs may use the database.
  init(_ registry: LinkRegistry, _ stores: HubStores, isShared: Bool) {
    (self.registry, self.stores, self.isShared) = (registry, stores, isShared)
  }

  /// When each link opened, milliseconds since 1970. Links of other hubs appear some seconds late.
  func times() async -> [String: Int64] {
    let own = await registry.linkTimes()
    guard isShared else { return own }
    await refreshOthers()
    // After a move to another hub, a gateway may be in two lists for some seconds.
    return others.values.reduce(into: own) { all, other in all.merge(other.links) { max($0, $1) } }
  }

  func isLinked(_ gateway: String) async -> Bool {
    if await registry.isOpen(gateway) { return true }
    guard isShared else { return false }
    await refreshOthers()
    return others.values.contains { $0.links[gateway] != nil }
  }

  private func refreshOthers() async {
    guard refreshedAt.map({ .now - $0 >= Self.pause }) ?? true else { return }
    refreshedAt = .now
    let store = stores.monitor
    do {
      let versions = try await store.linkLists(besides: hub, validity: Self.validity)
      let fresh = try await store.links(of: versions.filter { others[$0.key]?.version != $0.value }.map(\.key).sorted())
      others = others.filter { versions[$0.key] == $0.value.version }
      for list in fresh { others[list.hub] = list }
    } catch {
      // The last known lists stay; the database probe reports the error.
    }
  }

  // MARK: Writing the list

  /// Runs until cancelled; then removes this hub's list.
  func run() async {
    guard isShared else { return }
    var (round, hasOthers) = (0, false)
    while !Task.isCancelled {
      do {
        if round % Self.checksPerHeartbeat == 0 { hasOthers = try await stores.monitor.hasOtherHubs() }
        if hasOthers { try await publish(isHeartbeat: round % Self.checksPerHeartbeat == 0) }
      } catch {
        written = nil
      }
      round += 1
      // `try?`: cancellation ends the loop.
      try? await Task.sleep(for: Self.pause)
    }
    guard written != nil else { return }
    // `try?`: in half a minute the list does not count anyway.
    try? await stores.writer.forgetLinks(of: hub)
  }

  private func publish(isHeartbeat: Bool) async throws {
    let version = await registry.changes
    if written == version {
      guard isHeartbeat, try await !stores.writer.confirmLinks(of: hub, version: version) else { return }
      // After a crash of the server the table is empty.
    }
    let links = await registry.linkTimes()
    try await stores.writer.keepLinks(links, version: version, of: hub)
    written = version
  }
}
