// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Sockets

/// Output to one client, in the radio's order.
///
/// Pushes are written while they are dispatched; the answer to a command is written by the client's task, which runs slightly
/// later. Pushes in between wait for that answer.
///
/// Bound: 128 KiB of unread output. Beyond it the client is disconnected, so that it notices the loss.
final class ClientOutlet {
  static let maxUnread = 128 * 1024
  static let overfull = "over 128 KiB unread"

  private let stream: SocketStream
  /// `nil`: no output has to wait.
  private var waiting: [[UInt8]]?

  init(_ stream: SocketStream) { self.stream = stream }

  /// Unread bytes.
  var unread: Int { stream.pendingBytes }

  /// A push, of the radio or of the gateway.
  func push(_ frame: [UInt8]) { if waiting == nil { write(frame) } else { waiting?.append(frame) } }

  /// The radio has answered; the client's task writes the answer in this turn. Until then pushes wait.
  func expectAnswer() { if waiting == nil { waiting = [] } }

  /// The answer to a command; `nil`: none.
  func answer(_ frame: [UInt8]?) {
    if let frame { write(frame) }
    let pushes = waiting ?? []
    waiting = nil
    for frame in pushes { write(frame) }
  }

  /// A part of an answer.
  func write(_ frame: [UInt8]) {
    stream.write(SerialFraming.wrap(frame, .fromRadio))
    // The client's task reports it.
    if unread > Self.maxUnread { stream.changed.resume() }
  }

  /// Returns when the client has read enough of its output.
  func hasRoom(_ limit: Int) async throws(StreamEnd) {
    while unread >= limit { _ = try await stream.hasChanged() }
  }

  /// Never returns. Throws when the client disconnects, or does not read.
  func watch() async throws {
    while true {
      if unread > Self.maxUnread { throw ClientSession.Disconnection(reason: Self.overfull) }
      _ = try await stream.hasChanged()
    }
  }

  func close() { stream.close() }
}
