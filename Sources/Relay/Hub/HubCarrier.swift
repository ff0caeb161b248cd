// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON
import Store
import Timing

/// Carries batches to a Meshpost hub by HTTP; one cumulative acknowledgement each. What else there is to say goes over a
/// connection of its own, so that neither waits for the other. Source: docs/hub-protocol.md.
final class HubCarrier {
  private let server: AuthorizedHTTP
  private let queryConnection: AuthorizedHTTP
  private let path: String
  private let store: Store
  private let clock = WallClock()
  /// One after another on the side server.
  private var waiting: [(request: HTTPRequest, done: (JSONValue?) -> Void)] = []
  private var isAsking = false
  private static let maxWaiting = 32

  init(_ settings: AuthorizedHTTP.Settings, store: Store, on loop: EventLoop) throws {
    server = try AuthorizedHTTP(settings, on: loop)
    queryConnection = try AuthorizedHTTP(settings, on: loop)
    path = "\(server.path)/v1/gateways/\(PercentCoding.encode(store.gatewayID))"
    self.store = store
  }

  var certificateExpiry: Int64? { server.certificateExpiry }
  var bytesSent: UInt64 { server.bytesSent &+ queryConnection.bytesSent }

  func greet(_ done: @escaping (Greeting) -> Void) {
    server.send(HTTPRequest("GET", "\(path)?epoch=\(store.epoch)")) { [clock] result in
      if case .success(let response) = result, response.status == 404 { return done(.has(nil)) }
      var acknowledged: Int64?
      let verdict = RetryPolicy.verdict(result, now: clock.seconds) { body in
        // `try?`: what is no JSON makes no sense.
        guard let json = try? JSONValue(parsing: body), json.fields != nil,
          let has = Self.acknowledged(json)
        else { return nil }
        acknowledged = has
        return acknowledged ?? 0
      }
      guard case .acknowledged = verdict else { return done(.failed(verdict)) }
      done(.has(acknowledged))
    } refused: {
      done(.failed($0))
    }
  }

  /// What a greeting says that the hub has: `.some(nil)` where it has never heard of this journal, `nil` where that makes no
  /// sense.
  static func acknowledged(_ greeting: JSONValue) -> Int64?? {
    guard let given = greeting["acknowledged"], given != .null else { return .some(nil) }
    return given.count.map { .some($0) }
  }

  func carry(_ batch: Batch, _ done: @escaping (Verdict) -> Void) {
    let request = HTTPRequest("POST", "\(path)/events", body: batch.encode(epoch: store.epoch))
    server.send(request) { [clock] result in
      done(
        RetryPolicy.verdict(result, now: clock.seconds) { body in
          // `try?`: an answer that is no JSON makes no sense, and that is all there is to know.
          (try? JSONValue(parsing: body))?["acknowledged"]?.count
        })
    } refused: {
      done($0)
    }
  }

  // MARK: The side server

  func ask(_ question: UpdatesQuestion, _ done: @escaping (JSONValue?) -> Void) {
    send(HTTPRequest("GET", "\(path)/updates?\(question.query)"), done)
  }

  /// Takes away what it tells. A state that does not arrive is followed by a newer one.
  func tell(_ states: inout [(name: String, body: [UInt8])]) {
    for state in states { send(HTTPRequest("PUT", "\(path)/state/\(state.name)", body: state.body)) { _ in } }
    states = []
  }

  private func send(_ request: HTTPRequest, _ done: @escaping (JSONValue?) -> Void) {
    guard waiting.count < Self.maxWaiting else { return done(nil) }
    waiting.append((request, done))
    goOn()
  }

  private func goOn() {
    guard !isAsking, !waiting.isEmpty else { return }
    let (request, done) = waiting.removeFirst()
    isAsking = true
    let answered: (JSONValue?) -> Void = { [weak self] answer in
      self?.isAsking = false
      done(answer)
      self?.goOn()
    }
    queryConnection.send(request) { result in
      guard case .success(let response) = result, response.status == 200 else { return answered(nil) }
      // `try?`: what is no JSON is no answer.
      answered(try? JSONValue(parsing: response.body))
    } refused: { _ in
      answered(nil)
    }
  }

  func close() {
    server.close()
    queryConnection.close()
    waiting = []
    isAsking = false
  }
}
