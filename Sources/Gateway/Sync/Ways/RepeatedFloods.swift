// SPDX-License-Identifier: MIT

import Companion

/// Counts the floods that repeaters around have passed on, with and without a region: newer ones count more. Pure.
public struct RepeatedFloods: Equatable, Sendable {
  /// When so many are counted, all counts are halved.
  private static let most = 1000
  /// Fewer say nothing.
  private static let fewest = 20

  private var unscoped = 0
  private var scoped = 0
  /// Of those with a region, by its name; there are no more names than known regions.
  private var names: [String: Int] = [:]

  public init() {}

  public mutating func heard(_ packet: Packet, in region: String?) {
    guard packet.route.isFlood, !packet.path.isEmpty else { return }
    if packet.route.hasTransportCodes { scoped += 1 } else { unscoped += 1 }
    if let region { names[region, default: 0] += 1 }
    guard scoped + unscoped >= Self.most else { return }
    (scoped, unscoped) = (scoped / 2, unscoped / 2)
    names = names.mapValues { $0 / 2 }.filter { $0.value > 0 }
  }

  /// Whether repeaters pass on floods of regions alone: at most one of 20 has none.
  public var areOnlyScoped: Bool { scoped >= Self.fewest && unscoped * 20 <= scoped }
  public var count: Int { scoped + unscoped }
  /// The known regions among them, the most frequent first.
  public var regions: [String] { names.sorted { ($1.value, $0.key) < ($0.value, $1.key) }.map(\.key) }
}
