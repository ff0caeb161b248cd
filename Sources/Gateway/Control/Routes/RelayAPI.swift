// SPDX-License-Identifier: MIT

import ControlShapes
import HTTP
import JSON
import Messaging
import Relay
import Store
import UntrustedText

/// `/v1/outbox…` and `/v1/upstreams…`: events that servers have not received, and operations on upstreams.
struct RelayAPI {
  private let store: Store
  private let relay: Relay
  private let operations: any GatewayOperations

  init(_ dependencies: ControlAPI.Dependencies) {
    (store, relay, operations) = (dependencies.store, dependencies.relay, dependencies.operations)
  }

  func add(_ body: RequestBody) throws(Refusal) -> Answer {
    let warnings = try operations.addUpstream(body.whole)
    return .json { json in
      json.field(Shape.Added().ok, true)
      json.field(Shape.Added().warnings, warnings)
    }
  }

  func remove(_ request: HTTPRequest) throws(Refusal) -> Answer {
    try operations.removeUpstream(request.query["upstream"] ?? "")
    return .done
  }

  /// Deletes the position of an upstream that is no longer configured. An upstream with this name is then a new one.
  func forget(_ request: HTTPRequest) throws -> Answer {
    let name = request.query["upstream"] ?? ""
    guard !relay.upstreams.contains(where: { $0.name.isExactly(name) }) else {
      throw Refusal.invalid("\"\(name)\" is configured: remove it first")
    }
    let removed = try store.removedUpstreams().map(\.name)
    guard let shown = Self.shown(name, in: removed) else {
      throw Refusal.notFound(.removedUpstream(name, known: removed))
    }
    relay.forget(shown)
    try store.forgetUpstream(shown)
    return .done
  }

  private func upstream(_ request: HTTPRequest) throws(Refusal) -> Upstream {
    let (name, names) = (request.query["upstream"] ?? "", relay.upstreams.map(\.name))
    let shown = Self.shown(name, in: names) ?? name
    if let found = relay.upstreams.first(where: { $0.name.isExactly(shown) }) { return found }
    throw .notFound(.upstream(name, known: names))
  }

  /// Of these names, the one that an operator means: the name as `meshpost status` shows it or, if there is none, that of a hook as the
  /// configuration has it, without `hook/`.
  private static func shown(_ name: String, in names: [String]) -> String? {
    for wanted in [name, "hook/\(name)"] {
      if let found = names.first(where: { $0.isExactly(wanted) }) { return found }
    }
    return nil
  }

  func pause(_ request: HTTPRequest) throws(Refusal) -> Answer {
    let upstream = try upstream(request)
    upstream.setPaused(true)
    return .json { StatusReport.write(upstream.status, to: &$0) }
  }

  func resume(_ request: HTTPRequest) throws(Refusal) -> Answer {
    let upstream = try upstream(request)
    upstream.setPaused(false)
    upstream.resume()
    return .json { StatusReport.write(upstream.status, to: &$0) }
  }

  func skip(_ request: HTTPRequest) async throws(Refusal) -> Answer {
    let upstream = try upstream(request)
    switch await upstream.skip(try seq(request)) {
    case .setAside(let seq): return .json { $0.field(Shape.Skipped().skipped, seq) }
    case .taken(let seq): throw .invalid("\(upstream.name): the server has taken event \(seq) now: nothing is skipped")
    case .isOneOf(let count):
      throw .invalid(
        "\(upstream.name): the last try had \(count) events, and one is sent at a time now. Skip again when one has failed alone"
      )
    case .isAnother(let failed):
      throw .invalid(
        "\(upstream.name): nothing is skipped: the last try failed over event \(failed), not over this one")
    case .othersFail(let seq, let reason):
      throw .invalid(
        "\(upstream.name): nothing is skipped: the server does not take another event either: \(reason). To skip event \(seq) all the same: "
          + "meshpost upstream skip \(Escaping.argument(upstream.name)) \(seq)")
    case .unproven(let reason): throw .invalid("\(upstream.name): nothing is skipped: \(reason)")
    case .nothing: throw .invalid("\(upstream.name): no event was tried and not taken: see meshpost upstream pending")
    }
  }

  func test(_ request: HTTPRequest) async throws(Refusal) -> Answer {
    let upstream = try upstream(request)
    if let trouble = await upstream.test() { throw .silence("\(upstream.name): \(trouble)") }
    return .done
  }

  // MARK: Outbox

  func resume() -> Answer {
    relay.resume()
    return .done
  }

  /// Drops an upstream's dead letters, or with `seq` one of them.
  func drop(_ request: HTTPRequest) throws -> Answer {
    let upstream = try upstream(request)
    let seq = try seq(request)
    let count = try store.dropDeadLetters(of: upstream.name, seq: seq)
    if let seq, count == 0 { throw noLetter(seq, of: upstream) }
    if count > 0 { upstream.lettersDropped(seq, count) }
    return .json { $0.field(Shape.Dropped().dropped, count) }
  }

  /// Bytes of dead letters in one answer.
  private static let maxLetterBytes = 640 * 1024

  func outbox() throws -> Answer {
    try .json { json in
      json.objects(Shape.Outbox().upstreams, relay.upstreams) { StatusReport.write($0.status, to: &$1) }
      try json.array(Shape.Outbox().deadLetters) { json in
        var bytes = 0
        try store.eachDeadLetter(limit: 500) { letter in
          // Clients accept answers of up to 1 MiB.
          bytes += letter.event.body.count + 1024
          guard bytes <= Self.maxLetterBytes else { return false }
          json.object { json in
            let row = Shape.DeadLetter()
            json.field(row.upstream, letter.upstream)
            json.field(row.seq, letter.event.seq)
            json.field(row.at, letter.event.at)
            json.field(row.kind, letter.event.kind)
            json.field(row.status, letter.status)
            json.field(row.reason, Visible.excerpt(letter.reason))
            json.field(row.body, json: letter.event.body)
          }
          return true
        }
      }
    }
  }

  /// Retries all dead letters, those of an upstream, or with `seq` one of these.
  func retry(_ request: HTTPRequest) throws -> Answer {
    let seq = try seq(request)
    guard request.query["upstream"] != nil else {
      guard seq == nil else {
        throw Refusal.invalid("seq requires upstream: each upstream numbers its own dead letters")
      }
      let counts = try relay.retryLetters(of: nil, seq: nil)
      relay.resume()
      return answer(counts)
    }
    let upstream = try upstream(request)
    let counts = try relay.retryLetters(of: upstream, seq: seq)
    if let seq, counts.kept > 0 {
      throw Refusal.invalid(
        "\(upstream.name): event \(seq) stays a dead letter: the upstream's filter leaves it out now")
    }
    if let seq, counts.retried == 0 { throw noLetter(seq, of: upstream) }
    upstream.resume()
    return answer(counts)
  }

  private func answer(_ counts: (retried: Int, kept: Int)) -> Answer {
    .json { json in
      json.field(Shape.Retried().retried, counts.retried)
      json.field(Shape.Retried().keptBack, counts.kept > 0 ? counts.kept : nil)
    }
  }

  private func noLetter(_ seq: Int64, of upstream: Upstream) -> Refusal {
    .notFound(.deadLetter(seq, upstream: upstream.name))
  }

  private func seq(_ request: HTTPRequest) throws(Refusal) -> Int64? {
    guard let text = request.query["seq"] else { return nil }
    guard let number = Int64(text), number > 0 else { throw .invalid("seq: expected the number of an event") }
    return number
  }
}
