// SPDX-License-Identifier: MIT

/// Stores the last use of each token, at most once a day, for later starts and for other hubs.
struct TokenUses: Sendable {
  private static let interval: Duration = .seconds(60)
  private static let day: Int64 = 86_400_000

  let stores: HubStores
  let access: HubAccess

  /// Runs until cancelled, and then stores the latest uses.
  func run() async {
    var (kept, goesOn) = ([String: Int64](), true)
    while goesOn {
      // `try?`: it is cancelled while it sleeps.
      goesOn = (try? await Task.sleep(for: Self.interval)) != nil
      let fresh = Self.fresh(access.list.map { ($0.token.name, $0.usedAt) }, kept)
      guard !fresh.isEmpty else { continue }
      do {
        try await stores.writer.keepTokenUses(fresh, at: HubClock.now)
        kept.merge(fresh) { $1 }
      } catch {
        HubLog.write(.debug, "uses of tokens are not written down yet: \(error.message)")
      }
    }
  }

  /// The uses at least a day after the stored ones. Several tokens may have one name.
  static func fresh(_ list: [(name: String, usedAt: Int64?)], _ kept: [String: Int64]) -> [String: Int64] {
    var fresh: [String: Int64] = [:]
    for (name, usedAt) in list {
      guard let usedAt, kept[name].map({ usedAt - $0 >= day }) ?? true else { continue }
      fresh[name] = max(fresh[name] ?? 0, usedAt)
    }
    return fresh
  }
}
