// SPDX-License-Identifier: MIT

/// Decides which connections are kept. Pure.
///
/// A *stranger* has not shown a token or a session yet; other connections have a known holder. When all places are
/// taken, a stranger is closed first: of the address with the most strangers, the one whose last use is longest ago. So
/// a client that opens many connections and shows nothing closes its own, and others can connect.
public struct ConnectionLimiter {
  /// A holder of more connections than this gives up idle ones when others need a place.
  public static let fairShare = 8

  /// The decision about a new connection.
  public enum Arrival: Equatable {
    case admitted
    /// Admitted, after closing the connection of this number.
    case admittedInPlaceOf(Int)
    case full
  }

  private struct Connection {
    var holder: String
    var isKnown: Bool
    var isIdle = false
  }

  private let most: Int
  /// Connections that one holder may have at most.
  private let mostOfOne: Int
  private let fairShare: Int
  private var connections: [Int: Connection] = [:]
  /// Numbers of connections by holder, in order of their last use.
  private var strangers: [String: [Int]] = [:]
  private var known: [String: [Int]] = [:]

  /// `mostOfOne`: by default a quarter of `most`, at least `fairShare`.
  public init(most: Int, mostOfOne: Int? = nil, fairShare: Int = Self.fairShare) {
    (self.most, self.fairShare) = (most, fairShare)
    self.mostOfOne = mostOfOne ?? max(fairShare, most / 4)
  }

  /// Admitted connections.
  public var count: Int { connections.count }

  /// Whether the client has shown a token or a session.
  public func isKnown(_ number: Int) -> Bool { connections[number]?.isKnown == true }

  /// `number` grows from one connection to the next.
  public mutating func arrived(_ number: Int, from address: String) -> Arrival {
    var arrival = Arrival.admitted
    if connections.count >= most {
      guard let victim = makeRoom(for: address) else { return .full }
      arrival = .admittedInPlaceOf(victim)
    }
    connections[number] = Connection(holder: address, isKnown: false)
    strangers[address, default: []].append(number)
    return arrival
  }

  /// Chooses and removes a connection to close for a newcomer from this address; `nil`: none can be spared.
  public mutating func makeRoom(for address: String) -> Int? {
    let victim = stranger(before: address) ?? idler()
    if let victim { left(victim) }
    return victim
  }

  /// A proxy has named the address of its client: as a stranger, the connection now counts for that address.
  public mutating func asks(_ number: Int, for address: String) {
    guard let connection = connections[number], !connection.isKnown, connection.holder != address else { return }
    left(number)
    connections[number] = Connection(holder: address, isKnown: false)
    strangers[address, default: []].append(number)
  }

  /// The connection has a valid token, or a session. False: its holder has too many connections.
  public mutating func showed(_ number: Int, as holder: String) -> Bool {
    guard let connection = connections[number], !connection.isKnown || connection.holder != holder else { return true }
    guard known[holder]?.count ?? 0 < mostOfOne else { return false }
    left(number)
    connections[number] = Connection(holder: holder, isKnown: true)
    known[holder, default: []].append(number)
    return true
  }

  /// A connection was used. `isIdle`: it is between requests; a live link never is.
  public mutating func idle(_ number: Int, _ isIdle: Bool) {
    guard let connection = connections[number] else { return }
    connections[number]?.isIdle = isIdle
    if connection.isKnown {
      Self.renew(number, of: connection.holder, in: &known)
    } else {
      Self.renew(number, of: connection.holder, in: &strangers)
    }
  }

  /// Whether the connection is between requests.
  public func isIdle(_ number: Int) -> Bool { connections[number]?.isIdle == true }

  private static func renew(_ number: Int, of holder: String, in table: inout [String: [Int]]) {
    guard table[holder]?.last != number else { return }
    table[holder]?.removeAll { $0 == number }
    table[holder]?.append(number)
  }

  /// The connection is closed.
  public mutating func left(_ number: Int) {
    guard let connection = connections.removeValue(forKey: number) else { return }
    if connection.isKnown {
      Self.remove(number, of: connection.holder, from: &known)
    } else {
      Self.remove(number, of: connection.holder, from: &strangers)
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
    // The holder with the most connections may need all of them.
    let sparing = known.values.filter { $0.count > fairShare && $0.contains(where: isIdle) }
    return sparing.max { $0.count < $1.count }?.first(where: isIdle)
  }
}
