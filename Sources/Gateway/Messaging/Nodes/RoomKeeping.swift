// SPDX-License-Identifier: MIT

import Companion
import Delivery
import EventLoop
import Store
import Timing

/// Stays logged in to the rooms of the radio's table whose password is stored, at each moment: a room sends its posts only to those whom it knows, and
/// forgets its guests when it is started anew.
public final class RoomKeeping {
  private final class Room {
    /// When something is to be done next.
    let alarm = Alarm()
    var task: LoopTask?
    /// It does not know us, as far as is known.
    var needsLogin = true
    /// A round of a post was not acknowledged.
    var isPostUnanswered = false
    /// It has answered a question without a password since, and has known us from then on.
    var hasAnswered = false
    /// When the next sign of life is due; `nil`: none.
    var nextSign: MonotonicTime?
    /// The last login that failed, or that was made because the room did not answer.
    var tried: MonotonicTime?
    /// Logins in a row that failed.
    var failures = 0
    /// A post that waits may have a login before the pause after a failed one is over.
    var mayHurry = false
    /// How often a login or a sign of life has waited for a post.
    var waits = 0
  }

  let messenger: Messenger
  let service: NodeService
  let log: Log
  /// The interval of signs of life; zero: none.
  var interval: Duration
  private var rooms: [PublicKey: Room] = [:]
  private var isUp = false
  /// When a room last showed that it knows us: a new link alone needs no new login.
  private var keptAt: [PublicKey: MonotonicTime] = [:]
  /// Rooms that let anybody read. A login without a password makes a reader of us there, and posts too old: it is not tried twice.
  private var openRooms: Set<PublicKey> = []
  /// Rooms whose clock is behind their own posts.
  var clocks: [PublicKey: SlowRoomClock] = [:]
  /// Rooms that are being asked for posts that they would not send.
  var catchUps: [PublicKey: LoopTask] = [:]
  /// When the store is read again for rooms that have come or gone.
  private let looking = Alarm()
  private var watching: LoopTask?

  /// Logins to rooms are spread over this time after the sync.
  private static let spread: Duration = .seconds(20)
  /// A contact's record is written shortly after it has come.
  private static let soon: Duration = .seconds(2)
  /// No event tells that a contact has left the radio's table.
  private static let lookPause: Duration = .seconds(600)
  /// A login or a sign of life waits so long, and so often, for a round of a post that may have arrived.
  private static let whilePosting: Duration = .seconds(15)
  private static let mostWaits = 40
  /// How long the answer to a sign of life may take.
  static let patience: Duration = .seconds(30)
  /// The shortest pause between two logins to a room that does not answer. It doubles with each failed one.
  static let loginPause: Duration = .seconds(600)

  init(_ messenger: Messenger, _ service: NodeService, interval: Duration) {
    (self.messenger, self.service, self.interval) = (messenger, service, interval)
    log = messenger.log
    messenger.postWasUnanswered = { [weak self] in self?.postWasUnanswered($0) }
    service.roomKnowsUs = { [weak self] in self?.knowsUs($0) }
    service.roomTold = { [weak self] in self?.told($0, $1) }
    service.credentials.changed = { [weak self] in self?.lookSoon() }
  }

  var loop: EventLoop { messenger.loop }

  // MARK: Which rooms

  func linkUp() {
    guard !isUp else { return lookSoon() }
    isUp = true
    look()
    looking.set(loop.now + Self.lookPause)
    watching = loop.begin { [weak self, looking, loop] in
      // `try?`: the link is down, or the settings have changed.
      while (try? await looking.wait(on: loop)) != nil { self?.lookIfDue() }
    }
  }

  func linkDown() {
    isUp = false
    watching?.cancel()
    watching = nil
    for room in rooms.values { room.task?.cancel() }
    rooms = [:]
    for (key, task) in catchUps {
      task.cancel()
      // The next login begins it anew.
      keptAt[key] = nil
    }
    catchUps = [:]
  }

  /// Another radio is attached: it has to log in to its rooms itself.
  func radioReplaced() {
    linkDown()
    (keptAt, clocks) = ([:], [:])
    messenger.forgettings = [:]
  }

  /// A room, or a password, has come or gone.
  func lookSoon() {
    let time = loop.now + Self.soon
    guard isUp, looking.time.map({ $0 > time }) ?? true else { return }
    looking.set(time)
  }

  private func lookIfDue() {
    guard let time = looking.time, time <= loop.now else { return }
    looking.set(loop.now + Self.lookPause)
    look()
  }

  private func look() {
    guard let wanted else { return }
    for (key, room) in rooms where !wanted.contains(key) {
      room.task?.cancel()
      rooms[key] = nil
    }
    for key in wanted where rooms[key] == nil { begin(key) }
  }

  /// Contacts of the radio that are rooms and whose password is stored; `nil`: they cannot be read.
  private var wanted: Set<PublicKey>? {
    do {
      var wanted: Set<PublicKey> = []
      for key in try service.credentials.read().keys {
        guard let stored = try messenger.store.contact(key), stored.onRadio, stored.contact.type == .room else {
          continue
        }
        wanted.insert(key)
      }
      return wanted
    } catch {
      log.error("\(error)")
      return nil
    }
  }

  private func begin(_ key: PublicKey) {
    let room = Room()
    let soon = loop.now + part(of: Self.spread, 0.1...1)
    if let last = keptAt[key] {
      room.needsLogin = false
      room.nextSign = interval > .zero ? max(soon, last + interval) : nil
    }
    room.alarm.set(room.needsLogin ? soon : room.nextSign)
    rooms[key] = room
    // `try?`: the link is down, or the room has left the table.
    room.task = loop.begin { try? await self.keep(key, room) }
  }

  private func part(of duration: Duration, _ range: ClosedRange<Double>) -> Duration {
    .milliseconds(Int64(duration.inSeconds * 1000 * Double.random(in: range)))
  }

  // MARK: What is heard of them

  /// The room has answered something that it answers only to those whom it knows.
  private func knowsUs(_ key: PublicKey) {
    keptAt[key] = loop.now
    guard let room = rooms[key] else { return }
    (room.needsLogin, room.failures) = (false, 0)
    room.nextSign = interval > .zero ? loop.now + part(of: interval, 0.9...1.1) : nil
    guard !room.isPostUnanswered else { return }
    room.alarm.set(room.nextSign)
  }

  /// A room that does not know us ignores a post.
  private func postWasUnanswered(_ key: PublicKey) {
    guard let room = rooms[key], !room.isPostUnanswered, !openRooms.contains(key) else { return }
    room.isPostUnanswered = true
    room.alarm.set(loop.now)
  }

  // MARK: One room

  private func keep(_ key: PublicKey, _ room: Room) async throws(CancellationError) {
    while true {
      try await room.alarm.wait(on: loop)
      guard let time = room.alarm.time, time <= loop.now else { continue }
      guard let stored = messenger.store.ifReadable({ try messenger.store.contact(key) }), stored.onRadio else {
        // It begins anew when it comes back.
        if rooms[key] === room { rooms[key] = nil }
        return
      }
      room.alarm.set(try await visit(stored, room))
    }
  }

  /// Does what is due. Returns when something is due next; `nil`: not before the room is woken.
  private func visit(_ stored: StoredContact, _ room: Room) async throws(CancellationError) -> MonotonicTime? {
    let hasPost = messenger.session.hasTransmitted(to: stored.contact.key)
    if !hasPost { (room.isPostUnanswered, room.hasAnswered) = (false, false) }
    // The room ignores a post that is older than a login or a sign of life: its round may end.
    if hasPost, !room.isPostUnanswered, room.waits < Self.mostWaits {
      room.waits += 1
      return loop.now + Self.whilePosting
    }
    room.waits = 0
    if !room.needsLogin, !room.isPostUnanswered {
      guard let due = room.nextSign, due <= loop.now else { return room.nextSign }
      try await giveSign(to: stored, room)
      // A post may have come meanwhile.
      return room.needsLogin || room.isPostUnanswered ? loop.now : room.nextSign
    }
    let next = nextLogin(room)
    let isEarly = next.map { $0 > loop.now } ?? false
    // The answer may be lost, or the room have been out of reach for a moment: once in each pause, it is worth the air time.
    if isEarly, !(room.isPostUnanswered && room.mayHurry && room.failures > 0) { return next }
    room.mayHurry = !isEarly && !room.isPostUnanswered
    let pause = (room.tried, room.failures)
    try await logIn(to: stored, room)
    // The pause is as long as without it.
    if isEarly, room.failures > pause.1 { (room.tried, room.failures) = pause }
    return room.needsLogin || room.isPostUnanswered ? nextLogin(room) ?? loop.now + Self.loginPause : room.nextSign
  }

  /// `nil`: there may be a login now.
  private func nextLogin(_ room: Room) -> MonotonicTime? {
    let longest = max(interval > .zero ? interval : .seconds(3600), Self.loginPause)
    return room.tried.map { $0 + min(Self.loginPause * (1 << min(max(0, room.failures - 1), 10)), longest) }
  }

  func result(
    _ ask: () async throws(Refusal) -> NodeAnswer
  ) async throws(CancellationError) -> Result<NodeAnswer, Refusal> {
    let result: Result<NodeAnswer, Refusal>
    do throws(Refusal) { result = .success(try await ask()) } catch { result = .failure(error) }
    guard !Task.isCancelled else { throw CancellationError() }
    return result
  }

  /// Its acknowledgement is heard on the air. If it is not, a login shows whether the room still knows us.
  private func giveSign(to stored: StoredContact, _ room: Room) async throws(CancellationError) {
    let (key, asked) = (stored.contact.key, loop.now)
    // A room acknowledges none that is flooded.
    if stored.contact.outPath != nil {
      let answer = try await result { () async throws(Refusal) in
        try await service.ask(.keepAlive, of: stored, .bulk)
      }
      if case .failure(let refusal) = answer {
        log.info("room \(stored.contact.name.string): \(refusal)")
        guard case .silence = refusal else {
          // It was not sent, or was refused, which says nothing of the room: a login would only take more air time.
          room.nextSign = loop.now + Self.loginPause
          return
        }
      } else if !hasKnownUs(key, since: asked) {
        try await loop.sleep(for: Self.patience)
      }
    }
    if !hasKnownUs(key, since: asked) { room.needsLogin = true }
  }

  func hasKnownUs(_ key: PublicKey, since time: MonotonicTime) -> Bool {
    keptAt[key].map { $0 >= time } ?? false
  }

  private func logIn(to stored: StoredContact, _ room: Room) async throws(CancellationError) {
    let key = stored.contact.key
    // People wait for a room's posts.
    try await messenger.untilCalm(.relayed, since: loop.now)
    guard room.needsLogin || room.isPostUnanswered else { return }
    let (before, doubt) = (keptAt[key], messenger.rooms[key]?.doubt)
    // The room's answer brings a new round of the post, which must not go before all is known.
    let hasPost = messenger.session.hasTransmitted(to: key)
    if hasPost { messenger.doubted.insert(key) }
    defer { messenger.doubted.remove(key) }
    let isWithout = service.password(key)?.bytes.isEmpty ?? true
    // A room that knows us would ignore the post after a login. This question changes nothing there. Without a password it is the login itself, which does
    // not tell whether the room knew us before: if the post is unanswered again, it did not.
    if room.isPostUnanswered, !isWithout || !room.hasAnswered {
      let answer = try await result { () async throws(Refusal) in
        try await service.askOnce(.whetherKnown, stored.contact, .relayed)
      }
      switch answer {
      // It may know us by a login whose answer was lost, and that has made the post too old: only another login ends the post, or gives it a new time.
      case .success(.login(let login)) where !login.isReadOnly && !isWithout && messenger.mayIgnorePost(in: key): break
      case .success(.login(let login)) where !login.isReadOnly:
        (room.tried, room.isPostUnanswered, room.hasAnswered) = (loop.now, false, true)
        if !isWithout { return knowsUs(key) }
        // Not `knowsUs`: whether it was started anew since it last certainly knew us is still to be found out.
        (room.needsLogin, room.failures) = (false, 0)
        return
      // A stranger gets no answer, except in an open room, which answers everybody in the same way.
      case .success: openRooms.insert(key)
      case .failure(.silence) where !isWithout: break
      case .failure(let refusal):
        // The question was the login.
        if isWithout { room.needsLogin = true }
        return failed(refusal, stored, room)
      }
    }
    let answer = try await result { () async throws(Refusal) in try await service.logIn(stored, password: nil) }
    switch answer {
    case .failure(let refusal):
      room.needsLogin = true
      failed(refusal, stored, room)
    case .success(let answer):
      // The first login of all does not count.
      room.tried = before == nil ? nil : loop.now
      (room.needsLogin, room.failures, room.isPostUnanswered, room.hasAnswered) = (false, 0, false, false)
      if hasPost, let before, case .login(let login) = answer, !login.isAdmin {
        try await askWhetherStarted(stored, knownAt: before, doubt)
      }
    }
  }

  private func failed(_ refusal: Refusal, _ stored: StoredContact, _ room: Room) {
    log.info("room \(stored.contact.name.string): \(refusal)")
    (room.tried, room.failures) = (loop.now, room.failures + 1)
  }

  /// If the room was started anew after it knew us last, and before a post came, then it has ignored the post, which may go with a new time. Admins are
  /// known after a start, too. `doubt`: from a login on whose answer was lost, the room may have known us, and have taken later posts.
  private func askWhetherStarted(
    _ stored: StoredContact, knownAt before: MonotonicTime, _ doubt: RoomTimes.Doubt?
  ) async throws(CancellationError) {
    let key = stored.contact.key
    guard let login = messenger.rooms[key]?.known else { return }
    let asked = loop.now
    let answer = try await result { () async throws(Refusal) in
      try await service.askOnce(.status, stored.contact, .relayed)
    }
    guard case .success(.status(let status)) = answer, asked - before > .seconds(Int64(status.uptime)) else { return }
    // At the latest: the answer took its time, and the room may have a post from before its start.
    let startedAt = messenger.synchronizer.now.milliseconds - Int64(status.uptime) * 1000
    let first = min(login, doubt?.firstLogin ?? login)
    messenger.forgettings[key] = Messenger.Forgetting(startedAt: startedAt, login: first)
    log.notice("room \(stored.contact.name.string) was restarted, and ignored posts until now: logged in again")
  }
}
