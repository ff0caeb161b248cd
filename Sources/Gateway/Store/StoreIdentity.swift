// SPDX-License-Identifier: MIT

import Companion
import Glibc
import SQLite

/// The id and the epoch, which distinguish this store's events from those of other stores and of older copies of
/// itself.
extension Store {
  func loadIdentity() throws(StoreError) {
    // The id is also in a separate file, so that a gateway keeps its id when its database is lost.
    let idLocation = settings.location + ".id"
    let kept = (try meta("gateway_id")).flatMap(\.text) ?? Self.readSmallFile(idLocation)
    gatewayID = settings.gatewayID ?? kept ?? Self.randomHex(8)
    let storedEpoch = (try meta("epoch")).flatMap(\.text)
    isNew = storedEpoch == nil
    epoch = storedEpoch ?? Self.randomHex(8)
    epochBegan = storedEpoch == nil ? trustedNow : (try meta("epoch_at"))?.integer ?? 0
    if kept != gatewayID || storedEpoch == nil {
      try translating { () throws(SQLiteError) in
        for (name, value) in [
          ("gateway_id", SQLiteValue.text(gatewayID)), ("epoch", .text(epoch)), ("epoch_at", .integer(epochBegan)),
        ] {
          try database.run("INSERT OR REPLACE INTO meta(name, value) VALUES (?, ?)", .text(name), value)
        }
      }
    }
    epochFirst = (try meta("epoch_first"))?.integer ?? 1
    epochBefore = (try meta("epoch_before")).flatMap(\.text)
    if Self.readSmallFile(idLocation) != gatewayID { try Self.writeSmallFile(idLocation, gatewayID) }
  }

  /// Starts a new epoch, because this store is an older copy: an upstream has sequence numbers beyond ours. `loss`:
  /// becomes its first event.
  public func renewEpoch(telling loss: StoreLoss? = nil) throws(StoreError) {
    // If no server has received events of this epoch, the previous epoch remains the one that servers know.
    if epochFirst <= lastSeq { epochBefore = epoch }
    epoch = Self.randomHex(8)
    (epochFirst, epochBegan) = (lastSeq + 1, trustedNow)
    write { [epoch, epochFirst, epochBefore, epochBegan] store throws(SQLiteError) in
      try store.setMeta("epoch_before", .optional(epochBefore))
      try store.setMeta("epoch", .text(epoch))
      try store.setMeta("epoch_first", .integer(epochFirst))
      try store.database.run("UPDATE cursors SET told_before = told")
      // The copy's counts of radios' queues are outdated.
      try store.forgetQueues()
      try store.setMeta("epoch_at", .integer(epochBegan))
      try store.tell(loss)
    }
    try commitNow()
  }

  private var trustedNow: Int64 { clocks.isWallSynchronised ? clocks.wallMilliseconds : 0 }

  static func randomHex(_ count: Int) -> String {
    Hex.string((0..<count).map { _ in UInt8.random(in: .min ... .max) })
  }

  private static func readSmallFile(_ location: String) -> String? {
    let descriptor = Glibc.open(location, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var bytes = [UInt8](repeating: 0, count: 512)
    let count = read(descriptor, &bytes, bytes.count)
    let text = String(decoding: bytes.prefix(max(0, count)).filter { $0 > 0x20 && $0 < 0x7F }, as: UTF8.self)
    return text.isEmpty ? nil : text
  }

  /// Keeps the old file until the new one is complete: a full disk would leave an empty one.
  private static func writeSmallFile(_ location: String, _ text: String) throws(StoreError) {
    let fresh = location + ".new"
    unlink(fresh)
    let descriptor = Glibc.open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o640)
    guard descriptor >= 0 else { throw .file(location) }
    defer { close(descriptor) }
    let bytes = Array((text + "\n").utf8)
    guard Glibc.write(descriptor, bytes, bytes.count) == bytes.count, fsync(descriptor) == 0,
      rename(fresh, location) == 0
    else {
      // `file` reads errno.
      let reason = StoreError.file(location)
      unlink(fresh)
      throw reason
    }
  }

  /// The earlier epoch in which an event got its number; `nil`: the present one. A server may know the event under the
  /// earlier epoch.
  public func epochBefore(of seq: Int64) -> String? { seq < epochFirst ? epochBefore : nil }

  // MARK: The mark

  private var markLocation: String { settings.location + ".mark" }

  /// Stores beside the database how far the journal is: a database that was restored without this file is recognised by
  /// it. Call it now and then, and at the end.
  public func markProgress() throws(StoreError) {
    let mark = (["\(epoch):\(lastSeq)"] + (try untold()).compactMap(\.mark)).joined(separator: ",")
    guard Self.readSmallFile(markLocation) != mark else { return }
    try Self.writeSmallFile(markLocation, mark)
  }

  /// `untold`: earlier losses that are reported by events which not every upstream has received.
  var mark: (epoch: String, seq: Int64, untold: [StoreLoss])? {
    let marks = Self.readSmallFile(markLocation)?.split(separator: ",") ?? []
    let parts = marks.first?.split(separator: ":") ?? []
    guard parts.count == 2, let seq = Int64(parts[1]) else { return nil }
    return (String(parts[0]), seq, marks.dropFirst().compactMap { StoreLoss(mark: $0) })
  }

  /// Why the database is an older copy of itself, in words; `nil`: it is not, or that is unknown.
  var olderThanMark: String? {
    guard let mark, mark.epoch == epoch, mark.seq > lastSeq else { return nil }
    return "the database is an older copy of itself: it ends with event \(lastSeq), and there was an event \(mark.seq)"
  }
}
