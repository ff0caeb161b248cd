// SPDX-License-Identifier: MIT

import FoundationEssentials
import Glibc
import JSON

/// Requests for gateways that are linked to another hub on the same database. Such a request is about the present, so no queue keeps it: it goes from
/// hub to hub in notifications, without a row in the database.
///
/// A request is an *ask*, in pieces that fit a notification. The hub with the link sends *taken* at once, and the *answer* later, in pieces. A hub of
/// an older version ignores them.
actor PeerHubRequests {
  /// The time for a hub to send *taken*. It needs no query, but the notification may be slow.
  static let patience: Duration = .seconds(3)
  /// Bytes of a piece: with Base64 and its address it stays below 8,000, the limit of a notification.
  static let pieceBytes = 5400
  static let maxPieces = 64
  /// Most own requests in flight, most simultaneous requests of peer hubs, and most incomplete texts.
  static let maxOpen = 256
  /// The beginning of the bucket names of these notifications.
  static let bucketPrefix = "live/"

  private struct Waiting {
    let answer: CheckedContinuation<JSONValue, any Error>
    let timer: Task<Void, Never>
    var isAccepted = false
  }

  /// A text that arrives in pieces.
  private struct Pieces {
    var known: [Int: [UInt8]] = [:]
    var count: Int
  }

  private let registry: LinkRegistry
  private let patience: Duration
  private let notify: @Sendable ([HubChange]) async throws -> Void
  private let hasOtherHubs: @Sendable () async throws -> Bool
  private var waiting: [String: Waiting] = [:]
  private var incomplete: [String: Pieces] = [:]
  private var order: [String] = []
  /// Requests of peer hubs in progress.
  private var served: Set<String> = []

  /// `notify` notifies all hubs, including this one; `hasOtherHubs`: whether another hub uses the database.
  init(
    _ registry: LinkRegistry, patience: Duration = PeerHubRequests.patience,
    hasOtherHubs: @escaping @Sendable () async throws -> Bool,
    notify: @escaping @Sendable ([HubChange]) async throws -> Void
  ) {
    (self.registry, self.patience, self.hasOtherHubs, self.notify) = (registry, patience, hasOtherHubs, notify)
  }

  /// Sends a request to the gateway, as `LinkRegistry.request` does.
  func request(_ gateway: String, id: String, command: JSONValue) async throws -> JSONValue {
    guard try await hasOtherHubs(), waiting.count < Self.maxOpen else { throw LinkRegistry.Failure.away }
    let number = UUID().uuidString
    let body = JSONWriter.object(["id": id, "command": command])
    guard let notifications = Self.notifications(gateway, "ask", number, body) else { throw LinkRegistry.Failure.away }
    return try await withCheckedThrowingContinuation { answer in
      let timer = Task {
        do {
          try await notify(notifications)
          try await Task.sleep(for: patience)
          guard self.isAccepted(number) else { return self.end(number, .failure(LinkRegistry.Failure.away)) }
          try await Task.sleep(for: LinkRegistry.patience)
          self.end(number, .failure(LinkRegistry.Failure.timedOut))
        } catch {
          // Either this task was cancelled because the request has ended, or the database is unavailable.
          self.end(number, .failure(error))
        }
      }
      waiting[number] = Waiting(answer: answer, timer: timer)
    }
  }

  private func isAccepted(_ number: String) -> Bool { waiting[number]?.isAccepted ?? true }

  private func end(_ number: String, _ result: Result<JSONValue, any Error>) {
    guard let ended = waiting.removeValue(forKey: number) else { return }
    ended.timer.cancel()
    ended.answer.resume(with: result)
  }

  // MARK: Receiving

  /// Handles a notification of any hub. It ignores notifications for other hubs.
  func received(_ change: HubChange) async {
    guard let part = Part(change.bucket) else { return }
    switch part.kind {
    case "taken": waiting[part.number]?.isAccepted = true
    case "answer":
      guard waiting[part.number] != nil, let whole = assemble(part, as: "answer") else { return }
      // `try?`: invalid JSON counts as no answer.
      guard let answer = (try? JSONValue(parsing: whole))?["answer"] else {
        return end(part.number, .failure(LinkRegistry.Failure.timedOut))
      }
      end(part.number, .success(answer))
    case "ask":
      guard await registry.isOpen(change.gateway), !served.contains(part.number), let whole = assemble(part, as: "ask"),
        let body = try? JSONValue(parsing: whole),  // as above
        let id = body["id"]?.string, let command = body["command"]
      else { return }
      await serve(change.gateway, part.number, id, command)
    default: break
    }
  }

  private func serve(_ gateway: String, _ number: String, _ id: String, _ command: JSONValue) async {
    guard served.count < Self.maxOpen, served.insert(number).inserted else { return }
    defer { served.remove(number) }
    // `try?`: without a database there are no notifications; the asking hub gives up.
    try? await notify(Self.notifications(gateway, "taken", number, []) ?? [])
    // `try?`: the gateway's link is gone.
    let answer = try? await registry.request(gateway, id: id, command: command)
    let body = JSONWriter.object(["answer": answer])
    // An answer that is too long counts as none.
    let parts = Self.notifications(gateway, "answer", number, body) ?? Self.notifications(gateway, "answer", number, [])
    try? await notify(parts ?? [])  // as above
  }

  // MARK: Pieces

  /// The whole text; `nil`: pieces are missing. At the limit the oldest incomplete text is dropped.
  private func assemble(_ part: Part, as kind: String) -> [UInt8]? {
    guard part.count > 1 else { return part.bytes }
    let key = "\(kind)/\(part.number)"
    if incomplete[key] == nil {
      if order.count >= Self.maxOpen { incomplete[order.removeFirst()] = nil }
      order.append(key)
    }
    var pieces = incomplete[key] ?? Pieces(count: part.count)
    pieces.known[part.index] = part.bytes
    incomplete[key] = pieces
    guard pieces.count == part.count, pieces.known.count == pieces.count else { return nil }
    incomplete[key] = nil
    order.removeAll { $0 == key }
    return (0..<pieces.count).flatMap { pieces.known[$0] ?? [] }
  }

  /// `nil`: the body is too long.
  private static func notifications(_ gateway: String, _ kind: String, _ number: String, _ body: [UInt8])
    -> [HubChange]?
  {
    let count = max(1, (body.count + pieceBytes - 1) / pieceBytes)
    guard count <= maxPieces else { return nil }
    return (0..<count).map { index in
      let piece = body[min(body.count, index * pieceBytes)..<min(body.count, (index + 1) * pieceBytes)]
      let text = Data(piece).base64EncodedString()
      return HubChange(gateway: gateway, bucket: "\(bucketPrefix)\(kind)/\(number)/\(index)/\(count)/\(text)", seq: 0)
    }
  }

  private struct Part {
    let kind: String
    let number: String
    let index: Int
    let count: Int
    let bytes: [UInt8]

    init?(_ bucket: String) {
      guard bucket.begins(with: PeerHubRequests.bucketPrefix) else { return nil }
      // Base64 has slashes of its own.
      let parts = bucket.split(separator: "/", maxSplits: 5, omittingEmptySubsequences: false).map(String.init)
      guard parts.count == 6, parts[2].utf8.count <= 64, let index = Int(parts[3]), let count = Int(parts[4]),
        (1...PeerHubRequests.maxPieces).contains(count), (0..<count).contains(index),
        let data = Data(base64Encoded: parts[5])
      else { return nil }
      (kind, number, self.index, self.count, bytes) = (parts[1], parts[2], index, count, Array(data))
    }
  }
}
