// SPDX-License-Identifier: MIT

import Companion
import CrashDisk
import EventLoop
import FoundationEssentials
import Gateway
import Glibc
import LinkInMemory
import SQLite
import Timing
import VirtualRadio

/// A gateway of the world: the whole daemon, its card, its radio and its machine.
///
/// A kill leaves the card as it is, and nobody hears of the program any more. Each life has a folder of its own, with what the previous one left on
/// the card.
final class WorldGateway {
  /// The id in its configuration; a clone has that of its original.
  let id: String
  /// Its name in the world.
  let name: String
  let machine: WorldMachine
  let loop: EventLoop
  private let clock: WorldClock
  let root: String
  private(set) var radio: VirtualRadio
  private(set) var link: MemoryLink
  private(set) var daemon: Daemon?
  private var signals = SignalQueue()
  private(set) var isServing = false
  var life = 0
  private(set) var copies: [Int: Int] = [:]
  private let servers: [Server]
  /// Knows what of the card is synced, in worlds with cuts of power.
  var disk: CrashDisk?
  var hasPowerCuts = false
  let page: WorldPage
  let tell: (String) -> Void
  /// Writes to the card fail.
  var diskFails = false
  /// The next transaction fails.
  var diskFailsOnce = false
  /// A kill at the end of the next turn that has something to commit.
  private var killBeforeCommit = false
  var configuration: (_ folder: String) throws -> String = { _ in "" }

  private struct Life { weak var daemon: Daemon? }
  private var lives: [Life] = []
  /// Daemons that have ended or were killed, and are still in memory: one of their tasks goes on.
  var ghosts: Int { lives.count { $0.daemon != nil && $0.daemon !== daemon } }

  /// The bytes of all files on its card.
  var cardBytes: Int {
    let files = FileManager.default
    // `try?`: a file may go meanwhile.
    let names = (try? files.contentsOfDirectory(atPath: folder)) ?? []
    return names.reduce(0) { sum, name in
      var facts = stat()
      return lstat("\(folder)/\(name)", &facts) == 0 ? sum + Int(facts.st_size) : sum
    }
  }

  // MARK: What is known of it

  /// Texts that the radio has handed over, and has forgotten.
  private(set) var handed: [String] = []
  /// Of these: texts that were not stored when the gateway was killed, as they may be.
  private(set) var forgiven: Set<String> = []
  /// Texts that were stored, ever.
  private(set) var everStored: Set<String> = []
  /// Texts that went away with a card.
  private(set) var lostWithCard: Set<String> = []
  /// Of these: texts of which neither the new card nor a hub knows that they existed. Nobody can tell of them.
  var untellable: Set<String> = []
  /// Texts that its first radio has heard.
  private(set) var heard: Set<String> = []
  /// Get these texts in place of the lists, which grow with each message.
  var onHanded: ((String) -> Void)?
  var onHeard: ((String) -> Void)?
  /// A radio that is not its first one has heard what this gateway sends, and hands it over.
  var hadOtherRadio = false
  /// Keys of sent messages that it accepted.
  var accepted: Set<String> = []
  /// The last change of its card was to an empty one: the gateway knows nothing of what was before.
  private(set) var cardWasEmptied = false
  /// Somebody else has written events under its numbers: what the hub lacks goes there in a new epoch, and some of it again to others.
  var isImitated = false
  /// How often its card was put back, replaced or cloned.
  var cardChanges = 0
  var breaches: [String] = []
  /// Upstreams with events that wait: what they had acknowledged, and for how many hours nothing has changed.
  var standing: [String: (acknowledged: Int64, hours: Int)] = [:]

  init(
    _ name: String, id: String, _ radio: VirtualRadio, in root: String, on clock: WorldClock, servers: [Server],
    tell: @escaping (String) -> Void
  ) throws {
    (self.name, self.id, self.radio, self.clock, self.servers, self.tell) = (name, id, radio, clock, servers, tell)
    self.root = "\(root)/\(name)"
    (machine, loop) = clock.begin()
    page = WorldPage(on: servers[0].loop)
    link = MemoryLink(radio, on: loop)
    radio.isClientConnected = true
    radio.onMessage = { [unowned self] message in
      guard let text = Self.text(of: message) else { return }
      if let onHeard { onHeard(text) } else { heard.insert(text) }
    }
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    listen()
  }

  private func listen() {
    link.onMessage = { [unowned self] message in
      guard let text = Self.text(of: message) else { return }
      if let onHanded { onHanded(text) } else { handed.append(text) }
    }
  }

  private static func text(of message: QueuedMessage) -> String? {
    switch message {
    case .contact(let message): message.text.string
    // A channel's text begins with its sender's name.
    case .channel(let message):
      message.text.string.split(separator: ": ", maxSplits: 1).last.map(String.init) ?? ""
    case .datagram: nil
    }
  }

  var folder: String { "\(root)/\(life)" }
  var isRunning: Bool { daemon != nil }

  // MARK: Its program

  func writeConfiguration(_ change: (String) -> String = { $0 }) throws {
    try change(configuration(folder)).write(toFile: "\(folder)/gw.toml", atomically: true, encoding: .utf8)
  }

  /// Starts the program. It may refuse to, as with a full disk: then it is started again later, as by systemd.
  func start() {
    guard daemon == nil else { return }
    (machine.isStopped, standing) = (false, [:])
    do {
      try writeConfiguration()
      if hasPowerCuts, disk == nil { disk = CrashDisk(watching: folder) }
      let daemon = try makeDaemon()
      (self.daemon, signals, isServing) = (daemon, SignalQueue(), true)
      lives.append(Life(daemon: daemon))
      page.follow("\(folder)/ctl")
      loop.afterTurn { [weak self, weak daemon] in if let daemon { self?.beforeCommit(daemon) } }
      _ = loop.begin { [signals] in
        _ = try? await daemon.serve(signals)  // `try?`: nobody cancels it
        self.isServing = false
      }
    } catch {
      tell("\(name): does not start: \(error)")
      _ = loop.schedule(after: .seconds(60)) { [weak self] in self?.start() }
    }
  }

  func makeDaemon() throws -> Daemon {
    var surroundings = Surroundings()
    surroundings.link = { [link] _, _, _, _ in link }
    surroundings.network = { _, _ in NoNetworkChanges() }
    surroundings.log = { [unowned self] level, line in if level <= .warning { tell("\(name): \(repeatable(line))") } }
    return try Daemon(
      GatewayConfiguration(startingWith: "\(folder)/gw.toml"), file: "\(folder)/gw.toml", on: loop, manager: nil,
      in: surroundings)
  }

  /// The line without what differs in each run of a world: ports, and the folder.
  private func repeatable(_ line: String) -> String {
    // `try?`: a server without a port is in no line.
    let ports = servers.compactMap { server in (try? server.port(of: name)).map { ("\($0)", server.name) } }
    return ports.reduce(line.replacing(root, with: "…")) { $0.replacing($1.0, with: "(\($1.1))") }
  }

  private func beforeCommit(_ daemon: Daemon) {
    guard self.daemon === daemon else { return }
    if diskFails || diskFailsOnce && daemon.store.transactions.hasUncommitted {
      diskFailsOnce = false
      daemon.store.write { _ throws(SQLiteError) in
        throw SQLiteError(code: 13, message: "database or disk is full")
      }
    }
    guard killBeforeCommit, daemon.store.transactions.hasUncommitted else { return }
    killBeforeCommit = false
    copyCard()
    link.leave()
    for server in servers { server.leaves(name) }
    isDead = true
  }

  /// The card was copied before a commit, and the program is dead from then on.
  private(set) var isDead = false

  func armKillBeforeCommit() { if daemon != nil { killBeforeCommit = true } }

  /// Ends the dead program, and starts it again.
  func bury() {
    isDead = false
    endAlone(copies: false)
    start()
  }

  /// Kills the program: uncommitted data is lost, and no peer notices its end.
  func kill() {
    guard daemon != nil else { return }
    copyCard()
    link.leave()
    endAlone(copies: true)
  }

  /// Its power is cut: of what was not synced, the card has any part.
  func cutPower(_ loss: UInt64) {
    guard daemon != nil, let disk else { return }
    let next = "\(root)/\(life + 1)"
    // `try!`: the world's own folder in memory.
    try! FileManager.default.createDirectory(atPath: next, withIntermediateDirectories: true)
    disk.image(into: next, .seed(loss))
    link.leave()
    let (last, wasFailing) = (folder, diskFails)
    endAlone(copies: true)
    try? FileManager.default.removeItem(atPath: "\(folder)/gw.db.lock")  // `try?`: the image may lack it
    moveConfiguration(from: last)
    forgive(wasFailing)
  }

  /// Copies what is on the card to the next life's folder.
  private func copyCard() {
    forgive(diskFails)
    copy(from: life, to: life + 1)
  }

  /// What was handed over and is not on the card may be missing: one message, which the radio was told to forget.
  private func forgive(_ diskFails: Bool) {
    let stored = texts()
    let missing = Set(handed).subtracting(stored).subtracting(forgiven).subtracting(lostWithCard)
    let most = diskFails ? 2 : 1
    if missing.count > most { breaches.append("a kill lost \(missing.count) messages: \(missing.sorted())") }
    forgiven.formUnion(missing)
    note(stored)
  }

  private func endAlone(copies: Bool) {
    page.leave()
    (disk, killBeforeCommit) = (nil, false)
    for server in servers { server.leaves(name) }
    machine.isAlone(true)
    signals.put(SIGKILL)
    for _ in 0..<20_000 where isServing { loop.turn(wait: true) }
    if isServing { breaches.append("the program does not end") }
    machine.isAlone(false)
    daemon = nil
    try? FileManager.default.removeItem(atPath: folder)  // `try?`: only the space matters
    life += 1
    replug(radio)
    // `try?`: the port was free a moment ago; else the gateway reports that it has no server.
    for server in servers { try? server.comesBack(name) }
  }

  func replug(_ radio: VirtualRadio) {
    let isPresent = link.isPresent
    link = MemoryLink(radio, on: loop)
    link.isPresent = isPresent
    listen()
  }

  /// Asks the program to end, as SIGTERM does.
  func beginEnd() {
    (machine.isStopped, killBeforeCommit) = (false, false)
    if daemon != nil { signals.put(SIGTERM) }
  }
  var hasEnded: Bool { !isServing }

  /// Ends the program, and waits until it has ended.
  func end() {
    beginEnd()
    clock.pass(until: clock.now + .seconds(120)) { hasEnded }
    if !hasEnded { breaches.append("does not end within two minutes") }
    ended()
  }

  func ended() {
    daemon = nil
    page.leave()
    if onHanded == nil { note(texts()) }
  }

  func reload() { if daemon != nil { signals.put(SIGHUP) } }

  /// Another radio at the port.
  func plug(_ other: VirtualRadio) {
    hadOtherRadio = true
    radio.isClientConnected = false
    other.isClientConnected = true
    radio = other
    link.plug(other)
  }

  // MARK: Its card

  func copy(from: Int, to: Int) {
    let (source, target) = ("\(root)/\(from)", "\(root)/\(to)")
    copyFiles(from: source, to: target)
    moveConfiguration(from: source, to: target)
  }

  private func copyFiles(from source: String, to target: String, without others: [String] = []) {
    let files = FileManager.default
    // `try!`: the world's own folder in memory.
    try? files.removeItem(atPath: target)  // `try?`: there is none, mostly
    try! files.createDirectory(atPath: target, withIntermediateDirectories: true)
    for name in try! files.contentsOfDirectory(atPath: source) {
      if (["ctl", "gw.db.lock", "gw.db-shm"] + others).contains(name) { continue }
      try! files.copyItem(atPath: "\(source)/\(name)", toPath: "\(target)/\(name)")
    }
  }

  /// The last working configuration names the store's folder.
  func moveConfiguration(from source: String, to target: String? = nil) {
    let (target, name) = (target ?? folder, "gw.db.configuration")
    // `try?`: there is none yet.
    guard let kept = try? String(contentsOfFile: "\(target)/\(name)", encoding: .utf8) else { return }
    // `try!`: the world's own folder in memory.
    try! kept.replacing(source, with: target).write(toFile: "\(target)/\(name)", atomically: true, encoding: .utf8)
  }

  func copyCard(_ number: Int, withoutLog: Bool = false) {
    copies[number] = 1_000_000 + number
    copy(from: life, to: 1_000_000 + number)
    // `try?`: there is none, perhaps.
    if withoutLog { try? FileManager.default.removeItem(atPath: "\(root)/\(1_000_000 + number)/gw.db-wal") }
  }

  func hasCopy(_ number: Int) -> Bool { copies[number] != nil }

  /// Puts a copy of the card in its place; the program does not run. `nil`: an empty card.
  func changeCard(_ number: Int?) {
    let before = texts()
    note(before)
    disk = nil
    cardChanges += 1
    cardWasEmptied = number == nil
    life += 1
    if let place = number.flatMap({ copies[$0] }) {
      copy(from: place, to: life)
    } else {
      // `try!`: the world's own folder in memory.
      try! FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    }
    lostWithCard.formUnion(before.subtracting(texts()))
    replug(radio)
  }

  /// Takes over another gateway's card, as a clone.
  func clone(_ other: WorldGateway) {
    copyFiles(from: other.folder, to: folder, without: ["gw.db.configuration", "gw.toml"])
    cardChanges += 1
    other.cardChanges += 1
  }

  func note(_ texts: Set<String>) { everStored.formUnion(texts) }

  /// The texts of the received messages on the card.
  func texts() -> Set<String> {
    // `try?`: without a database there are none.
    Set((try? column("SELECT text FROM messages")) ?? [])
  }

  /// Its journal tells of a loss.
  // `try?`: without a database it tells of nothing.
  var knowsOfLoss: Bool { ((try? column("SELECT kind FROM journal WHERE kind = 'gap'")) ?? []).count > 0 }

  func checkStored() {
    let now = texts()
    let gone = everStored.subtracting(now).subtracting(lostWithCard)
    if !gone.isEmpty { breaches.append("\(gone.count) stored messages are gone: \(gone.sorted().prefix(5))") }
    note(now)
  }

  func column(_ sql: String) throws -> [String] {
    // The gateway keeps its database to itself.
    let copy = "\(root)/read"
    let files = FileManager.default
    for suffix in ["", "-wal"] {
      try? files.removeItem(atPath: copy + ".db" + suffix)  // `try?`: there is none, mostly
      guard files.fileExists(atPath: "\(folder)/gw.db\(suffix)") else { continue }
      try files.copyItem(atPath: "\(folder)/gw.db\(suffix)", toPath: copy + ".db" + suffix)
    }
    return try Database(location: copy + ".db").rows(sql) { $0.text(0) }
  }
}

private final class NoNetworkChanges {}
