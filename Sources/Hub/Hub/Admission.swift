// SPDX-License-Identifier: MIT

import Synchronization
import Timing

/// Limits the batches that wait for the database, by their bytes. At the limit gateways retry later, which costs less than keeping their batches in
/// memory.
///
/// It does not predict how long a batch waits: all transactions take about the same time, and after a stall all waiting batches go into the next one.
/// A batch that waits too long fails (`Coalescer`).
final class Admission: Sendable {
  static let message = "too many batches are waiting"
  /// Most waiting bytes, of all gateways and of one.
  static let mostBytes = 32 << 20
  static let mostOfOne = 4 << 20
  /// Above this limit a link's next batch waits in the network. The limit is twice the size of a transaction: with a lower limit, a link whose batch
  /// is in the current transaction would miss the next transaction, too.
  static let crowdedBytes = 8 << 20

  private let state = Mutex((batches: 0, bytes: 0, gateways: [String: Int]()))

  /// Counts a batch. `nil`: the batch may wait; otherwise the seconds until a retry.
  func enter(_ gateway: String, bytes: Int) -> Int? {
    state.withLock { state in
      let own = state.gateways[gateway] ?? 0
      guard state.bytes == 0 || state.bytes + bytes <= Self.mostBytes else { return Int.random(in: 1...4) }
      guard own == 0 || own + bytes <= Self.mostOfOne else { return 2 }
      state.batches += 1
      state.bytes += bytes
      state.gateways[gateway] = own + bytes
      return nil
    }
  }

  var waiting: (batches: Int, bytes: Int) { state.withLock { ($0.batches, $0.bytes) } }
  var isCrowded: Bool { waiting.bytes > Self.crowdedBytes }

  func leave(_ gateway: String, bytes: Int) {
    state.withLock { state in
      state.batches -= 1
      state.bytes -= bytes
      let left = (state.gateways[gateway] ?? 0) - bytes
      state.gateways[gateway] = left > 0 ? left : nil
    }
  }
}

/// Limits the memory for bodies in transfer and for slowly read answers, in total and for each token's holder, so that no client can fill the hub's
/// memory or block others.
final class TransferMemory: Sendable {
  /// Smaller bodies are not counted.
  static let small = 64 * 1024
  private let most: Int
  private let maxOfOne: Int
  private let used = Mutex((all: 0, holders: [String: Int]()))

  /// `largest`: the largest body.
  init(largest: Int) {
    most = max(64 << 20, largest * 4)
    maxOfOne = max(8 << 20, largest * 2)
  }

  /// A share of the memory, returned when it is released.
  final class Share: Sendable {
    private let memory: TransferMemory
    private let holder: String
    private let count: Int

    fileprivate init(_ memory: TransferMemory, _ holder: String, _ count: Int) {
      (self.memory, self.holder, self.count) = (memory, holder, count)
    }

    deinit { memory.release(count, of: holder) }
  }

  /// `nil`: no memory is available now.
  func reserve(_ count: Int, for holder: String) -> Share? {
    used.withLock { used in
      let own = used.holders[holder] ?? 0
      guard count <= most - used.all, count <= maxOfOne - own else { return nil }
      used.all += count
      used.holders[holder] = own + count
      return Share(self, holder, count)
    }
  }

  private func release(_ count: Int, of holder: String) {
    used.withLock { used in
      used.all -= count
      let left = (used.holders[holder] ?? 0) - count
      used.holders[holder] = left > 0 ? left : nil
    }
  }
}

/// What is kept in memory of each gateway, for a bounded number of them. Those that may be forgotten are so first, since a forgotten one begins anew;
/// then those that were not used for longest.
struct KeptForGateways<Value: Sendable>: Sendable {
  private let most: Int
  private var values: [String: (value: Value, use: Int64)] = [:]
  private var uses: Int64 = 0

  init(most: Int = 10_000) { self.most = most }

  var count: Int { values.count }

  subscript(gateway: String) -> Value? { values[gateway]?.value }

  /// Keeps the value. `isNew`: whether one is as one that is not kept.
  mutating func keep(_ value: Value, of gateway: String, isNew: (Value) -> Bool) {
    uses += 1
    if values.count >= most, values[gateway] == nil { makeRoom(isNew) }
    values[gateway] = (value, uses)
  }

  /// Room for a quarter, so that it is not made for each gateway.
  private mutating func makeRoom(_ isNew: (Value) -> Bool) {
    values = values.filter { !isNew($0.value.value) }
    let left = most - most / 4
    guard values.count > left else { return }
    let oldest = values.values.map(\.use).sorted()[values.count - left]
    values = values.filter { $0.value.use >= oldest }
  }
}

/// Limits how often each gateway, or each person, may do something.
final class GatewayQuotas: Sendable {
  private let fullQuota: Ration
  private let began = ContinuousClock.now
  private let quotas = Mutex(KeptForGateways<Ration>())

  init(_ fullQuota: Ration) { self.fullQuota = fullQuota }

  /// Takes one from the gateway's quota. `false`: the quota is used up.
  func take(_ gateway: String, now: ContinuousClock.Instant = .now) -> Bool {
    let at = MonotonicTime(since: began, now: now)
    return quotas.withLock { quotas in
      var quota = quotas[gateway] ?? fullQuota
      let isTaken = quota.take(at: at)
      quotas.keep(quota, of: gateway) { $0.isFull(at: at) }
      return isTaken
    }
  }
}

/// Limits a gateway's events a second, with bursts of a second's worth, and bytes a day, with bursts of a day's worth.
actor RateLimiter {
  static let message = "too many events or bytes"

  private struct Allowance {
    let perSecond: Double
    let most: Double
    var level: Double
    var at: ContinuousClock.Instant

    mutating func refill(_ now: ContinuousClock.Instant) {
      level = min(most, level + (now - at).inSeconds * perSecond)
      at = now
    }

    func isFull(_ now: ContinuousClock.Instant) -> Bool { level + (now - at).inSeconds * perSecond >= most }

    /// A request larger than the whole bucket passes when the bucket is full, and leaves a debt.
    func wait(for amount: Double) -> Int? {
      let wanted = min(amount, most)
      return level >= wanted ? nil : max(1, Int(((wanted - level) / perSecond).rounded(.up)))
    }
  }

  private let fullAllowances: [Allowance?]
  private var kept = KeptForGateways<[Allowance?]>()

  /// 0: no limit.
  init(perSecond: Int, bytesPerDay: Int64 = 0, now: ContinuousClock.Instant = .now) {
    let (events, bytes) = (Double(perSecond), Double(bytesPerDay))
    fullAllowances = [
      perSecond > 0 ? Allowance(perSecond: events, most: events, level: events, at: now) : nil,
      bytesPerDay > 0 ? Allowance(perSecond: bytes / 86_400, most: bytes, level: bytes, at: now) : nil,
    ]
  }

  /// Counts bytes that the hub does not refuse. They leave a debt of at most one day.
  func count(_ gateway: String, bytes: Int, now: ContinuousClock.Instant = .now) {
    var own = allowances(of: gateway, now)
    if let allowance = own[1] { own[1]?.level = max(allowance.level - Double(bytes), -allowance.most) }
    keep(own, of: gateway, now)
  }

  /// `nil`: admitted; otherwise the seconds until a retry. Without `events` only bytes count.
  func admit(_ gateway: String, events: Int? = nil, bytes: Int, now: ContinuousClock.Instant = .now) -> Int? {
    var own = allowances(of: gateway, now)
    // A batch without events still costs a row.
    let amounts = [events.map { Double($0) }, Double(max(bytes, 256))]
    let waits = zip(own, amounts).compactMap { allowance, amount in amount.flatMap { allowance?.wait(for: $0) } }
    if waits.isEmpty { for (index, amount) in amounts.enumerated() { own[index]?.level -= amount ?? 0 } }
    keep(own, of: gateway, now)
    return waits.max()
  }

  private func allowances(of gateway: String, _ now: ContinuousClock.Instant) -> [Allowance?] {
    var own =
      kept[gateway]
      ?? fullAllowances.map { $0.map { Allowance(perSecond: $0.perSecond, most: $0.most, level: $0.most, at: now) } }
    for index in own.indices { own[index]?.refill(now) }
    return own
  }

  private func keep(_ own: [Allowance?], of gateway: String, _ now: ContinuousClock.Instant) {
    kept.keep(own, of: gateway) { $0.allSatisfy { $0?.isFull(now) ?? true } }
  }
}
