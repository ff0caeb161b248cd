// SPDX-License-Identifier: MIT

import BluetoothSession
import ControlShapes
import HTTP
import JSON
import Messaging
import Store

/// The answer to a request at the control socket.
enum Answer {
  case whole(HTTPResponse)
  /// The answer was sent piece by piece, and is complete (`Reply.rows`).
  case streamed

  static func json(status: Int = 200, _ body: (inout JSONWriter) throws -> Void) rethrows -> Answer {
    .whole(
      HTTPResponse(
        status: status, headers: ["Content-Type": "application/json"], body: try JSONWriter.object(body) + [10]))
  }

  /// An answer that only confirms success.
  static var done: Answer { json { $0.field(Shape.Ok().ok, true) } }
}

/// A refusal without a code for programs.
struct Rejection: Error {
  let status: Int
  let message: String
}

extension Answer {
  /// Turns an error into an answer; no other code does.
  static func refusing(_ error: any Error) -> Answer {
    switch error {
    case let refusal as Refusal: refusing(refusal)
    case let error as StoreError: refusing(.store(error))
    case SearchError.store(let error): refusing(.store(error))
    case SearchError.words(let words): refusing(.invalid("\(words)"))
    case let rejection as Rejection:
      json(status: rejection.status) { $0.field(Shape.Refusal().error, rejection.message) }
    case let trouble as BluetoothTrouble:
      json(status: 502) { json in
        json.field(Shape.Refusal().error, trouble.description)
        json.field(Shape.Refusal().remedy, trouble.remedy)
      }
    default: json(status: 503) { $0.field(Shape.Refusal().error, "\(error)") }
    }
  }

  private static func refusing(_ refusal: Refusal) -> Answer {
    json(status: status(of: refusal)) { json in
      let row = Shape.Refusal()
      json.field(row.error, refusal.description)
      json.field(row.code, refusal.code)
      switch refusal {
      case .tooLong(let over, let limit):
        json.field(row.over, over)
        json.field(row.limit, limit)
      case .ambiguous(_, let candidates):
        json.field(row.candidates, candidates)
      default: break
      }
    }
  }

  private static func status(of refusal: Refusal) -> Int {
    switch refusal {
    case .notFound, .otherChannel: 404
    case .ambiguous, .notOnRadio, .noPlace, .otherMessage: 409
    case .tooLong, .invalid: 400
    case .readOnly: 403
    case .full: 429
    case .linkDown, .store, .cancelled: 503
    case .radio: 502
    case .silence, .unknown: 504
    }
  }
}

/// The fields of a JSON object that requests something. A field of another type than expected is refused.
public struct RequestBody {
  private let value: JSONValue

  public init(_ value: JSONValue) { self.value = value }

  init(_ request: HTTPRequest) throws(Refusal) {
    do {
      value = try JSONValue(parsing: request.body)
    } catch {
      throw .invalid("the body is not valid JSON: \(error)")
    }
    if let name = value.repeatedName { throw .invalid("\"\(name)\" is there twice in an object") }
  }

  var whole: JSONValue { value }

  public func string(_ name: String) throws(Refusal) -> String {
    guard let text = value[name]?.string else { throw .invalid("\"\(name)\" is missing, or not a string") }
    return text
  }

  func optional(_ name: String) throws(Refusal) -> String? {
    switch value[name] {
    case nil, .null: return nil
    case .string(let text): return text
    default: throw .invalid("\"\(name)\" is not a string")
    }
  }

  /// `nil`: the field is missing or null.
  func any(_ name: String) -> JSONValue? { value[name] == .null ? nil : value[name] }

  /// Empty if the field is missing or null.
  func array(_ name: String) throws(Refusal) -> [JSONValue] {
    guard let given = any(name) else { return [] }
    guard let array = given.array else { throw .invalid("\"\(name)\" is not a list") }
    return array
  }

  /// Refuses any other field: what nobody reads may have been meant as a bound.
  func hasOnly(_ names: [String]) throws(Refusal) {
    guard let other = value.fields?.first(where: { !names.contains($0.0) }) else { return }
    throw .invalid("\"\(other.0)\" is not known here, but \(names.joined(separator: ", "))")
  }

  /// False if the field is missing or null.
  public func flag(_ name: String) throws(Refusal) -> Bool {
    guard let given = any(name) else { return false }
    guard let flag = given.bool else { throw .invalid("\"\(name)\" is not true or false") }
    return flag
  }

  /// `nil`: the field is missing or null.
  public func integer(_ name: String, in range: ClosedRange<Int64>) throws(Refusal) -> Int64? {
    guard let given = any(name) else { return nil }
    guard let integer = given.integer, range.contains(integer) else {
      throw .invalid("\"\(name)\" is not a whole number from \(range.lowerBound) to \(range.upperBound)")
    }
    return integer
  }
}
