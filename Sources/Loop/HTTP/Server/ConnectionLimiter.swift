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

  /// Whose connections count together: an address's, or those of a token or session.
  private struct Group: Hashable {
    var holder: String
    var isKnown: Bool
  }

  private struct Connection {
    var group: Group
    var isIdle = false
  }

  private let most: Int
  /// Connections that one holder may have at most.
  private let mostOfOne: Int
  private let fairShare: Int
  private var connections: [Int: Connection] = [:]
  /// Numbers of connections, in order of their last use.
  private var groups: [Group: [Int]] = [:]

  /// `mostOfOne`: by default a quarter of `most`, at least `fairShare`.
  public init(most: Int, mostOfOne: Int? = nil, fairShare: Int = Self.fairShare) {
    (self.most, self.fairShare) = (most, fairShare)
    self.mostOfOne = mostOfOne ?? max(fairShare, most / 4)
  }

  /// Admitted connections.
  public var count: Int { connections.count }

  /// Whether the client has shown a token or a session.
  public func isKnown(_ number: Int) -> Bool { connections[number]?.group.isKnown == true }

  /// `number` grows from one connection to the next.
  public mutating func arrived(_ number: Int, from address: String) -> Arrival {
    var arrival = Arrival.admitted
    if connections.count >= most {
      guard let victim = makeRoom(for: address) else { return .full }
      arrival = .admittedInPlaceOf(victim)
    }
    add(number, to: Group(holder: address, isKnown: false))
    return arrival
  }

  private mutating func add(_ number: Int, to group: Group) {
    connections[number] = Connection(group: group)
    groups[group, default: []].append(number)
  }

  /// Chooses and removes a connection to close for a newcomer from this address; `nil`: none can be spared.
  public mutating func makeRoom(for address: String) -> Int? {
    let victim = stranger(before: address) ?? idler()
    if let victim { left(victim) }
    return victim
  }

  /// A proxy has named the address of its client: as a stranger, the connection now counts for that address.
  public mutating func asks(_ number: Int, for address: String) {
    guard let group = connections[number]?.group, !group.isKnown, group.holder != address else { return }
    left(number)
    add(number, to: Group(holder: address, isKnown: false))
  }

  /// The connection has a valid token, or a session. False: its holder has too many connections.
  public mutating func showed(_ number: Int, as holder: String) -> Bool {
    let shown = Group(holder: holder, isKnown: true)
    guard let group = connections[number]?.group, group != shown else { return true }
    guard groups[shown]?.count ?? 0 < mostOfOne else { return false }
    left(number)
    add(number, to: shown)
    return true
  }

  /// A connection was used. `isIdle`: it is between requests; a live link never is.
  public mutating func idle(_ number: Int, _ isIdle: Bool) {
    guard let group = connections[number]?.group else { return }
    connections[number]?.isIdle = isIdle
    guard groups[group]?.last != number else { return }
    groups[group]?.removeAll { $0 == number }
    groups[group]?.append(number)
  }

  /// Whether the connection is between requests.
  public func isIdle(_ number: Int) -> Bool { connections[number]?.isIdle == true }

  /// The connection is closed.
  public mutating func left(_ number: Int) {
    guard let group = connections.removeValue(forKey: number)?.group else { return }
    groups[group]?.removeAll { $0 == number }
    if groups[group]?.isEmpty == true { groups[group] = nil }
  }

  /// The newcomer counts with those of its address.
  private func stranger(before newcomer: String) -> Int? {
    func weight(_ entry: (key: Group, value: [Int])) -> Int {
      entry.value.count + (entry.key.holder == newcomer ? 1 : 0)
    }
    let heaviest = groups.lazy.filter { !$0.key.isKnown }.max { left, right in
      let (less, more) = (weight(left), weight(right))
      return less == more ? (left.value.first ?? 0) > (right.value.first ?? 0) : less < more
    }
    return heaviest?.value.first
  }

  private func idler() -> Int? {
    // The holder with the most connections may need all of them.
    let sparing = groups.filter { $0.key.isKnown && $0.value.count > fairShare && $0.value.contains(where: isIdle) }
    return sparing.values.max { $0.count < $1.count }?.first(where: isIdle)
  }
}
