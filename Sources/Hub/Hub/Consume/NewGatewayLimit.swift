// SPDX-License-Identifier: MIT

import Timing

/// Limits new gateways that come through a broker: a client of the broker can invent any number of gateways. Pure.
struct NewGatewayLimit {
  /// Most known gateways in memory, which saves queries.
  private static let mostKnown = 4096

  /// The limit of all known gateways, including those that came directly.
  let most: Int64
  let perDay: Int64
  private var dayQuota: Ration
  private var known: Set<String> = []
  private var (unreported, reason) = (0, "")
  private var reportQuota = Ration(most: 1, oneIn: .seconds(60))
  /// Refused publications of the gateways that the log has named. At `mostRefused` gateways all are forgotten.
  private var refused: [String: Int] = [:]
  private var nameQuota = Ration(most: 64, oneIn: .seconds(1))
  private static let mostRefused = 1024

  init(perDay: Int64, most: Int64) {
    (self.perDay, self.most) = (perDay, most)
    dayQuota = Ration(most: perDay, oneIn: .seconds(86_400) / Int(perDay))
  }

  /// The gateways that may be new: only the database knows.
  func unknown(_ gateways: Set<String>) -> Set<String> { gateways.subtracting(known) }

  mutating func markKnown(_ gateways: some Sequence<String>) {
    for gateway in gateways {
      if known.count >= Self.mostKnown { known = [] }
      known.insert(gateway)
    }
  }

  /// Why a gateway is refused; `nil`: it is admitted. `count`: the number of known gateways.
  mutating func refusal(_ gateway: String, count: Int64, now: MonotonicTime) -> String? {
    guard count < most else {
      return "the hub knows \(count) gateways, and no more than \(most) come by a broker (consume.max_gateways)"
    }
    guard dayQuota.take(at: now) else {
      return "more than \(perDay) new gateways a day come by the broker (consume.new_gateways_per_day)"
    }
    // A second attempt after a failure of the database does not count again.
    markKnown([gateway])
    return nil
  }

  /// Counts refused publications. `true`: the log should name the gateway, once, and not too many gateways a second. A gateway that the log does not
  /// name now has its turn with a later publication.
  mutating func wasRefused(_ gateway: String, publications: Int, now: MonotonicTime) -> Bool {
    if refused[gateway] != nil {
      refused[gateway, default: 0] += publications
      return false
    }
    guard nameQuota.take(at: now) else { return false }
    if refused.count >= Self.mostRefused { refused = [:] }
    refused[gateway] = publications
    return true
  }

  /// Admits a gateway; returns how many of its publications, at least, were refused before.
  mutating func admit(_ gateway: String) -> Int { refused.removeValue(forKey: gateway) ?? 0 }

  /// The number of refused publications to report, and the reason; `nil`: nothing to report now.
  mutating func dueReport(_ refused: Int = 0, _ reason: String? = nil, now: MonotonicTime) -> (
    count: Int, reason: String
  )? {
    unreported += refused
    self.reason = reason ?? self.reason
    guard unreported > 0, reportQuota.take(at: now) else { return nil }
    defer { unreported = 0 }
    return (unreported, self.reason)
  }
}

extension HubStore {
  /// The known gateways among these, and the number of all known gateways.
  func known(_ gateways: Set<String>) throws(HubDatabaseError) -> (known: Set<String>, count: Int64) {
    var (known, count): (Set<String>, Int64) = ([], 0)
    try database.read([
      HubCall(
        "SELECT g.id FROM @rows JOIN gateways g ON g.id = v.id", [("id", .texts(gateways.sorted()))]
      ) { known.insert($0.text(0)) },
      HubCall("SELECT count(*) FROM gateways", values: []) { count = $0.integer(0) },
    ])
    return (known, count)
  }
}
