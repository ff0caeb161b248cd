// SPDX-License-Identifier: MIT

/// Stores batches: all waiting batches of all gateways in one transaction, and each gateway's batches in the order of arrival.
final class Ingest: Sendable {
  /// Limits of one transaction; other events count as several.
  private static let maxEvents = 4000.0
  private static let maxBytes = Double(4 << 20)
  /// A batch that costs more is stored in parts, a transaction each: a thousand documents would keep the database from all others for more than a second.
  private static let partCost = 2000

  /// A batch that is to be stored.
  struct Waiting: Sendable {
    fileprivate let parts: [Coalescer<PreparedBatch, HubStore.IngestAnswer>.Ticket]

    /// Returns when the batch is on disk or is refused. What is stored of one that is refused then is known when its gateway sends it again.
    func answer() async throws -> HubStore.IngestAnswer {
      var answer = HubStore.IngestAnswer.acknowledged(0)
      for part in parts {
        answer = try await part.answer()
        guard case .acknowledged = answer else { break }
      }
      return answer
    }
  }

  private let stores: [HubStore]
  private let writers: [Coalescer<PreparedBatch, HubStore.IngestAnswer>]
  let admission = Admission()
  private static let failures = ThrottledLog(HubLog.write)
  private static let refusals = ThrottledLog(HubLog.write)

  /// `stored`: called after each transaction with batches.
  init(
    _ stores: [HubStore], patience: Duration = .seconds(12), metrics: HubMetrics = HubMetrics(),
    stored: @escaping @Sendable () -> Void = {}
  ) {
    self.stores = stores
    writers = stores.map { store in
      Coalescer(
        patience: patience, weight: { max(Double($0.cost) / Self.maxEvents, Double($0.bytes) / Self.maxBytes) },
        { (batches) async throws(HubDatabaseError) in
          let begun = ContinuousClock.now
          do throws(HubDatabaseError) {
            let answers = try await store.take(batches)
            metrics.committed(batches, answers, within: .now - begun)
            stored()
            if let words = batches.lazy.compactMap(\.refusedWords).first { Self.refusals.say(words) }
            return answers
          } catch {
            metrics.failed(error.kind)
            Self.failures.say("batches not stored (\(batches.count)): \(error)")
            throw error
          }
        })
    }
  }

  /// Returns when the batch is on disk or is refused. `patience`: after this wait its gateway would close the link.
  func take(_ batch: PreparedBatch) async throws -> HubStore.IngestAnswer { try await begin(batch).answer() }

  /// Queues the batch behind the gateway's others.
  func begin(_ batch: PreparedBatch) -> Waiting {
    let writer = writers[Self.place(batch.gateway, of: writers.count)]
    return Waiting(parts: batch.parts(most: Self.partCost).map { writer.begin($0) })
  }

  func listen(_ listener: @escaping @Sendable (HubChange) -> Void) async {
    for store in stores { await store.listen(listener) }
  }

  /// The connection of a gateway: the same for all of its batches.
  private static func place(_ gateway: String, of count: Int) -> Int {
    Int(gateway.utf8.reduce(UInt32(2_166_136_261)) { ($0 ^ UInt32($1)) &* 16_777_619 } % UInt32(count))
  }
}
