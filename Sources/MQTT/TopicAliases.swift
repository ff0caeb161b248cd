// SPDX-License-Identifier: MIT

/// Topics that have a number on one connection, so that they are sent once: as many as the broker takes, the first that come. Pure.
/// Source: MQTT 5.0 § 3.3.2.3.4.
struct TopicAliases: Equatable {
  struct Alias: Equatable {
    var number: UInt16
    /// The broker was told before: the topic is left out.
    var isKnown: Bool
  }

  private static let maxKept = 64
  private static let longestTopic = 256

  private let most: Int
  /// By their bytes: brokers take é, and e with an accent, for two.
  private var numbers: [[UInt8]: UInt16] = [:]

  /// `most`: numbers that the broker takes.
  init(most: Int) { self.most = min(max(0, most), Self.maxKept) }

  /// What the next message on this topic is sent with; `nil`: the topic alone.
  func alias(of topic: String) -> Alias? {
    guard most > 0, topic.utf8.count <= Self.longestTopic else { return nil }
    if let number = numbers[Array(topic.utf8)] { return Alias(number: number, isKnown: true) }
    guard numbers.count < most else { return nil }
    return Alias(number: UInt16(numbers.count + 1), isKnown: false)
  }

  /// A message was sent with it.
  mutating func sent(_ alias: Alias, of topic: String) {
    if !alias.isKnown { numbers[Array(topic.utf8)] = alias.number }
  }
}
