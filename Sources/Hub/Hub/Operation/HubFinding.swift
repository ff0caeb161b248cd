// SPDX-License-Identifier: MIT

import JSON

/// A result of the doctor, and its remedy.
public struct HubFinding: Sendable, Equatable {
  public enum State: String, Sendable {
    case ok
    case warning
    case failed
  }

  public var name: String
  public var state: State
  public var message: String
  public var remedy: String?

  public init(_ name: String, _ state: State, _ message: String, _ remedy: String? = nil) {
    (self.name, self.state, self.message, self.remedy) = (name, state, message, remedy)
  }

  public func write(to json: inout JSONWriter) {
    json.field("check", name)
    json.field("state", state.rawValue)
    json.field("words", message)
    json.field("remedy", remedy)
  }
}
