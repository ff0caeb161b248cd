// SPDX-License-Identifier: MIT

import CLinux
import Companion
import EventLoop
import Glibc
import TestSupport
import Testing
import VirtualRadio

@testable import Transport

/// Several serial devices, of which one is the wanted radio.
@Suite struct SerialSearchTests {
  private let loop = EventLoop()
  private let scratch = Scratch()
  private let ports: ServedPorts

  init() { ports = ServedPorts(loop) }

  /// Pulls the radios' ports out when the test has ended.
  private final class ServedPorts {
    private let loop: EventLoop
    private var tasks: [LoopTask] = []

    init(_ loop: EventLoop) { self.loop = loop }
    deinit {
      for task in tasks { task.cancel() }
      loop.turn(wait: false)
    }

    func begin(_ port: PseudoTerminalPort) { tasks.append(loop.begin { await port.run() }) }
  }

  /// A device on a serial line that is no radio: it sends bytes by itself, and records the bytes that it gets.
  private final class Stranger {
    let device: String
    private let master: Int32
    private let slave: Int32
    private(set) var heard: [UInt8] = []

    init(_ loop: EventLoop, says line: String? = nil, every pause: Duration = .seconds(1)) {
      master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)
      grantpt(master)
      unlockpt(master)
      device = Descriptor.terminalName(of: master) ?? ""
      slave = open(device, O_RDWR | O_NOCTTY)
      var settings = termios()
      tcgetattr(slave, &settings)
      cfmakeraw(&settings)
      tcsetattr(slave, TCSANOW, &settings)
      loop.watch(master, for: .readable) { [weak self] _ in self?.read() }
      if let line { talk(line, pause, loop) }
    }

    deinit {
      close(slave)
      close(master)
    }

    private func read() { while case .bytes(let bytes) = Descriptor.read(master) { heard += bytes } }

    private func talk(_ line: String, _ pause: Duration, _ loop: EventLoop) {
      _ = Descriptor.write(master, Array((line + "\r\n").utf8)[...])
      loop.schedule(after: pause) { [weak self] in self?.talk(line, pause, loop) }
    }
  }

  private func radio(_ name: String, seed: UInt64) throws -> (
    device: String, radio: VirtualRadio, port: PseudoTerminalPort
  ) {
    let radio = VirtualRadio(VirtualRadioSettings(name: name, seed: seed), on: loop)
    let device = scratch.location(name)
    let port = try PseudoTerminalPort(radio, on: loop, link: device)
    ports.begin(port)
    return (device, radio, port)
  }

  private func look(_ search: SerialSearch, _ devices: [String], key: String? = nil) -> Result<String, LinkError>? {
    var found: Result<String, LinkError>?
    _ = loop.begin { [loop] in
      defer { loop.stop() }
      do {
        found = .success(try await search.look(devices, key: key, baud: LinkAddress.defaultBaud))
      } catch {
        found = (error as? LinkError).map { .failure($0) }
      }
    }
    loop.run()
    return found
  }

  @Test func `the radio is found among other devices, and other devices get one short question`() throws {
    let gps = Stranger(loop, says: "$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*47")
    let silent = Stranger(loop)
    let hilltop = try radio("Hilltop", seed: 1)
    let search = SerialSearch(on: loop)
    #expect(look(search, [gps.device, silent.device, hilltop.device]) == .success(hilltop.device))
    #expect(gps.heard.isEmpty, "a device that sends by itself is only read")
    let question = SerialFraming.wrap(Command.deviceQuery(clientVersion: 3).encode(), .toRadio)
    #expect(silent.heard == question + question)
    // Again, in another order: the search does not touch devices that are no radio.
    #expect(look(search, [hilltop.device, silent.device, gps.device]) == .success(hilltop.device))
    #expect(silent.heard == question + question)
  }

  @Test func `of two radios the one with the configured key is used, at any device`() throws {
    let (hilltop, ridge) = (try radio("Hilltop", seed: 1), try radio("Ridge", seed: 2))
    let search = SerialSearch(on: loop)
    for order in [[hilltop.device, ridge.device], [ridge.device, hilltop.device]] {
      #expect(look(search, order, key: String(ridge.radio.key.hex.prefix(8))) == .success(ridge.device))
    }
    guard case .failure(.severalRadios(let words)) = look(search, [hilltop.device, ridge.device]) else {
      Issue.record("one of two was taken without a reason")
      return
    }
    #expect(words.count == 2 && words[0].contains("Hilltop") && words[1].contains(ridge.radio.key.hex.prefix(12)))
    guard case .failure(.noRadioAmong) = look(search, [hilltop.device], key: "00000000") else {
      Issue.record("another radio than the wanted one was taken")
      return
    }
  }

  @Test func `when device names change places, the radio is found under its new name`() throws {
    let (hilltop, ridge) = (try radio("Hilltop", seed: 1), try radio("Ridge", seed: 2))
    let (zero, one) = (scratch.location("ttyUSB0"), scratch.location("ttyUSB1"))
    let key = hilltop.radio.key.hex
    let search = SerialSearch(on: loop)
    for (first, second, expected) in [(hilltop, ridge, zero), (ridge, hilltop, one), (hilltop, ridge, zero)] {
      for (name, radio) in [(zero, first), (one, second)] {
        unlink(name)
        symlink(radio.device, name)
      }
      #expect(look(search, [zero, one], key: key) == .success(expected))
    }
  }

  @Test func `a silent device is asked again once it was plugged in again`() throws {
    let (silent, hilltop) = (Stranger(loop), try radio("Hilltop", seed: 1))
    let name = scratch.location("ttyUSB0")
    symlink(silent.device, name)
    let search = SerialSearch(on: loop)
    guard case .failure(.noRadioAmong) = look(search, [name]) else {
      Issue.record("a silent device was taken")
      return
    }
    unlink(name)
    symlink(hilltop.device, name)
    #expect(look(search, [name]) == .success(name))
  }

  @Test func `a device is noticed whose folder appears, too`() {
    let location = scratch.location("serial/by-id/radio")
    let link = SerialLink(.named(location), baud: LinkAddress.defaultBaud, on: loop)
    defer { link.close() }
    var returns = 0
    link.watchForReturn { returns += 1 }
    for folder in ["serial", "serial/by-id"] {
      loop.turn(wait: false)
      scratch.makeFolder(folder)
      loop.turn(wait: false)
    }
    _ = scratch.write("serial/by-id/radio", "")
    let isNoticed = turn(loop) { returns > 0 }
    #expect(isNoticed)
  }

  @Test func `a missing device and one in use are reported as such`() throws {
    let hilltop = try radio("Hilltop", seed: 1)
    let holder = try SerialPort(location: hilltop.device, baud: LinkAddress.defaultBaud, dtr: nil)
    guard
      case .failure(.noRadioAmong(let words)) = look(
        SerialSearch(on: loop), [scratch.location("gone"), hilltop.device])
    else {
      Issue.record("something was found")
      return
    }
    #expect(words[0].contains("does not exist") && words[1].contains("in use"))
    withExtendedLifetime(holder) {}
  }

  @Test func `links of known boards come before udev's others, and those before the kernel's names`() {
    let root = scratch.folder.path()
    #expect(SerialDevices.all(root: root).isEmpty)
    for folder in ["dev", "dev/serial/by-id", "dev/meshpost"] { scratch.makeFolder(folder) }
    for name in ["ttyUSB1", "ttyACM0", "ttyS0", "null"] { _ = scratch.write("dev/\(name)", "") }
    let names = { SerialDevices.all(root: root).map { String($0.dropFirst(root.utf8.count)) } }
    #expect(names() == ["/dev/ttyACM0", "/dev/ttyUSB1"])
    _ = scratch.write("dev/serial/by-id/usb-FTDI-if00", "")
    #expect(names() == ["/dev/serial/by-id/usb-FTDI-if00"])
    _ = scratch.write("dev/meshpost/A1B2", "")
    #expect(names() == ["/dev/meshpost/A1B2"])
  }
}
