// SPDX-License-Identifier: MIT

/// The topic aliases of one connection: the first topics, up to the broker's limit, go out once. Pure.
/// Source: MQTT 5.0 § 3.3.2.3.4.
struct TopicAliases: Equatable {
  struct Alias: Equatable {
    var number: UInt16
    /// The broker knows the alias: the topic is omitted.
    var isKnown: Bool
  }

  private static let maxKept = 64
  private static let longestTopic = 256

  private let most: Int
  /// By the topic's bytes: brokers distinguish é from e with an accent.
  private var numbers: [[UInt8]: UInt16] = [:]

  /// `most`: the broker's limit.
  init(most: Int) { self.most = min(max(0, most), Self.maxKept) }

  /// The alias for the next message on this topic; `nil`: send the topic.
  func alias(of topic: String) -> Alias? {
    guard most > 0, topic.utf8.count <= Self.longestTopic else { return nil }
    if let number = numbers[Array(topic.utf8)] { return Alias(number: number, isKnown: true) }
    guard numbers.count < most else { return nil }
    return Alias(number: UInt16(numbers.count + 1), isKnown: false)
  }

  /// A message with the alias was sent.
  mutating func sent(_ alias: Alias, of topic: String) {
    if !alias.isKnown { numbers[Array(topic.utf8)] = alias.number }
  }
}
