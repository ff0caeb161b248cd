// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Streams

/// What goes out to one client, in the radio's order.
///
/// What the radio says by itself is written while it is dispatched; its answer to a command is written by the client's task, which runs a
/// little later. What the radio says in between waits for that answer.
///
/// Bound: 128 KiB that the client has not read. Beyond that it is disconnected: a client is never left in the belief that it has had
/// everything.
final class ClientOutlet {
  static let maxUnread = 128 * 1024
  static let overfull = "over 128 KiB unread"

  private let stream: SocketStream
  /// `nil`: nothing has to wait.
  private var waiting: [[UInt8]]?

  init(_ stream: SocketStream) { self.stream = stream }

  /// Bytes that the client has not read.
  var unread: Int { stream.pendingBytes }

  /// What the radio, or the gateway in its place, says by itself.
  func push(_ frame: [UInt8]) { if waiting == nil { write(frame) } else { waiting?.append(frame) } }

  /// The radio has answered; the client's task writes that answer in this turn.
  func expectAnswer() { if waiting == nil { waiting = [] } }

  /// The answer to a command. `nil`: it has none.
  func answer(_ frame: [UInt8]?) {
    if let frame { write(frame) }
    let pushes = waiting ?? []
    waiting = nil
    for frame in pushes { write(frame) }
  }

  /// A part of an answer.
  func write(_ frame: [UInt8]) {
    stream.write(SerialFraming.wrap(frame, .fromRadio))
    // The client's task sees to it.
    if unread > Self.maxUnread { stream.changed.resume() }
  }

  /// Returns when the client has read, if so much waits for it already.
  func hasRoom(_ limit: Int) async throws(StreamEnd) {
    while unread >= limit { _ = try await stream.hasChanged() }
  }

  /// Returns never. Throws when the client has gone, or does not read.
  func watch() async throws {
    while true {
      if unread > Self.maxUnread { throw ClientSession.Disconnection(reason: Self.overfull) }
      _ = try await stream.hasChanged()
    }
  }

  func close() { stream.close() }
}
