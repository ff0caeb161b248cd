// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import JSON
import MeshCrypto
import Timing

/// Several virtual radios in one ether, controlled by lines of text: for the quick start, tests and benchmarks.
public final class VirtualMesh {
  public struct ScriptError: Error, CustomStringConvertible {
    public let description: String
  }

  private let loop: EventLoop
  private let ether: Ether
  private var radios: [String: VirtualRadio] = [:]
  private var ports: [String: RadioPort] = [:]
  /// Tasks that serve a port or execute a line of the script.
  private let tasks: LoopTasks
  private var order: [String] = []
  private let report: (String) -> Void

  /// `report` gets a JSON object for each listening port and each action of a radio. `repeaters`: the number of repeaters. `regions`: the regions
  /// that they carry, with `*` for floods without a region. `isFar`: the radios communicate only through repeaters.
  public init(
    on loop: EventLoop, seed: UInt64, airtimeFactor: Double, repeaters: Int = 0, regions: [Region] = [.unscoped],
    isFar: Bool = false, _ report: @escaping (String) -> Void
  ) {
    self.loop = loop
    tasks = LoopTasks(on: loop)
    self.report = report
    ether = Ether(on: loop, seed: seed, airtimeFactor: airtimeFactor)
    ether.repeaters = (0..<repeaters).map { UInt8(truncatingIfNeeded: 0xA0 + $0) }
    ether.regions = regions
    ether.isFar = isFar
  }

  /// Packets that overlap at a listener are lost there, and nobody hears while it transmits.
  public var collides: Bool {
    get { ether.collides }
    set { ether.collides = newValue }
  }

  /// The repeater with this number carries these regions only.
  public func carry(_ regions: [Region], by repeater: Int) { ether.regionsOf[ether.repeaters[repeater]] = regions }

  /// `isDeaf`: it transmits, and hears nothing. A few hundred such nodes cost no more than one.
  @discardableResult
  public func add(_ settings: VirtualRadioSettings, isDeaf: Bool = false) -> VirtualRadio {
    let radio = VirtualRadio(settings, on: loop)
    radio.isClientConnected = false
    ether.add(radio, isDeaf: isDeaf)
    radios[settings.name] = radio
    order.append(settings.name)
    return radio
  }

  public func openTerminal(_ name: String, link: String, isForgetful: Bool = false) throws {
    let radio = try find(name)
    radio.isClientConnected = true
    announce(name, try PseudoTerminalPort(radio, on: loop, link: link, isForgetful: isForgetful))
  }

  /// `isLine`: the connection carries a serial line.
  public func openTCP(_ name: String, port: UInt16, isLine: Bool = false) throws {
    announce(name, try TCPPort(try find(name), on: loop, port: port, isLine: isLine))
  }

  private func announce(_ name: String, _ port: RadioPort) {
    ports[name] = port
    tasks.begin { await port.run() }
    say {
      $0.field("radio", name)
      $0.field("key", port.radio.key.hex)
      $0.field("address", port.address)
    }
  }

  /// Unplugs all ports, in the loop's next turn.
  public func close() {
    tasks.cancel()
  }

  /// Floods an advert of each radio without air time, and returns when all contact tables contain all radios. Real radios do not do this by
  /// themselves.
  public func advertiseAll() async throws(CancellationError) {
    let factor = ether.airtimeFactor
    ether.airtimeFactor = 0
    for name in order { radios[name]?.received(Command.sendSelfAdvert(flood: true).encode()) }
    ether.airtimeFactor = factor
    try await loop.sleep(for: .milliseconds(1))
  }

  private func say(_ body: (inout JSONWriter) -> Void) {
    var writer = JSONWriter()
    writer.object(body)
    report(writer.string)
  }

  private func find(_ name: String?) throws -> VirtualRadio {
    guard let name, let radio = radios[name] else {
      throw ScriptError(description: "no radio \(name ?? "given"); known radios: \(order.joined(separator: ", "))")
    }
    return radio
  }

  private func port(_ name: String?) throws -> RadioPort {
    guard let name, let port = ports[name] else { throw ScriptError(description: "\(name ?? "no radio") has no port") }
    return port
  }

  /// The lines that `perform` understands.
  public static let help = """
    dm FROM TO TEXT            direct message from one radio to another
    chan FROM SLOT TEXT        channel message (slot 0 is the public channel, which every radio has)
    advert NAME                flood an advert, as its button does
    inject NAME RATE COUNT     queue COUNT messages at RATE a second (0: at once) in NAME, as if received
    part ONE OTHER             the two do not hear each other from now on (a radio, or a repeater: R0, R1, …)
    join ONE OTHER             they do again
    loss P                     drop each packet with probability P from now on
    battery NAME MILLIVOLTS    set the battery's voltage
    silence NAME SECONDS       stop reading and writing the port
    garbage NAME COUNT         write random bytes to the port
    half NAME                  truncate the next frame
    wrong NAME                 send a reply of the wrong kind next
    reboot NAME                power off and on; RAM is lost
    unplug NAME SECONDS        remove the port for a time
    stats NAME                 print what was queued and delivered
    at SECONDS LINE            execute any of these lines later
    """

  /// Executes one line of the script. A mistake is reported as JSON and ends nothing.
  public func perform(_ line: String) {
    do {
      try run(line)
    } catch {
      say {
        $0.field("error", "\(error)")
        $0.field("line", line)
      }
    }
  }

  private func run(_ line: String) throws {
    let words = line.split(separator: " ", maxSplits: 3).map(String.init)
    guard let verb = words.first, !verb.hasPrefix("#") else { return }
    let second = words.count > 1 ? words[1] : nil
    switch verb {
    case "at": try later(line)
    case "dm": try directMessage(words)
    case "chan": try channelMessage(words)
    case "inject": try inject(words)
    case "advert": try find(second).received(Command.sendSelfAdvert(flood: true).encode())
    case "part": ether.part(try station(second), try station(words.dropFirst(2).first))
    case "join": ether.join(try station(second), try station(words.dropFirst(2).first))
    case "loss": ether.loss = try number(second)
    case "battery": try find(second).batteryMillivolts = UInt16(clamping: Int(try number(words.dropFirst(2).first)))
    case "silence": try port(second).perform(.silence(.seconds(try number(words.dropFirst(2).first))))
    case "garbage":
      let count = min(Int(try number(words.dropFirst(2).first)), RadioPort.maxPending)
      try port(second).perform(.garbage(count))
    case "half": try port(second).perform(.halfFrame)
    case "wrong": try port(second).perform(.wrongReply)
    case "reboot": try find(second).reboot()
    case "unplug": try port(second).unplug(for: .seconds(try number(words.dropFirst(2).first)))
    case "stats": try stats(second)
    default: throw ScriptError(description: "unknown line; expected one of:\n\(Self.help)")
    }
    if verb != "at" && verb != "stats" { say { $0.field("done", line) } }
  }

  private func station(_ name: String?) throws -> Ether.Station {
    if let name, name.hasPrefix("R"), let number = Int(name.dropFirst()), ether.repeaters.indices.contains(number) {
      return .repeater(ether.repeaters[number])
    }
    return try find(name).station
  }

  private func number(_ word: String?) throws -> Double {
    guard let word, let number = Double(word), number >= 0, number < 1e9 else {
      throw ScriptError(description: "a number is missing")
    }
    return number
  }

  private func later(_ line: String) throws {
    let parts = line.split(separator: " ", maxSplits: 2).map(String.init)
    guard parts.count == 3 else { throw ScriptError(description: "at SECONDS LINE") }
    let delay = Duration.seconds(try number(parts[1]))
    begin {
      try await self.loop.sleep(for: delay)
      self.perform(parts[2])
    }
  }

  private func directMessage(_ words: [String]) throws {
    guard words.count == 4 else { throw ScriptError(description: "dm FROM TO TEXT") }
    let (sender, recipient) = (try find(words[1]), try find(words[2]))
    guard sender.index(of: recipient.key) != nil else {
      throw ScriptError(description: "\(words[1]) has not heard \(words[2]) yet: advert \(words[2]) first")
    }
    let text = OutgoingText(
      attempt: 0, time: sender.uniqueTime(), recipient: recipient.key.prefix, text: Text(words[3]))
    sender.received(Command.sendText(text).encode())
  }

  private func channelMessage(_ words: [String]) throws {
    guard words.count == 4, let slot = UInt8(words[2]) else { throw ScriptError(description: "chan FROM SLOT TEXT") }
    let sender = try find(words[1])
    let command = Command.sendChannelText(
      type: .plain, slot: slot, time: sender.uniqueTime(), text: Text(words[3]))
    sender.received(command.encode())
  }

  private func inject(_ words: [String]) throws {
    guard words.count == 4 else { throw ScriptError(description: "inject NAME RATE COUNT") }
    let radio = try find(words[1])
    let (rate, count) = (try number(words[2]), Int(try number(words[3])))
    let start = loop.now
    // The first messages are queued at once.
    var next = injectDue(radio, from: 1, of: count, rate: rate, since: start)
    guard next <= count else { return say { $0.field("injected", count) } }
    begin {
      while next <= count {
        try await self.loop.sleep(for: .seconds(max(0.001, 1 / max(rate, 1))))
        next = self.injectDue(radio, from: next, of: count, rate: rate, since: start)
      }
      self.say { $0.field("injected", count) }
    }
  }

  /// Queues the messages that are due. Returns the number of the next message. The texts are numbered, so that a missing message shows.
  private func injectDue(
    _ radio: VirtualRadio, from first: Int, of count: Int, rate: Double, since start: MonotonicTime
  ) -> Int {
    let due = rate == 0 ? count : min(count, Int((loop.now - start).inSeconds * rate) + 1)
    var number = first
    while number <= due {
      if number % 4 == 0, radio.settings.contacts > 0 {
        radio.injectDirectText(
          "direct \(number)", fromContact: number % radio.settings.contacts, time: radio.clock &+ UInt32(number))
      } else {
        radio.injectChannelText("Walker: message \(number)", slot: 0, time: radio.clock &+ UInt32(number))
      }
      number += 1
    }
    return number
  }

  /// Starts a task that ends with the mesh.
  private func begin(_ work: @escaping () async throws -> Void) {
    tasks.begin {
      do { try await work() } catch { return }  // the mesh is closed
    }
  }

  private func stats(_ name: String?) throws {
    let (radio, port) = (try find(name), try port(name))
    say {
      $0.field("stats", name)
      $0.field("queued", radio.queuedMessages)
      $0.field("handed_over", port.messagesHandedOver)
      $0.field("dropped_frames", port.droppedFrames)
      $0.field("contacts", radio.stored.contacts.count)
      $0.field("clock", radio.clock)
    }
  }
}
