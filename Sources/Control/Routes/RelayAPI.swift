// SPDX-License-Identifier: MIT

import Escaping
import HTTP
import JSON
import Messaging
import Relay
import Store

/// `/v1/outbox…` and `/v1/upstreams…`: what servers have not had, and what is done about it.
final class RelayAPI {
  static let paths = [
    "/v1/outbox", "/v1/outbox/retry", "/v1/outbox/drop", "/v1/outbox/resume", "/v1/upstreams/pause",
    "/v1/upstreams/resume", "/v1/upstreams/test", "/v1/upstreams/add", "/v1/upstreams/remove",
  ]

  private let parts: ControlAPI.Parts

  init(_ parts: ControlAPI.Parts) { self.parts = parts }

  /// False: not one of these.
  func handle(_ request: HTTPRequest, _ responder: HTTPResponder) throws -> Bool {
    switch (request.method, request.path) {
    case ("GET", "/v1/outbox"): try outbox(responder)
    case ("POST", "/v1/outbox/retry"): try retry(request, responder)
    case ("POST", "/v1/outbox/drop"): try drop(request, responder)
    case ("POST", "/v1/outbox/resume"):
      parts.relay().resume()
      Answering.answer(responder) { $0.field("ok", true) }
    case ("POST", "/v1/upstreams/pause"), ("POST", "/v1/upstreams/resume"), ("POST", "/v1/upstreams/test"):
      guard let upstream = upstream(request, responder) else { break }
      act(request.path, upstream, responder)
    case ("POST", "/v1/upstreams/add"), ("POST", "/v1/upstreams/remove"): change(request, responder)
    default: return false
    }
    return true
  }

  private func change(_ request: HTTPRequest, _ responder: HTTPResponder) {
    do throws(Refusal) {
      var warnings: [String] = []
      if request.path == "/v1/upstreams/add" {
        warnings = try parts.addUpstream(try RequestBody(request).whole)
      } else {
        try parts.removeUpstream(request.query["upstream"] ?? "")
      }
      Answering.answer(responder) { json in
        json.field("ok", true)
        guard !warnings.isEmpty else { return }
        json.arrayField("warnings") { json in for words in warnings { json.value(words) } }
      }
    } catch {
      Answering.refuse(responder, error)
    }
  }

  private func upstream(_ request: HTTPRequest, _ responder: HTTPResponder) -> (any Upstream)? {
    let name = request.query["upstream"] ?? ""
    if let found = parts.relay().upstreams.first(where: { $0.name.isExactly(name) }) { return found }
    let names = parts.relay().upstreams.map(\.name).joined(separator: ", ")
    Answering.refuse(responder, .invalid("there is no upstream \"\(name)\"; there are: \(names)"))
    return nil
  }

  private func act(_ path: String, _ upstream: any Upstream, _ responder: HTTPResponder) {
    switch path {
    case "/v1/upstreams/pause": upstream.setPaused(true)
    case "/v1/upstreams/resume":
      upstream.setPaused(false)
      upstream.resume()
    default:
      parts.loop.begin {
        if let trouble = await upstream.test() {
          return Answering.refuse(responder, .silence("\(upstream.name): \(trouble)"))
        }
        Answering.answer(responder) { $0.field("ok", true) }
      }
      return
    }
    Answering.answer(responder) { StatusReport.write(upstream.status, to: &$0) }
  }

  /// Dead letters that nobody wants any more.
  private func drop(_ request: HTTPRequest, _ responder: HTTPResponder) throws {
    guard let upstream = upstream(request, responder) else { return }
    let count = try parts.store.dropDeadLetters(of: upstream.name)
    Answering.answer(responder) { $0.field("dropped", count) }
  }

  private func outbox(_ responder: HTTPResponder) throws {
    try Answering.answer(responder) { json in
      json.arrayField("upstreams") { json in
        for upstream in parts.relay().upstreams { json.object { StatusReport.write(upstream.status, to: &$0) } }
      }
      try json.arrayField("dead_letters") { json in
        try parts.store.eachDeadLetter(limit: 500) { letter in
          json.object { json in
            json.field("upstream", letter.upstream)
            json.field("seq", letter.event.seq)
            json.field("kind", letter.event.kind)
            json.field("status", letter.status)
            json.field("reason", letter.reason)
            json.field("body", json: letter.event.body)
          }
          return true
        }
      }
    }
  }

  private func retry(_ request: HTTPRequest, _ responder: HTTPResponder) throws {
    let upstream = request.query["upstream"]
    if let upstream, !parts.relay().upstreams.contains(where: { $0.name.isExactly(upstream) }) {
      let names = parts.relay().upstreams.map(\.name).joined(separator: ", ")
      return Answering.refuse(responder, .invalid("there is no upstream \(upstream); there are: \(names)"))
    }
    let count = try parts.store.retryDeadLetters(of: upstream)
    parts.relay().resume()
    Answering.answer(responder) { $0.field("retried", count) }
  }
}
