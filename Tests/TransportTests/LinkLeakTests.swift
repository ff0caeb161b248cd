// SPDX-License-Identifier: MIT

import CLinux
import Glibc
import TestSupport
import Testing
import Timing

@testable import EventLoop
@testable import Transport

/// Links that are opened, lost, cancelled and closed leave no task, descriptor, watch or timer behind.
@Suite(.serialized) struct LinkLeakTests {
  private let loop = EventLoop()
  private let scratch = Scratch()

  /// A serial device without a radio.
  private func terminal() -> (master: Int32, device: String) {
    let master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC)
    grantpt(master)
    unlockpt(master)
    return (master, Descriptor.terminalName(of: master) ?? "")
  }

  private func run(until condition: () -> Bool, _ what: Comment) throws {
    let isSo = turn(loop, until: condition)
    try #require(isSo, what)
  }

  private func expectNothingLeft(_ descriptors: Int) {
    #expect(loop.watchCount == 0 && loop.waitingTimers == 0)
    // Other tests run at the same time; a leak would show a thousand times.
    #expect(openDescriptors() - descriptors < 100)
  }

  @Test func `the rest of a frame may be late on TCP, which loses nothing`() {
    #expect(TCPLink(host: "127.0.0.1", port: 1, on: loop).frameTimeout == .seconds(30))
  }

  @Test func `a thousand cancelled probes leave nothing behind`() throws {
    let (master, device) = terminal()
    defer { close(master) }
    let descriptors = openDescriptors()
    var ended = 0
    for round in 0..<1000 {
      let probe = loop.begin { [loop] in
        do {
          _ = try await SerialProbe.look(at: device, on: loop)
          Issue.record("it was not cancelled")
        } catch {
          ended += 1
        }
      }
      for _ in 0..<round % 3 { loop.turn(wait: false) }
      probe.cancel()
      loop.turn(wait: false)
      #expect(ended == round + 1)
    }
    expectNothingLeft(descriptors)
    // The line is free for the next program.
    #expect(throws: Never.self) { try SerialPort(location: device, baud: LinkAddress.defaultBaud, dtr: nil) }
  }

  @Test func `a thousand serial links that are opened, lost and closed leave nothing behind`() throws {
    let descriptors = openDescriptors()
    weak var last: SerialLink?
    for round in 0..<1000 {
      let (master, device) = terminal()
      let link = SerialLink(.named(device), baud: LinkAddress.defaultBaud, on: loop)
      last = link
      var (isUp, isDown, hasEnded) = (false, false, false)
      link.onEvent = { event in
        if hasEnded { Issue.record("an event after the end: \(event)") }
        switch event {
        case .up: isUp = true
        case .down: isDown = true
        default: break
        }
      }
      link.open()
      if round % 4 > 0 {
        try run(until: { isUp }, "up")
        link.send([UInt8](repeating: 0, count: 100))
      }
      if round % 4 == 1 {
        close(master)
        try run(until: { isDown }, "lost")
        link.watchForReturn { Issue.record("it is not back") }
        loop.turn(wait: false)
      }
      if round % 4 == 2 { link.end() } else { link.close() }
      hasEnded = true
      if round % 4 != 1 { close(master) }
      loop.turn(wait: false)
    }
    expectNothingLeft(descriptors)
    #expect(last == nil, "its tasks have ended")
  }

  @Test func `a thousand TCP links that are opened, lost and closed leave nothing behind`() throws {
    let (listener, port) = try LoopbackSocket.listen(on: 0)
    defer { close(listener) }
    /// Closes all connections, also those that ended before they were up.
    func hangUp() { while case let peer = accept(listener, nil, nil), peer >= 0 { close(peer) } }
    let descriptors = openDescriptors()
    weak var last: TCPLink?
    for round in 0..<1000 {
      let link = TCPLink(host: "127.0.0.1", port: port, on: loop)
      last = link
      var (isUp, isDown, hasEnded) = (false, false, false)
      link.onEvent = { event in
        if hasEnded { Issue.record("an event after the end: \(event)") }
        switch event {
        case .up: isUp = true
        case .down(let failure): isDown = failure == .closedByPeer("tcp:127.0.0.1:\(port)")
        default: break
        }
      }
      link.open()
      if round % 4 > 0 {
        try run(until: { isUp }, "up")
        if round % 4 == 1 {
          hangUp()
          try run(until: { isDown }, "lost")
        }
        link.send([1])
        link.close()
      } else {
        loop.turn(wait: false)
        link.close()
      }
      hasEnded = true
      loop.turn(wait: false)
      // Connections beyond the listener's queue would not be accepted.
      if round % 4 == 3 { hangUp() }
    }
    try run(until: { loop.watchCount == 0 }, "name look-ups have ended")
    hangUp()
    expectNothingLeft(descriptors)
    #expect(last == nil)
  }

  @Test func `a device that appears is noticed after it has settled`() throws {
    let location = scratch.location("ttyUSB0")
    let link = SerialLink(.named(location), baud: LinkAddress.defaultBaud, on: loop)
    var (isDown, returns) = (false, 0)
    link.onEvent = { if case .down(.noSuchDevice) = $0 { isDown = true } }
    link.open()
    try run(until: { isDown }, "it does not exist")
    link.watchForReturn { returns += 1 }
    loop.turn(wait: false)
    _ = scratch.write("something-else", "")
    let began = loop.now
    _ = scratch.write("ttyUSB0", "")
    try run(until: { returns > 0 }, "it is there")
    #expect(loop.now - began >= .milliseconds(200))
    link.close()
    loop.turn(wait: false)
    expectNothingLeft(openDescriptors())
  }
}
