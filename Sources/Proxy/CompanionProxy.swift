// SPDX-License-Identifier: MIT

import CLinux
import Companion
import EventLoop
import Glibc
import Messaging
import RadioSession
import Store
import Streams
import Sync
import Timing

/// The companion protocol on TCP: other programs share the gateway's radio as if it were theirs.
public final class CompanionProxy {
  /// What the proxy works with.
  public final class Parts {
    let loop: EventLoop
    let log: Log
    let store: Store
    let synchronizer: Synchronizer
    let messenger: Messenger
    let requests: NodeRequests
    /// The radio signs this; `nil`: it does not.
    let sign: ([UInt8]) async -> [UInt8]?
    var connection: RadioConnection { synchronizer.connection }

    public init(
      loop: EventLoop, log: Log, store: Store, synchronizer: Synchronizer, messenger: Messenger,
      requests: NodeRequests, sign: @escaping ([UInt8]) async -> [UInt8]?
    ) {
      self.loop = loop
      self.log = log
      self.store = store
      self.synchronizer = synchronizer
      self.messenger = messenger
      self.requests = requests
      self.sign = sign
    }

    func keepCursor(_ name: String, _ message: Int64) {
      let at = synchronizer.now.milliseconds
      store.post(when: .soon, "the place of client \(name)") { store throws(SQLiteError) in
        try store.setClientCursor(name, message: message, at: at)
      }
    }
  }

  private let parts: Parts
  private var listeners: [ProxyListener] = []
  private var sessions: [ObjectIdentifier: ClientSession] = [:]

  public init(_ parts: Parts) { self.parts = parts }

  /// Listens there, and nowhere else. Clients of an address whose settings have changed are let go.
  public func listen(_ settings: [ProxySettings]) {
    for listener in listeners where !settings.contains(listener.settings) {
      listener.stop()
      for session in sessions.values where session.settings == listener.settings { session.end("reloaded") }
    }
    listeners = settings.map { wanted in
      if let kept = listeners.first(where: { $0.settings == wanted && !$0.isStopped }) { return kept }
      let listener = ProxyListener(wanted, parts.loop, parts.log)
      listener.onClient = { [weak self] socket, peer in self?.accept(socket, peer, wanted) }
      listener.start()
      return listener
    }
  }

  /// `words`: why, for the log.
  public func stop(_ words: String? = nil) {
    for listener in listeners { listener.stop() }
    for session in sessions.values { session.end(words) }
  }

  // MARK: What all clients hear

  /// The radio said something by itself, in this frame. That a message waits concerns the gateway, which takes it.
  public func heard(_ push: Push, _ frame: [UInt8]) {
    if case .messageWaiting = push { return }
    for session in sessions.values { session.heard(push, frame) }
  }

  /// A message is in the store.
  public func messageStored() { for session in sessions.values { session.hint() } }

  /// Another radio is attached: to a client that is another address, where it has a place of its own.
  public func radioReplaced() {
    for session in sessions.values { session.end("another radio is attached") }
  }

  // MARK: Clients

  private func accept(_ socket: Int32, _ peer: IPAddress, _ settings: ProxySettings) {
    let there = sessions.values.filter { $0.settings == settings }
    guard there.count < settings.maxClients else {
      parts.log.info("proxy \(settings.name): \(peer) refused, \(there.count) clients are there already")
      close(socket)
      return
    }
    let name = freeName(settings, peer, there)
    // Each radio's messages are a list of their own.
    let place = parts.store.radio > 1 ? "\(name) of radio \(parts.store.radio)" : name
    let cursor: Int64
    do throws(StoreError) {
      // A place beyond the end is of another database.
      let newest = try parts.store.lastMessageID()
      let kept = try parts.store.clientCursor(place).flatMap { $0 <= newest ? $0 : nil }
      cursor = kept ?? max(0, newest - settings.history)
      if kept == nil { parts.keepCursor(place, cursor) }
    } catch {
      parts.log.warning("proxy \(settings.name): \(peer) refused: \(error)")
      close(socket)
      return
    }
    begin(
      ClientSession(
        SocketStream(socket, on: parts.loop), peer, name: name, place: place, cursor: cursor, settings, parts))
  }

  /// The lowest number that nobody from there has: who comes back alone finds its own place.
  private func freeName(_ settings: ProxySettings, _ peer: IPAddress, _ there: [ClientSession]) -> String {
    let taken = Set(there.map(\.name))
    var number = 1
    while taken.contains("\(settings.name)/\(peer)/\(number)") { number += 1 }
    return "\(settings.name)/\(peer)/\(number)"
  }

  private func begin(_ session: ClientSession) {
    let id = ObjectIdentifier(session)
    sessions[id] = session
    session.onEnd = { [weak self, log = parts.log] words in
      if let words { log.info("client \(session.name) disconnected: \(words)") }
      self?.sessions[id] = nil
    }
    session.start()
  }

  // MARK: Status

  /// What the status shows of one address.
  public struct Report: Sendable {
    public struct Client: Sendable {
      public let name: String
      public let program: String
      public let connectedSeconds: Int64
      public let commands: UInt64
      public let refusals: UInt64
      /// Messages that it has not had.
      public let behind: Int64
      public let unreadBytes: Int
    }

    public let name: String
    public let address: String
    /// Why nobody can connect.
    public let trouble: String?
    public let clients: [Client]
  }

  public var reports: [Report] {
    // `try?`: the store's trouble is told elsewhere.
    let newest = (try? parts.store.lastMessageID(ofRadio: parts.store.radio)) ?? 0
    return listeners.map { listener in
      let clients = sessions.values.filter { $0.settings == listener.settings }.sorted { $0.name < $1.name }
      return Report(
        name: listener.settings.name, address: "\(listener.settings.address)", trouble: listener.trouble,
        clients: clients.map { session in
          Report.Client(
            name: session.name, program: session.program.string,
            connectedSeconds: Int64((parts.loop.now - session.connectedAt).inSeconds), commands: session.commands,
            refusals: session.refusals, behind: max(0, newest - session.cursor),
            unreadBytes: session.stream.pendingBytes)
        })
    }
  }
}
