// SPDX-License-Identifier: MIT

import Synchronization

/// Whether the database answers, asked every few seconds on a connection of its own.
///
/// One question is under way at a time, whatever becomes of it: whoever wants to know gets what is known at once, and a thousand who ask do
/// not wait for a database that hangs.
final class DatabaseProbe: Sendable {
  static let interval: Duration = .seconds(2)
  /// Since the last answer: one question and its pause, and as long again for one that is slow.
  static let patience: Duration = .seconds(6)

  /// Why a hub is of no use now: words of docs/observability.md.
  enum Lack: String {
    /// The first answer has not come yet.
    case starting
    /// The database cannot be reached, or answers with an error.
    case down = "database_down"
    /// The database does not answer.
    case silent = "database_silent"
    /// The database is a standby.
    case readOnly = "database_read_only"
    /// A newer hub has upgraded its tables. It stays so.
    case outdated = "database_newer"
    /// The file was removed or replaced: it answers, and what it takes is lost at the end.
    case lost = "database_lost"
  }

  /// What is in the database, as counted now and then.
  struct Census: Equatable {
    var gateways: Int64
    var waitingCommands: Int64
  }

  struct State {
    var answered: ContinuousClock.Instant?
    var failure: Lack?
    /// How long the last answer took.
    var took: Duration?
    var census: Census?
  }

  private let store: HubStore
  private let question: String
  private let version: String
  private let file: OpenedFile?
  private let state = Mutex(State())

  /// `question`: SQL for 1 where nothing can be written, else 0. `version`: for the version of the tables. `file`: of a database that is one.
  init(_ store: HubStore, question: String, version: String, file: OpenedFile? = nil) {
    (self.store, self.question, self.version, self.file) = (store, question, version, file)
  }

  /// What to do where the file is lost.
  static let lostFile =
    "the database file was removed or replaced: what the hub takes now is lost when it ends. End the hub, put the file or a backup back, and "
    + "start it: gateways send again what they still have"

  /// Whether the file is lost, as it is now.
  var isLost: Bool { file?.isElsewhere ?? false }

  var now: State { state.withLock { $0 } }

  /// `nil`: it answers.
  func lack(at now: ContinuousClock.Instant = .now) -> Lack? {
    let state = self.now
    if let failure = state.failure { return failure }
    guard let answered = state.answered else { return .starting }
    return now - answered > Self.patience ? .silent : nil
  }

  /// Asks until it is cancelled. True: until a newer hub has upgraded the tables.
  func run() async -> Bool {
    var counted: (at: ContinuousClock.Instant, pause: Duration)?
    while !Task.isCancelled {
      await ask()
      if now.failure == .outdated { return true }
      if now.failure == nil, counted.map({ .now - $0.at > $0.pause }) ?? true {
        let begun = ContinuousClock.now
        await count()
        // Counting takes at most a hundredth of the time, however much there is.
        counted = (.now, max(.seconds(60), (ContinuousClock.now - begun) * 100))
      }
      // `try?`: cancelled while it sleeps.
      try? await Task.sleep(for: Self.interval)
    }
    return false
  }

  func ask() async {
    let begun = ContinuousClock.now
    do {
      let isReadOnly = try await store.number(question) == 1
      guard try await store.number(version) <= Int64(HubSchema.newest) else {
        return state.withLock { $0.failure = .outdated }
      }
      let isLost = isLost
      let before = state.withLock { state in
        (state.answered, state.took) = (.now, .now - begun)
        defer { state.failure = isLost ? .lost : isReadOnly ? .readOnly : nil }
        return state.failure
      }
      if isLost {
        if before != .lost { HubLog.write(.error, Self.lostFile) }
        return
      }
      if before != nil, !isReadOnly { HubLog.write(.notice, "the database answers again") }
      if before != .readOnly, isReadOnly { HubLog.write(.error, "the database takes no writes: it is a standby") }
    } catch {
      // What waited for its whole time is silent, not gone.
      let before = state.withLock { state in
        defer { state.failure = .now - begun > Self.patience ? .silent : .down }
        return state.failure
      }
      if before == nil { HubLog.write(.error, "the database does not answer: \(error)") }
    }
  }

  private func count() async {
    do {
      let census = Census(
        gateways: try await store.number("SELECT count(*) FROM gateways"),
        waitingCommands: try await store.number("SELECT count(*) FROM commands WHERE state = 'queued'"))
      state.withLock { $0.census = census }
    } catch {
      // The next question tells what is wrong.
      state.withLock { $0.census = nil }
    }
  }
}

extension HubStore {
  /// The first column of the only row; 0 without one.
  func number(_ sql: String) throws(HubDatabaseError) -> Int64 { try database.first(sql) { $0.integer(0) } ?? 0 }
}
