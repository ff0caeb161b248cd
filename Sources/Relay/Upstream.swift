// SPDX-License-Identifier: MIT

import Store

/// A server that gets the journal.
public protocol Upstream: AnyObject {
  var name: String { get }
  var status: UpstreamStatus { get }
  /// Who carries out what the server asks for; nobody: everything is refused.
  var commandHandler: CommandHandler? { get set }
  /// Something may be new to send.
  func wake()
  /// Try at once, with fresh credentials: the operator says so.
  func resume()
  /// Send nothing until told otherwise; kept over restarts.
  func setPaused(_ paused: Bool)
  /// Talks to the server without the journal: is it there, does it take us? `nil`: yes; else what is wrong.
  func test(_ done: @escaping (String?) -> Void)
  /// The database was replaced by a new one: begin at its cursor.
  func storeReplaced()
  /// Close the connection; what is in flight is sent again after the next start.
  func stop()
}

/// What `meshpost status` shows of an upstream.
public struct UpstreamStatus: Equatable, Sendable {
  public enum State: String, Sendable { case idle, sending, waiting, stopped, paused }

  public var name: String
  public var kind: String
  public var url: String
  public var state: State
  /// Acknowledged up to here.
  public var cursor: Int64
  /// After the cursor; of these, sent and not acknowledged.
  public var pending: Int64
  public var inFlight: Int
  public var deadLetters: Int64
  /// Why it waits or is stopped.
  public var reason: String?
  /// Milliseconds since 1970 of the last acknowledgement.
  public var lastSuccess: Int64?
  public var batches: UInt64
  public var bytesSent: UInt64
}

/// All upstreams of the gateway. Each goes its own way: none holds up another.
public final class Relay {
  public let upstreams: [any Upstream]

  public init(_ upstreams: [any Upstream], store: Store) throws(StoreError) {
    self.upstreams = upstreams
    try store.keepOnlyCursors(of: upstreams.map(\.name))
    // A relay that was replaced, when the configuration was reloaded, goes with its upstreams.
    store.onCommit { [weak self] in self?.start() }
  }

  /// Who carries out what servers ask for.
  public func setCommandHandler(_ handler: @escaping CommandHandler) {
    for upstream in upstreams { upstream.commandHandler = handler }
  }

  public func start() { for upstream in upstreams { upstream.wake() } }
  public func resume() { for upstream in upstreams { upstream.resume() } }
  public func storeReplaced() { for upstream in upstreams { upstream.storeReplaced() } }
  public func stop() { for upstream in upstreams { upstream.stop() } }
}
