// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON
import Store
import Timing

/// Carries batches to a Meshpost hub by HTTP; one cumulative acknowledgement each. What else there is to say goes over a
/// connection of its own, so that neither waits for the other. Source: docs/hub-protocol.md.
final class HubOverHTTP {
  private let server: AuthorizedHTTP
  private let queryConnection: AuthorizedHTTP
  private let path: String
  private let store: Store
  private let clock: WallClock
  /// One after another on the connection for questions.
  private let turn = LoopSemaphore<Int>(bound: 32)

  init(_ settings: AuthorizedHTTP.Settings, store: Store, on loop: EventLoop) throws {
    server = try AuthorizedHTTP(settings, on: loop)
    queryConnection = try AuthorizedHTTP(settings, on: loop)
    path = "\(server.path)/v1/gateways/\(PercentCoding.encode(store.gatewayID))"
    self.store = store
    clock = loop.wallClock
  }

  var certificateExpiry: Int64? { server.certificateExpiry }
  var bytesSent: UInt64 { server.bytesSent &+ queryConnection.bytesSent }

  func greet() async -> Greeting {
    do throws(Verdict) {
      let result = try await server.send(HTTPRequest("GET", "\(path)?epoch=\(store.epoch)"))
      if case .success(let response) = result, response.status == 404 {
        // `try?`: what is no JSON says nothing of lanes.
        return .has((try? JSONValue(parsing: response.body)).flatMap(Self.acknowledged) ?? .whole(nil))
      }
      var acknowledged = Acknowledged.whole(nil)
      let verdict = RetryPolicy.verdict(result, now: clock.seconds) { body in
        // `try?`: what is no JSON makes no sense.
        guard let json = try? JSONValue(parsing: body), json.fields != nil,
          let has = Self.acknowledged(json)
        else { return nil }
        acknowledged = has
        return 0
      }
      guard case .acknowledged = verdict else { return .failed(verdict) }
      return .has(acknowledged)
    } catch {
      return .failed(error)
    }
  }

  /// What a greeting says that the hub has: `nil` where that makes no sense.
  static func acknowledged(_ greeting: JSONValue) -> Acknowledged? {
    if let lanes = greeting["lanes"], lanes != .null {
      guard lanes.fields != nil else { return nil }
      var found = ByLane<Int64?>(all: nil)
      for lane in Lane.allCases {
        guard let given = lanes[lane.rawValue], given != .null else { continue }
        guard let count = given.count else { return nil }
        found[lane] = count
      }
      return .byLane(found)
    }
    guard let given = greeting["acknowledged"], given != .null else { return .whole(nil) }
    return given.count.map { .whole($0) }
  }

  func carry(_ batch: Batch) async -> Verdict {
    let request = HTTPRequest("POST", "\(path)/events", body: batch.encode(epoch: store.epoch))
    do throws(Verdict) {
      return RetryPolicy.verdict(try await server.send(request), now: clock.seconds) { body in
        // `try?`: an answer that is no JSON makes no sense, and that is all there is to know.
        (try? JSONValue(parsing: body))?["acknowledged"]?.count
      }
    } catch {
      return error
    }
  }

  // MARK: Questions and states

  /// `nil`: no answer, or none that makes sense.
  func ask(_ question: UpdatesQuestion) async -> JSONValue? {
    await send(HTTPRequest("GET", "\(path)/updates?\(question.query)"))
  }

  /// A state that does not arrive is followed by a newer one.
  func publish(_ state: (name: String, body: [UInt8])) async {
    _ = await send(HTTPRequest("PUT", "\(path)/state/\(state.name)", body: state.body))
  }

  private func send(_ request: HTTPRequest) async -> JSONValue? {
    // `try?`: whatever is in the way, there is no answer.
    let result = try? await turn.with(0) { try await self.queryConnection.send(request) }
    guard case .success(let response)? = result, response.status == 200 else { return nil }
    // `try?`: what is no JSON is no answer.
    return try? JSONValue(parsing: response.body)
  }

  func close() {
    server.close()
    queryConnection.close()
  }
}
