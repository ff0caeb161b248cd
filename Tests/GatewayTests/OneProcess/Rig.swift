// SPDX-License-Identifier: MIT

import EventLoop
import Foundation
import HTTP
import JSON
import MeshCrypto
import TestSupport
import Timing
import VirtualRadio

@testable import Gateway
@testable import Relay
@testable import Store

/// A whole gateway in this process, with its radio at a link in memory, scripted servers and invented time: waiting for an hour takes no time.
///
/// Its store is on a real disk, or a substitute of one; its control socket is real. The seed determines the mesh, but not the gateway's ids and the
/// jitter of its pauses. If a test waits in vain, the error contains the seed and the log so far.
final class Rig {
  struct InVain: Error, CustomStringConvertible {
    let description: String
  }

  let machine = InventedMachine()
  let loop: EventLoop
  /// r0 is the gateway's radio; r1 and further ones as a test needs them.
  let mesh: VirtualMesh
  let radios: [VirtualRadio]
  private(set) var link: MemoryLink
  private(set) var daemon: Daemon?
  /// Tells the gateway that the network has changed.
  private(set) var networkChanges: () -> Void = {}
  /// The log's lines, each with its second.
  private(set) var story: [String] = []
  /// The disk is full: writing fails.
  var isDiskFull = false { didSet { fillDisk() } }
  private let seed: UInt64
  private let scratch = Scratch(inMemory: true)
  private var servers: [String: ScriptedServer] = [:]
  private var signals = SignalQueue()
  private var isServing = false
  /// The number of the radio at the link.
  private var plugged = 0
  /// Each gateway has its own folder, with the data that the previous one left on disk.
  private(set) var generation = 0
  private var configuration: (extra: String, store: String) = ("", "")
  /// Edits the configuration before it is written.
  var edit: (String) -> String = { $0 }

  /// `isKnown`: the radios have heard each other. `regions`: those that the repeaters carry. `isFar`: the radios hear each other only by
  /// repeaters. `change`: the settings of r0.
  init(
    seed: UInt64 = 1, isKnown: Bool = true, nodes: Int = 2, repeaters: Int = 0, regions: [String] = ["*"],
    isFar: Bool = false, airtime: Double = 0.1, _ change: (inout VirtualRadioSettings) -> Void = { _ in }
  ) throws {
    self.seed = seed
    loop = EventLoop(on: machine)
    mesh = VirtualMesh(
      on: loop, seed: seed, airtimeFactor: airtime, repeaters: repeaters, regions: regions.compactMap { Region($0) },
      isFar: isFar
    ) { _ in }
    let clock = UInt32(loop.wallClock.seconds)
    radios = (0..<nodes).map { [mesh] number in
      var settings = VirtualRadioSettings(
        name: "r\(number)", seed: seed &* 1000 &+ UInt64(number), queueCapacity: 256, clock: clock)
      settings.age = .seconds(3600)
      if number == 0 { change(&settings) }
      return mesh.add(settings)
    }
    radios[0].isClientConnected = true
    link = MemoryLink(radios[0], on: loop)
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    _ = scratch.write("token", "a-token-for-the-tests\n")
    guard isKnown else { return }
    // `try?`: this task is never cancelled.
    _ = loop.begin { [mesh] in try? await mesh.advertiseAll() }
    pass(.seconds(1))
  }

  deinit { if daemon != nil { end() } }

  /// The gateway's radio, r0.
  var radio: VirtualRadio { radios[0] }

  // MARK: The gateway

  /// Writes the configuration: `extra` are further tables, `store` keys of `[store]`.
  func configure(_ extra: String, store: String = "") {
    configuration = (extra, store)
    _ = scratch.write(
      "gw.toml",
      edit(
        """
        [radio]
        link = "tcp:127.0.0.1:1"
        [store]
        location = "\(folder)/gw.db"
        \(store)
        [control]
        socket = "\(socket)"
        [[upstream]]
        name = "hub"
        url = "http://127.0.0.1:1"
        token_file = "\(scratch.location("token"))"
        \(UpstreamKeys.rights(beside: extra))
        \(extra)

        """))
  }

  func start() throws {
    precondition(daemon == nil)
    configure(configuration.extra, store: configuration.store)
    let file = scratch.location("gw.toml")
    let daemon = try Daemon(
      GatewayConfiguration(startingWith: file), file: file, on: loop, manager: nil, in: surroundings)
    (self.daemon, signals, isServing) = (daemon, SignalQueue(), true)
    _ = loop.begin { [signals] in
      _ = try? await daemon.serve(signals)  // `try?`: nobody cancels it
      self.isServing = false
    }
    loop.turn(wait: false)
    // After the daemon's own work, which commits.
    loop.afterTurn { [weak self, weak daemon] in if self?.daemon === daemon { self?.fillDisk() } }
  }

  /// Starts the gateway, and returns when it has read its radio.
  func startSynced() throws {
    try start()
    try untilSynced()
  }

  func untilSynced() throws { try until("synced") { self.daemon?.synchronizer.state == .synced } }

  private var surroundings: Surroundings {
    var surroundings = Surroundings()
    surroundings.link = { [link] _, _, _, _ in link }
    surroundings.carriers = Carriers { [unowned self] settings, store, loop, log in
      // Without readable settings there is no server.
      if case .unreadable = settings.kind { return try Carriers.toServers.carrier(settings, store, loop, log) }
      return self.server(settings.name, settings.kindName).line(store, on: loop)
    }
    surroundings.network = { [unowned self] _, changed in
      self.networkChanges = changed
      return self
    }
    surroundings.log = { [unowned self] _, line in
      let second = (self.loop.now - MonotonicTime(seconds: 1000)).inSeconds
      self.story.append("\(Int(second)) s: \(line)")
    }
    return surroundings
  }

  /// Ends the gateway like SIGTERM.
  func end() {
    signals.put(SIGTERM)
    for _ in 0..<10_000 where isServing { loop.turn(wait: true) }
    daemon = nil
    succeed()
  }

  /// Reloads the configuration with other tables, like SIGHUP.
  func reload(_ extra: String, store: String = "") {
    configure(extra, store: store)
    signals.put(SIGHUP)
    loop.turn(wait: false)
  }

  /// Kills the gateway: uncommitted data is lost, and no peer notices its end.
  func kill() {
    succeed()
    let (wasPresent, plugged) = (link.isPresent, self.plugged)
    link.leave()
    for server in servers.values { server.forgetLines() }
    // It waits for no answers.
    daemon?.relay.stop()
    signals.put(SIGKILL)
    for _ in 0..<10_000 where isServing { loop.turn(wait: true) }
    daemon = nil
    link = MemoryLink(radios[plugged], on: loop)
    link.isPresent = wasPresent
    story.append("killed")
  }

  func restart() throws {
    end()
    try start()
  }

  func location(_ name: String) -> String { scratch.location(name) }
  func write(_ name: String, _ text: String) -> String { scratch.write(name, text) }
  /// A file beside the store, as a name for `write`.
  func storeFile(_ name: String) -> String { "\(generation)/\(name)" }

  private var folder: String { scratch.location("\(generation)") }
  /// Of the present gateway: a kill changes it.
  var socket: String { "\(folder)/ctl" }

  /// Copies the present data on disk to the next gateway's folder.
  private func succeed() {
    let from = folder
    generation += 1
    let files = FileManager.default
    try! files.createDirectory(atPath: folder, withIntermediateDirectories: true)
    for name in try! files.contentsOfDirectory(atPath: from) {
      if ["ctl", "gw.db.lock", "gw.db-shm"].contains(name) { continue }
      try! files.copyItem(atPath: "\(from)/\(name)", toPath: "\(folder)/\(name)")
      // The last working configuration contains the store's location.
      guard name == "gw.db.configuration" else { continue }
      let kept = try! String(contentsOfFile: "\(from)/\(name)", encoding: .utf8)
      _ = write(storeFile(name), kept.replacing(from, with: folder))
    }
  }

  /// Puts the store that a gateway of the past left in place of the present one.
  func putBack(_ past: Int) throws {
    let files = FileManager.default
    for name in try files.contentsOfDirectory(atPath: folder) where name.hasPrefix("gw.db") {
      try files.removeItem(atPath: "\(folder)/\(name)")
    }
    for name in try files.contentsOfDirectory(atPath: location("\(past)")) where name.hasPrefix("gw.db") {
      if ["gw.db.lock", "gw.db-shm"].contains(name) { continue }
      try files.copyItem(atPath: location("\(past)/\(name)"), toPath: "\(folder)/\(name)")
    }
  }

  /// Puts another radio on the gateway's port.
  func plug(_ number: Int) {
    (radios[plugged].isClientConnected, radios[number].isClientConnected) = (false, true)
    plugged = number
    link.plug(radios[number])
  }

  /// Makes a write fail, and with it all later writes of the turn, as on a full disk.
  private func fillDisk() {
    guard isDiskFull else { return }
    daemon?.store.write { _ throws(SQLiteError) in throw SQLiteError(code: 13, message: "database or disk is full") }
  }

  // MARK: Its surroundings

  var hub: ScriptedServer { server("hub", "hub") }

  func server(_ name: String, _ kind: String) -> ScriptedServer {
    if let server = servers[name] { return server }
    let server = ScriptedServer(kind)
    servers[name] = server
    return server
  }

  /// Executes a line of `meshpost-radio`'s script.
  func air(_ line: String) { mesh.perform(line) }

  func stepClock(by duration: Duration) { machine.wallOffset += Int64(duration.inSeconds * 1000) }

  // MARK: Waiting and asking

  /// Advances time by the duration.
  func pass(_ duration: Duration) {
    let end = loop.now + duration
    let timer = loop.schedule(at: end) {}
    while loop.now < end { loop.turn(wait: true) }
    timer.cancel()
  }

  func until(_ what: String, within limit: Duration = .seconds(900), _ condition: () throws -> Bool) throws {
    let end = loop.now + limit
    let timer = loop.schedule(at: end) {}
    defer { timer.cancel() }
    while try !condition() {
      guard loop.now < end else {
        throw InVain(
          description: "seed \(seed): waited in vain for \(what)\n" + story.suffix(40).joined(separator: "\n"))
      }
      turn()
    }
  }

  /// Does the present work and advances time to the next deadline. A condition that asks the gateway makes work itself.
  private func turn() {
    let now = loop.now
    for _ in 0..<1000 where loop.now == now { loop.turn(wait: true) }
  }

  /// Sends a request to the control socket; returns the answer.
  func ask(_ method: String, _ target: String, _ body: String = "") throws -> HTTPResponse {
    let client = HTTPClient(.unix(location: socket), on: loop)
    defer { client.close() }
    var answer: Result<HTTPResponse, HTTPFailure>?
    _ = loop.begin {
      do throws(HTTPFailure) {
        answer = .success(
          try await client.send(HTTPRequest(method, target, body: Array(body.utf8)), timeout: .seconds(60)))
      } catch {
        answer = .failure(error)
      }
    }
    while answer == nil { loop.turn(wait: true) }
    return try answer!.get()
  }

  /// Sends a POST request; returns the answer's status and body.
  func post(_ target: String, _ body: String = "") throws -> (status: Int, json: JSONValue) {
    let answer = try ask("POST", target, body)
    return (answer.status, try JSONValue(parsing: answer.body))
  }

  /// Requests to send a message; returns the answer's status. `more`: further fields.
  @discardableResult
  func send(_ recipient: String, _ text: String, id: String? = nil, _ more: String = "") throws -> Int {
    let key = id.map { #","id":"\#($0)""# } ?? ""
    return try post("/v1/send", #"{"to":"\#(recipient)","text":"\#(text)"\#(key)\#(more)}"#).status
  }

  /// The sent and waiting messages of all radios.
  func outgoing() throws -> [JSONValue] { try rows("/v1/outgoing?radio=all&upstreams=1") }
  func outgoing(_ id: String) throws -> JSONValue? { try outgoing().last { $0["id"]?.string == id } }

  func until(_ id: String, is state: String) throws {
    try until("\(id) to be \(state)") { try outgoing(id)?["state"]?.string == state }
  }

  /// The texts of messages, by a query of `/v1/messages`.
  func texts(_ query: String = "direction=both") throws -> [String] {
    try rows("/v1/messages?\(query)").compactMap { $0["text"]?.string }
  }

  func doctor() throws -> [String] {
    try json("/v1/doctor")["findings"]?.array?.map { $0.text } ?? []
  }

  func json(_ target: String) throws -> JSONValue { try JSONValue(parsing: ask("GET", target).body) }

  /// The rows of an answer with one in each line.
  func rows(_ target: String) throws -> [JSONValue] {
    try ask("GET", target).body.split(separator: 10).map { try JSONValue(parsing: Array($0)) }
  }

  func status() throws -> JSONValue { try json("/v1/status") }

  func upstream(_ name: String) throws -> JSONValue? {
    try status()["upstreams"]?.array?.first { $0["name"]?.string == name }
  }

  func openAlerts() throws -> [String] { try status()["alerts"]?.array?.compactMap { $0["rule"]?.string } ?? [] }

  func alert(_ rule: String) throws -> JSONValue? {
    try json("/v1/alerts")["alerts"]?.array?.first { $0["rule"]?.string == rule }
  }

  /// Whether the log contains the words from this line on.
  func hasSaid(_ words: String, from line: Int = 0) -> Bool { story.dropFirst(line).contains { $0.contains(words) } }
}
