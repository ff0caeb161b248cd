// SPDX-License-Identifier: MIT

import Store

/// How batches get to one kind of server. What is sent, when, and what becomes of it, is `JournalUpstream`'s.
///
/// One thing at a time: the next `greet` comes when everything else was answered, and up to `window` calls of `carry` may be
/// under way. Each answers exactly once and in order, unless `close` came between, or one before it was answered with
/// something else than an acknowledgement: then those behind it are void and hear nothing.
protocol Carrier: AnyObject {
  /// The word of the configuration: `hub`, `webhook`, `mqtt`.
  var kind: String { get }
  /// Where it goes, for people.
  var place: String { get }
  var window: Int { get }
  /// The connection is kept while there is nothing to send, and opened again when it is lost.
  var keepsConnection: Bool { get }
  /// A connection that is kept was lost while nothing was under way.
  var onLost: (Verdict) -> Void { get set }
  /// The server asks for something: its request, and whom to give the answer; `nil` as answer: let it come again.
  var onCommand: ([UInt8], @escaping ([UInt8]?) -> Void) -> Void { get set }
  /// So many bytes were handed to the network.
  var bytesSent: UInt64 { get }
  /// Until when the server's certificate is good, seconds since 1970; `nil`: it has shown none.
  var certificateExpiry: Int64? { get }
  /// Makes sure that the server is there, and asks what it has.
  func greet(_ done: @escaping (Greeting) -> Void)
  func carry(_ batch: Batch, _ done: @escaping (Verdict) -> Void)
  /// As `carry`, with something that is no event.
  func test(_ done: @escaping (Verdict) -> Void)
  func close()
}

extension Carrier {
  var keepsConnection: Bool { false }
  var certificateExpiry: Int64? { nil }
  var window: Int { 1 }
  var onLost: (Verdict) -> Void {
    get { { _ in } }
    // Nothing is kept, nothing is lost.
    set {}
  }

  var onCommand: ([UInt8], @escaping ([UInt8]?) -> Void) -> Void {
    get { { _, _ in } }
    // Nothing comes this way.
    set {}
  }

  /// Greeting a server says enough where it answers.
  func test(_ done: @escaping (Verdict) -> Void) {
    greet { greeting in
      switch greeting {
      case .has, .ready: done(.acknowledged(through: 0))
      case .failed(let verdict): done(verdict)
      }
    }
  }
}

/// What a server knows of this journal.
enum Greeting: Equatable {
  /// It keeps count: it has everything of this epoch up to here; `nil`: it has never heard of it.
  case has(Int64?)
  /// It does not keep count, or not in a way that can be asked for: our cursor is right.
  case ready
  case failed(Verdict)
}
