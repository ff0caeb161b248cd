// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON
import Messaging

/// How the control socket answers.
enum Answering {
  static func answer(
    _ responder: HTTPResponder, status: Int = 200, _ body: (inout JSONWriter) throws -> Void
  ) rethrows {
    let bytes = try JSONWriter.object(body) + [10]
    responder.respond(HTTPResponse(status: status, headers: ["Content-Type": "application/json"], body: bytes))
  }

  /// Answers what `work` writes, or why it was refused; in a task, which asks the radio.
  static func answer(
    _ responder: HTTPResponder, on loop: EventLoop,
    _ work: @escaping () async throws(Refusal) -> (inout JSONWriter) -> Void
  ) {
    loop.begin {
      do throws(Refusal) {
        answer(responder, try await work())
      } catch {
        refuse(responder, error)
      }
    }
  }

  /// What says only that it was done.
  static func done(_ json: inout JSONWriter) { json.field("ok", true) }

  static func refuse(_ responder: HTTPResponder, _ refusal: Refusal) {
    answer(responder, status: status(of: refusal)) { json in
      json.field("error", refusal.description)
      json.field("code", refusal.code)
      switch refusal {
      case .tooLong(let over, let limit):
        json.field("over", over)
        json.field("limit", limit)
      case .ambiguous(_, let candidates):
        json.arrayField("candidates") { json in for candidate in candidates { json.value(candidate) } }
      default: break
      }
    }
  }

  private static func status(of refusal: Refusal) -> Int {
    switch refusal {
    case .notFound, .otherChannel: 404
    case .ambiguous, .notOnRadio: 409
    case .tooLong, .invalid: 400
    case .readOnly: 403
    case .full: 429
    case .linkDown, .store: 503
    case .radio: 502
    case .silence: 504
    }
  }
}

/// The fields of a request's JSON body.
struct RequestBody {
  private let value: JSONValue

  init(_ request: HTTPRequest) throws(Refusal) {
    do {
      value = try JSONValue(parsing: request.body)
    } catch {
      throw .invalid("the body is no JSON: \(error)")
    }
  }

  var whole: JSONValue { value }

  func string(_ name: String) throws(Refusal) -> String {
    guard let text = value[name]?.string else { throw .invalid("\"\(name)\" is missing, or no string") }
    return text
  }

  func optional(_ name: String) throws(Refusal) -> String? {
    switch value[name] {
    case nil, .null: return nil
    case .string(let text): return text
    default: throw .invalid("\"\(name)\" is no string")
    }
  }

  /// `nil`: absent, or null.
  func any(_ name: String) -> JSONValue? { value[name] == .null ? nil : value[name] }

  func flag(_ name: String) -> Bool { value[name]?.bool ?? false }

  func integer(_ name: String, in range: ClosedRange<Int64>) throws(Refusal) -> Int64? {
    guard let given = value[name] else { return nil }
    guard let integer = given.integer, range.contains(integer) else {
      throw .invalid("\"\(name)\" is no whole number from \(range.lowerBound) to \(range.upperBound)")
    }
    return integer
  }
}
