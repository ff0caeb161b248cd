// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto
import RadioSession
import Sync

/// The radio has one scope for all its floods: it is set for one command, and reset afterwards (docs/protocol/companion.md § 9.7).
extension Messenger {
  /// The scope to set for floods to this region; `nil`: the radio's default.
  func scope(for region: RegionChoice) throws(Refusal) -> FloodScopeOverride? {
    switch synchronizer.connection.setting(for: region.scopeOverride) {
    case .asIs: return nil
    case .set(let scope): return scope
    case .impossible: throw cannotSend(to: region.text)
    }
  }

  /// The bytes that the region adds to a flood in this scope; `nil`: in the radio's default.
  public func regionBytes(in scope: FloodScopeOverride? = nil) -> Int {
    switch scope {
    case .key?: PacketLength.transportCodes
    case .unscoped?, .unknown?: 0
    case .useDefault?, nil: synchronizer.ways.defaultRegion == nil ? 0 : PacketLength.transportCodes
    }
  }

  /// Sets the scope, sends the command and resets the scope. The question in the middle is the command's. `nil`: the link is down, or too many
  /// commands wait.
  func submit(_ command: Command, in scope: FloodScopeOverride?) -> [RadioQuestion]? {
    let own = RadioSession.Submission(command, needsSuccess: true)
    let group = scope.map { [.init(.setFloodScopeKey($0)), own, .init(.setFloodScopeKey(.useDefault))] } ?? [own]
    return synchronizer.connection.submit(group: group, .interactive)
  }

  /// The session sends nothing else until the radio is back in its default region.
  func untilScopeIsBack(_ asked: [RadioQuestion]) async {
    if asked.count > 1, case .failed = await asked[2].outcome() { sayIfScopeIsStuck() }
  }

  func cannotSend(to region: String) -> Refusal {
    let version = synchronizer.connection.identity?.device?.details?.version.string ?? "the radio's firmware"
    return .radio(
      "\(version) cannot send to the region \(region): nothing is sent. Regions need 1.10, * (none) needs 1.16")
  }

  /// Sets the radio's own default again, whatever another program has set.
  func resetScope() {
    synchronizer.ways.defaultRegion = nil
    guard let version = synchronizer.connection.identity?.device?.protocolVersion, version >= Self.firstWithScopes
    else { return }
    guard let asked = synchronizer.connection.submit(.setFloodScopeKey(.useDefault), .interactive) else { return }
    tasks.begin { if case .failed = await asked.outcome() { self.sayIfScopeIsStuck() } }
    // The answer goes to the synchronizer: packets that are heard in that region have its name.
    if version >= Self.firstWithDefault { _ = synchronizer.connection.submit(.getDefaultFloodScope, .sync) }
  }

  private func sayIfScopeIsStuck() {
    guard synchronizer.connection.isScopeStuck else { return }
    log.warning("\(RadioConnection.stuckScope). Until then what is for it is not sent")
  }

  /// SET_FLOOD_SCOPE_KEY came with protocol version 8 (docs/protocol/companion.md § 11).
  private static let firstWithScopes: UInt8 = 8
  /// The default scope came with 11.
  private static let firstWithDefault: UInt8 = 11
}
