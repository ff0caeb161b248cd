// SPDX-License-Identifier: MIT

import Companion
import Delivery
import EventLoop
import JSON
import Store
import Sync
import Timing

/// Asks nodes, logging in where a password is stored and it is needed, and keeps what they tell of themselves.
public final class NodeService {
  private let messenger: Messenger
  public let requests: NodeRequests
  public let credentials: Credentials
  private let log: Log
  /// Who let us in since this program started: a login costs air time, and is remembered by the server.
  private var loggedIn: Set<PublicKey> = []
  /// Rooms that let us in since this program started, and ignore what we post.
  private var readOnly: Set<PublicKey> = []

  /// Another radio is attached: nobody knows it yet.
  public func radioReplaced() { (loggedIn, readOnly) = ([], []) }
  /// When a path was last asked for: not more than once an hour each.
  private var pathsAsked: [PublicKey: MonotonicTime] = [:]
  private static let pathPause: Duration = .seconds(3600)
  private static let maxPathsAsked = 256

  public init(_ messenger: Messenger, credentials: Credentials) {
    self.messenger = messenger
    self.credentials = credentials
    log = messenger.log
    requests = NodeRequests(messenger)
    messenger.onPathWanted = { [weak self] key in self?.discoverPath(key) }
    messenger.isReadOnly = { [weak self] key in self?.readOnly.contains(key) ?? false }
  }

  /// `done` hears exactly once.
  public func ask(
    _ question: NodeQuestion, of stored: StoredContact, _ priority: DeliveryPriority = .interactive,
    _ done: @escaping NodeRequests.Done
  ) {
    let contact = stored.contact
    guard stored.onRadio else { return done(.failure(.notOnRadio(contact.name.string))) }
    let isServer = contact.type != .chat
    guard question.needsLogin, isServer, let password = password(contact.key) else {
      return askOnce(question, contact, priority, done)
    }
    let wasLoggedIn = loggedIn.contains(contact.key)
    if !wasLoggedIn { return logInAndAsk(question, contact, password, priority, done) }
    askOnce(question, contact, priority) { [weak self] result in
      // It may have been reset, or have thrown us out: once more from the beginning.
      guard let self, case .failure(.silence) = result, question.mayRepeat else { return done(result) }
      self.loggedIn.remove(contact.key)
      self.logInAndAsk(question, contact, password, priority, done)
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

  private func logInAndAsk(
    _ question: NodeQuestion, _ contact: Contact, _ password: Text, _ priority: DeliveryPriority,
    _ done: @escaping NodeRequests.Done
  ) {
    askOnce(.login(password: password), contact, priority) { [weak self] result in
      guard let self, case .success = result else { return done(result) }
      self.askOnce(question, contact, priority, done)
    }
  }

  private func askOnce(
    _ question: NodeQuestion, _ contact: Contact, _ priority: DeliveryPriority, _ done: @escaping NodeRequests.Done
  ) {
    requests.ask(question, of: contact, priority) { [weak self] result in
      guard let self, case .success(let answer) = result else { return done(result) }
      self.took(answer, contact)
      done(result)
    }
  }

  /// Logs in with this password, and keeps it when it was right. A room that anybody may read lets in whoever comes with a wrong
  /// password, too, to read only: then it is kept only if it is empty, or `keepsReadOnly`.
  public func logIn(
    _ stored: StoredContact, password: Text?, keepsReadOnly: Bool = false, _ done: @escaping NodeRequests.Done
  ) {
    let contact = stored.contact
    guard stored.onRadio else { return done(.failure(.notOnRadio(contact.name.string))) }
    guard let given = password ?? self.password(contact.key) else {
      return done(.failure(.invalid("no password is stored for \(contact.name.string): give one")))
    }
    guard given.bytes.count <= 15, !given.bytes.contains(where: { $0 < 0x20 }) else {
      return done(.failure(.invalid("a password has at most 15 bytes and no control characters")))
    }
    askOnce(.login(password: given), contact, .interactive) { [weak self] result in
      guard let self, case .success(let answer) = result, password != nil else { return done(result) }
      if case .login(let login) = answer, login.isReadOnly, !given.isEmpty, !keepsReadOnly { return done(result) }
      do {
        try self.credentials.set(given, for: contact.key)
        done(result)
      } catch {
        done(.failure(.invalid("logged in, but the password cannot be kept: \(error)")))
      }
    }
  }

  /// A repeater's neighbours, page by page.
  public func neighbours(
    of stored: StoredContact, _ done: @escaping (Result<Neighbours, Refusal>) -> Void
  ) {
    more(of: stored, nil, done)
  }

  private static let maxNeighbours = 64

  private func more(
    of stored: StoredContact, _ soFar: Neighbours?, _ done: @escaping (Result<Neighbours, Refusal>) -> Void
  ) {
    let first = UInt16(clamping: soFar?.entries.count ?? 0)
    ask(.neighbours(first: first), of: stored) { [weak self] result in
      switch result {
      case .failure(let refusal): done(.failure(refusal))
      case .success(.neighbours(let page)):
        var all = soFar ?? page
        if soFar != nil { all.entries += page.entries.filter { !all.entries.contains($0) } }
        let isComplete = page.entries.isEmpty || all.entries.count >= min(Int(all.total), Self.maxNeighbours)
        if isComplete { done(.success(all)) } else { self?.more(of: stored, all, done) }
      case .success: done(.failure(.radio("an answer of another kind came")))
      }
    }
  }

  // MARK: What answers mean

  private func took(_ answer: NodeAnswer, _ contact: Contact) {
    switch answer {
    case .login(let login):
      loggedIn.insert(contact.key)
      noteAccess(login, contact)
    case .status: keep(answer, .status, contact)
    case .telemetry: keep(answer, .telemetry, contact)
    case .path(let found): use(found.out, contact)
    case .neighbours, .trace, .cli, .sent: break
    }
    switch answer {
    case .login, .path, .neighbours: noteHeard(contact)
    // Readings and a CLI's words are kept, and it with them; a trace tells of nodes by one byte, which is no identity.
    case .status, .telemetry, .cli, .trace, .sent: break
    }
  }

  private func noteAccess(_ login: LoginSuccess, _ contact: Contact) {
    guard login.isReadOnly else {
      readOnly.remove(contact.key)
      return
    }
    guard readOnly.insert(contact.key).inserted else { return }
    log.warning("room \(contact.name.string) lets us in read only: posts will be ignored")
  }

  private func noteHeard(_ contact: Contact) {
    let moment = messenger.synchronizer.now
    messenger.store.write(
      when: .soon,
      { store throws(SQLiteError) in try store.noteHeard(contact.key.prefix, at: moment.milliseconds) }
    ) { [log] failure in
      if let failure { log.debug("that \(contact.name.string) was heard is not kept: \(failure)") }
    }
  }

  private func keep(_ answer: NodeAnswer, _ kind: EventKind, _ contact: Contact) {
    let body = JSONWriter.object { json in
      json.field("node", contact.key.hex)
      json.field("name", contact.name.string)
      answer.write(to: &json)
    }
    let moment = messenger.synchronizer.now
    messenger.store.write(
      when: .soon,
      { store throws(SQLiteError) in
        try store.keepReading(of: contact.key, kind: kind, body: body, at: moment)
      }
    ) { [log] failure in
      if let failure { log.warning("what \(contact.name.string) told is lost: \(failure)") }
    }
  }

  /// The radio does not keep a discovered path by itself.
  private func use(_ path: Path, _ contact: Contact) {
    var changed = contact
    changed.outPath = path
    changed.lastModified = messenger.synchronizer.radioTime ?? contact.lastModified
    messenger.synchronizer.connection.submit(.addUpdateContact(changed), .sync) { [weak self] outcome in
      guard case .replied(.ok) = outcome else { return }
      self?.messenger.synchronizer.refresh(contact.key)
    }
  }

  private func discoverPath(_ key: PublicKey) {
    let now = messenger.loop.now
    pathsAsked = pathsAsked.filter { now - $0.value < Self.pathPause }
    guard pathsAsked[key] == nil, pathsAsked.count < Self.maxPathsAsked,
      let stored = (try? messenger.store.contact(key)) ?? nil, stored.onRadio
    else { return }  // `try?`: a path is a convenience
    pathsAsked[key] = now
    ask(.path, of: stored, .bulk) { [log] result in
      if case .failure(let refusal) = result { log.debug("no path to \(stored.contact.name.string): \(refusal)") }
    }
  }
}
