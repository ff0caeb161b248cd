// SPDX-License-Identifier: MIT

import ArgumentParser
import CLinux
import EventLoop
import Glibc
import MeshCrypto
import Release
import Timing
import VirtualRadio

/// `meshpost-radio`: a virtual companion radio, or a small mesh of them.
@main
struct MeshpostRadio: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "meshpost-radio",
    abstract: "A virtual MeshCore companion radio, or a small mesh of them.",
    discussion: """
      The radios r0, r1, … are in range of each other. Like real radios they know no other node until they receive its \
      advert: with --advertise each sends one at the start. Lines on standard input, or in the script, control them:

      \(VirtualMesh.help)

      Prints one JSON object a line. Exits at end of input, unless --keep is given.
      """, version: Release.version)

  @Option(help: "Number of radios.") var nodes = 2
  @Option(help: "Give a radio a pseudo-terminal: NAME=LOCATION, e.g. r0=/tmp/r0.tty. May be repeated.")
  var tty: [String] = []
  @Option(help: "Give a radio a TCP port on loopback: NAME=PORT (0: a free one). May be repeated.")
  var tcp: [String] = []
  @Option(
    help: "Like --tcp, for a serial line carried over TCP, such as that of an emulated machine. May be repeated.")
  var line: [String] = []
  @Option(help: "Number of nodes in r0's contact table at the start (at most --max-contacts).") var contacts = 0
  @Option(help: "Size of the contact table.") var maxContacts = 350
  @Option(help: "Number of channel slots.") var channels = 40
  @Option(help: "Size of the message queue.") var queue = 16
  @Option(help: "Packets for which a radio has room (firmware: 16); without it any number.") var pool: Int?
  @Option(help: "The radios' clock at start: seconds since 1970, `now`, or `boot` (like a board without a clock chip).")
  var clock = "boot"
  @Option(help: "For how many seconds the radios have been running at the start.") var uptime: UInt32 = 0
  @Option(help: "Seed of identities and random numbers.") var seed: UInt64 = 1
  @Option(help: "Factor for times on air, 0 to 1000; 0: immediate.") var airtime = 0.1
  @Option(help: "Number of repeaters that forward flooded packets.") var repeaters = 0
  @Option(help: "Regions that the repeaters carry, separated by commas; `*`: floods without a region.") var regions =
    "*"
  @Flag(help: "Refuse to send to regions, like firmware before 1.10.") var noRegions = false
  @Flag(help: "Put the radios out of each other's range, so that they communicate only through repeaters.") var far =
    false
  @Flag(help: "Packets that overlap at a listener are lost, and nobody hears while it transmits.") var collisions =
    false
  @Flag(help: "Flood an advert of each radio at the start, so that all know each other.") var advertise = false
  @Option(help: "A file with lines to execute at the start.") var script: String?
  @Flag(help: "Pseudo-terminals discard unread data when the last program closes them, like real ports.")
  var forgetful = false
  @Flag(help: "Keep running when standard input ends.") var keep = false

  func validate() throws {
    guard (0...16).contains(repeaters) else { throw ValidationError("--repeaters: 0 to 16") }
    guard !carried.contains(where: { $0 == nil }) else { throw ValidationError("--regions: names of regions, or *") }
    guard (0...1000).contains(airtime) else { throw ValidationError("--airtime: 0 to 1000") }
    guard (1...64).contains(nodes) else { throw ValidationError("--nodes: 1 to 64") }
    guard (2...1000).contains(maxContacts), maxContacts % 2 == 0 else {
      throw ValidationError("--max-contacts: an even number from 2 to 1000")
    }
    guard (0...maxContacts).contains(contacts) else { throw ValidationError("--contacts: 0 to --max-contacts") }
    guard (1...255).contains(channels) else { throw ValidationError("--channels: 1 to 255") }
    guard (1...10_000_000).contains(queue) else { throw ValidationError("--queue: 1 to 10000000") }
    guard (1...1000).contains(pool ?? 16) else { throw ValidationError("--pool: 1 to 1000") }
    guard clock == "now" || clock == "boot" || UInt32(clock) != nil else {
      throw ValidationError("--clock: a number of seconds, now or boot")
    }
  }

  private var carried: [Region?] { regions.split(separator: ",").map { Region(String($0)) } }

  func run() throws {
    let loop = EventLoop()
    let signals = Signals([SIGTERM, SIGINT], on: loop) { _ in loop.stop() }
    let mesh = VirtualMesh(
      on: loop, seed: seed, airtimeFactor: airtime, repeaters: repeaters, regions: carried.compactMap { $0 }, isFar: far
    ) { print($0) }
    mesh.collides = collisions
    for number in 0..<nodes {
      var settings = VirtualRadioSettings(
        name: "r\(number)", seed: seed &* 1000 &+ UInt64(number), maxContacts: maxContacts, channelSlots: channels,
        queueCapacity: queue)
      settings.clock = clock == "now" ? UInt32(clamping: WallClock().seconds) : UInt32(clock)
      settings.age = .seconds(Int64(uptime))
      if noRegions { settings.firmware = .v1_9 }
      settings.packetPool = pool
      if number == 0 { settings.contacts = contacts }
      mesh.add(settings)
    }
    try openPorts(mesh)
    let lines = try script.map { try readLines(of: $0) } ?? []
    let work = loop.begin {
      do {
        try await play(mesh, lines, LineInput(0, on: loop))
        if !keep { loop.stop() }
      } catch {
        return  // the program ends
      }
    }
    loop.run()
    work.cancel()
    mesh.close()
    loop.turn(wait: false)
    withExtendedLifetime(signals) {}
  }

  /// Executes the script, then the lines of standard input until it ends.
  private func play(_ mesh: VirtualMesh, _ script: [String], _ input: LineInput) async throws {
    if advertise { try await mesh.advertiseAll() }
    print(#"{"ready":true}"#)
    for line in script { mesh.perform(line) }
    while let line = try await input.next() { mesh.perform(line) }
  }

  private func openPorts(_ mesh: VirtualMesh) throws {
    for choice in tty {
      let (name, location) = try split(choice, option: "--tty")
      try mesh.openTerminal(name, link: location, isForgetful: forgetful)
    }
    for (choice, option) in tcp.map({ ($0, "--tcp") }) + line.map({ ($0, "--line") }) {
      let (name, port) = try split(choice, option: option)
      guard let number = UInt16(port) else { throw ValidationError("\(option) \(choice): invalid port") }
      try mesh.openTCP(name, port: number, isLine: option == "--line")
    }
  }

  private func split(_ choice: String, option: String) throws -> (String, String) {
    let parts = choice.split(separator: "=", maxSplits: 1).map(String.init)
    guard parts.count == 2 else { throw ValidationError("\(option) \(choice): expected NAME=…") }
    return (parts[0], parts[1])
  }

  /// Most bytes of a script.
  private static let longestScript = 64 << 20

  private func readLines(of location: String) throws -> [String] {
    errno = 0
    guard let bytes = Files.read(location, most: Self.longestScript) else {
      throw ValidationError("\(location): \(errno == 0 ? "too long" : SystemError("open").message)")
    }
    return bytes.split(separator: 10).map { String(decoding: $0, as: UTF8.self) }
  }
}
