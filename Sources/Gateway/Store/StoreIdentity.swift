// SPDX-License-Identifier: MIT

import Companion
import OwnFiles
import SQLite
import Timing

/// The id and the epoch, which distinguish a store's events from those of other stores and of older copies of itself.
public struct StoreIdentity: Equatable, Sendable {
  /// The gateway's id: 16 hex digits, created once, kept when the database is recreated.
  public let gatewayID: String
  /// Created with the database, and replaced when the database is recreated or restored; with it, each seq is unique.
  public private(set) var epoch: String
  /// The first seq that belongs to this epoch.
  public private(set) var epochFirst: Int64
  /// When this epoch began, or when the gateway has learned later that another database was in use in between: milliseconds since 1970; 0: unknown.
  private var began: Int64
  /// The same by the machine's boot and the milliseconds since it, as `BOOT MILLISECONDS`: many machines know the time only after a while.
  private var beganBoot: String
  private(set) var epochBefore: String?
  /// This epoch began after the database was opened: no other copy of the database can have it.
  public private(set) var beganInThisRun = false
  /// Whether the database was empty when it was opened.
  let isNew: Bool

  /// Reads the identity from a database that was just opened, and stores new parts of it.
  init(of database: Database, _ settings: Store.Settings, _ clocks: any Clocks) throws(StoreError) {
    // The id is also in a separate file, so that a gateway keeps its id when its database is lost.
    let idLocation = OwnSuffix.identity.of(settings.location)
    let filed = SmallFile.read(idLocation)
    do throws(SQLiteError) {
      let kept = try database.meta("gateway_id")?.text ?? filed
      gatewayID = settings.gatewayID ?? kept ?? Self.randomHex(8)
      let known = try database.meta("epoch")?.text
      isNew = known == nil
      epoch = known ?? Self.randomHex(8)
      epochFirst = try database.meta("epoch_first")?.integer ?? 1
      began = known == nil ? Self.trustedNow(clocks) : try database.meta("epoch_at")?.integer ?? 0
      beganBoot = known == nil ? Self.boot(clocks) : try database.meta("epoch_boot")?.text ?? ""
      epochBefore = try database.meta("epoch_before")?.text
      if isNew || kept != gatewayID { try write(to: database) }
    } catch {
      throw StoreError(error)
    }
    if filed != gatewayID { try SmallFile.write(idLocation, gatewayID) }
  }

  func write(to database: Database) throws(SQLiteError) {
    try database.run(
      """
      INSERT OR REPLACE INTO meta(name, value)
      VALUES ('gateway_id', ?), ('epoch', ?), ('epoch_first', ?), ('epoch_before', ?), ('epoch_at', ?),
        ('epoch_boot', ?)
      """, .text(gatewayID), .text(epoch), .integer(epochFirst), .optional(epochBefore), .integer(began),
      .text(beganBoot))
  }

  /// Begins a new epoch after the event `last`.
  mutating func renew(after last: Int64, _ clocks: any Clocks) {
    // If no server has received events of this epoch, the previous epoch remains the one that servers know.
    if epochFirst <= last { epochBefore = epoch }
    (epoch, epochFirst, beganInThisRun) = (Self.randomHex(8), last + 1, true)
    beginAgain(clocks)
  }

  /// From now on this database is in use, and not another one.
  mutating func beginAgain(_ clocks: any Clocks) {
    (began, beganBoot) = (Self.trustedNow(clocks), Self.boot(clocks))
  }

  private static func boot(_ clocks: any Clocks) -> String {
    clocks.boot.isEmpty ? "" : "\(clocks.boot) \(clocks.sinceBoot)"
  }

  /// Milliseconds since 1970; 0: the clock is not trusted.
  private static func trustedNow(_ clocks: any Clocks) -> Int64 {
    clocks.isWallSynchronised ? clocks.wallMilliseconds : 0
  }

  /// The milliseconds in which no other database of this gateway was in use; `nil`: unknown.
  public func sinceOthers(_ clocks: any Clocks) -> Int64? {
    if let space = beganBoot.lastIndex(of: " "), beganBoot[..<space].elementsEqual(clocks.boot),
      let moment = Int64(beganBoot[space...].dropFirst()), moment >= 0
    {
      return max(0, clocks.sinceBoot - moment)
    }
    let (since, overflow) = Self.trustedNow(clocks).subtractingReportingOverflow(began)
    return began > 0 && !overflow && since >= 0 ? since : nil
  }

  /// Whether the database has never had another epoch.
  public var isFirstEpoch: Bool { epochFirst == 1 && epochBefore == nil }

  /// The earlier epoch in which an event got its number; `nil`: the present one. A server may know the event under the
  /// earlier epoch.
  public func epochBefore(of seq: Int64) -> String? { seq < epochFirst ? epochBefore : nil }

  private static func randomHex(_ count: Int) -> String {
    Hex.string((0..<count).map { _ in UInt8.random(in: .min ... .max) })
  }
}

extension Store {
  /// As in `identity`.
  public var gatewayID: String { identity.gatewayID }
  /// As in `identity`.
  public var epoch: String { identity.epoch }

  /// Starts a new epoch, because this store is an older copy: an upstream has sequence numbers beyond ours. `loss`:
  /// becomes its first event.
  ///
  /// `isCopy`: another copy of this database may have been in use meanwhile.
  public func renewEpoch(telling loss: StoreLoss? = nil, isCopy: Bool = true) throws(StoreError) {
    let old = epoch
    // The epoch counts only when it is on disk: otherwise servers would learn of one that no database has.
    var renewed = identity
    renewed.renew(after: lastSeq, clocks)
    write { [renewed] store throws(SQLiteError) in
      try renewed.write(to: store.database)
      try store.know(old, through: Self.unknownEnd)
      try store.database.run("UPDATE cursors SET told_before = told")
      if isCopy { try store.doubtWaiting() }
      // The copy's counts of radios' queues are outdated.
      try store.forgetQueues()
      try store.tell(loss)
    }
    try commitNow()
    identity = renewed
    markLoss()
  }
}

/// Epochs of this gateway that are not news when a server names them: this database's own ones, and those whose loss was reported.
extension Store {
  private static let knownEpochs = "known_epochs"
  private static let mostKnown = 32

  /// How far an epoch may be at servers when it ended here: the first server that names it tells.
  static let unknownEnd = Int64.max

  /// Whether the epoch's events up to `last` are no news. A database of an earlier version has not listed its own older epochs: each but the last is
  /// news once.
  public func knows(_ epoch: String, through last: Int64) throws(StoreError) -> Bool {
    if identity.epoch == epoch { return true }
    return try translating { () throws(SQLiteError) in
      try known(epoch).map { $0 >= last } ?? (epoch == identity.epochBefore)
    }
  }

  /// A server has events of an epoch that is no news up to `last`. If more follow later, the database of that epoch is in use again, or was meanwhile.
  public func note(_ epoch: String, through last: Int64) throws(StoreError) {
    let end = try translating { () throws(SQLiteError) in try known(epoch) ?? Self.unknownEnd }
    guard epoch != identity.epoch, end == Self.unknownEnd else { return }
    write { store throws(SQLiteError) in try store.know(epoch, through: last) }
    try commitNow()
  }

  private func known(_ epoch: String) throws(SQLiteError) -> Int64? { try known().first { $0.epoch == epoch }?.last }

  /// Within a `write`. The oldest is forgotten for the newest.
  func know(_ epoch: String, through last: Int64) throws(SQLiteError) {
    let others = try known().filter { $0.epoch != epoch }.suffix(Self.mostKnown - 1)
    try setMeta(
      Self.knownEpochs, .text((others + [(epoch, last)]).map { "\($0.epoch):\($0.last)" }.joined(separator: ",")))
  }

  /// As `know`, unless the epoch is known.
  func adopt(_ epoch: String, through last: Int64) throws(SQLiteError) {
    if try known(epoch) == nil { try know(epoch, through: last) }
  }

  func known() throws(SQLiteError) -> [KnownEpoch] {
    (try database.meta(Self.knownEpochs)?.text ?? "").split(separator: ",").compactMap { Self.knownEpoch($0) }
  }

  typealias KnownEpoch = (epoch: String, last: Int64)

  /// `nil`: it has another form.
  static func knownEpoch(_ entry: Substring) -> KnownEpoch? {
    let parts = entry.split(separator: ":")
    guard parts.count == 2, let last = Int64(parts[1]) else { return nil }
    return (String(parts[0]), last)
  }
}

/// Messages that waited here when another copy of this database may have been in use.
extension Store {
  private static let doubtedThrough = "relayed_before_copy"

  /// What another copy may have sent: messages up to a row's number. Of our own only those from before this program, because the database was put back
  /// before it began; what was retried since is wanted.
  private var doubt: (through: Int64, own: Int64, relayed: Int64)? {
    get throws(StoreError) {
      guard let value = try meta(Self.doubtedThrough) else { return nil }
      let parts = (value.text ?? "").split(separator: ":").compactMap { Int64($0) }
      guard parts.count == 3 else { return value.integer.map { ($0, -1, .max) } }
      return (parts[0], parts[1], parts[2])
    }
  }

  /// Within a `write`: another copy may have sent what waits now.
  func doubtWaiting() throws(SQLiteError) {
    let last = try database.value("SELECT max(id) FROM outgoing")?.integer ?? 0
    try setMeta(Self.doubtedThrough, .text("\(last):\(openedElapsed):\(steadyClock.elapsed)"))
  }

  /// Whether another copy of this database may have sent this message. `isRelayed`: it is another gateway's. Ours is the same message for its recipients
  /// if it was transmitted before, with its time.
  public func mayHaveSent(_ message: OutgoingMessage, isRelayed: Bool) throws(StoreError) -> Bool {
    guard isRelayed || message.senderTime == nil, let doubt = try doubt, message.id <= doubt.through else {
      return false
    }
    return message.createdElapsed <= (isRelayed ? doubt.relayed : doubt.own)
  }
}

/// The mark beside the database.
extension Store {
  var markLocation: String { OwnSuffix.mark.of(settings.location) }

  /// Stores beside the database how far the journal is: a database that was restored without this file is recognised by
  /// it. Call it now and then, and at the end.
  public func markProgress() throws(StoreError) {
    let losses = try untold().compactMap(\.mark)
    let told = try toldEpochs().map { "\($0.epoch):\($0.last)" }
    let mark = (["\(epoch):\(lastSeq)"] + logWords + losses + told).joined(separator: ",")
    guard SmallFile.read(markLocation) != mark else { return }
    try SmallFile.write(markLocation, mark)
  }

  /// `untold`: earlier losses that are reported by events which not every upstream has received. `told`: epochs whose loss was reported, and how far
  /// servers had them.
  var mark: (epoch: String, seq: Int64, untold: [StoreLoss], told: [KnownEpoch])? {
    let marks = SmallFile.read(markLocation)?.split(separator: ",") ?? []
    guard let end = marks.first.flatMap({ Self.knownEpoch($0) }) else { return nil }
    let untold = marks.dropFirst().compactMap { StoreLoss(mark: $0) }
    let told = marks.dropFirst().compactMap { Self.knownEpoch($0) }
    return (end.epoch, end.last, untold, told)
  }

  /// Why the database is an older copy of itself, in words; `nil`: it is not, or that is unknown.
  var olderThanMark: String? {
    guard let mark, mark.epoch == epoch, mark.seq > lastSeq else { return nil }
    return "the database is an older copy of itself: it ends with event \(lastSeq), and there was an event \(mark.seq)"
  }
}
