// SPDX-License-Identifier: MIT

/// Stands in for a carrier that cannot be built, for example because its CA file is not PEM. Its upstream is shown as stopped, with the reason, and
/// keeps its place in the journal. Each greeting tries again to build the carrier.
final class StoppedCarrier: Carrier {
  let kind: String
  let place: String
  /// The upstream greets it, and shows its reason, even if nothing waits.
  let keepsConnection = true
  let serverKeepsCount: Bool
  weak var radio: (any RadioAccess)?
  let bytesSent: UInt64 = 0
  private var reason: String
  private let build: () throws -> any Carrier
  /// For the hub, once its carrier can be built.
  private var states = NewestStates()
  /// As last told; `nil`: as the carrier is built.
  private var foreignTopics: [TopicTemplate]?

  init(_ settings: UpstreamSettings, reason: String, build: @escaping () throws -> any Carrier) {
    kind = settings.kindName
    place = settings.place
    serverKeepsCount = if case .hub = settings.kind { true } else { false }
    self.reason = reason
    self.build = build
  }

  /// The carrier; `nil`: it still cannot be built.
  func replacement() -> (any Carrier)? {
    do {
      let carrier = try build()
      carrier.radio = radio
      if let foreignTopics { carrier.keepApart(from: foreignTopics) }
      for state in states.all { carrier.setState(state.name, state.body) }
      return carrier
    } catch {
      reason = "\(error)"
      return nil
    }
  }

  func keepApart(from topics: [TopicTemplate]) { foreignTopics = topics }
  func setState(_ name: String, _ body: [UInt8]) { states.set(name, body) }

  func greet() async -> Greeting { .failed(.stopped(reason: reason)) }
  func carry(_ batch: Batch) async -> Verdict { .stopped(reason: reason) }
  func close() {}
}
