// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Sockets
import Timing

/// Output to one client, in the radio's order.
///
/// Pushes are written while they are dispatched; the answer to a command is written by the client's task, which runs slightly
/// later. Pushes in between wait for that answer.
///
/// Bounds: 128 KiB of unread output, and two minutes in which the client takes none of it. Beyond them the client is disconnected, so that it notices
/// the loss.
final class ClientOutlet {
  static let maxUnread = 128 * 1024
  static let overfull = "over 128 KiB unread"
  /// On a quiet mesh, a client that never reads would have its place for days before 128 KiB wait. The kernel's keepalive does not find it, since
  /// its machine answers, nor a machine that vanished while something was on the way to it: it begins when all was acknowledged.
  static let patience: Duration = .seconds(120)
  static let deaf = "it took nothing for \(Int(patience.inSeconds)) s of what waits for it"

  private let stream: SocketStream
  private let written = Waiter()
  /// `nil`: no output has to wait.
  private var waiting: [[UInt8]]?

  init(_ stream: SocketStream) { self.stream = stream }

  /// Unread bytes, without those in the kernel.
  private var unread: Int { stream.pendingBytes }

  /// Bytes that the client's machine has not taken.
  var untaken: Int { stream.outstandingBytes }

  /// The client's machine has taken everything. Nobody knows that of a connection that has ended.
  var isTaken: Bool { stream.isOpen && stream.outstandingBytes == 0 }

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
    written.resume()
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

  /// Never returns. Throws when the client takes nothing of what waits for it. Any byte counts: a slow client is no deaf one. While nothing waits,
  /// there is no timer.
  func watchTaking(on loop: EventLoop) async throws {
    while true {
      try await written.wait()
      var (taken, since) = (stream.takenBytes, loop.now)
      while stream.outstandingBytes > 0 {
        guard loop.now - since < Self.patience else { throw ClientSession.Disconnection(reason: Self.deaf) }
        try await loop.sleep(for: Self.patience / 4)
        if stream.takenBytes != taken { (taken, since) = (stream.takenBytes, loop.now) }
      }
    }
  }

  func close() { stream.close() }
}
