// SPDX-License-Identifier: MIT

import CrashDisk
import TestSupport
import Timing

@testable import Store

/// A store on a disk whose power can be cut, and the laws for its images.
///
/// A store that begins by checkpointing has all of its data in the database file, so that equal bytes are an equal state,
/// in every table.
final class StoreOnDisk {
  let machine = InventedMachine()
  let settings: Store.Settings
  var store: Store?
  private(set) var trial: CrashTrial!
  /// Faults are as expected here.
  var mayBe: (String) -> Bool = { _ in false }

  private let scratch = Scratch(inMemory: true)
  private let target = Scratch(inMemory: true)
  private let after = InventedMachine()
  /// The newest event that the store has shown to upstreams, and its epochs.
  private var (shown, epochs): (Int64, Set<String>) = (0, [])
  /// Equal bytes get an equal verdict.
  private var judged: Set<Int> = []

  init(seed: UInt64, profile: StoreProfile = .durable) {
    settings = Store.Settings(
      location: scratch.location("gw.db"), journalMaxSize: 24 << 10, journalMaxAge: 3600, messagesMax: 30, nodesMax: 8,
      profile: profile)
    after.boot = "after the cut"
    trial = CrashTrial(
      on: CrashDisk(watching: scratch.folder.path()), imagesIn: target.folder.path(), seed: seed
    ) { [unowned self] in try judge($0) }
  }

  deinit { trial.disk.onSync = nil }

  func location(_ name: String) -> String { scratch.location(name) }

  func open() throws { store = try Store(settings, clocks: machine) }

  /// Closes the store, which writes, too.
  func close() {
    var last = store
    store = nil
    trial.step("the end") { last = nil }
    withExtendedLifetime(last) {}
  }

  private func judge(_ isWhole: Bool) throws -> CrashTrial.Verdict {
    if let store {
      shown = store.lastSeq
      epochs.insert(store.epoch)
    }
    var settings = settings
    settings.location = target.location("gw.db")
    let image = try Store(settings, clocks: after)
    let bytes = image.database.fileBytes(Int32(try image.size())) ?? []
    var hasher = Hasher()
    bytes.withUnsafeBytes { hasher.combine(bytes: $0) }
    var verdict = CrashTrial.Verdict(state: hasher.finalize(), faults: [])
    if let loss = image.provenance.loss { verdict.faults.append("a loss is told: \(loss)") }
    if image.lastSeq < shown { verdict.faults.append("it ends with \(image.lastSeq), and \(shown) was shown") }
    if !epochs.isEmpty, !epochs.contains(image.epoch) { verdict.faults.append("another epoch") }
    if isWhole, judged.insert(verdict.state).inserted { verdict.faults += try Self.damage(of: image) }
    verdict.faults.removeAll(where: mayBe)
    return verdict
  }

  private static func damage(of store: Store) throws -> [String] {
    var faults: [String] = []
    let verdict = try store.database.value("PRAGMA integrity_check(1)")?.text
    if verdict != "ok" { faults.append(verdict ?? "no verdict") }
    try store.readJournal(after: 0) { event, isSound in
      if !isSound { faults.append("event \(event.seq) is damaged") }
      return true
    }
    return faults
  }
}
