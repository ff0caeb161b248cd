// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON
import Store
import Timing

/// Carries batches to a Meshpost hub by HTTP; one cumulative acknowledgement each. Source: docs/hub-protocol.md.
final class HubCarrier: Carrier {
  let kind = "hub"
  let place: String
  private let road: HTTPRoad
  private let path: String
  private let store: Store
  private let clock = WallClock()

  init(_ settings: HTTPRoad.Settings, store: Store, on loop: EventLoop) throws {
    place = settings.url
    road = try HTTPRoad(settings, on: loop)
    path = "\(road.path)/v1/gateways/\(PercentCoding.encode(store.gatewayID))"
    self.store = store
  }

  var bytesSent: UInt64 { road.bytesSent }

  func greet(_ done: @escaping (Greeting) -> Void) {
    road.send(HTTPRequest("GET", "\(path)?epoch=\(store.epoch)")) { [clock] result in
      if case .success(let response) = result, response.status == 404 { return done(.has(nil)) }
      var acknowledged: Int64?
      let verdict = RetryPolicy.verdict(result, now: clock.seconds) { body in
        // `try?`: what is no JSON makes no sense.
        guard let json = try? JSONValue(parsing: body), json.fields != nil else { return nil }
        acknowledged = json["acknowledged"]?.integer
        return acknowledged ?? 0
      }
      guard case .acknowledged = verdict else { return done(.failed(verdict)) }
      done(.has(acknowledged))
    } refused: {
      done(.failed($0))
    }
  }

  func carry(_ batch: Batch, _ done: @escaping (Verdict) -> Void) {
    let request = HTTPRequest("POST", "\(path)/events", body: batch.encode(epoch: store.epoch))
    road.send(request) { [clock] result in
      done(
        RetryPolicy.verdict(result, now: clock.seconds) { body in
          // `try?`: an answer that is no JSON makes no sense, and that is all there is to know.
          (try? JSONValue(parsing: body))?["acknowledged"]?.integer
        })
    } refused: {
      done($0)
    }
  }

  func close() { road.close() }
}
