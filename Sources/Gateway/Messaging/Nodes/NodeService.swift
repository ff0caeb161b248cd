// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import Delivery
import EventLoop
import JSON
import Store
import Sync
import Timing
import UntrustedText

/// Asks nodes, logs in first if that is needed and a password is stored, and stores the answers.
public final class NodeService {
  private let messenger: Messenger
  public let requests: NodeRequests
  public let credentials: Credentials
  private let log: Log
  /// Nodes that let us in since this program started. A login costs air time, and the server remembers it.
  private var loggedIn: Set<PublicKey> = []
  /// Called with each node's answer.
  public var answered: (NodeAnswer, PublicKey) -> Void = { _, _ in }
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
        // The server may have been reset, or may have forgotten us: log in again.
        guard case .silence = error, question.mayRepeat else { throw error }
        loggedIn.remove(contact.key)
      }
    }
    _ = try await askOnce(.login(password: password), contact, priority)
    return try await askOnce(question, contact, priority)
  }

  /// Restores a node that was evicted from the radio's table.
  private func restore(_ stored: StoredContact) async throws(Refusal) {
    guard !stored.onRadio else { return }
    guard let keeper = messenger.keeper, await keeper.restore(stored) else {
      throw .notOnRadio(stored.contact.name.string)
    }
  }

  private func password(_ key: PublicKey) -> Text? {
    do {
      return try credentials.read()[key]
    } catch {
      log.error("\(error)")
      return nil
    }
  }

  private func askOnce(
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

  /// A repeater's neighbours, page by page.
  public func neighbours(of stored: StoredContact) async throws(Refusal) -> Neighbours {
    var all: Neighbours?
    while true {
      let first = UInt16(clamping: all?.entries.count ?? 0)
      guard case .neighbours(let page) = try await ask(.neighbours(first: first), of: stored) else {
        throw .radio("an unexpected answer")
      }
      var found = all ?? page
      if all != nil { found.entries += page.entries.filter { !found.entries.contains($0) } }
      let isComplete = page.entries.isEmpty || found.entries.count >= min(Int(found.total), Self.maxNeighbours)
      if isComplete { return found }
      all = found
    }
  }

  // MARK: Regions

  /// Asks a repeater, without a login, which regions it carries. It ignores a flooded question, so if the radio has no
  /// path, that of the repeater's last advert is tried in reverse.
  public func regions(
    of stored: StoredContact, _ priority: DeliveryPriority = .interactive
  ) async throws(Refusal) -> NodeAnswer {
    var contact = stored.contact
    guard contact.type == .repeater else { throw .invalid("\(contact.name.string) is not a repeater") }
    try await restore(stored)
    let connection = messenger.synchronizer.connection
    if let path = contact.outPath { return try await askOnce(.regions(replyPath: path.reversed), contact, priority) }
    guard case .replied(.advertPath(_, let heard)) = await connection.ask(.getAdvertPath(contact.key), .interactive)
    else {
      throw .invalid(
        "no path to \(contact.name.string) is known, and it ignores a flooded question. A login finds one: meshpost node login"
      )
    }
    contact.outPath = heard.reversed
    contact.lastModified = messenger.synchronizer.radioTime ?? contact.lastModified
    guard case .replied(.ok) = await connection.ask(.addUpdateContact(contact), .interactive) else { throw .linkDown }
    messenger.synchronizer.refresh(contact.key)
    do throws(Refusal) {
      return try await askOnce(.regions(replyPath: heard), contact, priority)
    } catch {
      // The way of an advert need not work in reverse: messages are flooded again.
      if case .silence = error { _ = await connection.ask(.resetPath(contact.key), .interactive) }
      messenger.synchronizer.refresh(contact.key)
      throw error
    }
  }

  /// A repeater's answer, or why there is none.
  public struct CarriedRegions: Sendable {
    public var contact: Contact
    public var answer: Result<[String], Refusal>
  }

  /// Repeaters that are asked at once, and how long ago they were heard at most, in milliseconds.
  private static let (mostAsked, recent): (Int, Int64) = (8, 86_400_000)

  /// Asks repeaters around, the last heard first, within the air time for background work.
  public func regionsAround() async throws(Refusal) -> [CarriedRegions] {
    var repeaters: [StoredContact] = []
    let since = messenger.synchronizer.now.milliseconds - Self.recent
    try Refusal.translating { () throws(StoreError) in
      try messenger.store.eachContactHeard(limit: 1000) { stored in
        guard stored.contact.type == .repeater, stored.onRadio, stored.lastHeard ?? 0 >= since else { return }
        if repeaters.count < Self.mostAsked { repeaters.append(stored) }
      }
    }
    var found: [CarriedRegions] = []
    for stored in repeaters {
      do throws(Refusal) {
        guard case .regions(let names) = try await regions(of: stored, .bulk) else { continue }
        found.append(CarriedRegions(contact: stored.contact, answer: .success(names)))
      } catch {
        switch error {
        case .linkDown, .cancelled: throw error
        default: found.append(CarriedRegions(contact: stored.contact, answer: .failure(error)))
        }
      }
    }
    return found
  }

  private func keep(_ regions: [String], _ contact: Contact) {
    let moment = messenger.synchronizer.now
    messenger.store.post(when: .soon, "the regions of \(contact.name.string)") { store throws(SQLiteError) in
      try store.setCarried(regions.joined(separator: ","), by: contact.key, at: moment.milliseconds)
    }
  }

  // MARK: Polls

  /// Polls a node, and keeps its answer as a reading. Of a list of neighbours one packet is enough: those heard last, and how many there are.
  func poll(_ kind: NodePolling.Poll.Kind, _ stored: StoredContact) async throws(Refusal) {
    switch kind {
    case .status: _ = try await ask(.status, of: stored, .bulk)
    case .telemetry: _ = try await ask(.telemetry, of: stored, .bulk)
    case .neighbours:
      let answer = try await ask(.neighbours(first: 0), of: stored, .bulk)
      keep("node_neighbours", stored.contact) { answer.write(to: &$0) }
    case .owner:
      let answer = try await ask(.owner, of: stored, .bulk)
      keep("node_owner", stored.contact) { answer.write(to: &$0) }
    case .clock:
      let found = try await clock(of: stored, .bulk)
      keep("node_clock", stored.contact) { json in
        json.field(Shape.NodeClock().offsetS, found.seconds)
        json.field(Shape.NodeClock().withinS, found.within)
      }
    }
  }

  /// A reading that is kept here, and is no event.
  private func keep(_ kind: String, _ contact: Contact, _ write: (inout JSONWriter) -> Void) {
    let body = JSONWriter.object { json in
      json.field("node", contact.key.hex)
      json.field("name", contact.name.string)
      write(&json)
    }
    let moment = messenger.synchronizer.now
    messenger.store.post(when: .soon, "the \(kind) of \(contact.name.string)") { store throws(SQLiteError) in
      try store.keepReading(of: contact.key, named: kind, body: body, at: moment)
    }
  }

  // MARK: Clocks

  static let noTime = "this machine's clock is not synchronised: it knows no time to compare with, or to set"

  /// Compares a node's clock with this machine's: a login shows it, or without a password a repeater's answer.
  public func clock(
    of stored: StoredContact, _ priority: DeliveryPriority = .interactive
  ) async throws(Refusal) -> ClockDifference {
    guard stored.contact.type != .chat else {
      throw .invalid("\(stored.contact.name.string) is a companion: nobody but its app asks for its clock")
    }
    try await restore(stored)
    let before = messenger.synchronizer.now
    let question: NodeQuestion = password(stored.contact.key).map { .login(password: $0) } ?? .clock
    let time: UInt32
    switch try await askOnce(question, stored.contact, priority) {
    case .clock(let found): time = found
    case .login(let login):
      guard let found = login.serverTime else { throw .radio("\(stored.contact.name.string) does not tell its time") }
      time = found
    default: throw .radio("an unexpected answer")
    }
    let after = messenger.synchronizer.now
    guard before.trusted, after.trusted else { throw .invalid(Self.noTime) }
    return ClockDifference(time: time, asked: before.milliseconds, answered: after.milliseconds)
  }

  /// Sets a node's clock, never ahead of true time. `mayReboot`: it may be started anew, if its clock is ahead.
  public func setClock(of stored: StoredContact, mayReboot: Bool) async throws(Refusal) -> ClockSetting.Action {
    guard messenger.synchronizer.now.trusted else { throw .invalid(Self.noTime) }
    guard password(stored.contact.key) != nil else {
      throw .invalid("only an admin sets a clock: meshpost node login \(Escaping.argument(stored.contact.name.string))")
    }
    var setting = ClockSetting(mayReboot: mayReboot)
    var patience = 1
    while true {
      let found: ClockDifference
      do throws(Refusal) {
        found = try await clock(of: stored)
      } catch {
        guard case .silence = error, patience > 1 else { throw error }
        patience -= 1
        try await pause(ClockSetting.start)
        continue
      }
      switch setting.read(found) {
      case .set: try await tell(.setClock, stored)
      case .reboot:
        try await tell(.cli("clkreboot"), stored)
        loggedIn.remove(stored.contact.key)
        patience = 4
        try await pause(ClockSetting.start)
      case let end: return end
      }
    }
  }

  /// A command whose reply may be missing.
  private func tell(_ question: NodeQuestion, _ stored: StoredContact) async throws(Refusal) {
    do throws(Refusal) {
      _ = try await askOnce(question, stored.contact, .interactive)
    } catch {
      guard case .silence = error else { throw error }
    }
  }

  private func pause(_ duration: Duration) async throws(Refusal) {
    do { try await messenger.loop.sleep(for: duration) } catch { throw .cancelled }
  }

  // MARK: Answers

  /// Stores a node's answer, even if no caller waits for it.
  func took(_ answer: NodeAnswer, _ contact: Contact) {
    answered(answer, contact.key)
    switch answer {
    case .login(let login):
      loggedIn.insert(contact.key)
      noteAccess(login, contact)
    case .status: keep(answer, .status, contact)
    case .telemetry: keep(answer, .telemetry, contact)
    case .path(let found): use(found.out, contact)
    case .regions(let names): keep(names, contact)
    case .neighbours, .access, .trace, .cli, .clock, .owner, .sent: break
    }
    switch answer {
    case .login, .path, .neighbours, .access, .regions, .clock, .owner: noteHeard(contact)
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

  private func noteHeard(_ contact: Contact) {
    let moment = messenger.synchronizer.now
    messenger.store.post(when: .heard, "that \(contact.name.string) was heard") { store throws(SQLiteError) in
      try store.noteHeard(contact.key.prefix, at: moment.milliseconds)
    }
  }

  private func keep(_ answer: NodeAnswer, _ kind: EventKind, _ contact: Contact) {
    let body = JSONWriter.object { json in
      json.field("node", contact.key.hex)
      json.field("name", contact.name.string)
      answer.write(to: &json)
    }
    let moment = messenger.synchronizer.now
    messenger.store.post(when: .soon, "the \(kind.rawValue) of \(contact.name.string)") { store throws(SQLiteError) in
      try store.keepReading(of: contact.key, kind: kind, body: body, at: moment)
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
