// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import Delivery
import EventLoop
import Store
import Sync
import Timing

/// Asks nodes, logs in first if that is needed and a password is stored, and stores the answers.
public final class NodeService {
  let messenger: Messenger
  public let requests: NodeRequests
  public let credentials: Credentials
  let log: Log
  /// Nodes that let us in since this program started. A login costs air time, and the server remembers it.
  var loggedIn: Set<PublicKey> = []
  /// Nodes of which a snapshot is being taken.
  var snapshotting: Set<PublicKey> = []
  /// What the gateway itself does to a node: it is no trouble of the node's.
  public enum Doing: Sendable {
    /// Its clock is wrong for a while.
    case setsClock
    /// As it was read last; `nil`: that failed.
    case endsSettingClock(ClockDifference?)
    case restarts
  }

  /// Called when the gateway begins to do something to a node, or ends it.
  public var does: (Doing, PublicKey) -> Void = { _, _ in }
  /// Called with each node's answer.
  public var answered: (NodeAnswer, PublicKey) -> Void = { _, _ in }
  /// Called when a room has answered what it answers only to those whom it knows.
  var roomKnowsUs: (PublicKey) -> Void = { _ in }
  /// Called with the time of a room that has answered a login.
  var roomTold: (UInt32, Contact) -> Void = { _, _ in }
  /// Rooms that let us in since this program started, but ignore our posts.
  private var readOnly: Set<PublicKey> = []

  /// Whether a room lets us read, but ignores our posts, as far as is known.
  func isReadOnly(_ room: PublicKey) -> Bool { readOnly.contains(room) }

  /// Another radio is attached: no node knows it yet.
  public func radioReplaced() { (loggedIn, readOnly) = ([], []) }
  /// When a path was last requested: at most once an hour for each.
  private var pathsAsked: [PublicKey: MonotonicTime] = [:]
  private static let pathPause: Duration = .seconds(3600)
  private static let maxPathsAsked = 256

  public init(_ messenger: Messenger, credentials: Credentials) {
    self.messenger = messenger
    self.credentials = credentials
    log = messenger.log
    requests = NodeRequests(messenger)
    messenger.nodes = self
    sayWhatIsUnderWay()
  }

  /// Asks a node, after a login if that is needed and a password is stored.
  public func ask(
    _ question: NodeQuestion, of stored: StoredContact, _ priority: DeliveryPriority = .interactive
  ) async throws(Refusal) -> NodeAnswer {
    let contact = stored.contact
    try await restore(stored)
    let isServer = contact.type != .chat
    guard question.needsLogin, isServer, let password = password(contact.key) else {
      return try await askOnce(question, contact, priority)
    }
    if loggedIn.contains(contact.key) {
      do throws(Refusal) {
        return try await askOnce(question, contact, priority)
      } catch {
        // The server may have been reset, or may have forgotten us: log in again, at the latest for the next question.
        guard case .silence = error else { throw error }
        loggedIn.remove(contact.key)
        guard question.mayRepeat else { throw error }
      }
    }
    _ = try await askOnce(.login(password: password), contact, priority)
    return try await askOnce(question, contact, priority)
  }

  /// Restores a node that was evicted from the radio's table.
  func restore(_ stored: StoredContact) async throws(Refusal) {
    guard !stored.onRadio else { return }
    guard let keeper = messenger.keeper else { throw .notOnRadio(stored.contact.name.string) }
    try await keeper.restore(stored)
  }

  func password(_ key: PublicKey) -> Text? {
    do {
      return try credentials.read()[key]
    } catch {
      log.error("\(error)")
      return nil
    }
  }

  func askOnce(
    _ question: NodeQuestion, _ contact: Contact, _ priority: DeliveryPriority
  ) async throws(Refusal) -> NodeAnswer {
    try await requests.ask(question, of: contact, priority)
  }

  /// Logs in with this password, and stores it if it was right. A room that anybody may read also accepts a wrong password, for reading only: then
  /// the password is stored only if it is empty, or with `keepsReadOnly`.
  public func logIn(
    _ stored: StoredContact, password: Text?, keepsReadOnly: Bool = false
  ) async throws(Refusal) -> NodeAnswer {
    let contact = stored.contact
    guard contact.type != .chat else {
      throw .invalid(
        "\(contact.name.string) is a companion: nobody logs in to it, only to repeaters, rooms and sensors")
    }
    try await restore(stored)
    guard let given = password ?? self.password(contact.key) else {
      throw .invalid("no password is stored for \(contact.name.string): give one")
    }
    guard given.bytes.count <= 15, !given.bytes.contains(where: { $0 < 0x20 }) else {
      throw .invalid("a password has at most 15 bytes and no control characters")
    }
    let answer = try await askOnce(.login(password: given), contact, .interactive)
    guard password != nil else { return answer }
    if case .login(let login) = answer, login.isReadOnly, !given.isEmpty, !keepsReadOnly { return answer }
    do {
      try credentials.set(given, for: contact.key)
    } catch {
      throw .invalid("logged in, but the password cannot be stored: \(error)")
    }
    return answer
  }

  private static let maxNeighbours = 64

  /// A repeater's neighbours, page by page. The list moves meanwhile, and a node comes again with another time.
  public func neighbours(of stored: StoredContact) async throws(Refusal) -> Neighbours {
    var found: Neighbours?
    while true {
      let first = UInt16(clamping: found?.entries.count ?? 0)
      guard case .neighbours(let page) = try await ask(.neighbours(first: first), of: stored) else {
        throw .radio("an unexpected answer")
      }
      let (all, isComplete) = Self.joined(found, page)
      if isComplete { return all }
      found = all
    }
  }

  static func joined(_ found: Neighbours?, _ page: Neighbours) -> (all: Neighbours, isComplete: Bool) {
    var all = found ?? page
    all.entries = found?.entries ?? []
    var keys = Set(all.entries.map(\.key))
    let news = page.entries.filter { keys.insert($0.key).inserted }
    all.entries += news
    // The next question would be the same.
    return (all, news.isEmpty || all.entries.count >= min(Int(all.total), maxNeighbours))
  }

  // MARK: Answers

  /// Stores a node's answer, even if no caller waits for it.
  func took(_ answer: NodeAnswer, _ contact: Contact) {
    answered(answer, contact.key)
    if contact.type == .room, answer.isForKnown { roomKnowsUs(contact.key) }
    switch answer {
    case .login(let login):
      loggedIn.insert(contact.key)
      noteAccess(login, contact)
      if contact.type == .room, let time = login.serverTime { roomTold(time, contact) }
    case .status: keep(.status, contact) { answer.write(to: &$0) }
    case .telemetry: keep(.telemetry, contact) { answer.write(to: &$0) }
    case .path(let found): use(found.out, contact)
    case .regions(let names): keep(names, contact)
    case .neighbours, .access, .trace, .cli, .clock, .owner, .sent: break
    }
    switch answer {
    case .login, .path, .neighbours, .access, .regions, .clock, .owner: noteHeard(contact, clock: answer.time)
    // Storing readings or a CLI's reply notes this, too; a trace names nodes by one byte, which is no identity.
    case .status, .telemetry, .cli, .trace, .sent: break
    }
  }

  private func noteAccess(_ login: LoginSuccess, _ contact: Contact) {
    guard login.isReadOnly else {
      readOnly.remove(contact.key)
      return
    }
    guard readOnly.insert(contact.key).inserted else { return }
    log.warning("room \(contact.name.string) allows only reading: posts will be ignored")
  }

  /// `clock`: the time that the answer has told.
  private func noteHeard(_ contact: Contact, clock: UInt32?) {
    let moment = messenger.store.judgingNow
    messenger.store.post(when: .heard, "that \(contact.name.string) was heard") { store throws(SQLiteError) in
      try store.noteHeard(contact.key.prefix, at: moment.milliseconds)
      guard let clock, moment.trusted else { return }
      try store.keepClockOffset(of: contact.key, Int64(clock) - moment.milliseconds / 1000)
    }
  }

  /// The radio does not keep a discovered path by itself.
  private func use(_ path: Path, _ contact: Contact) {
    var changed = contact
    changed.outPath = path
    changed.lastModified = messenger.synchronizer.radioTime ?? contact.lastModified
    // The answer does not wait for the radio.
    messenger.tasks.begin { [synchronizer = messenger.synchronizer] in
      guard case .replied(.ok) = await synchronizer.connection.ask(.addUpdateContact(changed), .sync) else { return }
      synchronizer.refresh(contact.key)
    }
  }

  /// Asks for the path, because an acknowledged flood did not bring one.
  func discoverPath(_ key: PublicKey) {
    let now = messenger.loop.now
    pathsAsked = pathsAsked.filter { now - $0.value < Self.pathPause }
    guard pathsAsked[key] == nil, pathsAsked.count < Self.maxPathsAsked,
      let stored = messenger.store.ifReadable({ try messenger.store.contact(key) }), stored.onRadio
    else { return }  // without the store there is no path: it is a convenience
    // A room would ignore a post that is under way, which is older than the question.
    if stored.contact.type == .room, messenger.session.hasTransmitted(to: key) { return }
    pathsAsked[key] = now
    // It ends with the answer, its timeout, or the link.
    messenger.tasks.begin {
      do throws(Refusal) {
        _ = try await self.ask(.path, of: stored, .bulk)
      } catch {
        self.log.debug("no path to \(stored.contact.name.string): \(error)")
      }
    }
  }
}
