// SPDX-License-Identifier: MIT

import CLinux
import Foundation
import Glibc
import LoopTestSupport
import Testing

@testable import ServiceManager

@Suite struct ServiceManagerTests {
  private let process = "\(getpid())"

  @Test(
    arguments: [
      ("3", "a:b:a", ["a": [3, 5], "b": [4]]), ("1", nil, ["unknown": [3]]), ("2", "a", ["a": [3], "unknown": [4]]),
      ("0", nil, [:]), ("-1", nil, [:]), ("65", nil, [:]), ("99999999999", nil, [:]), ("x", "a", [:]), (nil, "a", [:]),
    ] as [(String?, String?, [String: [Int32]])])
  func `inherited descriptors have the names under which they were kept`(
    _ count: String?, _ names: String?, _ found: [String: [Int32]]
  ) {
    #expect(Environment.inherited(count: count, names: names, process: process) == found)
  }

  @Test func `descriptors and a watchdog for another process are ignored`() {
    #expect(Environment.inherited(count: "1", names: "a", process: "1").isEmpty)
    #expect(Environment.inherited(count: "1", names: "a", process: nil).isEmpty)
    #expect(Environment.watchdog("1000", process: "1") == nil)
  }

  @Test func `the watchdog's time is in microseconds`() {
    #expect(Environment.watchdog("2000000", process: process) == .seconds(2))
    #expect(Environment.watchdog("2000000", process: nil) == .seconds(2))
    for wrong in ["0", "-5", "", "1e3", "99999999999999999999"] {
      #expect(Environment.watchdog(wrong, process: nil) == nil)
    }
  }

  @Test func `status lines reach the service manager's socket, and descriptors with them`() throws {
    let scratch = Scratch()
    let listener = try #require(DatagramListener(scratch.location("notify")))
    let manager = try #require(
      ServiceManager(location: scratch.location("notify"), watchdog: nil, inherited: [:]))
    manager.ready("two\nlines")
    #expect(listener.next() == "READY=1\nSTATUS=two lines")
    var ends: [Int32] = [-1, -1]
    #expect(meshpost_pipe(&ends) == 0)
    #expect(manager.keep(ends, as: "spool"))
    #expect(listener.next() == "FDSTORE=1\nFDNAME=spool")
    manager.forget("spool")
    #expect(listener.next() == "FDSTOREREMOVE=1\nFDNAME=spool")
    manager.setWatchdog(.seconds(90))
    #expect(listener.next() == "WATCHDOG_USEC=90000000")
    for end in ends { close(end) }
  }

  @Test func `a location is distinguished from a name by its bytes`() {
    for location in ["/etc/x", "../\u{301}x", "a/\u{FE0F}b", "\u{600}/x"] {
      #expect(Array(Credential.location(location, or: "/folder").utf8) == Array(location.utf8))
    }
    #expect(Credential.location("hub.token", or: "/folder") == "/folder/hub.token")
  }

  @Test func `a service manager that is missing or does not read blocks nobody`() throws {
    let scratch = Scratch()
    let away = try #require(ServiceManager(location: scratch.location("away"), watchdog: nil, inherited: [:]))
    #expect(!away.keep([0], as: "x"))
    _ = try #require(DatagramListener(scratch.location("deaf")))
    let deaf = try #require(ServiceManager(location: scratch.location("deaf"), watchdog: nil, inherited: [:]))
    for _ in 0..<10_000 { deaf.lives() }
    for wrong in ["", "/", "relative", "vsock:2:1", "/" + String(repeating: "x", count: 200)] {
      #expect(ServiceManager(location: wrong, watchdog: nil, inherited: [:]) == nil)
    }
  }
}
