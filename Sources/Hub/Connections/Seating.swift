// SPDX-License-Identifier: MIT

/// Decides which connections are kept. A *stranger* has not sent a token yet; others are identified by token and gateway. When
/// all places are taken, strangers are closed first: the oldest of the address with the most. A client that opens many
/// connections without a token therefore closes its own, and gateways can connect.
struct Seating {
  /// A holder of more connections than this gives up idle ones when others need them.
  static let fairShare = 8

  enum Arrival: Equatable {
    case seated
    /// Seated, and this one is to be closed for it.
    case seatedInPlaceOf(Int)
    case full
  }

  private struct Guest {
    var holder: String
    var isKnown: Bool
    var isIdle = false
  }

  let most: Int
  private var guests: [Int: Guest] = [:]
  /// Numbers of connections by holder, oldest first.
  private var strangers: [String: [Int]] = [:]
  private var known: [String: [Int]] = [:]

  init(most: Int) { self.most = most }

  var count: Int { guests.count }

  func isKnown(_ number: Int) -> Bool { guests[number]?.isKnown == true }

  /// `number` grows from one connection to the next.
  mutating func arrived(_ number: Int, from address: String) -> Arrival {
    var arrival = Arrival.seated
    if guests.count >= most {
      guard let victim = stranger(before: address) ?? idler() else { return .full }
      left(victim)
      arrival = .seatedInPlaceOf(victim)
    }
    guests[number] = Guest(holder: address, isKnown: false)
    strangers[address, default: []].append(number)
    return arrival
  }

  /// The connection has a valid token. False: its holder has too many connections.
  mutating func showed(_ number: Int, as holder: String) -> Bool {
    guard let guest = guests[number], !guest.isKnown || guest.holder != holder else { return true }
    guard known[holder]?.count ?? 0 < maxOfOne else { return false }
    left(number)
    guests[number] = Guest(holder: holder, isKnown: true)
    known[holder, default: []].append(number)
    return true
  }

  private var maxOfOne: Int { max(Self.fairShare, most / 4) }

  /// Marks a connection as idle between requests; a live link never is.
  mutating func idle(_ number: Int, _ isIdle: Bool) { guests[number]?.isIdle = isIdle }

  mutating func left(_ number: Int) {
    guard let guest = guests.removeValue(forKey: number) else { return }
    if guest.isKnown {
      Self.remove(number, of: guest.holder, from: &known)
    } else {
      Self.remove(number, of: guest.holder, from: &strangers)
    }
  }

  private static func remove(_ number: Int, of holder: String, from table: inout [String: [Int]]) {
    table[holder]?.removeAll { $0 == number }
    if table[holder]?.isEmpty == true { table[holder] = nil }
  }

  /// The newcomer counts with those of its address.
  private func stranger(before newcomer: String) -> Int? {
    func weight(_ entry: (key: String, value: [Int])) -> Int { entry.value.count + (entry.key == newcomer ? 1 : 0) }
    let heaviest = strangers.max { left, right in
      let (less, more) = (weight(left), weight(right))
      return less == more ? (left.value.first ?? 0) > (right.value.first ?? 0) : less < more
    }
    return heaviest?.value.first
  }

  private func idler() -> Int? {
    let heaviest = known.max { $0.value.count < $1.value.count }
    guard let numbers = heaviest?.value, numbers.count > Self.fairShare else { return nil }
    return numbers.first { guests[$0]?.isIdle == true }
  }
}
