// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Messaging
import RadioSession
import Store
import Sync
import Timing

/// The companion protocol on TCP: other programs share the gateway's radio as if it were theirs.
public final class CompanionProxy {
  /// The parts of the gateway that the proxy uses.
  public final class Gateway {
    let loop: EventLoop
    let log: Log
    let store: Store
    let synchronizer: Synchronizer
    let messenger: Messenger
    let requests: NodeRequests
    /// Lets the radio sign these bytes; `nil`: it did not.
    let sign: ([UInt8]) async -> [UInt8]?
    /// Tasks that follow clients' commands.
    let tasks: LoopTasks
    var connection: RadioConnection { synchronizer.connection }
    /// Lines about clients in this minute.
    private var told: (since: MonotonicTime, count: Int)?
    private static let mostLines = 20

    public init(
      loop: EventLoop, log: Log, store: Store, synchronizer: Synchronizer, messenger: Messenger,
      requests: NodeRequests, sign: @escaping ([UInt8]) async -> [UInt8]?
    ) {
      self.loop = loop
      tasks = LoopTasks(on: loop)
      self.log = log
      self.store = store
      self.synchronizer = synchronizer
      self.messenger = messenger
      self.requests = requests
      self.sign = sign
    }

    /// Logs a refused or disconnected client, at most `mostLines` a minute: any client could fill the log.
    func tell(_ words: @autoclosure () -> String) {
      let now = loop.now
      if let since = told?.since, now - since < .seconds(60) { told?.count += 1 } else { told = (now, 1) }
      guard let count = told?.count, count <= Self.mostLines else { return }
      log.info(words() + (count == Self.mostLines ? " (further lines of this minute are left out)" : ""))
    }

    func keepCursor(_ name: String, _ message: Int64) {
      let at = synchronizer.now.milliseconds
      store.post(when: .soon, "the position of client \(name)") { store throws(SQLiteError) in
        for other in try store.setClientCursor(name, message: message, at: at) {
          log.info("the position of client \(other) is forgotten: \(Store.maxClients) others were used since")
        }
      }
    }
  }

  private let gateway: Gateway
  private var listeners: [ProxyListener] = []
  private var clients: [ClientSession] { listeners.flatMap(\.clients) }

  public init(_ gateway: Gateway) { self.gateway = gateway }

  /// Listens at these addresses only. Clients of a changed address are disconnected. Ends with `stop`.
  public func listen(_ settings: [SharingSettings]) {
    for listener in listeners where !settings.contains(listener.settings) { listener.stop("reloaded") }
    listeners = settings.map { wanted in
      if let kept = listeners.first(where: { $0.settings == wanted && !$0.isStopped }) { return kept }
      let listener = ProxyListener(wanted, gateway)
      listener.start()
      return listener
    }
  }

  /// `reason`: for the log.
  public func stop(_ reason: String? = nil) { for listener in listeners { listener.stop(reason) } }

  // MARK: Pushes to all clients

  /// Passes on a push of the radio, except MESSAGES_WAITING: the gateway fetches that message.
  public func heard(_ push: Push, _ frame: [UInt8]) {
    if case .messageWaiting = push { return }
    for client in clients { client.heard(push, frame) }
  }

  /// Tells all clients that a message was stored.
  public func messageStored() { for client in clients { client.hint() } }

  /// Another radio is attached: clients reconnect, and get a position in its list.
  public func radioReplaced() { for client in clients { client.disconnect("another radio is attached") } }

  // MARK: Status

  /// The status of one address.
  public struct Report: Sendable {
    public struct Client: Sendable {
      public let name: String
      public let program: String
      public let connectedSeconds: Int64
      public let commands: UInt64
      public let refusals: UInt64
      /// Messages that the client has not received, up to `mostBehind`.
      public let behind: Int64
      /// Bytes that the client's machine has not taken.
      public let unreadBytes: Int
    }

    public let name: String
    public let address: String
    /// Why the address is unavailable.
    public let trouble: String?
    public let clients: [Client]
  }

  /// More need not be counted.
  private static let mostBehind: Int64 = 10_000

  private func behind(_ session: ClientSession) -> Int64 {
    let store = gateway.store
    let count = store.ifReadable {
      try store.messageCount(after: session.position.received, atMost: Self.mostBehind)
    }
    return count ?? 0
  }

  public var reports: [Report] {
    listeners.map { listener in
      let clients = listener.clients.filter { !$0.isOver }.sorted { $0.name < $1.name }
      return Report(
        name: listener.settings.name, address: "\(listener.settings.address)", trouble: listener.trouble,
        clients: clients.map { session in
          Report.Client(
            name: session.name, program: session.program.string,
            connectedSeconds: Int64((gateway.loop.now - session.connectedAt).inSeconds), commands: session.commands,
            refusals: session.refusals, behind: behind(session),
            unreadBytes: session.outlet.untaken)
        })
    }
  }
}
