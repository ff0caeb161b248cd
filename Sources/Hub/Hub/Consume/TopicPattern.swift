// SPDX-License-Identifier: MIT

/// A topic filter for consumed topics, one level of which may name the gateway: pure.
///
/// In an MQTT topic filter, one level may be `{gateway}`. If the broker lets each gateway publish under its own name only, a publication there can
/// only be of that gateway.
public struct TopicPattern: Sendable, Equatable {
  private enum Level: Equatable {
    case name([UInt8])
    case any
    case gateway
    /// This level and all below.
    case rest
  }

  private static let separator = UInt8(ascii: "/")
  private static let most = 1024

  private let levels: [Level]
  /// The pattern as a broker's topic filter.
  public let filter: String

  /// `nil`: the text is no topic filter, has `{gateway}` twice, or is shared (`$share/…`): the key `group` makes it shared.
  public init?(_ text: String) {
    let parts = text.utf8.split(separator: Self.separator, omittingEmptySubsequences: false).map(Array.init)
    guard !text.isEmpty, text.utf8.count <= Self.most, !text.utf8.contains(0), text.utf8.first != UInt8(ascii: "$")
    else { return nil }
    var levels: [Level] = []
    for part in parts {
      guard levels.last != .rest else { return nil }
      switch part {
      case Array("{gateway}".utf8): levels.append(.gateway)
      case Array("+".utf8): levels.append(.any)
      case Array("#".utf8): levels.append(.rest)
      default:
        guard !part.contains(where: { "+#{}".utf8.contains($0) }) else { return nil }
        levels.append(.name(part))
      }
    }
    guard levels.filter({ $0 == .gateway }).count <= 1 else { return nil }
    self.levels = levels
    filter = text.replacing("{gateway}", with: "+")
  }

  /// Whether its topics name their gateways.
  public var namesGateways: Bool { levels.contains(.gateway) }

  /// The gateways whose events may come on a topic.
  enum Match: Equatable {
    case elsewhere
    case anybody
    case gateway(String)
  }

  /// Topics of this pattern on which gateways publish events of these kinds: `{gateway}/{kind}`.
  func examples(_ kinds: some Sequence<String>) -> [String] {
    func word(_ level: Level) -> String {
      if case .name(let name) = level { String(decoding: name, as: UTF8.self) } else { "hill" }
    }
    let head = levels.dropLast().map { word($0) + "/" }.joined()
    return switch levels.last {
    case .any: kinds.map { head + $0 }
    case .rest: kinds.flatMap { [head + $0, head + "hill/" + $0] }
    case .name, .gateway, nil: levels.last.map { [head + word($0)] } ?? []
    }
  }

  func match(_ topic: String) -> Match {
    let parts = topic.utf8.split(separator: Self.separator, omittingEmptySubsequences: false)
    var found = Match.anybody
    for (place, level) in levels.enumerated() {
      if level == .rest { return parts.count >= place ? found : .elsewhere }
      guard place < parts.count else { return .elsewhere }
      switch level {
      case .name(let name): guard parts[place].elementsEqual(name) else { return .elsewhere }
      case .any, .rest: break
      case .gateway: found = .gateway(String(decoding: Array(parts[place]), as: UTF8.self))
      }
    }
    return parts.count == levels.count ? found : .elsewhere
  }
}
