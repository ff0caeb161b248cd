// SPDX-License-Identifier: MIT

import Timing

/// Gateways that a hub does not know and that come by a broker: whoever may publish there can invent any number of them. Pure.
struct Newcomers {
  /// So many that are here are remembered, so that the database need not be asked each time.
  private static let mostRemembered = 4096

  /// Of all that are here, with those that came by another way.
  let most: Int64
  let perDay: Int64
  private var ration: Ration
  private var here: Set<String> = []
  private var (untold, reason) = (0, "")
  private var tellings = Ration(most: 1, oneIn: .seconds(60))
  /// Publications that were refused, by gateways that were named; begun anew when so many are.
  private var refused: [String: Int] = [:]
  private var namings = Ration(most: 64, oneIn: .seconds(1))
  private static let mostRefused = 1024

  init(perDay: Int64, most: Int64) {
    (self.perDay, self.most) = (perDay, most)
    ration = Ration(most: perDay, oneIn: .seconds(86_400) / Int(perDay))
  }

  /// Those of which the database has to be asked.
  func unknown(_ gateways: Set<String>) -> Set<String> { gateways.subtracting(here) }

  mutating func areHere(_ gateways: some Sequence<String>) {
    for gateway in gateways {
      if here.count >= Self.mostRemembered { here = [] }
      here.insert(gateway)
    }
  }

  /// `nil`: it is let in. `count`: of gateways that are here.
  mutating func refusal(_ gateway: String, count: Int64, now: MonotonicTime) -> String? {
    guard count < most else {
      return "the hub knows \(count) gateways, and no more than \(most) come by a broker (consume.max_gateways)"
    }
    guard ration.take(at: now) else {
      return "more than \(perDay) new gateways a day come by the broker (consume.new_gateways_per_day)"
    }
    // If it cannot be stored now, it is not counted once more.
    areHere([gateway])
    return nil
  }

  /// So many of its publications were refused. True: it is to be named, once, and not too many in a minute. Whom nobody has named yet has its turn with
  /// a later publication.
  mutating func wasRefused(_ gateway: String, publications: Int, now: MonotonicTime) -> Bool {
    if refused[gateway] != nil {
      refused[gateway, default: 0] += publications
      return false
    }
    guard namings.take(at: now) else { return false }
    if refused.count >= Self.mostRefused { refused = [:] }
    refused[gateway] = publications
    return true
  }

  /// It is let in: how many of its publications, at least, were not taken before.
  mutating func letIn(_ gateway: String) -> Int { refused.removeValue(forKey: gateway) ?? 0 }

  /// How many publications are to be told of as refused, and why; `nil`: none now.
  mutating func telling(_ refused: Int = 0, _ reason: String? = nil, now: MonotonicTime) -> (
    count: Int, reason: String
  )? {
    untold += refused
    self.reason = reason ?? self.reason
    guard untold > 0, tellings.take(at: now) else { return nil }
    defer { untold = 0 }
    return (untold, self.reason)
  }
}

extension HubStore {
  /// Which of these are here, and how many gateways are.
  func known(_ gateways: Set<String>) throws(HubDatabaseError) -> (here: Set<String>, count: Int64) {
    var (here, count): (Set<String>, Int64) = ([], 0)
    try database.read([
      HubCall(
        "SELECT g.id FROM @rows JOIN gateways g ON g.id = v.id", [("id", .texts(gateways.sorted()))]
      ) { here.insert($0.text(0)) },
      HubCall("SELECT count(*) FROM gateways", values: []) { count = $0.integer(0) },
    ])
    return (here, count)
  }
}
