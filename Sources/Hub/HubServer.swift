// SPDX-License-Identifier: MIT

import Foundation
import Hummingbird
import HummingbirdCore
import Logging
import ServiceLifecycle
import Synchronization

/// The hub: its HTTP API and its gateways' links. Source of truth: docs/hub-protocol.md.
public struct HubServer: Sendable {
  private let configuration: HubConfiguration
  public let access: HubAccess
  private let api: HubAPI

  public init(_ configuration: HubConfiguration) throws {
    self.configuration = configuration
    access = HubAccess(configuration.tokens)
    api = HubAPI(
      store: try HubStore(location: configuration.location, password: configuration.password), access: access,
      registry: LinkRegistry(),
      limiter: RateLimiter(perSecond: configuration.rateLimit), admission: Admission(), mostBody: configuration.mostBody
    )
  }

  /// Returns when the database's thread has dealt with a question: with an answer or an error.
  public func pulse() async {
    // `try?`: that it came back is what counts.
    _ = try? await api.store.acknowledged(gateway: "", epoch: "")
  }

  /// Serves until it is told to stop (SIGTERM, SIGINT). `ready` gets the port.
  public func run(_ ready: @escaping @Sendable (Int) -> Void) async throws {
    let registry = api.registry
    await api.store.listen { news in Task { await registry.heard(news) } }
    let listener = hearOthers()
    defer { withExtendedLifetime(listener) {} }
    let application = Application(
      router: api.router(), server: HTTPServerBuilder { [api] responder in api.connections(responder) },
      configuration: .init(
        address: .hostname(configuration.host, port: configuration.port), serverName: "meshpost-hub"),
      onServerRunning: { channel in ready(channel.localAddress?.port ?? 0) },
      logger: Logger(label: "hub") { _ in SwiftLogNoOpLogHandler() })
    try await application.runService()
  }
}

extension HubServer {
  /// Other hubs on the same database: what they write is told to the gateways that are linked here.
  private func hearOthers() -> PostgresListener? {
    guard HubStore.isServer(configuration.location) else { return nil }
    let (registry, store) = (api.registry, api.store)
    return PostgresListener(
      address: configuration.location, password: configuration.password,
      onConnect: { Task { await registry.tellAll(from: store) } },
      onNews: { news in Task { await registry.heard(news) } })
  }
}

enum HubClock {
  /// Milliseconds since 1970.
  static var now: Int64 { Int64(Date().timeIntervalSince1970 * 1000) }
}

/// How many batches may wait for the database at once: beyond it gateways are told to come again, which costs less than
/// keeping what they sent.
final class Admission: Sendable {
  static let most = 64
  private let waiting = Mutex(0)

  /// False: too many are waiting.
  func enter() -> Bool {
    waiting.withLock { count in
      guard count < Self.most else { return false }
      count += 1
      return true
    }
  }

  func leave() { waiting.withLock { $0 -= 1 } }
}

/// A bucket of tokens a gateway: a second's worth at most.
actor RateLimiter {
  private let perSecond: Int
  private var buckets: [String: (tokens: Double, at: ContinuousClock.Instant)] = [:]

  init(perSecond: Int) { self.perSecond = perSecond }

  /// `nil` when it may pass; else after how many seconds to try again.
  func admit(_ gateway: String, events: Int) -> Int? {
    guard perSecond > 0 else { return nil }
    let now = ContinuousClock.now
    let rate = Double(perSecond)
    let bucket = buckets[gateway] ?? (rate, now)
    let elapsed = Double((now - bucket.at).components.seconds) + Double((now - bucket.at).components.attoseconds) / 1e18
    let tokens = min(rate, bucket.tokens + elapsed * rate)
    // A batch larger than a second's worth may pass from a full bucket, and leaves a debt.
    guard tokens >= min(Double(events), rate) else {
      return max(1, Int(((min(Double(events), rate) - tokens) / rate).rounded(.up)))
    }
    buckets[gateway] = (tokens - Double(events), now)
    return nil
  }
}
