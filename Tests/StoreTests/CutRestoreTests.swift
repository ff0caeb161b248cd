// SPDX-License-Identifier: MIT

import CrashDisk
import Foundation
import SQLite
import TestSupport
import Testing

@testable import Store

/// A kill or a power cut while the files of a database get other names.
@Suite struct CutRestoreTests {
  /// A folder with a database of seven events, and a backup with the first three of them.
  private struct Card {
    let folder: Scratch
    let epoch: String
    var settings: Store.Settings { Store.Settings(location: folder.location("gw.db")) }
    var backup: String { folder.location("backup") }
  }

  /// `isKilled`: two of the events are in the log alone.
  private func card(isKilled: Bool) throws -> Card {
    let (source, folder) = (Scratch(inMemory: true), Scratch(inMemory: true))
    func copy() throws {
      for suffix in ["", "-wal", ".id", ".mark"] {
        let file = source.location("gw.db" + suffix)
        guard FileManager.default.fileExists(atPath: file) else { continue }
        try FileManager.default.copyItem(atPath: file, toPath: folder.location("gw.db" + suffix))
      }
    }
    var epoch = ""
    do {
      let shop = try Shop(in: source)
      epoch = shop.store.epoch
      _ = try shop.store.openCursor(of: "hub", fromStart: true)
      try shop.append(3)
      let backup = try shop.store.beginBackup(to: folder.location("backup"))
      while try !backup.step(pages: 100) {}
      try shop.append(2)
      try shop.store.checkpoint()
      try shop.append(2)
      try shop.store.markProgress()
      if isKilled { try copy() }
    }
    if !isKilled { try copy() }
    return Card(folder: folder, epoch: epoch)
  }

  /// The folder as each cut could leave it while `work` is done, which begins to be looked at when it calls its argument.
  private func images(of card: Card, _ work: (_ look: () -> Void) throws -> Void) throws -> [Scratch] {
    let disk = CrashDisk(watching: card.folder.folder.path())
    defer { disk.onSync = nil }
    var (images, seed): ([Scratch], UInt64) = ([], 0)
    func look() {
      seed += 3
      for cut in [.keepingAll, .losingAll, .seed(seed), .seed(seed + 1), .seed(seed + 2)] as [CrashDisk.Cut] {
        let image = Scratch(inMemory: true)
        disk.image(into: image.folder.path(), cut)
        images.append(image)
      }
    }
    try work { disk.onSync = { look() } }
    disk.onSync = nil
    look()
    return images
  }

  private func restore(_ card: Card, _ look: () -> Void = {}) throws {
    let clocks = InventedMachine()
    let replaced = try Store.restore(card.backup, settings: card.settings, clocks: clocks, beforeMoving: look)
    _ = try Store(card.settings, clocks: clocks, replaced: replaced)
  }

  private func saved(in folder: Scratch, as reason: String) throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: folder.folder.path()).sorted().filter {
      $0.hasPrefix("gw.db.\(reason)-") && !$0.hasSuffix("-wal") && !$0.hasSuffix("-shm")
    }
  }

  /// Two starts: nothing is told or undone twice. Returns the words about what was undone, and whether the old database is in its place.
  private func start(_ image: Scratch, after epoch: String, _ name: String) throws -> (undone: String?, isOld: Bool) {
    var (undone, isOld): (String?, Bool) = (nil, false)
    for number in 1...2 {
      let store = try Store(Store.Settings(location: image.location("gw.db")), clocks: InventedMachine())
      isOld = store.epoch == epoch
      let gaps = try store.value("SELECT count(*) FROM journal WHERE kind = 'gap'")?.integer
      #expect(store.lastSeq == (isOld ? 7 : 4) && gaps == (isOld ? 0 : 1), "\(name), start \(number)")
      if number == 1 { undone = store.provenance.undoneMove }
      #expect(number == 1 || store.provenance.undoneMove == nil, "\(name)")
      if let loss = store.provenance.loss {
        #expect(number == 1 && loss.cause == .restored && loss.epoch == epoch && loss.atMost == 4, "\(name): \(loss)")
        #expect(FileManager.default.fileExists(atPath: loss.saved ?? ""), "\(name): \(loss)")
      }
    }
    let left = try FileManager.default.contentsOfDirectory(atPath: image.folder.path())
    #expect(left.filter { $0.contains("moving") || $0.contains("restoring") } == [], "\(name)")
    return (undone, isOld)
  }

  @Test(arguments: [true, false])
  func `wherever a restoration is cut off, the next start has the old database or the restored one`(_ isKilled: Bool)
    throws
  {
    let card = try card(isKilled: isKilled)
    let images = try images(of: card) { try restore(card, $0) }
    var (old, restored, undone) = (0, 0, 0)
    for (number, image) in images.enumerated() {
      let found = try start(image, after: card.epoch, "image \(number)")
      if found.isOld { old += 1 } else { restored += 1 }
      if found.undone != nil { undone += 1 }
      let kept = try saved(in: image, as: "replaced")
      #expect(kept.count == (found.isOld ? 0 : 1), "image \(number): \(kept)")
      for name in kept {
        let store = try Store(Store.Settings(location: image.location(name)), clocks: InventedMachine())
        #expect(store.lastSeq == 7 && store.epoch == card.epoch, "image \(number): all that it had is in \(name)")
      }
    }
    #expect(old > 0 && restored > 0 && undone > 0, "\(old) \(restored) \(undone)")
  }

  @Test(arguments: [true, false])
  func `a restoration after one that was cut off loses nothing of the database before both`(_ isKilled: Bool) throws {
    let first = try card(isKilled: isKilled)
    for (number, image) in try images(of: first, { try restore(first, $0) }).enumerated() {
      let card = Card(folder: image, epoch: first.epoch)
      try restore(card)
      do {
        let store = try Store(card.settings, clocks: InventedMachine())
        #expect(store.epoch != first.epoch && store.lastSeq >= 3, "image \(number)")
      }
      let whole = try saved(in: image, as: "replaced").filter { name in
        let store = try Store(Store.Settings(location: image.location(name)), clocks: InventedMachine())
        return store.lastSeq == 7 && store.epoch == first.epoch
      }
      #expect(whole.count == 1, "image \(number)")
    }
  }

  @Test func `a replaced database that is in its place again is not restored, and that is said`() throws {
    let card = try card(isKilled: true)
    let images = try images(of: card) { try restore(card, $0) }
    let half = try #require(
      images.first { !FileManager.default.fileExists(atPath: $0.location("gw.db")) }, "never without a database")
    let name = try #require(try saved(in: half, as: "replaced").first)
    #expect(Store.unfinishedMove(half.location("gw.db"))?.contains("a restore was cut off") == true)
    let settings = Store.Settings(location: half.location("gw.db"))
    #expect { _ = try Store.restore(half.location(name), settings: settings) } throws: {
      "\($0)".contains("is \(settings.location) again, with all that it had")
    }
    let end = try start(half, after: card.epoch, "after the refusal")
    #expect(end.isOld && end.undone == nil)
  }

  @Test func `a cut never parts a damaged database from its log`() throws {
    let card = try card(isKilled: true)
    let images = try images(of: card) { look in
      look()
      _ = try Store.moveAside(card.settings.location, "corrupt", InventedMachine())
    }
    var whole = 0
    for (number, image) in images.enumerated() {
      let store = try Store(Store.Settings(location: image.location("gw.db")), clocks: InventedMachine())
      if store.epoch == card.epoch {
        whole += 1
        #expect(store.lastSeq == 7 && store.provenance.loss == nil, "image \(number)")
      } else {
        let names = try FileManager.default.contentsOfDirectory(atPath: image.folder.path())
        let kept = names.filter { $0.hasPrefix("gw.db.corrupt-") && !$0.hasSuffix("-shm") }
        #expect(store.provenance.loss != nil && kept.count == 2, "image \(number): \(kept)")
      }
    }
    #expect(whole > 0 && whole < images.count)
  }
}
