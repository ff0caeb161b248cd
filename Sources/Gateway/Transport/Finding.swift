// SPDX-License-Identifier: MIT

/// A finding of a doctor: a subject, its state, and the remedy if there is a fault.
public struct Finding: Equatable, Sendable {
  public enum State: String, Sendable { case ok, warning, failed }

  public let subject: String
  public let state: State
  public let message: String
  public let remedy: String?

  public init(_ subject: String, _ state: State, _ message: String, _ remedy: String? = nil) {
    self.subject = subject
    self.state = state
    self.message = message
    self.remedy = remedy
  }
}
