// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Glibc
import TestSupport
import Testing
import Timing

@testable import VirtualRadio

/// Rules of the firmware that hardware/firmware has shown, and that kinder radios do not have.
@Suite struct FirmwareRulesTests {
  /// Two radios that know each other, and a repeater; times on air are real.
  private final class Mesh {
    let loop = EventLoop(on: InventedMachine())
    let ether: Ether
    let left, right: VirtualRadio
    var frames: [RadioFrame] = []
    var heard = 0

    init(isFar: Bool = false) throws {
      ether = Ether(on: loop, airtimeFactor: 0)
      var settings = VirtualRadioSettings(name: "Alder", seed: 1, clock: 1_795_000_000)
      settings.packetPool = 16
      left = VirtualRadio(settings, on: loop)
      right = VirtualRadio(VirtualRadioSettings(name: "Birch", seed: 2, clock: 1_795_000_000), on: loop)
      for radio in [left, right] { ether.add(radio) }
      (ether.repeaters, ether.isFar) = ([0xA0], isFar)
      // `try?`: the frames are the radio's own.
      left.output = { [weak self] in if let frame = try? RadioFrame(decoding: $0) { self?.frames.append(frame) } }
      for radio in [left, right] { radio.received(Command.sendSelfAdvert(flood: true).encode()) }
      wait(.seconds(6))
      ether.airtimeFactor = 1
    }

    func wait(_ time: Duration) {
      let end = loop.now + time
      _ = turn(loop) { self.loop.now >= end }
    }

    func ask(_ command: Command) -> RadioFrame? {
      frames = []
      left.received(command.encode())
      return frames.first
    }

    func text(_ text: Text, _ number: UInt32) -> Command {
      .sendText(OutgoingText(attempt: 0, time: 1_795_000_100 + number, recipient: right.key.prefix, text: text))
    }

    var confirmations: Int { frames.count { if case .push(.sendConfirmed) = $0 { true } else { false } } }
  }

  @Test func `an acknowledgement is lost if its sender and the repeater do not hear each other`() throws {
    let mesh = try Mesh()
    mesh.ether.collides = true
    mesh.ether.part(mesh.right.station, .repeater(0xA0))
    var confirmed = 0
    for number in 0..<10 {
      _ = mesh.ask(.resetPath(mesh.right.key))
      _ = mesh.ask(mesh.text("crossed", UInt32(number)))
      mesh.wait(.seconds(15))
      confirmed += mesh.confirmations
    }
    #expect(mesh.right.queuedMessages == 10)
    #expect((1...9).contains(confirmed), "\(confirmed) of 10")
  }

  @Test func `both know the path over a repeater after one flooded text, and a routed text is acknowledged`() throws {
    let mesh = try Mesh(isFar: true)
    _ = mesh.ask(mesh.text("flooded", 0))
    mesh.wait(.seconds(20))
    #expect(mesh.confirmations == 1)
    for (radio, other) in [(mesh.left, mesh.right), (mesh.right, mesh.left)] {
      let index = try #require(radio.index(of: other.key))
      #expect(radio.stored.contacts[index].outPath?.bytes == [0xA0])
    }
    _ = mesh.ask(mesh.text("routed", 1))
    mesh.wait(.seconds(20))
    #expect(mesh.confirmations == 1 && mesh.right.queuedMessages == 2)
  }

  @Test func `a radio has room for sixteen packets, and says so in two ways`() throws {
    let mesh = try Mesh()
    let all = (0..<20).map { number in
      mesh.ask(.sendChannelText(type: .plain, slot: 0, time: 1_795_000_200 + UInt32(number), text: "x"))
    }
    #expect(all.count { $0 == .reply(.ok) } == 16)
    #expect(all.last == .reply(.error(.notFound)))
    #expect(mesh.ask(mesh.text("no room", 0)) == .reply(.error(.tableFull)))
    mesh.wait(.seconds(20))
    #expect(mesh.right.queuedMessages == 16)
  }

  @Test func `a text to a key that is no point of the curve is transmitted, too`() throws {
    let mesh = try Mesh()
    var sent = 0
    // About half of all numbers are no point.
    for byte in UInt8(1)...20 {
      let key = try #require(PublicKey(bytes: [UInt8](repeating: byte, count: 32)))
      #expect(mesh.ask(.addUpdateContact(Contact(key: key, name: "made up"))) == .reply(.ok))
      let text = OutgoingText(attempt: 0, time: 1_795_000_300 + UInt32(byte), recipient: key.prefix, text: "x")
      if case .reply(.sent)? = mesh.ask(.sendText(text)) { sent += 1 }
      mesh.wait(.seconds(5))
    }
    #expect(sent == 20)
  }

  @Test func `a power cut takes contacts of the last five seconds, and a reboot by command takes none`() throws {
    let mesh = try Mesh()
    func add(_ byte: UInt8) throws {
      let key = try #require(PublicKey(bytes: [UInt8](repeating: byte, count: 32)))
      #expect(mesh.ask(.addUpdateContact(Contact(key: key, name: "hand"))) == .reply(.ok))
    }
    try add(8)
    mesh.wait(.seconds(4))
    mesh.left.reboot()
    #expect(mesh.left.stored.contacts.count == 1)
    try add(9)
    mesh.wait(.seconds(6))
    mesh.left.reboot()
    #expect(mesh.left.stored.contacts.count == 2)
    try add(10)
    mesh.left.received(Command.reboot.encode())
    #expect(mesh.left.stored.contacts.count == 3)
  }

  @Test func `a radio on Wi-Fi holds four frames for its client, and loses the others`() throws {
    let loop = EventLoop()
    let radio = VirtualRadio(VirtualRadioSettings(name: "r0", seed: 1), on: loop)
    let port = try TCPPort(radio, on: loop, port: 0)
    let task = loop.begin { await port.run() }
    let client = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    defer { close(client) }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    let size = socklen_t(MemoryLayout<sockaddr_in>.size)
    let connected = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(client, $0, size) }
    }
    try #require(connected == 0)
    let isServed = turn(loop) { radio.isClientConnected }
    try #require(isServed)
    for number in 0..<10 { radio.injectChannelText("Walker: \(number)", slot: 0, time: 1_795_000_000) }
    #expect(port.droppedFrames == 6 && radio.queuedMessages == 10)
    // None is lost that is asked for.
    let commands = [UInt8](repeating: 0, count: 10).flatMap { _ in
      SerialFraming.wrap(Command.syncNextMessage.encode(), .toRadio)
    }
    #expect(write(client, commands, commands.count) == commands.count)
    let isTaken = turn(loop) { port.messagesHandedOver == 10 }
    #expect(isTaken && port.droppedFrames == 6)
    task.cancel()
    loop.turn(wait: false)
  }
}
