// SPDX-License-Identifier: MIT

import CDBus
import EventLoop

/// One connection to a message bus: each call is answered, or fails when it ends.
final class BusConnection {
  /// A sent call, and the promise of its answer.
  struct Question {
    fileprivate let serial: UInt32
    fileprivate let answer = Promise<Result<BusMessage, BusError>>()
  }

  private static let maxCalls = 64

  private let loop: EventLoop
  private let transport: BusTransport
  private let end = Promise<BusError>()
  private var questions: [UInt32: Question] = [:]

  init(address: String, on loop: EventLoop) throws(BusError) {
    self.loop = loop
    transport = try BusTransport(address: address, on: loop)
  }

  /// Passes signals and calls to `received` until the connection ends, and throws the reason. `received` returns false for unknown calls.
  func run(_ received: @escaping (BusMessage) -> Bool) async throws {
    try await transport.run { [self] in take($0, received) }
    close(.disconnected("it closed the connection"))
    throw try await end.value()
  }

  var isOpen: Bool { !end.isKept }

  /// Returns when the connection ends, with the reason.
  func ended() async throws(CancellationError) -> BusError { try await end.value() }

  /// Closes the connection; pending calls fail.
  func close(_ reason: BusError) {
    guard isOpen else { return }
    end.keep(reason)
    transport.close()
    for question in questions.values { question.answer.keep(.failure(reason)) }
    questions = [:]
  }

  func setUniqueName(_ name: String) { transport.setUniqueName(name) }

  // MARK: Calls

  /// Calls a method, and returns its answer. Throws `BusError`.
  func call(_ message: BusMessage, within limit: Duration) async throws -> BusMessage {
    try await answer(to: ask(message), within: limit)
  }

  /// Sends a call at once. `answer` must follow.
  func ask(_ message: BusMessage) throws(BusError) -> Question {
    guard questions.count < Self.maxCalls else { throw .tooManyCalls }
    let question = Question(serial: try send(message))
    questions[question.serial] = question
    return question
  }

  func answer(to question: Question, within limit: Duration) async throws -> BusMessage {
    defer { questions[question.serial] = nil }
    guard let answer = try await question.answer.value(within: limit, on: loop) else { throw BusError.timedOut }
    return try answer.get()
  }

  /// Sends a message and ignores failures: after a disconnection the peer receives nothing.
  func post(_ message: BusMessage) {
    do { _ = try send(message) } catch { return }
  }

  private func send(_ message: BusMessage) throws(BusError) -> UInt32 {
    let encoded = try Marshalling.encode(message)
    defer { dbus_message_unref(encoded) }
    return try transport.send(encoded)
  }

  // MARK: Incoming

  private func take(_ raw: OpaquePointer, _ received: (BusMessage) -> Bool) -> Bool {
    let message: BusMessage
    do {
      message = try Marshalling.decode(raw)
    } catch {
      finish(dbus_message_get_reply_serial(raw), .failure(error))
      return true
    }
    switch message.kind {
    case .reply(let serial): finish(serial, .success(message))
    case .error(let serial, let name):
      finish(serial, .failure(.refused(name: name, message: message.body.first?.string ?? "")))
    case .signal, .call: return received(message)
    }
    return true
  }

  private func finish(_ serial: UInt32, _ answer: Result<BusMessage, BusError>) {
    // `nil`: the answer is late, or nobody asked.
    questions[serial]?.answer.keep(answer)
  }
}
